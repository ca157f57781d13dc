"""A running job that stands still is named with what it costs and what to type; one that works never is."""

from __future__ import annotations

from typing import Any

import pytest

from hpslurm.cluster.job_stalled import STALLED, collect, judge
from hpslurm.cluster.model import Gathered, Member, Members
from hpslurm.core.finding import Finding
from hpslurm.core.policy import Policy
from hpslurm.core.probe import PASS, Result, Skip, Unknown
from hpslurm.core.records import Record
from hpslurm.node.job_activity import DIFFERS, IDLES, UNKNOWN, WAITS, WORKS
from hpslurm.sources.slurm import Queued

NOW = 1_800_000_000.0


def job(nodes: str = "n[1-4]", state: str = "RUNNING") -> Queued:
    return Queued(4711, state, "alice", 1001, "all", 4, int(NOW) - 9000, None, nodes, "None")


def share(doing: str = WAITS, minutes: float = 30, old: float = 1, **more: Any) -> dict[str, Any]:
    facts = {"gpus": 8, "doing": doing, "since": NOW - 60 * (minutes + old), **more}
    return {"time": NOW - 60 * old, "jobs": {"4711": facts}, "moved": 0}


def found(*shares: dict[str, Any] | None, of: Queued | None = None, policy: Policy | None = None) -> list[Finding]:
    members = []
    for number, facts in enumerate(shares, 1):
        results = (Result("job_activity", PASS, facts=facts),) if facts else ()
        members.append(Member(f"n{number}", record=Record(f"n{number}", "health", {"time": NOW}, results)))
    gathered = Gathered(Members(tuple(members), NOW), queue=(of or job(),))
    return list(judge(collect(gathered), policy or Policy()))


def test_a_job_that_waits_on_all_its_nodes_is_named_with_its_user_its_cost_and_the_command() -> None:
    (finding,) = found(*[share()] * 4)
    assert (STALLED, "") == (finding.rule, finding.subject)
    assert (
        "job 4711 of alice: for 31 min its 32 GPUs wait at low power and no byte moves, 16.5 GPU hours so far"
        == finding.detail
    )
    assert ["hpslurm hang 4711"] == [one.command for one in finding.suggestions]


@pytest.mark.parametrize(("minutes", "named"), [(10, True), (9.9, False)])
def test_ten_minutes_are_the_threshold(minutes: float, named: bool) -> None:
    assert named == bool(found(*[share(minutes=minutes)] * 4))


def test_the_threshold_is_the_policys() -> None:
    assert [] == found(*[share(minutes=30)] * 4, policy=Policy(stall_minutes=31))


def test_the_node_that_came_last_counts() -> None:
    assert [] == found(*[share()] * 3, share(minutes=5))


@pytest.mark.parametrize("doing", [WORKS, UNKNOWN])
def test_one_node_that_works_or_does_not_tell_keeps_the_job_from_being_named(doing: str) -> None:
    assert [] == found(*[share()] * 3, share(doing))


def test_the_one_node_that_differs_is_named() -> None:
    (finding,) = found(*[share()] * 3, share(DIFFERS))
    assert "n4" == finding.subject
    assert "n4 differs from the rest: a GPU without a kernel" in finding.detail
    assert "health check of n4" == finding.evidence[0].source


def test_a_job_whose_gpus_are_mostly_idle_is_another_matter() -> None:
    assert [] == found(share(), share(IDLES), share(IDLES), share(IDLES))


def test_records_that_are_too_old_tell_nothing_of_now() -> None:
    assert [] == found(*[share(old=21)] * 4)
    assert [] != found(*[share(old=20)] * 4)


def test_a_node_that_has_not_told_is_said_to_be_unknown() -> None:
    with pytest.raises(Unknown, match="job 4711: no health check of n4 tells of it"):
        found(*[share()] * 3, None)


def test_a_job_that_does_not_run_is_not_looked_at() -> None:
    assert [] == found(*[share()] * 4, of=job(state="COMPLETING"))


def test_where_no_health_check_saw_a_job_there_is_nothing_to_say() -> None:
    with pytest.raises(Skip):
        found(None, None)
