"""Where in an accused node the fault is: alone, without any partner, or in one GPU position and so its NICs."""

from __future__ import annotations

import statistics
from collections import Counter

from hpslurm.core.values import replace
from hpslurm.nccl_tests import likelihood
from hpslurm.nccl_tests.runs import ALONE, OK, RAIL, Options, Result, Run
from hpslurm.nccl_tests.weigh import CONFIRM, TOP_TO_QUARTER, Weighed, is_fast, ratio

ALL_RAILS, RAIL_SUSPICION = -1, -3.0  # that one of them is at fault is known
CONTROLS = 3  # good nodes that run alone beside the accused
MOST_INSIDE = 8  # accused nodes that are looked into, alone and by rail


def next_alone(weighed: Weighed) -> list[Run]:
    """The accused, and some good nodes to compare with, each for itself: is the fault inside the node?"""
    nodes = _looked_into(weighed)
    if not weighed.options.alone or not nodes or weighed.inside:
        return []
    return [Run(ALONE, (node,)) for node in [*nodes, *weighed.trusted()[:CONTROLS]]]


def next_rails(weighed: Weighed) -> list[Run]:
    """One GPU position at a time, of an accused node and a good partner; slow ones again until it is sure."""
    options = weighed.options
    if options.rails < 2 or weighed.count(RAIL) >= rail_rounds(options):
        return []
    partners = weighed.trusted()
    runs = []
    for node in _looked_into(weighed):
        if not partners:
            break
        if slow_alone(weighed, node):  # inside the node no NIC is used
            continue
        done = [result for result in weighed.rails if result.run.nodes[0] == node]
        partner = done[0].run.nodes[1] if done else partners[-1]
        if partner in partners:
            partners.remove(partner)
        rail = _next_rail(weighed, node, done)
        if rail is not None:
            runs.append(Run(RAIL, (node, partner), rail))
    return runs


def _looked_into(weighed: Weighed) -> list[str]:
    """Accused nodes that are slow; one that hangs or fails would only do so again."""
    slow = {node for result in weighed.slow if result.status == OK for node in result.run.nodes}
    return [node for node in weighed.nodes if node in slow][:MOST_INSIDE]


def slow_alone(weighed: Weighed, node: str) -> bool | None:
    """Whether the node is slow without any partner; None where that was not tried, or one run cannot tell."""
    alone = {result.run.nodes[0]: result.value for result in weighed.inside}
    controls = [value for other, value in alone.items() if other not in weighed.nodes]
    if node not in alone or not controls:
        return None
    weak, strong, _ = weighed.shares
    share = alone[node] / (statistics.median(controls) or 1.0)
    return True if share < strong else False if share >= weak else None


def rail_rounds(options: Options) -> int:
    """The most rounds of rails: all passes, and some to confirm."""
    return options.rails * options.rail_passes + 2 * CONFIRM if options.rails > 1 else 0


def _next_rail(weighed: Weighed, node: str, done: list[Result]) -> int | None:
    """Each rail once; then those in doubt, until it is sure; then all again, for a fault that comes and goes."""
    rails = range(weighed.options.rails)
    times = Counter(result.run.rail for result in done)
    if missing := [rail for rail in rails if not times[rail]]:
        return missing[0]
    explained = _rails(weighed, node)
    if explained.named and not explained.open:
        return None
    doubtful = [rail for rail in explained.suspects() if rail != ALL_RAILS]
    if doubtful:
        return min(doubtful, key=lambda rail: (times[rail], rail))
    least = min(times.values())
    return next(rail for rail in rails if times[rail] == least) if least < weighed.options.rail_passes else None


def _rails(weighed: Weighed, node: str) -> likelihood.Explanation[int]:
    """What explains the slow runs of one GPU position at a time: some of the positions, or the node as a whole."""
    done = [result for result in weighed.rails if result.run.nodes[0] == node]
    best = sorted((result.value for result in done), reverse=True)[: max(1, len(done) // 2)]
    usual = statistics.median(best or [0.0])
    noise = replace(weighed.noise, normal=usual / (1 - TOP_TO_QUARTER * weighed.noise.sigma))
    # a rail that slows the node is about as slow as the node itself
    share = weighed.share([result for result in weighed.slow if node in result.run.nodes])
    line = noise.normal * min(1 - noise.least, (1 + share) / 2)
    fast = Counter(result.run.rail for result in done if is_fast(result, line))
    runs = [
        likelihood.Doubtful(ratio(result, noise), (result.run.rail, ALL_RAILS))
        for result in done
        if result.run.rail is not None and not is_fast(result, line)
    ]
    price = likelihood.price(weighed.options.rails)
    return likelihood.Explanation(
        runs,
        lambda rail: fast.total() if rail == ALL_RAILS else fast[rail],
        lambda rail: price,
        weighed.options.at_times,
        suspicion=RAIL_SUSPICION,
    )


def slow_rails(weighed: Weighed, node: str) -> list[int]:
    """Rails of a node that are slow, while most are not."""
    if not any(result.run.nodes[0] == node for result in weighed.rails):
        return []
    explained = _rails(weighed, node)
    named = sorted(rail for rail in explained.named if rail not in explained.open)
    return [] if ALL_RAILS in named or len(named) > weighed.options.rails // 2 else named
