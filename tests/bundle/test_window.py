"""When it happened: who may say so, and in which order they are believed."""

from __future__ import annotations

import pytest

from hpslurm.bundle.request import Request
from hpslurm.bundle.window import Window, WrongWindow, window_of
from hpslurm.core.records import Record
from hpslurm.job.report import JobReport, nodes_of, view
from hpslurm.sources.slurm import SlurmJob

NOW = 1_800_000_000.0
TWO_HOURS = 7200


def report(*times: float, start: int | None = None, end: int | None = None) -> JobReport:
    job = SlurmJob(4711, "train", "alice", 1000, 1000, "FAILED", nodes="n1", start_time=start, end_time=end)
    records = tuple(Record(f"n{time}", "prolog", {"time": time}, (), (), {}, True) for time in times)
    return JobReport("4711", job, "", records, (), view(records, nodes_of(job)), ())


@pytest.mark.parametrize(
    ("since", "until", "job_report", "expected"),
    [
        (None, None, None, (NOW - TWO_HOURS, NOW, "the last 2 hours: nothing says when it happened")),
        (None, None, report(), (NOW - TWO_HOURS, NOW, "the last 2 hours: nothing says when it happened")),
        (None, None, report(start=100, end=200), (100, 200, "Slurm's record of the job")),
        (None, None, report(start=100), (100, NOW, "Slurm's record of the job")),
        (None, None, report(1.0, start=100, end=200), (100, 200, "Slurm's record of the job")),
        (None, None, report(5.0), (5, NOW, "the records of the job's nodes")),
        (None, None, report(5.0, 9.0), (5, 9, "the records of the job's nodes")),
        (3.0, 4.0, report(5.0), (3, 4, "the command line")),
        (3.0, None, report(5.0, 9.0), (3, 9, "the command line and the records of the job's nodes")),
        (
            None,
            NOW - TWO_HOURS,
            None,
            (
                NOW - 2 * TWO_HOURS,
                NOW - TWO_HOURS,
                "the command line and the last 2 hours: nothing says when it happened",
            ),
        ),
    ],
)
def test_the_command_line_is_believed_then_slurm_then_the_records(
    since: float | None, until: float | None, job_report: JobReport | None, expected: tuple[float, float, str]
) -> None:
    assert Window(*expected) == window_of(Request(since=since, until=until), job_report, NOW)


def test_a_window_that_ends_before_it_begins_is_refused() -> None:
    assert window_of(Request(since=5.0, until=5.0), None, NOW)
    with pytest.raises(WrongWindow, match="begins at 1970-01-01T00:00:06Z and ends before, at 1970-01-01T00:00:05Z"):
        window_of(Request(since=6.0, until=5.0), None, NOW)
