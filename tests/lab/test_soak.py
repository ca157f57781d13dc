"""The short form of ``make soak``: a dozen job starts with faults."""

from __future__ import annotations

import pytest

from tests.lab import soak

pytestmark = pytest.mark.lab


def test_no_fault_drains_a_node_loses_a_job_or_leaves_a_hook_behind() -> None:
    assert (12, []) == soak.run(12, seed=3, seconds=120)
