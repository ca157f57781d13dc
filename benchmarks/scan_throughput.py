"""Speed and memory of ``hpslurm scan`` against ripgrep: ``python benchmarks/scan_throughput.py [--quick]``.

One file of 1 GB on one pinned core, page cache warm: against ``rg -j1 -c -F -f`` with the shipped literals and ``rg -j1
-c`` with 13 of them; NCCL INFO lines at 1 and 50 percent, the root cause in the middle, which must be named. The same
without Hyperscan. 10 GB by a pipe, for memory. 1,024 files of 10 MB (eight, under many names), on one core and on all
that are free: there seconds by the clock count, so the cores must be.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from benchmarks.figures import HPSLURM, Figure, Used, at_least, at_most, best, environment, run, show
from hpslurm.scan.collect import Collector

ROOT_CAUSE = "[rank2]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU 2 has a total capacity of 79.11 GiB\n"  # noqa: E501
GIGABYTE = 10**9
MOST_SECONDS = 1.0  # for 1 GB
MOST_SLOWER = 5  # times rg with 13 literals
MOST_SLOWER_BARE = 20  # times rg, without Hyperscan
MEMORY = 100  # MiB
LEAST_FASTER = 1.8  # times, with two cores
BARE = "import sys; from hpslurm.scan.collect import scan; scan(sys.argv[1:], fast=False)"
INFO = (
    "ip-10-1-0-{n}:30630:30661 [{d}] NCCL INFO Channel {c:02d}/0 : {d}[{d}] -> {e}[{e}] [send] via NET/Libfabric/{d}/GDRDMA\n",  # noqa: E501
    "ip-10-1-0-{n}:30630:30661 [{d}] NCCL INFO Trees [0] {c}/-1/-1->{d}->-1 [1] {c}/-1/-1->{d}->-1\n",
    "ip-10-1-0-{n}:30630:30661 [{d}] NCCL INFO Connected all rings, use ring PXN 0 GDR 1\n",
    "ip-10-1-0-{n}:30630:30661 [{d}] NCCL INFO {c} coll channels, 16 collnet channels, 0 nvls channels, 32 p2p channels, 2 p2p channels per peer\n",  # noqa: E501
)
TRAINING = (
    " iteration {i:>8}/  500000 | consumed samples: {c:>12} | elapsed time per iteration (ms): 4120.5 | learning rate: 1.500E-05 | lm loss: 2.1{n}E+00 | grad norm: 1.204 |\n",  # noqa: E501
    "2026-02-18 10:{d:02d}:25,{c:03d} - train - INFO - step {i} loss 1.97{n} lr 3.0e-05 tok/s 10231 mem 61.2GiB\n",
    "[rank{d}]: step {i} | loss 2.1{n} | grad_norm 0.2113 | 10231 tok/s | data 0.01s\n",
)


def write(path: Path, size: int, info: float, where: str) -> None:
    chance = random.Random(7)
    block = []
    for index in range(20_000):
        shape = chance.choice(INFO if chance.random() < info else TRAINING)
        block.append(
            shape.format(
                n=chance.randrange(99),
                d=chance.randrange(8),
                e=chance.randrange(8, 16),
                c=chance.randrange(999),
                i=index,
            )
        )
    piece = "".join(block).encode()
    count = size // len(piece)
    at = {"start": 0, "middle": count // 2, "end": count - 1}[where]
    with open(path, "wb") as file:
        for number in range(count):
            file.write(piece)
            if number == at:
                file.write(ROOT_CAUSE.encode())


def figures(quick: bool) -> list[Figure]:
    rg = shutil.which("rg")
    if not rg:
        return [Figure("scan", "left out: ripgrep is not installed")]
    core = str(max(os.sched_getaffinity(0)))
    pinned = ("taskset", "-c", core)
    with tempfile.TemporaryDirectory() as folder:
        every = [literal for literal in Collector().literals if b"\n" not in literal]
        few = random.Random(1).sample([literal for literal in every if literal != b"OutOfMemoryError: "], 12)
        few.append(b"OutOfMemoryError: ")  # or rg would say by its exit status that it found nothing
        for name, literals in (("every", every), ("few", few)):
            Path(folder, name).write_bytes(b"".join(literal + b"\n" for literal in literals))
        rounds = 2 if quick else 4
        size = GIGABYTE  # in the short form, too: a quarter, times four, would count the start four times
        made: list[Figure] = []
        for info in (0.01, 0.5):
            log = Path(folder, "job.out")
            write(log, size, info, "middle")
            ours = best([*pinned, *HPSLURM, "scan", str(log)], rounds)
            wide, narrow = (
                best([*pinned, rg, "-j1", "-c", "-F", "-f", f"{folder}/{name}", str(log)], rounds)
                for name in ("every", "few")
            )
            made += _one_file(f"scan, {size / 1e9:g} GB, INFO {info:.0%}", ours, wide, narrow)
            made.append(_named(log))
        bare = _bare(rg, folder, pinned)
        return [*made, bare, _pipe(Path(folder, "job.out"), size, 2 if quick else 10), *_many(Path(folder), quick)]


def _one_file(what: str, ours: Used, wide: Used, narrow: Used) -> list[Figure]:
    told = f"{ours.busy:.2f} s of the processor, {ours.peak} MiB"
    return [
        at_most(f"{what}, one core", ours.busy, MOST_SECONDS, told),
        at_most(f"{what} / `rg -j1 -c -F -f`, all literals", ours.busy / wide.busy, 1.0, _ratio(ours, wide)),
        at_most(f"{what} / the same, 13 literals", ours.busy / narrow.busy, MOST_SLOWER, _ratio(ours, narrow)),
    ]


def _ratio(ours: Used, theirs: Used) -> str:
    return (
        f"{ours.busy / theirs.busy:.2f} times ({ours.busy:.2f} and {theirs.busy:.2f} s of the processor, "
        f"{ours.seconds:.2f} and {theirs.seconds:.2f} s by the clock)"
    )


def _named(log: Path) -> Figure:
    done = subprocess.run([*HPSLURM, "scan", str(log)], capture_output=True, text=True, env=environment(), check=True)
    right = "gpu_oom" in done.stdout and "rank 2" in done.stdout
    return Figure("the cause of that log, and whose it is", "named" if right else "not named", "named", right)


def _bare(rg: str, folder: str, pinned: tuple[str, ...]) -> Figure:
    log = Path(folder, "short.out")
    write(log, 10**8, 0.01, "middle")
    ours = best([*pinned, sys.executable, "-c", BARE, str(log)], 2)
    theirs = best([*pinned, rg, "-j1", "-c", "-F", "-f", f"{folder}/every", str(log)], 2)
    return at_most(
        "scan without Hyperscan, 0.1 GB / `rg`", ours.busy / theirs.busy, MOST_SLOWER_BARE, _ratio(ours, theirs)
    )


def _pipe(log: Path, size: int, times: int) -> Figure:
    with subprocess.Popen(["cat", *[str(log)] * times], stdout=subprocess.PIPE) as cat:
        assert cat.stdout is not None
        used = run([*HPSLURM, "scan", "-"], stdin=cat.stdout.fileno())
    return at_most(
        f"scan of {times * size / 1e9:g} GB by a pipe", used.peak, MEMORY, f"{used.peak} MiB, {used.seconds:.1f} s"
    )


def _many(folder: Path, quick: bool) -> list[Figure]:
    place = folder / "ranks"
    place.mkdir()
    count = 128 if quick else 1024
    for number in range(count):
        path = place / f"rank{number}.log"
        if number < 8:
            write(path, 10**7, 0.01 * number, "end")
        else:
            os.link(place / f"rank{number % 8}.log", path)
    cores = sorted(os.sched_getaffinity(0))[:2]
    if len(cores) < 2:
        return [Figure("scan of many files", "left out: one core")]
    command = [*HPSLURM, "scan", str(place)]
    alone, both = (best(["taskset", "-c", ",".join(map(str, some)), *command], 2) for some in (cores[:1], cores))
    what = f"scan of {count} files of 10 MB: two cores / one"
    faster = alone.seconds / both.seconds
    told = f"{faster:.2f} times as fast, {both.seconds:.1f} against {alone.seconds:.1f} s by the clock"
    more = f"{both.busy / alone.busy:.2f} times the seconds of the processor"
    return [at_least(what, faster, LEAST_FASTER, told), Figure("the work for that, in all", more)]


if __name__ == "__main__":
    show(figures("--quick" in sys.argv))
