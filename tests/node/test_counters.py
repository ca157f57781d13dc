"""What counters grew by: only what both looks have, and only upwards."""

from __future__ import annotations

import pytest

from hpslurm.core.policy import Policy
from hpslurm.node import gpu_counters
from hpslurm.node.counters import grown, in_words, only, unknown
from hpslurm.node.gpu_counters import Facts

G = "GPU 2 (GPU-x, 0000:75:00)"


def facts(seconds: float = 0.0, lanes: tuple[int, int] = (5, 16), **counts: int) -> Facts:
    return Facts({G: counts}, 1000.0 + seconds, {G: lanes})


def rules(before: Facts, after: Facts) -> list[str]:
    return [one.rule.id for one in gpu_counters.changed(before, after, Policy())]


def test_growth_is_what_both_looks_have_and_went_up() -> None:
    before = {"a": {"x": 1, "y": 5, "reset": 9}, "gone": {"x": 1}}
    after = {"a": {"x": 4, "y": 5, "reset": 2, "new": 7}, "fresh": {"x": 9}}
    assert {"a": {"x": 3}} == grown(before, after)


def test_what_is_not_known_is_named() -> None:
    before = {"same": {"x": 1}, "reset": {"x": 9}, "gone": {"x": 1}, "lost": {"x": 1}}
    after = {"same": {"x": 1}, "reset": {"x": 2}, "fresh": {"x": 9}, "lost": {}}
    assert ["fresh", "gone", "lost", "reset"] == unknown(before, after)
    assert ["lost"] == unknown({"lost": {"x": 0}}, {"lost": {}})


def test_only_the_wanted_counters_are_kept() -> None:
    assert {"a": {"x": 1}} == only({"a": {"x": 1, "y": 2}, "b": {"y": 3}}, ["x"])
    assert "x +1 y +2" == in_words({"x": 1, "y": 2})


def test_a_single_replay_of_a_link_is_a_finding_and_an_old_one_is_not() -> None:
    assert ["nvlink-errors"] == rules(facts(nvlink_replay=3), facts(60, nvlink_replay=4))
    assert [] == rules(facts(nvlink_replay=3), facts(60, nvlink_replay=3))


def test_checksum_errors_are_grave_from_a_hundred_a_second_on() -> None:
    assert ["nvlink-errors"] == rules(facts(nvlink_crc=0), facts(60, nvlink_crc=6000))
    assert ["nvlink-crc"] == rules(facts(nvlink_crc=0), facts(60, nvlink_crc=5999))


def test_pcie_replays_are_counted_per_lane_and_minute_by_generation() -> None:
    allowed = 1.92 * 16 * 10  # generation 5, 16 lanes, ten minutes
    assert [] == rules(facts(pcie_replay=0), facts(600, pcie_replay=int(allowed)))
    assert ["pcie-replays"] == rules(facts(pcie_replay=0), facts(600, pcie_replay=int(allowed) + 1))


@pytest.mark.parametrize(
    ("generation", "allowed"), [(1, 0.15), (2, 0.3), (3, 0.48), (4, 0.96), (5, 1.92), (6, 3.84), (7, 3.84), (0, 3.84)]
)
def test_each_generation_of_pcie_may_replay_so_often(generation: int, allowed: float) -> None:
    most = round(allowed * 8 * 100)  # eight lanes, a hundred minutes
    for count, found in ((most, []), (most + 1, ["pcie-replays"])):
        here = facts(6000, (generation, 8), pcie_replay=count)
        assert found == rules(facts(0, (generation, 8), pcie_replay=0), here)


def test_time_lost_to_heat_of_a_hundredth_and_a_bit_is_told() -> None:
    assert ["gpu-slowed"] == rules(facts(slow_power_brake=0), facts(100, slow_power_brake=1_000_000_001))


def test_time_lost_to_heat_counts_from_a_hundredth_of_the_job_on() -> None:
    assert [] == rules(facts(slow_hardware_thermal=0), facts(100, slow_hardware_thermal=1_000_000_000))
    slowed = list(
        gpu_counters.changed(facts(slow_power_brake=0), facts(100, slow_power_brake=50_000_000_000), Policy())
    )
    assert "GPU 2: slowed down power brake 50% of 100 s, expected at most 1%" == slowed[0].detail


def test_a_reset_in_between_is_said_and_not_judged() -> None:
    before, after = facts(nvlink_replay=9), facts(60, nvlink_replay=1)
    assert [] == rules(before, after)
    assert "counters were reset, or not read both times: GPU 2" == gpu_counters.not_known(before, after)
    assert "" == gpu_counters.not_known(after, after)
