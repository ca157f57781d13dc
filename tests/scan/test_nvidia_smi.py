"""What nvidia-smi lists of broken memory."""

from __future__ import annotations

import pytest

from tests.scan.cases import events_of, patterns_of

SMI = "Attached GPUs : 1\nGPU 00000000:53:00.0\n    Remapped Rows\n        {}\n"


@pytest.mark.parametrize("line, weight", [
    ("Pending : Yes", 80), ("Remapping Failure Occurred : Yes", 88), ("Pending : No", None), ("Pending : 0", None),
])  # fmt: skip
def test_a_repair_that_waits_or_failed_names_its_gpu(line: str, weight: int | None):
    events = [event for event in events_of(SMI.format(line).encode()) if event.pattern == "smi-remap"]
    assert [(weight, "0000:53:00")] * (weight is not None) == [(event.weight, event.gpu) for event in events]


def test_errors_count_since_the_last_boot_and_not_for_ever():
    lines = "    {}\n        DRAM Uncorrectable : 2\n"
    assert [["smi-ecc"], []] == [
        [pattern for pattern in patterns_of("NVSMI LOG\n" + lines.format(section)) if pattern.startswith("smi")]
        for section in ("Volatile", "Aggregate")
    ]


def test_a_list_of_gpus_names_the_one_whose_repair_failed():
    text = "gpu_bus_id, remapped_rows.pending, remapped_rows.failure\n00000000:53:00.0, 0, 0\n00000000:54:00.0, 0, 1\n"
    assert ["0000:54:00"] == [event.gpu for event in events_of(text.encode()) if event.pattern == "smi-remap"]
