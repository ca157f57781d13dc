"""The site's own bandwidth: what runs on this cluster measured, kept as JSON lines, read back as medians.

Public figures come from other clusters and other software. A site's own median, for the same instance type,
number of nodes, size and NCCL, is the better measure. Any number of jobs may append at the same time: each
run is one write of whole lines under a lock, and a reader passes over a line that it cannot read.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
import stat
import statistics
import time
from collections.abc import Iterable
from typing import Any

from hpslurm.core.text import clean
from hpslurm.core.values import dataclass, field, replace
from hpslurm.nccl_tests.ranks import shape
from hpslurm.nccl_tests.verdict import Facts, Own, Verdict
from hpslurm.nccl_tests.words import count

NAME = "bandwidth.jsonl"
NEWEST = 50  # runs of one kind that count; a median over years would hide a slow decline of the site
LARGEST = 64 << 20  # bytes, from the end of the file
_SCALE = 1.4826  # makes a median absolute deviation a standard deviation


@dataclass(frozen=True)
class Kind:
    """What must be equal for two runs to be compared. ``nccl`` is "2.28": patch levels are near enough."""

    instance: str
    collective: str
    nodes: int
    ranks: int
    nccl: str


@dataclass
class Baselines:
    """All readable rows, and how many lines could not be read."""

    path: str
    rows: dict[tuple[Kind, int], list[float]] = field(default_factory=dict)
    unreadable: int = 0
    problem: str = ""

    def own(self, kind: Kind) -> dict[int, Own]:
        """Per size in bytes, for exactly this kind of run."""
        return {size: summary(rates) for (other, size), rates in self.rows.items() if other == kind}

    @property
    def troubles(self) -> list[str]:
        """What is wrong with the file, in words."""
        troubles = [f"baselines not used: {self.problem}"] if self.problem else []
        if self.unreadable:
            troubles.append(f"{self.path}: {count(self.unreadable, 'line')} cannot be read, passed over")
        return troubles


def kind_of(instance: str, collective: str, nodes: int, ranks: int, nccl: str) -> Kind:
    """``nccl`` may be a full version or empty; the NCCL of runs that do not name it is compared as such."""
    return Kind(instance, collective, nodes, ranks, ".".join(nccl.split(".")[:2]))


def with_own(facts: Facts, baselines: Baselines) -> Facts:
    """The same run, with the site's own figures of its kind."""
    about = shape(facts)
    if about is None:
        return facts
    return replace(facts, own=baselines.own(kind_of(facts.instance, *about)))


def keep(facts: Facts, verdict: Verdict, path: str, job: str) -> str:
    """Record a run that is fit to be a measure; says what was done, or why not. Raises OSError."""
    about = shape(facts)
    rates = [(size.size, size.busbw) for size in verdict.sizes if size.busbw > 0]
    if verdict.exit_code or verdict.against:
        rules = [finding.rule.id + (" (muted)" if finding.muted else "") for finding in verdict.against]
        why = ", ".join(dict.fromkeys(rules))
        return f"not recorded: this run is {verdict.words} ({why}), and a measure must be good"
    if about is None or not rates or not facts.instance:
        return "not recorded: the instance type, or what was run, is not known"
    nccl = about[-1]
    return f"recorded {record(path, kind_of(facts.instance, *about), nccl, rates, job)} sizes in {path}"


def summary(rates: list[float]) -> Own:
    """Median and spread of busbw in GB/s over the newest runs."""
    newest = rates[-NEWEST:]
    middle = statistics.median(newest)
    away = statistics.median(abs(rate - middle) for rate in newest) * _SCALE
    return Own(middle, min(newest), max(newest), away if len(newest) >= 3 else 0.0, len(newest))


def load(path: str) -> Baselines:
    """What the file holds; a missing file holds nothing, one that may not be read says so in ``problem``."""
    baselines = Baselines(path)
    try:
        with open(path, "rb", opener=_without_waiting) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                baselines.problem = f"{path} is not a regular file"
                return baselines
            before = os.fstat(file.fileno()).st_size - LARGEST
            if before > 0:  # the newest runs stand at the end
                file.seek(before - 1)
                file.readline()
            text = file.read(LARGEST)
    except FileNotFoundError:
        return baselines
    except OSError as error:
        baselines.problem = f"{path}: {error.strerror}"
        return baselines
    for line in text.splitlines():
        if line.strip() and not _take(line, baselines):
            baselines.unreadable += 1
    return baselines


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)  # a pipe that nobody writes to would be waited for


def _take(line: bytes, baselines: Baselines) -> bool:
    try:
        row = json.loads(line)
        if row["type"] != "bandwidth":
            return True
        words = [row[key] for key in ("instance", "collective", "nccl")]
        nodes, ranks, size = (int(row[key]) for key in ("nodes", "ranks", "size"))
        rate = float(row["busbw"])
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return False
    if not all(isinstance(word, str) for word in words) or not math.isfinite(rate) or rate <= 0:
        return False
    kind = kind_of(words[0], words[1], nodes, ranks, words[2])
    baselines.rows.setdefault((kind, size), []).append(rate)
    return True


def record(path: str, kind: Kind, nccl: str, rates: Iterable[tuple[int, float]], job: str = "") -> int:
    """Append one run; returns the number of rows. Raises OSError where the file cannot be written."""
    lines = [
        json.dumps(
            {
                "schema": 1,
                "type": "bandwidth",
                "time": round(time.time()),
                "job": clean(job, 20),
                **_plain(kind),
                "nccl": nccl,
                "size": size,
                "busbw": round(rate, 2),
            },
            separators=(",", ":"),
        )
        for size, rate in rates
    ]
    folder = os.path.dirname(path)
    if folder:
        os.makedirs(folder, exist_ok=True)
    handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(f"{path} is not a regular file")
        fcntl.flock(handle, fcntl.LOCK_EX)
        text = "".join(f"{line}\n" for line in lines)
        size = os.fstat(handle).st_size
        if size and os.pread(handle, 1, size - 1) != b"\n":  # a writer died in the middle of a line
            text = "\n" + text
        data = text.encode()
        while data:
            data = data[os.write(handle, data) :]
    finally:
        os.close(handle)
    return len(lines)


def _plain(kind: Kind) -> dict[str, Any]:
    return {
        "instance": kind.instance,
        "collective": kind.collective,
        "nodes": kind.nodes,
        "ranks": kind.ranks,
    }
