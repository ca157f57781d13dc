"""The demo ends well, shows the faults of the nodes that have them, and prints what can be typed."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from tests.lab.fixtures import why_not
from tests.lab.lab import BASE, CHECKOUT

pytestmark = pytest.mark.lab


@pytest.fixture(scope="module")
def shown() -> str:
    if reason := why_not():
        pytest.skip(reason)
    folder = f"{BASE}/demo-{os.getpid()}"
    script = [sys.executable, os.path.join(CHECKOUT, "tests", "lab", "demo.py"), folder]
    done = subprocess.run(script, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
    assert (0, False) == (done.returncode, os.path.exists(folder)), done.stdout + done.stderr
    return done.stdout


def part(shown: str, command: str) -> str:
    """The output of the last command that begins like this."""
    return re.split(rf"^\$ {re.escape(command)}.*$", shown, flags=re.M)[-1].split("\n$ ")[0]


def test_the_user_s_check_names_the_two_bad_nodes(shown):
    text = part(shown, "srun -N3")
    assert "[PASS] n1" in text
    assert "[FAIL] P0 efa-missing  n2  16 of 32 EFA devices of a p5.48xlarge" in text
    assert "[FAIL] P0 memlock-default  n3  this process may lock 65536 bytes" in text
    assert "(exit status 3)" in text


def test_the_reports_tell_the_three_jobs_apart(shown):
    assert [" COMPLETED", " FAILED", " CANCELLED"] == re.findall(r"^Job \d+ .*?:( [A-Z]+)", shown, re.M)


def test_the_rank_that_the_hanging_job_waits_for_is_named_before_it_is_cancelled(shown):
    text = part(shown, "hpslurm hang")
    assert "[FAIL] slow_rank_work  rank 1, local rank 0, on n2" in text
    assert "(exit status 3)" in text
    assert shown.index("$ hpslurm hang") < shown.index("$ scancel")


def test_diagnose_finds_the_nodes_and_the_mistyped_reason(shown):
    text = part(shown, "hpslurm diagnose")
    found = re.findall(r"^\[FAIL\] P\d (\S+)  (\S+)", text, re.M)
    assert [("efa-missing", "n2"), ("memlock-default", "n3"), ("action-reboot-misspelt", "n4")] == found


def test_it_says_that_nothing_is_left_and_nothing_is(shown):
    assert "nothing is left running\n" == shown[-24:]
    assert [] == [name for name in os.listdir(BASE) if name.startswith(f"demo-{os.getpid()}")]
