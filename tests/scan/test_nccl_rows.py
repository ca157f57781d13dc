"""Rows of nccl-tests in a job's output, at the thresholds and one step beside them."""

from __future__ import annotations

import pytest

from hpslurm.core import toml
from hpslurm.core.finding import ROOT, Event
from hpslurm.scan import nccl_rows

MIB, GIB = 1 << 20, 1 << 30


def row(size: int, bandwidth: float | str, wrong: str = "0", count: int | None = None) -> str:
    half = f"100.0 1.0 {bandwidth} {wrong}"
    return f"  {size}  {size // 4 if count is None else count}  float  sum  -1  {half}  {half}"


def device(rank: int, host: str, gpu: str = "NVIDIA X1") -> str:
    return f"#  Rank {rank:2} Group  0 Pid  77 on  {host} device  0 [0x53] {gpu}"


def roots(*lines: str) -> list[Event]:
    numbered = list(enumerate(lines, 1))
    return [event for event in nccl_rows.events("job.out", numbered) if event.role == ROOT]


def patterns(*lines: str) -> list[str]:
    return [event.pattern for event in roots(*lines)]


@pytest.mark.parametrize("size, after, wanted", [
    (1 << 18, 0.99, ["tests-slow"]),
    (1 << 18, 1.0, []),  # a tenth
    ((1 << 18) - 4, 0.99, []),  # sizes so small say nothing
])  # fmt: skip
def test_bandwidth_must_not_fall_to_a_tenth_at_a_larger_size(size: int, after: float, wanted: list[str]):
    assert wanted == patterns(row(size, 10.0), row(4 * size, after))


@pytest.mark.parametrize("size, bandwidth, wanted", [
    (64 * MIB, 2.49, ["tests-slow"]),
    (64 * MIB - 4, 2.49, []),  # not saturated
    (64 * MIB, 2.5, []),  # half the floor below 1 GiB
    (GIB - 4, 2.5, []),
    (GIB, 4.99, ["tests-slow"]),
    (GIB, 5.0, []),
])  # fmt: skip
def test_a_gpu_that_no_row_knows_does_5_gb_a_second(size: int, bandwidth: float, wanted: list[str]):
    assert wanted == patterns(row(size, bandwidth))


@pytest.mark.parametrize("bandwidth, wanted", [(1.24, ["tests-slow"]), (1.25, [])])
def test_a_test_that_is_no_all_reduce_may_do_a_quarter(bandwidth: float, wanted: list[str]):
    assert wanted == patterns("# Collective test starting: alltoall_perf", row(GIB, bandwidth))
    assert ["tests-slow"] == patterns("# Collective test starting: all_reduce_perf", row(GIB, bandwidth))


@pytest.mark.parametrize("gpu, one, several", [
    ("NVIDIA GB300", 400, 200),
    ("NVIDIA GB200", 400, 150),
    ("NVIDIA B200", 400, 190),
    ("NVIDIA H200", 240, 100),
    ("NVIDIA H100 80GB HBM3", 240, 100),
    ("NVIDIA A100-SXM4-40GB", 120, 25),
    ("Tesla V100-SXM2-32GB", 60, 5),
])  # fmt: skip
def test_the_floor_of_a_gpu_on_one_node_and_on_several(gpu: str, one: float, several: float):
    alone = [device(0, "n1", gpu), device(1, "n1", gpu)]
    assert [["tests-slow"], []] == [patterns(*alone, row(GIB, one + step)) for step in (-0.1, 0.0)]
    two = [device(0, "n1", gpu), device(8, "n2", gpu)]
    assert [["tests-slow"], []] == [patterns(*two, row(GIB, several + step)) for step in (-0.1, 0.0)]


@pytest.mark.parametrize("gpus, floor", [(1, 12.5), (4, 50.0), (8, 100.0)])
def test_a_part_of_a_node_is_asked_for_a_part_of_its_network(gpus: int, floor: float):
    listed = [device(rank, f"n{rank // gpus}", "NVIDIA H200") for rank in range(2 * gpus)]
    assert [["tests-slow"], []] == [patterns(*listed, row(GIB, floor + step)) for step in (-0.1, 0.0)]


def test_a_run_without_any_bandwidth_is_not_slow():
    assert [] == patterns(row(GIB, 0.0))


def test_a_machine_that_others_measured_must_reach_half_of_that():
    rows = toml.whole("bandwidth")["row"]
    figures = [max(one["busbw"].values()) for one in rows if one["type"] == "p5.48xlarge" and one["nodes"] > 1]
    floor = min(figures) / 2
    head = ["NCCL INFO NET/OFI Running on p5.48xlarge platform", device(0, "n1"), device(8, "n2")]
    assert [["tests-slow"], []] == [patterns(*head, row(GIB, floor + step)) for step in (-0.1, 0.1)]
    assert [] == patterns(*head[:2], row(GIB, floor - 0.1)), "one node alone is measured by its GPU"


@pytest.mark.parametrize("bandwidth, wanted", [(39.9, ["tests-slow"]), (40.0, [])])
def test_a_run_beside_others_of_the_same_size_must_do_two_fifths(bandwidth: float, wanted: list[str]):
    assert wanted == patterns(row(64 * MIB, 100.0), row(64 * MIB, bandwidth))


@pytest.mark.parametrize("wrong, wanted", [
    ("0", []), ("N/A", []), ("1", ["tests-wrong"]),
    ("1e-02", []), ("1.1e-02", ["tests-wrong"]),  # the error column of old versions
])  # fmt: skip
def test_wrong_results_count_and_rounding_does_not(wrong: str, wanted: list[str]):
    assert wanted == patterns(row(64 * MIB, 10.0, wrong))[:1]


@pytest.mark.parametrize("size, count, wanted", [(40, 10, 1), (165, 10, 0), (640, 10, 1)])
def test_a_row_whose_size_and_count_do_not_belong_together_is_none(size: int, count: int, wanted: int):
    lines = list(nccl_rows.events("job.out", [(1, row(size, 10.0, count=count))]))
    assert wanted == len([event for event in lines if event.pattern == "life"])


def test_figures_are_read_with_and_without_a_root_and_with_one_half_only():
    half = "100.0 1.0 2.0 0"
    forms = [f"sum {half}", f"sum {half} {half}", f"sum -1 {half} {half}", f"none 0 {half}", f"none 3 {half} {half}"]
    assert [["tests-slow"]] * 5 == [patterns(f" {GIB} {GIB // 4} float {form}") for form in forms]
    assert [] == patterns(f" {GIB} {GIB // 4} float sum 100.0 1.0 2.0")
    assert ["tests-slow"] == patterns(f" {GIB} {GIB // 4} float sum -1 {half} 100.0 1.0 2.0"), "its end was cut off"


@pytest.mark.parametrize("gpu, bandwidth, wanted", [
    ("NVIDIA GB10", 11.99, ["tests-slow"]),  # its one GPU has the whole network of a machine
    ("NVIDIA GB10", 12.0, []),
    ("Tesla K80", 0.062, ["tests-slow"]),  # two of sixteen GPUs have an eighth of it
    ("Tesla K80", 0.0625, []),
])  # fmt: skip
def test_two_machines_by_the_gpus_that_each_has(gpu: str, bandwidth: float, wanted: list[str]):
    assert wanted == patterns(device(0, "n1", gpu), device(1, "n2", gpu), row(GIB, bandwidth))
