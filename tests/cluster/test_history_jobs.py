"""Which failures of jobs can be the node's."""

from __future__ import annotations

import pytest

from hpslurm.cluster.history_jobs import (
    HARD,
    NAMED,
    OF_JOB,
    OF_NOBODY,
    OF_NODE,
    OF_SITE,
    SOFT,
    Failure,
    Job,
    Told,
    failure_of,
    lost_at,
)
from hpslurm.core.values import replace

ONE = Job(1, "FAILED", ("n1",), 0, 3600, "alice", "p5", 1)
TWO = Job(2, "FAILED", ("n1", "n2"), 0, 3600, "alice", "p5", 1)
LOST = Told(2, 3600.0, "gpu_fell_off_bus", OF_NODE, "high", "n2", "GPU 3")


def kind(job: Job, told: Told | None = None, down: tuple[str, ...] = ()) -> tuple[str, tuple[str, ...]] | None:
    failure = failure_of(job, told, down)
    return (failure.kind, failure.nodes) if failure else None


def test_a_diagnosis_that_is_sure_of_a_node_names_it_alone() -> None:
    assert (NAMED, ("n2",)) == kind(TWO, LOST)
    assert "GPU 3" == failure_of(TWO, LOST).gpu  # type: ignore[union-attr]


def test_a_diagnosis_that_is_not_sure_spreads_the_blame() -> None:
    assert (HARD, ("n1", "n2")) == kind(TWO, replace(LOST, confidence="medium"))


def test_a_culprit_that_was_not_in_the_job_is_nobody() -> None:
    assert (HARD, ("n1", "n2")) == kind(TWO, replace(LOST, host="n9"))


@pytest.mark.parametrize("blame", [OF_JOB, OF_SITE])
def test_what_the_program_or_the_site_did_counts_against_no_node(blame: str) -> None:
    assert None is kind(TWO, replace(LOST, blame=blame))


def test_a_hang_that_was_cancelled_counts_where_a_diagnosis_tells_of_it() -> None:
    hung = replace(TWO, state="CANCELLED", code=0)
    assert None is kind(hung)
    assert (NAMED, ("n2",)) == kind(hung, LOST)
    assert (HARD, ("n1", "n2")) == kind(hung, replace(LOST, blame=OF_NOBODY, confidence="low", host=""))


@pytest.mark.parametrize(
    "state", ["COMPLETED", "TIMEOUT", "CANCELLED", "PREEMPTED", "OUT_OF_MEMORY", "DEADLINE", "WHAT"]
)
def test_ends_that_are_not_the_nodes_count_against_none(state: str) -> None:
    assert None is kind(replace(TWO, state=state))


def test_a_completed_job_failed_nowhere_whatever_was_once_said_of_it() -> None:
    assert None is kind(replace(TWO, state="COMPLETED", code=0), LOST)


def test_a_program_on_one_node_that_exits_says_nothing_of_the_node() -> None:
    assert None is kind(ONE)


@pytest.mark.parametrize(("code", "signal", "counts"), [
    (0, 11, True), (139, 0, True), (0, 7, True), (0, 9, False), (137, 0, False), (0, 15, False), (128, 0, False),
])  # fmt: skip
def test_a_program_on_one_node_that_a_fault_signal_ended_may_be_the_nodes(code: int, signal: int, counts: bool) -> None:
    assert ((SOFT, ("n1",)) if counts else None) == kind(replace(ONE, code=code, signal=signal))


def test_a_large_job_that_failed_without_a_word_is_thinly_everybodys() -> None:
    assert (SOFT, ("n1", "n2")) == kind(TWO)


def test_a_lost_node_is_named_by_slurms_event_of_it() -> None:
    lost = replace(TWO, state="NODE_FAIL")
    assert (NAMED, ("n2",)) == kind(lost, down=("n2",))
    assert (HARD, ("n1", "n2")) == kind(lost)
    assert (HARD, ("n1", "n2")) == kind(lost, down=("n1", "n2"))
    assert (NAMED, ("n1",)) == kind(replace(ONE, state="NODE_FAIL"))


def test_only_an_event_near_the_end_of_a_job_that_lost_a_node_tells_which() -> None:
    lost = replace(TWO, state="NODE_FAIL")
    assert ["n2"] == lost_at(lost, {"n2": [3600 + 900], "n1": [3600 + 901]}, 900)
    assert [] == lost_at(TWO, {"n2": [3600]}, 900)


@pytest.mark.parametrize(
    ("code", "signal", "died"), [(0, 0, 0), (128, 0, 0), (129, 0, 1), (192, 0, 64), (193, 0, 0), (1, 9, 9), (137, 6, 6)]
)
def test_a_signal_is_told_by_slurm_or_by_the_shells_exit_code(code: int, signal: int, died: int) -> None:
    assert died == replace(ONE, code=code, signal=signal).died


def test_signals_of_a_broken_machine() -> None:
    ended = {signal for signal in range(1, 65) if kind(replace(ONE, code=0, signal=signal))}
    assert {4, 6, 7, 8, 11} == ended


def test_a_job_of_which_no_code_is_known_ended_with_none() -> None:
    failure = failure_of(Job(1, "FAILED", ("n1", "n2"), 0, 3600), None)
    assert failure is not None
    assert ("exit code 0:0", 2) == (failure.why, failure.size)
    assert 1 == Failure(1, SOFT, ("n1",), "why", 0).size


def test_hours_are_never_less_than_none() -> None:
    assert (1.0, 0.0) == (ONE.hours, replace(ONE, end=-1).hours)


def test_a_sure_diagnosis_of_a_job_on_one_node_means_that_node_whatever_host_it_names() -> None:
    sure = replace(LOST, job=1, host="")
    assert (NAMED, ("n1",)) == kind(ONE, sure)
    assert (HARD, ("n1", "n2")) == kind(TWO, sure)


def test_a_diagnosis_that_blames_nobody_counts_against_one_node_only_if_a_fault_signal_ended_it() -> None:
    nobody = replace(LOST, blame=OF_NOBODY, confidence="low", host="")
    assert None is kind(ONE, nobody)
    assert (HARD, ("n1",)) == kind(replace(ONE, code=139), nobody)
