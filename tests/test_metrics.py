"""Records as numbers: what is there is counted, and what could not be seen never looks fine."""

from __future__ import annotations

import json
import os
import pwd
from collections.abc import Callable
from pathlib import Path

import pytest

from hpslurm import metrics
from hpslurm.core import records
from hpslurm.core.finding import P0, P1, Finding, Rule
from hpslurm.core.policy import Mute, Policy
from hpslurm.core.probe import FAIL, PASS, UNKNOWN, Result
from hpslurm.core.records import Record
from hpslurm.metrics import BEFORE_BOOT, COMPLETE, CUT_OFF, MISSING, RUNNING, UNREADABLE, Seen

NOW = 1_800_000_000.0
EFA = Rule("efa-missing", P0, "EFA devices missing", "debugging-guide.md § 6", cause="efa_not_used")
MTU = Rule("mtu-small", P1, "MTU small", "debugging-guide.md § 3")
HERE = Policy(node="n1")


def record(*results: Result, node: str = "n1", hook: str = "health", complete: bool = True, **run: object) -> Record:
    made = {"time": NOW, "boot": "b1", "version": "0.1.0", "policy": "default", **run}
    end = {"seconds": 0.25, "gated": []} if complete else {}
    return Record(node, hook, made, results, (), end, complete)


def found(rule: Rule, muted: str = "", note: str = "") -> Result:
    return Result("probe", FAIL, note, 0.0, None, (Finding(rule, "16 of 32", muted=muted),))


def numbers(*kept: Record, policy: Policy = HERE, expected: str = "n1", **seen: object) -> Callable[..., float | None]:
    """Asks for a number: ``ask("findings", hook="health", priority="P0")``; None where there is no such series."""
    made = metrics.families(Seen(tuple(kept), **{"cut_off": {}, **seen}), policy, "b1", expected)  # type: ignore[arg-type]
    by_name = {one.name: one for one in made}

    def ask(name: str, **labels: str) -> float | None:
        family = by_name.get(f"hpslurm_{name}")
        if family is None:
            return None
        fitting = [
            number
            for values, number in family.values.items()
            if labels.items() <= dict(zip(family.labels, values, strict=True)).items()
        ]
        assert len(fitting) < 2, (name, labels, fitting)
        return fitting[0] if fitting else None

    return ask


def states(ask: Callable[..., float | None], **labels: str) -> list[str]:
    return [state for state in metrics.STATES if ask("record", state=state, **labels)]


def test_a_finding_is_counted_and_named_without_its_detail() -> None:
    ask = numbers(record(found(EFA), Result("memlock", PASS)))
    assert (1, 0) == (ask("findings", priority="P0"), ask("findings", priority="P1"))
    assert 1 == ask("finding", rule="efa-missing", priority="P0", cause="efa_not_used", muted="false")
    assert (1, 1, 0) == tuple(ask("probes", outcome=one) for one in ("pass", "fail", "unknown"))
    assert not [one for one in metrics.FAMILIES.values() if {"detail", "note", "subject"} & set(one[1])]


def test_a_muted_finding_is_shown_and_counts_for_nothing() -> None:
    ask = numbers(record(found(EFA, muted="ticket 4711")))
    assert (0, 1) == (ask("findings", priority="P0"), ask("findings_muted"))
    assert (1, None) == (ask("finding", muted="true"), ask("finding", muted="false"))


@pytest.mark.parametrize(("node", "muted"), [("n1", 1), ("n2", 0)])
def test_a_mute_of_today_holds_for_a_record_of_yesterday_on_the_node_that_it_names(node: str, muted: int) -> None:
    policy = Policy(node="n1", mutes=(Mute("efa-*", "RMA", node=node),))
    assert muted == numbers(record(found(EFA)), policy=policy)("findings_muted")


@pytest.mark.parametrize(("instance", "muted"), [("i-1", 1), ("i-2", 0)])
def test_a_mute_of_an_instance_is_held_against_the_one_that_made_the_record(instance: str, muted: int) -> None:
    policy = Policy(node="n1", mutes=(Mute("efa-*", "RMA", instance=instance),))
    assert muted == numbers(record(found(EFA), instance="i-1"), policy=policy)("findings_muted")


def test_what_could_not_be_looked_at_is_named() -> None:
    ask = numbers(record(Result("gpu_driver", UNKNOWN, "no answer")))
    assert (1, 1) == (ask("not_checked", probe="gpu_driver"), ask("probes", outcome="unknown"))


def test_what_was_looked_at_in_part_is_named_too() -> None:
    assert 1 == numbers(record(found(EFA, note="and then no answer")))("not_checked", probe="probe")
    assert None is numbers(record(found(EFA)))("not_checked")


