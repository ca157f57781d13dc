"""What DCGM says of GPUs: the JSON and the tables of ``dcgmi diag``, and its log files."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.scan.cases import diagnose, events_of


def diag(status: str, *, category: int | None = 10, test: str = "memory", gpu: int = 3, version: int = 4) -> str:
    """What ``dcgmi diag -j`` prints; DCGM 3 names the GPU as text and may have no category."""
    warning: dict[str, Any] = {"error_id": 46, "error_severity": 2, "warning": "see the log"}
    if category is not None:
        warning["error_category"] = category
    results = []
    for number in range(8):
        entity = {"entity_group": "GPU", "entity_group_id": 1, "entity_id": number}
        result: dict[str, Any] = dict(entity if version == 4 else {"gpu_id": str(number)})
        result["status"] = status if number == gpu else "Pass"
        if number == gpu and status != "Pass":
            result["warnings"] = [warning]
        results.append(result)
    summary = {"test_summary": {"status": status}} if version == 4 else {}
    tests = [{"name": "software", "results": [{"status": "Pass"}]}, {"name": test, "results": results, **summary}]
    name = "DCGM Diagnostic" if version == 4 else "DCGM GPU Diagnostic"
    return json.dumps({name: {"test_categories": [{"category": "Hardware", "tests": tests}]}}, indent=1, sort_keys=True)


def causes(text: str) -> list[tuple[str, str]]:
    return [(event.cause, event.gpu) for event in events_of(text.encode()) if event.pattern.startswith("dcgm")]


@pytest.mark.parametrize("version", [3, 4])
@pytest.mark.parametrize(
    ("category", "cause"),
    [
        (10, "gpu_ecc"),
        (11, "gpu_nvlink"),
        (12, "gpu_nvlink"),
        (13, "slow_bandwidth"),
        (15, "gpu_app_fault"),
        (9, "straggler"),
    ],
)
def test_the_category_of_a_failed_test_is_the_cause_and_its_gpu_the_culprit(
    category: int, cause: str, version: int
) -> None:
    assert [(cause, "3")] == causes(diag("Fail", category=category, version=version))


def test_without_a_category_the_test_decides() -> None:
    assert [("data_corruption", "5")] == causes(diag("Fail", category=None, test="diagnostic", gpu=5, version=3))
    assert [("gpu_nvlink", "5")] == causes(diag("FAIL", category=None, test="nvbandwidth", gpu=5))


@pytest.mark.parametrize("category", [3, 4, 5, 6, 7, 8, 16])
def test_what_dcgm_counts_as_software_is_no_gpus_fault(category: int) -> None:
    assert [] == causes(diag("Fail", category=category))


@pytest.mark.parametrize("status", ["Pass", "Skip", "Warn", "Not Run"])
def test_only_a_failure_counts_and_its_summary_is_no_second_one(status: str) -> None:
    assert [] == causes(diag(status))


def test_json_on_one_line_is_read_as_well() -> None:
    compact = json.dumps(json.loads(diag("Fail")))
    diagnosis = diagnose(compact.encode())
    assert ("gpu_ecc", "3") == (diagnosis.cause, diagnosis.culprit and diagnosis.culprit.gpu)


def test_another_programs_status_is_none_of_dcgm() -> None:
    assert [] == causes('{"name": "memory", "status": "Fail"}\n')


def test_the_table_of_dcgm_4_names_each_gpu_below_its_test() -> None:
    table = "| memory                    | Fail                                           |\n"
    for number in range(8):
        status = "Fail" if number == 6 else "Pass"
        table += f"|                           | {f'GPU{number}: {status}':<46} |\n"
        if number == 6:
            table += "| Warning: GPU6             | see the log                                    |\n"
    assert ("gpu_ecc", "6") in causes(table)
    assert {"", "6"} == {gpu for _, gpu in causes(table)}


@pytest.mark.parametrize(
    ("text", "cause", "gpu"),
    [
        ("A pending retired page has been detected in GPU 3.", "gpu_ecc", "3"),
        ("SRAM Threshold Count exceeded on GPU 12: 7", "gpu_ecc", "12"),
        ("Found 12 faulty memory elements on GPU 3", "gpu_ecc", "3"),
        ("GPU 3 exceeded uncorrectable row remap limit with 512 remapped rows", "gpu_ecc", "3"),
        ("GPU had an uncontained error (XID 95)", "gpu_ecc", ""),
        ("GPU 3's NvLink link 4 is currently down", "gpu_nvlink", "3"),
        ("Only 17 NvLinks are up out of the expected 18", "gpu_nvlink", ""),
        ("Detected fatal errors on NvSwitch 2 link 5", "gpu_nvlink", ""),
        ("GPU 3 was unsuccessfully written to by GPU 2 in a peer-to-peer test: no access", "gpu_nvlink", "3"),
        ("Detected a miscompare failure in the L1 cache.", "data_corruption", ""),
        ("Found 3 NaN-value memory elements on GPU 3", "data_corruption", "3"),
        ("Detected more than 8 PCIe replays per minute for GPU 3 : 12", "slow_bandwidth", "3"),
        ("Detected 12.00 gflops for GPU 3 which is below the threshold 20.00", "straggler", "3"),
        ("A corrupt InfoROM has been detected in GPU 3.", "gpu_app_fault", "3"),
    ],
)
def test_a_line_of_dcgms_log_is_a_finding(text: str, cause: str, gpu: str) -> None:
    line = f"2026-11-30 12:34:56.789 ERROR [1234:1240] {text} [/workspaces/dcgm/nvvs/Plugin.cpp:310] [runTest]\n"
    assert [(cause, gpu)] == causes(line)
    assert cause == diagnose(line.encode(), "nvvs.log").cause


@pytest.mark.parametrize(
    "text",
    [
        "Skipping test memory because ECC is not enabled on GPU 3",
        "Persistence mode for GPU 3 is disabled.",
        "Test was aborted early due to user signal",
        "Detected 12.00 gflops for GPU 3",
        "GPU 3's NvLink link 4 is currently up",
    ],
)
def test_what_is_no_fault_in_dcgms_log_is_none(text: str) -> None:
    assert [] == causes(
        f"2026-11-30 12:34:56.789 INFO  [1234:1240] {text} [/workspaces/dcgm/nvvs/Plugin.cpp:31] [go]\n"
    )
