"""Job starts on a real Slurm with faults at random: no node may be drained, no job lost, nothing left running.

    python tests/lab/contain.py python tests/lab/soak.py [--jobs 10000] [--seed 1] [--state build/soak.json]

Each job start draws its fault from the seed and its number. The state file holds how far it came, so that a run which
was ended goes on there; delete it to begin anew.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from hpslurm.core import records
from tests.lab import hung
from tests.lab.lab import CHECKOUT, Lab, new_folder

NODE = "n1"
CONF = "PrologFlags=Alloc\nPrologEpilogTimeout=30\n"
LIMIT = 2
POLICIES = (
    "gate = [ 'efa-missing'\n",
    "results_shared = '/nowhere'\n",
    "partitions = ['other']\n",
    "gate = ['xid-79', 'sxid-20034', 'gpu-init-failed']\n",
    "\0" * 4000,
    "keep_days = -1\nkeep_jobs = 'x'\n",
)


def python_of_hooks(lab: Lab) -> list[int]:
    """Those that have the lab's folder among their arguments."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_text(errors="replace").split("\0")
        except OSError:  # it ended meanwhile
            continue
        if "hpslurm.hooks" in words and any(word.startswith(lab.folder) for word in words):
            found.append(int(path.parent.name))
    return found


@contextmanager
def killed_hooks(lab: Lab, chance: random.Random) -> Iterator[None]:
    """Every hook's Python is ended by SIGKILL, each at another moment. The shell is Slurm's own rule."""
    over = threading.Event()

    def kill() -> None:
        while not over.wait(chance.uniform(0.0, 0.1)):
            for pid in python_of_hooks(lab):
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
def policy(lab: Lab, chance: random.Random) -> Iterator[None]:
    path = Path(lab.path("policy.toml"))
    path.write_text(chance.choice(POLICIES))
    path.chmod(chance.choice((0o644, 0o666)))
    try:
        yield
    finally:
        path.unlink()


@contextmanager
def kernel_lines(lab: Lab, chance: random.Random) -> Iterator[None]:
    path = Path(lab.host(NODE), "dev/kmsg")
    before = path.read_bytes() if path.exists() else None
    path.parent.mkdir(parents=True, exist_ok=True)
    line = "overlayfs: failed to resolve 'NVRM: GPU 0000:18:00.0: RmInitAdapter failed! (0x62:0x40:2516)': -2"
    path.write_text("".join(f"3,{number},{number},-;{line}\n" for number in range(chance.choice((1, 5000)))))
    try:
        yield
    finally:
        path.unlink() if before is None else path.write_bytes(before)


@contextmanager
def without_results(lab: Lab, chance: random.Random) -> Iterator[None]:
    """The folder is a file, or anybody's."""
    path = Path(lab.results(NODE))
    kept = path.with_name("kept")
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


FAULTS: dict[str, Callable[[Lab, random.Random], object]] = {
    "nothing": lambda lab, chance: nullcontext(),
    "killed hooks": killed_hooks,
    "odd policy": policy,
    "forged kernel lines": kernel_lines,
    "no results": without_results,
    "full results": lambda lab, chance: hung.full(Path(lab.results(NODE))),
}


def one_job(lab: Lab, number: int, seed: int) -> str:
    """Start a job under a fault; what is wrong afterwards, or nothing."""
    chance = random.Random(f"{seed}:{number}")
    fault = chance.choice(sorted(FAULTS))
    Path(lab.results(NODE)).mkdir(parents=True, exist_ok=True)
    with FAULTS[fault](lab, chance):  # type: ignore[attr-defined]
        job = lab.run("srun", "-N1", "sh", "-c", "echo ran", seconds=60)
        lab.wait_for_node(NODE, "IDLE", seconds=60)
    wrong = []
    if (job.returncode, job.stdout) != (0, "ran\n"):
        wrong.append(f"the job ended with {job.returncode}: {job.stderr.strip()[:200]}")
    if reason := lab.node_fields()[NODE].get("Reason"):
        wrong.append(f"the node has a reason: {reason}")
    until = time.monotonic() + 10
    while python_of_hooks(lab) and time.monotonic() < until:
        time.sleep(0.05)
    if left := python_of_hooks(lab):
        wrong.append(f"hooks left running: {left}")
    read, _ = records.node_records(lab.results(NODE))
    if torn := [record.hook for record in read if record.complete and not record.run]:
        wrong.append(f"torn records read as whole: {torn}")
    return f"job {number}, seed {seed}, {fault}: {'; '.join(wrong)}" if wrong else ""


@contextmanager
def removed(folder: str) -> Iterator[None]:
    try:
        yield
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def run(count: int, seed: int, state: Path | None = None, seconds: float = float("inf")) -> tuple[int, list[str]]:
    """How many job starts are behind us, and what went wrong, a line each."""
    kept = json.loads(state.read_text()) if state and state.exists() else {}
    done, wrong = (kept["done"], kept["wrong"]) if kept.get("seed") == seed else (0, [])
    end = time.monotonic() + seconds
    folder = new_folder()
    settings = {"LIMIT": str(LIMIT)}
    with removed(folder), Lab(folder, nodes=1, hooks=("prolog", "epilog"), conf=CONF, settings=settings) as lab:
        while done < count and time.monotonic() < end:
            if trouble := one_job(lab, done, seed):
                wrong.append(trouble)
            done += 1
            if state and done % 20 == 0:
                state.write_text(json.dumps({"seed": seed, "done": done, "wrong": wrong}))
    return done, wrong


def main() -> int:
    given = argparse.ArgumentParser(description="job starts with faults at random")
    given.add_argument("--jobs", type=int, default=10_000)
    given.add_argument("--seed", type=int, default=1)
    given.add_argument("--state", type=Path, default=Path(CHECKOUT, "build", "soak.json"))
    asked = given.parse_args()
    asked.state.parent.mkdir(exist_ok=True)
    began = time.monotonic()
    done, wrong = run(asked.jobs, asked.seed, asked.state)
    print(f"{done} job starts, the last ones in {time.monotonic() - began:.0f} s, {len(wrong)} wrong")
    print(*wrong[:50], sep="\n", end="\n" if wrong else "")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