def test_a_record_that_was_cut_off_has_no_zeros() -> None:
    ask = numbers(record(found(EFA), complete=False))
    assert [CUT_OFF] == states(ask, hook="health")
    assert (1, None, None) == (ask("findings", priority="P0"), ask("findings", priority="P1"), ask("findings_muted"))
    assert (1, None, None) == tuple(ask("probes", outcome=one) for one in ("fail", "pass", "unknown"))
    assert None is ask("run_duration_seconds")


def test_a_node_without_any_record_is_named_as_such_and_has_no_counts() -> None:
    ask = numbers()
    assert 0 == ask("nodes")
    assert [[MISSING]] * 3 == [states(ask, node="n1", hook=hook) for hook in metrics.HOOKS]
    assert [None] * 3 == [ask(name) for name in ("findings", "probes", "run_timestamp_seconds")]


def test_where_nobody_knows_which_nodes_there_are_the_number_of_nodes_says_none() -> None:
    ask = numbers(expected="", cut_off=None)
    assert (0, None) == (ask("nodes"), ask("record"))


def test_a_record_that_was_refused_is_not_taken_for_missing_nor_for_fine() -> None:
    ask = numbers(unreadable=(("n1", "health"),))
    assert ([UNREADABLE], [MISSING]) == (states(ask, hook="health"), states(ask, hook="prolog"))
    assert (1, None) == (ask("nodes"), ask("findings", hook="health"))


def test_what_this_machine_recorded_before_its_boot_is_history() -> None:
    ask = numbers(record(found(EFA), boot="b0"))
    assert [BEFORE_BOOT] == states(ask, hook="health")
    assert (NOW, None, None) == (ask("run_timestamp_seconds"), ask("finding"), ask("findings"))


def test_the_boot_of_this_machine_says_nothing_about_another() -> None:
    ask = numbers(record(found(EFA), node="n2", boot="b0"))
    assert [COMPLETE] == states(ask, node="n2", hook="health")
    assert 1 == ask("finding", node="n2")


def test_only_the_newest_record_of_a_node_tells_how_it_is_now() -> None:
    ask = numbers(
        record(found(EFA), hook="prolog", time=NOW - 1),
        record(hook="health"),
        record(node="n2", hook="prolog", time=NOW - 9),
    )
    assert (0, 1, None) == tuple(ask("record_newest", node="n1", hook=hook) for hook in ("prolog", "health", "epilog"))
    assert 1 == ask("record_newest", node="n2", hook="prolog")


def test_the_gate_and_a_policy_with_mistakes_are_numbers() -> None:
    one = Record("n1", "prolog", {"policy_problems": ["a", "b"]}, (), (), {"gated": ["efa-missing"]}, True)
    ask = numbers(one)
    assert (1, 2) == (ask("gated"), ask("policy_problems"))
    assert None is numbers(record(hook="health"))("gated")  # a health check gates nothing


@pytest.mark.parametrize("seconds", [None, "9", True, -1, float("nan"), 1e300, 10**400])
def test_a_strange_duration_is_left_out(seconds: object) -> None:
    one = Record("n1", "health", {}, (), (), {"seconds": seconds}, True)
    assert None is numbers(one)("run_duration_seconds")


def test_foreign_words_become_harmless_labels() -> None:
    rule = Rule('a"b\n{x}', P0, "", "", cause="é" * 300)
    ask = numbers(record(found(rule), node="n\x1b1"))
    assert 1 == ask("finding", rule="a_b__x_", cause="_" * 80, node="n 1")


def test_a_record_makes_a_bounded_number_of_series() -> None:
    many = [found(Rule(f"a-{number}", P0, "", "")) for number in range(metrics.MOST + 1)]
    (family,) = (one for one in metrics.families(Seen((record(*many),)), HERE, "", "") if one.name == "hpslurm_finding")
    assert metrics.MOST == len(family.values)
    assert metrics.MOST + 1 == numbers(record(*many))("findings", priority="P0")


# what a folder holds


def leave(results: Path, hook: str = "health", node: str = "n1", job: str = "", lines: int = 0) -> Path:
    """A record as a hook writes it; with ``lines`` one that was killed after so many."""
    writer = records.Writer(str(results), node, hook, job)
    for line in list(records.lines(Policy(node=node), {}, hook, [found(EFA)]))[: lines or None]:
        writer.write(line)
    if lines:
        os.close(writer.handle)
        return Path(writer.part)
    writer.close()
    return Path(writer.path)


