"""One GPU's history, as the command prints it."""

from __future__ import annotations

import json
import os
from pathlib import Path

from click.testing import CliRunner

from hpslurm.cli.report import command
from hpslurm.core import records
from hpslurm.core.finding import P0, Evidence, Finding, Rule
from hpslurm.core.policy import Policy
from hpslurm.core.probe import FAIL, PASS, Result

UUID = "GPU-12345678-1234-1234-1234-123456789abc"
LOST = Rule("gpu-lost", P0, "GPU lost", "debugging-guide.md § 7")


def leave(folder: Path, job: str, boot: str, *found: Finding) -> None:
    writer = records.Writer(str(folder), "n1", "epilog", job, os.getgid())
    results = [Result("gpu_count", FAIL if found else PASS, facts={"uuids": [f"GPU 3 ({UUID})"]}, findings=found)]
    for line in records.lines(
        Policy(node="n1", instance="i-0123456789abcdef0"), {"SLURM_JOB_ID": job}, "epilog", results
    ):
        writer.write({**line, "boot": boot} if line["type"] == "run" else line)
    writer.close()


def show(folder: Path, *words: str) -> tuple[int, str]:
    done = CliRunner().invoke(command, ["--results", str(folder), *words], standalone_mode=False)
    if done.exception:
        return getattr(done.exception, "exit_code", -1), str(done.exception)
    return 0, done.output


def test_the_same_fault_after_a_reboot_speaks_for_a_replacement(tmp_path: Path) -> None:
    lost = Finding(LOST, "1 GPU lost", (Evidence(f"GPU 3 ({UUID})", "lost"),), (), "n1")
    leave(tmp_path, "1", "boot-a", lost)
    leave(tmp_path, "2", "boot-b")
    leave(tmp_path, "3", "boot-b", lost)
    code, text = show(tmp_path, "--gpu", UUID)
    assert 0 == code
    assert "speaks for a replacement" in text.splitlines()[0]
    assert 3 == sum("epilog" in line for line in text.splitlines())
    line = json.loads(show(tmp_path, "--gpu", UUID, "--json")[1])
    assert ("gpu", 3) == (line["type"], len(line["sightings"]))


def test_a_gpu_that_no_record_names_is_an_error_that_says_what_is_known(tmp_path: Path) -> None:
    leave(tmp_path, "1", "boot-a")
    code, text = show(tmp_path, "--gpu", UUID.replace("GPU-1", "GPU-9"))
    assert 1 == code
    assert "1 other GPU" in text


def test_a_text_that_is_no_uuid_and_a_job_beside_it_are_wrong_command_lines(tmp_path: Path) -> None:
    assert 2 == show(tmp_path, "--gpu", "3")[0]
    assert 2 == show(tmp_path, "12", "--gpu", UUID)[0]
