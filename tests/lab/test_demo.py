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


def test_the_user_s_check_names_the_bad_node(shown):
    text = part(shown, "srun -N3")
    assert {"n1", "n2"} == set(re.findall(r"^\[PASS\] (n\d)", text, re.M))
    assert "[FAIL] P0 efa-missing  n3  16 of 32 EFA devices of a p5.48xlarge" in text
    assert "[FAIL] P0 memlock-default  n3  this process may lock" in text
    assert "(exit status 3)" in text
    assert text.rindex("srun: error") > text.rindex("[FAIL]")  # srun's own words cut through no finding


def test_the_reports_tell_the_three_jobs_apart(shown):
    firsts = re.findall(r"^\[\w+\] Job \d+ .*?: (\w+)", shown, re.M)
    assert ["COMPLETED", "FAILED", "FAILED", "COMPLETED"] == firsts


def test_the_report_of_the_failed_job_names_node_and_cause_first_and_calls_the_victims_so(shown):
    text = re.split(r"^\$ hpslurm report 3 --policy.*$", shown, flags=re.M)[1].split("\n$ ")[0]
    first = text.strip().splitlines()[0]
    assert re.search(r"FAILED after \d+ s on n\[1-3\]: gpu_fell_off_bus on n2 \(high confidence\)$", first)
    assert re.search(r"^Victims +\d+ lines of ranks 0-2 follow from it: ", text, re.M)
    (again,) = re.findall(r"^Again +(sbatch --exclude='n\[2-3\]' \S+/work/train.sbatch)$", text, re.M)
    assert f"\n$ {again}\nSubmitted batch job 4\n" in shown  # typed as it is printed
    assert len(text.strip().splitlines()) <= 40


def test_the_readme_shows_what_the_demo_prints(shown):
    """Whole, but for times, counts of lines and the order in which nodes answer."""

    def told(text: str) -> list[str]:
        text = text.replace("; during this job", "")  # from 23.11 on Slurm tells the epilog when the job began
        return sorted(re.sub(r"\d+ s\b|\d+ lines|/\S+/work/", "#", line) for line in text.strip().splitlines())

    readme = open(os.path.join(CHECKOUT, "README.md")).read()
    blocks = re.findall(r"^```console\n(.*?)^```$", readme, re.M | re.S)
    assert 2 == len(blocks)
    for block in blocks:
        command = block.splitlines()[0]
        printed = shown[shown.index(command) :].split("\n$ ")[0].split("\n\n# ")[0]
        assert told(block) == told(printed)


def test_the_rank_that_the_hanging_job_waits_for_is_named_before_it_is_cancelled(shown):
    text = part(shown, "hpslurm hang")
    assert "[FAIL] slow_rank_work  rank 1, local rank 0, on n2" in text
    assert "(exit status 3)" in text
    assert shown.index("$ hpslurm hang") < shown.index("$ scancel")


def test_diagnose_finds_the_nodes_and_the_mistyped_reason(shown):
    text = part(shown, "hpslurm diagnose")
    found = re.findall(r"^(n\d) +(P\d) +([\w-]+):", text, re.M)
    assert [("n2", "P0", "gpu-lost"), ("n3", "P0", "efa-missing"), ("n4", "P1", "action-reboot-misspelt")] == found


def test_it_says_that_nothing_is_left_and_nothing_is(shown):
    assert "nothing is left running\n" == shown[-24:]
    assert [] == [name for name in os.listdir(BASE) if name.startswith(f"demo-{os.getpid()}")]
