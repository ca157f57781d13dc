"""The entry scripts: whatever stands in for Python, they end in time, and well."""

from __future__ import annotations

import fcntl
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.test_hosts import build

REPO = Path(__file__).parent.parent
SCRIPTS = sorted([*REPO.glob("prolog.d/*"), *REPO.glob("epilog.d/*"), *REPO.glob("healthcheck.d/*")])
PROLOG = REPO / "prolog.d/hpslurm.sh"
EPILOG = REPO / "epilog.d/hpslurm.sh"
HEALTH = REPO / "healthcheck.d/hpslurm.sh"
ENV = {"SLURM_JOB_ID": "77", "SLURM_JOB_GID": str(os.getgid()), "SLURMD_NODENAME": "n1"}
Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    """Run a copy of a script with its assignments changed, in a process group as Slurm does."""
    groups = []

    def run_script(script: Path, off: Path | None = None, **values: str) -> subprocess.CompletedProcess[str]:
        text = script.read_text().replace("-e /run/hpslurm.off ]", f"-e {off or tmp_path / 'off'} ]")
        if script == HEALTH:
            values = {"LOCK": str(tmp_path / "lock"), **values}
        else:
            values = {"STUCK": str(tmp_path / "stuck"), **values}
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


@pytest.mark.parametrize("script", [PROLOG, EPILOG], ids=("prolog", "epilog"))
def test_where_one_hangs_in_the_kernel_a_second_is_not_started(tmp_path: Path, run: Run, script: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    hang = (
        f"os.posix_spawn('/bin/true', ['true'], {{}}, file_actions=[(os.POSIX_SPAWN_OPEN, 0, '{tmp_path}/fifo', 0, 0)])"
    )
    hung = subprocess.Popen([sys.executable, "-c", f"import os; {hang}"], start_new_session=True)
    try:
        until = time.monotonic() + 10
        while " D " not in Path(f"/proc/{hung.pid}/stat").read_text() and time.monotonic() < until:
            time.sleep(0.01)
        (tmp_path / "stuck").write_text(f"{hung.pid}\n")
        python = stand_in(tmp_path, f"touch {tmp_path}/started; echo drain")
        assert 0 == run(script, PYTHON=python, STUCK=str(tmp_path / "stuck")).returncode
        assert not (tmp_path / "started").exists()
    finally:
        os.killpg(hung.pid, 9)
        hung.wait()
    run(script, PYTHON=python, STUCK=str(tmp_path / "stuck"))  # it is gone: one looks again
    assert (tmp_path / "started").exists()


@pytest.mark.parametrize("script", [PROLOG, EPILOG], ids=("prolog", "epilog"))
def test_memory_pressure_ends_what_it_started_and_not_the_shell(tmp_path: Path, run: Run, script: Path) -> None:
    before = Path("/proc/self/oom_score_adj").read_text()
    try:
        Path("/proc/self/oom_score_adj").write_text("-1000")
    except OSError:
        pytest.skip("oom_score_adj may not be lowered here")
    Path("/proc/self/oom_score_adj").write_text(before)
    about = f"cat /proc/$PPID/oom_score_adj /proc/self/oom_score_adj >{tmp_path}/scores; echo ok"
    run(script, PYTHON=stand_in(tmp_path, about), STUCK=str(tmp_path / "stuck"))
    assert "-1000 0" == " ".join((tmp_path / "scores").read_text().split())


def own(folder: Path) -> str:
    """Records and a policy of our own: what this machine itself may have is not looked at."""
    return f"--results {folder}/results --policy {folder}/policy.toml"


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
        assert "gave no answer within 1 s" in (tmp_path / "log").read_text()

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
        assert 0 == run(script, PYTHON=sys.executable, LIMIT="20", ARGS=f"({own(tmp_path)})").returncode
        hook = re.sub(r"\.d$|check\.d$", "", script.parent.name)
        assert (tmp_path / f"results/nodes/n1.{hook}.jsonl").read_text().count('"type":"end"') == 1

    def test_the_kill_switch_ends_it_before_python_starts(self, run: Run, tmp_path: Path, script: Path) -> None:
        python = stand_in(tmp_path, f"touch {tmp_path}/looked; echo drain")
        (tmp_path / "switch").touch()
        assert 0 == run(script, off=tmp_path / "switch", PYTHON=python).returncode
        assert not (tmp_path / "looked").exists()


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


class TestHealth:
    def test_it_never_fails(self, run: Run, tmp_path: Path) -> None:
        assert 0 == run(HEALTH, PYTHON=stand_in(tmp_path, "echo drain; exit 1"), NEXT="(/bin/false)").returncode

    def test_the_sites_own_check_runs_after_ours_with_its_words(self, run: Run, tmp_path: Path) -> None:
        python = stand_in(tmp_path, f"echo ours >>{tmp_path}/order; echo ok")
        run(HEALTH, PYTHON=python, NEXT=f"(/bin/sh -c 'echo \"$0\" >>{tmp_path}/order' 'site own')")
        assert "ours\nsite own\n" == (tmp_path / "order").read_text()

    def test_the_kill_switch_does_not_stop_the_sites_own_check(self, run: Run, tmp_path: Path) -> None:
        (tmp_path / "switch").touch()
        run(HEALTH, off=tmp_path / "switch", NEXT=f"(/usr/bin/touch {tmp_path}/site)")
        assert (tmp_path / "site").exists()

    def test_where_the_one_before_still_looks_there_is_no_second_look(self, run: Run, tmp_path: Path) -> None:
        python = stand_in(tmp_path, f"echo look >>{tmp_path}/looks; sleep 60")
        with open(tmp_path / "lock", "a") as before:
            fcntl.flock(before, fcntl.LOCK_EX)
            assert 0 == run(HEALTH, PYTHON=python, NEXT=f"(/usr/bin/touch {tmp_path}/site)").returncode
        assert not (tmp_path / "looks").exists()
        assert "left out: the one before still runs" in (tmp_path / "log").read_text()
        assert (tmp_path / "site").exists()  # ours is no reason to leave the site's out

    def test_a_python_that_cannot_be_ended_keeps_the_lock(self, run: Run, tmp_path: Path) -> None:
        # stands in for one stuck in the kernel: it is out of reach, and has the descriptor
        python = stand_in(tmp_path, f"echo look >>{tmp_path}/looks; exec setsid -f sleep 2 >/dev/null 2>&1")
        assert [0, 0] == [run(HEALTH, PYTHON=python).returncode for _ in range(2)]
        assert "look\n" == (tmp_path / "looks").read_text()

    def test_the_real_hook_leaves_the_lock_to_no_program_that_it_starts(self, run: Run, tmp_path: Path) -> None:
        root = tmp_path / "root"
        build("p5-healthy", root)
        fi_info = root / "opt/amazon/efa/bin/fi_info"
        fi_info.parent.mkdir(parents=True, exist_ok=True)
        fi_info.write_text(f"#!/bin/sh\nls -l /proc/self/fd >{tmp_path}/open\n")
        fi_info.chmod(0o755)
        run(HEALTH, PYTHON=sys.executable, LIMIT="20", ARGS=f"(--root {root} {own(tmp_path)})")
        assert str(tmp_path / "lock") not in (tmp_path / "open").read_text()

    def test_without_a_place_for_the_lock_it_still_looks(self, run: Run, tmp_path: Path) -> None:
        python = stand_in(tmp_path, f"touch {tmp_path}/looked; echo ok")
        assert 0 == run(HEALTH, PYTHON=python, LOCK="/nonexistent/lock").returncode
        assert (tmp_path / "looked").exists()
