"""Each node against all others: the tail, the table, and who explains what."""

from __future__ import annotations

import math
import random

import pytest

from hpslurm.cluster import history_stats
from hpslurm.cluster.history_jobs import HARD, NAMED, SOFT, Failure, Job, Told
from hpslurm.cluster.history_ledger import Book, Ledger
from hpslurm.cluster.history_stats import (
    FEW,
    SUSPECT,
    USUAL,
    WATCH,
    Count,
    Table,
    Verdict,
    Work,
    chance,
    judge,
    poisson_tail,
    size_class,
    tail,
)

HOUR, DAY = 3600, 86400
NODES = [f"n{number}" for number in range(40)]


@pytest.mark.parametrize(("count", "mean", "tail"), [
    (0, 3.0, 1.0), (1, 0.5, 1 - math.exp(-0.5)), (2, 1.0, 1 - 2 * math.exp(-1)), (10, 2.0, 4.6498e-05),
    (3, 0.0, 0.0), (5, 20.0, 0.99998), (50, 2.0, 5.2e-51),
])  # fmt: skip
def test_the_tail_is_that_of_the_textbook(count: int, mean: float, tail: float) -> None:
    assert tail == pytest.approx(poisson_tail(count, mean), rel=1e-2)


@pytest.mark.parametrize(("count", "mean", "known", "chance_of_it"), [
    (0, 3.0, 1.0, 1.0), (3, 0.0, 1.0, 0.0), (1, 0.25, 1.0, 0.2), (3, 0.25, 1.0, 0.008), (2, 2.0, 1.0, 4 / 9),
])  # fmt: skip
def test_a_rate_that_is_known_by_no_failure_gives_a_geometric_tail(
    count: int, mean: float, known: float, chance_of_it: float
) -> None:
    assert chance_of_it == pytest.approx(tail(count, mean, known))


@pytest.mark.parametrize(("count", "others", "nodes"), [(3, 20, 256), (2, 5, 8), (1, 3, 2), (9, 40, 64)])
def test_the_tail_is_that_of_the_binomial_of_two_counts(count: int, others: int, nodes: int) -> None:
    """Of count + others failures, so many or more on one of the nodes, when all work alike."""
    share, both = 1 / nodes, count + others
    exact = sum(math.comb(both, k) * share**k * (1 - share) ** (both - k) for k in range(count, both + 1))
    assert exact == pytest.approx(tail(count, (others + 1) / (nodes - 1), others + 1))


@pytest.mark.parametrize(("count", "mean"), [(3, 0.1), (10, 2.0), (5, 20.0)])
def test_a_rate_that_is_well_known_gives_the_tail_of_poisson(count: int, mean: float) -> None:
    assert poisson_tail(count, mean) == pytest.approx(tail(count, mean, 1e8), rel=1e-4)
    assert poisson_tail(count, mean) < tail(count, mean, 20) or count < mean


def test_a_hundred_months_of_healthy_nodes_see_more_than_five_accused_once_in_two_hundred_hundreds() -> None:
    sure = history_stats.SURE
    at_most_five = sum(math.comb(100, k) * sure**k * (1 - sure) ** (100 - k) for k in range(6))
    assert 1 / 300 < 1 - at_most_five < 1 / 200


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


@pytest.mark.parametrize(
    ("seen", "ratio", "chance", "few", "milder", "word"),
    [
        (3, 3.0, 0.015, False, False, SUSPECT),
        (3, 3.0, 0.015, False, True, WATCH),
        (3, 3.0, 0.0151, False, False, WATCH),
        (3, 2.99, 0.015, False, False, WATCH),
        (2, 3.0, 0.015, False, False, WATCH),
        (2, 1.0, 0.2, False, False, WATCH),
        (2, 1.0, 0.201, False, False, USUAL),
        (1, 9.0, 0.001, False, False, USUAL),
        (1, 9.0, 0.001, True, False, FEW),
        (0, 1.0, 1.0, True, False, USUAL),
    ],
)
def test_what_a_node_is_called(seen: int, ratio: float, chance: float, few: bool, milder: bool, word: str) -> None:
    assert word == history_stats._word(seen, ratio, chance, few, milder)


@pytest.mark.parametrize(("kind", "part"), [(NAMED, 0.97), (HARD, 0.02), (SOFT, 0.01)])
def test_each_kind_of_failure_has_its_part_of_the_error(kind: str, part: float) -> None:
    assert tail(9, 0.8, 12.0) / part == pytest.approx(chance({kind: Count(9, 0.8, 12.0)}))


def test_a_ratio_is_shrunk_by_one_failure_and_nothing_seen_is_the_usual() -> None:
    assert (10 / 1.8, 2 / 1.02) == (Count(9, 0.8).ratio, Count(1, 0.02).ratio)
    assert Count(0, 0.0) == Count()


@pytest.mark.parametrize(("later", "failures"), [(599, 1), (600, 2)])
def test_named_failures_within_ten_minutes_are_one_fault(later: int, failures: int) -> None:
    cluster = Cluster()
    for at in (0, later):
        cluster.add(("n7",), 3 * DAY + at, 1, "FAILED", f"u{at}", "n7")
    assert failures == next(one.named for one in cluster.book().verdicts if one.node == "n7")


