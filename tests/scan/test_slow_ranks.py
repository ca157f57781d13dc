"""Reports of performance, at their thresholds."""

from __future__ import annotations

import pytest

from hpslurm.scan.model import derived
from tests.scan.cases import patterns_of


@pytest.mark.parametrize("line, wanted", [
    ("Rank=3 Node=n3 Score=0.69", ["score-low"]),
    ("Rank=3 Node=n3 Score=0.70", []),
    ("MnRtt/Rnk: 100.0ms/1 | MxRtt/Rnk: 120.1ms/4", ["rtt-high"]),
    ("MnRtt/Rnk: 100.0ms/1 | MxRtt/Rnk: 120.0ms/4", []),
])  # fmt: skip
def test_a_rank_is_slow_below_the_threshold_only(line: str, wanted: list[str]):
    rows = [pattern for pattern in patterns_of(f"{line}\n") if pattern in derived()]
    assert wanted == rows
