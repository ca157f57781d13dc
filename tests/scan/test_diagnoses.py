"""The index of diagnoses: appended by root, read again years later, and never believed blindly."""

from __future__ import annotations

import json
import multiprocessing
import os
import time
from pathlib import Path
from typing import Any

import pytest

from hpslurm.core.finding import P0, P2, ROOT, Culprit, Diagnosis, Event, Evidence, Finding, Rule
from hpslurm.scan import diagnoses

NOV, DEC = 1795000000.0, 1796000000.0 + 2 * 86400
LOST = Diagnosis("gpu_fell_off_bus", "high", "why", Culprit(host="n3", gpu="GPU 2"))
UUID = "GPU-12345678-1234-1234-1234-123456789abc"
GONE = Finding(
    Rule("gpu-lost", P0, "GPU lost", "debugging-guide.md § 7", "gpu_fell_off_bus"),
    "GPU 2 gives no answer",
    (Evidence(f"NVML, GPU 2 ({UUID})", "GPU is lost"),),
)
CRASH = Event("python-traceback", ROOT, "/home/a/out", 3, "ValueError: bad", cause="app_error", weight=60)


def run_of(node: str, job: int = 7, when: float = DEC) -> dict[str, Any]:
    return {"job": job, "time": when, "node": node, "instance": f"i-{node}", "exit_code": "0:9"}


def of_job(folder: Path, job: int, end: float) -> list[diagnoses.Kept]:
    found, troubles = diagnoses.read([str(folder)], 0)
    assert [] == troubles
    return diagnoses.of_run(found[job], end)


def test_what_was_kept_is_read_again_and_the_last_word_counts(tmp_path: Path) -> None:
    folder = str(tmp_path)
    assert diagnoses.keep([folder], 7, NOV, LOST, "n[1-3]")
    assert diagnoses.keep([folder], 7, NOV, Diagnosis("app_error", "medium", ""))
    assert diagnoses.keep([folder], 8, DEC, LOST)
    found, troubles = diagnoses.read([folder], 0)
    assert [] == troubles
    assert {7: "app_error", 8: "gpu_fell_off_bus"} == {
        job: kept.cause for job in found for kept in diagnoses.of_run(found[job], found[job][0].time)
    }
    assert ("n3", "GPU 2", "high") == (found[8][0].host, found[8][0].gpu, found[8][0].confidence)
    assert ["2026-11.jsonl", "2026-12.jsonl"] == sorted(os.listdir(tmp_path / "diagnoses"))
    assert {8} == set(diagnoses.read([folder], DEC - 10)[0])


def test_a_folder_that_others_may_write_takes_nothing_and_gives_nothing(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    assert not diagnoses.keep([str(tmp_path)], 7, NOV, LOST)
    tmp_path.chmod(0o755)
    diagnoses.keep([str(tmp_path)], 7, NOV, LOST)
    (tmp_path / "diagnoses/2026-11.jsonl").chmod(0o666)
    found, (trouble,) = diagnoses.read([str(tmp_path)], 0)
    assert {} == found
    assert "only root may write" in trouble


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "diagnoses").mkdir()
    (tmp_path / "victim").write_text("kept\n")
    (tmp_path / "diagnoses/2026-11.jsonl").symlink_to(tmp_path / "victim")
    assert not diagnoses.keep([str(tmp_path)], 7, NOV, LOST)
    assert "kept\n" == (tmp_path / "victim").read_text()


def test_strange_lines_are_passed_over() -> None:
    good = {"type": "job_diagnosis", "job": 1, "time": 5, "cause": "x\x1b[31m", "culprit": {"host": 3}}
    bad = [{"type": "job_diagnosis", "job": "1", "time": 5}, {"type": "job_diagnosis", "job": 2, "time": -1}, [], 7]
    lines = "\n".join(["no json", *map(json.dumps, [*bad, good])])
    (kept,) = diagnoses.parse(lines)
    assert (1, "x [31m", "3") == (kept.job, kept.cause, kept.host)


def test_every_cause_says_what_it_speaks_against() -> None:
    assert "node" == diagnoses.blame("gpu_ecc")
    assert "job" == diagnoses.blame("gpu_oom")
    assert "unknown" == diagnoses.blame("a_cause_of_next_year")


# what epilogs keep


def test_each_node_keeps_what_it_saw_in_a_file_of_its_own(tmp_path: Path) -> None:
    assert diagnoses.keep_of_node(str(tmp_path), run_of("n1"), "n[1-3]", [CRASH], [])
    assert diagnoses.keep_of_node(str(tmp_path), run_of("n3"), "n[1-3]", [], [GONE])
    assert ["n1.jsonl", "n3.jsonl"] == sorted(os.listdir(tmp_path / "diagnoses/2026-12"))
    kept = {line.node: line for line in of_job(tmp_path, 7, DEC + 20)}
    assert ("app_error", "n[1-3]", ()) == (kept["n1"].cause, kept["n1"].nodes, kept["n1"].seen)
    seen = diagnoses.Seen("gpu-lost", "gpu_fell_off_bus", UUID, "GPU 2 gives no answer")
    assert ("i-n3", (seen,)) == (kept["n3"].instance, kept["n3"].seen)


def test_a_job_in_which_nothing_went_wrong_costs_no_line(tmp_path: Path) -> None:
    noise = Event("nccl-info", "noise", "/home/a/out", 1, "NCCL INFO Bootstrap")
    small = Finding(Rule("x-small", P2, "small", "debugging-guide.md § 7"), "little")
    assert not diagnoses.keep_of_node(str(tmp_path), run_of("n1"), "n1", [noise], [small])
    assert [] == os.listdir(tmp_path)


