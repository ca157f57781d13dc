"""XIDs: from lines to incidents, one cause each, whose it is, and what is said of it."""

from __future__ import annotations

import itertools
import json
import re
import time
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpslurm.core import toml
from hpslurm.core.finding import Finding
from hpslurm.core.policy import Policy
from hpslurm.core.probe import FAIL, PASS, UNKNOWN, Unknown, run
from hpslurm.core.values import replace
from hpslurm.node import gpu_kernel, gpu_recovery, xid, xid_decode, xid_table
from hpslurm.node.xid import BEFORE, JOB, OTHER, Facts, judge
from hpslurm.node.xid_lines import SXID, XID, Line, incidents, parse, uuids
from hpslurm.sources.host import Host
from hpslurm.sources.kmsg import Record

A, B = "0000:a8:00", "0000:53:00"
STAT = "cpu 1 2 3\nbtime 1700000000\n"
# The shapes that health agents act upon; none may leave this program
SHAPES = (re.compile(r"NVRM: Xid"), re.compile(r"SXid"), re.compile(r"(?i)xid\s*\("))


def record(text: str, at: float = 0.0) -> Record:
    return Record(0, at, at, 3, text)


def line(code: int, at: float = 1000.0, text: str = "", pci: str = A, **more: object) -> Line:
    return Line(XID, code, pci, at, at, text=text, **more)  # type: ignore[arg-type]


def found(*lines: Line, **facts: object) -> list[Finding]:
    witnesses = {A: "it answers with an error", B: "it answers with an error"}
    facts = {"begins": 0.0, "now": 2000.0, "signs": witnesses, **facts}
    return list(judge(Facts(incidents(lines), **facts), Policy()))  # type: ignore[arg-type]


def told(*lines: Line, **facts: object) -> list[tuple[str, str]]:
    return [(one.rule.id, one.rule.priority) for one in found(*lines, **facts)]


# lines


OFF_BUS = "GPU has fallen off the bus."
REMAP = "Row Remapper: New row marked for remapping, reset gpu to activate."
CONTAINED = "Contained: SM (0x1). RST: No, D-RST: No"


@pytest.mark.parametrize(
    ("head", "rest", "wanted"),
    [
        ("PCI:0000:9b:00", "79, pid=12345, name=python3, " + OFF_BUS, ("0000:9b:00", 12345, "python3", OFF_BUS)),
        ("PCI:0000:9b:00", f"79, pid='<unknown>', name=<unknown>, {REMAP}", ("0000:9b:00", None, "<unknown>", REMAP)),
        ("PCI:0000:10:1c", "63, pid=1896, " + REMAP, ("0000:10:1c", 1896, "", REMAP)),
        ("PCI:0000:53:00 GPU-I:02 GPU-CI:00", f"94, pid=77, name=py, {CONTAINED}", ("0000:53:00", 77, "py", CONTAINED)),
        ("0000:03:00", "14, Channel 00000001", ("0000:03:00", None, "", "Channel 00000001")),
        (
            "PCI:00000000:9B:00",
            "31, pid=42, name=ray::W, Ch 8, intr 0",
            ("0000:9b:00", 42, "ray::W", "Ch 8, intr 0"),
        ),
        ("PCI:0000:53:00", "45, pid=77, name=pt_main_thread, Ch 0a", ("0000:53:00", 77, "pt_main_thread", "Ch 0a")),
    ],
)
def test_every_shape_of_an_xid_line_is_read(head: str, rest: str, wanted: tuple[str, int | None, str, str]) -> None:
    pci, pid, name, text = wanted
    code = int(rest.partition(",")[0])
    got = parse(record(f"NVRM: Xid ({head}): {rest}", 7.0))
    assert Line(XID, code, pci, 7.0, 7.0, pid=pid, name=name, text=text) == got


def test_an_sxid_line_has_its_printed_word_and_the_lines_after_it_are_none() -> None:
    head = "nvidia-nvswitch0: SXid (PCI:0000:a9:00.0): 20034, "
    wanted = Line(SXID, 20034, "0000:a9:00", 0.0, 0.0, word="Fatal", text="Link 30 LTSSM Fault Up (First)")
    assert wanted == parse(record(head + "Fatal, Link 30 LTSSM Fault Up (First)"))
    assert None is parse(record(head + "Severity 5 Engine instance 30 Sub-engine instance 00"))
    assert None is parse(record(head + "Data {0x00000000, 0x00000001}"))


