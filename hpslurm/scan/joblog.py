"""A job's own output, found and scanned: by the epilog on one node, and by the report on the controller.

Slurm gives hooks the names as the user wrote them (``train-%j.out``); what each sign means is Slurm's own.
This module is light enough for a hook: no Hyperscan, and it stops at its deadline.
"""

from __future__ import annotations

import io
import os
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any

from hpslurm.core.finding import NOISE, Event
from hpslurm.core.text import clean, whole
from hpslurm.core.values import dataclass
from hpslurm.scan import lines
from hpslurm.scan.collect import Collector
from hpslurm.sources import userfile

SECONDS = 2.0  # for reading and scanning together
SLICE = 512 << 10  # bytes scanned between two looks at the clock
MOST_BESIDE = 1024  # files of one job beside its own output
_NO_TEXT = (".pt", ".bin", ".npz", ".tar", ".pkl", ".safetensors", ".parquet", ".sqlite")
KEPT = 200  # events in a record


@dataclass(frozen=True)
class Job:
    """What is needed to find a job's output. ``node`` is the first node's short name."""

    id: str
    user: str = ""
    uid: int = 0
    gid: int = 0
    name: str = ""
    folder: str = ""
    stdout: str = ""
    stderr: str = ""
    array_job: str = ""
    array_task: str = ""
    node: str = ""
    in_hook: bool = False  # some releases of Slurm do not tell a hook which task of an array it is


@dataclass(frozen=True)
class Found:
    """``notes`` say what could not be read or scanned, and why."""

    events: tuple[Event, ...] = ()
    notes: tuple[str, ...] = ()
    files: tuple[str, ...] = ()


_SIGN = re.compile(r"%(\d{0,3})([%AaJjNnstuxb])")


def path_of(pattern: str, job: Job) -> str:
    """The file that Slurm made of ``pattern``. A sign that we cannot know stays as it is."""
    if not pattern:
        pattern = "slurm-%A_%a.out" if job.array_job and job.array_task else "slurm-%j.out"
    raw = pattern.startswith("\\")  # a backslash at the start switches the signs off
    path = pattern[1:] if raw else _SIGN.sub(lambda match: _meaning(match, job), pattern)
    if path and not path.startswith("/"):
        path = os.path.join(job.folder or "/", path)
    return os.path.normpath(path) if path else ""


def _meaning(match: re.Match[str], job: Job) -> str:
    width, sign = match[1], match[2]
    value = {
        "%": "%",
        "A": job.array_job or job.id,
        "a": job.array_task or ("" if job.in_hook else "4294967294"),
        "j": job.id,
        "J": job.id,
        "N": job.node.split(".")[0],
        "n": "0",
        "s": "batch",
        "t": "0",
        "u": job.user,
        "x": job.name,
        "b": str((whole(job.array_task) or 0) % 10),
    }[sign]
    if not value:
        return match[0]
    return value.zfill(min(int(width), 10)) if width and value.isdigit() else value


def paths(job: Job) -> list[str]:
    """Standard output and standard error, once where they are one file."""
    found = [path_of(job.stdout, job)]
    if job.stderr and job.stderr != job.stdout:
        found.append(path_of(job.stderr, job))
    return [path for path in dict.fromkeys(found) if path and path != "/dev/null"]


def beside(job: Job) -> list[str]:
    """The user's files beside the job's output whose names hold the job's number: of steps and tasks."""
    known = paths(job)
    found: list[str] = []
    for folder in dict.fromkeys(os.path.dirname(path) for path in known if "%" not in path):
        for number in dict.fromkeys(filter(None, (job.id.partition("_")[0], job.array_job))):
            some = userfile.names(folder, job.uid, job.gid, user=job.user, containing=number)
            found += [f"{folder}/{name}" for name in some if not name.endswith(_NO_TEXT)]
    return [path for path in dict.fromkeys(found) if path not in known][:MOST_BESIDE]


