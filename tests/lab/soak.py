"""Job starts on a real Slurm with faults at random: no node may be drained, no job lost, nothing left running.

    python tests/lab/contain.py python tests/lab/soak.py [--jobs 10000] [--seed 1] [--nodes 3] [--state build/soak.json]

Each job start draws its fault from the seed and its number; several nodes work side by side, each with one job and one
fault at a time. The state file holds how far it came, so that a run which was ended goes on there; delete it to begin
anew.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

from hpslurm.core import records
from tests.lab import hung
from tests.lab.lab import CHECKOUT, Lab, LabError, new_folder

NODES = 3  # one job starts in half a second, most of which is waiting
CONF = "PrologFlags=Alloc\nPrologEpilogTimeout=30\n"
# A hook's limit is short, that no minute is lost to those that a fault makes slow. Each node has a policy of its own.
SETTINGS = {
    "LIMIT": "2",
    "ARGS": '(--root "@LAB@/hosts/$SLURMD_NODENAME" --results "@LAB@/results/$SLURMD_NODENAME"'
    ' --policy "@LAB@/policy.$SLURMD_NODENAME.toml")',
}
POLICIES = (
    "gate = [ 'efa-missing'\n",
    "results_shared = '/nowhere'\n",
    "partitions = ['other']\n",
    "gate = ['xid-79', 'sxid-20034', 'gpu-init-failed']\n",
    "\0" * 4000,
    "keep_days = -1\nkeep_jobs = 'x'\n",
)


def python_of_hooks(lab: Lab, node: str) -> list[int]:
    """Those that have the node's folder among their arguments."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_text(errors="replace").split("\0")
        except OSError:  # it ended meanwhile
            continue
        if "hpslurm.hooks" in words and lab.results(node) in words:
            found.append(int(path.parent.name))
    return found


@contextmanager
def killed_hooks(lab: Lab, node: str, chance: random.Random) -> Iterator[None]:
    """Every hook's Python is ended by SIGKILL, each at another moment. The shell is Slurm's own rule."""
    over = threading.Event()

    def kill() -> None:
        while not over.wait(chance.uniform(0.0, 0.1)):
            for pid in python_of_hooks(lab, node):
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@contextmanager
def policy(lab: Lab, node: str, chance: random.Random) -> Iterator[None]:
    path = Path(lab.path(f"policy.{node}.toml"))
    path.write_text(chance.choice(POLICIES))
    path.chmod(chance.choice((0o644, 0o666)))
    try:
        yield
    finally:
        path.unlink()


@contextmanager
def kernel_lines(lab: Lab, node: str, chance: random.Random) -> Iterator[None]:
    before = Path(lab.host(node), "dev/kmsg").read_text()
    line = "overlayfs: failed to resolve 'NVRM: GPU 0000:18:00.0: RmInitAdapter failed! (0x62:0x40:2516)': -2"
    lab.put(node, "dev/kmsg", "".join(f"3,{number},{number},-;{line}\n" for number in range(chance.choice((1, 5000)))))
    try:
        yield
    finally:
        lab.put(node, "dev/kmsg", before)


@contextmanager
def slow_names(lab: Lab, node: str, chance: random.Random) -> Iterator[None]:
    """The name service fails, or answers, after a while."""
    saved = Path(lab.host(node), "commands/getent.txt")
    before = saved.read_text()
    saved.unlink()
    end = chance.choice(("exit 2", "exit 1", f"echo 10.1.0.3 STREAM {node}"))
    Path(lab.results(node), "locks/getent.late").unlink(missing_ok=True)  # the last one's, or nobody would ask
    program = Path(lab.put(node, "usr/bin/getent", f"#!/bin/sh\nsleep {chance.choice((1.2, 60))}\n{end}\n", 0o755))
    try:
        yield
    finally:
        program.unlink()
        lab.put(node, "commands/getent.txt", before)


@contextmanager
def crowded_memory(lab: Lab, node: str, chance: random.Random) -> Iterator[None]:
    """/dev/shm is full of names."""
    folder = Path(lab.host(node), "dev/shm")
    folder.mkdir()
    for number in range(chance.choice((100, 5000))):
        Path(folder, f"nccl-{number}").touch()
    try:
        yield
    finally:
        shutil.rmtree(folder)


@contextmanager
def without_results(lab: Lab, node: str, chance: random.Random) -> Iterator[None]:
    """The folder is a file, or anybody's."""
    path = Path(lab.results(node))
    kept = path.with_name(f"{node}.kept")
    path.rename(kept)
    if chance.random() < 0.5:
        path.write_text("")
    else:
        path.mkdir()
        path.chmod(0o777)
    try:
        yield
    finally:
        path.unlink() if path.is_file() else os.rename(path, f"{path}.{time.monotonic_ns()}")
        kept.rename(path)