def test_the_drivers_uuid_line_names_the_gpu() -> None:
    uuid = "GPU-12345678-1234-1234-1234-123456789abc"
    assert {"0000:9b:00": uuid} == uuids([record(f"NVRM: GPU at PCI:0000:9b:00: {uuid}")])


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=80))
def test_no_text_breaks_the_reader(text: str) -> None:
    for head in ("", "NVRM: Xid (PCI:0000:9b:00): 74, ", "NVRM: Xid (PCI:0000:9b:00): 149, ", "NVRM: Xid ("):
        got = parse(record(head + text))
        if got:
            list(judge(Facts(incidents([got]), now=1.0), Policy()))


# incidents


def test_lines_belong_together_until_three_minutes_of_silence() -> None:
    assert [2, 1] == [len(one.lines) for one in incidents([line(31, 0), line(43, 180), line(31, 361)])]


def test_a_burst_is_folded_to_one_line_with_its_count() -> None:
    (incident,) = incidents([line(79, 0.0), *(line(79, 0.1 * n) for n in range(1, 700))])
    assert (1, 700, 0.0) == (len(incident.lines), incident.lines[0].count, incident.lines[0].first)


def test_messages_that_decide_are_kept_apart_but_not_without_bound() -> None:
    (incident,) = incidents([line(74, n, f"link {n}(0x1)") for n in range(100)])
    assert 21 == len(incident.lines)
    assert 100 == sum(one.count for one in incident.lines)


@pytest.mark.parametrize("code", [13, 31, 48, 63, 64, 74, 94, 95, *range(144, 151), 154])
def test_codes_whose_message_decides_are_folded_by_message(code: int) -> None:
    (incident,) = incidents([line(code, 0, "one"), line(code, 1, "other"), line(code, 2, "one")])
    assert [("one", 2), ("other", 1)] == [(one.text, one.count) for one in incident.lines]


@pytest.mark.parametrize("code", [14, 32, 43, 62, 79, 92, 96, 119, 143, 151, 155])
def test_other_codes_are_folded_whatever_they_say(code: int) -> None:
    (incident,) = incidents([line(code, 0, "one"), line(code, 1, "other")])
    assert [2] == [one.count for one in incident.lines]


def test_the_newest_fifty_incidents_are_kept() -> None:
    kept = incidents([line(79, 1000.0 * number) for number in range(51)])
    assert (50, 1000.0) == (len(kept), kept[0].first)


# causes


GRAVEST_FIRST = (79, 119, 120, 62, 140, 48, 64, 74, 149, 150, 158, 46, 110, 143, 136, 155, 109, 63, 156, 32, 31, 13)


@pytest.mark.parametrize(("graver", "other"), [(94, 145), (145, 146), (146, 144)])
def test_of_two_echoes_the_graver_is_the_cause(graver: int, other: int) -> None:
    case = xid._cause([line(other, 0), line(graver, 1)], Facts(driver=570))
    assert case and graver == case.line.code


@pytest.mark.parametrize("code", [143, 151, 155])
def test_codes_beside_those_of_nvlink_5_have_no_sub_code(code: int) -> None:
    row = xid_table.row(code)
    assert row and row.title == xid_decode.decode(line(code), row, [], 570).words


@pytest.mark.parametrize(("graver", "other"), list(itertools.pairwise(GRAVEST_FIRST)))
def test_of_two_codes_on_one_gpu_the_graver_is_the_cause(graver: int, other: int) -> None:
    case = xid._cause([line(other, 0), line(graver, 1)], Facts(driver=570))
    assert case and graver == case.line.code


@pytest.mark.parametrize("echo", [43, 45, 144, 145, 146, 154, 159])
def test_what_often_follows_another_code_is_not_the_cause(echo: int) -> None:
    case = xid._cause([line(echo, 0), line(31, 1)], Facts(driver=570))
    assert case and 31 == case.line.code


@pytest.mark.parametrize("stronger", [48, 74, 140, 149])
@pytest.mark.parametrize("code", [94, 95])
def test_a_contained_error_beside_what_caused_it_is_not_the_cause(stronger: int, code: int) -> None:
    case = xid._cause([line(code, 0), line(stronger, 1)], Facts(driver=570))
    assert case and stronger == case.line.code


@pytest.mark.parametrize(("code", "other"), [(94, 31), (95, 31), (95, 64), (94, 63)])
def test_a_contained_error_alone_is(code: int, other: int) -> None:
    case = xid._cause([line(other, 0), line(code, 1)], Facts(driver=570))
    assert case and code == case.line.code


