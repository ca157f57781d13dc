"""Completion by real shells: what a press of tab would offer."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

BASH = """
eval "$(hpslurm completion bash)"
COMP_WORDS=({words}) COMP_CWORD={at}
{function} {program}
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.fixture
def programs(tmp_path: Path) -> dict[str, str]:
    """An environment in which our programs are found by their names, as after an installation."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, module in (("hpslurm", "hpslurm.cli"), ("hpslurm-check", "hpslurm.cli.check")):
        (folder / name).write_text(f"#!{sys.executable}\nfrom {module} import main\nmain()\n")
        (folder / name).chmod(0o755)
    return {"PATH": f"{folder}:{os.environ['PATH']}", "HOME": str(tmp_path)}


def bash(programs: dict[str, str], *words: str) -> list[str]:
    function = "_hpslurm_completion" if words[0] == "hpslurm" else "_hpslurm_check_completion"
    quoted = " ".join(f"'{word}'" for word in words)
    script = BASH.format(words=quoted, at=len(words) - 1, function=function, program=words[0])
    done = subprocess.run(["bash", "-c", script], env=programs, capture_output=True, text=True, timeout=60)
    assert "" == done.stderr
    return done.stdout.split()


def test_bash_completes_commands(programs):
    assert ["diagnose", "doctor"] == [one for one in bash(programs, "hpslurm", "d") if one.startswith("d")]


def test_bash_completes_options_and_their_values(programs):
    assert ["--fail-on"] == bash(programs, "hpslurm", "doctor", "--fail")
    assert ["P0", "P1", "P2"] == bash(programs, "hpslurm", "doctor", "--fail-on", "P")
    assert ["--all-nodes"] == bash(programs, "hpslurm-check", "--all")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_takes_its_lines_without_complaint(programs, shell):
    done = subprocess.run(["hpslurm", "completion", shell], env=programs, capture_output=True, text=True, timeout=60)
    assert (0, "") == (done.returncode, done.stderr)
    assert all(name in done.stdout for name in ("_HPSLURM_COMPLETE", "_HPSLURM_CHECK_COMPLETE"))
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed: its lines were printed, not tried")
    checked = subprocess.run([shell, "-n"], input=done.stdout, env=programs, capture_output=True, text=True, timeout=60)
    assert (0, "") == (checked.returncode, checked.stderr)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_what_each_shell_asks_for_is_answered(programs, shell):
    words = {"COMP_WORDS": "hpslurm do", "COMP_CWORD": "do" if shell == "fish" else "1"}
    asked = {**programs, "_HPSLURM_COMPLETE": f"{shell}_complete", **words}
    done = subprocess.run(["hpslurm"], env=asked, capture_output=True, text=True, timeout=60)
    assert "doctor" in done.stdout, done.stderr
    assert "diagnose" not in done.stdout


def test_a_shell_that_we_do_not_know_is_a_wrong_command_line(programs):
    done = subprocess.run(["hpslurm", "completion", "ksh"], env=programs, capture_output=True, text=True, timeout=60)
    assert (2, True) == (done.returncode, "'bash', 'zsh', 'fish'" in done.stderr)
