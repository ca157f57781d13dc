"""What NCCL and PyTorch say themselves of a job that hangs: the RAS report, and flight recorder dumps that lie there.

scan reads and judges both. A dump lies where the job's user wrote it, so it is read with that user's rights.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterable

from hpslurm.core.finding import Diagnosis
from hpslurm.job.hang.facts import Sample
from hpslurm.scan import flight
from hpslurm.scan.collect import Collector
from hpslurm.scan.reason import reason
from hpslurm.sources import processes, userfile
from hpslurm.sources.slurm import SlurmJob

MOST_DUMPS = 2048
LARGEST = 32 << 20  # bytes of one dump
PATIENCE = 2.0  # seconds; a dump on a file system that hangs is left


def of(sample: Sample, job: SlurmJob | None = None, paths: Iterable[str] = ()) -> Diagnosis | None:
    """One diagnosis of all that is there, or None where nothing is. ``paths`` are files that a person named."""
    collector = Collector()
    for node in sample.nodes:
        if node.ras:
            _take(collector, node.ras.encode("utf-8", "replace"), f"NCCL RAS on {node.name}")
    for path in paths:
        collector.add(path)
    for path, data in _dumps(sample, job) if job else ():
        _take(collector, data, path)
    return reason(collector.result()) if collector.files else None


def _take(collector: Collector, data: bytes, name: str) -> None:
    if not collector.dump(io.BytesIO(data), name) and not flight.looks_like(data[:4096]):
        collector.stream(io.BytesIO(data), name)


def _dumps(sample: Sample, job: SlurmJob) -> Iterable[tuple[str, bytes]]:
    """Dumps of this job: named as its environment says, and written since it began."""
    for prefix in dict.fromkeys(node.dumps for node in sample.nodes if node.dumps.startswith("/")):
        folder, _, begin = prefix.rpartition("/")
        gid = job.gid if job.gid is not None else -1
        found = userfile.names(folder or "/", job.uid, gid, user=job.user)
        paths = [f"{folder}/{name}" for name in found if name.startswith(begin)][:MOST_DUMPS]
        for path in _written_since(paths, job.start_time or 0):
            taken = userfile.take(path, job.uid, gid, user=job.user, limit=LARGEST)
            if taken.whole:
                yield path, taken.head + taken.tail


def _written_since(paths: list[str], when: float) -> list[str]:
    times, _ = processes.each(range(len(paths)), lambda number: os.lstat(paths[number]).st_mtime, PATIENCE)
    return [path for number, path in enumerate(paths) if times.get(number, 0.0) >= when]