@pytest.mark.parametrize(
    ("code", "beside", "priority"),
    [(109, 119, "P0"), (109, 62, "P0"), (109, 46, "P0"), (109, 120, "P1"), (38, 79, "P1"), (38, 43, "P2")],
)
def test_company_makes_a_code_graver(code: int, beside: int, priority: str) -> None:
    lines = [line(code), line(beside)]
    assert priority == xid_decode.decode(lines[0], xid_table.row(code), lines, 570).priority


def test_the_call_that_the_firmware_did_not_answer_is_named() -> None:
    text = (
        "Timeout after 6s of waiting for RPC response from GPU0 GSP! Expected function 76 (GSP_RM_CONTROL) (0x0 0x0)."
    )
    words = xid_decode.decode(line(119, text=text), xid_table.row(119), [], 570).words
    assert "; call 76 (GSP_RM_CONTROL" in words


def test_a_memory_error_with_its_company_is_one_finding() -> None:
    dbe = "An uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer at physAddr 0x1"
    (one,) = found(line(48, 0, dbe), line(63, 1), line(94, 2, "Contained: SM (0x1). RST: No, D-RST: No"), line(45, 3))
    assert ("xid-48", "P0", "gpu_ecc") == (one.rule.id, one.rule.priority, one.rule.cause)
    assert one.detail.endswith("Uncorrectable memory error in DRAM; its repair was recorded; with 45, 63, 94")


@pytest.mark.parametrize(
    ("beside", "words"),
    [
        ([171], "memory error in DRAM"),
        ([172], "in SRAM"),
        ([], "could not be told"),
        ([64], "its repair failed"),
        ([63], "its repair was recorded"),
        ([177], "its repair was recorded"),
    ],
)
def test_where_a_memory_error_was_is_said_or_said_to_be_unknown(beside: list[int], words: str) -> None:
    assert words in found(line(48, 0), *(line(code, 1) for code in beside))[0].detail


def test_cleanup_after_a_kill_is_no_finding() -> None:
    assert [] == told(*(line(45, 1000 + n / 10) for n in range(8)), job_start=900.0)
    assert [] == told(line(45), line(43))


def test_a_channel_reset_is_told_to_its_job_as_the_programs_own() -> None:
    (one,) = found(line(45), line(43), job_start=900.0)
    assert ("xid-43", "P2") == (one.rule.id, one.rule.priority)
    assert "the program first" in one.suggestions[0].why


def test_hardware_beats_the_program_that_died_of_it_on_another_gpu() -> None:
    assert [("xid-79", "P0")] == told(line(31, 0, pci=B), line(79, 1, pci=A), line(13, 2, pci=B), job_start=0.0)


def test_two_gpus_with_one_code_are_one_finding_with_two_pieces_of_evidence() -> None:
    (one,) = found(line(79, 0, pci=A), line(79, 1, pci=B))
    assert 2 == len(one.evidence)


def test_a_fatal_switch_error_takes_the_link_errors_of_the_gpus_along() -> None:
    switch = Line(SXID, 20034, "0000:4c:00", 0.0, 0.0, word="Fatal", text="Link 30 LTSSM Fault Up (First)")
    (one,) = found(switch, line(74, 0.1, "link 6(0x10000, 0x0)", pci=A), line(74, 0.2, "link 2(0x10000, 0x0)", pci=B))
    assert ("sxid-20034", "P0") == (one.rule.id, one.rule.priority)
    assert "with 74" in one.detail


@pytest.mark.parametrize(
    ("code", "word", "wanted"),
    [
        (20034, "Non-fatal", [("sxid-20034", "P1")]),  # never above P1
        (20012, "Fatal", [("sxid-20012", "P0")]),  # the printed word decides
        (22013, "Non-fatal", []),
        (10009, "Non-fatal", []),  # in the header, in no list
        (10009, "Fatal", [("sxid-10009", "P0")]),
        (12020, "", [("sxid-12020", "P0")]),
        (99999, "Non-fatal", [("sxid-unknown", "P1")]),
    ],
)
def test_the_printed_word_of_a_switch_decides(code: int, word: str, wanted: list[tuple[str, str]]) -> None:
    assert wanted == told(Line(SXID, code, "0000:4c:00", 0.0, 0.0, word=word))


def test_a_number_that_no_table_has_gets_no_meaning() -> None:
    (one,) = found(line(999))
    assert ("xid-unknown", "P1") == (one.rule.id, one.rule.priority)
    assert "XID 999" in one.detail and "no meaning is known here" in one.detail


