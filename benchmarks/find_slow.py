"""How often the search for the slow node is right: a table over sizes, faults and slowdowns of a model cluster.

    python benchmarks/find_slow.py                          a first look: 20 seeds, 5 for 1,024 nodes
    python benchmarks/find_slow.py --nodes 16 --seeds 1000  all seeds of one size

The model (``tests/fake/cluster.py``): every run is slower than 478 GB/s by the absolute value of a normal with 5
percent; a fault lowers the runs that it touches to its share. Faults that are always there are searched with the
quick preset, those that show in half of the runs with the full one. A slow path lies between two blocks of the
topology, which the planner is told. "right": exactly the faults are named. "accused": healthy nodes that are
named, as a share of all healthy nodes. A search of 1,024 nodes takes 0.1 s, one for faults that come and go 1 s.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from hpslurm.core.values import replace
from hpslurm.nccl_tests.runs import FULL, QUICK
from tests.fake import cluster as model

SIZES = (16, 128, 1024)
KINDS = (model.NODE, model.PATH, model.RAIL)
SHARES = (0.9, 0.75, 0.5)
HEAD = "| nodes | fault | shows | how many | share | seeds | right | accused | rounds | runs |\n" + "|---" * 10 + "|"


def cell(size: int, kind: str, faults: int, share: float, often: float, seeds: int) -> str:
    """One row of the table."""
    options = replace(QUICK if often == 1 else FULL, rails=model.RAILS if kind == model.RAIL else 0)
    right = accused = rounds = runs = 0
    for seed in range(seeds):
        cluster = model.cluster(size, kind, faults, share, seed, often)
        state, verdict = model.search(cluster, replace(options, seed=seed))
        right += model.named(verdict) == model.truth(cluster)
        accused += model.healthy_accused(cluster, verdict)
        rounds += len(state.rounds)
        runs += sum(len(results) for results in state.rounds)
    healthy = seeds * (size - (faults if kind != model.PATH else 0))
    shows = "always" if often == 1 else "half"
    return (
        f"| {size} | {kind} | {shows} | {faults} | {share} | {seeds} | {right / seeds:.3f} | {accused / healthy:.6f} "
        f"| {rounds / seeds:.1f} | {runs / seeds:.0f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, choices=SIZES, action="append")
    parser.add_argument("--seeds", type=int, help="0 to SEEDS-1; by default few")
    parser.add_argument("--often", type=float, choices=(1.0, 0.5), action="append")
    parser.add_argument("--share", type=float, choices=SHARES, action="append")
    parser.add_argument("--kind", choices=KINDS, action="append")
    parser.add_argument("--faults", type=int, choices=(0, 1, 2, 3), action="append")
    chosen = parser.parse_args()
    began = time.monotonic()
    print(HEAD)
    for size in chosen.nodes or SIZES:
        seeds = chosen.seeds or (20 if size < 1000 else 3)
        for often in chosen.often or (1.0, 0.5):
            for kind in chosen.kind or KINDS:
                for faults in chosen.faults or (1, 2, 3):
                    for share in chosen.share or SHARES:
                        print(cell(size, kind, faults, share, often, seeds), flush=True)
    print(f"{time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
