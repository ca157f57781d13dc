"""At the threshold and one step beside it."""

from __future__ import annotations

from typing import Any

import pytest

from hpslurm.core.policy import Policy
from hpslurm.core.probe import Unknown
from hpslurm.node import clock, disk, efa, governor, hugepages, mtu, stack

POLICY = Policy()
MIB = 1 << 20


def ids(module: Any, facts: Any) -> list[str]:
    return [finding.rule.id for finding in module.judge(facts, POLICY)]


@pytest.mark.parametrize(
    ("soft", "found"),
    [
        (POLICY.stack_min, []),
        (POLICY.stack_min - 1, ["stack-small"]),
        (float("inf"), ["stack-unlimited"]),
        (64 * MIB, []),
    ],
)
def test_stack(soft: float, found: list[str]) -> None:
    assert found == ids(stack, stack.Facts("slurmd", soft))


def place(path: str = "/", used: int = 10, inodes_used: int = 10, size: int = 1000 << 30) -> disk.Place:
    return disk.Place(path, size, size * (100 - used) // 100, 100, 100 - inodes_used)


@pytest.mark.parametrize(
    ("one", "found"),
    [
        (place(used=90), []),
        (place(used=91), ["disk-low"]),
        (place("/opt/dlami/nvme", used=91), ["disk-low"]),
        (place(inodes_used=90), []),
        (place(inodes_used=91), ["disk-inodes"]),
        (disk.Place("/", 1000 << 30, disk.ALMOST_NOTHING, 0, 0), ["disk-low"]),
        (disk.Place("/", 1000 << 30, disk.ALMOST_NOTHING - 1, 0, 0), ["disk-full"]),
        (disk.Place("/opt/sagemaker", 1000 << 30, 0, 0, 0), ["disk-low"]),
        (disk.Place("/", 0, 2 << 30, 0, 0), []),
    ],
)
def test_disk(one: disk.Place, found: list[str]) -> None:
    assert found == ids(disk, disk.Facts((one,), "p5.48xlarge", True))


@pytest.mark.parametrize(
    ("kind", "mounted", "found"),
    [
        ("p5.48xlarge", False, ["nvme-not-mounted"]),
        ("p5.48xlarge", True, []),
        ("g5.xlarge", False, []),
        ("", False, []),
    ],
)
def test_local_nvme_is_wanted_where_the_type_has_it(kind: str, mounted: bool, found: list[str]) -> None:
    assert found == ids(disk, disk.Facts((place(),), kind, mounted))


@pytest.mark.parametrize(
    ("facts", "found"),
    [
        (clock.Facts("chronyc tracking", True, POLICY.clock_off_max, 9e9), []),
        (clock.Facts("chronyc tracking", True, POLICY.clock_off_max + 0.001, 9e9), ["clock-off"]),
        (clock.Facts("chronyc tracking", False, None, clock.SETTLE), []),
        (clock.Facts("chronyc tracking", False, None, clock.SETTLE + 1), ["clock-unsynchronised"]),
        (clock.Facts(clock.TIMESYNC, True, None, 9e9), []),
    ],
)
def test_clock(facts: clock.Facts, found: list[str]) -> None:
    assert found == ids(clock, facts)


def test_mtu_counts_each_interface() -> None:
    assert [] == ids(mtu, mtu.Facts({"ens32": 9000}))
    (finding,) = mtu.judge(mtu.Facts({"ens32": 9001, "ens33": 8999, "ens34": 1500}), POLICY)
    assert "ens34 carries 1500 bytes, 9000 wanted" == finding.detail
    assert 2 == len(finding.evidence)


def test_one_core_on_another_governor_is_enough() -> None:
    assert [] == ids(governor, governor.Facts({"performance": 96}))
    assert ["cpu-governor"] == ids(governor, governor.Facts({"performance": 95, "powersave": 1}))


@pytest.mark.parametrize(
    ("total", "free", "found"), [(0, 0, ["hugepages-none"]), (9, 1, []), (9, 0, ["hugepages-used-up"])]
)
def test_huge_pages(total: int, free: int, found: list[str]) -> None:
    assert found == ids(hugepages, hugepages.Facts(total, free, 2 * MIB))


def devices(count: int, uptime: float) -> efa.Facts:
    names = tuple(f"rdmap{number}" for number in range(count))
    return efa.Facts("p5.48xlarge", 32, names, names, uptime=uptime)


def test_a_missing_device_is_not_judged_while_it_may_still_come() -> None:
    with pytest.raises(Unknown, match="31 of 32 EFA devices 59 s after boot"):
        ids(efa, devices(31, POLICY.efa_boot_grace - 1))
    assert ["efa-missing"] == ids(efa, devices(31, POLICY.efa_boot_grace))
    assert [] == ids(efa, devices(32, 1))
