"""What a run of the tests leaves behind ends with it."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.lab import processes
from tests.lab.lab import CHECKOUT

CONTAIN = [sys.executable, os.path.join(CHECKOUT, "tests", "lab", "contain.py")]


def contained(script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*CONTAIN, "sh", "-c", script], capture_output=True, text=True, timeout=60)


def test_the_status_is_that_of_the_command():
    assert (0, 7) == (contained("true").returncode, contained("exit 7").returncode)
    assert 128 + 15 == contained("kill $$").returncode


def test_an_orphan_that_ignores_signals_in_a_session_of_its_own_is_ended():
    done = contained("setsid sh -c 'trap \"\" TERM; echo $$; exec sleep 300' 2>/dev/null & sleep 0.5; exit 3")
    assert 3 == done.returncode
    assert processes.start_time(int(done.stdout)) is None


def test_a_command_that_leaves_nothing_is_not_held_up():
    done = contained("echo done")
    assert (0, "done\n", "") == (done.returncode, done.stdout, done.stderr)
