"""Facts from a record are the probe's own again, and another policy decides over them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from hpslurm.cli import what_if
from hpslurm.core import policy as policies
from hpslurm.core import probe, records, replay
from hpslurm.core.finding import Rule
from hpslurm.core.policy import Mute, Policy
from hpslurm.core.probe import Result
from hpslurm.core.records import Record
from hpslurm.core.replay import Change, Misfit, rebuild
from hpslurm.core.values import dataclass, field, fields
from hpslurm.node import site
from hpslurm.sources.host import Host
from tests.test_hosts import build, probes

CASES = ("p5-healthy", "p5-step-old-advice", "p5-efa-domains", "p5-dstate-stuck", "p5-oom-kill", "p5-kernel-oops")
CASES += ("p5-firewall-drops", "p5-memlock-low", "p5-stack-unlimited", "p5-governor-powersave", "p5-shm-stale")


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    found = {}
    for case in CASES:
        found[case] = tmp_path_factory.mktemp(case)
        build(case, found[case])
    return found


@pytest.mark.parametrize("name", [name for name, _ in probes()])
def test_facts_of_every_probe_come_back_from_a_record(name: str, machines: dict[str, Path]) -> None:
    module = dict(probes())[name]
    for case, root in machines.items():
        in_hook = "step" not in case
        host = Host(str(root), env={"NCCL_DEBUG": "INFO", "OFI_NCCL_PROTOCOL": "RDMA"}, in_hook=in_hook)
        try:
            facts = module.collect(host)
        except (probe.Skip, probe.Unknown):
            continue
        written = json.loads(json.dumps(probe.plain(facts)))
        again = rebuild(module.Facts, written)
        for item in fields(facts):
            if not item.metadata.get("names_only"):
                assert getattr(facts, item.name) == getattr(again, item.name), (case, item.name)


@dataclass(frozen=True)
class Inner:
    names: tuple[str, ...]
    pair: tuple[int, float]


@dataclass(frozen=True)
class Outer:
    inner: dict[str, Inner]
    number: int | None
    share: float
    flags: frozenset[str] = frozenset()
    secret: dict[str, str] = field(default_factory=dict, repr=False, metadata={"names_only": True})


GOOD = Outer({"a": Inner(("x", "y"), (1, 2.5))}, None, float("inf"), frozenset({"q"}), {"TOKEN": "hunter2"})


def test_a_value_with_everything_in_it_comes_back_without_its_secret() -> None:
    written = json.loads(json.dumps(probe.plain(GOOD)))
    assert "hunter2" not in json.dumps(written)
    assert Outer(GOOD.inner, None, float("inf"), GOOD.flags, {}) == rebuild(Outer, written)


@pytest.mark.parametrize(
    "change",
    [
        {"number": "1"},
        {"number": True},
        {"share": "much"},
        {"inner": []},
        {"inner": {"a": {"names": "xy", "pair": [1, 2]}}},
        {"inner": {"a": {"names": [], "pair": [1]}}},
        {"flags": "q"},
    ],
)
def test_facts_that_do_not_fit_are_a_misfit_that_names_the_field(change: dict[str, Any]) -> None:
    with pytest.raises(Misfit, match=next(iter(change))):
        rebuild(Outer, {**probe.plain(GOOD), **change})


def test_a_field_that_is_missing_is_a_misfit() -> None:
    with pytest.raises(Misfit, match="number"):
        rebuild(Outer, {"inner": {}, "share": 1})


def test_a_field_that_a_later_version_added_is_passed_over() -> None:
    assert GOOD.inner == rebuild(Outer, {**probe.plain(GOOD), "new": 1}).inner


@pytest.mark.parametrize("name", ["nonsense", "../policy", "os.path", "", "instance"])
def test_a_probe_that_this_version_does_not_have_is_a_misfit(name: str) -> None:
    with pytest.raises(Misfit):
        replay.module_of(name)


# what another policy makes of records


def record(
    node: str, *results: Result, hook: str = "prolog", time: float = 1000.0, gated: tuple[str, ...] = ()
) -> Record:
    run = {"type": "run", "node": node, "time": time, "job": 77, "instance": f"i-0000000{ord(node[-1]):x}"}
    return Record(node, hook, run, results, end={"gated": list(gated)})


def looked(name: str, facts: Any, policy: Policy) -> Result:
    module = replay.module_of(name)
    return probe.run(name, replay._Replayed(module, facts), None, policy)


def memlock(soft: float, policy: Policy) -> Result:
    module = replay.module_of("memlock")
    return looked("memlock", module.Facts("slurmd", soft), policy)


def efa(count: int, policy: Policy) -> Result:
    module = replay.module_of("efa")
    names = tuple(f"rdmap{number}" for number in range(count))
    return looked("efa", module.Facts("p5.48xlarge", 32, names, names), policy)


def told(changes: tuple[Change, ...]) -> list[tuple[str, str, str]]:
    return [(one.what, one.rule, one.node) for one in changes]


OLD = Policy()


def test_a_stricter_threshold_finds_more() -> None:
    seen = [record("n1", memlock(float(8 << 30), OLD)), record("n2", memlock(float(64 << 30), OLD))]
    assert [("found", "memlock-low", "n1")] == told(replay.replay(seen, Policy(memlock_min=16 << 30)).changes)


def test_a_looser_threshold_finds_less() -> None:
    assert [("gone", "memlock-low", "n1")] == told(
        replay.replay([record("n1", memlock(float(4 << 30), OLD))], Policy(memlock_min=1 << 30)).changes
    )


def test_the_same_policy_changes_nothing() -> None:
    assert [("kept", "memlock-low", "n1")] == told(
        replay.replay([record("n1", memlock(float(4 << 30), OLD))], OLD).changes
    )


def test_a_mute_of_one_node_mutes_there_only() -> None:
    seen = [record(node, memlock(float(4 << 30), OLD)) for node in ("n1", "n2")]
    changes = told(replay.replay(seen, Policy(mutes=(Mute("memlock-*", "known", node="n1"),))).changes)
    assert [("muted", "memlock-low", "n1"), ("kept", "memlock-low", "n2")] == changes


def test_a_gate_drains_the_node_in_its_prolog_only() -> None:
    seen = [record("n1", efa(31, OLD)), record("n1", efa(31, OLD), hook="epilog", time=2000.0)]
    changes = told(replay.replay(seen, Policy(gate=("efa-missing",))).changes)
    assert [("kept", "efa-missing", "n1"), ("gated", "efa-missing", "n1"), ("kept", "efa-missing", "n1")] == changes


def test_a_rule_that_may_not_gate_does_not() -> None:
    seen = [record("n1", memlock(1.0, OLD))]
    assert "gated" not in [what for what, _, _ in told(replay.replay(seen, Policy(gate=("memlock-default",))).changes)]


def test_a_node_that_was_drained_then_is_spared_now() -> None:
    seen = [record("n1", efa(31, OLD), gated=("efa-missing",))]
    assert ("spared", "efa-missing", "n1") in told(replay.replay(seen, OLD).changes)


def test_the_cap_spares_the_nodes_beyond_it_within_the_hour() -> None:
    seen = [record(f"n{number}", efa(31, OLD), time=1000.0 + number) for number in range(1, 5)]
    seen.append(record("n8", efa(31, OLD), time=1001.0 + 3599))
    seen.append(record("n9", efa(31, OLD), time=1001.0 + 3600))
    policy = Policy(gate=("efa-missing",), results_shared="/fsx/x", gate_per_hour=2)
    changes = replay.replay(seen, policy).changes
    assert ["n1", "n2", "n9"] == [one.node for one in changes if one.what == "gated"]
    assert ["n3", "n4", "n8"] == [one.node for one in changes if one.what == "spared"]


def site_policy(text: str, tmp_path: Path) -> Policy:
    (tmp_path / "policy.toml").write_text(text)
    (tmp_path / "policy.toml").chmod(0o644)
    return policies.load(str(tmp_path / "policy.toml"))


def test_what_the_site_expects_is_judged_by_node_and_what_nobody_looked_at_is_told(tmp_path: Path) -> None:
    new = site_policy('[nodes."n[1-2]"]\ncpus_min = 9\nP2 = ["cpus"]\n[nodes.n2]\nmodules = ["efa"]\n', tmp_path)
    seen = [record(node, looked("site", site.Facts(cpus=8), OLD)) for node in ("n1", "n2", "n3")]
    outcome = replay.replay([*seen, record("n1", hook="epilog")], new)
    assert [("found", "site-cpus-fewer", "n1"), ("found", "site-cpus-fewer", "n2")] == told(outcome.changes)
    assert ("site: not looked at: efa",) == outcome.troubles


def test_records_without_a_look_at_what_a_policy_expects_are_told(tmp_path: Path) -> None:
    new = site_policy('[nodes."n[1-2]"]\ncpus_min = 9\n', tmp_path)
    outcome = replay.replay([record("n1"), record("n2", Result("site", probe.SKIP, "nothing")), record("n3")], new)
    assert ("site: no look was recorded (2 times)",) == outcome.troubles


def test_facts_of_another_version_are_counted_and_their_findings_stay() -> None:
    result = memlock(float(4 << 30), OLD)
    old = Result("memlock", result.outcome, facts={"limit": 1}, findings=result.findings)
    outcome = replay.replay([record("n1", old), record("n2", old)], Policy(memlock_min=1))
    assert [("kept", "memlock-low", "n1"), ("kept", "memlock-low", "n2")] == told(outcome.changes)
    assert 1 == len(outcome.troubles)
    assert outcome.troubles[0].endswith("(2 times)")


def test_findings_over_two_records_stay_and_can_be_muted() -> None:
    grown = Rule("efa-errors", "P1", "x", "y").found("12 errors")
    facts = {"devices": {"rdmap0": {"tx_bytes": 1}}}
    seen = [record("n1", Result("efa_counters", "fail", facts=facts, findings=(grown,)), hook="epilog")]
    assert [("kept", "efa-errors", "n1")] == told(replay.replay(seen, OLD).changes)
    assert [("muted", "efa-errors", "n1")] == told(replay.replay(seen, Policy(mutes=(Mute("efa-*", "known"),))).changes)


def test_growth_during_a_job_stays_as_recorded_without_a_word_and_its_mutes_are_tried() -> None:
    grown = Result("efa_counters_grown", "fail", findings=(Rule("efa-errors", "P1", "x", "y").found("12 errors"),))
    seen = [record("n1", grown, Result("gpu_counters_grown", "pass"), hook="epilog")]
    outcome = replay.replay(seen, OLD)
    assert ((), [("kept", "efa-errors", "n1")]) == (outcome.troubles, told(outcome.changes))
    assert [("muted", "efa-errors", "n1")] == told(replay.replay(seen, Policy(mutes=(Mute("efa-*", "known"),))).changes)


# the command


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Two nodes' prologs as the hook's own writer leaves them."""
    folder = tmp_path / "results"
    for node, soft in (("ip-10-1-0-3", 4 << 30), ("ip-10-1-0-7", 4 << 30)):
        policy = Policy(node=node)
        writer = records.Writer(str(folder), node, "prolog", "77")
        for line in records.lines(policy, {"SLURM_JOB_ID": "77"}, "prolog", [memlock(float(soft), policy)]):
            writer.write(line)
        writer.close()
    return folder