# sub-codes


@pytest.mark.parametrize(
    ("registers", "priority", "words"),
    [
        ("0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0", "P0", "reseat or diag"),
        ("0x2, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0", "P1", "the other end failed first"),
        ("0x0, 0x0, 0x0, 0x10000, 0x0, 0x0, 0x0", "P1", "the other end failed first"),
        ("0x10, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0", "P0", "hardware ecc"),
        ("0x200000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0", "P0", "marginal signal"),
        ("0x0, 0x0, 0x0, 0x0, 0x100000, 0x0, 0x0", "P1", "ecc limit continue"),
        ("0x1, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0", "P0", "link 6"),  # a bit to ignore: the row decides
    ],
)
def test_the_registers_of_74_tell_this_end_from_the_other(registers: str, priority: str, words: str) -> None:
    (one,) = found(line(74, text=f"NVLink: fatal error detected on link 6({registers})"))
    assert priority == one.rule.priority
    assert words in one.detail


def sub(code: int, text: str, driver: int | None = None) -> Finding:
    (one,) = found(line(code, text=text), driver=driver)
    return one


def test_both_layouts_of_nvlink_5_are_read_by_the_drivers_branch() -> None:
    old, new = "(0x004505C6 0x00000000 0x00000000)", "(0x00400011 0x00000000 0x00000000)"
    for driver, registers in ((570, old), (575, new)):
        one = sub(149, f"NETIR_LINK_EVT Fatal XC0 i0 Link 08 {registers}", driver)
        assert "P0" == one.rule.priority
        assert "link 8: NETIR_LINK_EVT, link-fatal; signal quality of the link" in one.detail
    wrong = sub(149, f"NETIR_LINK_EVT Fatal XC0 i0 Link 08 {new}", 570)
    assert "is not in the table" in wrong.detail


def test_a_link_that_went_down_for_its_peer_says_so() -> None:
    one = sub(149, "NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x021425C6 0x00000000 0x0)")
    assert "look at the other end of the link first" in one.detail
    assert "layout v1, the driver's version is not known" in one.detail


def test_the_word_fatal_in_an_nvlink_5_line_does_not_decide() -> None:
    assert "P2" == sub(145, "RLW_REMAP Fatal XC0 i0 Link 08 (0x00000082 0x00000100 0x0)", 570).rule.priority


def test_a_promoted_action_needs_its_bit() -> None:
    assert "P2" == sub(145, "RLW_RXPIPE Nonfatal XC0 i0 Link 08 (0x000000c2 0x00000001 0x0)", 570).rule.priority
    assert "P0" == sub(145, "RLW_RXPIPE Nonfatal XC0 i0 Link 08 (0x000004c2 0x00000001 0x0)", 570).rule.priority


def test_degraded_link_firmware_asks_for_a_reset() -> None:
    assert "firmware degraded" in sub(150, "MSE_X Fatal XC0 i0 Link -1 (0x00000001 0xFFFFFFFF 0x0)", 570).detail


@pytest.mark.parametrize(("flags", "step"), [("RST: Yes, D-RST: No", "reboot"), ("RST: No, D-RST: Yes", "reboot")])
def test_a_contained_error_that_wants_a_reset_gets_one_suggested(flags: str, step: str) -> None:
    (one,) = found(line(94, text=f"Contained: SM (0x1). {flags}"))
    assert step in [suggestion.harm for suggestion in one.suggestions]


# the driver's own verdict


@pytest.mark.parametrize(
    ("action", "priority"), [(0, "P1"), (1, "P0"), (2, "P0"), (3, "P0"), (4, "P1"), (5, "P0"), (6, "P0"), (7, "P0")]
)
def test_the_recovery_action_wins_over_the_table(action: int, priority: str) -> None:
    (one,) = found(line(119), recovery={A: action})
    assert priority == one.rule.priority
    assert (action == 0) != ("reboot" in [suggestion.harm for suggestion in one.suggestions]) or action in (3, 5)


def test_a_node_whose_driver_wants_nothing_is_not_held_back() -> None:
    (one,) = found(line(119), recovery={A: gpu_recovery.NONE})
    assert (False, True) == (one.rule.gateable, "the driver wants no recovery now" in one.detail)


