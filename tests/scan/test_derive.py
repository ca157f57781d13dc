"""Roots that no single line shows, at the thresholds and one step beside them."""

from __future__ import annotations

from typing import Any

import pytest

from hpslurm.core.finding import NOISE, Event
from hpslurm.scan import derive, model
from tests.scan.cases import case_of, known


def watchdog(rank: int, seq: int = 7, op: str = "ALLREDUCE", line: int = 0, size: str = "4", **fields: Any) -> Event:
    facts = (("seq", str(seq)), ("op", op), ("inn", size), ("out", size), ("pg", "0"), *fields.pop("facts", ()))
    return known("watchdog", line or 10 + rank, rank=rank, facts=facts, **fields)


def found(*events: Event) -> list[str]:
    return [event.pattern for event in derive.roots(case_of(*events))]


@pytest.mark.parametrize("apart, wanted", [(64, ["behind-watchdog"]), (65, [])])
def test_numbers_farther_apart_than_64_belong_to_different_groups(apart: int, wanted: list[str]):
    assert wanted == found(watchdog(0, 100), watchdog(1, 100 + apart), watchdog(2, 100 + apart))


def test_ranks_that_wait_in_different_operations_or_shapes_are_out_of_step():
    assert ["desync-watchdog"] == found(watchdog(0), watchdog(1), watchdog(2, op="BROADCAST"))
    assert ["desync-watchdog"] == found(watchdog(0), watchdog(1), watchdog(2, size="5"))
    assert [] == found(watchdog(0), watchdog(1), watchdog(2))
    assert [] == found(watchdog(0)), "one rank alone"
    assert ["desync-watchdog"] == found(watchdog(0), watchdog(1, op="BROADCAST")), "two are enough"


def test_the_few_are_the_odd_ones():
    (odd,) = derive.roots(case_of(watchdog(0), watchdog(1), watchdog(2, op="BROADCAST")))
    row = model.derived()["desync-watchdog"]
    assert (2, row.cause, row.weight) == (odd.rank, odd.cause, odd.weight)


def test_a_rank_that_waits_in_three_collectives_at_once_is_compared_with_nobody():
    two = [watchdog(0, 100), watchdog(0, 101, line=20), watchdog(1, 104), watchdog(2, 104)]
    assert ["behind-watchdog"] == found(*two)
    assert [] == found(*two, watchdog(0, 102, line=21))


def test_a_lone_rank_in_a_barrier_after_the_training_waits_for_nobody():
    finished = (("finished", "yes"),)
    assert ["lone-barrier"] == found(watchdog(3, size="1", facts=finished))
    assert [] == found(watchdog(3, size="4", facts=finished)), "no barrier"
    assert [] == found(watchdog(3, size="1")), "training was not over"
    assert [] == found(watchdog(3, size="1", facts=finished), watchdog(4, size="1", facts=finished))


def busy(time: float | None, rank: int | None = 2, line: int = 1) -> Event:
    return Event("busy", NOISE, "job.out", line, "Saving checkpoint", time, rank)


@pytest.mark.parametrize(
    "waited, wanted", [(509.9, []), (510.0, ["busy-timeout"]), (755.0, ["busy-timeout"]), (755.1, [])]
)
def test_long_work_counts_that_began_about_one_time_out_before(waited: float, wanted: list[str]):
    fired = watchdog(0, time=1000.0 + waited, facts=(("ran", "600000"),))
    assert wanted == found(busy(1000.0), fired)


@pytest.mark.parametrize("limit, wanted", [("30000", ["busy-timeout"]), ("29999", [])])
def test_a_time_out_below_half_a_minute_tells_nothing(limit: str, wanted: list[str]):
    assert wanted == found(busy(1000.0), watchdog(0, time=1030.0, facts=(("ran", limit),)))


def test_long_work_without_a_clock_counts_where_it_is_the_last_sign_of_life():
    assert ["busy-last"] == found(busy(None), watchdog(0, line=9))
    assert [] == found(busy(None), watchdog(0, line=9), Event("life", NOISE, "job.out", 5, "step 9 loss 1"))
    assert [] == found(busy(None, rank=0), watchdog(0, line=9)), "its own rank waits"


def bar(percent: int, elapsed: int) -> Event:
    facts = (("percent", str(percent)), ("elapsed", str(elapsed)))
    return Event("progress", NOISE, "job.out", 1, "Tokenizing", rank=1, facts=facts)


