"""Public failure reports: the cause, the culprit, and that neither depends on names or surroundings."""

from __future__ import annotations

from operator import itemgetter

import pytest

from tests.scan.cases import (
    CORPUS,
    WRITTEN,
    accepted,
    diagnose,
    events_of,
    healthy_lines,
    labelled,
    log_of,
    names,
    rename,
    torchrun,
)

ALL = [*CORPUS, *WRITTEN]
NAME = itemgetter("id")
by_id = pytest.mark.parametrize("case", ALL, ids=NAME)


def holds(case, text: str) -> None:
    diagnosis = diagnose(text.encode())
    assert diagnosis.cause in accepted(case), (diagnosis.cause, diagnosis.decisive)
    assert diagnosis.cause not in case.get("never", ())


@by_id
def test_the_cause_is_named(case):
    diagnosis = diagnose(log_of(case))
    assert diagnosis.cause in accepted(case), (diagnosis.cause, diagnosis.decisive)
    assert diagnosis.cause not in case.get("never", ())


@pytest.mark.parametrize("case", [case for case in ALL if "culprit" in case], ids=NAME)
def test_the_culprit_is_named(case):
    wanted = {str(value).lower() for value in case["culprit"].values()}
    assert wanted & names(diagnose(log_of(case)))


@by_id
def test_the_pass_without_hyperscan_finds_the_same(case):
    data = log_of(case)
    assert events_of(data) == events_of(data, fast=False)


@by_id
def test_the_cause_holds_under_other_ranks_hosts_pids_and_dates(case):
    holds(case, rename(log_of(case).decode("utf-8", "replace")))


@by_id
def test_the_cause_holds_behind_the_label_of_srun(case):
    holds(case, labelled(log_of(case).decode("utf-8", "replace")))


@by_id
def test_the_cause_holds_behind_the_prefix_of_torchrun(case):
    holds(case, torchrun(log_of(case).decode("utf-8", "replace")))


# every third: ten thousand lines take long
@pytest.mark.parametrize("case", [case for case in ALL[::3] if case["cause"] != "undetermined"], ids=NAME)
def test_the_cause_holds_inside_ten_thousand_healthy_lines(case):
    log = log_of(case).decode("utf-8", "replace").rstrip("\n") + "\n"
    if "healthy" in accepted(case):  # what is harmless at a start comes first
        holds(case, log + healthy_lines(10_000))
    else:
        after = "" if case.get("to_the_end") else healthy_lines(5000, 7)
        holds(case, healthy_lines(5000) + log + after)


@pytest.mark.parametrize("case", [case for case in ALL if case["cause"] not in ("healthy", "undetermined")], ids=NAME)
def test_without_its_root_lines_the_cause_or_its_confidence_is_lost(case):
    before = after = diagnose(log_of(case))
    lines = log_of(case).decode("utf-8", "replace").splitlines()
    for _ in range(len(lines)):  # alike lines are folded, so they go one by one
        events = [
            event for event in events_of("".join(f"{line}\n" for line in lines).encode()) if event.cause == before.cause
        ]
        decisive = {after.decisive.line} if after.decisive else set()
        proving = {event.line for event in events} | decisive
        lines = [line for number, line in enumerate(lines, 1) if number not in proving]
        after = diagnose("".join(f"{line}\n" for line in lines).encode())
        if (after.cause, after.confidence) != (before.cause, before.confidence):
            return
    assert before.confidence == "low" and not lines


@pytest.mark.parametrize("case", [case for case in CORPUS if case["healthy"]], ids=NAME)
def test_a_healthy_log_is_never_accused(case):
    assert diagnose(log_of(case)).cause in {"undetermined", *accepted(case)}


def test_empty_and_unknown_input_is_undetermined():
    assert "undetermined" == diagnose(b"").cause
    assert "undetermined" == diagnose(b"\n\n\n").cause
    assert "undetermined" == diagnose(b"the quick brown fox jumps over the lazy dog\n").cause


def test_healthy_lines_alone_are_healthy():
    assert "healthy" == diagnose(healthy_lines(2000).encode()).cause
