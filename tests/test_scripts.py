"""The entry scripts: whatever stands in for Python, they end in time, and well."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

REPO = Path(__file__).parent.parent
SCRIPTS = sorted([*REPO.glob("prolog.d/*"), *REPO.glob("epilog.d/*"), *REPO.glob("healthcheck.d/*")])
ENV = {"SLURM_JOB_ID": "77", "SLURM_JOB_GID": str(os.getgid()), "SLURMD_NODENAME": "n1"}
Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    """Run a copy of a script with its assignments changed, in a process group as Slurm does."""
    groups = []

    def run_script(script: Path, **values: str) -> subprocess.CompletedProcess[str]:
        text = script.read_text()
        for name, value in {"LOG": str(tmp_path / "log"), "LIMIT": "2", **values}.items():
            text, count = re.subn(rf"^{name}=.*$", lambda _, to=f"{name}={value}": to, text, flags=re.M)
            assert count == 1
        copy = tmp_path / script.name
        copy.write_text(text)
        copy.chmod(0o755)
        process = subprocess.Popen(
            [copy], env=ENV, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        groups.append(process.pid)
        out, _ = process.communicate(timeout=30)
        return subprocess.CompletedProcess([], process.returncode, out)

    yield run_script
    for group in groups:  # what Slurm does when a hook ends
        try:
            os.killpg(group, 9)
        except ProcessLookupError:
            continue


def stand_in(tmp_path: Path, body: str) -> str:
    path = tmp_path / "python"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return str(path)


def test_nothing_but_the_one_script_is_in_a_hook_folder() -> None:
    assert ["epilog.d/hpslurm.sh", "prolog.d/hpslurm.sh"] == [
        str(path.relative_to(REPO)) for path in SCRIPTS if path.parent.name in ("prolog.d", "epilog.d")
    ]
    assert all(os.access(path, os.X_OK) for path in SCRIPTS)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.parent.name)
class TestEveryScript:
    def test_a_python_that_is_not_there_is_no_trouble(self, run: Run, tmp_path: Path, script: Path) -> None:
        assert 0 == run(script, PYTHON="/nonexistent/bin/python").returncode
        assert "/nonexistent/bin/python" in (tmp_path / "log").read_text()

    def test_a_python_without_hpslurm_is_no_trouble(self, run: Run, tmp_path: Path, script: Path) -> None:
        assert 0 == run(script, PYTHON="/usr/bin/python3").returncode
        assert "hpslurm" in (tmp_path / "log").read_text()

    def test_a_python_that_hangs_and_ignores_signals_is_left_behind(
        self, run: Run, tmp_path: Path, script: Path
    ) -> None:
        python = stand_in(tmp_path, "trap '' TERM INT HUP; sleep 60; echo drain")
        began = time.monotonic()
        assert 0 == run(script, PYTHON=python, LIMIT="1").returncode
        assert time.monotonic() - began < 10
        assert "no answer within 1 s, job goes on" in (tmp_path / "log").read_text()

    def test_a_crash_is_no_trouble(self, run: Run, tmp_path: Path, script: Path) -> None:
        assert 0 == run(script, PYTHON=stand_in(tmp_path, "kill -SEGV $$")).returncode

    def test_the_exit_code_of_python_does_not_count(self, run: Run, tmp_path: Path, script: Path) -> None:
        assert 0 == run(script, PYTHON=stand_in(tmp_path, "echo ok; exit 1")).returncode

    def test_a_log_that_cannot_be_opened_does_not_stop_the_look(self, run: Run, tmp_path: Path, script: Path) -> None:
        python = stand_in(tmp_path, f"touch {tmp_path}/looked; echo ok")
        assert 0 == run(script, PYTHON=python, LOG="/nonexistent/log").returncode
        assert (tmp_path / "looked").exists()

    def test_a_log_that_hangs_is_left_behind(self, run: Run, tmp_path: Path, script: Path) -> None:
        os.mkfifo(tmp_path / "fifo")
        assert 0 == run(script, PYTHON=stand_in(tmp_path, "echo ok"), LOG=str(tmp_path / "fifo"), LIMIT="1").returncode

    def test_a_child_that_keeps_the_output_open_does_not_hold_the_hook(
        self, run: Run, tmp_path: Path, script: Path
    ) -> None:
        began = time.monotonic()
        assert 0 == run(script, PYTHON=stand_in(tmp_path, "sleep 60 & echo ok"), LIMIT="20").returncode
        assert time.monotonic() - began < 15

    def test_it_prints_nothing_to_slurm(self, run: Run, tmp_path: Path, script: Path) -> None:
        assert "" == run(script, PYTHON=stand_in(tmp_path, "echo ok")).stdout

    def test_the_real_hook_leaves_a_record(self, run: Run, tmp_path: Path, script: Path) -> None:
        assert 0 == run(script, PYTHON=sys.executable, LIMIT="20", ARGS=f"(--results {tmp_path}/results)").returncode
        hook = re.sub(r"\.d$|check\.d$", "", script.parent.name)
        assert (tmp_path / f"results/nodes/n1.{hook}.jsonl").read_text().count('"type":"end"') == 1


PROLOG = REPO / "prolog.d/hpslurm.sh"
EPILOG = REPO / "epilog.d/hpslurm.sh"


def test_the_prolog_says_drain_only_for_exactly_that_word(run: Run, tmp_path: Path) -> None:
    codes = {
        word: run(PROLOG, PYTHON=stand_in(tmp_path, f"printf '{word}\\n'")).returncode
        for word in ("drain", "drained", "drain now", "Drain", " drain", "ok", "", "ok\\ndrain")
    }
    assert {"drain": 1} == {word: code for word, code in codes.items() if code}


def test_a_drain_that_comes_too_late_does_not_count(run: Run, tmp_path: Path) -> None:
    assert 0 == run(PROLOG, PYTHON=stand_in(tmp_path, "sleep 3; echo drain"), LIMIT="1").returncode


def test_the_epilog_never_fails(run: Run, tmp_path: Path) -> None:
    assert 0 == run(EPILOG, PYTHON=stand_in(tmp_path, "echo drain")).returncode


def test_the_kill_switch_is_the_first_thing_that_is_looked_at() -> None:
    for script in SCRIPTS:
        body = [line for line in script.read_text().splitlines() if line and not line.startswith("#")]
        after = [line for line in body if not re.match(r"[A-Z]+=", line)]
        assert "[ -e /run/hpslurm.off ] && exit 0" == after[0]
