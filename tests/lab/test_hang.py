"""On real Slurm: jobs that hang in every way that a job can, and the rank that is named.

All jobs run side by side on one cluster of four nodes, and each is looked at once, while the others run.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from hpslurm.core.values import replace
from hpslurm.job.hang import facts as hang_facts
from hpslurm.job.hang.case import main_step
from hpslurm.job.hang.facts import Sample
from hpslurm.job.hang.judge import judge
from tests.lab import fixtures, hung, instruments, processes
from tests.lab.lab import CHECKOUT, Lab, new_folder, wait_until
from tests.sources import nvml_fake

TRAIN = f"{CHECKOUT}/tests/fake/training/train.py"
WHO = 5  # of eight ranks, two a node: the second one of n3
# Not all start as plain srun python: some by a launcher, some in namespaces of their own as in a container.
SHAPES = {
    "data": (1, f"{sys.executable} {os.path.dirname(TRAIN)}/launcher.py"),
    "eval": (2, f"unshare --mount --propagation unchanged --pid --fork {sys.executable} {TRAIN}"),
}
# how it hangs, what must be said: cause, words of the reason
CASES = {
    "data": ("slow_rank_work", "load_batch (train.py:"),
    "eval": ("slow_rank_work", "evaluate (train.py:"),
    "spin": ("slow_rank_work", "odd_work (train.py:"),
    "child": ("slow_rank_work", "a program that it started at run (train.py:"),
    "input": ("app_error", "a person at a debugger"),
    "desync": ("collective_desync", "barrier"),
    "absent": ("rendezvous_unreachable", "never came to the start"),
    "stopped": ("slow_rank_work", "stopped by a signal (state T)"),
    "killed": ("peer_exit", "is gone"),
    "save": ("storage", "in state D (/"),
}
# One job in which all wait alike, looked at three times: what its nodes' instruments show, and what must be said.
LOOKS = {
    "link": ("network_link", "on n2  (", "counters of n2 stand still: the network, or a GPU"),
    "gpu": (
        "gpu_fell_off_bus",
        "rank 5, local rank 1, GPU 1, on n3, pid",
        "NVML does not reach GPU 1 on n3, which is rank 5's",
    ),
    "silent": ("node_fail", "on n4  (", "n4 did not answer within the time, all other nodes did"),
}


class Jobs:
    """One job for each way, all running; the answers of ``hpslurm hang``, each asked for once."""

    def __init__(self, lab: Lab, frozen: Path) -> None:
        self.lab = lab
        self.ids: dict[str, str] = {}
        self.answers: dict[str, subprocess.CompletedProcess[str]] = {}
        for number, how in enumerate([*CASES, "healthy", "all", "network"]):
            env = f"export TRAIN_PORT={lab.port + 40 + number} TRAIN_CHECKPOINT={frozen}/checkpoint-{how}"
            env += f" TRAIN_READY={lab.path('work', f'{how}.ready')}"
            if how == "network":
                env += f" TORCH_NCCL_DEBUG_INFO_PIPE_FILE={lab.path('work', 'fr_')}"
            tasks, program = SHAPES.get(how, (2, f"{sys.executable} {TRAIN}"))
            ranks = f"srun --overcommit --kill-on-bad-exit=0 {program} {how} {WHO}"
            words = ("-N4", f"--ntasks-per-node={tasks}", "--oversubscribe", "-o", "/dev/null")
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

    def instruments(self, library: Path) -> list[Path]:
        """What each node shows at each look; returns the nodes of which the counters move."""
        instruments.program(Path(self.lab.path("seen")))
        for name in LOOKS:
            for node in ("n1", "n2", "n3", "n4"):
                lost = (
                    instruments.WAITING + ";gpu1.ret_all=15" if (name, node) == ("gpu", "n3") else instruments.WAITING
                )
                instruments.node(Path(self.lab.path("seen", name, node)), library, lost)
        Path(self.lab.path("seen", "silent", "n4", "hangs")).touch()
        return [Path(self.lab.path("seen", "link", node)) for node in ("n1", "n3", "n4")]

    def look(self, name: str) -> subprocess.CompletedProcess[str]:
        program = self.lab.path("seen", "hpslurm")
        if name == "no stacks":
            return self.lab.run(program, "hang", self.ids["eval"], env=instruments.NO_STACKS)
        return self.lab.run(program, "hang", self.ids["network"], env={"LAB_INSTRUMENTS": self.lab.path("seen", name)})


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jobs]:
    if reason := fixtures.why_not():
        pytest.skip(reason)
    conf = "SchedulerParameters=bf_interval=1"
    lab = Lab(new_folder(), nodes=4, node_options="CPUs=64 RealMemory=500", conf=conf)
    frozen = tmp_path_factory.mktemp("fsx") / "mount"
    with lab, hung.mounted(frozen):
        jobs = Jobs(lab, frozen)
        ready = [Path(lab.path("work", f"{how}.ready")) for how in jobs.ids if how != "absent"]
        wait_until(lambda: all(path.exists() for path in ready), "all jobs come to their third step", seconds=180)
        time.sleep(0.3)
        yield from looked_at(jobs, frozen)
    shutil.rmtree(lab.folder, ignore_errors=True)


def looked_at(jobs: Jobs, frozen: Path) -> Iterator[Jobs]:
    lab = jobs.lab
    moving = jobs.instruments(nvml_fake.build(Path(lab.path("nvml"))))
    with hung.freeze(frozen), instruments.trickles(moving):
        jobs.signal("stopped", signal.SIGSTOP)
        jobs.signal("killed", signal.SIGKILL)
        wait_until(lambda: jobs.pid("killed") is None, "the killed one is gone")
        with ThreadPoolExecutor(len(jobs.ids) + len(LOOKS)) as pool:
            asked = {how: pool.submit(jobs.hang, how, "--save", lab.path(f"work/{how}.jsonl")) for how in jobs.ids}
            asked |= {name: pool.submit(jobs.look, name) for name in (*LOOKS, "no stacks")}
        jobs.answers = {how: answer.result() for how, answer in asked.items()}
        yield jobs
    lab.run("scancel", "--signal=KILL", "--full", *jobs.ids.values())


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


@pytest.mark.parametrize("name", LOOKS)
def test_where_all_ranks_wait_alike_gpus_counters_and_silence_tell(jobs: Jobs, name: str) -> None:
    answer = jobs.answers[name]
    cause, who, words = LOOKS[name]
    assert 3 == answer.returncode, answer.stderr + answer.stdout
    head = answer.stdout.splitlines()[1]
    assert f"[FAIL] {cause}  {who}" in head, answer.stdout
    assert words in " ".join(answer.stdout.split())
    assert ("hpslurm nccl-tests --find-slow" in answer.stdout) == (name == "link")
    assert ("no answer from n4" in answer.stdout) == (name == "silent")


def test_who_may_read_no_memory_learns_the_rank_and_in_one_line_what_would_bring_stacks(jobs: Jobs) -> None:
    answer = jobs.answers["no stacks"]
    assert 3 == answer.returncode, answer.stderr + answer.stdout
    assert f"[FAIL] slow_rank_work  rank {WHO}, " in answer.stdout, answer.stdout
    assert "sleeps at state S in hrtimer_nanosleep" in answer.stdout
    notes = [line for line in answer.stdout.splitlines() if "no Python stacks" in line]
    assert 1 == len(notes), answer.stdout
    assert f"sudo hpslurm hang {jobs.ids['eval']} --here" in " ".join(answer.stdout.split())


def test_where_nothing_but_the_ranks_is_seen_all_wait_and_nobody_is_named(jobs: Jobs) -> None:
    answer = jobs.answers["network"]
    assert (3, "[FAIL] collective_timeout_unknown  (low confidence)") == (
        answer.returncode, answer.stdout.splitlines()[1].strip()
    )  # fmt: skip
    assert "→ 1 rank" not in answer.stdout


def test_where_it_is_not_sure_pytorch_can_be_asked_for_a_dump_by_the_command_that_is_suggested(jobs: Jobs) -> None:
    commands = [line.strip() for line in jobs.answers["network"].stdout.splitlines() if ".pipe" in line]
    assert 1 == len(commands), jobs.answers["network"].stdout
    jobs.lab.run("sh", "-c", commands[0])
    for rank in range(8):
        reader = os.open(jobs.lab.path("work", f"fr_{rank}.pipe"), os.O_RDONLY | os.O_NONBLOCK)
        assert os.read(reader, 128).startswith(b"1\n"), rank
        os.close(reader)
    assert all(".pipe" not in jobs.answers[how].stdout for how in CASES)


def test_of_a_job_that_works_it_is_said_and_nobody_is_named(jobs: Jobs) -> None:
    answer = jobs.answers["healthy"]
    assert 0 == answer.returncode, answer.stdout
    for _ in range(4):  # three moments may be alike by chance: then it says so, and says what to do
        if "[PASS] not hung" in answer.stdout:
            break
        assert "[WARN] undetermined" in answer.stdout
        assert f"hpslurm hang {jobs.ids['healthy']} --again 30" in answer.stdout
        assert "→ 1 rank" not in answer.stdout
        answer = jobs.hang("healthy", "--again", "2")
    assert "[PASS] not hung" in answer.stdout
    assert "→ 1 rank" not in answer.stdout


def test_when_all_wait_for_one_file_system_it_is_named_and_no_rank(jobs: Jobs) -> None:
    head, why = jobs.answers["all"].stdout.splitlines()[1:3]
    assert "[FAIL] storage  (high confidence)" == head
    assert "8 of 8 ranks wait in the kernel for a file (" in why


def test_what_was_saved_is_judged_the_same_again(jobs: Jobs) -> None:
    again = jobs.lab.run("hpslurm", "hang", "--from", jobs.lab.path("work/data.jsonl"))
    assert (3, jobs.answers["data"].stdout) == (again.returncode, again.stdout)
    lines = jobs.lab.run("hpslurm", "hang", "--from", jobs.lab.path("work/data.jsonl"), "--json").stdout.splitlines()
    named = [line for line in map(json.loads, lines) if line["type"] == "hang"]
    assert [(True, [WHO], ["n3"])] == [
        (line["hangs"], [one["rank"] for one in line["suspects"]], [one["node"] for one in line["suspects"]])
        for line in named
    ]


@pytest.mark.parametrize("how", [*CASES, "healthy"])
def test_without_python_stacks_no_innocent_rank_is_named(jobs: Jobs, how: str) -> None:
    text = Path(jobs.lab.path(f"work/{how}.jsonl")).read_text()
    sample = main_step(hang_facts.sample_of(map(json.loads, text.splitlines())) or Sample(""))
    blind = [
        replace(node, ranks=tuple(replace(rank, stack=None, later=None) for rank in node.ranks))
        for node in sample.nodes
    ]
    verdict = judge(replace(sample, nodes=tuple(blind)))
    assert {suspect.rank for suspect in verdict.suspects} <= ({WHO} if how != "healthy" else set())
    if how in ("stopped", "killed", "save", "child"):
        assert [WHO] == [suspect.rank for suspect in verdict.suspects]


def test_the_stacks_are_those_of_the_program(jobs: Jobs) -> None:
    saved = jobs.lab.run("hpslurm", "hang", "--from", jobs.lab.path("work/data.jsonl"), "--stacks").stdout
    assert "load_batch (training/train.py:" in saved
    assert "main thread" in saved


def test_the_jobs_go_on_untouched(jobs: Jobs) -> None:
    """All ranks are still there, and in no other state than before they were looked at."""
    there = jobs.ranks()
    gone = {"absent": 1, "killed": 1, "data": 4}  # one never came, one was killed by the test; four have a launcher
    for how, job in jobs.ids.items():
        assert 8 - gone.get(how, 0) == len([rank for of, rank in there if of == job]), how
    stopped = [pid for pid in jobs.ranks().values() if psutil.Process(pid).status() == psutil.STATUS_STOPPED]
    assert [jobs.pid("stopped")] == stopped


def test_a_job_that_does_not_run_or_is_none_is_refused_in_words(jobs: Jobs) -> None:
    done = jobs.lab.run("hpslurm", "hang", "4711")
    assert (1, "Error: Slurm knows no job 4711\n") == (done.returncode, done.stderr)
    assert 2 == jobs.lab.run("hpslurm", "hang").returncode
    assert 2 == jobs.lab.run("hpslurm", "hang", "nonsense").returncode


def test_a_bundle_has_the_look_and_a_job_of_the_reader_can_be_judged_again_from_it(jobs: Jobs) -> None:
    output = jobs.lab.path("work/b.tar.gz")
    words = ("--job", jobs.ids["spin"], "--hang", "--no-aws", "--output", output)
    done = jobs.lab.run("hpslurm", "bundle", *words)
    assert 0 == done.returncode, done.stderr
    with tarfile.open(output) as tar:
        text = tar.extractfile("b/hang.txt").read().decode()  # type: ignore[union-attr]
        lines = tar.extractfile("b/hang.jsonl").read().decode().splitlines()  # type: ignore[union-attr]
    assert "[FAIL] slow_rank_work" in text
    sample = hang_facts.sample_of(map(json.loads, lines))
    assert sample is not None
    assert [WHO] == [suspect.rank for suspect in judge(sample).suspects]
