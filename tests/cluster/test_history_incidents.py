"""Failures of many nodes at once are nobody's."""

from __future__ import annotations

import pytest

from hpslurm.cluster.history_incidents import split
from hpslurm.cluster.history_jobs import SOFT, Failure

NOON = 43200


def failed(job: int, node: str, when: int, partition: str = "p5") -> Failure:
    return Failure(job, SOFT, (node,), "exit code 1:0", when, f"u{job}", partition)


def test_jobs_that_fail_in_the_same_minute_on_different_nodes_are_one_incident() -> None:
    kept, (incident,) = split([failed(at, f"n{at}", NOON + 5 * at) for at in range(6)])
    assert [] == kept
    assert tuple(range(6)) == incident.jobs
    assert ("p5",) == incident.partitions
    assert (NOON, NOON + 25) == (incident.start, incident.end)


def test_three_at_once_are_a_coincidence() -> None:
    kept, incidents = split([failed(at, f"n{at}", NOON + 5 * at) for at in range(3)])
    assert (3, []) == (len(kept), incidents)


def test_many_failures_of_one_node_are_its_own() -> None:
    kept, incidents = split([failed(at, "n1", NOON + 5 * at) for at in range(8)])
    assert (8, []) == (len(kept), incidents)


def test_where_jobs_fail_every_few_seconds_a_minute_with_six_is_nothing() -> None:
    others = range(0, 2 * NOON, 8)
    kept, incidents = split([failed(at, f"n{at}", NOON + 5 * at) for at in range(6)], others)
    assert (6, []) == (len(kept), incidents)


def test_failures_over_the_day_are_no_incident() -> None:
    kept, incidents = split([failed(at, f"n{at}", 3600 * at) for at in range(20)])
    assert (20, []) == (len(kept), incidents)


def at(*times: int) -> list[Failure]:
    return [failed(number, f"n{number}", NOON + time) for number, time in enumerate(times)]


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ((0, 60, 120, 180), 1),
        ((0, 61, 122, 183), 0),  # more than a minute from one to the next
        ((0, 1, 2), 0),
        ((0, 1, 2, 3), 1),
        ((0, 60, 120, 180, 240, 300), 1),
    ],
)
def test_four_within_a_minute_from_one_to_the_next(times: tuple[int, ...], expected: int) -> None:
    assert expected == len(split(at(*times))[1])


def test_an_incident_lasts_five_minutes_at_most() -> None:
    (first,) = split(at(*range(0, 301, 50)))[1]
    assert (7, NOON + 300) == (len(first.jobs), first.end)
    (first,) = split(at(*range(0, 251, 50), 301))[1]
    assert (6, NOON + 250) == (len(first.jobs), first.end)


@pytest.mark.parametrize(("distance", "expected"), [(12 * 3600, 0), (12 * 3600 + 1, 1)])
def test_what_fails_within_twelve_hours_around_is_the_usual_rate(distance: int, expected: int) -> None:
    group = at(0, 1, 2, 3)
    before = [NOON - distance] * 5000
    assert expected == len(split(group, before)[1])
    assert expected == len(split(group, [NOON + 3 + distance] * 5000)[1])
