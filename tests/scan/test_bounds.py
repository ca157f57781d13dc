"""Bounds of what is looked at and kept, at the value and one step beside it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hpslurm.core.finding import NOISE, ROOT, SYMPTOM, Event
from hpslurm.scan import joblog, lines, prefix, ras
from hpslurm.scan.places import MOST_TASKS, task_numbers
from hpslurm.scan.reason import reason
from tests.scan.cases import case_of, events_of

EXCEPTION = "RuntimeError: the loss is not what it was\n"


@pytest.mark.parametrize("other, rank", [(12, None), (13, 3)])
def test_the_twelve_lines_above_tell_whose_line_it_is(other: int, rank: int | None):
    """``other``: how far above stands a line of another rank."""
    above = "[rank4]: hello\n" + "[rank3]: hello\n" * (other - 1)
    (event,) = [event for event in events_of((above + EXCEPTION).encode()) if event.pattern == "exception"]
    assert rank == event.rank


@pytest.mark.parametrize("tried, roots", [(5999, 1), (6000, 0)])
def test_an_expression_is_tried_on_six_thousand_lines_of_a_file(tried: int, roots: int):
    text = "the OutOfMemoryError: of yesterday\n" * tried + "OutOfMemoryError: CUDA\n"
    assert roots == len([event for event in events_of(text.encode()) if event.pattern == "cuda-oom"])


@pytest.mark.parametrize("given, kept", [(1999, 1999), (2000, 2000), (2001, 2000)])
def test_two_thousand_events_are_printed(given: int, kept: int):
    events = [Event("trouble", SYMPTOM, "job.out", line, "odd") for line in range(given)]
    assert kept == len(list(lines.worth_keeping(events)))


def test_of_more_events_the_roots_stay():
    events = [Event("trouble", SYMPTOM, "job.out", line, "odd") for line in range(2000)]
    assert ROOT in {event.role for event in lines.worth_keeping([*events, Event("oom", ROOT, "job.out", 1, "x")])}


@pytest.mark.parametrize("files, found", [(1024, 1024), (1025, 1024)])
def test_a_thousand_files_beside_the_output_are_read(files: int, found: int, tmp_path: Path):
    for number in range(files):
        (tmp_path / f"rank-77-{number}.log").touch()
    job = joblog.Job("77", stdout=str(tmp_path / "slurm-77.out"))
    assert found == len(joblog.beside(job))


@pytest.mark.parametrize("size, known", [(1, []), (2, ["world"])])
def test_a_world_of_one_is_none(size: int, known: list[str]):
    text = f"world_size: {size}\n"
    assert known == [event.pattern for event in events_of(text.encode()) if event.pattern == "world"]


def counts(behind: int, ranks: int) -> list[str]:
    told = [{"rank": rank, "collective_counts": {"AllReduce": 4 if rank < behind else 5}} for rank in range(ranks)]
    report = {"communicators": [{"ranks": told}]}
    return [event.pattern for event in ras.json_events(json.dumps(report).encode(), "ras.json")]


@pytest.mark.parametrize("behind, told", [(1, True), (3, True), (4, False)])
def test_fewer_than_half_of_the_ranks_are_behind(behind: int, told: bool):
    assert told is ("ras-behind" in counts(behind, 8))


@pytest.mark.parametrize("world, named", [(1, False), (2, True)])
def test_a_rank_alone_cannot_be_the_silent_one(world: int, named: bool):
    loud = Event("watchdog", SYMPTOM, "0.log", 1, "x", rank=0, cause="collective_timeout_unknown", weight=30)
    size = Event("world", NOISE, "0.log", 1, "", facts=(("world", str(world)),))
    assert world == case_of(size, loud).world
    assert named is ("silent while the others wait" in " ".join(reason([size, loud]).missing))


@pytest.mark.parametrize("count, words", [(1, "1 line of trouble"), (2, "2 lines of trouble")])
def test_one_line_is_no_lines(count: int, words: str):
    assert words in reason([Event("trouble", SYMPTOM, "a", 1, "x", cause="undetermined", weight=9, count=count)]).why


def test_a_date_without_a_year_is_of_1970_unless_somebody_knows_better():
    line = "Jan  1 00:00:01 n1 kernel: hello"
    assert [1.0, 31536001.0] == [prefix.read(line).time, prefix.read(line, 1971).time]


@pytest.mark.parametrize("last, count", [(MOST_TASKS - 1, MOST_TASKS), (MOST_TASKS, 0)])
def test_a_list_of_tasks_has_at_most_a_hundred_thousand(last: int, count: int):
    assert count == len(task_numbers(f"0-{last}"))
