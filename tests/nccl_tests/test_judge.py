"""Verdicts over whole outputs; the figures of p5.48xlarge are those of the table."""

import json
import os
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpslurm.core.finding import Rule
from hpslurm.core.policy import Mute, Policy
from hpslurm.core.values import replace
from hpslurm.nccl_tests import baseline, expected, judge, rules
from hpslurm.nccl_tests.verdict import Facts, Own
from hpslurm.scan import nccl_tests as reading
from tests.fake import nccl_tests as fake

GIB = 1 << 30
HEALTHY = {GIB: 437.0, 2 * GIB: 443.7, 4 * GIB: 465.9, 8 * GIB: 479.3}
P5 = "p5.48xlarge"
POLICY = Policy()


def facts(text, instance=P5, log=(), **meant):
    output = reading.read_text(text)
    reading.read_nccl_lines(log, output.log)
    return Facts(output, instance, **meant)


def verdict(text, instance=P5, log=(), **meant):
    return judge.verdict(facts(text, instance, log, **meant), POLICY)


def ids(text, instance=P5, log=(), **meant):
    return [finding.rule.id for finding in verdict(text, instance, log, **meant).findings]


def at_8_gib(rate, **form):
    return fake.table({**HEALTHY, 8 * GIB: rate}, **form)


# output that is damaged, edited, or of a run that was ended


def lines_with(change):
    """A healthy table whose lines ``change`` has seen."""
    return "".join(change(fake.table(HEALTHY).splitlines(True)))


DAMAGED = {
    "nothing": ("", "busbw-no-output"),
    "zero bytes": ("\0" * 100, "busbw-no-output"),
    "rows without a header": (
        lines_with(lambda lines: [one for one in lines if one.strip()[:1].isdigit()]),
        "busbw-no-output",
    ),
    "cut in a row": (fake.table(HEALTHY)[: fake.table(HEALTHY).index("465.9") + 2], "busbw-incomplete"),
    "cut in the average": (fake.table(HEALTHY)[: fake.table(HEALTHY).index("Avg bus") + 24], "busbw-incomplete"),
    "cut before its end": (
        lines_with(lambda lines: [one for one in lines if "concluded" not in one]),
        "busbw-incomplete",
    ),
    "no average and no end": (
        lines_with(lambda lines: [one for one in lines if "Avg" not in one and "concluded" not in one]),
        "busbw-incomplete",
    ),
    "a row is missing": (lines_with(lambda lines: [one for one in lines if "443.7" not in one]), "busbw-incomplete"),
    "a row too many": (fake.table(HEALTHY).replace("maxBytes 8589934592", "maxBytes 4294967296"), "busbw-bad-numbers"),
    "negative": (fake.table(HEALTHY).replace("479.30", "-479.3"), "busbw-bad-numbers"),
    "not a number": (fake.table(HEALTHY).replace("479.30", "   nan"), "busbw-bad-numbers"),
    "infinite": (fake.table(HEALTHY).replace("479.30", "   inf"), "busbw-bad-numbers"),
    "average not a number": (
        re.sub(r"(Avg bus bandwidth +:) \S+", r"\1 nan", fake.table(HEALTHY)),
        "busbw-bad-numbers",
    ),
    "average negative": (
        fake.table(HEALTHY).replace("Avg bus bandwidth    : ", "Avg bus bandwidth    : -"),
        "busbw-bad-numbers",
    ),
    "busbw without algbw": (fake.table(HEALTHY).replace("255.63", "  0.00"), "busbw-bad-numbers"),
    "a number of 5000 digits": (fake.table(HEALTHY).replace("8589934592", "9" * 5000), "busbw-incomplete"),
    "more than memory allowed": (
        fake.table(HEALTHY).replace("# Using", "# Reducing maxBytes to 1073741824 due to memory limitation\n# Using"),
        "busbw-bad-numbers",
    ),
}


@pytest.mark.parametrize("what", DAMAGED)
def test_damaged_output_is_never_a_pass_and_says_what_is_wrong(what):
    text, rule = DAMAGED[what]
    found = verdict(text, nodes=2, gpus=8)
    assert rule in [one.rule.id for one in found.findings]
    assert (1, "not judged") == (found.exit_code, found.words)


@pytest.mark.parametrize(
    ("end", "rule"),
    [
        ("slurmstepd: error: *** STEP 12.0 ON n1 CANCELLED AT 2026-07-09T16:03:21 ***", "busbw-incomplete"),
        ("slurmstepd: error: *** JOB 12 ON n1 CANCELLED AT 2026-07-09T16:03:21 DUE TO TIME LIMIT ***", "busbw-hang"),
        ("slurmstepd: error: Detected 1 oom-kill event(s) in StepId=12.0.", "busbw-incomplete"),
        ("srun: error: n1: tasks 0-7: Terminated", "busbw-incomplete"),
    ],
)
def test_output_of_a_killed_job_names_how_far_it_came_and_who_ended_it(end, rule):
    text = fake.table(HEALTHY)
    found = verdict(text[: text.index("  4294967296 ")] + f"{end}\n")
    assert [rule] == [one.rule.id for one in found.findings]
    assert "2 GiB" in found.findings[0].detail or "2 of 4 sizes" in found.findings[0].detail


def test_rounding_at_8_bytes_is_no_damage():
    text = fake.table({8: 0.01}, hosts=["ip-10-1-0-1"]).replace("maxBytes 8 ", "maxBytes 8 ")
    assert "0.01  " in text
    assert "busbw-bad-numbers" not in ids(text)


# floors


def test_a_healthy_pair_passes_without_a_finding():
    found = verdict(fake.table(HEALTHY))
    assert ((), 0, "good") == (found.findings, found.exit_code, found.words)


def test_one_slow_size_fails_though_the_average_is_fine():
    found = verdict(at_8_gib(358.4))
    assert (["busbw-failed"], 3) == ([finding.rule.id for finding in found.findings], found.exit_code)
    assert "8 GiB 358.4 GB/s, expected at least 358.5" in found.findings[0].detail
    assert ["good", "good", "good", "failed"] == [one.outcome for one in found.sizes]


def test_between_warn_and_fail_is_p1_and_exit_0():
    found = verdict(at_8_gib(358.6))
    assert (["busbw-low"], 0, "low") == ([one.rule.id for one in found.findings], found.exit_code, found.words)


