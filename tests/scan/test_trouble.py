"""The generic reader: what sounds like trouble, what it is about, and what is none."""

from __future__ import annotations

import pytest

from hpslurm.core import toml
from hpslurm.scan import model, trouble
from hpslurm.scan.patterns import table

GRAVITIES, SUBJECTS = toml.table("trouble", "gravity"), toml.table("trouble", "subject")
NORMAL = (
    "2025-01-10 15:30:24 step 412 loss 2.13 lr 3e-5 tok/s 10231 grad_norm 0.41"  # of the tables below, none knows it
)
by_id = {"ids": lambda row: row["id"]}


def event_of(line: str):
    return trouble.event_of("job.out", 1, line, 2025)


@pytest.mark.parametrize("row", GRAVITIES, **by_id)
def test_a_gravity_weighs_its_example(row):
    event = event_of(row["example"])
    assert trouble.may_be(row["example"])
    assert event is not None
    assert row["weight"] == max(one.weight for one in trouble.gravities() if one.expression.search(row["example"]))


@pytest.mark.parametrize("row", SUBJECTS, **by_id)
def test_a_subject_is_what_its_example_is_about(row):
    event = event_of(row["example"])
    assert trouble.may_be(row["example"])
    assert event is not None
    assert (f"trouble:{row['id']}", row["cause"], row["weight"]) == (event.pattern, event.cause, event.weight)


@pytest.mark.parametrize("row", toml.table("trouble", "emitter"), **by_id)
def test_an_emitter_is_about_its_own_causes_and_the_same_words_of_another_are_not(row):
    said, (emitter, words) = event_of(row["example"]), row["example"].split(" ", 1)
    words = words.split(": ", 1)[-1]
    assert said is not None and said.cause in {*row["causes"], "undetermined"}
    other = event_of(f"{'x' * len(emitter)} {words}")
    assert other is not None and other.cause not in {*row["causes"], "undetermined"}


def test_a_normal_line_has_no_gravity_and_no_subject():
    assert [] == [row.id for row in trouble.gravities() if row.expression.search(NORMAL)]
    assert [] == [row.id for row in trouble.subjects() if row.expression.search(NORMAL)]
    assert event_of(NORMAL) is None


def test_a_guess_weighs_less_than_most_rows_and_names_a_known_cause():
    roots = [row.weight for row in table().patterns if row.role == "root"]
    assert max(row["weight"] for row in SUBJECTS) < sorted(roots)[len(roots) // 4]
    assert set() == {row["cause"] for row in SUBJECTS} - set(model.causes())


@pytest.mark.parametrize("line, weight", [
    ("node-3 kernel: process 4711 died", 12),
    ("INFO node-3 kernel: process 4711 died", 6),  # the level says half
    ("WARN node-3 kernel: process 4711 died", 6),
    ("INFO WARN node-3 kernel: process 4711 died", 3),
])  # fmt: skip
def test_a_level_in_front_halves_the_gravity(line: str, weight: int):
    event = event_of(line)
    assert event is not None
    assert weight == event.weight


@pytest.mark.parametrize("line, pattern", [
    ("E0101 12:00:00.000000 a.cc:7] nvlink 3 left", "trouble:nvlink"),  # gravity 6
    ("INFO nvlink 3 failed", "trouble"),  # an informing line blames nobody
    ("WARN nvlink 3 failed", "trouble"),
    ("widget 3 failed", "trouble"),
    ("/usr/lib/nvlink/x failed", "trouble"),  # a folder's name is no subject
])  # fmt: skip
def test_only_a_line_of_some_gravity_speaks_for_a_cause(line: str, pattern: str):
    event = event_of(line)
    assert event is not None
    assert pattern == event.pattern


@pytest.mark.parametrize("line, counts", [("failed", True), ("error", False), ("error ", True)])
def test_a_line_of_five_characters_is_too_short(line: str, counts: bool):
    assert counts is (event_of(line) is not None)


def test_a_word_beyond_a_thousand_characters_is_not_seen():
    assert [True, False] == [event_of("x" * gap + " failed") is not None for gap in (993, 994)]


@pytest.mark.parametrize("gap, weight", [(112, 4), (120, 9)])
def test_a_level_stands_in_the_first_120_characters(gap: int, weight: int):
    event = event_of("x" * gap + " WARN failed to start")
    assert event is not None
    assert weight == event.weight


@pytest.mark.parametrize("line", [
    "finished without errors",
    "0 errors, 0 warnings",
    "max_retries: 5",
    "--fail-fast is set",
    "validation error: 0.0213",
    "connection lost, will retry",
    "successfully recovered from the failure",
    '  File "/fsx/train.py", line 3, in failed',
])  # fmt: skip
def test_talk_about_errors_is_no_trouble(line: str):
    assert event_of(line) is None
