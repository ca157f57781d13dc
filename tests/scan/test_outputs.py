"""Short outputs that people paste: df, ulimit, ibstat, fi_info, sinfo, nvidia-smi, reports of performance."""

from __future__ import annotations

import pytest

from hpslurm.scan.model import derived
from tests.scan.cases import diagnose, events_of, patterns_of


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
    ("Rank=3 Node=n3 Score=0.69", ["score-low"]),
    ("Rank=3 Node=n3 Score=0.70", []),
    ("MnRtt/Rnk: 100.0ms/1 | MxRtt/Rnk: 120.1ms/4", ["rtt-high"]),
    ("MnRtt/Rnk: 100.0ms/1 | MxRtt/Rnk: 120.0ms/4", []),
])  # fmt: skip
def test_a_short_output_is_judged_at_its_threshold(line: str, wanted: list[str]):
    rows = [pattern for pattern in patterns_of(f"{line}\n") if pattern in derived()]
    assert wanted == rows


def test_a_full_disk_is_storage_and_full_shared_memory_is_not():
    assert ["storage", "shm_full"] == [
        diagnose(f"tmpfs 1 2 3 99% {place}\n".encode()).cause for place in ("/fsx", "/dev/shm")
    ]


SINFO = "PARTITION AVAIL TIMELIMIT NODES STATE NODELIST\n"


@pytest.mark.parametrize("state, cause", [
    ("down", "node_fail"), ("down*", "node_fail"), ("fail", "node_fail"), ("idle*", "node_fail"),
    ("inval", "slurm_node_config"), ("down#", "capacity"), ("drain", ""), ("idle", ""), ("alloc", ""),
])  # fmt: skip
def test_states_that_need_a_person_are_told_from_planned_ones(state: str, cause: str):
    events = events_of(f"{SINFO}dev* up infinite 1 {state} ip-10-1-0-7\n".encode())
    assert [(cause, "ip-10-1-0-7")] * bool(cause) == [
        (event.cause, event.host) for event in events if event.role == "root" and event.pattern.startswith("sinfo")
    ]


def test_a_reason_counts_where_it_speaks_of_a_failure():
    head = "REASON               USER      TIMESTAMP           NODELIST\n"
    texts = ("gpu 3 failed", "waits for the vendor")
    lists = [events_of(f"{head}{text} root 2025-01-01T00:00:00 n{len(text)}\n".encode()) for text in texts]
    assert [["root"], ["noise"]] == [
        [event.role for event in events if event.pattern == "sinfo-reason"] for events in lists
    ]


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


@pytest.mark.parametrize("lines, wanted", [
    ("NCCL INFO NCCL_NET set by environment to Socket.", ["net-socket"]),
    ("NCCL INFO NET/OFI Using aws-ofi-nccl 1.14\nn1:7:8 [0] NCCL INFO Using network Socket", ["net-socket"]),
    ("NCCL INFO Using network Socket", []),
    ("NCCL INFO NET/OFI Selected provider is efa\nn1:7:8 [0] NCCL INFO Using network Socket", []),
])  # fmt: skip
def test_sockets_are_wrong_where_efa_was_meant_and_not_used(lines: str, wanted: list[str]):
    assert wanted == [pattern for pattern in patterns_of(f"n1:7:8 [0] {lines}\n") if pattern == "net-socket"]


@pytest.mark.parametrize("steps, recent", [(2, ""), (3, "1"), (4, "2")])
def test_the_last_three_steps_show_that_work_went_on(steps: int, recent: str):
    text = "".join(f"step {step} loss 2.{step}\n" for step in range(steps))
    assert [recent] == [event.fact("recent") for event in events_of(text.encode()) if event.pattern == "life"]


def test_the_last_state_of_a_bar_of_preparing_work_is_kept():
    bar = "Map (num_proc=8):  {}%|##   | 1/10 [{}<45:00, 30.1 examples/s]\r"
    text = bar.format(10, "05:00") + bar.format(20, "1:06:01") + "\n"
    (event,) = [event for event in events_of(text.encode()) if event.pattern == "progress"]
    assert ("20", "3961") == (event.fact("percent"), event.fact("elapsed"))
