"""What NCCL and PyTorch say themselves: the RAS report of a node, and flight recorder dumps of this very job."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from hpslurm.job.hang import told as hang_told
from hpslurm.job.hang.facts import Node, Sample
from hpslurm.job.hang.judge import judge
from hpslurm.sources.slurm import SlurmJob

RAS = {
    "nccl_version": "2.28.3",
    "communicators": [
        {
            "hash": "0x1",
            "ranks": [
                {"rank": rank, "host": f"n{rank + 1}", "pid": 100 + rank, "collective_counts": {"AllReduce": 41}}
                for rank in range(3)
            ],
            "missing_ranks": [{"rank": 3, "host": "n4", "pid": 103, "status": {"considered_dead": True}}],
        }
    ],
}


def job(began: float) -> SlurmJob:
    return SlurmJob(7, "train", "me", os.getuid(), os.getgid(), "RUNNING", nodes="n[1-4]", start_time=int(began))


def dump(folder: Path, rank: int, at: int) -> Path:
    """What this rank had enqueued: all wait in the collective ``at``."""
    entries = [
        {"collective_seq_id": number, "state": state, "profiling_name": "nccl:all_reduce", "pg_id": 0}
        for number, state in ((at - 1, "completed"), (at, "started"))
    ]
    config = {"0": {"ranks": "[0, 1, 2, 3]"}}
    path = folder / f"flight_{rank}"
    path.write_text(json.dumps({"version": "2.5", "rank": rank, "pg_config": config, "entries": entries}))
    return path


def test_a_rank_that_nccl_calls_dead_is_named() -> None:
    sample = Sample("7", (Node("n1", ras=json.dumps(RAS)),))
    told = hang_told.of(sample)
    assert told is not None and told.culprit is not None
    assert (3, "n4") == (told.culprit.rank, told.culprit.host)
    assert [(3, "n4")] == [(one.rank, one.node) for one in judge(sample, told).suspects]


def test_without_a_report_or_a_dump_nobody_says_anything() -> None:
    assert None is hang_told.of(Sample("7", (Node("n1"),)), job(0))


def test_dumps_that_the_environment_names_are_read(tmp_path: Path) -> None:
    for rank in (0, 1, 3):
        dump(tmp_path, rank, 12)
    told = hang_told.of(Sample("7", (Node("n1", dumps=f"{tmp_path}/flight_"),)), job(time.time() - 60))
    assert told is not None and told.culprit is not None
    assert 2 == told.culprit.rank


def test_dumps_of_an_earlier_job_are_left(tmp_path: Path) -> None:
    for rank in (0, 1, 3):
        os.utime(dump(tmp_path, rank, 12), (1e9, 1e9))
    assert None is hang_told.of(Sample("7", (Node("n1", dumps=f"{tmp_path}/flight_"),)), job(time.time() - 60))


def test_a_link_to_anothers_file_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "flight_0").symlink_to("/etc/shadow")
    assert None is hang_told.of(Sample("7", (Node("n1", dumps=f"{tmp_path}/flight_"),)), job(0))
