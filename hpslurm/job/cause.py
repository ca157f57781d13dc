"""One cause for a job: its output, what its nodes recorded, and how Slurm says it ended, reasoned over once.

The report on the controller calls this. Diagnoses of single nodes are never merged: the events of all are.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from hpslurm.finding import ROOT, SYMPTOM, Diagnosis, Event, Finding
from hpslurm.records import Record
from hpslurm.scan import joblog, lines
from hpslurm.scan.collect import Collector
from hpslurm.scan.reason import HEALTHY, UNDETERMINED, reason
from hpslurm.sources.slurm import SlurmJob
from hpslurm.text import clean

LIMIT = 256 << 20  # bytes of each file that root reads with the user's rights; the user itself reads all
SECONDS = 60.0  # for that
ENDED_WELL = ("COMPLETED",)

# How Slurm says that a job ended -> (cause, weight, role). A state that any failure may have says nothing.
STATES = {
    "OUT_OF_MEMORY": ("host_oom", 84, ROOT),
    "NODE_FAIL": ("node_fail", 84, ROOT),
    "TIMEOUT": ("job_cancelled", 40, ROOT),
    "DEADLINE": ("job_cancelled", 40, ROOT),
    "PREEMPTED": ("job_cancelled", 56, ROOT),
    "CANCELLED": ("job_cancelled", 22, SYMPTOM),
}


def of_job(
    job: SlurmJob | None, records: Iterable[Record], findings: Iterable[Finding] = ()
) -> tuple[Diagnosis | None, list[str]]:
    """(the diagnosis, notes on what could not be read). None for a job that ended well and shows nothing."""
    events = [event for record in records for line in record.events if (event := lines.event_of(line)) is not None]
    notes: list[str] = []
    if job is not None:
        events += _state(job)
        read, trouble = output(job)
        files = {event.file for event in read}
        events = [event for event in events if event.file not in files] + read  # the epilog saw the same files in part
        notes += trouble
    diagnosis = reason(events, findings, notes)
    well = job is not None and job.state in ENDED_WELL and not job.exit_code
    if well and (diagnosis.cause in (HEALTHY, UNDETERMINED) or diagnosis.confidence == "low"):
        return None, notes
    return diagnosis, notes


def output(job: SlurmJob) -> tuple[list[Event], list[str]]:
    """Events of the job's output files, read with the rights of the job's user."""
    wanted = _job(job)
    if os.geteuid() == 0 and job.uid != 0:
        if job.gid is None:
            return [], ["the job's group is not known, so its output is not read"]
        found = joblog.look(wanted, limit=LIMIT, seconds=SECONDS, fast=True)
        return list(found.events), list(found.notes)
    collector = Collector()
    for path in joblog.paths(wanted):
        if "%" in path:
            collector.unread.append(f"{clean(path, 200)}: the name holds a sign that Slurm did not resolve")
        else:
            collector.add(path)
    return collector.result(), collector.unread


def _job(job: SlurmJob) -> joblog.Job:
    return joblog.Job(
        str(job.id),
        job.user,
        job.uid,
        job.gid if job.gid is not None else -1,
        job.name,
        job.work_dir or "",
        job.stdout or "",
        job.stderr or "",
        str(job.array_job or ""),
        str(job.array_task if job.array_task is not None else ""),
        job.batch_host or joblog.first_node(job.nodes),
    )


def _state(job: SlurmJob) -> list[Event]:
    word = job.state.split()[0].split("+")[0] if job.state else ""
    if word not in STATES:
        return []
    cause, weight, role = STATES[word]
    text = f"Slurm: {clean(job.state, 60)}" + (f", reason {clean(job.reason, 60)}" if job.reason else "")
    when = float(job.end_time) if job.end_time else None
    return [Event("job-state", role, f"job {job.id}", 0, text, when, cause=cause, weight=weight)]