def command(*words: str) -> tuple[int, str, str]:
    done = CliRunner(env={"COLUMNS": "200"}).invoke(what_if.command, words, standalone_mode=False)
    return done.return_value if done.exception is None else 2, done.stdout, done.stderr


def policy_file(tmp_path: Path, text: str) -> str:
    path = tmp_path / "new.toml"
    path.write_text(text)
    path.chmod(0o644)
    return str(path)


def test_the_command_folds_nodes_and_counts_each_record_once(results: Path, tmp_path: Path) -> None:
    code, out, _ = command("--policy", policy_file(tmp_path, "memlock_min = 1\n"), "--records", str(results))
    assert 0 == code
    assert "would not have been found: memlock-low  ip-10-1-0-[3,7]  (2 times, first " in out
    assert "2 records judged again, 0 findings as before, 0 nodes drained\n" in out


def test_a_policy_that_changes_nothing_says_so(results: Path, tmp_path: Path) -> None:
    _, out, _ = command("--policy", policy_file(tmp_path, "keep_days = 3\n"), "--records", str(results))
    assert "2 records judged again, 2 findings as before, 0 nodes drained: nothing changes\n" == out


def test_json_is_a_line_for_each_change(results: Path, tmp_path: Path) -> None:
    _, out, _ = command("--policy", policy_file(tmp_path, "memlock_min = 1\n"), "--records", str(results), "--json")
    lines = [json.loads(line) for line in out.splitlines()]
    assert [("change", "gone", "ip-10-1-0-3"), ("change", "gone", "ip-10-1-0-7")] == [
        (line["type"], line["what"], line["node"]) for line in lines
    ]


def test_a_policy_with_a_syntax_error_is_not_tried(results: Path, tmp_path: Path) -> None:
    code, out, err = command("--policy", policy_file(tmp_path, "gate = [\n"), "--records", str(results))
    assert (1, "") == (code, out)
    assert "new.toml ignored" in err


def test_a_gate_that_can_never_close_and_a_mute_past_its_date_are_told(results: Path, tmp_path: Path) -> None:
    text = "gate = ['memlock-lo']\n[[mutes]]\nrule = 'mtu-*'\nreason = 'r'\nuntil = '2000-01-01'\n"
    code, _, err = command("--policy", policy_file(tmp_path, text), "--records", str(results))
    assert 0 == code
    assert "gate names 'memlock-lo', which no look of a prolog can find" in err
    assert "the mute of mtu-* ended on 2000-01-01" in err


def test_a_folder_without_records_is_told(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    code, _, err = command("--policy", policy_file(tmp_path, "keep_days = 3\n"), "--records", str(tmp_path / "empty"))
    assert 1 == code
    assert "holds no records: folders jobs/ or nodes/" in err
