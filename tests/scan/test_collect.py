"""From files to events: which names are ranks, what is folded, and where a bound lies."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpslurm.scan import collect
from hpslurm.scan.collect import scan
from hpslurm.scan.reason import reason
from tests.scan.cases import diagnose, events_of

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB.\n"


def ranks(folder: Path, *names: str) -> list[int | None]:
    for name in names:
        (folder / name).write_text(OOM)
    return [event.rank for event in scan([str(folder)]).result() if event.pattern == "cuda-oom"]


@pytest.mark.parametrize("names, wanted", [
    (("0.log", "1.log", "2.log"), [0, 1, 2]),
    (("train-0.out", "train-1.out"), [0, 1]),
    (("train-0.out", "train-3.out"), [0, 3]),  # few gaps: below twice the number of files
    (("train-0.out", "train-4.out"), [None, None]),
    (("1.log", "2.log"), [None, None]),  # not from 0
    (("0.log",), [None]),  # alone
    (("slurm-4711.out",), [None]),
    (("slurm-4711.out", "slurm-4712.out"), [None, None]),
    (("rank_4711.log",), [4711]),  # the name says so
])  # fmt: skip
def test_numbers_in_names_are_ranks_where_they_count_from_0(tmp_path: Path, names: tuple[str, ...], wanted: list[int]):
    assert wanted == ranks(tmp_path, *names)


def test_the_jobs_number_is_nobodys_rank(tmp_path: Path):
    (tmp_path / "slurm-4711.out").write_text("slurmstepd: error: Detected 1 oom_kill event in StepId=4711.0.\n")
    diagnosis = reason(scan([str(tmp_path / "slurm-4711.out")]).result())
    assert "host_oom" == diagnosis.cause
    assert diagnosis.culprit is None or diagnosis.culprit.rank is None


def test_of_one_kind_so_many_speakers_are_told_apart_and_the_others_counted():
    lines = "".join(f"[rank{rank}]: {OOM}" for rank in range(collect.SPEAKERS + 9))
    events = [event for event in events_of(lines.encode()) if event.pattern == "cuda-oom"]
    assert (64 + 1, 9) == (len(events), max(event.count for event in events))


def test_so_many_unknown_lines_of_a_file_are_kept():
    words = "".join(f"widget {number} failed to {chr(97 + number % 26)}{number}\n" for number in range(520))
    assert 500 == sum(event.count for event in events_of(words.encode()) if event.pattern.startswith("trouble"))


def test_of_work_that_is_told_again_and_again_the_latest_counts():
    text = "".join(f"[2025-01-10 15:30:{second:02d}] Saving checkpoint to /fsx\n" for second in (1, 2, 3))
    assert [3] == [event.line for event in events_of(text.encode()) if event.pattern == "busy"]


def test_lines_around_a_trigger_are_looked_at_wherever_they_stand():
    filling = "nothing of interest is said in this line of the log at all\n" * 3000
    table = "  {size}  {count}  float  sum  -1  100.0 1.0 {bw} 0  100.0 1.0 {bw} 0\n"
    rows = "".join(table.format(size=size, count=size // 4, bw=bw) for size, bw in ((1 << 20, 90.0), (1 << 21, 1.0)))
    half = "    time   algbw   busbw #wrong"
    head = f"#       size         count      type   redop    root {half} {half}\n"
    events = events_of((filling + head + rows + filling).encode())
    assert [3003] == [event.line for event in events if event.pattern == "tests-slow"]


@pytest.mark.parametrize("service, cause", [("sslh", "undetermined"), ("python", "rendezvous_dns")])
def test_what_a_system_service_says_of_its_own_names_is_no_cause_of_a_job(service: str, cause: str):
    line = f"Aug 25 19:38:05 n1 {service}[920]: Name or service not known: worker-7\n"
    assert cause == diagnose(line.encode()).cause


@pytest.mark.parametrize("line, cause", [
    ("[  812.123456] pci 0005:01:00.0: 15 Gb/s available PCIe bandwidth, limited by PCIe x2 link", "healthy"),
    ("[  812.123456] mlx5_core 0005:01:00.0: 15 Gb/s available PCIe bandwidth, limited by PCIe x2 link",
     "straggler"),
])  # fmt: skip
def test_a_narrow_link_counts_where_the_driver_says_that_it_is_a_network_card_s(line: str, cause: str):
    assert cause == diagnose(line.encode() + b"\n").cause


@pytest.mark.parametrize("driver, confidence", [("e1000e", "low"), ("ice", "high")])
def test_a_link_of_an_office_network_s_card_says_little(driver: str, confidence: str):
    line = f"[ 5306.653879] {driver} 0000:00:1f.6 enp0s31f6: NIC Link is Down\n"
    assert ("network_link", confidence) == (diagnose(line.encode()).cause, diagnose(line.encode()).confidence)
