"""In which order files are begun when several processes take them."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from tests.lab.fixtures import spread

LABS = [Path(f"lab{number}") for number in range(4)]
COUNTS = {**dict.fromkeys(LABS, 1), **{Path(f"file{number}"): number for number in range(1, 21)}}


def test_every_file_is_begun_once() -> None:
    assert sorted(spread(LABS, COUNTS)) == sorted(COUNTS)


def test_what_waits_is_begun_early_and_never_two_in_a_row() -> None:
    order = spread(LABS, COUNTS)
    places = [order.index(lab) for lab in LABS]
    assert 0 == places[0]
    assert places[-1] < 0.8 * len(order)
    assert all(second - first > 1 for first, second in pairwise(places))


def test_of_the_others_those_with_many_tests_come_first() -> None:
    computing = [path for path in spread(LABS, COUNTS) if path not in LABS]
    assert computing == sorted(computing, key=lambda path: -COUNTS[path])


def test_labs_alone_and_no_labs_keep_their_order() -> None:
    assert LABS == spread(LABS, dict.fromkeys(LABS, 1))
    assert [Path("a")] == spread([], {Path("a"): 1})
