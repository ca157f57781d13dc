"""hpslurm scan on the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from hpslurm.cli.scan import command

OOM = "[rank2]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB.\n"
VICTIM = "[rank0]: torch.distributed.DistBackendError: NCCL error in: NCCLUtils.cpp:93, remote process exited or there was a network error\n"  # noqa: E501


def scan(*words: str):
    return CliRunner().invoke(command, list(words), standalone_mode=False)


@pytest.fixture
def log(tmp_path: Path) -> str:
    path = tmp_path / "job.out"
    path.write_text("step 1 loss 2.0\n" + VICTIM + OOM)
    return str(path)


def test_the_text_names_cause_culprit_line_victims_section_and_command(log: str):
    out = scan("-v", log).output
    for wanted in (
        "gpu_oom",
        "rank 2",
        "job.out:3",
        "like peer_exit",
        "debugging-guide.md § 11",
        "hpslurm explain gpu_oom",
        "Suggested command (run this yourself)",
    ):
        assert wanted in out


def test_json_has_exactly_one_diagnosis_with_the_public_fields(log: str):
    lines = [json.loads(line) for line in scan("--json", log).output.splitlines()]
    (diagnosis,) = [line for line in lines if line["type"] == "diagnosis"]
    assert ("gpu_oom", 2, 3, "high") == (
        diagnosis["cause"],
        diagnosis["culprit"]["rank"],
        diagnosis["line"],
        diagnosis["confidence"],
    )
    assert {"cause", "culprit", "file", "line", "confidence", "why", "missing"} <= set(diagnosis)
    assert {"rank", "local_rank", "host", "gpu", "pid", "peer"} == set(diagnosis["culprit"])
    assert ("run", "end", {1}) == (lines[0]["type"], lines[-1]["type"], {line["schema"] for line in lines})


def test_standard_input_is_read():
    words = [sys.executable, "-c", "from hpslurm.cli import main; main()", "scan", "-"]
    done = subprocess.run(words, input=OOM.encode(), capture_output=True, check=True, cwd=Path(__file__).parents[2])
    assert b"gpu_oom" in done.stdout


def test_a_folder_is_read(log: str):
    assert "gpu_oom" in scan(str(Path(log).parent)).output


def test_healthy_and_undetermined_are_proper_answers(tmp_path: Path):
    path = tmp_path / "a.log"
    path.write_text("step 1 loss 2.0\nstep 2 loss 1.9\n")
    assert "[PASS] healthy" in scan("-v", str(path)).output
    assert scan(str(path)).output.startswith("[PASS] nothing is wrong in these logs  (")
    path.write_text("")
    assert "[WARN] undetermined" in scan("-v", str(path)).output
    assert scan(str(path)).output.startswith("[WARN] the cause is not clear from these logs  (")


@pytest.mark.parametrize(
    "words, code",
    [([], 0), (["--fail-on", "P0"], 3), (["--fail-on", "P2"], 3), (["--fail-on", "never"], 0)],
    ids=["default", "P0", "P2", "never"],
)
def test_the_exit_code_follows_fail_on(log: str, words: list[str], code: int):
    assert code == scan(*words, log).return_value


def test_strict_counts_undetermined(tmp_path: Path):
    path = tmp_path / "a.log"
    path.write_text("")
    assert (0, 3) == (scan(str(path)).return_value, scan("--strict", str(path)).return_value)


def test_nothing_to_read_is_an_error_that_names_the_file(tmp_path: Path):
    result = scan(str(tmp_path / "none.log"))
    assert "none.log: No such file" in str(result.exception)


def test_one_unreadable_file_beside_a_good_one_is_named_as_missing(log: str):
    out = scan(log, "/no/such.log").output
    assert "gpu_oom" in out
    assert "/no/such.log" in out


def test_escapes_in_a_log_do_not_reach_the_terminal(tmp_path: Path):
    path = tmp_path / "a.log"
    path.write_text("\x1b]0;owned\x07\x1b[2J" + OOM)
    assert "\x1b" not in scan(str(path)).output