FAULTS: dict[str, Callable[[Lab, str, random.Random], AbstractContextManager[None]]] = {
    "nothing": lambda lab, node, chance: nullcontext(),
    "killed hooks": killed_hooks,
    "odd policy": policy,
    "forged kernel lines": kernel_lines,
    "no results": without_results,
    "full results": lambda lab, node, chance: hung.full(Path(lab.results(node))),
    "read-only results": lambda lab, node, chance: hung.read_only(Path(lab.results(node))),
    "slow name service": slow_names,
    "crowded /dev/shm": crowded_memory,
}


def one_job(lab: Lab, node: str, number: int, seed: int) -> str:
    """Start a job on a node under a fault; what is wrong afterwards, or nothing."""
    chance = random.Random(f"{seed}:{number}")
    fault = chance.choice(sorted(FAULTS))
    Path(lab.results(node)).mkdir(parents=True, exist_ok=True)
    wrong = []
    with FAULTS[fault](lab, node, chance):
        try:
            job = lab.run("srun", f"-w{node}", "sh", "-c", "echo ran", seconds=60)
            lab.wait_for_node(node, "IDLE", seconds=60)
        except (LabError, subprocess.TimeoutExpired) as error:
            return f"job {number} on {node}, seed {seed}, {fault}: {error}"
    if (job.returncode, job.stdout) != (0, "ran\n"):
        wrong.append(f"the job ended with {job.returncode}: {job.stderr.strip()[:200]}")
    if reason := lab.node_fields()[node].get("Reason"):
        wrong.append(f"the node has a reason: {reason}")
    until = time.monotonic() + 10
    while python_of_hooks(lab, node) and time.monotonic() < until:
        time.sleep(0.05)
    if left := python_of_hooks(lab, node):
        wrong.append(f"hooks left running: {left}")
    read, _ = records.node_records(lab.results(node))
    if torn := [record.hook for record in read if record.complete and not record.run]:
        wrong.append(f"torn records read as whole: {torn}")
    return f"job {number} on {node}, seed {seed}, {fault}: {'; '.join(wrong)}" if wrong else ""


@contextmanager
def removed(folder: str) -> Iterator[None]:
    try:
        yield
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class Progress:
    """Which job starts are behind us: a run that goes on begins with the first that was not seen to its end."""

    def __init__(self, seed: int, state: Path | None) -> None:
        kept = json.loads(state.read_text()) if state and state.exists() else {}
        self.done, self.wrong = (kept["done"], kept["wrong"]) if kept.get("seed") == seed else (0, [])
        self.seed, self._state = seed, state
        self._ahead: set[int] = set()
        self._lock = threading.Lock()

    def over(self, number: int, trouble: str) -> None:
        with self._lock:
            self.wrong += [trouble] if trouble else []
            self._ahead.add(number)
            while self.done in self._ahead:
                self._ahead.remove(self.done)
                self.done += 1
            if self._state:
                new = self._state.with_suffix(".new")
                new.write_text(json.dumps({"seed": self.seed, "done": self.done, "wrong": self.wrong}))
                new.replace(self._state)


def run(
    count: int, seed: int, state: Path | None = None, seconds: float = float("inf"), nodes: int = NODES
) -> tuple[int, list[str]]:
    """How many job starts are behind us, and what went wrong, a line each."""
    progress = Progress(seed, state)
    end = time.monotonic() + seconds
    while progress.done < count and time.monotonic() < end:
        _in_one_lab(progress, count, end, nodes)
    return progress.done, progress.wrong


def _in_one_lab(progress: Progress, count: int, end: float, nodes: int) -> None:
    """Until all is done, or something is wrong: what comes then shall not suffer from it."""
    folder, numbers, before = new_folder(), itertools.count(progress.done), len(progress.wrong)

    def work(node: str) -> None:
        while len(progress.wrong) == before and time.monotonic() < end and (number := next(numbers)) < count:
            progress.over(number, one_job(lab, node, number, progress.seed))

    with (
        removed(folder),
        Lab(folder, nodes=nodes, hooks=("prolog", "epilog"), conf=CONF, settings=SETTINGS) as lab,
        ThreadPoolExecutor(nodes) as workers,
    ):
        for worker in [workers.submit(work, node) for node in lab.nodes]:
            worker.result()


def main() -> int:
    given = argparse.ArgumentParser(description="job starts with faults at random")
    given.add_argument("--jobs", type=int, default=10_000)
    given.add_argument("--seed", type=int, default=1)
    given.add_argument("--state", type=Path, default=Path(CHECKOUT, "build", "soak.json"))
    given.add_argument("--nodes", type=int, default=NODES, help="that work side by side")
    asked = given.parse_args()
    asked.state.parent.mkdir(exist_ok=True)
    began = time.monotonic()
    done, wrong = run(asked.jobs, asked.seed, asked.state, nodes=asked.nodes)
    print(f"{done} job starts, the last ones in {time.monotonic() - began:.0f} s, {len(wrong)} wrong")
    print(*wrong[:50], sep="\n", end="\n" if wrong else "")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
