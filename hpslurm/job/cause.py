"""One answer for one job: its own output and its nodes' records, reasoned over together.

Diagnoses of single nodes are never merged: the events of all are put together and judged
once. What a node showed before the job began is no proof of what ended it, and weighs less.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from hpslurm.core.finding import P2, ROOT, SYMPTOM, Diagnosis, Event, Finding
from hpslurm.core.records import Record
from hpslurm.core.text import clean
from hpslurm.core.values import dataclass, replace
from hpslurm.job.report import BEFORE_THE_JOB
from hpslurm.scan import joblog, lines
from hpslurm.scan.collect import Collector
from hpslurm.scan.reason import reason
from hpslurm.sources.slurm import SlurmJob

# What root reads of a user's file, with that user's rights, head and tail; the user itself reads all.
MOST = 256 << 20  # bytes
SECONDS = 60.0
# How Slurm says that a job ended -> (cause, weight, role). A state that any failure may have says nothing.
STATES = {
    "OUT_OF_MEMORY": ("host_oom", 84, ROOT),
    "NODE_FAIL": ("node_fail", 84, ROOT),
    "TIMEOUT": ("job_cancelled", 40, ROOT),
    "DEADLINE": ("job_cancelled", 40, ROOT),
    "PREEMPTED": ("job_cancelled", 56, ROOT),
    "CANCELLED": ("job_cancelled", 22, SYMPTOM),
}


@dataclass(frozen=True)
class Cause:
    """``notes`` say which part of the job's output could not be read."""

    diagnosis: Diagnosis
    events: tuple[Event, ...]
    notes: tuple[str, ...]


def find(job: SlurmJob | None, output: Sequence[str], records: Iterable[Record], findings: Sequence[Finding]) -> Cause:
    """``output`` are files named by hand; without them Slurm says where the output is, while it remembers."""
    return judged(job, _output(job, output), records, findings)


def judged(job: SlurmJob | None, read: joblog.Found, records: Iterable[Record], findings: Sequence[Finding]) -> Cause:
    """The same, of output that is read already."""
    kept = [event for record in records for line in record.events if (event := lines.event_of(line))]
    seen = {event.file for event in read.events}
    events = [*read.events, *(event for event in kept if event.file not in seen)]  # the epilog read the same files
    events += _state(job) if job else []
    diagnosis = reason(events, [_weighed(one) for one in findings], read.notes)
    return Cause(diagnosis, tuple(events), read.notes)


def _output(job: SlurmJob | None, output: Sequence[str]) -> joblog.Found:
    if job is None:
        return joblog.Found(
            notes=("only Slurm knows where the output of the job is, and does not say now: name it (--output)",)
        )
    about = about_output(job)
    if job.stdout is None and job.source == "sacct" and not output:
        return joblog.Found(notes=("the accounting does not keep where the output is: name it (--output)",))
    asked = [replace(about, stdout=path, stderr="") for path in output] or [about]
    found = [_read(one) for one in asked]
    return joblog.Found(
        tuple(event for one in found for event in one.events),
        tuple(note for one in found for note in one.notes),
        tuple(file for one in found for file in one.files),
    )


def about_output(job: SlurmJob) -> joblog.Job:
    """What is needed to find the job's output."""
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
        str(job.array_task) if job.array_task is not None else "",
        job.batch_host or joblog.first_node(job.nodes),
    )


def _read(about: joblog.Job) -> joblog.Found:
    if os.geteuid() == 0 and about.uid != 0:
        return joblog.look(about, limit=MOST, seconds=SECONDS, fast=True)
    collector = Collector()
    for path in joblog.paths(about):
        if "%" in path:
            collector.unread.append(f"{clean(path, 200)}: the name holds a sign that Slurm did not resolve")
        else:
            collector.add(path)
    return joblog.Found(tuple(collector.result()), tuple(collector.unread))


def _state(job: SlurmJob) -> list[Event]:
    word = job.state.split()[0].split("+")[0] if job.state else ""
    if word not in STATES:
        return []
    cause, weight, role = STATES[word]
    text = f"Slurm: {clean(job.state, 60)}" + (f", reason {clean(job.reason, 60)}" if job.reason else "")
    when = float(job.end_time) if job.end_time else None
    return [Event("job-state", role, f"job {job.id}", 0, text, when, cause=cause, weight=weight)]


def _weighed(finding: Finding) -> Finding:
    before = any(one.text == BEFORE_THE_JOB for one in finding.evidence)
    return replace(finding, rule=replace(finding.rule, priority=P2)) if before else finding