def test_the_newest_154_line_counts_where_nvml_does_not_say() -> None:
    change = "GPU recovery action changed from 0x{} (A) to 0x{} (B)"
    wants, none = line(154, 10, change.format(0, 1)), line(154, 20, change.format(1, 0))
    assert [("xid-119", "P0")] == told(line(119, 5), wants)
    assert [("xid-119", "P1")] == told(line(119, 5), wants, none)
    assert [("xid-119", "P0")] == told(line(119, 5), wants, none, recovery={A: 2})


def test_a_programs_own_fault_is_not_raised_by_it() -> None:
    assert [("xid-31", "P2")] == told(line(31), job_start=900.0, recovery={A: 1})


# whose


def test_before_during_and_on_a_gpu_of_another_job() -> None:
    start = 1000.0
    for at, pci, wanted in ((994.9, A, BEFORE), (995.0, A, JOB), (1500.0, A, JOB), (1500.0, B, OTHER)):
        (one,) = found(line(79, at, pci=pci), job_start=start, job_gpus=(A,))
        assert one.detail.endswith(wanted), (at, pci)


def test_a_link_or_a_switch_belongs_to_the_node() -> None:
    assert found(line(74, 1500.0, pci=B), job_start=1000.0, job_gpus=(A,))[0].detail.endswith(JOB)


def test_a_process_that_still_runs_in_another_job_is_not_this_jobs() -> None:
    facts = {"job_start": 1000.0, "job": "7", "owners": {42: "8", 43: "7"}}
    for pid, wanted in ((42, OTHER), (43, JOB), (44, JOB)):  # 44 has ended: kept
        (one,) = found(line(79, 1500.0, pid=pid), **facts)
        assert one.detail.endswith(wanted), pid


def test_a_boot_during_the_job_is_told_as_a_gap() -> None:
    assert [] == list(judge(Facts(booted=1005.0, now=2000.0, job_start=1000.0), Policy()))
    with pytest.raises(Unknown, match="during the job: older lines are gone"):
        list(judge(Facts(booted=1005.1, now=2000.0, job_start=1000.0), Policy()))


def test_on_a_gpu_of_another_job_nothing_is_gated() -> None:
    assert False is found(line(79, 1500.0, pci=B), job_start=1000.0, job_gpus=(A,))[0].rule.gateable


def test_a_programs_fault_is_told_to_its_job_only() -> None:
    assert [] == told(line(31))  # a prolog: nobody's now
    assert [("xid-31", "P2")] == told(line(31), job_start=900.0)
    assert [] == told(line(31), job_start=1100.0)


def test_a_programs_fault_by_two_programs_on_one_gpu_makes_it_a_suspect() -> None:
    one, other = line(31, 0, name="train"), line(31, 1000, name="eval")
    assert [("xid-31", "P1")] == told(one, other)
    assert [] == told(one, line(31, 1000, name="train"))
    assert [] == told(one, line(31, 1000, name="eval", pci=B))


def test_a_shader_fault_on_the_same_unit_again_makes_it_a_suspect() -> None:
    text = "Graphics SM Warp Exception on (GPC {}, TPC 7, SM 0): Out Of Range Address"
    first = line(13, 0, text.format(7), pid=1)
    assert [("xid-13", "P1")] == told(first, line(13, 1000, text.format(7), pid=2))
    assert [] == told(first, line(13, 1000, text.format(6), pid=2))


def test_a_context_switch_time_out_that_repeats_is_grave() -> None:
    assert [("xid-109", "P1")] == told(line(109, 0))
    assert [("xid-109", "P0")] == told(line(109, 0), line(109, 1000))


# what is not known


def test_a_log_that_was_overwritten_within_the_job_is_unknown() -> None:
    host_facts = Facts(begins=1500.0, booted=0.0, now=2000.0, job_start=1000.0)
    with pytest.raises(Unknown, match="kernel log begins at"):
        list(judge(host_facts, Policy()))
    assert [] == list(judge(Facts(begins=995.0, booted=0.0, now=2000.0, job_start=1000.0), Policy()))


def test_a_day_of_log_is_enough_where_no_job_is_asked_about() -> None:
    day = 86400.0
    assert [] == list(judge(Facts(begins=10.0, booted=0.0, now=day + 20), Policy()))
    with pytest.raises(Unknown, match="older lines were overwritten"):
        list(judge(Facts(begins=30.0, booted=0.0, now=day + 20), Policy()))


