"""One answer for one job: its own output and its nodes' records, reasoned over together.

Diagnoses of single nodes are never merged: the events of all are put together and judged
once. What a node showed before the job began is no proof of what ended it, and weighs less.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Sequence

from hpslurm.core import nodeset
from hpslurm.core.finding import LOOK, P2, Diagnosis, Event, Finding, Suggestion
from hpslurm.core.records import Record
from hpslurm.core.text import clean
from hpslurm.core.values import dataclass, replace
from hpslurm.job.report import BEFORE_THE_JOB
from hpslurm.scan import joblog, lines, model
from hpslurm.scan.collect import Collector
from hpslurm.scan.reason import HEALTHY, UNDETERMINED, reason
from hpslurm.sources.slurm import SlurmJob

# What root reads of a user's file, with that user's rights, head and tail; the user itself reads all.
LARGEST = 256 << 20  # bytes
SECONDS = 60.0


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
    diagnosis = reason(events, [_weighed(finding) for finding in findings], read.notes)
    if job:
        diagnosis = _filled(_not_healthy(diagnosis, job), job)
    return Cause(diagnosis, tuple(events), read.notes)


def _not_healthy(diagnosis: Diagnosis, job: SlurmJob) -> Diagnosis:
    """Output without a line of trouble is no health where Slurm saw the job fail."""
    if diagnosis.cause != HEALTHY or not (job.state.startswith("FAILED") or job.exit_code):
        return diagnosis
    code = f"exit code {job.exit_code}:{job.exit_signal or 0}" if job.exit_code is not None else "failed"
    why = f"Slurm says {clean(job.state, 40)}, {code}, and no line that was read tells why"
    ask = "the output of the steps and ranks, if they write files of their own: name them (--output)"
    return replace(
        diagnosis, cause=UNDETERMINED, confidence="low", why=why, victims=(), missing=(*diagnosis.missing, ask)
    )


def _filled(diagnosis: Diagnosis, job: SlurmJob) -> Diagnosis:
    """Commands with what is known here: the job's number, its nodes, and a program that this cluster has."""
    nodes = job.nodes or ""
    where = shlex.quote(nodes) if nodes and nodes not in ("(null)", "None assigned") else "NODE"
    host = diagnosis.culprit.host if diagnosis.culprit else None
    named = shlex.quote(host) if host and host in nodeset.names_in(nodes) else "NODE"  # what drains hits one node only
    return replace(
        diagnosis,
        missing=tuple(_known(words, job, where) for words in diagnosis.missing),
        suggestions=tuple(
            with_names(advised, job, where if advised.harm == LOOK else named) for advised in diagnosis.suggestions
        ),
    )


def with_names(advised: Suggestion, job: SlurmJob | None, where: str) -> Suggestion:
    """The same with a command for this job; ``where`` stands for NODE."""
    return replace(advised, command=_known(advised.command, job, where))


def _known(words: str, job: SlurmJob | None, where: str) -> str:
    words = re.sub(r"\bNODE\b", lambda _: where, words)
    if job is None:
        return words
    words = re.sub(r"\bJOBID\b", str(job.id), words)
    if job.source != "sacct":  # whether this cluster keeps accounts is not known, and the controller still knows
        words = re.sub(r"\bsacct -j (\S+)( --format=\S+)?", r"scontrol show job \1", words)
    return words


def _output(job: SlurmJob | None, output: Sequence[str]) -> joblog.Found:
    if job is None:
        return joblog.Found(
            notes=("only Slurm knows where the output of the job is, and does not say now: name it (--output)",)
        )
    about = about_output(job)
    if job.stdout is None and job.source == "sacct" and not output:
        return joblog.Found(notes=("the accounting does not keep where the output is: name it (--output)",))
    asked = [replace(about, stdout=path, stderr="") for path in output] or [about]
    outputs = [_read(one) for one in asked]
    return joblog.Found(
        tuple(event for one in outputs for event in one.events),
        tuple(note for one in outputs for note in one.notes),
        tuple(file for one in outputs for file in one.files),
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
    beside = joblog.beside(about)
    if os.geteuid() == 0 and about.uid != 0:
        return joblog.look(about, beside, limit=LARGEST, seconds=SECONDS, fast=True)
    collector = Collector()
    for path in (*joblog.paths(about), *beside):
        if "%" in path:
            collector.unread.append(f"{clean(path, 200)}: the name holds a sign that Slurm did not resolve")
        else:
            collector.add(path)
    return joblog.Found(tuple(collector.result()), tuple(collector.unread))


def _state(job: SlurmJob) -> list[Event]:
    word = job.state.split()[0].split("+")[0] if job.state else ""
    ended = model.states().get(word)
    if ended is None:
        return []
    reason = f", reason {clean(job.reason, 60)}" if job.reason not in ("", "None") else ""
    text = f"Slurm: {clean(job.state, 60)}{reason}"
    when = float(job.end_time) if job.end_time else None
    return [Event("job-state", ended.role, f"job {job.id}", 0, text, when, cause=ended.cause, weight=ended.weight)]


def _weighed(finding: Finding) -> Finding:
    before = any(one.text == BEFORE_THE_JOB for one in finding.evidence)
    return replace(finding, rule=replace(finding.rule, priority=P2)) if before else finding
