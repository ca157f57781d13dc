"""Whom the results of a search accuse: nodes, paths, rails and groups, and what stays open."""

from __future__ import annotations

import statistics

from hpslurm.core.values import dataclass, replace
from hpslurm.nccl_tests.halving import halving
from hpslurm.nccl_tests.inside import slow_alone, slow_rails
from hpslurm.nccl_tests.runs import OK, Result, State
from hpslurm.nccl_tests.weigh import Key, Weighed


@dataclass(frozen=True)
class Named:
    """Who is at fault. ``share`` of the normal rate (median of its slow runs), ``slow`` of ``runs`` runs were slow."""

    kind: str  # "node", "path", "rail", "group"
    nodes: tuple[str, ...]
    how: str  # "slow", "slow at times", "hung", "failed", "wrong data"
    share: float
    slow: int
    runs: int
    rail: int | None = None
    inside: bool | None = None  # slow also when alone: GPU, NVLink, PCIe; None: not known
    blocks: tuple[str, ...] = ()  # of a path: the two blocks of the topology that it joins


@dataclass(frozen=True)
class Verdict:
    """What the results say so far. In GB/s: ``normal``, of a run that nothing slows; ``line``, slow is below."""

    named: tuple[Named, ...]
    undecided: tuple[str, ...]
    once: tuple[tuple[str, ...], ...]  # pairs that were slow once and never again
    normal: float
    line: float
    tested: int  # nodes with a fast run
    whole: float | None = None  # rate of all nodes together, where it was run
    whole_status: str = OK
    wrong: tuple[tuple[str, ...], ...] = ()  # nodes of runs that computed wrong data, where no named one explains it
    bad: tuple[str, ...] = ()  # how the pairs ended, where not one was fast
    nodes: int = 0  # of the search


def verdict(state: State) -> Verdict:
    """Who is named, who is undecided, and what was slow only once."""
    weighed = Weighed(state)
    named = [each for node, how in weighed.nodes.items() for each in _named_node(weighed, node, how)]
    paths = sorted(weighed.paths.items(), key=lambda path: sorted(path[0]))
    named += [_named_path(weighed, key, how) for key, how in paths]
    if len(weighed.groups) > 2:
        named += _named_group(weighed)
    whole = weighed.groups[0] if weighed.groups else None
    return Verdict(
        named=tuple(named),
        undecided=tuple(key for key in weighed.suspects if isinstance(key, str) and key not in weighed.nodes),
        once=_slow_once(weighed),
        normal=weighed.noise.normal,
        line=weighed.line,
        tested=len(weighed.fast),
        whole=whole.value if whole else None,
        whole_status=whole.status if whole else OK,
        wrong=tuple(sorted({tuple(sorted(result.run.nodes)) for result in weighed.wrong()})),
        bad=() if weighed.fast else tuple(sorted({result.status for result in weighed.slow})),
        nodes=len(state.nodes),
    )


def _slow_once(weighed: Weighed) -> tuple[tuple[str, ...], ...]:
    """Pairs of nodes that are fast with others, slow beyond noise, and explained by nobody."""
    strong = weighed.noise.normal * weighed.shares[1]
    pairs = (tuple(sorted(result.run.nodes)) for result in weighed.unexplained if result.value < strong)
    return tuple(sorted({pair for pair in pairs if weighed.fast.issuperset(pair)}))


def _how_it_ended(slow: list[Result], how: str) -> str:
    """The usual end of its slow runs, where at least half have no rate; else ``how``."""
    bad = [result.status for result in slow if result.status != OK]
    return statistics.mode(bad) if bad and len(bad) * 2 >= len(slow) else how


def _named_node(weighed: Weighed, node: str, how: str) -> list[Named]:
    slow = [result for result in weighed.slow if node in result.run.nodes]
    others = set(weighed.nodes) - {node}
    slow = [result for result in slow if others.isdisjoint(result.run.nodes)]
    how = _how_it_ended(slow, how)
    inside = slow_alone(weighed, node)
    base = Named("node", (node,), how, weighed.share(slow), len(slow), len(weighed.of[node]), None, inside)
    return [replace(base, kind="rail", rail=rail) for rail in slow_rails(weighed, node)] or [base]


def _named_path(weighed: Weighed, key: Key, how: str) -> Named:
    """A path between two blocks, or between two nodes."""
    blocks = key if isinstance(key, tuple) else ()
    if blocks:
        slow = [result for result in weighed.slow if weighed.blocks(result) == blocks]
    else:
        slow = [result for result in weighed.slow if frozenset(result.run.nodes) == key]
    nodes = sorted({node for result in slow for node in result.run.nodes})
    runs = len(slow) + weighed.count_fast(key)
    return Named("path", tuple(nodes), _how_it_ended(slow, how), weighed.share(slow), len(slow), runs, blocks=blocks)


def _named_group(weighed: Weighed) -> list[Named]:
    candidates, _ = halving(weighed)
    if len(candidates) == len(weighed.state.nodes):
        return []
    halves = weighed.groups[1:]
    slow = [result for result in halves if set(candidates) <= set(result.run.nodes)]
    fast = [result.value for result in halves if result not in slow and result.value]
    rates = [result.value for result in slow if result.value]
    share = statistics.median(rates) / statistics.median(fast) if rates and fast else 0.0
    kind = "node" if len(candidates) == 1 else "group"
    return [Named(kind, tuple(candidates), "slow with many nodes", share, len(slow), len(slow))]