def test_a_line_of_a_new_shape_is_unknown_not_passed_over(host_with: Callable[..., Host]) -> None:
    host = machine(host_with, "3,0,1,-;NVRM: Xid (some new shape): 79, GPU has fallen off the bus.\n")
    result = run("xid", xid, host, Policy())
    assert (UNKNOWN, True) == (result.outcome, "1 lines" in result.note)


# the whole probe


FILES = {"/proc/stat": STAT, "/proc/uptime": "90000 1\n"}


def machine(host_with: Callable[..., Host], log: str, **how: object) -> Host:
    files = {"/dev/kmsg": log, "/proc/stat": STAT, "/gpus.json": '{"gpus": 8}', "/proc/uptime": "90000 1\n"}
    return host_with(files, **how)


def test_a_healthy_log_passes_and_reads_no_table(host_with: Callable[..., Host]) -> None:
    for cached in (xid_table.xids, xid_table.sxids, xid_table.kernel_rows, xid_table.sub_codes):
        cached.cache_clear()
    host = machine(host_with, "6,0,1,-;NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  570.133.20\n")
    assert {PASS} == {run("xid", module, host, Policy()).outcome for module in (xid, gpu_kernel)}
    assert [0, 0, 0] == [one.cache_info().currsize for one in (xid_table.xids, xid_table.sxids, xid_table.kernel_rows)]


def test_ten_mebibytes_of_one_fault_are_one_finding_in_time(host_with: Callable[..., Host]) -> None:
    text = "NVRM: Xid (PCI:0000:a8:00): 95, pid=77, name=python, Uncontained: LTC TAG (0x2, 0x1). RST: Yes, D-RST: No"
    log = "".join(f"3,{number},{number * 1000},-;{text}\n" for number in range(80_000))
    began = time.process_time()
    result = run("xid", xid, machine(host_with, log), Policy())
    assert ["xid-95"] == [one.rule.id for one in result.findings]
    assert "20000 " in result.findings[0].evidence[0].text
    assert time.process_time() - began < 20


def test_the_jobs_gpus_are_found_by_device_file_not_by_nvmls_order(host_with: Callable[..., Host]) -> None:
    info = "Model: H100\nIRQ: 1\nBus Location: 0000:a8:00.0\nDevice Minor: \t {}\n"
    files = {
        "/dev/kmsg": "3,0,1000000,-;NVRM: Xid (PCI:0000:a8:00): 79, pid=1, name=x, GPU has fallen off the bus.\n",
        "/proc/stat": STAT,
        "/gpus.json": '{"gpus": 2}',
        "/proc/driver/nvidia/gpus/0000:a8:00.0/information": info.format(0),
        "/proc/driver/nvidia/gpus/0000:53:00.0/information": info.format(1),
    }
    epilog = {"SLURM_SCRIPT_CONTEXT": "epilog_slurmd", "SLURM_JOB_START_TIME": "1700000000"}
    mine = host_with(files, in_hook=True, env={**epilog, "SLURM_JOB_GPUS": "0"})
    assert run("xid", xid, mine, Policy()).findings[0].detail.endswith(JOB)
    other = host_with(files, in_hook=True, env={**epilog, "SLURM_JOB_GPUS": "1"})
    assert run("xid", xid, other, Policy()).findings[0].detail.endswith(OTHER)


# safety


def test_no_finding_carries_a_line_in_the_drivers_shape(host_with: Callable[..., Host]) -> None:
    log = (
        "3,0,1,-;NVRM: Xid (PCI:0000:a8:00): 79, pid=7, name=NVRM: Xid (PCI:, NVRM: Xid (PCI:0000:53:00): 79, pid=1\n"
        "3,1,2,-;nvidia-nvswitch0: SXid (PCI:0000:4c:00.0): 20034, Fatal, nvidia-nvswitch1: SXid (PCI:0): 1\n"
    )
    result = run("xid", xid, machine(host_with, log), Policy())
    assert FAIL == result.outcome
    text = repr(result)
    assert [] == [shape.pattern for shape in SHAPES if shape.search(text)], text


# tables


def pairs(rows: dict[int, xid_table.Row]) -> list[xid_table.Row]:
    return list(rows.values())


@pytest.mark.parametrize("row", pairs(xid_table.xids()), ids=lambda row: row.id)
def test_every_xid_row_is_read_from_its_example(row: xid_table.Row) -> None:
    got = parse(record(f"NVRM: Xid (PCI:0000:a8:00): {row.example}", 1.0))
    assert got and (row.code, 4242, "python3") == (got.code, got.pid, got.name)
    if row.pattern:
        match = re.search(row.pattern, got.text)
        assert match and all(value is not None for value in match.groupdict().values()), row.example
    verdict = xid_decode.decode(got, row, [got], 570)
    assert verdict.priority in ("P0", "P1", "P2", "info") and verdict.words
    in_job = [one.rule.id for one in found(got, job_start=0.0)]
    assert ([] if row.priority == "info" else [row.id]) == in_job