def test_a_report_that_found_a_cause_has_the_last_word_and_every_run_of_a_requeued_job_its_own(tmp_path: Path) -> None:
    diagnoses.keep_of_node(str(tmp_path), run_of("n1"), "n1", [CRASH], [])
    diagnoses.keep_of_node(str(tmp_path), run_of("n1", when=DEC + 7200), "n1", [], [GONE])
    assert ["app_error"] == [line.cause for line in of_job(tmp_path, 7, DEC)]
    assert ["gpu_fell_off_bus"] == [line.cause for line in of_job(tmp_path, 7, DEC + 7199)]
    diagnoses.keep([str(tmp_path)], 7, DEC, Diagnosis("undetermined", "low", ""))
    assert "app_error" in [line.cause for line in of_job(tmp_path, 7, DEC)]
    diagnoses.keep([str(tmp_path)], 7, DEC, LOST)
    assert [diagnoses.REPORT] == [line.source for line in of_job(tmp_path, 7, DEC)]


def test_epilogs_of_one_node_that_end_together_lose_no_line(tmp_path: Path) -> None:
    jobs = range(1, 41)
    fork = multiprocessing.get_context("fork")
    children = [fork.Process(target=_keeps, args=(str(tmp_path), job)) for job in jobs]
    for child in children:
        child.start()
    for child in children:
        child.join(60)
    lines = (tmp_path / "diagnoses/2026-12/n1.jsonl").read_text().splitlines()
    assert list(jobs) == sorted(json.loads(line)["job"] for line in lines)


def _keeps(folder: str, job: int) -> None:
    diagnoses.keep_of_node(folder, run_of("n1", job), "n1", [CRASH] * 20, [GONE] * 20)


def test_a_line_that_a_full_disk_cut_off_spoils_no_other(tmp_path: Path) -> None:
    diagnoses.keep_of_node(str(tmp_path), run_of("n1", 1), "n1", [CRASH], [])
    path = tmp_path / "diagnoses/2026-12/n1.jsonl"
    with path.open("a") as file:
        file.write('{"schema":1,"type":"job_dia')
    diagnoses.keep_of_node(str(tmp_path), run_of("n1", 2), "n1", [CRASH], [])
    assert [1, 2] == [kept.job for kept in diagnoses.parse(path.read_text())]


@pytest.mark.parametrize("way", ["diagnoses", "diagnoses/2026-12", "diagnoses/2026-12/n1.jsonl"])
def test_no_link_leads_an_epilog_elsewhere(tmp_path: Path, way: str) -> None:
    results, victim = tmp_path / "results", tmp_path / "victim"
    path = results / way
    path.parent.mkdir(parents=True)
    if way.endswith(".jsonl"):
        victim.write_text("kept\n")
    else:
        victim.mkdir()
    path.symlink_to(victim)
    with pytest.raises(OSError):
        diagnoses.keep_of_node(str(results), run_of("n1"), "n1", [CRASH], [])
    assert "kept\n" == victim.read_text() if way.endswith(".jsonl") else [] == os.listdir(victim)


def test_a_pipe_in_the_place_of_the_file_holds_nobody_up(tmp_path: Path) -> None:
    (tmp_path / "diagnoses/2026-12").mkdir(parents=True)
    os.mkfifo(tmp_path / "diagnoses/2026-12/n1.jsonl")
    with pytest.raises(PermissionError, match="not a regular file"):
        diagnoses.keep_of_node(str(tmp_path), run_of("n1"), "n1", [CRASH], [])


def test_a_node_writes_so_much_in_a_month_and_no_more(tmp_path: Path) -> None:
    path = tmp_path / "diagnoses/2026-12/n1.jsonl"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"")
    os.truncate(path, diagnoses.MOST_OF_NODE)
    diagnoses.keep_of_node(str(tmp_path), run_of("n1"), "n1", [CRASH], [])
    with pytest.raises(OSError, match="no more than"):
        diagnoses.keep_of_node(str(tmp_path), run_of("n1"), "n1", [CRASH], [])


def test_a_hostile_output_makes_a_short_line(tmp_path: Path) -> None:
    wide = Event(
        "python-traceback", ROOT, "/" + "\x1b" * 5000, 3, "x" * 9000, host="h" * 9000, cause="app_error", weight=60
    )
    diagnoses.keep_of_node(str(tmp_path), run_of("n1"), "n[" + "1," * 9000 + "1]", [wide] * 200, [GONE] * 200)
    (line,) = (tmp_path / "diagnoses/2026-12/n1.jsonl").read_bytes().splitlines()
    assert len(line) < 20_000
    assert b"\x1b" not in line


def test_old_months_go_with_the_first_line_of_a_new_one(tmp_path: Path) -> None:
    folder = str(tmp_path)
    now = time.time()
    year = 365 * 86400
    for when in (now - 3 * year, now - year):
        diagnoses.keep([folder], 1, when, LOST)
        diagnoses.keep_of_node(folder, run_of("n1", when=when), "n1", [CRASH], [], keep_days=0)
    (tmp_path / "diagnoses/notes").mkdir()
    diagnoses.keep_of_node(folder, run_of("n1", when=now), "n1", [CRASH], [], keep_days=730)
    left, this = (time.strftime("%Y-%m", time.gmtime(when)) for when in (now - year, now))
    assert sorted([left, f"{left}.jsonl", this, "notes"]) == sorted(os.listdir(tmp_path / "diagnoses"))


def test_a_line_in_another_nodes_file_is_not_believed(tmp_path: Path) -> None:
    diagnoses.keep_of_node(str(tmp_path), run_of("n1"), "n[1-2]", [], [GONE])
    os.rename(tmp_path / "diagnoses/2026-12/n1.jsonl", tmp_path / "diagnoses/2026-12/n2.jsonl")
    assert ({}, []) == diagnoses.read([str(tmp_path)], 0)
