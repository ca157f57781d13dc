"""When it happened: the command line, the job, its records, or the last two hours."""

from __future__ import annotations

import time
from typing import Any

from hpslurm.bundle.request import Request
from hpslurm.core.values import dataclass
from hpslurm.job import report

HOURS = 2 * 3600  # seconds of the window where nothing says when it happened


class WrongWindow(ValueError):
    """The window of time ends before it begins."""


@dataclass(frozen=True)
class Window:
    """When it happened, in seconds since the epoch; ``source`` says who told."""

    since: float
    until: float
    source: str

    def described(self) -> dict[str, Any]:
        return {"since": utc(self.since), "until": utc(self.until), "source": self.source}


def window_of(request: Request, job_report: report.JobReport | None, now: float | None = None) -> Window:
    """The command line's, else the job's by Slurm, else by its nodes' records, else the last two hours."""
    now = time.time() if now is None else now
    since, until, source = now - HOURS, now, "the last 2 hours: nothing says when it happened"
    job = job_report.job if job_report else None
    times = [record.run["time"] for record in job_report.records if record.run.get("time")] if job_report else []
    if job and job.start_time and job.start_time <= now:
        over = job.end_time and job.start_time <= job.end_time and job_report and job_report.over
        since, until, source = (
            float(job.start_time),
            float(job.end_time) if over and job.end_time else now,
            "Slurm's record of the job",
        )
    elif times:
        since, until = min(times), max(times) if len(times) > 1 else now
        source = "the records of the job's nodes"
    if request.since is not None or request.until is not None:
        source = (
            "the command line"
            if request.since is not None and request.until is not None
            else f"the command line and {source}"
        )
        until = request.until if request.until is not None else until
        since = request.since if request.since is not None else min(since, until - HOURS)
    if since > until:
        raise WrongWindow(
            f"the window begins at {utc(since)} and ends before, at {utc(until)}; set --since and --until"
        )
    return Window(since, until, source)


def utc(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
