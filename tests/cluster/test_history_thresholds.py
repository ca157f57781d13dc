"""What is usual, comes together and is shown of a machine's history: at each number and one step beside it."""

from __future__ import annotations

import pytest

from hpslurm.cluster import history_incidents, history_stats, history_view
from hpslurm.cluster.history import Asked, History, Trace
from hpslurm.cluster.history_jobs import NAMED, SOFT, Failure
from hpslurm.cluster.history_ledger import Book
from hpslurm.cluster.history_machines import Machines
from hpslurm.cluster.history_stats import FEW, SUSPECT, Table, Verdict, Work

NOON, DAY, NOW = 43200, 86400, 1_800_000_000
KIND = ("p5", NAMED, 0)


def named(job: int, node: str, day: int) -> Failure:
    return Failure(job, NAMED, (node,), "gpu_ecc", day * DAY, f"u{job}", "p5")


def work(hours: dict[str, float], jobs: dict[str, int] | None = None) -> Work:
    return Work({node: {KIND: spent} for node, spent in hours.items()}, {node: {0: 1.0} for node in hours}, jobs or {})


@pytest.mark.parametrize("others, incidents", [(101, 1), (102, 0)])
def test_what_fails_together_by_chance_once_in_a_million_is_an_incident(others: int, incidents: int) -> None:
    """Four in one second: with 101 others in the 24 hours around it the chance is 0.99e-6, with 102 it is 1.03e-6."""
    together = [Failure(job, SOFT, (f"n{job}",), "exit code 1:0", NOON, f"u{job}", "p5") for job in range(4)]
    times = [NOON - 40_000 + 100 * number for number in range(others)]
    assert incidents == len(history_incidents.split(together, times)[1])


@pytest.mark.parametrize("jobs, word", [(20, FEW), (21, SUSPECT)])
def test_of_fewer_than_thirty_jobs_nobody_knows_what_is_usual(jobs: int, word: str) -> None:
    nodes = [f"n{number}" for number in range(10)]
    counts = {node: jobs if node == "n0" else 1 for node in nodes}
    worst, *_ = history_stats.judge(
        work(dict.fromkeys(nodes, 100.0), counts), [named(job, "n0", job) for job in range(4)]
    )
    assert ("n0", word) == (worst.node, worst.word)


@pytest.mark.parametrize("others, expected", [(0.5, 10 * (0 + 1.0) / 0.5), (0.0, 1.0)])
def test_where_nobody_else_did_such_work_a_failure_is_expected(others: float, expected: float) -> None:
    """Half an hour of others without a failure: one is put to them, so that their rate is 1 / 0.5 h."""
    table = Table(work({"n0": 10.0, "n1": others}), [named(1, "n0", 1)])
    assert expected == pytest.approx(table.evidence("n0")[NAMED].expected)


@pytest.mark.parametrize("hours", [10.0, 0.5])
@pytest.mark.parametrize("times, quiet", [(5.0, True), (4.0, False)])
def test_a_node_is_quiet_where_its_own_rate_would_have_brought_another_failure(
    hours: float, times: float, quiet: bool
) -> None:
    """Of one failure in some hours there is none in five times as many with e^-5 = 0.7 %, in four times 1.8 %."""
    judged = history_stats.judge(work({"n0": hours, "n1": 10.0}), [named(1, "n0", 1)], {"n0": times * hours})
    assert [quiet] == [verdict.quiet for verdict in judged if verdict.node == "n0"]


def test_an_instance_that_was_launched_before_its_first_record_had_a_predecessor() -> None:
    machines = Machines([("n1", 1000.0, "i-a")], {"n1": (500.0, "i-a")}, since=100.0)
    assert ["n1 (before)", "n1 (i-a)"] == [machines.machine("n1", when) for when in (499, 500)]


def history(gpus: dict[str, tuple[str, ...]]) -> History:
    """GPUs, each with a fault on some machines."""
    traces: dict[str, tuple[Trace, ...]] = {}
    for gpu, nodes in gpus.items():
        for node in nodes:
            traces[node] = (*traces.get(node, ()), Trace(NOW, node, "record", "xid-79: seen", gpu, "xid-79"))
    return History(Asked(NOW - DAY, NOW), Book((), (), (), 100, 3), Machines([], {}), traces, ("sacct",), ())


@pytest.mark.parametrize("nodes, followed", [(("n1",), 0), (("n1", "n1"), 0), (("n1", "n2"), 1)])
def test_faults_follow_a_gpu_that_had_them_on_two_machines(nodes: tuple[str, ...], followed: int) -> None:
    assert followed == len(history({"GPU-1": nodes}).followed)


@pytest.mark.parametrize("gpus, shown", [(3, 3), (4, 3)])
def test_three_gpus_with_faults_on_several_machines_are_shown(gpus: int, shown: int) -> None:
    heads = list(history_view._heads(history({f"GPU-{number}": ("n1", "n2") for number in range(gpus)})))
    assert shown == sum("GPU-" in head for head in heads)


def test_a_node_is_not_quiet_unless_that_is_known() -> None:
    assert not Verdict("n1", FEW, 3, 3, 0.5, 4.0, 0.5, 10, 50.0, NOW - 100).quiet
