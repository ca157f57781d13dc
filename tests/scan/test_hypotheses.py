"""Which cause explains a scan best: pure functions of events made by hand."""

from __future__ import annotations

import random

import pytest

from hpslurm.core.finding import Event
from hpslurm.core.values import replace
from hpslurm.scan import hypotheses, model
from hpslurm.scan.reason import reason
from tests.scan.cases import case_of, known

NUMBERS = model.numbers()
CRASH, TIMED_OUT = known("segfault", 5, rank=3), known("c10d-client-timeout", 9)
PREEMPTED = (("why", "PREEMPTION"),)
TIME_LIMIT = (("why", "TIME LIMIT"),)


def test_an_earlier_crash_beats_later_errors_of_the_rendezvous():
    diagnosis = reason([CRASH, TIMED_OUT])
    assert "app_error" == diagnosis.cause
    assert diagnosis.culprit is not None
    assert 3 == diagnosis.culprit.rank


def test_a_crash_after_the_rendezvous_failed_is_not_its_cause():
    assert "rendezvous_unreachable" == reason([replace(CRASH, line=19), TIMED_OUT]).cause


def test_a_preemption_beats_the_time_outs_that_follow():
    preempted = known("cancel-reason", 5, facts=PREEMPTED)
    assert "job_cancelled" == reason([preempted, known("watchdog", 9, rank=1)]).cause


def test_a_time_limit_that_ends_a_hang_is_its_consequence():
    limit = known("cancel-reason", 9, facts=TIME_LIMIT)
    assert "collective_timeout_unknown" == reason([known("watchdog", 5, rank=1), limit]).cause
    assert "job_cancelled" == reason([limit]).cause


def test_the_same_events_in_any_order_give_the_same_answer():
    events = [CRASH, TIMED_OUT, known("watchdog", 7, rank=1), known("cuda-oom", 7, rank=2), known("nccl-peer-gone", 8)]
    events += [known("exception", 9 + rank, rank=rank) for rank in range(4)]
    answer = reason(events)
    for seed in range(20):
        random.Random(seed).shuffle(events)
        assert answer == reason(events)


def test_a_cause_gains_by_what_it_explains_and_loses_by_what_it_does_not():
    (explaining, _) = hypotheses.ranked(case_of(), [CRASH, replace(TIMED_OUT, weight=40)])
    assert 62 + NUMBERS.explained * 40 == pytest.approx(explaining.score)
    (other, _) = hypotheses.ranked(case_of(), [CRASH, known("cuda-oom", 9, weight=40)])
    assert 62 - NUMBERS.unexplained * 40 == pytest.approx(other.score)


@pytest.mark.parametrize("weight, share", [(50, 0.6), (49, 0.0)])
def test_a_consequence_of_an_earlier_proven_cause_loses_most_of_that_ones_weight(weight: int, share: float):
    events = [known("segfault", 5, weight=weight), known("c10d-conn-refused", 9, weight=90)]
    scores = {one.cause: one.score for one in hypotheses.ranked(case_of(), events)}
    wanted = 90 - NUMBERS.unexplained * weight - share * weight
    assert wanted == pytest.approx(scores["rendezvous_unreachable"])


@pytest.mark.parametrize("weight, decisive", [(71, 3), (70, 9)])
def test_among_lines_that_prove_about_as_much_the_earliest_decides(weight: int, decisive: int):
    early = known("cuda-oom", 3, weight=weight, time=10.0, rank=1)
    late = known("cuda-oom", 9, weight=74, time=99.0, rank=2)
    assert decisive == hypotheses.ranked(case_of(), [early, late])[0].decisive.line


def errors(texts: list[str]) -> list[Event]:
    return [known("exception", 5 + rank, rank=rank, text=f"[rank{rank}]: {text}") for rank, text in enumerate(texts)]


def test_one_among_three_whose_text_differs_is_the_odd_one():
    odd = hypotheses.odd_one_out(errors(["KeyError: x", "KeyError: x", "IndexError: y"]))
    assert odd is not None
    assert 2 == odd.rank
    assert hypotheses.odd_one_out(errors(["KeyError: x", "IndexError: y"])) is None, "of two, neither is odd"
    assert hypotheses.odd_one_out(errors(["A: x", "A: x", "B: y", "C: z"])) is None, "three kinds"
    assert hypotheses.odd_one_out(errors(["A: x", "A: x", "B: y", "B: y"])) is None, "two and two"


def chance(unknown: int = 0, support: int = 1) -> float:
    hypothesis = replace(hypotheses.ranked(case_of(), [CRASH])[0], support=support)
    return hypotheses.probability(hypothesis, unknown, NUMBERS)


def test_lines_that_nobody_explains_lower_the_chance_up_to_five():
    assert chance(4) > chance(5)
    assert chance(5) == chance(6)


def test_other_lines_for_the_same_cause_raise_the_chance_up_to_three():
    assert chance(support=3) < chance(support=4)
    assert chance(support=4) == chance(support=5)


@pytest.mark.parametrize("word, below", [("high", "medium"), ("medium", "low")])
def test_confidence_is_where_the_table_says(word: str, below: str):
    least = getattr(NUMBERS, word)
    assert word == hypotheses.confidence(least, NUMBERS)
    assert below == hypotheses.confidence(least - 0.0001, NUMBERS)
