"""Processes of a job on a real machine: found by what they carry, read without being touched."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from hpslurm.sources import processes
from hpslurm.sources.processes import Process

JOB = f"9{os.getpid()}"


@pytest.fixture
def job() -> Iterator[list[int]]:
    """A rank with a child that has lost its environment, and one of another step."""
    env = {"PATH": os.environ["PATH"], "SLURM_JOB_ID": JOB, "SLURMD_NODENAME": "n1", "SLURM_STEP_ID": "0"}
    code = "import subprocess; subprocess.run(['env', '-i', '/bin/sleep', '60'])"
    rank = subprocess.Popen([sys.executable, "-c", code], env={**env, "SLURM_PROCID": "0"}, start_new_session=True)
    other = subprocess.Popen(["sleep", "60"], env={**env, "SLURM_STEP_ID": "7"}, start_new_session=True)
    until = time.monotonic() + 10
    while len(pids()) < 3 and time.monotonic() < until:
        time.sleep(0.02)
    yield [rank.pid, other.pid]
    for process in (rank, other):
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def pids(node: str = "n1", step: str = "") -> list[int]:
    return [process.pid for process in processes.of_job(JOB, node, step)[0]]


def test_a_job_is_what_carries_its_number_and_what_descends_from_it(job: list[int]) -> None:
    found, hung = processes.of_job(JOB, "n1")
    assert set(job) < {process.pid for process in found}
    assert "sleep" in {process.name for process in found if process.parent == job[0]}
    assert [] == hung


def test_our_own_step_is_left_out(job: list[int]) -> None:
    assert job[1] not in pids(step="7")
    assert job[0] in pids(step="7")


def test_another_node_of_the_same_machine_has_none_of_them(job: list[int]) -> None:
    assert [] == pids("n2")


def test_only_who_it_is_leaves_the_environment(job: list[int]) -> None:
    (rank,) = [process for process in processes.of_job(JOB, "n1")[0] if process.pid == job[0]]
    assert {"SLURM_JOB_ID": JOB, "SLURMD_NODENAME": "n1", "SLURM_STEP_ID": "0", "SLURM_PROCID": "0"} == rank.env


def test_a_stopped_process_is_seen_to_be_so_and_stays_it(job: list[int]) -> None:
    os.kill(job[1], signal.SIGSTOP)
    until = time.monotonic() + 5
    while processes.read(job[1]).state != "T" and time.monotonic() < until:
        time.sleep(0.01)
    assert "T" == processes.read(job[1]).state


def test_a_process_that_cannot_be_read_costs_its_patience_and_hides_no_other() -> None:
    hangs = threading.Event()

    def look(number: int) -> int:
        if number == 2:
            hangs.wait(30)
        return number * 10

    found, stuck = processes.each([1, 2, 3], look, patience=0.1)
    hangs.set()
    assert ({1: 10, 3: 30}, [2]) == (found, stuck)


def test_one_that_is_gone_is_no_trouble() -> None:
    assert ({}, []) == processes.each([1 << 30], processes.read)


def test_a_cgroup_tells_where_the_environment_does_not() -> None:
    found = {
        5: Process(5, 1, "a", "S", 0.0, in_cgroup=True),
        6: Process(6, 5, "b", "S", 0.0),
        7: Process(7, 1, "c", "S", 0.0),
    }
    assert [5, 6] == [process.pid for process in processes.chosen(found, "7", "n1", "")]


def test_a_writers_open_file_is_found_without_looking_at_it(tmp_path) -> None:  # type: ignore[no-untyped-def]
    with open(tmp_path / "checkpoint.pt", "w"):
        files = processes._open_files(os.getpid())
        assert f"{tmp_path}/checkpoint.pt" in files.values()
