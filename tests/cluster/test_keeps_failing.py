"""What diagnose says of nodes that keep failing, from verdicts that history kept."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hpslurm.cluster import keeps_failing
from hpslurm.cluster.aws.events import EVENTS, ClusterEvent
from hpslurm.cluster.aws.health_agent import LINES, LogLine
from hpslurm.cluster.aws.hyperpod import INSTANCES
from hpslurm.cluster.aws.machines import of_view
from hpslurm.cluster.aws.view import View
from hpslurm.cluster.history import Asked, History
from hpslurm.cluster.history_kept import FRESH, kept
from hpslurm.cluster.history_ledger import Book
from hpslurm.cluster.history_machines import Machines
from hpslurm.cluster.model import Gathered, Instance, Member, Members
from hpslurm.core.finding import HARMS
from hpslurm.core.policy import Policy
from hpslurm.core.probe import Skip, Unknown
from hpslurm.sources.slurm import SlurmNode

NOW = 1796000000.0
LINE = {
    "schema": 1, "type": "node_history", "node": "n7", "instance": "i-a", "present": True, "verdict": "suspect",
    "jobs": 40, "node_hours": 210.0, "failures": 9, "named": 8, "expected": 0.8, "ratio": 5.6, "chance": 0.00002,
    "gpu": "", "evidence": [{"time": NOW - 100, "source": "sacctmgr", "text": "DOWN: gone"}],
}  # fmt: skip


def look(tmp_path: Path, state: str = "IDLE", flags: tuple[str, ...] = (), instance: str = "i-a", age: float = 60.0,
         **more: object) -> list[str]:  # fmt: skip
    head = {"type": "run", "time": NOW - age}
    (tmp_path / "history.jsonl").write_text(json.dumps(head) + "\n" + json.dumps({**LINE, **more}) + "\n")
    member = Member("n7", SlurmNode("n7", state, flags), instance_id=instance)
    gathered = Gathered(Members((member,), NOW), results=(str(tmp_path),))
    return [found.detail for found in keeps_failing.judge(keeps_failing.collect(gathered), Policy())]


@pytest.mark.parametrize("state", ["IDLE", "MIXED", "ALLOCATED"])
def test_a_suspect_that_gets_jobs_is_told_with_its_numbers(tmp_path: Path, state: str) -> None:
    (detail,) = look(tmp_path, state)
    assert detail.startswith("9 failures in 40 jobs and 210 h of work, 0.8 expected: 5.6 times its share")
    assert detail.endswith("less than 0.01 % by chance")


def test_the_finding_shows_what_was_seen_and_its_plan_is_in_order_of_harm() -> None:
    found = keeps_failing.found(LINE, NOW)
    assert any("DOWN: gone" in one.text for one in found.evidence)
    harms = [HARMS.index(one.harm) for one in found.suggestions]
    assert sorted(harms) == harms
    assert ("node-keeps-failing", "P1", "n7") == (found.rule.id, found.rule.priority, found.subject)


def test_a_node_that_is_out_already_is_not_told_again(tmp_path: Path) -> None:
    assert [] == look(tmp_path, "IDLE", ("DRAIN",))


@pytest.mark.parametrize("more", [{"verdict": "watch"}, {"present": False}, {"instance": "i-old"}])
def test_others_than_suspects_and_machines_that_are_gone_are_not_told(tmp_path: Path, more: dict[str, object]) -> None:
    assert [] == look(tmp_path, **more)


def test_verdicts_that_are_days_old_are_no_longer_believed(tmp_path: Path) -> None:
    assert look(tmp_path, age=FRESH)
    with pytest.raises(Skip, match="3 days old"):
        look(tmp_path, age=FRESH + 1)


def test_without_a_history_nothing_is_said(tmp_path: Path) -> None:
    with pytest.raises(Skip, match="history --keep"):
        keeps_failing.collect(Gathered(Members((), NOW), results=(str(tmp_path),)))


def test_what_others_may_write_and_lines_that_are_not_ours_are_not_believed(tmp_path: Path) -> None:
    look(tmp_path)
    (tmp_path / "history.jsonl").chmod(0o666)
    assert None is kept([str(tmp_path)])
    (tmp_path / "history.jsonl").chmod(0o644)
    assert [] == look(tmp_path, evidence="all of it")
    (tmp_path / "history.jsonl").write_text("[]\nnothing\n")
    assert None is kept([str(tmp_path)])


def test_hyperpod_tells_of_launches_and_of_what_befell_an_instance() -> None:
    answers = {
        INSTANCES.name: ((Instance("i-a", "workers", "Running", "n7", launched=NOW),), ""),
        EVENTS.name: ((ClusterEvent("1", NOW, "Instance replaced", "Warn", "workers", "i-a"),
                       ClusterEvent("2", NOW, "All is well", "Info", "workers", "i-a")), ""),
        LINES.name: ((LogLine(NOW, "stream", "XID code 79", "workers", "i-a"),), ""),
    }  # fmt: skip
    cloud = of_view(View(answers, NOW, 0.0))
    assert {"n7": (NOW, "i-a")} == dict(cloud.launched)
    assert ["Instance replaced", "health agent: XID code 79"] == [trace.text for trace in cloud.traces]
    missing = of_view(View({**answers, EVENTS.name: Unknown("grant it")}, NOW, 0.0)).missing
    assert ["grant it"] == [one.note for one in missing]


def test_what_is_kept_may_be_read_by_all_and_written_by_root(tmp_path: Path) -> None:
    history = History(Asked(0, NOW), Book((), (), (), 0, 0), Machines([], {}), {}, (), ())
    keeps_failing.keep(str(tmp_path), history, Policy())
    assert 0o644 == (tmp_path / "history.jsonl").stat().st_mode & 0o777
    newest = kept([str(tmp_path)])
    assert newest is not None
    assert (NOW, ()) == (newest.time, tuple(line for line in newest.lines if line.get("type") == "node_history"))
