"""At the threshold and one step beside it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hpslurm.core.policy import Policy
from hpslurm.core.probe import Skip, Unknown
from hpslurm.core.values import replace
from hpslurm.node import acs, clock, disk, efa, governor, gpudirect, hugepages, memlock, mtu, shm_stale, stack
from hpslurm.sources.host import Host

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
    assert "ens34 carries 1500 bytes, expected 9000" == finding.detail
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


def test_a_type_without_efa_is_told_from_one_that_nobody_knows(host_with: Callable[..., Host]) -> None:
    dmi = "/sys/devices/virtual/dmi/id"
    for product, words in (("g5.xlarge", "g5.xlarge has no EFA device"), ("x9.huge", "no EFA device; no figures for")):
        files = {f"{dmi}/sys_vendor": "Amazon EC2\n", f"{dmi}/product_name": f"{product}\n"}
        with pytest.raises(Skip, match=words):
            efa.collect(host_with(files))


def test_a_missing_device_is_not_judged_while_it_may_still_come() -> None:
    with pytest.raises(Unknown, match="31 of 32 EFA devices 59 s after boot"):
        ids(efa, devices(31, POLICY.efa_boot_grace - 1))
    assert ["efa-missing"] == ids(efa, devices(31, POLICY.efa_boot_grace))
    assert [] == ids(efa, devices(32, 1))


@pytest.mark.parametrize(("uptime", "found"), [(300, []), (301, ["clock-unsynchronised"])])
def test_a_clock_has_five_minutes_to_settle(uptime: float, found: list[str]) -> None:
    assert found == ids(clock, clock.Facts("chronyc tracking", False, None, uptime))


@pytest.mark.parametrize(("free", "found"), [(1 << 30, ["disk-low"]), ((1 << 30) - 1, ["disk-full"])])
def test_a_root_volume_is_full_below_a_gibibyte(free: int, found: list[str]) -> None:
    assert found == ids(disk, disk.Facts((disk.Place("/", 1000 << 30, free, 0, 0),), "", False))


@pytest.mark.parametrize(
    ("soft", "found"), [((8 << 20) + 1, ["memlock-low"]), (8 << 20, ["memlock-default"]), (65536, ["memlock-default"])]
)
def test_locked_memory_at_the_kernels_default(soft: float, found: list[str]) -> None:
    assert found == ids(memlock, memlock.Facts("slurmd", soft))


@pytest.mark.parametrize(("nodes", "found"), [(255, []), (256, ["memlock-unlimited-large"]), (None, [])])
def test_no_limit_at_all_is_told_on_very_many_nodes(nodes: int | None, found: list[str]) -> None:
    assert found == ids(memlock, memlock.Facts("this process", float("inf"), nodes))


@pytest.mark.parametrize(
    ("kernel", "found"), [((5, 12), []), ((6, 0), []), ((5, 11), ["gpudirect-off"]), ((4, 18), ["gpudirect-off"])]
)
def test_dma_buf_needs_linux_5_12(kernel: tuple[int, int], found: list[str]) -> None:
    assert found == ids(gpudirect, gpudirect.Facts("p5.48xlarge", (), (), True, kernel))


REFUSED = ["gpudirect-off"]


@pytest.mark.parametrize(
    ("plugin", "device", "found"),
    [
        ("1.13.1", "0xefa2", []),
        ("1.13.2", "0xefa2", REFUSED),
        ("1.14.1", "0xefa3", REFUSED),
        ("1.14.2", "0xefa3", []),
        ("1.14.2", "0xefa2", REFUSED),
        ("1.19.1", "0xefa0", REFUSED),
        ("1.19.2", "0xefa0", []),
    ],
)
def test_dma_buf_counts_where_the_plugin_uses_it(plugin: str, device: str, found: list[str]) -> None:
    facts = gpudirect.Facts("p5.48xlarge", (), (), True, (6, 8), (device,), plugin, "2.1.0amzn3.0")
    assert found == ids(gpudirect, facts)
    assert [] == ids(gpudirect, replace(facts, modules=("efa_nv_peermem",)))
    assert [] == ids(gpudirect, replace(facts, libfabric="2.5.0amzn1.0"))


@pytest.mark.parametrize(("plugin", "says"), [("", "no plugin was found"), ("1.17.2", "libfabric of unknown version")])
def test_dma_buf_alone_with_a_plugin_that_nobody_knows_is_unknown(plugin: str, says: str) -> None:
    with pytest.raises(Unknown, match=says):
        ids(gpudirect, gpudirect.Facts("p5.48xlarge", (), (), True, (6, 8), ("0xefa2",), plugin))


def test_segments_of_others_are_told_only_where_some_are() -> None:
    assert [] == ids(shm_stale, shm_stale.Facts((), 0, 0, False))
    with pytest.raises(Unknown, match="1 NCCL segments belong to other users"):
        ids(shm_stale, shm_stale.Facts((), 0, 0, False, 1))


def test_five_stale_segments_are_named_and_of_more_the_first_five() -> None:
    for count, more in ((5, False), (6, True)):
        names = tuple(f"nccl-{number}" for number in range(count))
        (finding,) = shm_stale.judge(shm_stale.Facts(names, 0, 0, False), POLICY)
        assert more == finding.evidence[0].text.endswith("nccl-4 ...")


def chain(*capabilities: int, step: int = 8) -> bytes:
    """The configuration space of a bridge with extended capabilities of these numbers; ACS redirects."""
    config = bytearray(4096)
    for number, capability in enumerate(capabilities):
        begin = 0x100 + step * number
        following = begin + step if number + 1 < len(capabilities) else 0
        config[begin : begin + 8] = (capability | 1 << 16 | following << 20).to_bytes(4, "little") + b"\0\0\x1c\0"
    return bytes(config)


@pytest.mark.parametrize("before", [0, 1, 48])
def test_acs_is_found_wherever_it_stands_in_the_chain(before: int) -> None:
    assert 0x1C == acs._control(chain(*[0x0001] * before, 0x000D))


def test_a_chain_without_acs_ends() -> None:
    assert None is acs._control(chain(0x0001, 0x000E))
    assert None is acs._control(bytes(4096))


def test_acs_in_the_last_bytes_is_found_and_a_chain_without_end_is_unknown() -> None:
    assert 0x1C == acs._control(chain(0x0001, 0x000D, step=4088 - 0x100))
    with pytest.raises(Unknown, match="runs in a circle"):
        acs._control(chain(*[0x0001] * 49, 0x000D))


@pytest.mark.parametrize("bits", [0x04, 0x08, 0x0C])
def test_either_kind_of_redirect_is_one(bits: int) -> None:
    assert bits & acs.REDIRECT
    assert not ~0x0C & acs.REDIRECT
