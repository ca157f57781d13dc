"""Each node against all others: the tail, the table, and who explains what."""

from __future__ import annotations

import math
import random

import pytest

from hpslurm.cluster.history_jobs import HARD, NAMED, SOFT, Failure, Job, Told
from hpslurm.cluster.history_ledger import Book, Ledger
from hpslurm.cluster.history_stats import FEW, SUSPECT, USUAL, WATCH, Count, chance, poisson_tail, size_class

HOUR, DAY = 3600, 86400
NODES = [f"n{number}" for number in range(40)]


@pytest.mark.parametrize(("count", "mean", "tail"), [
    (0, 3.0, 1.0), (1, 0.5, 1 - math.exp(-0.5)), (2, 1.0, 1 - 2 * math.exp(-1)), (10, 2.0, 4.6498e-05),
    (3, 0.0, 0.0), (5, 20.0, 0.99998), (50, 2.0, 5.2e-51),
])  # fmt: skip
def test_the_tail_is_that_of_the_textbook(count: int, mean: float, tail: float) -> None:
    assert tail == pytest.approx(poisson_tail(count, mean), rel=1e-2)


def test_sizes_are_classed_by_powers_of_four() -> None:
    assert [0, 1, 1, 2, 2, 3] == [size_class(size) for size in (1, 2, 7, 8, 31, 100)]


def test_one_of_one_is_not_worse_than_nine_of_forty() -> None:
    assert Count(1, 0.02).ratio < Count(9, 0.8).ratio


def test_what_nothing_names_must_be_far_less_likely_to_count_as_much() -> None:
    many = Count(5, 0.5)
    named, soft = chance({NAMED: many}), chance({SOFT: many})
    assert named < soft
    assert 1.0 == chance({NAMED: Count(), HARD: Count(), SOFT: Count()})


class Cluster:
    """Forty nodes for four weeks, a job of six hours on every node every day, and larger ones."""

    def __init__(self) -> None:
        self.jobs: list[Job] = []
        self.told: dict[int, Told] = {}
        for day in range(28):
            for at, node in enumerate(NODES):
                self.add((node,), day * DAY + at * 97, 6, user=f"u{at % 7}")
            for at in range(0, 40, 8):  # and a large job on every eighth of it
                self.add(tuple(NODES[at : at + 8]), day * DAY + 8 * HOUR, 4, user=f"u{day % 7}")
                self.add((NODES[at], NODES[at + 5]), day * DAY + 14 * HOUR, 4, user=f"u{day % 7}")

    def add(self, nodes: tuple[str, ...], start: int, hours: float, state: str = "COMPLETED", user: str = "u0",
            named: str = "", code: int = 0) -> int:  # fmt: skip
        job = Job(len(self.jobs) + 1, state, nodes, start, int(start + hours * HOUR), user, "p5", code)
        self.jobs.append(job)
        if named:
            self.told[job.id] = Told(job.id, job.end, "gpu_ecc", "node", "high", named)
        return job.id

    def book(self) -> Book:
        ledger = Ledger(lambda job: self.told.get(job.id))
        for job in self.jobs:
            ledger.add(job)
        return ledger.close()

    def words(self) -> dict[str, str]:
        return {one.node: one.word for one in self.book().verdicts}


def test_a_healthy_cluster_accuses_nobody() -> None:
    assert {USUAL} == set(Cluster().words().values())


def test_a_node_that_is_named_week_after_week_is_a_suspect() -> None:
    cluster = Cluster()
    for week in range(5):
        cluster.add(("n7",), week * 5 * DAY + HOUR, 2, "FAILED", f"u{week}", "n7")
    book = cluster.book()
    worst = book.verdicts[0]
    assert ("n7", SUSPECT, 5) == (worst.node, worst.word, worst.named)
    assert worst.expected < 1 < 3 < worst.ratio
    assert ["n7"] == [one.node for one in book.suspects]


def test_two_failures_are_an_accident() -> None:
    cluster = Cluster()
    for week in range(2):
        cluster.add(("n7",), week * 7 * DAY, 2, "FAILED", f"u{week}", "n7")
    assert WATCH == cluster.words()["n7"]


