"""Who slows groups of many nodes, where all pairs are fast: halves of the candidates are compared."""

from __future__ import annotations

from collections.abc import Sequence

from hpslurm.nccl_tests.runs import GROUP, Run
from hpslurm.nccl_tests.weigh import CONFIRM, Weighed

WEIGHTS, PROOF = (0.75, 1.0, 1.5), 3.0  # two sure comparisons decide, three strong ones or four weak ones


def next_groups(weighed: Weighed) -> list[Run]:
    """All together; then halves of the candidates, each filled up with known good nodes to half of all."""
    quiet = not (weighed.nodes or weighed.paths or weighed.suspects)
    if not weighed.options.scale or not quiet or len(weighed.state.nodes) < 4:
        return []
    if not weighed.groups:
        return [Run(GROUP, weighed.state.nodes)]
    candidates, again = halving(weighed)
    if not again:
        return []
    return [Run(GROUP, tuple(half)) for half in _halves(weighed.state.nodes, candidates)]


def _halves(nodes: Sequence[str], candidates: Sequence[str]) -> list[list[str]]:
    """Two groups of half of all nodes, with half of the candidates in each."""
    size = len(nodes) // 2
    middle = len(candidates) // 2
    inside = set(candidates)
    good = [node for node in nodes if node not in inside]
    filling = size - middle
    first = [*candidates[:middle], *good[:filling]]
    second = [*candidates[middle:], *good[filling:]][:size]
    return [first, second]


def halving(weighed: Weighed) -> tuple[list[str], bool]:
    """Who may be at fault after the comparisons so far, and whether another one can tell more."""
    candidates = list(weighed.state.nodes)
    left = weighed.groups[1:]
    while len(candidates) > 1:
        halves = [tuple(half) for half in _halves(weighed.state.nodes, candidates)]
        weights, times = [0.0, 0.0], 0
        while len(left) >= 2 and [left[0].run.nodes, left[1].run.nodes] == halves and max(weights) < PROOF:
            for side, weight in enumerate(_slower(weighed, left[0].value, left[1].value)):
                weights[side] += weight
            times, left = times + 1, left[2:]
        if max(weights) >= PROOF and min(weights) == 0:
            slower = set(halves[weights.index(max(weights))])
            candidates = [node for node in candidates if node in slower]
            continue
        # no difference at first sight: it needs more than half of the nodes, or there is nothing
        return candidates, times < CONFIRM and (not times or max(weights) > 0) and min(weights) == 0
    return candidates, False


def _slower(weighed: Weighed, first: float, second: float) -> tuple[float, float]:
    """The weight against each of two halves."""
    against_first = _weight(first, [share * second for share in weighed.shares])
    return against_first, _weight(second, [share * first for share in weighed.shares])


def _weight(value: float, lines: Sequence[float]) -> float:
    """How much it says that a value lies below a weak, a strong and a sure line."""
    return max((weight for weight, line in zip(WEIGHTS, lines, strict=True) if value < line), default=0.0)
