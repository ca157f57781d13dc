"""One answer for one job: its own output and its nodes' records, reasoned over together.

Diagnoses of single nodes are never merged: the events of all are put together and judged
once. What a node showed before the job began is no proof of what ended it, and weighs less.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hpslurm.finding import P2, Diagnosis, Event, Finding
from hpslurm.job.report import BEFORE_THE_JOB
from hpslurm.records import Record
from hpslurm.scan import joblog, lines
from hpslurm.scan.reason import reason
from hpslurm.sources.slurm import SlurmJob
from hpslurm.values import dataclass, replace

MOST = 64 << 20  # bytes of the job's output, head and tail; the epilog takes 8 MiB
SECONDS = 20.0


@dataclass(frozen=True)
class Cause:
    """``notes`` say which part of the job's output could not be read."""

    diagnosis: Diagnosis
    events: tuple[Event, ...]
    notes: tuple[str, ...]


def find(job: SlurmJob | None, output: Sequence[str], records: Iterable[Record], findings: Sequence[Finding]) -> Cause:
    """``output`` are files named by hand; without them Slurm says where the output is, while it remembers."""
    read = _output(job, output)
    kept = [event for record in records for line in record.events if (event := lines.event_of(line))]
    seen = {event.file for event in read.events}
    events = [*read.events, *(event for event in kept if event.file not in seen)]  # the epilog read the same files
    diagnosis = reason(events, [_weighed(one) for one in findings], read.notes)
    return Cause(diagnosis, tuple(events), read.notes)


def _output(job: SlurmJob | None, output: Sequence[str]) -> joblog.Found:
    if job is None:
        return joblog.Found(notes=("Slurm has forgotten the job, and with it where its output is: name it (--output)",))
    about = joblog.Job(
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
    if output:
        found = [joblog.look(replace(about, stdout=path, stderr=""), limit=MOST, seconds=SECONDS) for path in output]
        return joblog.Found(
            tuple(event for one in found for event in one.events),
            tuple(note for one in found for note in one.notes),
            tuple(file for one in found for file in one.files),
        )
    if job.stdout is None and job.source == "sacct":
        return joblog.Found(notes=("the accounting does not keep where the output is: name it (--output)",))
    return joblog.look(about, limit=MOST, seconds=SECONDS)


def _weighed(finding: Finding) -> Finding:
    before = any(one.text == BEFORE_THE_JOB for one in finding.evidence)
    return replace(finding, rule=replace(finding.rule, priority=P2)) if before else finding
