"""GPU count: who says how many there should be, and what a device cgroup hides."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hpslurm.core.policy import Policy
from hpslurm.core.probe import Skip, Unknown
from hpslurm.node import gpu_count
from hpslurm.node.gpu_count import BUS, SLURM, TABLE, Facts, collect, judge, of_step
from hpslurm.sources.host import Host

HostWith = Callable[..., Host]
P5 = {
    "/sys/devices/virtual/dmi/id/sys_vendor": "Amazon EC2\n",
    "/sys/devices/virtual/dmi/id/product_name": "p5.48xlarge\n",
    "/proc/uptime": "86400 1\n",
    "/gpus.json": '{"gpus": 7}',
}


def bus(count: int) -> dict[str, str]:
    found = {}
    for number in range(count):
        found[f"/sys/bus/pci/devices/0000:{number:02x}:00.0/vendor"] = "0x10de\n"
        found[f"/sys/bus/pci/devices/0000:{number:02x}:00.0/class"] = "0x030200\n"
    return found


def found(facts: Facts) -> list[str]:
    return [one.detail for one in judge(facts, Policy())]


def test_a_hook_counts_against_the_instance_table_and_the_bus(host_with: HostWith) -> None:
    here = collect(host_with({**P5, **bus(8)}, in_hook=True, env={"SLURM_JOB_ID": "1", "SLURM_GPUS_ON_NODE": "2"}))
    assert (TABLE, 8, 7, 8) == (here.source, here.expected, here.count, here.on_bus)
    assert ["NVML shows 7 of 8 GPUs of a p5.48xlarge, PCI shows 8: the driver lost one"] == found(here)


def test_what_the_bus_itself_lacks_is_hardware(host_with: HostWith) -> None:
    here = collect(host_with({**P5, **bus(7)}, in_hook=True, env={}))
    assert ["the PCI bus shows 7 of 8 GPUs of a p5.48xlarge: hardware"] == found(here)


def test_a_type_that_no_table_has_is_counted_against_the_bus(host_with: HostWith) -> None:
    files = {**P5, **bus(8), "/sys/devices/virtual/dmi/id/product_name": "p9.48xlarge\n"}
    here = collect(host_with(files, in_hook=True, env={}))
    assert (BUS, 8) == (here.source, here.expected)
    with pytest.raises(Unknown, match=r"p9\.48xlarge"):
        found(here)


def test_a_step_counts_against_what_slurm_gave_it_never_against_the_table(host_with: HostWith) -> None:
    host = host_with({**P5, **bus(8)}, env={"SLURM_JOB_ID": "1", "SLURM_GPUS_ON_NODE": "7"})
    assert (SLURM, 7, None) == (collect(host).source, collect(host).expected, collect(host).on_bus)
    assert [] == found(collect(host))


def test_a_shell_that_slurm_adopted_is_no_place_for_the_table(host_with: HostWith) -> None:
    files = {**P5, **bus(8), "/proc/self/cgroup": "0::/system.slice/slurmstepd.scope/job_7/step_extern\n"}
    with pytest.raises(Skip, match="SLURM_GPUS_ON_NODE is not set"):
        collect(host_with(files, env={}))


def test_outside_of_any_job_the_table_counts(host_with: HostWith) -> None:
    files = {**P5, **bus(8), "/proc/self/cgroup": "0::/user.slice/user-1000.slice\n"}
    assert (TABLE, 8) == (collect(host_with(files, env={})).source, collect(host_with(files, env={})).expected)


@pytest.mark.parametrize(
    ("env", "wanted"),
    [
        ({}, None),
        ({"SLURM_GPUS_ON_NODE": "8"}, 8),
        ({"SLURM_GPUS_ON_NODE": "h100:8"}, 8),
        ({"SLURM_GPUS_ON_NODE": "8", "CUDA_VISIBLE_DEVICES": "0"}, 1),
        ({"SLURM_GPUS_ON_NODE": "8", "SLURM_STEP_GPUS": "0,1"}, 2),
        ({"SLURM_GPUS_ON_NODE": "many"}, None),
    ],
)
def test_a_task_may_have_fewer_gpus_than_its_node(env: dict[str, str], wanted: int | None) -> None:
    assert wanted == of_step(Host(env=env))


def test_right_after_boot_it_is_unknown_not_missing() -> None:
    grace = Policy().gpu_boot_grace
    young = Facts(TABLE, 8, 0, 8, "p5.48xlarge", grace - 1)
    with pytest.raises(Unknown, match="look again"):
        found(young)
    assert 1 == len(found(Facts(TABLE, 8, 0, 8, "p5.48xlarge", grace)))


def test_a_bus_that_lacks_one_is_told_even_when_nvml_does_not_answer() -> None:
    results = []
    with pytest.raises(Unknown, match="hangs"):
        results.extend(judge(Facts(TABLE, 8, None, 7, "p5.48xlarge", 1e6, "it hangs"), Policy()))
    told = next(iter(judge(Facts(TABLE, 8, None, 7, "p5.48xlarge", 1e6, "it hangs"), Policy())))
    assert gpu_count.MISSING == told.rule