def test_the_warn_line_itself_is_good():
    assert [] == ids(at_8_gib(430.2))
    assert ["busbw-low"] == ids(at_8_gib(430.1))


def test_a_size_without_a_source_is_shown_and_not_judged():
    found = verdict(fake.table({1 << 20: 3.0, **{size: HEALTHY[size] for size in [GIB]}}))
    assert ["no floor", "good"] == [one.outcome for one in found.sizes]


def test_no_floor_is_made_up_for_another_number_of_nodes():
    hosts = ["ip-10-1-0-1", "ip-10-1-0-2", "ip-10-1-0-3"]
    found = verdict(fake.table(HEALTHY, hosts=hosts))
    assert ["busbw-no-floor"] == [one.rule.id for one in found.findings]
    assert "no source for a floor" in found.findings[0].detail
    assert {None} == {one.expected for one in found.sizes}


@pytest.mark.parametrize(
    ("form", "instance"),
    [({"gpus": 4}, P5), ({"test": "all_gather_perf"}, P5), ({}, "p6-b300.48xlarge"), ({}, ""), ({}, "p5en.48xlarge")],
)
def test_no_floor_is_made_up_for_fewer_gpus_another_test_or_another_type(form, instance):
    rates = {GIB: 300.0}
    assert ["busbw-no-floor"] == ids(fake.table(rates, **form), instance)


def test_the_sites_own_median_goes_before_the_table():
    own = {8 * GIB: Own(400.0, 398.0, 402.0, 1.0, 7)}
    found = judge.verdict(replace(facts(at_8_gib(370.0)), own=own), POLICY)
    assert ("good", 400.0) == (found.sizes[-1].outcome, found.sizes[-1].expected)
    assert "own median of 7 runs" in found.sizes[-1].source


def test_a_site_whose_own_runs_scatter_widely_is_not_warned_of_every_run():
    own = {8 * GIB: Own(400.0, 330.0, 420.0, 15.0, 9)}
    found = judge.verdict(replace(facts(at_8_gib(345.0)), own=own), POLICY)
    assert "good" == found.sizes[-1].outcome


def test_the_policy_moves_the_lines():
    strict = Policy(bandwidth_warn_below=0.99, bandwidth_fail_below=0.97)
    found = judge.verdict(facts(at_8_gib(460.0)), strict)
    assert ["busbw-failed"] == [one.rule.id for one in found.findings]


def test_a_muted_finding_is_marked_and_does_not_count():
    policy = Policy(mutes=(Mute("busbw-*", "known slow spine"),))
    found = judge.verdict(facts(at_8_gib(100.0)), policy)
    assert ("known slow spine", 0) == (found.findings[0].muted, found.exit_code)


# the ceiling


@pytest.mark.parametrize(
    ("instance", "nodes", "gpus", "gbs"),
    [
        (P5, 1, 8, 700.0),  # NVLS: 450 * 2 * 7 / 9
        (P5, 2, 8, 700.0),  # the network would give 750, NVLink does not
        (P5, 2, 2, 450.0),  # two GPUs of each node: a ring over NVLink
        (P5, 4, 8, 516.7),
        (P5, 16, 8, 423.3),
        ("p4d.24xlarge", 1, 8, 300.0),
        ("p4d.24xlarge", 2, 8, 93.8),
        ("p5.4xlarge", 4, 1, 12.5),
        ("p6-b300.48xlarge", 4, 8, 1033.3),
        ("p6e-gb200.36xlarge", 18, 4, 1750.7),  # one NVLink domain of 72
        ("p6e-gb200.36xlarge", 32, 4, 204.8),
    ],
)
def test_the_ceiling_follows_from_links_and_nics(instance, nodes, gpus, gbs):
    assert gbs == pytest.approx(expected.ceiling(instance, nodes, gpus), rel=0.001)


@pytest.mark.parametrize(("instance", "nodes", "gpus"), [("g5.xlarge", 2, 1), ("g5.12xlarge", 1, 4), ("x1.big", 2, 8)])
def test_where_no_ceiling_can_be_computed_there_is_none(instance, nodes, gpus):
    assert None is expected.ceiling(instance, nodes, gpus)


def test_more_than_the_hardware_can_do_is_a_measuring_error():
    found = verdict(at_8_gib(720.0))
    assert (["busbw-above-ceiling"], "not credible", 1) == (
        [one.rule.id for one in found.findings],
        found.words,
        found.exit_code,
    )
    assert "2 nodes cannot exceed 700.0" in found.findings[0].detail
    found = verdict(at_8_gib(700.0))
    assert ((), "good", 0) == (found.findings, found.words, found.exit_code)
    assert "not credible" == verdict(fake.table(dict.fromkeys(HEALTHY, 900.0))).words


# data


def test_wrong_data_are_p0_whatever_the_bandwidth():
    found = verdict(fake.table(HEALTHY, wrong=3))
    assert (["busbw-wrong-data"], "P0", 3) == (
        [one.rule.id for one in found.findings],
        found.findings[0].rule.priority,
        found.exit_code,
    )
    assert "24 wrong values, first at 1 GiB (6 there)" in found.findings[0].detail


def test_the_number_of_wrong_values_is_never_below_that_of_one_row():
    text = fake.table(HEALTHY, wrong=3)
    (found,) = verdict(text.replace("values : 24 FAILED", "values : 0 OK")).findings
    assert "24 wrong values, first at 1 GiB (6 there)" == found.detail
    (found,) = verdict(text.replace("values : 24 FAILED", "values : 30 FAILED")).findings
    assert "30 wrong values, first at 1 GiB (6 there)" == found.detail


def test_wrong_data_that_only_the_last_lines_tell_are_found():
    found = verdict((Path(__file__).parents[1] / "scan" / "nccl_tests" / "wrong-two-lines.txt").read_text())
    assert "busbw-wrong-data" in [one.rule.id for one in found.findings]
    assert 3 == found.exit_code


def test_unchecked_data_are_said():
    assert ["busbw-unchecked"] == ids(fake.table(HEALTHY, check=0))


# ranks


def test_one_rank_is_said_and_is_no_failure():
    found = verdict(fake.table({GIB: 0.0}, hosts=["ip-10-1-0-1"], gpus=1))
    assert (["busbw-one-rank"], 0) == ([one.rule.id for one in found.findings], found.exit_code)
    assert "0 by formula" in found.findings[0].rule.title


