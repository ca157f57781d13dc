"""Speed of ``hpslurm scan`` against ``rg -j1 -F -f`` with the shipped literals, on one pinned core, warm cache.

    python benchmarks/scan_throughput.py [GIB]

For NCCL INFO lines at 1 and 50 percent and the root cause at the start, in the middle and at the end of the
file: wall time with start-up of both programs, our peak memory, and whether the diagnosis is right.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from hpslurm.scan.collect import Collector

ROOT_CAUSE = "[rank2]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU 2 has a total capacity of 79.11 GiB\n"  # noqa: E501
TARGET = 0.8  # of ripgrep's speed
MEMORY = 100  # MiB
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


def timed(words: list[str], core: int) -> tuple[float, float, bytes, int]:
    """Best of three: (seconds, seconds of the processor, stdout, peak MiB)."""
    best, busy, out, peak = float("inf"), float("inf"), b"", 0
    for _ in range(3):
        with tempfile.TemporaryFile() as sink:
            began = time.perf_counter()
            child = subprocess.Popen(["taskset", "-c", str(core), *words], stdout=sink, stderr=subprocess.DEVNULL)
            _, _, usage = os.wait4(child.pid, 0)
            best = min(best, time.perf_counter() - began)
            busy = min(busy, usage.ru_utime + usage.ru_stime)
            child.returncode = 0
            sink.seek(0)
            out, peak = sink.read(), max(peak, usage.ru_maxrss // 1024)
    return best, busy, out, peak


def main() -> int:
    size = int(float(sys.argv[1] if len(sys.argv) > 1 else 1) * (1 << 30))
    rg = shutil.which("rg")
    if not rg:
        print("ripgrep is not installed")
        return 1
    print(subprocess.run([rg, "--version"], capture_output=True, text=True, check=True).stdout.splitlines()[0])
    core = max(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as folder:
        literals = Path(folder, "literals")
        shipped = [literal for literal in Collector().literals if b"\n" not in literal]
        literals.write_bytes(b"".join(literal + b"\n" for literal in shipped))
        print(f"{len(shipped)} literals, {size / 1e9:.2f} GB, core {core}")
        poor = 0
        for info in (0.01, 0.5):
            for where in ("start", "middle", "end"):
                log = Path(folder, "job.out")
                write(log, size, info, where)
                with open(log, "rb") as file:  # warm the cache, without growing ourselves: a child's peak includes ours
                    while file.read(1 << 20):
                        pass
                theirs, theirs_busy, _, _ = timed([rg, "-j1", "-F", "-f", str(literals), str(log)], core)
                ours, ours_busy, out, peak = timed(
                    [sys.executable, "-c", "from hpslurm.cli import main; main()", "scan", "--json", str(log)], core
                )
                lines = [json.loads(line) for line in out.splitlines()]
                found = next((line for line in lines if line["type"] == "diagnosis"), {})
                right = (found.get("cause"), (found.get("culprit") or {}).get("rank")) == ("gpu_oom", 2)
                good = theirs / ours >= TARGET and right and peak < MEMORY
                poor += not good
                print(
                    f"INFO {info:4.0%}  root at {where:6}  rg {theirs:6.2f} s  scan {ours:6.2f} s  {theirs / ours:5.2f}x  "  # noqa: E501
                    f"(processor {theirs_busy:.2f} and {ours_busy:.2f} s, {theirs_busy / ours_busy:.2f}x)  "
                    f"{peak} MiB  {'right' if right else 'WRONG'} {'' if good else 'BELOW TARGET'}"
                )
    return 1 if poor else 0


if __name__ == "__main__":
    raise SystemExit(main())
