"""The index of diagnoses: appended by root, read again years later, and never believed blindly."""

from __future__ import annotations

import json
import os
from pathlib import Path

from hpslurm.core.finding import Culprit, Diagnosis
from hpslurm.job import diagnoses

NOV, DEC = 1795000000.0, 1796000000.0 + 2 * 86400
LOST = Diagnosis("gpu_fell_off_bus", "high", "why", Culprit(host="n3", gpu="GPU 2"))


def test_what_was_kept_is_read_again_and_the_last_word_counts(tmp_path: Path) -> None:
    folder = str(tmp_path)
    assert diagnoses.keep([folder], 7, NOV, LOST, "n[1-3]")
    assert diagnoses.keep([folder], 7, NOV, Diagnosis("app_error", "medium", ""))
    assert diagnoses.keep([folder], 8, DEC, LOST)
    found, troubles = diagnoses.read([folder], 0)
    assert [] == troubles
    assert {7: "app_error", 8: "gpu_fell_off_bus"} == {job: kept.cause for job, kept in found.items()}
    assert ("n3", "GPU 2", "high") == (found[8].host, found[8].gpu, found[8].confidence)
    assert 2 == len((tmp_path / "diagnoses/2026-11.jsonl").read_text().splitlines())
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