@pytest.mark.parametrize("percent, elapsed, wanted", [
    (97, 290, ["bar-timeout"]),
    (98, 290, []),
    (97, 289, []),
])  # fmt: skip
def test_a_bar_half_way_counts_that_lasted_as_long_as_a_usual_time_out(percent: int, elapsed: int, wanted: list[str]):
    assert wanted == found(bar(percent, elapsed), watchdog(0))


@pytest.mark.parametrize("elapsed, wanted", [(510, ["bar-timeout"]), (509, [])])
def test_a_bar_is_measured_by_the_time_out_that_is_named(elapsed: int, wanted: list[str]):
    assert wanted == found(bar(10, elapsed), watchdog(0, facts=(("limit", "600000"),)))


def test_a_bar_that_an_exception_cut_off_counts_less():
    assert ["bar-cut"] == found(bar(10, 600), known("exception", 9))
    assert [] == found(bar(10, 600)), "nothing failed"


def trait(host: str, value: str) -> Event:
    return Event("trait", NOISE, "job.out", 1, "", host=host, facts=(("nccl", value),))


def test_the_host_that_differs_is_the_one_of_the_few():
    hosts = [trait("n1", "2.26.2"), trait("n2", "2.26.2"), trait("n3", "2.21.5")]
    assert [] == found(*hosts), "nothing went wrong"
    (odd,) = derive.roots(case_of(*hosts, known("nccl-wrapped", 9)))
    assert ("host-nccl", "n3") == (odd.pattern, odd.host)
    assert [] == found(*hosts, trait("n4", "2.20.3"), known("nccl-wrapped", 9)), "three values are no outlier"


def test_the_side_of_a_connection_without_gpudirect_is_named():
    def side(gdr: str, which: str) -> Event:
        facts = (("from", "0"), ("to", "8"), ("gdr", gdr), ("side", which))
        return Event("channel", NOISE, "job.out", 1, gdr, facts=facts)

    assert [] == found(side("yes", "send"), side("yes", "receive"))
    (odd,) = derive.roots(case_of(side("yes", "send"), side("no", "receive")))
    assert ("gdr-one-side", 8) == (odd.pattern, odd.rank)
    (odd,) = derive.roots(case_of(side("no", "send"), side("yes", "receive")))
    assert 0 == odd.rank


def task(number: int, end: str, host: str = "n1") -> Event:
    return Event("task", NOISE, "job.out", 20 + number, end, rank=number, host=host, facts=(("end", end),))


@pytest.mark.parametrize(
    "end", ["Aborted (core dumped)", "Segmentation fault", "Bus error", "Exited with exit code 139"]
)
def test_the_task_that_crashed_among_those_that_ended_is_the_odd_one(end: str):
    (odd,) = derive.roots(case_of(task(0, "Exited with exit code 1"), task(1, end), task(2, "Terminated", "n2")))
    assert ("odd-end", 1, "n1") == (odd.pattern, odd.rank, odd.host)


def test_tasks_that_crashed_on_one_node_leave_the_node():
    (odd,) = derive.roots(case_of(task(0, "Aborted"), task(1, "Aborted"), task(2, "Terminated", "n2")))
    assert (None, "n1") == (odd.rank, odd.host)


def test_no_task_is_odd_where_all_end_alike_or_on_two_nodes():
    assert [] == found(task(0, "Aborted"), task(1, "Aborted"))
    assert [] == found(task(0, "Aborted"), task(1, "Aborted", "n2"), task(2, "Terminated", "n2"))
    assert [] == found(task(0, "Exited with exit code 1"), task(1, "Exited with exit code 143"))
    aborted = task(0, "Aborted"), task(1, "Exited with exit code 1")
    assert [["odd-end"], []] == [found(*aborted), found(*aborted, watchdog(0))], "a watchdog ends by abort"


def claim(task: int, rank: int) -> Event:
    return Event("claim", NOISE, "job.out", 1 + task, "", rank=rank, facts=(("task", str(task)),))


def test_a_rank_that_two_tasks_claim_shows_a_launcher_misused():
    assert ["rank-twice"] == found(claim(0, 1), claim(1, 1))
    assert [] == found(claim(0, 1), claim(1, 2))
    assert [] == found(claim(0, 1), claim(0, 1)), "the same task again: a restart"
