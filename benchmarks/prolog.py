"""What the hooks cost: time as a ratio to ``python3 -c pass``, peak memory, and many at once.

    python benchmarks/prolog.py

Each figure is a ratio taken in turn in one run (A B A B ...), because machines drift; the median
is printed, with the smallest and largest. The machine is the tests' saved p5.48xlarge: 32 EFA devices,
8 GPUs of a saved NVML snapshot, so no program is started but those named here.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import pytest

from tests.lab import hung, machine

REPO = Path(__file__).resolve().parent.parent
ROUNDS = 30
MANY = 128
SHARED, SIDE_BY_SIDE = 512, 32
JOB = {"SLURM_JOB_GID": str(os.getgid()), "SLURM_JOB_UID": str(os.getuid()), "SLURM_JOB_PARTITION": "gpu"}


def script(folder: Path, name: str = "prolog", **values: str) -> Path:
    """A copy of the entry script with its assignments edited, as an admin does."""
    text = (REPO / f"{name}.d/hpslurm.sh").read_text()
    settings = {
        "PYTHON": sys.executable,
        "LOG": str(folder / "log"),
        "ARGS": f"(--root {folder}/machine --policy {folder}/policy.toml"
        f' --results "{folder}/results/$SLURMD_NODENAME")',
        **values,
    }
    for key, value in settings.items():
        text = re.sub(rf"^{key}=.*$", lambda _, line=f"{key}={value}": line, text, flags=re.M)
    path = folder / f"{name}.sh"
    path.write_text(text)
    path.chmod(0o755)
    return path


def run(argv: list[str], job: int = 1, node: str = "n1") -> tuple[int, float, float]:
    """Exit status, wall seconds, CPU seconds of the process and its children."""
    began = time.perf_counter()
    child = subprocess.Popen(
        argv,
        env={**JOB, "SLURM_JOB_ID": str(job), "SLURMD_NODENAME": node},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    _, status, used = os.wait4(child.pid, 0)
    return os.waitstatus_to_exitcode(status), time.perf_counter() - began, used.ru_utime + used.ru_stime


def ratio(what: str, argv: list[str], against: list[str], cpu: bool = False) -> None:
    """``cpu`` only where the command waits for its children: the script leaves its one behind."""
    run(argv), run(against)
    pairs = [(run(argv), run(against)) for _ in range(ROUNDS)]
    assert all(one[0] == 0 for pair in pairs for one in pair)
    for kind, index in (("wall", 1), ("CPU", 2))[: 2 if cpu else 1]:
        ratios = sorted(a[index] / b[index] for a, b in pairs)
        ours = statistics.median(a[index] for a, _ in pairs) * 1000
        theirs = statistics.median(b[index] for _, b in pairs) * 1000
        print(
            f"{what}, {kind}: {statistics.median(ratios):.1f} times ({ratios[0]:.1f} to {ratios[-1]:.1f}), "
            f"{ours:.0f} ms against {theirs:.0f} ms"
        )


def record_of(folder: Path, node: str) -> Path:
    return folder / f"results/{node}/nodes/{node}.prolog.jsonl"


def record(folder: Path, node: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in record_of(folder, node).read_text().splitlines()]


def many(folder: Path) -> None:
    """MANY prologs at once, each of a node of its own."""
    hook = str(script(folder))
    with ThreadPoolExecutor(MANY) as pool:
        done = list(pool.map(lambda number: run([hook], number, f"node{number}"), range(1, MANY + 1)))
    kept = [number for number in range(1, MANY + 1) if record_of(folder, f"node{number}").exists()]
    unknown = sum(record(folder, f"node{number}")[-1].get("unknown", 0) for number in kept)
    failed = sum(status != 0 for status, *_ in done)
    slowest = max(seconds for _, seconds, _ in done)
    print(
        f"{MANY} prologs at once: {failed} with an exit status, {MANY - len(kept)} without a record, "
        f"{unknown} results unknown, slowest {slowest:.2f} s"
    )


def hanging(folder: Path) -> None:
    """SHARED prologs copy their record to one shared folder, which hangs for the second half of them."""
    shared = folder / "shared"
    shared.mkdir()
    (folder / "policy.toml").write_text(f"results_shared = '{shared}'\n")
    hook = str(script(folder))

    def some(first: int, last: int) -> list[tuple[int, float, float]]:
        with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
            return list(pool.map(lambda number: run([hook], number, f"shared{number}"), range(first, last)))

    done = some(0, SHARED // 2)
    copied = len(list((shared / "nodes").iterdir()))
    try:
        with hung.frozen(shared):
            done += some(SHARED // 2, SHARED)
    except pytest.skip.Exception as why:
        print(f"a shared folder that hangs: left out, {why}")
        return
    failed = sum(status != 0 for status, *_ in done)
    print(
        f"{SHARED} prologs, {SIDE_BY_SIDE} side by side, the shared folder hangs half-way: {failed} with an exit "
        f"status, slowest {max(seconds for _, seconds, _ in done):.2f} s (limit 5), "
        f"{copied} of the first {SHARED // 2} copied"
    )


def main() -> None:
    folder = Path(tempfile.mkdtemp(prefix="hpslurm-bench-"))
    try:
        machine.write(str(folder / "machine"))
        (folder / "policy.toml").write_text("")
        python = ["python3", "-c", "pass"]
        hook = str(script(folder))
        ratio("prolog script, all probes, saved p5", [hook], python)
        end = record(folder, "n1")[-1]
        print(f"its peak memory (VmHWM): {end['peak_kib'] / 1024:.1f} MiB; {end['unknown']} results unknown")
        inner = [sys.executable, "-I", "-m", "hpslurm.hooks", "prolog", "--root", f"{folder}/machine"]
        ratio(
            "the hook without its script", [*inner, "--results", f"{folder}/results/n1"], [sys.executable, "-c", "pass"]
        )
        (folder / "policy.toml").write_text("gate = []\n")
        ratio("the script with a policy file", [hook], python)
        many(folder)
        hanging(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
