"""Which failures of jobs can be the node's, and which cannot: one job at a time.

A failure counts against one node where something names it: a diagnosis, or Slurm's NODE_FAIL. It counts thinly
against all nodes of the job where nothing does. It counts against none where the program, its user or the
scheduler ended the job. Pure: a job and what is told of it in, a blame out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hpslurm.core.values import dataclass

NAMED, HARD, SOFT = "named", "hard", "soft"
# Signals by which a broken machine ends a program, too: SIGILL, SIGABRT, SIGBUS, SIGFPE, SIGSEGV. Not SIGKILL, which
# is the kernel's for memory or somebody's scancel, and not those of a user or of Slurm.
SIGNALS = frozenset((4, 6, 7, 8, 11))
SHELL = 128  # a shell's exit code for a program that a signal ended is this and the signal
# What a diagnosis blames, by the key ``blame`` of causes.toml.
OF_NODE, OF_JOB, OF_SITE, OF_NOBODY = "node", "job", "site", "unknown"
SURE = "high"  # the confidence with which a diagnosis names a culprit that we take: right in 97 of 100


@dataclass(frozen=True)
class Job:
    """A job that is over. ``nodes`` are names as Slurm has them; times are seconds since the epoch."""

    id: int
    state: str
    nodes: tuple[str, ...]
    start: int
    end: int
    user: str = ""
    partition: str = ""
    code: int = 0
    signal: int = 0

    @property
    def hours(self) -> float:
        return max(0, self.end - self.start) / 3600

    @property
    def died(self) -> int:
        """The signal that ended it, as Slurm or its shell says; 0 for none."""
        return self.signal or (self.code - SHELL if SHELL < self.code < SHELL + 65 else 0)


@dataclass(frozen=True)
class Told:
    """What the diagnosis of a job says. ``blame`` is the key of its cause."""

    job: int
    time: float
    cause: str
    blame: str
    confidence: str = ""
    host: str = ""
    gpu: str = ""
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Failure:
    """A failure that can be a node's: of ``nodes`` one is to blame, and where it is named, it stands alone."""

    job: int
    kind: str  # NAMED; HARD where hardware or Slurm's NODE_FAIL is told and no node; SOFT where nothing is told
    nodes: tuple[str, ...]
    why: str  # a cause, or Slurm's word
    time: int
    user: str = ""
    partition: str = ""
    size: int = 1  # nodes of the job
    gpu: str = ""


def failure_of(job: Job, told: Told | None, down: Sequence[str] = ()) -> Failure | None:
    """The job's failure, if it can be a node's. ``down`` are nodes of it that Slurm lost when it ended."""
    if told is not None and job.state != "COMPLETED":
        return _as_told(job, told)
    if job.state == "NODE_FAIL":
        lost = [name for name in job.nodes if name in down]
        return _named(job, lost[0], "NODE_FAIL") if len(lost) == 1 else _of_all(job, "NODE_FAIL")
    if job.state == "BOOT_FAIL":
        return _of_all(job, "BOOT_FAIL")
    if job.state == "FAILED" and len(job.nodes) > 1:
        return _shared(job, SOFT, f"exit code {job.code}:{job.signal}")
    if job.state == "FAILED" and job.died in SIGNALS:
        return _shared(job, SOFT, f"ended by signal {job.died}")
    return None


def _as_told(job: Job, told: Told) -> Failure | None:
    if told.blame in (OF_JOB, OF_SITE):
        return None
    if told.host in job.nodes and told.confidence == SURE and told.blame == OF_NODE:
        return _named(job, told.host, told.cause, told.gpu)
    if told.blame == OF_NODE and len(job.nodes) == 1 and told.confidence == SURE:
        return _named(job, job.nodes[0], told.cause, told.gpu)
    if told.blame == OF_NOBODY and len(job.nodes) == 1 and job.died not in SIGNALS and job.state != "NODE_FAIL":
        return None  # a single node that failed by itself says no more than its exit code
    if job.state == "NODE_FAIL":
        return _of_all(job, told.cause)
    return _shared(job, HARD, told.cause)


def _named(job: Job, node: str, why: str, gpu: str = "") -> Failure:
    return Failure(job.id, NAMED, (node,), why, job.end, job.user, job.partition, len(job.nodes), gpu)


def _shared(job: Job, kind: str, why: str) -> Failure | None:
    if not job.nodes:
        return None
    return Failure(job.id, kind, job.nodes, why, job.end, job.user, job.partition, len(job.nodes))


def _of_all(job: Job, why: str) -> Failure | None:
    """Of a single node it is that node's; else of one of them, nobody knows which."""
    return _named(job, job.nodes[0], why) if len(job.nodes) == 1 else _shared(job, HARD, why)


def lost_at(job: Job, downs: Mapping[str, Sequence[int]], within: int) -> list[str]:
    """The job's nodes that Slurm set down at its end, by the times at which each went down."""
    if job.state != "NODE_FAIL":
        return []
    return [name for name in job.nodes if any(abs(when - job.end) <= within for when in downs.get(name, ()))]
