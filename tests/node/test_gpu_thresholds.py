"""What the GPU probes make of single values: at each threshold and one step beside it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hpslurm.core.policy import Policy
from hpslurm.core.probe import Skip, Unknown
from hpslurm.node import (
    ecc,
    fabric,
    gpu_clocks,
    gpu_count,
    gpu_driver,
    gpu_kernel,
    gpu_processes,
    gpu_recovery,
    gpus,
    nvlink,
    pcie,
    row_remap,
    xid_table,
)
from hpslurm.node.fabric import Joined
from hpslurm.node.gpu_clocks import Clock
from hpslurm.node.nvlink import Links
from hpslurm.node.pcie import Link
from hpslurm.sources.host import Host, Left

POLICY = Policy()
ONE, OTHER = "GPU 0 (u0, 0000:53:00)", "GPU 1 (u1, 0000:64:00)"


def ids(module: Any, facts: Any) -> list[str]:
    return [finding.rule.id for finding in module.judge(facts, POLICY)]


def details(module: Any, facts: Any) -> list[str]:
    return [finding.detail for finding in module.judge(facts, POLICY)]


def test_a_gpu_of_which_nothing_is_said_has_no_fault() -> None:
    assert [] == ids(row_remap, row_remap.Facts((row_remap.Memory(ONE),)))
    assert [] == ids(ecc, ecc.Facts((ecc.Errors(ONE),)))
    assert [] == ids(fabric, fabric.Facts((Joined(ONE, 3),), 0, None, 1e6))
    assert 0.0 == gpu_count.Facts(gpu_count.TABLE, 8, 8, 8).uptime


def test_rows_and_pages_of_which_nothing_is_said_are_none() -> None:
    assert "rows remapped: 0 correctable, 0 uncorrectable; pending False" in row_remap.Memory(ONE).in_words()
    assert "pages retired: 0 single-bit, 1 double-bit, pending False" == row_remap.Memory(ONE, double=1).in_words()
    assert "pages retired: 1 single-bit, 0 double-bit, pending False" == row_remap.Memory(ONE, single=1).in_words()


def test_of_one_gpu_all_is_told_and_of_several_that_there_are_more() -> None:
    for module, facts, one in (
        (ecc, ecc.Facts, lambda name: ecc.Errors(name, uncorrected=2)),
        (row_remap, row_remap.Facts, lambda name: row_remap.Memory(name, failed=True)),
    ):
        assert [False, True] == [
            details(module, facts(tuple(map(one, names))))[0].endswith(", ...") for names in ((ONE,), (ONE, OTHER))
        ]


def test_different_states_of_the_fabric_are_said_to_differ() -> None:
    for states, more in (((1, 1), False), ((1, 2), True)):
        joined = tuple(Joined(name, state) for name, state in zip((ONE, OTHER), states, strict=True))
        assert more == details(fabric, fabric.Facts(joined, 0, None, 1e6))[0].endswith(", ...")


def test_different_reasons_of_slow_clocks_are_said_to_differ() -> None:
    for reasons, more in (((0x8, 0x8), False), ((0x8, 0x20), True)):
        clocks = tuple(Clock(name, bits, 30, False) for name, bits in zip((ONE, OTHER), reasons, strict=True))
        assert more == details(gpu_clocks, gpu_clocks.Facts(clocks))[0].endswith(", ...")


@pytest.mark.parametrize(
    ("mask", "sick", "degraded"),
    [
        (0x1AA, [], []),  # healthy: all fields say no, the configuration is correct
        (0x1A9, [], ["degraded bandwidth"]),
        (0x1A6, [], ["route recovery"]),
        (0x19A, ["route unhealthy"], []),
        (0x16A, ["access time-out"], []),
        (0x0AA, [], []),
        (0x2AA, ["incorrect configuration (2)"], []),
        (0xFAA, ["incorrect configuration (15)"], []),
        (0x1AB, [], []),  # 3: not known
    ],
)
def test_the_fields_of_the_health_mask(mask: int, sick: list[str], degraded: list[str]) -> None:
    assert (sick, degraded) == fabric.complaints(Joined(ONE, 3, 0, mask, 1))


@pytest.mark.parametrize(
    ("summary", "wanted"),
    [(0, ([], [])), (1, ([], [])), (2, (["unhealthy"], [])), (3, ([], ["limited"])), (4, ([], []))],
)
def test_the_summary_decides_where_the_mask_says_nothing(summary: int, wanted: tuple[list[str], list[str]]) -> None:
    assert wanted == fabric.complaints(Joined(ONE, 3, 0, 0x1AA, summary))


@pytest.mark.parametrize(("state", "words"), [(1, "not started"), (2, "in progress"), (7, "7")])
def test_a_gpu_that_has_not_joined_is_told_with_its_state(state: int, words: str) -> None:
    assert [f"GPU 0: state {words}"] == details(fabric, fabric.Facts((Joined(ONE, state),), 0, None, 1e6))


@pytest.mark.parametrize(("seconds", "steady", "found"), [(59.9, False, []), (60.0, False, ["gpu-driver-stuck"]),
                                                          (0.0, True, ["gpu-driver-stuck"])])  # fmt: skip
def test_a_child_in_the_kernel_is_a_stuck_driver_after_a_minute(seconds: float, steady: bool, found: list[str]) -> None:
    facts = gpu_driver.Facts(
        "", None, 8, "570", "570", "570", None, None, "late", 8, {}, (), steady, Left(7, "D", seconds, "nv_wait"), ""
    )
    if found:
        assert found == ids(gpu_driver, facts)
    else:
        with pytest.raises(Unknown, match="late"):
            ids(gpu_driver, facts)


def link(width: int, most: int = 16) -> Link:
    return Link(ONE, 5, width, 5, most, 0, True)


@pytest.mark.parametrize(
    ("width", "found"), [(16, []), (15, ["pcie-width"]), (8, ["pcie-width"]), (7, ["pcie-width-half"])]
)
def test_a_narrow_link_is_grave_below_half_its_width(width: int, found: list[str]) -> None:
    assert found == ids(pcie, pcie.Facts((link(width), link(16))))


def test_one_narrow_gpu_is_narrow_and_all_alike_are_alike() -> None:
    assert ["pcie-width"] == ids(pcie, pcie.Facts((link(8),)))
    assert ["pcie-width-alike"] == ids(pcie, pcie.Facts((link(8), link(8))))
    assert ["pcie-width"] == ids(pcie, pcie.Facts((link(8), link(8), link(16))))


def machine(host_with: Callable[..., Host], *gpus: dict[str, Any], log: str = "") -> Host:
    return host_with({"/gpus.json": json.dumps({"gpus": gpus}), "/dev/kmsg": log, "/proc/stat": "btime 1700000000\n"})


def test_links_are_counted_as_up_down_and_neither(host_with: Callable[..., Host]) -> None:
    rows = [{"links": [1, 0, None, 2, 1], "link_errors": {"nvlink_replay": [0, 3]}}, {"links": [1]}]
    one, other = nvlink.collect(machine(host_with, *rows)).links
    assert Links("GPU 0", 2, (1,), None, {"nvlink_replay": 3}) == one
    assert Links("GPU 1", 1) == other


def test_the_links_of_a_gpu_alone_lead_nowhere(host_with: Callable[..., Host]) -> None:
    with pytest.raises(Skip, match="no peer"):
        nvlink.collect(machine(host_with, {"links": [0, 0]}))


def test_of_two_gpus_all_links_may_be_down(host_with: Callable[..., Host]) -> None:
    assert ["nvlink-down"] == ids(nvlink, nvlink.collect(machine(host_with, {"links": [0]}, {"links": [0]})))


def test_of_a_flood_of_lines_five_thousand_are_read(host_with: Callable[..., Host]) -> None:
    row = next(row for row in xid_table.kernel_rows() if row["mark"] == "RmInitAdapter failed")
    log = "".join(f"3,{number},{number},-;{row['example']}\n" for number in range(5001))
    assert [5000] == [hit.count for hit in gpu_kernel.collect(machine(host_with, {}, log=log)).hits]


def test_what_no_gpu_supports_is_skipped_unless_its_absence_says_something(host_with: Callable[..., Host]) -> None:
    host = machine(host_with, {}, {})
    with pytest.raises(Skip, match="link speed: not supported by these GPUs"):
        gpus.answers(host, "link_speed")
    assert 2 == len(gpus.answers(host, "link_speed", must=False).gpus)


@pytest.mark.parametrize(("uid", "left"), [(0, 0), (1001, 1)])
def test_a_process_is_a_service_by_its_owner_not_by_the_name_it_gives_itself(
    host_with: Callable[..., Host], tmp_path: Path, uid: int, left: int
) -> None:
    if os.geteuid():
        pytest.skip("only root may give a process another owner")
    files = {
        "/proc/77/stat": "77 (nvidia-smi) S " + " ".join("1" for _ in range(40)),
        "/proc/77/cgroup": "0::/user.slice\n",
        "/proc/77/cmdline": "slurmstepd: [99.0]",
        "/proc/uptime": "90000 1\n",
        "/gpus.json": json.dumps({"gpus": [{"processes": [77]}]}),
    }
    host = host_with(files, in_hook=True, env={})
    os.chown(tmp_path / "root/proc/77", uid, uid)
    assert left == len(gpu_processes.collect(host).left)
    assert ("99" in gpu_processes.jobs(host)) == (uid == 0)


@pytest.mark.parametrize(
    ("action", "words"),
    [(0, "none"), (5, "recover the IMEX domain (rack-scale systems)"), (6, "reset the bus"), (7, "reboot the system"),
     (8, "action 8, which this version does not know")],
)  # fmt: skip
def test_what_a_driver_wants_is_told_in_nvidias_words(action: int, words: str) -> None:
    assert words == gpu_recovery.word(action)
