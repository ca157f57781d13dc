"""On real Slurm: jobs that hang in every way that a job can, and the rank that is named.

All jobs run side by side on one cluster of four nodes, and each is looked at once, while the others run.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.lab import fixtures, hung, processes
from tests.lab.lab import CHECKOUT, Lab, new_folder

TRAIN = f"{CHECKOUT}/tests/fake/training/train.py"
WHO = 5  # of eight ranks, two a node: the second one of n3
# how it hangs, what must be said: cause, words of the reason
CASES = {
    "data": ("slow_rank_work", "load_batch (train.py:"),
    "eval": ("slow_rank_work", "evaluate (train.py:"),
    "spin": ("slow_rank_work", "odd_work (train.py:"),
    "child": ("slow_rank_work", "a program that it started (run (train.py:"),
    "input": ("app_error", "a person at a debugger"),
    "desync": ("collective_desync", "barrier"),
    "absent": ("rendezvous_unreachable", "never came to the start"),
    "stopped": ("slow_rank_work", "stopped by a signal (state T)"),
    "killed": ("peer_exit", "is gone"),
    "save": ("storage", "in state D (/"),
}


class Jobs:
    """One job for each way, all running; the answers of ``hpslurm hang``, each asked for once."""

    def __init__(self, lab: Lab, frozen: Path) -> None:
        self.lab = lab
        self.ids: dict[str, str] = {}
        self.answers: dict[str, subprocess.CompletedProcess[str]] = {}
        for number, how in enumerate([*CASES, "healthy", "all"]):
            env = f"export TRAIN_PORT={lab.port + 40 + number} TRAIN_CHECKPOINT={frozen}/checkpoint-{how}"
            ranks = f"srun --overcommit --kill-on-bad-exit=0 {sys.executable} {TRAIN} {how} {WHO}"
            words = ("-N4", "--ntasks-per-node=2", "--oversubscribe", "-o", "/dev/null")
            self.ids[how] = lab.submit(*words, "--wrap", f"{env}; {ranks}")

    def ranks(self) -> dict[tuple[str, int], int]:
        """Job and rank to pid."""
        found = {}
        for pid in processes.all_pids():
            env = dict(item.split(b"=", 1) for item in processes.environment(pid) if item.startswith(b"SLURM_"))
            job, rank = env.get(b"SLURM_JOB_ID", b"").decode(), env.get(b"SLURM_PROCID", b"").decode()
            if rank and env.get(b"SLURM_CONF") == self.lab.conf.encode() and processes.name(pid).startswith("python"):
                found[job, int(rank)] = pid
        return found

    def pid(self, how: str) -> int | None:
        return self.ranks().get((self.ids[how], WHO))

    def signal(self, how: str, number: signal.Signals) -> None:
        pid = self.pid(how)
        assert pid, how
        os.kill(pid, number)

    def hang(self, how: str, *words: str) -> subprocess.CompletedProcess[str]:
        return self.lab.run("hpslurm", "hang", self.ids[how], *words)


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jobs]:
    if reason := fixtures.why_not():
        pytest.skip(reason)
    conf = "SchedulerParameters=bf_interval=1"
    lab = Lab(new_folder(), nodes=4, node_options="CPUs=64 RealMemory=500", conf=conf)
    frozen = tmp_path_factory.mktemp("fsx") / "mount"
    with lab, hung.mounted(frozen):
        jobs = Jobs(lab, frozen)
        wait_until(lambda: len(jobs.ranks()) >= 8 * len(jobs.ids) - 1, "all ranks run")
        time.sleep(1.5)  # they come to their third step
        yield from looked_at(jobs, frozen)
    shutil.rmtree(lab.folder, ignore_errors=True)


def looked_at(jobs: Jobs, frozen: Path) -> Iterator[Jobs]:
    lab = jobs.lab
    with hung.freeze(frozen):
        jobs.signal("stopped", signal.SIGSTOP)
        jobs.signal("killed", signal.SIGKILL)
        wait_until(lambda: jobs.pid("killed") is None, "the killed one is gone")
        with ThreadPoolExecutor(len(jobs.ids)) as pool:
            asked = {how: pool.submit(jobs.hang, how, "--save", lab.path(f"work/{how}.jsonl")) for how in jobs.ids}
        jobs.answers = {how: answer.result() for how, answer in asked.items()}
        yield jobs
    lab.run("scancel", *jobs.ids.values())


def wait_until(there: Callable[[], Any], what: str, seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not there():
        assert time.monotonic() < end, what
        time.sleep(0.1)


pytestmark = pytest.mark.lab


@pytest.mark.parametrize("how", CASES)
def test_the_rank_that_the_others_wait_for_is_named_with_its_node_and_why(jobs: Jobs, how: str) -> None:
    answer = jobs.answers[how]
    cause, words = CASES[how]
    assert 3 == answer.returncode, answer.stderr + answer.stdout
    head = answer.stdout.splitlines()[1]
    assert f"[FAIL] {cause}  rank {WHO}, " in head
    assert "on n3" in head
    assert words in " ".join(answer.stdout.split())