def test_failures_that_all_nodes_have_alike_make_no_suspect() -> None:
    cluster = Cluster()
    for day in range(0, 28, 4):
        for at, node in enumerate(NODES):
            cluster.add((node,), day * DAY + at * 1800, 1, "FAILED", f"u{day}", node)
    assert SUSPECT not in cluster.words().values()


def test_one_users_crash_loop_is_one_failure() -> None:
    cluster = Cluster()
    for number in range(20):
        cluster.add(("n7",), 3 * DAY + number * 60, 0.01, "FAILED", "u1", code=139)
    verdict = next(one for one in cluster.book().verdicts if one.node == "n7")
    assert 1 == verdict.failures
    assert SUSPECT != verdict.word


def test_one_fault_that_ends_several_jobs_is_one_failure() -> None:
    cluster = Cluster()
    for number in range(6):
        cluster.add(("n7",), 3 * DAY + number, 1, "FAILED", f"u{number}", "n7")
    assert 1 == next(one.named for one in cluster.book().verdicts if one.node == "n7")


def hard(job: int, nodes: tuple[str, ...], when: int, user: str) -> Failure:
    return Failure(job, HARD, nodes, "gpu_ecc", when, user, "p5", len(nodes))


def test_the_node_that_was_in_all_failed_jobs_explains_them_for_the_others() -> None:
    cluster = Cluster()
    chance_of = random.Random(1)
    for number in range(12):
        others = tuple(chance_of.sample([node for node in NODES if node != "n7"], 7))
        job = cluster.add(("n7", *others), number * 2 * DAY + 600, 3, "FAILED", f"u{number}")
        cluster.told[job] = Told(job, 0.0, "gpu_ecc", "node", "medium")
        cluster.add((*others, "n8"), number * 2 * DAY + 900, 3, "COMPLETED", f"u{number}")
    book = cluster.book()
    assert ("n7", 12) == (book.verdicts[0].node, book.verdicts[0].failures)
    assert SUSPECT == book.verdicts[0].word
    assert {0} == {one.failures for one in book.verdicts[1:]}


def test_nodes_that_always_fail_together_cannot_be_told_apart() -> None:
    cluster = Cluster()
    for number in range(12):
        job = cluster.add(("n7", "n8"), number * 2 * DAY + 600, 3, "FAILED", f"u{number}")
        cluster.told[job] = Told(job, 0.0, "gpu_ecc", "node", "medium")
    worst = cluster.book().verdicts[0]
    assert WATCH == worst.word
    assert {"n7", "n8"} == {worst.node, *worst.alike}


def test_a_node_that_has_worked_well_since_is_watched_only() -> None:
    cluster = Cluster()
    for day in range(5):
        cluster.add(("n7",), day * DAY + 12 * HOUR, 2, "FAILED", f"u{day}", "n7")
    for day in range(5, 28):
        cluster.add(("n7",), day * DAY + 8 * HOUR, 40)
    verdict = cluster.book().verdicts[0]
    assert ("n7", WATCH, True) == (verdict.node, verdict.word, verdict.quiet)


def test_few_jobs_say_so_instead_of_accusing() -> None:
    cluster = Cluster()
    cluster.jobs, cluster.told = [], {}
    for number in range(5):
        cluster.add(("n1",), number * DAY, 1, "FAILED", f"u{number}", "n1")
        cluster.add((f"n{number + 2}",), number * DAY, 1)
    assert {"n1": FEW} == {node: word for node, word in cluster.words().items() if word != USUAL}


def test_a_node_that_ends_each_job_at_once_has_no_hours_and_is_found() -> None:
    cluster = Cluster()
    cluster.jobs = [job for job in cluster.jobs if job.nodes != ("n7",)]
    for number in range(12):
        cluster.add(("n7",), number * 2 * DAY, 0.001, "FAILED", f"u{number}", "n7")
    assert SUSPECT == cluster.words()["n7"]