@pytest.mark.parametrize("row", pairs(xid_table.sxids()), ids=lambda row: row.id)
def test_every_sxid_row_is_read_from_its_example(row: xid_table.Row) -> None:
    got = parse(record(f"nvidia-nvswitch0: SXid (PCI:0000:4c:00.0): {row.example}"))
    assert got and row.code == got.code and got.word in ("Fatal", "Non-fatal")
    silent = row.priority in ("info", "word")
    assert ([] if silent else [row.id]) == [one.rule.id for one in found(got)]


@pytest.mark.parametrize("row", xid_table.sub_codes(), ids=lambda row: f"{row.code}-{row.unit}-{row.status:x}")
def test_every_sub_code_is_found_from_its_example(row: xid_table.SubCode) -> None:
    got = parse(record(f"NVRM: Xid (PCI:0000:a8:00): {row.example}"))
    assert got
    for driver, value in ((570, row.v1_value), (575, row.v2_value)):
        text = re.sub(r"\(0x[0-9a-f]+", f"(0x{value:08x}", got.text)
        verdict = xid_decode.decode(replace(got, text=text), xid_table.row(row.code), [got], driver)
        assert f": {row.unit}, {row.severity.replace('_', '-')}" in verdict.words, verdict


@pytest.mark.parametrize("row", xid_table.registers(), ids=lambda row: f"{row.register}-{row.kind}")
def test_every_kind_of_register_bit_is_found_from_its_example(row: xid_table.Bits) -> None:
    got = parse(record(f"NVRM: Xid (PCI:0000:a8:00): {row.example}"))
    assert got
    words = xid_decode.decode(got, xid_table.row(74), [got], 570).words
    assert (row.kind.replace("_", " ") in words) == (row.kind != "ignore")


@pytest.mark.parametrize("row", xid_table.kernel_rows(), ids=lambda row: row["id"])
def test_every_kernel_line_is_found_by_its_own_row_only(row: dict[str, str]) -> None:
    assert row["mark"] in row["example"] and row["mark"].encode() in gpu_kernel.MARKS
    assert [row["id"]] == [one["id"] for one in xid_table.kernel_rows() if re.match(one["pattern"], row["example"])]


# What a user can make the kernel print: a mount's option, a process's name, a file's name.
AROUND = (
    "overlayfs: failed to resolve '{}': -2",
    "traps: {}[7] general protection fault ip:401126 sp:7ffc1d2b0b70 error:0 in a.out[401000+1000]",
    "python[7]: segfault at 0 ip 0000000000401126 sp 00007ffc1d2b0b70 error 4 in {}[401000+1000]",
)


@pytest.mark.parametrize("around", AROUND, ids=("mount", "process", "file"))
def test_no_line_that_a_user_forged_inside_another_is_believed(around: str) -> None:
    codes = [
        *(f"NVRM: Xid (PCI:0000:a8:00): {row.example}" for row in xid_table.xids().values()),
        *(f"nvidia-nvswitch0: SXid (PCI:0000:4c:00.0): {row.example}" for row in xid_table.sxids().values()),
    ]
    assert [] == [text for text in codes if parse(record(around.format(text)))]
    lines = [around.format(row["example"]) for row in xid_table.kernel_rows()]
    assert [] == [line for line in lines for row in xid_table.kernel_rows() if re.match(row["pattern"], line)]