def test_a_run_whose_ratio_is_that_of_one_node_never_left_it():
    alone = fake.table(HEALTHY, hosts=["ip-10-1-0-1"])
    rows = [line for line in alone.splitlines() if line.startswith("  ")]
    both = fake.table(HEALTHY).splitlines()
    mixed = [rows.pop(0) if line.startswith("  ") else line for line in both]
    found = verdict("\n".join(mixed))
    assert (["busbw-never-left-node"], 1) == ([one.rule.id for one in found.findings], found.exit_code)
    assert "busbw / algbw says 8" in found.findings[0].detail
    assert {"no floor"} == {one.outcome for one in found.sizes}


def test_two_nodes_meant_and_one_in_the_list_never_left_it():
    assert ["busbw-never-left-node"] == ids(fake.table(HEALTHY, hosts=["ip-10-1-0-1"]), nodes=2, gpus=8)


def test_another_number_of_ranks_than_meant_is_not_judged():
    found = verdict(fake.table(HEALTHY), nodes=4, gpus=8)
    assert (["busbw-rank-count"], 1) == ([one.rule.id for one in found.findings], found.exit_code)
    assert "32 ranks on 4 nodes were meant; the device list has 16" in found.findings[0].detail


@pytest.mark.parametrize("nodes", [1, 2, 16, 64, 128])
def test_the_ratio_fits_the_ranks_it_comes_from(nodes):
    hosts = [f"ip-10-1-0-{i}" for i in range(nodes)]
    assert not {"busbw-rank-count", "busbw-never-left-node"} & set(ids(fake.table({8 * GIB: 340.0}, hosts=hosts)))


def test_programs_that_ran_for_themselves_are_named_as_built_without_mpi():
    one = fake.table(HEALTHY, hosts=["ip-10-1-0-1"])
    labelled = "".join(f"{rank}: {line}\n" for rank in (0, 1) for line in one.splitlines())
    found = verdict(labelled, nodes=2, gpus=8)
    assert ("busbw-no-mpi", 1) == (found.findings[0].rule.id, found.exit_code)
    lines = one.splitlines()
    twice = "\n".join(line for line in lines for _ in range(2))
    assert "busbw-no-mpi" in ids(twice)


# bad input


def cut(after):
    lines = fake.table(HEALTHY).splitlines()
    last = max(number for number, line in enumerate(lines) if line.startswith(after))
    return "\n".join(lines[: last + 1])


@pytest.mark.parametrize(
    "after", ["# Using", "#  Rank", "#        (B)", f"  {GIB} ", f"  {8 * GIB} ", "# Out of bounds"]
)
def test_output_that_stops_early_is_never_a_pass(after):
    found = verdict(cut(after))
    assert ("busbw-incomplete", 1) == (found.findings[0].rule.id, found.exit_code)


@pytest.mark.parametrize("version", ["2.11", "2.13.4", "2.16.3"])
def test_a_table_without_the_name_of_its_test_is_known_as_all_reduce_by_its_numbers(version):
    found = verdict(fake.table({**HEALTHY, 8 * GIB: 100.0}, version=version))
    assert (["busbw-failed"], 3) == ([one.rule.id for one in found.findings], found.exit_code)
    assert ["busbw-no-floor"] == ids(fake.table({GIB: 100.0}, version=version, test="all_gather_perf"))


@pytest.mark.parametrize("gone", ["# nThread", "#   "])
def test_a_table_that_lacks_a_part_of_its_head_is_judged_and_says_so(gone):
    text = "\n".join(line for line in fake.table(HEALTHY).splitlines() if not line.startswith(gone))
    found = verdict(text)
    assert (["busbw-head-missing"], "good", 0) == (
        [one.rule.id for one in found.findings],
        found.words,
        found.exit_code,
    )
    slow = verdict(text.replace("479.30", "100.00").replace("255.63", " 53.33"))
    assert ("bad", 3) == (slow.words, slow.exit_code)
    assert "busbw-head-missing" in [one.rule.id for one in found.against]  # no measure for later runs


def test_the_average_may_be_missing_where_the_run_says_that_it_ended():
    text = "\n".join(line for line in fake.table(HEALTHY).splitlines() if "Avg" not in line)
    assert "good" == verdict(text).words


@pytest.mark.parametrize("gone", [("# Avg", "# Collective test concluded"), "# Out of", f"  {GIB} "])
def test_a_table_that_lacks_its_rows_or_its_foot_is_never_a_pass(gone):
    text = "\n".join(line for line in fake.table(HEALTHY).splitlines() if not line.startswith(gone))
    assert "busbw-incomplete" in ids(text)
    assert 1 == verdict(text).exit_code


def test_an_early_end_names_the_phase_and_the_launchers_reason():
    found = verdict(cut(f"  {2 * GIB} ") + "\nsrun: error: ip-10-1-0-2: task 9: Segmentation fault\n")
    assert "while running a size, with 2 of 4 sizes done: srun: error" in found.findings[0].detail


@pytest.mark.parametrize(
    ("after", "phase"),
    [
        ("#  Rank", "NCCL's start"),
        ("#        (B)", "the first transfer"),
        (f"  {4 * GIB} ", "the last size done was 4 GiB"),
    ],
)
def test_a_hang_names_the_phase_it_hung_in(after, phase):
    found = verdict(cut(after), timed_out=120.0)
    assert ("busbw-hang", 1) == (found.findings[0].rule.id, found.exit_code)
    assert phase in found.findings[0].detail


def test_the_tests_own_timeout_and_slurms_limit_are_hangs():
    assert "busbw-hang" in ids(cut(f"  {GIB} ") + "\nip-10-1-0-1: Test timeout (60s) common.cu:523\n")
    slurm = "slurmstepd: error: *** STEP 12.0 ON n1 CANCELLED AT 2026-01-01T00:00:00 DUE TO TIME LIMIT ***"
    assert "busbw-hang" in ids(cut(f"  {GIB} ") + f"\n{slurm}\n")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("cuda-not-initialised", "system not yet initialized'; it stopped before a device was listed"),
        ("init-failed", "unhandled system error'; it stopped in NCCL's start"),
    ],
)
def test_a_published_failure_is_no_pass_and_names_its_phase(name, words):
    found = verdict((Path(__file__).parents[1] / "scan" / "nccl_tests" / f"{name}.txt").read_text(), instance="")
    assert (["busbw-run-failed"], 1) == ([one.rule.id for one in found.findings], found.exit_code)
    assert words in found.findings[0].detail


