"""The lines of trouble of the logs: which, in which order, and how much of each."""

from __future__ import annotations

from hpslurm.bundle.of_logs import error_lines
from hpslurm.core.finding import NOISE, ROOT, SYMPTOM, Diagnosis, Event
from hpslurm.job.cause import Cause
from hpslurm.job.logs import Log
from hpslurm.sources.userfile import Taken


def event(
    line: int, role: str = SYMPTOM, *, text: str = "", count: int = 1, file: str = "/j/out", weight: int = 0
) -> Event:
    return Event("p", role, file, line, text, count=count, weight=weight)


def log(*lines: str) -> Log:
    return Log("/j/out", Taken(head="\n".join(lines).encode()))


def told(*events: Event, read: tuple[Log, ...] = (), decisive: Event | None = None) -> list[str]:
    return list(error_lines(Cause(Diagnosis("c", "high", "why", decisive=decisive), events, ()), read))


def test_the_decisive_line_comes_first_then_roots_and_noise_never() -> None:
    last = event(4, text="d")
    events = (event(1, NOISE, text="a"), event(2, text="b"), event(3, ROOT, text="c"), last)
    assert ["d", "c", "b"] == [line[-1] for line in told(*events, decisive=last)]


def test_a_line_is_as_it_stands_in_its_file_and_else_as_it_was_recorded() -> None:
    assert ["logs/out:2: second"] == told(event(2, text="cleaned"), read=(log("first", "second"),))
    assert ["/j/out:2: (as the epilog recorded it) cleaned"] == told(event(2, text="cleaned"))
    assert ["logs/out:3: (as scan read it) cleaned"] == told(event(3, text="cleaned"), read=(log("first"),))


def test_lines_alike_are_told_of_once_with_their_number() -> None:
    assert ["/j/out:1: (as the epilog recorded it) x"] == told(event(1, text="x"))
    assert ["/j/out:1: (as the epilog recorded it) (the first of 2 alike) x"] == told(event(1, text="x", count=2))


def test_five_hundred_lines_of_8_kib_are_all_that_is_told() -> None:
    assert 500 == len(told(*(event(number, text="x") for number in range(1, 500 + 1))))
    assert 500 == len(told(*(event(number, text="x") for number in range(1, 500 + 2))))
    for length in (8192, 8193):
        (line,) = told(event(1), read=(log("x" * length),))
        assert 8192 == line.count("x")