@pytest.mark.parametrize(("times", "failures"), [((0, DAY - 1), 1), ((DAY - 1, DAY), 2)])
def test_what_one_user_meets_on_a_day_counts_once(times: tuple[int, int], failures: int) -> None:
    work = Work({"n7": {}}, {}, {})
    table = Table(work, [Failure(at, HARD, ("n7",), "gpu_ecc", at, "u1", "p5") for at in times])
    assert {HARD: failures} == table.now("n7")


def verdict(jobs: int, hours: float, since: float | None = None, failures: int = 5) -> Verdict:
    """Of a node that failed, among ten that did not and worked as much."""
    nodes = ["n7", *(f"n{number}" for number in range(20, 30))]
    kinds = {("p5", NAMED, 0): hours, ("p5", HARD, 0): hours, ("u", SOFT, 0): hours}
    work = Work(dict.fromkeys(nodes, kinds), {node: {0: hours} for node in nodes}, dict.fromkeys(nodes, jobs))
    failed = [Failure(at, NAMED, ("n7",), "gpu_ecc", at * DAY, f"u{at}", "p5") for at in range(failures)]
    return next(one for one in judge(work, failed, {"n7": since} if since is not None else None) if one.node == "n7")


@pytest.mark.parametrize(("since", "quiet"), [(None, False), (0.0, False), (92.1, False), (92.2, True)])
def test_a_node_is_quiet_where_at_its_rate_it_would_have_failed_in_99_of_100(since: float | None, quiet: bool) -> None:
    assert 92.1 < -math.log(0.01) * 100 / 5 < 92.2
    found = verdict(20, 100.0, since)
    assert (quiet, WATCH if quiet else SUSPECT) == (found.quiet, found.word)


@pytest.mark.parametrize(("jobs", "hours", "word"), [(9, 23.9, FEW), (10, 23.9, USUAL), (9, 24.0, USUAL)])
def test_below_ten_jobs_and_24_hours_a_node_has_shown_too_little(jobs: int, hours: float, word: str) -> None:
    assert word == verdict(jobs, hours, failures=1).word


def test_below_thirty_jobs_of_all_nodes_nobody_knows_what_is_usual() -> None:
    assert [FEW, SUSPECT] == [verdict(jobs, 100.0).word for jobs in (2, 3)]  # on eleven nodes


@pytest.mark.parametrize(("alone", "alike"), [(1, ["b"]), (2, [])])
def test_nodes_that_share_nine_in_ten_of_their_failures_cannot_be_told_apart(alone: int, alike: list[str]) -> None:
    together = [Failure(at, HARD, ("a", "b"), "gpu_ecc", at * DAY, "u1", "p5", 2) for at in range(9)]
    more = [Failure(90 + at, HARD, ("a",), "gpu_ecc", (90 + at) * DAY, "u1", "p5", 1) for at in range(alone)]
    table = Table(Work({"a": {}, "b": {}}, {}, {}), [*together, *more])
    assert alike == list(history_stats._alike(table, "a", ["a", "b"]))


@pytest.mark.parametrize(("later", "named"), [(900, "n2"), (901, "")])
def test_slurms_event_within_a_quarter_of_an_hour_tells_which_node_was_lost(later: int, named: str) -> None:
    ledger = Ledger(downs={"n2": [3600 + later]})
    ledger.add(Job(1, "NODE_FAIL", ("n1", "n2"), 0, 3600, "u", "p5"))
    (failure,) = ledger.close().failures
    assert ((named,) if named else ("n1", "n2")) == failure.nodes


def test_the_start_of_a_job_counts_for_half_an_hour() -> None:
    ledger = Ledger()
    ledger.add(Job(1, "COMPLETED", ("n1",), 0, 0, "u", "p5"))
    assert [0.5] == [one.hours for one in ledger.close().verdicts]


def test_few_failures_elsewhere_make_the_usual_rate_uncertain() -> None:
    """Eleven nodes with 100 hours each, and no failure."""
    work = Work({f"n{number}": {("p5", NAMED, 0): 100.0} for number in range(11)}, {}, {})
    count = Table(work, []).evidence("n7")[NAMED]
    assert (0.1, 1.0) == pytest.approx((count.expected, count.known))


def test_a_kind_of_work_with_few_failures_leans_on_the_rest_of_its_size() -> None:
    """100 hours of others saw nothing there, and 1,000 hours of the other partition 19 failures: one in 50 is added."""
    there, elsewhere = ("p4", NAMED, 0), ("p5", NAMED, 0)
    work = Work({"a": {there: 100.0}, "b": {there: 100.0}, "c": {elsewhere: 1000.0}}, {}, {})
    failed = [Failure(at, NAMED, ("c",), "gpu_ecc", at * DAY, f"u{at}", "p5") for at in range(19)]
    count = Table(work, failed).evidence("a")[NAMED]
    assert (100 * 1 / (100 + 1000 / 20), 1.0) == pytest.approx((count.expected, count.known))
