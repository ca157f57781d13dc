"""Single lines as Slurm, kernels, NCCL, PyTorch and others print them, each with the cause that it tells alone.

lines.tsv: the cause, a tab, the line. Names and addresses are invented ones of the same shape.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scan.cases import diagnose

LINES = [line.split("\t", 1) for line in Path(__file__).with_name("lines.tsv").read_text().splitlines()]


@pytest.mark.parametrize("cause, line", LINES)
def test_a_line_alone_tells_its_cause(cause: str, line: str):
    assert cause == diagnose(f"{line}\n".encode()).cause
