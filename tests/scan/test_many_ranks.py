"""The right rank out of many: one file per rank, clocks up to two seconds apart, one root."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpslurm.scan.collect import scan
from hpslurm.scan.reason import reason
from tests.scan.generate import ROOTS, job

SIZES = (8, 8, 16, 16, 32, 32, 64, 128)  # ranks; the largest job has a test of its own
JOBS = [(SIZES[number % len(SIZES)], list(ROOTS)[number % len(ROOTS)], number) for number in range(39)]


@pytest.mark.parametrize("ranks, root, seed", JOBS, ids=lambda value: str(value))
def test_the_rank_that_started_it_is_named(tmp_path: Path, ranks: int, root: str, seed: int):
    culprit, causes = job(tmp_path, ranks, root, seed)
    diagnosis = reason(scan([str(tmp_path)]).result())
    assert diagnosis.culprit is not None, diagnosis
    assert (culprit, True) == (diagnosis.culprit.rank, diagnosis.cause in causes), diagnosis


def test_one_rank_of_two_thousand_is_found(tmp_path: Path):
    culprit, causes = job(tmp_path, 2000, "exception", 4)
    diagnosis = reason(scan([str(tmp_path)]).result())
    assert diagnosis.culprit is not None
    assert (culprit, True) == (diagnosis.culprit.rank, diagnosis.cause in causes)


GONE = (
    "{host}:7:9 [0] misc/socket.cc:58 NCCL WARN socketProgress: Connection closed by remote peer ip-10-1-0-9<41234>\n"
)


@pytest.mark.parametrize(
    "line, other, cause",
    [
        ("NCCL INFO NCCL version 2.26.2+cuda12.8", "NCCL INFO NCCL version 2.21.5+cuda12.4", "nccl_version_mismatch"),
        ("NCCL INFO Using network Libfabric", "NCCL INFO Using network Socket", "efa_not_used"),
        (
            "NCCL INFO NET/OFI Selected provider is efa, fabric is efa (found 32 nics)",
            "NCCL INFO NET/OFI Selected provider is efa, fabric is efa (found 31 nics)",
            "efa_not_used",
        ),
    ],
)
def test_the_host_that_differs_is_evidence_once_something_failed(tmp_path: Path, line: str, other: str, cause: str):
    for number in range(4):
        host = f"ip-10-1-0-{number}"
        text = f"{host}:7:8 [0] {other if number == 2 else line}\n"
        (tmp_path / f"rank-{number}.log").write_text(text + GONE.format(host=host))
    diagnosis = reason(scan([str(tmp_path)]).result())
    assert diagnosis.culprit is not None
    assert (cause, "ip-10-1-0-2") == (diagnosis.cause, diagnosis.culprit.host)


def test_hosts_that_are_alike_are_no_evidence(tmp_path: Path):
    for number in range(4):
        host = f"ip-10-1-0-{number}"
        (tmp_path / f"rank-{number}.log").write_text(
            f"{host}:7:8 [0] NCCL INFO NCCL version 2.26.2+cuda12.8\n" + GONE.format(host=host)
        )
    assert "peer_exit" == reason(scan([str(tmp_path)]).result()).cause
