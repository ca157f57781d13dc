"""How often ``hpslurm hang`` names the right ranks, on samples of jobs that were made; and how long it takes.

    python benchmarks/hang.py                     a first look
    python benchmarks/hang.py --seeds 8           as in benchmarks/hang.md
    python benchmarks/hang.py --other 200 --first 1000    samples of the other make, seeds from 1000 on

The samples (``tests/fake/hanging.py``): one group, or pipelines of 4 and 8 stages in which the many wait at different
places by design; one or two ranks to blame, out of ten kinds; with Python stacks and without. "named": exactly those
ranks are named; "right": with the cause. "accused": looks in which an innocent rank is named. "silent": looks that
name nobody. Rows with nobody to blame: a job that hangs for a reason that no rank shows, and one that works. The last
lines are means over the rows with somebody to blame, each row the same.

The other make (``tests/fake/hanging_frameworks.py``) was written without a look at the rules. Its rows are what the
rank to blame does, or what all do where nobody is to blame; ``some``: py-spy failed for 2 to 30 % of the ranks, of
guilty ones as of others.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from collections.abc import Iterable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from hpslurm.core import records
from hpslurm.job.hang import facts as hang_facts
from hpslurm.job.hang.case import Verdict
from hpslurm.job.hang.judge import judge
from tests.fake import hanging, hanging_frameworks
from tests.fake.hanging import Made

SIZES = (16, 128, 1024, 8192)
PIPELINES = (1, 4, 8)
OTHER_HEAD = "| stacks | kind | looks | named | right | accused | silent |\n" + "|---" * 7 + "|"
HEAD = "| ranks | stages | stacks | to blame | looks | named | right | accused | silent |\n" + "|---" * 9 + "|"


def cell(ranks: int, pipeline: int, stacks: bool, culprits: int, seeds: int) -> tuple[str, float, float, float]:
    kinds = hanging.KINDS if culprits else hanging.NONE
    looks = [
        (kind, hanging.made(ranks, kind, culprits, pipeline, stacks, seed)) for kind in kinds for seed in range(seeds)
    ]
    count, exact, right, accused, silent = counted(looks)
    row = (
        f"| {ranks} | {pipeline} | {'yes' if stacks else 'no'} | {culprits} | {count} "
        f"| {exact:.3f} | {right:.3f} | {accused:.4f} | {silent:.3f} |"
    )
    return row, exact, right, accused


def counted(looks: Iterable[tuple[str, Made]], tell: bool = False) -> tuple[int, float, float, float, float]:
    """How many looks, and the shares of them: named, right, accused, silent."""
    count = exact = right = accused = silent = 0
    for kind, made in looks:
        verdict = judge(made.sample)
        named = {suspect.rank for suspect in verdict.suspects}
        fits = named == made.culprits and (verdict.cause in made.causes if made.culprits else _fits(kind, verdict))
        count += 1
        exact += named == made.culprits
        right += fits
        accused += bool(named - made.culprits)
        silent += not named
        if tell and not fits:
            meant = f"{sorted(made.culprits)} {sorted(made.causes)}"
            print(f"    {kind}: {meant}, said {verdict.cause} {sorted(named, key=str)}: {verdict.why}")
    return count, exact / count, right / count, accused / count, silent / count


def _fits(kind: str, verdict: Verdict) -> bool:
    """Of a job that works it must not be said that it hangs."""
    return kind in ("nobody", "network") or not verdict.hangs


def other_make(seeds: range, tell: bool) -> None:
    """Kinds with somebody to blame, and without; each with all stacks, some and none."""
    print(OTHER_HEAD)
    for stacks in ("all", "some", "none"):
        rates = []
        for kind in (*hanging_frameworks.kinds(), *hanging_frameworks.NONE):
            looks = ((kind, hanging_frameworks.made(kind, seed, stacks)) for seed in seeds)
            count, exact, right, accused, silent = counted(looks, tell)
            rates.append((kind in hanging_frameworks.NONE, right, accused))
            print(
                f"| {stacks} | {kind} | {count} | {exact:.3f} | {right:.3f} | {accused:.4f} | {silent:.3f} |",
                flush=True,
            )
        for words, nobody in (("somebody", False), ("nobody", True)):
            rows = [row for row in rates if row[0] == nobody]
            right, accused = (sum(row[place] for row in rows) / len(rows) for place in (1, 2))
            print(f"stacks {stacks}, {words} to blame: {right:.4f} right, {accused:.4f} accuse an innocent")


def speed() -> str:
    """Reading and judging what 1,000 nodes of 8 ranks send."""
    made = hanging.made(8000, "data", 1, 8, True, 0)
    lines = [records.encode(line, ascii_only=True) for line in hang_facts.lines_of(made.sample)]
    largest = max(map(len, lines))
    began = time.monotonic()
    sample = hang_facts.sample_of(map(json.loads, lines))
    assert sample is not None
    judge(sample)
    seconds = time.monotonic() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    return f"1,000 nodes of 8 ranks: {seconds:.2f} s, {peak} MiB at most, {largest / 1024:.1f} KiB the largest node"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10, help="of each kind; the largest size has a tenth")
    parser.add_argument("--other", type=int, default=0, help="looks of each kind of the other make, instead")
    parser.add_argument("--first", type=int, default=0, help="seed of its first look")
    parser.add_argument("--tell", action="store_true", help="print each of its looks that was not judged rightly")
    chosen = parser.parse_args()
    began = time.monotonic()
    if chosen.other:
        other_make(range(chosen.first, chosen.first + chosen.other), chosen.tell)
        return
    print(speed())
    print(HEAD)
    shares: dict[bool, list[tuple[float, ...]]] = {True: [], False: []}
    for ranks in SIZES:
        for pipeline in PIPELINES:
            for stacks in (True, False):
                for culprits in (1, 2, 0):
                    seeds = max(1, chosen.seeds // (20 if ranks > 1024 else 4 if ranks > 128 else 1))
                    row, *rates = cell(ranks, pipeline, stacks, culprits, seeds)
                    print(row, flush=True)
                    if culprits:
                        shares[stacks].append(tuple(rates))
    for stacks, rows in shares.items():
        exact, right, accused = (sum(column) / len(rows) for column in zip(*rows, strict=True))
        words = "with" if stacks else "without"
        print(f"{words} stacks: {exact:.4f} named, {right:.4f} right, {accused:.4f} accuse an innocent")
    print(f"{time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
