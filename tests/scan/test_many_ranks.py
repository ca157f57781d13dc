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
