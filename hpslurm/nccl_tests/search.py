"""Finds the node, path or rail that slows a collective: plans which nodes run together next.

One slow NIC slows every node of a job, and the whole does not tell which. Two nodes that run alone together do.
So all nodes run in disjoint pairs, at the same time; the members of slow pairs run again with partners that were
fast, and who is slow with every partner is named. Two nodes that are fast with others and slow together have a
slow path between them. What shows only with many nodes is found by halving, with known good nodes as filling.

Everything here is a pure function of the nodes, the seed and the results so far: the runner, the dry run, the
resumed run and the simulator take the same steps. A round is a set of runs on disjoint nodes.

Here is what to run next: all in pairs, then what is in doubt. ``weigh.py`` says what the results say, ``accused.py``
whom they name; ``inside.py`` looks into accused nodes and ``halving.py`` at groups of many nodes.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterable, Mapping, Sequence

from hpslurm.core.values import dataclass
from hpslurm.nccl_tests.halving import next_groups
from hpslurm.nccl_tests.inside import CONTROLS, MOST_INSIDE, next_alone, next_rails, rail_rounds
from hpslurm.nccl_tests.runs import PAIR, PATH, RETEST, Options, Run, State
from hpslurm.nccl_tests.weigh import CONFIRM, Key, Seen, Weighed


def next_round(state: State) -> tuple[Run, ...]:
    """The runs to do next, on disjoint nodes; empty when there is nothing left to learn."""
    if runs := _sweep(Seen(state)):
        return tuple(runs)
    weighed = Weighed(state)
    return tuple(_doubt(weighed) or next_alone(weighed) or next_rails(weighed) or next_groups(weighed))


def _dice(state: State) -> random.Random:
    return random.Random(f"{state.options.seed}/{len(state.rounds)}")


def _sweep(seen: Seen) -> list[Run]:
    """All nodes in disjoint pairs; with an odd number the last one goes with one that is done already."""
    state = seen.state
    if len(state.nodes) < 2 or seen.count(RETEST, PATH):
        return []
    times = {node: sum(result.run.kind == PAIR for result in seen.of[node]) for node in state.nodes}
    sweep = min(times.values(), default=0)
    if sweep >= state.options.sweeps:
        return []
    left = [node for node in state.nodes if times[node] == sweep]
    dice = _dice(state)
    dice.shuffle(left)
    if len(left) == 1:
        met = seen.partners(left[0])
        others = [node for node in state.nodes if node != left[0] and node not in met]
        return [Run(PAIR, (left[0], dice.choice(others or [n for n in state.nodes if n != left[0]])))]
    pairs = _across_blocks(left, seen, dice) if state.blocks else []
    taken = {node for pair in pairs for node in pair}
    pairs += _new_pairs([node for node in left if node not in taken], seen)
    return [Run(PAIR, pair) for pair in pairs]


def _new_pairs(left: Iterable[str], seen: Seen) -> list[tuple[str, str]]:
    """Pairs in the order given, avoiding those that have met where that is easy."""
    pairs = []
    left = list(left)
    while len(left) > 1:
        node = left.pop()
        met = seen.partners(node)
        place = next((i for i in range(len(left) - 1, -1, -1) if left[i] not in met), len(left) - 1)
        pairs.append((node, left.pop(place)))
    return pairs


def _across_blocks(left: list[str], seen: Seen, dice: random.Random) -> list[tuple[str, str]]:
    """One pair for every two blocks of the topology, as far as the nodes go: each path between blocks is seen."""
    members: dict[str, list[str]] = {}
    for node in left:
        members.setdefault(seen.block(node), []).append(node)
    wanted = list(itertools.combinations(sorted(members), 2))
    dice.shuffle(wanted)
    pairs = []
    for here, there in wanted:
        for first in members[here]:
            met = seen.partners(first)
            second = next((node for node in members[there] if node not in met), None)
            if second is not None:
                pairs.append((first, second))
                members[here].remove(first)
                members[there].remove(second)
                break
    return pairs


def _doubt(weighed: Weighed) -> list[Run]:
    """Suspects with partners that are beyond doubt; and doubtful paths with others of the nodes that they join."""
    if not weighed.suspects or weighed.count(RETEST, PATH) >= weighed.options.retest_rounds:
        return []
    dice = _dice(weighed.state)
    trusted = weighed.trusted()
    dice.shuffle(trusted)
    free = dict.fromkeys(trusted)
    nodes = [key for key in weighed.suspects if isinstance(key, str)]
    dice.shuffle(nodes)
    runs = _nodes_in_doubt(weighed, nodes, free)
    for key in weighed.suspects:
        pair = _path_in_doubt(weighed, key, free)
        if pair is not None:
            runs.append(Run(PATH, pair))
            for node in pair:
                free.pop(node, None)
    return runs


def _nodes_in_doubt(weighed: Weighed, nodes: Sequence[str], free: dict[str, None]) -> list[Run]:
    """Each with a partner out of the free ones, which is taken from them; else with each other."""
    homes = {weighed.block(node) for node in free}
    again = weighed.options.at_times
    # where a block has nobody to trust, its suspects may clear each other: no path between blocks is in the way
    lonely = [node for node in nodes if weighed.state.blocks and weighed.block(node) not in homes]
    runs = [Run(RETEST, pair) for pair in _at_home(weighed, lonely)]
    busy = {node for run in runs for node in run.nodes}
    waiting = []
    for node in nodes:
        if node in busy:
            continue
        partner = _best_partner(node, free, weighed, homes)
        if partner is None:
            waiting.append(node)
        else:
            del free[partner]
            runs.append(Run(RETEST, (node, partner)))
    pairs = _at_home(weighed, waiting) if weighed.state.blocks else _new_pairs(waiting, weighed)
    return runs + [Run(RETEST, pair) for pair in pairs if again or pair[1] not in weighed.partners(pair[0])]


def _at_home(weighed: Weighed, nodes: Iterable[str]) -> list[tuple[str, str]]:
    """Pairs inside blocks; of nodes that have met only where a fault may come and go."""
    of: dict[str, list[str]] = {}
    for node in nodes:
        of.setdefault(weighed.block(node), []).append(node)
    pairs = [pair for members in of.values() for pair in _new_pairs(members, weighed)]
    return [pair for pair in pairs if weighed.options.at_times or pair[1] not in weighed.partners(pair[0])]


def _best_partner(node: str, free: Iterable[str], weighed: Weighed, homes: set[str]) -> str | None:
    """A new partner of the same block, so that no path between blocks comes in; else any new one; else any.

    Where the block has partners that others took this time, None: better wait than bring in a path.
    """
    met, home = weighed.partners(node), weighed.block(node)
    far = old = None
    for other in free:
        if weighed.block(other) != home:
            far = far or (None if other in met else other)
        elif other not in met:
            return other
        else:
            old = old or other
    if old is not None and weighed.state.blocks:
        return old
    if weighed.state.blocks and home in homes:
        return None
    return far or old or next(iter(free), None)


def _path_in_doubt(weighed: Weighed, key: Key, free: Mapping[str, None]) -> tuple[str, str] | None:
    """Who tests a path: free nodes of both its blocks; or the pair itself, once there is no doubt about either."""
    if isinstance(key, str):
        return None
    if isinstance(key, frozenset):
        first, second = sorted(key)
        return (first, second) if first in free and second in free else None
    ends: list[list[str]] = [[node for node in free if weighed.block(node) == block] for block in key]
    for first in ends[0]:
        met = weighed.partners(first)
        for second in ends[1]:
            if second not in met or weighed.options.at_times:
                return first, second
    return None


# what it may cost


@dataclass(frozen=True)
class Bound:
    """What a search costs at most. Waves are what runs at once; node-minutes are those of the allocation."""

    rounds: int
    waves: int
    minutes: float
    node_minutes: float


def bound(nodes: int, options: Options, most: int, seconds: float) -> Bound:
    """The upper bound for so many nodes, ``most`` steps at once, and a limit of ``seconds`` for each run."""
    if nodes < 2:
        return Bound(0, 0, 0.0, 0.0)
    pair_waves = math.ceil(nodes // 2 / most)
    odd = options.sweeps * (nodes % 2)
    waves = options.sweeps * pair_waves + odd
    rounds = options.sweeps + odd
    rounds, waves = rounds + options.retest_rounds, waves + options.retest_rounds * pair_waves
    if options.alone:
        rounds, waves = rounds + 1, waves + math.ceil(min(nodes, MOST_INSIDE + CONTROLS) / most)
    # halving happens only when nobody is accused, so either it or looking inside
    halving = CONFIRM * math.ceil(math.log2(nodes)) if options.scale and nodes >= 4 else 0
    rails = rail_rounds(options)
    rail_waves = rails * math.ceil(min(MOST_INSIDE, nodes // 2) / most)
    whole = 1 if halving else 0
    rounds, waves = rounds + max(rails, whole + halving), waves + max(rail_waves, whole + halving * math.ceil(2 / most))
    minutes = waves * seconds / 60
    return Bound(rounds, waves, minutes, minutes * nodes)
