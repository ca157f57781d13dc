"""Short outputs that people paste: df, ulimit, ibstat, fi_info."""

from __future__ import annotations

import pytest

from hpslurm.scan.model import derived
from tests.scan.cases import diagnose, patterns_of


@pytest.mark.parametrize("line, wanted", [
    ("/dev/sda1 1 2 3 98% /", ["df-full"]),
    ("/dev/sda1 1 2 3 97% /", []),
    ("/dev/loop3 1 2 0 100% /snap/core", []),
    ("tmpfs 1 2 3 98% /dev/shm", ["df-full"]),
    ("max locked memory       (kbytes, -l) 1048575", ["ulimit-low"]),
    ("max locked memory       (kbytes, -l) 1048576", []),
    ("Max locked memory   1073741823   1073741823   bytes", ["ulimit-low"]),
    ("Max locked memory   1073741824   1073741824   bytes", []),
    ("\tstate:\t\t\tPORT_DOWN (1)", ["ib-port-down"]),
    ("link mlx5_0/1 state DOWN physical_state DISABLED", ["ib-port-down"]),
    ("link mlx5_0/1 state ACTIVE physical_state LINK_UP", []),
    ("\tState: Down\n\tPhysical state: Polling", ["ib-port-down"]),
    ("\tState: Down", []),
    ("$ fi_info -p efa\nprovider: tcp", ["fi-info-other"]),
    ("$ fi_info -p efa\nprovider: efa", []),
    ("$ fi_info -p efa\n-61 (No data available)\n-61", ["fi-info-bare"]),
])  # fmt: skip
def test_a_short_output_is_judged_at_its_threshold(line: str, wanted: list[str]):
    rows = [pattern for pattern in patterns_of(f"{line}\n") if pattern in derived()]
    assert wanted == rows


def test_a_full_disk_is_storage_and_full_shared_memory_is_not():
    assert ["storage", "shm_full"] == [
        diagnose(f"tmpfs 1 2 3 99% {place}\n".encode()).cause for place in ("/fsx", "/dev/shm")
    ]