def job_of_env(env: Mapping[str, str]) -> Job:
    """From the environment of a node hook; it has no job name, so a %x cannot be resolved there."""

    def number(name: str) -> int:
        text = env.get(name, "")
        number = whole(text)
        return -1 if number is None else number

    return Job(
        env.get("SLURM_JOB_ID", ""),
        env.get("SLURM_JOB_USER", ""),
        number("SLURM_JOB_UID"),
        number("SLURM_JOB_GID"),
        env.get("SLURM_JOB_NAME", ""),
        env.get("SLURM_JOB_WORK_DIR", ""),
        env.get("SLURM_JOB_STDOUT", ""),
        env.get("SLURM_JOB_STDERR", ""),
        env.get("SLURM_ARRAY_JOB_ID", ""),
        env.get("SLURM_ARRAY_TASK_ID", ""),
        first_node(env.get("SLURM_JOB_NODELIST") or env.get("SLURM_NODELIST") or ""),
        in_hook=True,
    )


def first_node(nodes: str) -> str:
    """The first name of a folded list; only one node of a job reads its output."""
    match = re.match(r"([^,\[]*)(?:\[(\d{1,18})[^\]]*\]([^,\[]*))?", nodes)
    return f"{match[1]}{match[2] or ''}{match[3] or ''}" if match else ""


def reads_here(env: Mapping[str, str]) -> bool:
    """Whether this node is the one that reads the job's output: of several components, only the first has a script."""
    if env.get("SLURM_HET_JOB_ID", "") not in ("", env.get("SLURM_JOB_ID")):
        return False
    here = env.get("SLURMD_NODENAME", "")
    return bool(here) and first_node(env.get("SLURM_JOB_NODELIST") or env.get("SLURM_NODELIST") or "") == here


def look(
    job: Job, also: Sequence[str] = (), *, limit: int = userfile.LIMIT, seconds: float = SECONDS, fast: bool = False
) -> Found:
    """Reads the job's output, and files ``also`` named, with its user's rights. Never raises for what the user did."""
    deadline = time.monotonic() + seconds
    if job.uid < 0 or job.gid < 0:
        return Found(notes=("whose job it is cannot be told, so its output is not read",))
    collector = Collector(fast=fast)
    notes: list[str] = []
    files: list[str] = []
    wanted = [*paths(job), *also]
    for path in wanted:
        if "%" in path:
            notes.append(
                f"{clean(path, 200)}: the file's name cannot be told on a node; hpslurm report {clean(job.id, 20)} finds it on the controller"  # noqa: E501
            )
            continue
        left = deadline - time.monotonic()
        if left <= 0:
            notes.append(f"{clean(path, 200)}: no time left")
            continue
        taken = userfile.take(path, job.uid, job.gid, user=job.user, limit=limit // len(wanted), seconds=left / 2)
        if taken.note:
            notes.append(taken.note)
        if taken.head or taken.tail:
            files.append(path)
            notes += scan(collector, path, taken, deadline)
    events = sorted(collector.result(), key=lambda event: (event.role == NOISE, -event.weight))
    return Found(tuple(events[:KEPT]), tuple(notes), tuple(files))


def epilog(env: Mapping[str, str], *, seconds: float = SECONDS) -> tuple[list[dict[str, Any]], list[str]]:
    """(event lines for the record, notes). Empty on every node but the job's first."""
    if not reads_here(env):
        return [], []
    found = look(job_of_env(env), seconds=seconds)
    return [lines.event_line(event) for event in found.events], list(found.notes)


def scan(collector: Collector, path: str, taken: userfile.Taken, deadline: float) -> list[str]:
    """The end first: it is where failures stand. Without the middle its lines are counted from the end."""
    shown = clean(path, 200)
    head, tail = (taken.head, taken.tail) if taken.tail else (b"", taken.head)
    line = 1 if not taken.tail else -(tail.count(b"\n") + (not tail.endswith(b"\n")))
    collector.deadline = deadline
    pieces = _pieces(tail, line) + _pieces(head, 1)
    for done, (piece, number) in enumerate(pieces):
        if not collector.late:
            collector.stream(io.BytesIO(piece), path, line=number)
        if collector.late:
            return [f"{shown}: {len(pieces) - done} of {len(pieces)} parts not scanned to their end for want of time"]
    return []


def _pieces(data: bytes, line: int) -> list[tuple[bytes, int]]:
    """Whole lines in pieces, the last piece first, each with the number of its first line."""
    found = []
    at = 0
    while at < len(data):
        end = min(len(data), at + SLICE)
        if end < len(data):
            end = data.rfind(b"\n", at, end) + 1 or end
        found.append((data[at:end], line))
        line += data.count(b"\n", at, end)
        at = end
    return found[::-1]
