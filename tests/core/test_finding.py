"""What a rule, an event and a result are when nothing more is said."""

from __future__ import annotations

from hpslurm.core import probe
from hpslurm.core.finding import NOISE, P2, Event, Rule
from hpslurm.core.probe import PASS, Result


def test_a_rule_gates_only_where_it_says_so() -> None:
    assert not Rule("a-b", P2, "title", "reference").gateable


def test_an_event_counts_once_and_proves_nothing_by_itself() -> None:
    event = Event("pattern", NOISE, "file", 1, "text")
    assert (1, 0, 0) == (event.count, event.weight, event.last_line)


def test_a_result_took_no_time_unless_somebody_measured_it() -> None:
    assert 0 == Result("probe", PASS).seconds


def test_numbers_that_json_does_not_have_become_words() -> None:
    numbers = (9.9e307, -9.9e307, 1e308, -1e308, float("inf"), float("-inf"), float("nan"))
    words = (9.9e307, -9.9e307, "infinity", "unreadable", "infinity", "unreadable", "unreadable")
    assert words == tuple(map(probe.plain, numbers))
