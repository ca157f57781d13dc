"""One plan for each node: what is merged, what is left out, what is only a consequence."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpslurm.core import suggest
from hpslurm.core.finding import CONFIGURE, DRAIN, LOOK, P0, P1, P2, REBOOT, REPLACE, Finding, Rule, Suggestion
from hpslurm.core.values import replace
from hpslurm.show import plan
from hpslurm.show.plan import Known, Plan, common, plans, shape

LOST = Rule("gpu-lost", P0, "GPU lost", "debugging-guide.md § 7")
MISSING = Rule("efa-missing", P0, "EFA devices missing", "debugging-guide.md § 6")
SMALL = Rule("shm-small", P1, "Shared memory small", "debugging-guide.md § 17")
ERRORS = Rule("efa-errors", P1, "EFA errors", "debugging-guide.md § 6")
KERNEL = Suggestion(LOOK, "see the kernel log", "srun -w {nodes} dmesg")
FIX = Suggestion(CONFIGURE, "make it larger", "sudo mount -o remount /dev/shm")


def grave(rule: Rule = LOST, node: str = "n2", detail: str = "Xid 79 on GPU 3") -> Finding:
    steps = [KERNEL, suggest.save_evidence(), suggest.drain(rule.id), suggest.reboot(f"{rule.id} may go away")]
    return rule.found(detail, suggest=[*steps, suggest.replace("it came back")], subject=node)


def one(*findings: Finding, **how: object) -> Plan:
    (made,) = plans(findings, **how)  # type: ignore[arg-type]
    return made


def commands(made: Plan) -> list[str]:
    return [step.command for step in made.steps]


def test_two_findings_of_a_node_are_one_plan_in_order_of_harm_with_each_command_once() -> None:
    made = one(grave(), grave(MISSING), SMALL.found("64 KiB", suggest=[FIX], subject="n2"))
    assert [LOOK, LOOK, DRAIN, CONFIGURE, REBOOT, REPLACE] == [step.harm for step in made.steps]
    assert len(set(commands(made))) == len(commands(made))
    assert "sudo scontrol update nodename=n2 state=drain reason='hpslurm: gpu-lost, efa-missing'" in commands(made)
    assert ("gpu-lost", "efa-missing") == made.steps[4].rules
    assert "gpu-lost may go away; efa-missing may go away" == made.steps[4].why


def test_the_evidence_is_saved_after_the_looks_and_before_all_else() -> None:
    assert "clush -w n2 'sudo dmesg -T; sudo lspci -nn' > hpslurm-evidence.txt" == commands(one(grave()))[1]


def test_nodes_with_the_same_troubles_share_a_plan_that_names_them_all() -> None:
    made = one(grave(), grave(node="n3", detail="Xid 79 on GPU 5"))
    assert ("n2", "n3") == made.nodes
    assert "srun -w 'n[2-3]' dmesg" == commands(made)[0]
    assert "Xid 79 on GPU 3, 5" == made.troubles[0].words


def test_nodes_with_other_troubles_have_plans_of_their_own_the_gravest_first() -> None:
    made = plans([SMALL.found("x", subject="n1"), grave(), grave(detail="Xid 48 on GPU 3", node="n4")])
    assert [("n2",), ("n4",), ("n1",)] == [each.nodes for each in made]


def test_a_node_that_is_out_is_not_drained_again() -> None:
    assert DRAIN not in [step.harm for step in one(grave(), known={"n2": Known(out=True)}).steps]


def test_a_node_that_hyperpod_is_replacing_has_nothing_but_waiting() -> None:
    made = one(grave(), grave(MISSING), known={"n2": Known(out=True, waits="HyperPod replaces it")})
    assert ((), "wait", "HyperPod replaces it") == (made.steps, made.do, made.waits)


def test_while_slurm_still_starts_jobs_on_such_a_node_it_is_drained_first() -> None:
    made = one(grave(), known={"n2": Known(waits="HyperPod replaces it")})
    assert ([DRAIN], "drain, then wait") == ([step.harm for step in made.steps], made.do)


def test_a_replacement_asked_for_outright_makes_a_reboot_needless() -> None:
    broken = LOST.found("past repair", suggest=[suggest.replace("it is broken")], subject="n2")
    made = one(broken, grave(MISSING))
    assert (REPLACE, "replace") == (made.furthest, made.do)
    assert "reboot, else replace" == one(grave()).do


def test_what_another_node_explains_is_said_and_asks_for_nothing() -> None:
    peer = ERRORS.found("12 errors", suggest=[KERNEL], subject="n1")
    made = plans([grave(), peer], explained={("n1", "efa-errors"): "n2"})[1]
    assert ((), "-", "n2") == (made.steps, made.do, made.troubles[0].explained)


def test_muted_findings_ask_for_nothing() -> None:
    assert [] == plans([replace(grave(), muted="ticket")])


def test_findings_of_no_node_are_plans_for_themselves() -> None:
    made = plans([LOST.found("a"), SMALL.found("b", suggest=[FIX])])
    assert [(), ()] == [each.nodes for each in made]
    assert ["sudo mount -o remount /dev/shm"] == commands(made[1])


def test_a_command_for_some_nodes_of_a_plan_names_those_only() -> None:
    reset = Suggestion(LOOK, "ask GPU 3", "srun -w {nodes} nvidia-smi -i 3")
    made = one(
        LOST.found("Xid 79 on GPU 3", suggest=[KERNEL, reset], subject="n2"),
        LOST.found("Xid 79 on GPU 5", suggest=[KERNEL], subject="n3"),
    )
    assert ["srun -w 'n[2-3]' dmesg", "srun -w n2 nvidia-smi -i 3"] == commands(made)


def test_whoever_knows_instances_words_the_acts() -> None:
    def act(item: Suggestion, nodes: object) -> list[Suggestion]:
        return [Suggestion(item.harm, item.why, f"api {item.harm} {nodes}")]

    assert [f"api reboot {('n2',)}", f"api replace {('n2',)}"] == commands(one(grave(), act=act))[-2:]


def test_the_first_command_keeps_jobs_off() -> None:
    assert one(grave()).first.startswith("sudo scontrol update nodename=n2 state=drain")
    assert "sudo mount -o remount /dev/shm" == one(SMALL.found("x", suggest=[FIX], subject="n1")).first
    assert "" == one(Rule("note", P2, "t", "r").found("x")).first


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Xid 48 on GPU 6", "Xid 48 on GPU …"),
        ("ticket INC-4711, look at it", "ticket …, look at it"),
        ("16 of 32 EFA devices of a p5.48xlarge", "… of … EFA devices of a p5.48xlarge"),
        ("i-0123456789abcdef0 is gone from ip-10-1-0-3", "… is gone from …"),
        ("exit code 137, signal 9", "exit code 137, signal 9"),
        ("lost 0000:b9:00.0", "lost …"),
    ],
)
def test_the_shape_of_a_text_leaves_out_what_differs_and_keeps_codes(text: str, expected: str) -> None:
    assert expected == shape(text)


def test_many_different_values_are_left_open() -> None:
    assert "Xid 48 on GPU …" == common([f"Xid 48 on GPU {number}" for number in range(8)])
    assert "Xid 48 on GPU 7" == common(["Xid 48 on GPU 7"])


@given(st.text(max_size=60), st.text(max_size=60))
def test_any_two_texts_of_one_shape_have_something_in_common(first: str, second: str) -> None:
    assert shape(first) == shape(common([first, first]))
    assert isinstance(common([first, second]), str)


def test_a_line_of_json_has_all_of_the_plan() -> None:
    line = plan.line(one(grave()))
    assert ("plan", ["n2"], P0, "replace", "") == (
        line["type"], line["nodes"], line["priority"], line["furthest"], line["waits"],
    )  # fmt: skip
    assert [{"id": "gpu-lost", "priority": P0, "words": "Xid 79 on GPU 3", "explained_by": ""}] == line["findings"]
    assert {"step", "why", "command", "nodes", "findings"} == set(line["steps"][0])