def test_usage_text_with_exit_0_is_no_pass():
    found = verdict("invalid option '?'\nUSAGE: all_reduce_perf \n\t[-t,--nthreads <num threads>] \n", status=0)
    assert (["busbw-usage"], 1) == ([one.rule.id for one in found.findings], found.exit_code)


@pytest.mark.parametrize("text", ["", "\n\n", "hello\nworld\n", "\0\xff\x1b[31m" * 100])
def test_a_binary_that_prints_nothing_of_use_is_no_pass(text):
    found = verdict(text, status=0)
    assert (["busbw-no-output"], 1) == ([one.rule.id for one in found.findings], found.exit_code)


def test_each_of_several_tables_is_judged():
    found = verdict(fake.table(HEALTHY) + fake.table(HEALTHY))
    assert (["busbw-several-tables"], "good") == ([one.rule.id for one in found.findings], found.words)


WRONG_FIRST = fake.table(HEALTHY).replace("# Out of bounds values : 0 OK", "# Out of bounds values : 4 FAILED")


@pytest.mark.parametrize(
    ("first", "rule", "words"),
    [
        (WRONG_FIRST, "busbw-wrong-data", "bad"),
        (at_8_gib(100.0), "busbw-failed", "bad"),
        (fake.table(HEALTHY)[: fake.table(HEALTHY).index("# Out of")] + "#\n", "busbw-incomplete", "not judged"),
    ],
)
def test_what_is_wrong_with_an_earlier_table_is_said_of_it(first, rule, words):
    found = verdict(first + fake.table(HEALTHY))
    (finding,) = (one for one in found.findings if one.rule.id == rule)
    assert finding.detail.startswith("table from line 1 (all_reduce_perf): ")
    assert words == found.words


def test_sizes_begin_again_with_each_type_of_d_all():
    rows = [line for line in fake.table(HEALTHY).splitlines(True) if line.strip()[:1].isdigit()]
    text = fake.table(HEALTHY).replace("".join(rows), "".join(rows + [row.replace("float", "  int8") for row in rows]))
    # a size has four times as many elements of one byte
    text = re.sub(r"^(\s+(\d+)\s+)\d+(\s+int8)", r"\g<1>\g<2>\g<3>", text, flags=re.MULTILINE)
    assert ([], 0) == (ids(text), verdict(text).exit_code)
    fewer = "".join(line for line in text.splitlines(True) if "443.7" not in line or "int8" not in line)
    assert ["busbw-incomplete"] == ids(fewer)
    cycles = fake.table(HEALTHY).replace("".join(rows), "".join(rows + rows))  # -N 2
    assert [] == ids(cycles)


def test_rows_that_stand_twice_are_two_programs_side_by_side():
    rows = [line for line in fake.table(HEALTHY).splitlines(True) if line.strip()[:1].isdigit()]
    text = fake.table(HEALTHY).replace("".join(rows), "".join(row + row for row in rows))
    assert "busbw-no-mpi" in ids(text)


def test_rows_without_bandwidth_of_the_bus_are_programs_that_ran_alone():
    row = f"   {GIB}  {GIB // 4}  float  sum  -1  631.9  212.41  0.00  0  0.51  263017.30  0.00  0"
    found = verdict(f"{row}\n{row}\n")
    assert "busbw-no-mpi" in [one.rule.id for one in found.findings]
    assert "not judged" == found.words


ELISIONS = ["#  ...", "...", "[...]", "# (14 more ranks)", "<snip>", ""]


@pytest.mark.parametrize("elision", ELISIONS)
def test_a_list_of_devices_that_somebody_shortened_is_no_other_number_of_ranks(elision):
    lines = fake.table(HEALTHY).splitlines()
    devices = [line for line in lines if line.startswith("#  Rank")]
    short = [*devices[:2], *([elision] if elision else [])]
    at = lines.index(devices[0])
    text = "\n".join([*lines[:at], *short, *lines[at + len(devices) :]])
    found = verdict(text)
    assert ([], 2, 16) == (
        [one.rule.id for one in found.findings if one.rule.id != "busbw-head-missing"],
        found.nodes,
        found.ranks,
    )


@pytest.mark.parametrize("dots", ["...", "   .\n   .\n   .", "[...]", "<snip>", "⋮"])
def test_rows_that_somebody_left_out_are_said_and_the_others_judged(dots):
    lines = [dots if "443.7" in line else line for line in fake.table(HEALTHY).splitlines()]
    found = verdict("\n".join(lines))
    assert (["busbw-head-missing"], "good") == ([one.rule.id for one in found.findings], found.words)
    assert "dots instead of rows: 1 size left out" in found.findings[0].detail


def test_fewer_ranks_than_are_listed_are_a_run_that_never_left_its_node():
    text = fake.table({GIB: 300.0}, hosts=["a", "b"]).replace("160.00", "171.43")
    assert "busbw-never-left-node" in ids(text)