@pytest.mark.parametrize(("age", "seen"), [(RUNNING, 1), (RUNNING - 1, 0)])
def test_an_unfinished_record_counts_when_its_hook_can_run_no_more(tmp_path: Path, age: float, seen: int) -> None:
    leave(tmp_path, "prolog", job="7")
    part = leave(tmp_path, "prolog", job="8", lines=2)
    os.utime(part, (NOW - age, NOW - age))
    looked, troubles = metrics.read_results(str(tmp_path), False, NOW)
    assert [] == troubles
    made = {one.name: one.values for one in metrics.families(looked, HERE, "", "n1")}
    assert seen == made["hpslurm_cut_off_records"]["n1", "prolog"]
    times = made["hpslurm_cut_off_timestamp_seconds"] if seen else {("n1", "prolog"): NOW - age}
    assert {("n1", "prolog"): NOW - age} == times


def test_in_the_shared_folder_nobody_can_tell_what_was_cut_off(tmp_path: Path) -> None:
    leave(tmp_path)
    looked, _ = metrics.read_results(str(tmp_path), True, NOW)
    assert [] == [one.name for one in metrics.families(looked, HERE, "", "") if "cut_off_" in one.name]


def test_a_broken_line_is_named_and_the_rest_is_shown(tmp_path: Path) -> None:
    path = leave(tmp_path)
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], "{nonsense", *lines[1:]]))
    leave(tmp_path, "prolog")
    looked, (trouble,) = metrics.read_results(str(tmp_path), False, NOW)
    assert f"{path} line 2: no line of a record, passed over" == trouble
    ask = numbers(*looked.records, policy=Policy(node="controller"))
    assert ([CUT_OFF], [COMPLETE]) == (states(ask, hook="health"), states(ask, hook="prolog"))
    assert 1 == ask("finding", hook="health", rule="efa-missing")


def test_of_many_broken_lines_the_first_three_are_named(tmp_path: Path) -> None:
    path = leave(tmp_path)
    path.write_text("x\n" * 5 + path.read_text())
    _, troubles = metrics.read_results(str(tmp_path), False, NOW)
    assert 4 == len(troubles)
    assert f"{path}: 2 more such lines" == troubles[-1]


def test_lines_that_nest_without_end_are_broken_lines(tmp_path: Path) -> None:
    path = leave(tmp_path)
    path.write_text("[" * 200_000 + "\n" + path.read_text())
    _, (trouble,) = metrics.read_results(str(tmp_path), False, NOW)
    assert "line 1: no line of a record" in trouble


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_record_of_another_user_is_refused_and_the_others_are_shown(tmp_path: Path) -> None:
    os.chown(leave(tmp_path), 4242, 4242)
    leave(tmp_path, "prolog")
    looked, (trouble,) = metrics.read_results(str(tmp_path), False, NOW)
    assert "n1.health.jsonl: refused: not a regular file that only root may write" in trouble
    assert ((("n1", "health"),), ["prolog"]) == (looked.unreadable, [one.hook for one in looked.records])


@pytest.mark.parametrize("below", ["", "nodes"])
def test_a_folder_in_which_others_may_write_is_refused(tmp_path: Path, below: str) -> None:
    leave(tmp_path)
    os.chmod(tmp_path / below, 0o777)
    with pytest.raises(PermissionError, match="others may write"):
        metrics.read_results(str(tmp_path), False, NOW)


def test_a_folder_that_no_hook_has_made_yet_is_no_record(tmp_path: Path) -> None:
    looked, (trouble,) = metrics.read_results(f"{tmp_path}/none", False, NOW)
    assert Seen(cut_off={}) == looked
    assert f"{tmp_path}/none does not exist: no hook has left a record there" == trouble


def test_a_shared_folder_that_is_not_there_may_not_be_mounted(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        metrics.read_results(f"{tmp_path}/none", True, NOW)


def test_the_line_that_was_written_last_is_no_broken_one(tmp_path: Path) -> None:
    path = leave(tmp_path, lines=2)
    os.utime(path, (NOW, NOW))
    looked, (trouble,) = metrics.read_results(str(tmp_path), False, NOW)
    assert trouble.endswith("cut off, it has no last line")
    assert [json.loads(path.read_text().splitlines()[0])["hook"]] == [looked.records[0].run["hook"]]


def test_a_job_that_stands_still_has_its_seconds_and_its_users_name() -> None:
    def told(node: str, since: float) -> Record:
        job = {"gpus": 8, "doing": "waits", "since": since, "uid": os.getuid()}
        return record(Result("job_activity", PASS, facts={"time": NOW, "jobs": {"4711": job}, "moved": 0}), node=node)

    ask = numbers(told("n1", NOW - 1200), told("n2", NOW - 900))
    assert 900 == ask("job_stalled_seconds", job="4711", user=pwd.getpwuid(os.getuid()).pw_name)
    assert None is numbers(record())("job_stalled_seconds")