@pytest.mark.parametrize(
    ("probe", "name", "text"),
    [
        (xid, "sxid-20034", "nvidia-nvswitch0: SXid (PCI:0000:4c:00.0): 20034, Fatal, Link 28 LTSSM Fault Up"),
        (xid, "xid-79", "NVRM: Xid (PCI:0000:a8:00): 79, pid=1, name=x, GPU has fallen off the bus."),
        (gpu_kernel, "gpu-init-failed", "NVRM: GPU 0000:a8:00.0: RmInitAdapter failed! (0x62:0x40:2516)"),
    ],
)
def test_a_line_gates_only_where_nvml_or_the_bus_shows_the_same(
    host_with: Callable[..., Host], probe: object, name: str, text: str
) -> None:
    bus = {
        f"/sys/bus/pci/devices/0000:a8:00.0/{one}": value
        for one, value in (("vendor", "0x10de"), ("class", "0x030200"))
    }
    well = {"pci": "0000:a8:00", "recovery": 0, "remap": [0, 0, 0, 0], "links": [1, 1], "fabric": [3, 0, 426, 1]}
    ill = {**well, "links": [0, 1], "recovery": None}
    gone: dict[str, object] = {"gpus": [{"trouble": {"handle": {"code": 15, "text": "GPU is lost"}}}]}
    for gpus, gates in (({"gpus": [well]}, False), (gone, True), ({"gpus": [ill]}, True)):
        host = host_with({**FILES, **bus, "/dev/kmsg": f"3,0,1000000,-;{text}\n", "/gpus.json": json.dumps(gpus)})
        (one,) = run("probe", probe, host, Policy()).findings  # type: ignore[arg-type]
        assert (name, gates) == (one.rule.id, one.rule.gateable), gpus
        assert gates != any("a line alone does not gate" in piece.text for piece in one.evidence)


HARMLESS = (
    "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  570.133.20  Release Build",
    "nvidia-nvlink: Nvlink Core is being initialized, major device number 235",
    "nvidia-nvswitch0: Probing device 0000:4c:00.0, Vendor Id = 0x10de, Device Id = 0x22a3",
    "pcieport 0000:17:01.0: AER: enabled with IRQ 30",
    "mce: CPU supports 32 MCE banks",
    "nvidia-peermem nv_get_p2p_free_callback:127 ERROR detected invalid context, skipping further processing",
    "NVRM: GPU at PCI:0000:9b:00: GPU-12345678-1234-1234-1234-123456789abc",
    "NVRM: GPU Board Serial Number: 1650124010000",
)


@pytest.mark.parametrize("text", HARMLESS)
def test_harmless_lines_are_found_by_no_table(text: str) -> None:
    assert None is parse(record(text))
    assert [] == [row["id"] for row in xid_table.kernel_rows() if re.match(row["pattern"], text)]


@pytest.mark.parametrize("table", ["xid", "sxid", "nvlink4", "nvlink5", "gpu_kernel"])
def test_tables_are_sorted_have_no_doubles_and_write_patterns_literally(table: str) -> None:
    rows = toml.table(table)
    order = {
        "nvlink5": lambda row: (row["code"], row["unit"], row["v1_value"], row["v2_value"], row["status"]),
        "nvlink4": lambda row: (row["register"], row["kind"]),
        "gpu_kernel": lambda row: row["id"],
    }.get(table, lambda row: row["code"])
    assert sorted(rows, key=order) == rows
    assert len(rows) == len({order(row) for row in rows})
    text = toml.text(f"{table}.toml")
    assert [] == [one for one in text.splitlines() if one.startswith("pattern") and not one.startswith("pattern = '")]
    assert [] == [shape.pattern for shape in SHAPES[:1] if shape.search(text)]


def test_what_explain_needs_is_there_by_number() -> None:
    row = xid.row(79)
    assert row and ("xid-79", "P0", "debugging-guide.md § 7") == (row.id, row.priority, row.reference)
    assert None is xid.row(4000)
    switch = xid.switch_row(20034)
    assert switch and "sxid-20034" == switch.id


@pytest.mark.parametrize(
    ("text", "priority", "advice"),
    [
        (
            "Row Remapper Error: (0x000000000003f8c0) - All reserved rows for bank are remapped",
            "P0",
            "reboot_then_replace",
        ),
        (
            "Row Remapper: (0x3f8c0) - Attempting to remap a row that is already pending remapping. "
            "Remapping will occur when the GPU is reset",
            "P1",
            "reboot_after_job",
        ),
        ("DRAM Retirement failed due to pending bank remap at 0x000000000003f8c0", "P1", "reboot_after_job"),
        ("DRAM Retirement failed due to internal error at 0x000000000003f8c0", "P0", "reboot_then_replace"),
    ],
)
def test_64_of_a_repair_that_only_waits_is_no_failed_one(text: str, priority: str, advice: str) -> None:
    verdict = xid_decode.decode(line(64, text=text), xid_table.row(64), [], 595)
    assert (priority, advice) == (verdict.priority, verdict.advice)


def test_no_note_turns_off_firmware_that_the_open_driver_needs() -> None:
    row = xid_table.row(119)
    assert row is not None
    assert "open driver" in row.note