@pytest.mark.parametrize(
    ("rate", "gpu", "size", "words"),
    [
        (99.9, "NVIDIA H100 80GB HBM3", GIB, "low"),
        (100.0, "NVIDIA H100 80GB HBM3", GIB, "nothing to compare with"),
        (99.9, "NVIDIA H100 80GB HBM3", GIB // 2, "nothing to compare with"),
        (99.9, "NVIDIA H100 PCIe", GIB, "nothing to compare with"),
    ],
)
def test_a_machine_without_a_name_is_low_below_what_its_gpu_gives_anywhere(rate, gpu, size, words):
    text = re.sub(r"(\[0[^\]]*\]) .*", rf"\1 {gpu}", fake.table({size: rate}))
    assert words == verdict(text, instance="").words


@pytest.mark.parametrize("host", ["h", "pod-0"])
def test_tcp_is_named_without_being_told_the_number_of_nodes(host):
    lines = [line for line in fake.table({GIB: 0.8}, hosts=["a", "b"], gpus=1).splitlines() if "Rank  0" not in line]
    log = [
        f"{host}:17:17 [0] NCCL INFO NET/Plugin : No plugin found (libnccl-net.so), using internal implementation",
        f"{host}:17:17 [0] NCCL INFO Using network Socket",
        f"{host}:17:18 [0] NCCL INFO Channel 00 : 1[60] -> 0[60] [receive] via NET/Socket/0",
    ]
    found = verdict("\n".join([*log, *lines]), instance="")
    assert "busbw-over-tcp" in [one.rule.id for one in found.findings]


@pytest.mark.parametrize(
    ("instance", "found"), [("p5.48xlarge", True), ("g4dn.8xlarge", False), ("g6e.48xlarge", False)]
)
def test_only_a_machine_that_has_gpudirect_can_lack_it(instance, found):
    log = [
        "a:1:2 [0] NCCL INFO NET/OFI Selected Provider is efa (found 1 nics)",
        "a:1:2 [0] NCCL INFO Using network AWS Libfabric",
        "a:1:2 [0] NCCL INFO Channel 00/0 : 1[f5000] -> 0[35000] [receive] via NET/AWS Libfabric/0",
    ]
    assert found == ("busbw-no-gpudirect" in ids(fake.table({GIB: 3.0}), log=log, instance=instance))


@pytest.mark.parametrize(
    ("line", "refused"),
    [
        (
            "h:1:2 [0] NCCL WARN NET/OFI Request 0x7f completed with error. RC: 113. Error: 15 (Unresponsive receiver)",
            True,
        ),
        ("h:1:2 [0] NCCL INFO NCCL_TOPO_FILE set by environment to /fsx/RC/topo-15.xml", False),
        ("h:1:2 [0] NCCL INFO Loading plugin from /opt/RC1/lib 15 of 16", False),
    ],
)
def test_a_path_with_rc_and_15_is_no_peer_that_refused(line, refused):
    assert refused == ("busbw-peer-unreachable" in ids(fake.table(HEALTHY), log=[line]))


def test_a_gpu_that_another_process_holds_is_no_fault_of_the_network():
    text = "# nThread 1 nGpus 1 minBytes 8 maxBytes 8 step: 2(factor) warmup iters: 5 iters: 20 validation: 1\n"
    (finding,) = verdict(
        text + "h: Test CUDA failure common.cu:892 'all CUDA-capable devices are busy or unavailable'"
    ).findings
    assert ("busbw-run-failed", True) == (finding.rule.id, "compute mode" in finding.detail)
    assert "network" not in finding.detail


@pytest.mark.parametrize("word", ["-437.00", "nan", "-nan", "inf"])
def test_negative_and_not_a_number_are_no_pass(word):
    found = verdict(fake.table(HEALTHY).replace(" 437.00", f" {word}", 1))
    assert ("busbw-bad-numbers", 1) == (found.findings[0].rule.id, found.exit_code)


def test_sizes_too_small_for_so_many_ranks_are_all_printed_as_0():
    text = fake.table({8: 0.0, 16: 0.0, 32: 0.0, 64: 0.0, 128: 0.0, 256: 0.1}, test="all_gather_perf")
    text = re.sub(r"(?m)^ +(8|16|32|64|128) +\d+ ", "  0  0 ", text)
    assert 5 == text.count("\n  0  0 ")
    assert ["busbw-no-floor"] == ids(text)
    assert "busbw-incomplete" in ids(text.replace("maxBytes 256", "maxBytes 512"))


def test_sizes_out_of_order_are_no_pass():
    lines = fake.table(HEALTHY).splitlines()
    one, two = (next(i for i, line in enumerate(lines) if line.split()[:1] == [str(size)]) for size in (GIB, 2 * GIB))
    lines[one], lines[two] = lines[two], lines[one]
    assert ["busbw-bad-numbers"] == ids("\n".join(lines))


def test_a_complete_table_with_a_bad_exit_status_is_no_pass():
    assert ["busbw-run-failed"] == ids(fake.table(HEALTHY), status=139)
    assert [] == ids(fake.table(HEALTHY), status=0)


def test_a_minimum_set_for_the_average_does_not_count():
    text = fake.table(HEALTHY).replace("# Avg bus bandwidth    : 456.475 ", "# Avg bus bandwidth    : 456.475 FAILED")
    assert "FAILED" in text
    assert [] == ids(text, status=7)


def test_sizes_left_out_for_want_of_memory_are_said():
    rates = {GIB: 437.0, 2 * GIB: 443.7}
    text = fake.table({**rates, 4 * GIB: 465.9})
    text = "\n".join(line for line in text.splitlines() if line.split()[:1] != [str(4 * GIB)])
    text = text.replace("#\n# ", f"#\n# Reducing maxBytes to {2 * GIB} due to memory limitation\n# ", 1)
    found = verdict(
        text.replace("# Using devices", f"# Reducing maxBytes to {2 * GIB} due to memory limitation\n# Using devices")
    )
    assert ["busbw-sizes-cut"] == [one.rule.id for one in found.findings]


def test_sizes_that_are_missing_below_what_memory_allowed_are_no_pass():
    text = fake.table(HEALTHY).replace("# Using", f"# Reducing maxBytes to {4 * GIB} due to memory limitation\n# Using")
    rows = [line for line in text.splitlines() if line.split()[:1] != [str(8 * GIB)]]
    assert ["busbw-sizes-cut"] == ids("\n".join(rows))
    found = verdict("\n".join(line for line in rows if line.split()[:1] != [str(2 * GIB)]))
    assert (["busbw-incomplete", "busbw-sizes-cut"], 1) == ([one.rule.id for one in found.findings], found.exit_code)
    assert "1 of 3 sizes" in found.findings[0].detail


def test_rows_of_other_sizes_than_asked_for_are_no_pass():
    text = fake.table({size >> 10: rate for size, rate in HEALTHY.items()})
    found = verdict(text.replace(f"minBytes {GIB >> 10} maxBytes {GIB >> 7}", f"minBytes {GIB} maxBytes {8 * GIB}"))
    assert (["busbw-incomplete"], 1) == ([one.rule.id for one in found.findings], found.exit_code)
    assert "4 of 4 sizes that were asked for" in found.findings[0].detail
    assert "4 rows that can be read: 1 MiB to 8 MiB" in [one.text for one in found.findings[0].evidence]


@pytest.mark.parametrize("end", [True, False])
def test_an_error_that_nccl_kept_is_no_pass(end):
    text = fake.table(HEALTHY).replace("#\n# Coll", "# error: remote process exited\n#\n# Coll")
    text = text if end else text[: text.index("#\n# Coll")]
    found = verdict(text)
    assert (["busbw-run-failed"], 1) == ([one.rule.id for one in found.findings], found.exit_code)
    assert "'remote process exited'; although it completed" in found.findings[0].detail


def test_a_table_that_nobody_can_check_the_ranks_of_says_so():
    text = "".join(line for line in fake.table(HEALTHY).splitlines(True) if not line.startswith("#  Rank"))
    (found,) = verdict(text).findings
    assert ("busbw-head-missing", True) == (found.rule.id, "says 16 ranks, taken as 2 nodes" in found.detail)
    unknown = verdict(text, instance="").findings[0]
    assert ("busbw-no-floor", True) == (unknown.rule.id, "on ? nodes, 16 ranks" in unknown.detail)
    assert [] == ids(text, nodes=2, gpus=8)
    log = ["ip-10-1-0-1:7:9 [0] NCCL INFO comm 0x1 rank 3 nRanks 16"]
    assert [] == ids(text, log=log, nodes=2)
    assert ["busbw-rank-count"] == ids(text, log=[log[0].replace("16", "32")], nodes=2)


def test_one_node_is_said_in_the_singular():
    (found,) = verdict(fake.table({GIB: 100.0}, hosts=["a"], gpus=2)).findings
    assert "on 1 node, 2 ranks of" in found.detail


def test_cpu_time_is_no_bandwidth():
    assert ["busbw-cpu-time"] == ids(fake.table(HEALTHY, cpu=True))


def test_json_is_judged_like_text():
    half = {"time": 4600.0, "alg_bw": 233.07, "bus_bw": 437.0, "nwrong": 0}
    devices = [{"rank": i, "hostname": f"ip-10-1-0-{i // 8}", "device_info": "H100"} for i in range(16)]
    config = {"nthreads": 1, "ngpus": 1, "minimum_bytes": GIB, "maximum_bytes": GIB, "step_factor": 2, "validation": 1}
    data = {
        "args": ["all_reduce_perf"],
        "nccl_version": 22707,
        "config": {**config, "devices": devices},
        "results": [{"size": GIB, "count": 1, "type": "float", "out_of_place": half, "in_place": half}],
        "out_of_bounds": {"count": 0, "okay": "true"},
        "average_bus_bandwidth": {"bandwidth": 437.0, "okay": "unchecked"},
        "end_time": "now",
    }
    assert ("good", 0) == ((found := verdict(json.dumps(data))).words, found.exit_code)
    cpu = {"cpu_time" if key == "time" else key: value for key, value in half.items()}
    rows = [{**data["results"][0], "out_of_place": cpu, "in_place": cpu}]
    assert ["busbw-cpu-time"] == ids(json.dumps({**data, "results": rows}))
    assert ["busbw-run-failed"] == ids(json.dumps({**data, "errors": ["remote process exited"]}))
    del data["end_time"]
    assert ["busbw-incomplete"] == ids(json.dumps(data))
    del data["average_bus_bandwidth"]
    assert ["busbw-incomplete"] == ids(json.dumps(data))
    assert ["busbw-no-output"] == ids(json.dumps(data)[:-30])


@given(st.lists(st.tuples(st.integers(0, 60), st.sampled_from("dxs2n")), max_size=6), st.randoms(use_true_random=False))
@settings(max_examples=150, deadline=None)
def test_output_that_was_cut_and_mixed_is_never_better_than_the_whole(edits, dice):
    """d drops a line, x doubles it, s swaps it with the next, 2 cuts it in two, n puts NCCL's line into it."""
    lines = fake.table({**HEALTHY, 8 * GIB: 350.0}).splitlines()
    for place, edit in edits:
        at = place % len(lines)
        cut = dice.randrange(len(lines[at]) + 1)
        if edit == "d" and len(lines) > 1:
            del lines[at]
        elif edit == "x":
            lines.insert(at, lines[at])
        elif edit == "s" and at + 1 < len(lines):
            lines[at : at + 2] = [lines[at + 1], lines[at]]
        elif edit == "2":
            lines[at : at + 1] = [lines[at][:cut], lines[at][cut:]]
        elif edit == "n":
            lines[at : at + 1] = [f"{lines[at][:cut]} h:1:2 [0] NCCL INFO x", lines[at][cut:]]
    found = verdict("\n".join(lines))
    notes = {one.rule.id for one in found.findings}
    assert found.words in ("bad", "not judged") or notes <= {"busbw-no-floor", "busbw-head-missing"}
    # Without the line of parameters nobody can know that the slow row was dropped, too: that line's loss is said.
    assert "good" != found.words or {"busbw-head-missing"} == notes


@given(st.text(max_size=400))
@settings(max_examples=100, deadline=None)
def test_no_text_at_all_is_a_pass_by_accident(text):
    assert 1 == verdict(text).exit_code


# the network

EFA_LOG = ["a:1:2 [0] NCCL INFO Using network AWS Libfabric"]
TCP_LOG = ["a:1:2 [0] NCCL INFO Using network Socket"]
TCP_RATES = dict.fromkeys(HEALTHY, 2.2)


def test_tcp_is_named_from_log_and_table_together():
    found = verdict(fake.table(TCP_RATES), log=TCP_LOG)
    assert ["busbw-failed", "busbw-over-tcp"] == [one.rule.id for one in found.findings]
    assert "Socket" in found.findings[1].detail
    assert "2.2 GB/s" in found.findings[1].detail


def test_without_a_log_so_little_bandwidth_is_what_tcp_gives():
    assert ["busbw-failed", "busbw-over-tcp"] == ids(fake.table(TCP_RATES))


def test_slow_is_not_tcp_where_the_log_says_efa_or_the_type_has_none():
    assert ["busbw-failed"] == ids(fake.table(TCP_RATES), log=EFA_LOG)
    assert ["busbw-no-floor"] == ids(fake.table(TCP_RATES, gpus=1), "g5.xlarge", log=TCP_LOG)


def test_one_node_over_sockets_is_no_fallback():
    assert [] == ids(fake.table({GIB: 445.0}, hosts=["ip-10-1-0-1"]), log=TCP_LOG)


def test_half_the_nics_are_named_with_the_host_and_the_bandwidth():
    log = [
        *EFA_LOG,
        "ip-10-1-0-1:1:2 [0] NCCL INFO NET/OFI Selected provider is efa, fabric is efa-direct (found 8 nics)",
        "ip-10-1-0-2:1:2 [0] NCCL INFO NET/OFI Selected provider is efa, fabric is efa-direct (found 16 nics)",
    ]
    rates = {GIB: 238.4, 4 * GIB: 254.7}
    text = fake.table(rates).replace("step: 2(factor)", "step: 4(factor)")
    found = verdict(text, "p5en.48xlarge", log=log)
    few = next(one for one in found.findings if one.rule.id == "busbw-few-nics")
    assert "ip-10-1-0-1 8 of 16" in few.detail
    assert "254.7 GB/s" in few.detail
    assert 3 == found.exit_code


def test_all_nics_are_no_finding():
    log = [*EFA_LOG, "a:1:2 [0] NCCL INFO NET/OFI Selected Provider is efa (found 32 nics)"]
    assert [] == ids(fake.table(HEALTHY), log=log)


def nccl_lines(model):
    """NCCL's lines of all ranks of a p5 pair."""
    lines = []
    for node, host in enumerate(("ip-10-1-0-1", "ip-10-1-0-2")):
        for gpu in range(8):
            rank = node * 8 + gpu
            lines += fake.nccl_lines(host, 4000 + rank, rank, gpu, 8, 16, fake.nics_of(host, model))
    return lines


def test_a_rank_with_fewer_nics_than_others_is_named_with_its_gpu():
    found = verdict(fake.table(HEALTHY), log=nccl_lines({"nics": {"ip-10-1-0-2 5": 3}}))
    (uneven,) = [one for one in found.findings if one.rule.id == "busbw-uneven-nics"]
    assert "rank 13 on ip-10-1-0-2, GPU 5: 3 NICs, where the same GPU on other nodes use 4" == uneven.detail
    assert "ip-10-1-0-2" == uneven.subject
    assert [] == ids(fake.table(HEALTHY), log=nccl_lines({}))


def test_programs_without_labels_that_ran_at_once_are_known_by_their_last_lines():
    one = fake.table({GIB: 1.0}, hosts=["ip-10-1-0-1"], gpus=1).splitlines(True)
    mixed = "".join(line for pair in zip(one, one, strict=True) for line in pair)
    assert "busbw-no-mpi" in ids(mixed)


def test_a_launcher_that_started_nothing_is_named_with_the_way_out():
    pmi = (
        'The application appears to have been direct launched using "srun",\nbut OMPI was not built with SLURM\'s PMI\n'
    )
    found = verdict(pmi, status=1).findings[0]
    assert "busbw-run-failed" == found.rule.id
    assert "hpslurm nccl-tests --launcher mpirun" in [one.command for one in found.suggestions]
    # seen with Open MPI 5.0.7 under srun --mpi=pmi2: each rank prints a table of its own
    alone = "0: No PMIx server was reachable, but a PMI1/2 was detected.\n0: 4 singletons will be started.\n"
    tables = fake.table({GIB: 1.0}, hosts=["ip-10-1-0-1"], gpus=1) * 2
    (found,) = verdict(alone + tables).findings
    assert "busbw-run-failed" == found.rule.id
    assert "do not find each other: No PMIx server was reachable" in found.detail
    found = verdict("srun: unrecognized option '--container-image=x'\n", status=1).findings[0]
    assert "pyxis is not installed" in found.detail


def test_channels_without_gpudirect_are_named():
    line = "a:1:2 [0] NCCL INFO Channel 00/0 : 3[3] -> 14[6] [send] via NET/AWS Libfabric/3"
    assert ["busbw-no-gpudirect"] == ids(fake.table(HEALTHY), log=[line])
    assert [] == ids(fake.table(HEALTHY), log=[line, line + "/GDRDMA"])


def test_a_refused_first_transfer_points_to_the_security_group():
    log = ["a:1:2 [0] net.cc:9 NCCL WARN Request completed with error. RC: 15. Unreachable remote"]
    found = verdict(cut("#        (B)"), log=log, timed_out=60.0)
    assert ["busbw-hang", "busbw-peer-unreachable"] == [one.rule.id for one in found.findings]
    assert "debugging-guide.md § 2" == found.findings[1].rule.reference


@pytest.mark.parametrize(
    ("rate", "hosts", "words"),
    [
        (250.0, 2, "half of the EFA devices"),
        (367.0, 1, "NVLS switched off"),
        (60.0, 1, "host memory instead of NVLink"),
    ],
)
def test_a_known_share_names_what_is_likely(rate, hosts, words):
    found = verdict(fake.table({8 * GIB: rate}, hosts=[f"ip-10-1-0-{i}" for i in range(hosts)]))
    assert words in found.findings[0].detail


# the table and the rules


def test_every_row_of_the_table_is_below_its_ceiling_and_has_a_source():
    rows = expected.tables()["row"]
    assert rows
    for row in rows:
        gpus = expected.limits_of(row["type"])["gpus"]
        assert max(row["busbw"].values()) <= expected.ceiling(row["type"], row["nodes"], gpus)
        assert row["source"]


def test_both_tables_of_instance_types_agree():
    from hpslurm.node import instance

    assert {name: one.gpus for name, one in instance.table().items()} == {
        row["type"]: row["gpus"] for row in expected.tables()["limits"]
    }


@pytest.mark.parametrize(
    ("buses", "name", "shared"),
    [
        (("0000:02:00", "0000:02:00"), "NVIDIA GeForce RTX 5090", True),
        (("0000:02:00", "0000:03:00"), "NVIDIA GeForce RTX 5090", False),
        (("0000:02:00", "0000:03:00", "0000:03:00"), "NVIDIA H100", True),
        (("0000:02:00", "0000:03:00", "0000:02:00", "0000:03:00"), "NVIDIA H100", False),  # two hosts of one name
        (("0000:02:00", "0000:02:00"), "NVIDIA H100 MIG 1g.10gb", False),
    ],
)
def test_ranks_on_one_gpu_are_no_measure_of_a_link(buses, name, shared):
    head = "".join(
        f"#  Rank  {rank} Group  0 Pid   {rank} on lab device  {rank} [{bus}] {name}\n"
        for rank, bus in enumerate(buses)
    )
    output = reading.read_text("# Using devices\n" + head)
    found = judge.verdict(Facts(output), Policy())
    assert shared == ("busbw-shared-gpu" in {one.rule.id for one in found.findings})


def test_two_tables_of_the_same_test_are_held_against_each_other():
    def words(second):
        first, other = (fake.table({GIB: rate}) for rate in (480.0, second))
        return judge.verdict(Facts(reading.read_text(first + other)), Policy()).words

    assert ("low", "nothing to compare with") == (words(150.0), words(250.0))


def test_largest_sizes_alone_are_an_excerpt_where_the_average_is_that_of_more():
    text = fake.table({GIB >> shift: 400.0 / (shift + 1) for shift in range(9, -1, -1)})
    rows = [line for line in text.splitlines(True) if line.startswith("  ") and " float " in line]
    for kept, incomplete in ((2, False), (6, True)):
        excerpt = "".join(line for line in text.splitlines(True) if line not in rows[: len(rows) - kept])
        assert incomplete == ("busbw-incomplete" in ids(excerpt))


def test_a_failure_that_cuts_a_row_is_read():
    text = fake.table({GIB: 400.0}).split("  1073741824")[0]
    text += "  1073741824     268435456     float     sum      -1 node0: Test CUDA failure common.cu:389 'an illegal'\n"
    assert ["busbw-run-failed"] == ids(text)


def test_each_rule_is_in_one_test_above():
    text = Path(__file__).read_text()
    declared = {one.id for one in vars(rules).values() if isinstance(one, Rule)}
    assert set() == {name for name in declared if f'"{name}"' not in text}


# baselines


def kind(**other):
    return baseline.kind_of(
        **{"instance": P5, "collective": "all_reduce", "nodes": 2, "ranks": 16, "nccl": "2.28.7", **other}
    )


ROW = {
    "schema": 1,
    "type": "bandwidth",
    "instance": P5,
    "collective": "all_reduce",
    "nodes": 2,
    "ranks": 16,
    "nccl": "2.28.7",
    "size": GIB,
    "busbw": 400.0,
}


def test_recorded_runs_come_back_as_median_and_spread(tmp_path):
    path = str(tmp_path / "site" / "bandwidth.jsonl")
    for rate in (400.0, 402.0, 404.0, 300.0, 401.0):
        baseline.record(path, kind(), "2.28.7", [(GIB, rate)])
    own = baseline.load(path).own(kind(nccl="2.28.3"))[GIB]
    assert (401.0, 300.0, 404.0, 5) == (own.median, own.low, own.high, own.runs)
    assert 1.4826 == pytest.approx(own.spread)


@pytest.mark.parametrize(
    "other", [{"nodes": 4}, {"ranks": 8}, {"nccl": "2.27.7"}, {"instance": "p5en.48xlarge"}, {"nccl": ""}]
)
def test_runs_of_another_kind_are_not_compared(tmp_path, other):
    path = str(tmp_path / "bandwidth.jsonl")
    baseline.record(path, kind(), "2.28.7", [(GIB, 400.0)])
    assert {} == baseline.load(path).own(kind(**other))


def test_a_torn_line_is_passed_over_and_the_next_run_stands_on_its_own(tmp_path):
    path = tmp_path / "bandwidth.jsonl"
    baseline.record(str(path), kind(), "2.28.7", [(GIB, 400.0)])
    with open(path, "a") as file:
        file.write('{"type":"bandwidth","size":10')
    baseline.record(str(path), kind(), "2.28.7", [(GIB, 402.0)])
    found = baseline.load(str(path))
    assert (1, 401.0) == (found.unreadable, found.own(kind())[GIB].median)


def test_writers_at_the_same_time_lose_no_line(tmp_path):
    import multiprocessing

    path = str(tmp_path / "bandwidth.jsonl")
    with multiprocessing.get_context("fork").Pool(4) as pool:
        pool.starmap(baseline.record, [(path, kind(), "2.28.7", [(size, 400.0) for size in HEALTHY])] * 40)
    found = baseline.load(path)
    assert (0, 40) == (found.unreadable, found.own(kind())[GIB].runs)


@pytest.mark.parametrize(
    "line",
    [
        "[]",
        "null",
        '{"type":"bandwidth"}',
        "\xff",
        '{"type": "bandwidth", "instance": 3}',
        "{" * 9999,
        "[" * 100_000,
        '{"a":' * 100_000,
        "9" * 5000,
        *(
            json.dumps({**ROW, key: "VALUE"}).replace('"VALUE"', value)
            for key, value in [
                ("instance", '["p5"]'),
                ("instance", "3"),
                ("collective", "{}"),
                ("nccl", "null"),
                ("nodes", "1e999"),
                ("nodes", "NaN"),
                ("ranks", "[2]"),
                ("size", "1e999"),
                ("busbw", "9" * 400),
                ("busbw", "9" * 5000),
                ("busbw", "-1"),
                ("busbw", "NaN"),
            ]
        ),
    ],
    ids=lambda line: line[-40:],
)
def test_strange_lines_do_no_harm(tmp_path, line):
    path = tmp_path / "bandwidth.jsonl"
    path.write_text(f"{line}\n{json.dumps(ROW)}\n", encoding="latin-1")
    found = baseline.load(str(path))
    assert (1, 400.0) == (found.unreadable, found.own(kind())[GIB].median)


def test_of_a_file_beyond_the_limit_the_newest_lines_are_read(tmp_path, monkeypatch):
    path = tmp_path / "bandwidth.jsonl"
    lines = [json.dumps({**ROW, "busbw": rate}) + "\n" for rate in (100.0, 200.0, 300.0)]
    path.write_text("".join(lines))
    for more, runs in ((-1, 1), (0, 2), (1, 2)):  # two whole lines, and one byte less and more
        monkeypatch.setattr(baseline, "LARGEST", len(lines[1]) + len(lines[2]) + more)
        found = baseline.load(str(path))
        assert (0, runs, 300.0) == (found.unreadable, found.own(kind())[GIB].runs, found.own(kind())[GIB].high)


def test_a_pipe_is_no_file_of_baselines_and_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    assert "is not a regular file" in baseline.load(str(tmp_path / "pipe")).problem


def test_a_link_is_not_written_through(tmp_path):
    (tmp_path / "target").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    with pytest.raises(OSError):
        baseline.record(str(tmp_path / "link"), kind(), "2.28.7", [(GIB, 400.0)])
