"""Starts two ranks on its node, as torchrun does: they learn who they are from RANK, LOCAL_RANK and WORLD_SIZE."""

from __future__ import annotations

import os
import subprocess
import sys

PER_NODE = 2

first, world = int(os.environ["SLURM_PROCID"]) * PER_NODE, int(os.environ["SLURM_NTASKS"]) * PER_NODE
workers = [
    subprocess.Popen(
        [sys.executable, os.path.join(os.path.dirname(__file__), "train.py"), *sys.argv[1:]],
        env={**os.environ, "RANK": str(first + local), "LOCAL_RANK": str(local), "WORLD_SIZE": str(world)},
    )
    for local in range(PER_NODE)
]
sys.exit(max(worker.wait() for worker in workers))
