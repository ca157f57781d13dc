"""DCGM's log files on the node: what counts, of which GPU, and for how long."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from hpslurm.core.policy import Policy
from hpslurm.core.probe import Skip
from hpslurm.node import dcgm_log
from hpslurm.sources.host import Host
from tests.scan.cases import events_of

SAID = (
    "A pending retired page has been detected in GPU 3.",
    "SRAM Threshold Count exceeded on GPU 12: 7",
    "Found 12 faulty memory elements on GPU 3",
    "GPU 3 exceeded uncorrectable row remap limit with 512 remapped rows",
    "GPU had an uncontained error (XID 95)",
    "GPU 3's NvLink link 4 is currently down",
    "Only 17 NvLinks are up out of the expected 18",
    "Detected fatal errors on NvSwitch 2 link 5",
    "GPU 3 was unsuccessfully written to by GPU 2 in a peer-to-peer test: no access",
    "Detected a miscompare failure in the L1 cache.",
    "Found 3 NaN-value memory elements on GPU 3",
    "Detected more than 8 PCIe replays per minute for GPU 3 : 12",
    "Detected 12.00 gflops for GPU 3 which is below the threshold 20.00",
    "A corrupt InfoROM has been detected in GPU 3.",
)


def line(text: str, ago: float = 60.0, level: str = "ERROR") -> str:
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(time.time() - ago))
    return f"{when}.123 {level:<5} [1234:1240] {text} [PluginTest.cpp:181] [AddError]\n"


@pytest.mark.parametrize("text", SAID)
def test_what_scan_reads_in_dcgms_log_the_probe_reads_too(text: str) -> None:
    assert 1 == len([event for event in events_of(line(text).encode()) if event.cause])
    assert 1 == len(list(dcgm_log.lines_of(line(text))))


@pytest.mark.parametrize(
    "text", ["Persistence mode for GPU 3 is disabled.", "Skipping test memory because ECC is not enabled on GPU 3"]
)
def test_software_and_skipped_tests_are_no_fault_of_a_gpu(text: str) -> None:
    assert [] == list(dcgm_log.lines_of(line(text)))


def test_what_it_merely_tells_is_no_fault() -> None:
    assert [] == list(dcgm_log.lines_of(line(SAID[0], level="INFO")))


def test_the_entity_of_the_line_names_the_gpu_and_an_nvswitch_is_none() -> None:
    text = "Test memory: Found 12 faulty memory elements (grpId:{}, entityId:5)"
    assert ["5", ""] == [found.gpu for group in (1, 3) for found in dcgm_log.lines_of(line(text.format(group)))]


def looked(tmp_path: Path, text: str, **env: str) -> list[str]:
    folder = tmp_path / "var/log/nvidia-dcgm"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "nvvs.log").write_text(text)
    host = Host(str(tmp_path), env=env)
    return [finding.detail for finding in dcgm_log.judge(dcgm_log.collect(host), Policy())]


def test_a_line_counts_for_a_day_before_the_newest_of_a_saved_machine(tmp_path: Path) -> None:
    old, new = line(SAID[2], ago=25 * 3600 + 60), line(SAID[0])
    (detail,) = looked(tmp_path, old + new)
    assert detail.startswith("GPU 3: 1 lines in /var/log/nvidia-dcgm/nvvs.log, newest: A pending")


def test_during_a_job_only_its_own_time_counts(tmp_path: Path) -> None:
    text = line(SAID[2], ago=600)
    assert 1 == len(looked(tmp_path, text, SLURM_JOB_START_TIME=str(int(time.time()) - 700)))
    assert [] == looked(tmp_path, text, SLURM_JOB_START_TIME=str(int(time.time()) - 500))


def test_of_a_large_log_the_end_is_read_from_a_whole_line_on(tmp_path: Path) -> None:
    filler = line("nothing of interest", level="INFO") * (dcgm_log.END // 60)
    (detail,) = looked(tmp_path, line(SAID[2]) + filler + line(SAID[0]))
    assert "1 lines" in detail


def test_without_a_log_there_is_nothing_to_look_at(tmp_path: Path) -> None:
    with pytest.raises(Skip):
        dcgm_log.collect(Host(str(tmp_path)))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read all")
def test_a_log_that_may_not_be_read_is_unknown(tmp_path: Path) -> None:
    looked(tmp_path, "")
    (tmp_path / "var/log/nvidia-dcgm/nvvs.log").chmod(0)
    with pytest.raises(dcgm_log.Unknown):
        dcgm_log.collect(Host(str(tmp_path)))
