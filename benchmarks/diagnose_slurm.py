"""diagnose against a slurmctld with 10,000 configured nodes, as a ratio to Slurm's own command.

    python benchmarks/diagnose_slurm.py [nodes]

A real lab (root needed) with four slurmd; the other nodes are configured only, and so not
registered: the worst case, since every one of them is a finding. The yardstick is what
prints all nodes as JSON in this release: ``sinfo --json`` up to 23.02, else ``scontrol show
nodes --json``. Both run in turn, and the medians are compared.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.lab.fixtures import why_not
from tests.lab.lab import Lab, new_folder

ROUNDS = 5
MOST_RATIO, MOST_MIB = 3.0, 300
DIAGNOSE = [sys.executable, "-c", "from hpslurm.cli import main; main()", "diagnose"]
PEAK = "import resource, subprocess, sys; subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL); "
PEAK += "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024)"


def seconds(lab: Lab, words: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run(words, env=lab.environment(), stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began


def main() -> int:
    nodes = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    if reason := why_not():
        print(f"skipped: {reason}")
        return 0
    with Lab(new_folder(), nodes=nodes, start=4, prefix="ip-10-1-0-") as lab:
        yardstick = ["scontrol", "show", "nodes", "--json"]
        if lab.run(*yardstick).returncode:
            yardstick = ["sinfo", "--json"]
        pairs = [(seconds(lab, DIAGNOSE), seconds(lab, yardstick)) for _ in range(ROUNDS)]
        peak = int(lab.run(sys.executable, "-c", PEAK, *DIAGNOSE).stdout)
    ours, theirs = (statistics.median(column) for column in zip(*pairs, strict=True))
    print(f"{nodes} nodes: diagnose {ours:.2f} s, {' '.join(yardstick)} {theirs:.2f} s, ratio {ours / theirs:.1f}")
    print(f"peak memory {peak} MiB (children's largest, ours included)")
    good = ours / theirs <= MOST_RATIO and peak < MOST_MIB
    print(f"target: ratio at most {MOST_RATIO}, under {MOST_MIB} MiB: {'met' if good else 'NOT met'}")
    return 0


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.environ.pop("SLURM_CONF", None)
    sys.exit(main())
