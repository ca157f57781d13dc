"""What scan's answer says: of whom, how often, and how much of it."""

from __future__ import annotations

import pytest

from hpslurm.core.finding import ROOT, SYMPTOM, Culprit, Diagnosis, Event
from hpslurm.scan.reason import HEALTHY, UNDETERMINED
from hpslurm.show import diagnosis
from hpslurm.show.render import as_wide_as


def event(line: int = 7, *, cause: str = "gpu_oom", rank: int | None = None, count: int = 1, last: int = 0) -> Event:
    return Event(
        "p", SYMPTOM, "/j/out", line, f"line {line}", cause=cause, rank=rank, count=count, last_line=last or line
    )


def text(told: Diagnosis) -> list[str]:
    with as_wide_as(120):
        return [line.strip() for line in diagnosis.text(told)]


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        ([], ""),
        ([0], "0"),
        ([0, 1], "0-1"),
        ([0, 2], "0,2"),
        ([0, 1, 2, 5], "0-2,5"),
        (range(0, 16, 2), "0,2,4,6,8,10,12,14"),
        (range(0, 18, 2), "0,2,4,6,8,10,12,14,…"),
    ],
)
def test_ranks_are_folded_and_eight_runs_of_them_are_told(numbers: list[int], said: str) -> None:
    assert said == diagnosis.fold_numbers(numbers)


@pytest.mark.parametrize(
    ("victims", "said"),
    [
        ((), ""),
        ((event(),), "1 line follows from it: gpu_oom"),
        ((event(rank=3),), "1 line of rank 3 follows from it: gpu_oom"),
        ((event(rank=3, count=2),), "2 lines of rank 3 follow from it: gpu_oom"),
        ((event(rank=3), event(rank=4)), "2 lines of ranks 3-4 follow from it: gpu_oom"),
        ((event(cause=UNDETERMINED),), ""),
        (
            tuple(event(cause=f"c{number}", count=9 - number) for number in range(4)),
            "30 lines follow from it: c0, c1, c2",
        ),
    ],
)
def test_what_follows_from_a_cause_is_one_line(victims: tuple[Event, ...], said: str) -> None:
    assert said == diagnosis.consequences(Diagnosis("gpu_lost", "high", "why", victims=victims))


@pytest.mark.parametrize("cause", [HEALTHY, UNDETERMINED])
def test_where_no_cause_is_named_nothing_follows_from_it(cause: str) -> None:
    assert "" == diagnosis.consequences(Diagnosis(cause, "low", "why", victims=(event(),)))


@pytest.mark.parametrize(("count", "told"), [(1, "at:  /j/out:7"), (2, "at:  /j/out:7, 2 times up to line 9")])
def test_a_line_that_came_again_is_told_with_its_number(count: int, told: str) -> None:
    decisive = event(count=count, last=9)
    assert told in text(Diagnosis("gpu_oom", "high", "why", decisive=decisive))


@pytest.mark.parametrize(
    ("line", "place"), [(1, "1"), (0, "0"), (-1, " line 1 from the end"), (-12, " line 12 from the end")]
)
def test_a_line_counted_from_the_end_says_so(line: int, place: str) -> None:
    assert place == diagnosis.place(line)


@pytest.mark.parametrize(
    ("made", "origin"),
    [
        (event(), "/j/out:7"),
        (event(0), "/j/out"),
        (Event("finding:gpu-lost", ROOT, "", 0, "x", host="n1"), "found by hpslurm on n1"),
        (Event("finding:gpu-lost", ROOT, "", 0, "x"), "found by hpslurm"),
        (Event("job-state", ROOT, "4711", 0, "x"), "Slurm's state of 4711"),
    ],
)
def test_where_a_line_stands(made: Event, origin: str) -> None:
    assert origin == diagnosis.origin(made)


def test_a_culprit_is_told_from_the_narrowest_to_the_widest() -> None:
    culprit = Culprit(rank=3, local_rank=1, gpu="0", host="n1", pid=9, peer="n2")
    assert "rank 3, local rank 1, GPU 0, on n1, pid 9, peer n2" == diagnosis.who(culprit)
    assert "rank 0, pid 0" == diagnosis.who(Culprit(rank=0, pid=0))


@pytest.mark.parametrize(("ranks", "more"), [(8, ""), (9, " …")])
def test_of_lines_alike_the_first_is_told_and_eight_ranks(ranks: int, more: str) -> None:
    victims = tuple(event(7 + rank, rank=rank) for rank in range(ranks))
    told = text(Diagnosis("gpu_lost", "high", "why", victims=victims))
    said = f"also: {ranks} lines like gpu_oom of ranks 0, 1, 2, 3, 4, 5, 6, 7{more}, first /j/out:7"
    assert said in told
    (one,) = [line for line in text(Diagnosis("gpu_lost", "high", "why", victims=(event(),))) if "also" in line]
    assert "also: 1 line like gpu_oom, first /j/out:7" == one


@pytest.mark.parametrize("count", [6, 7])
def test_six_things_that_are_missing_are_told(count: int) -> None:
    told = text(Diagnosis("gpu_lost", "high", "why", missing=tuple(f"thing {number}" for number in range(count))))
    assert 6 == sum(line.startswith("missing:") for line in told)


@pytest.mark.parametrize(("count", "shown"), [(8, 8), (9, 8)])
def test_eight_lines_that_nobody_explains_are_on_the_first_screen(count: int, shown: int) -> None:
    victims = tuple(event(number + 1, cause="") for number in range(count))
    with as_wide_as(120):
        lines = diagnosis.first_screen(Diagnosis(UNDETERMINED, "low", "why", victims=victims))
    assert shown == sum(line.startswith("and:") for line in lines)
