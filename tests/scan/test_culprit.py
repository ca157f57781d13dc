"""Whom the lines accuse: one, or everybody alike and so nobody."""

from __future__ import annotations

import pytest

from hpslurm.core.finding import NOISE, Event
from hpslurm.scan.culprit import culprit_of
from tests.scan.cases import case_of, known


def world(size: int) -> Event:
    return Event("world", NOISE, "job.out", 1, "", facts=(("world", str(size)),))


def errors(count: int, apart: float = 0.0) -> list[Event]:
    return [
        known("cuda-oom", 10 + rank, rank=rank, time=100.0 + (apart if rank else 0.0), text="out of memory")
        for rank in range(count)
    ]


def rank_of(*events: Event) -> int | None:
    case = case_of(*events)
    culprit = culprit_of(case, case.roots[0], case.roots)
    return culprit.rank if culprit else None


@pytest.mark.parametrize("failed, rank", [(6, None), (5, 0)])
def test_the_same_error_on_three_quarters_of_the_ranks_is_everybodys(failed: int, rank: int | None):
    assert rank == rank_of(world(8), *errors(failed))


def test_one_rank_alone_is_nobody_elses_equal():
    assert 0 == rank_of(*errors(1))
    assert rank_of(*errors(2)) is None, "two of two"


@pytest.mark.parametrize("apart, rank", [(3.0, None), (3.1, 0)])
def test_the_same_error_three_seconds_later_is_a_consequence(apart: float, rank: int | None):
    assert rank == rank_of(world(4), *errors(4, apart))


def test_a_line_that_names_a_rank_accuses_that_one_and_not_who_printed_it():
    event = known("desync-detected", rank=3, facts=(("named_rank", "6"),))
    assert 6 == rank_of(event)


def test_ranks_that_accuse_each_other_accuse_the_one_in_most_of_three_lines():
    lines = [known("desync-detected", 1 + line, rank=rank, facts=(("named_rank", named),))
             for line, (rank, named) in enumerate([(5, "2"), (2, "1"), (3, "2")])]  # fmt: skip
    assert 2 == rank_of(*lines)
    assert 1 == rank_of(*reversed(lines[1:])), "of two, the first line counts"


def test_hosts_of_a_common_error_are_named_where_it_is_one():
    def host_of(*hosts: str) -> str | None:
        events = [known("cuda-oom", 10 + rank, rank=rank, host=host, text="x") for rank, host in enumerate(hosts)]
        case = case_of(world(2), *events)
        culprit = culprit_of(case, case.roots[0], case.roots)
        return culprit.host if culprit else None

    assert ["n1", None] == [host_of("n1", "n1"), host_of("n1", "n2")]


def test_the_rank_is_that_of_other_lines_of_the_cause_where_they_name_one():
    chosen = known("disk-full", 5)
    assert [3, None] == [
        rank_of(chosen, *(known("hung-task", 9 + rank, rank=rank, weight=20) for rank in ranks))
        for ranks in ((3,), (3, 4))
    ]


def test_a_node_is_named_by_most_other_lines_where_the_decisive_one_does_not():
    chosen = known("slurm-oom-kill", 1)
    others = [known("srun-oom", line, host=host) for line, host in ((2, "n1"), (3, "n2"), (4, "n2"))]
    case = case_of(chosen, *others)
    culprit = culprit_of(case, case.roots[0], case.roots)
    assert culprit is not None
    assert "n2" == culprit.host


def test_an_address_is_not_shortened_like_a_name():
    assert ["ip-10-1-0-7", "10.1.0.7"] == [
        culprit.host
        for host in ("ip-10-1-0-7.ec2.internal", "10.1.0.7")
        if (culprit := culprit_of(case_of(), known("cuda-oom", host=host, rank=1), []))
    ]


def test_a_rank_is_on_the_node_of_its_task_where_each_task_is_one_rank():
    def task(number: int, host: str) -> Event:
        return Event("task", NOISE, "job.out", 50 + number, "", rank=number, host=host, facts=(("end", "Killed"),))

    tasks = [task(0, "n1"), task(1, "n2")]
    case = case_of(*tasks, known("cuda-oom", 5, rank=1))
    culprit = culprit_of(case, case.roots[0], case.roots)
    assert culprit is not None
    assert "n2" == culprit.host
    case = case_of(*tasks, known("cuda-oom", 5, rank=1), known("cuda-oom", 6, rank=7))
    culprit = culprit_of(case, case.roots[0], case.roots)
    assert culprit is not None
    assert culprit.host is None, "eight ranks of two tasks: torchrun started them"


def test_what_fails_alike_after_the_step_was_taken_down_is_a_consequence():
    killed = [known("srun-killed", line, rank=rank, host=f"n{rank}", text="Killed") for rank, line in ((0, 5), (1, 9))]
    assert rank_of(world(2), *killed) is None
    assert 0 == rank_of(world(2), *killed, known("cancel-plain", 7))
    assert rank_of(world(2), *killed, known("cancel-plain", 10)) is None
