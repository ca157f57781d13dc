"""Finds the node, path or rail that slows a collective: plans which nodes run together next.

One slow NIC slows every node of a job, and the whole does not tell which. Two nodes that run alone together do.
So all nodes run in disjoint pairs, at the same time; the members of slow pairs run again with partners that were
fast, and who is slow with every partner is named. Two nodes that are fast with others and slow together have a
slow path between them. What shows only with many nodes is found by halving, with known good nodes as filling.

Everything here is a pure function of the nodes, the seed and the results so far: the runner, the dry run, the
resumed run and the simulator take the same steps. A round is a set of runs on disjoint nodes.

What the results say about who is at fault is in ``likelihood.py``; the scatter of the pairs themselves tells what is
slow. Rates are busbw in GB/s.
"""

from __future__ import annotations

import math
import random
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from hpslurm.core.values import dataclass, field, replace
from hpslurm.nccl_tests import likelihood
from hpslurm.nccl_tests.likelihood import Noise

PAIR = "pair"
RETEST = "retest"  # a suspect with a partner that was fast
PATH = "path"  # nodes beyond doubt, over a path that is in doubt
ALONE = "alone"  # inside one node
RAIL = "rail"  # one GPU of each node, and so its NICs
GROUP = "group"  # many nodes

SLOW, AT_TIMES = "slow", "slow at times"

OK = "ok"
HUNG = "hung"
FAILED = "failed"
WRONG = "wrong data"

# Scatter follows from the faster half of the pairs, which faults do not reach as long as they touch less than half:
# from the way between their fastest tenth and the middle. It is kept between these shares: independent public runs
# agree within 1 percent, but a little more costs nothing; more than 5 would hide what we look for. Few pairs tell
# little, so the upper bound counts like so many pairs more.
LEAST_SCATTER, MOST_SCATTER, PRIOR_PAIRS = 0.02, 0.05, 100
TENTH_TO_MIDDLE, TOP_TO_QUARTER = 0.549, 0.319  # in scatters, for the absolute value of a normal distribution
# One of two halves, or a node alone, against another: perhaps noise, hardly noise, not noise. In scatters, and the
# share that is not worth a hunt.
LINES = ((1.8, 0.05), (3.4, 0.1), (4.4, 0.13))
WEIGHTS, PROOF = (0.75, 1.0, 1.5), 3.0  # two sure comparisons decide, three strong ones or four weak ones
# A node is at fault more often than a path; in nats.
PATH_PRICE = 2.0
ALL_RAILS, RAIL_SUSPICION = -1, -3.0  # that one of them is at fault is known
CONFIRM = 3  # times that two halves are compared at most, and extra rounds for rails
CONTROLS = 3  # good nodes that run alone beside the accused
MOST_INSIDE = 8  # accused nodes that are looked into, alone and by rail


@dataclass(frozen=True)
class Options:
    """How thorough. ``sweeps`` of pairs with new partners; ``at_times``: also faults that come and go.

    A fault that is always there needs one sweep. One that shows in half of the runs needs many: eight sweeps
    miss it in 4 of 1,000 cases, ten in one, and one of several faults may hide behind another: twelve.
    """

    sweeps: int = 1
    at_times: bool = False
    retest_rounds: int = 8
    rails: int = 0  # GPUs of a node; 0: rails are not looked at
    rail_passes: int = 1
    alone: bool = True
    scale: bool = True
    seed: int = 0


QUICK = Options()
FULL = Options(sweeps=12, at_times=True, retest_rounds=24, rail_passes=10)


@dataclass(frozen=True)
class Run:
    """One step: these nodes together; ``rail`` is the GPU of each node, or None for all."""

    kind: str
    nodes: tuple[str, ...]
    rail: int | None = None


@dataclass(frozen=True)
class Result:
    """What a run came to. ``rate`` in GB/s, None unless ``status`` is ok."""

    run: Run
    rate: float | None
    status: str = OK

    @property
    def value(self) -> float:
        """The rate; a run that hung, failed or computed wrong data is slower than any."""
        return self.rate if self.status == OK and self.rate is not None else 0.0


@dataclass(frozen=True)
class State:
    """All that is known: nodes, how thorough, the topology's block of each node, and the rounds so far."""

    nodes: tuple[str, ...]
    options: Options = QUICK
    blocks: Mapping[str, str] = field(default_factory=dict)
    rounds: tuple[tuple[Result, ...], ...] = ()


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
    """What the results say so far. In GB/s: ``normal``, the upper quartile of the pairs; ``line``, slow is below."""

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


def observe(state: State, results: Iterable[Result]) -> State:
    """The state after a complete round."""
    return replace(state, rounds=(*state.rounds, tuple(results)))


def next_round(state: State) -> tuple[Run, ...]:
    """The runs to do next, on disjoint nodes; empty when there is nothing left to learn."""
    view = _View(state)
    if runs := _sweep(state, view):
        return tuple(runs)
    view.weigh()
    for plan in (_doubt, _alone, _rail, _group):
        if runs := plan(state, view):
            return tuple(runs)
    return ()


# what the results say

Key = str | tuple[str, str] | frozenset[str]  # a node, the two blocks that a path joins, a pair


def _is_path(key: Key) -> bool:
    return isinstance(key, tuple)


class _View:
    """The results, sorted and weighed, and who they name; everything else reads this."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.options = state.options
        every = [result for results in state.rounds for result in results]
        self._pairs = [one for one in every if one.run.kind in (PAIR, RETEST, PATH)]
        self.inside = [one for one in every if one.run.kind == ALONE]
        self.rails = [one for one in every if one.run.kind == RAIL]
        self.groups = [one for one in every if one.run.kind == GROUP]
        self.of: dict[str, list[Result]] = {node: [] for node in state.nodes}
        for one in self._pairs:
            for node in one.run.nodes:
                self.of[node].append(one)

    def weigh(self) -> None:
        """What is only needed once all nodes have run in pairs: who is fast, who is named, who is in doubt."""
        rates = [one for one in self._pairs if one.status == OK]
        self.noise = _noise([one.value for one in rates if one.run.kind == PAIR] or [one.value for one in rates])
        self.line = self.noise.normal * (1 - self.noise.least)  # below this rate a run is not fast
        self.slow: list[Result] = []  # not fast, to be exact
        fast: list[Key] = []
        for one in self._pairs:  # thousands of them, made anew for each round
            if not self.is_fast(one):
                self.slow.append(one)
                continue
            fast += one.run.nodes
            blocks = self.blocks(one)
            if blocks[0] != blocks[1]:
                fast.append(blocks)
        self._fast: dict[Key, int] = Counter(fast)
        self.fast = {key for key in self._fast if isinstance(key, str)}
        self._explain()

    def is_fast(self, one: Result) -> bool:
        return _is_fast(one, self.line)

    @property
    def shares(self) -> tuple[float, float, float]:
        """The weak, the strong and the sure line, as shares of what is compared with."""
        weak, strong, sure = (1 - max(times * self.noise.sigma, least) for times, least in LINES)
        return weak, strong, sure

    def block(self, node: str) -> str:
        return self.state.blocks.get(node, "")

    def blocks(self, one: Result) -> tuple[str, str]:
        first, second = one.run.nodes
        first, second = self.block(first), self.block(second)
        return (first, second) if first < second else (second, first)

    def _explain(self) -> None:
        """Name the nodes and paths that explain the slow runs best."""
        runs = []
        for one in self.slow:
            blocks = self.blocks(one)
            touched = (*one.run.nodes, frozenset(one.run.nodes), *((blocks,) if blocks[0] != blocks[1] else ()))
            runs.append(likelihood.Doubtful[Key](_ratio(one, self.noise), touched))
        many, leaves = len(self.state.nodes), len(set(self.state.blocks.values()))
        of_node = likelihood.price(many)
        of_blocks = likelihood.price(leaves * (leaves - 1) // 2, PATH_PRICE)
        of_pair = likelihood.price(many * (many - 1) // 2, PATH_PRICE)

        def price(key: Key) -> float:
            return of_node if isinstance(key, str) else of_blocks if isinstance(key, tuple) else of_pair

        found = likelihood.Explanation(runs, self.count_fast, price, self.options.at_times, (_is_path,))
        named = {key: SLOW if often == likelihood.ALWAYS else AT_TIMES for key, often in found.named.items()}
        # where nobody was ever fast, all may be as bad as each other
        named = {key: how for key, how in named.items() if key not in found.open and self.fast}
        self.nodes = {key: how for key, how in named.items() if isinstance(key, str)}
        self.paths = {key: how for key, how in named.items() if not isinstance(key, str)}
        doubtful = found.suspects()
        never_fast = [node for node in self.state.nodes if node not in self.fast and self.of[node]]
        never_fast = [node for node in never_fast if node not in named]
        self.suspects = list(dict.fromkeys((*doubtful, *never_fast)))
        self.unexplained = [one for one, run in zip(self.slow, runs, strict=True) if run.rest == 1]

    def count_fast(self, key: Key) -> int:
        if isinstance(key, frozenset):
            return sum(self.is_fast(one) for one in self.of[min(key)] if key.issuperset(one.run.nodes))
        return self._fast.get(key, 0)

    def wrong(self) -> list[Result]:
        """Runs that computed wrong data without a named node or path in them."""
        wrong = [one for results in self.state.rounds for one in results if one.status == WRONG]
        blamed = {*self.nodes, *self.paths}
        return [
            one
            for one in wrong
            if blamed.isdisjoint(one.run.nodes)
            and frozenset(one.run.nodes) not in blamed
            and (len(one.run.nodes) != 2 or self.blocks(one) not in blamed)
        ]

    def partners(self, node: str) -> set[str]:
        """Those with whom it has run."""
        return {other for one in self.of[node] for other in one.run.nodes if other != node}

    def trusted(self) -> list[str]:
        """Nodes that were fast, and about which there is no doubt."""
        doubtful = {*self.suspects, *self.nodes}
        return [node for node in self.state.nodes if node in self.fast and node not in doubtful]

    def count(self, *kinds: str) -> int:
        """Rounds of these kinds so far."""
        return sum(bool(results) and results[0].run.kind in kinds for results in self.state.rounds)


def _noise(rates: list[float]) -> Noise:
    """The normal rate and the scatter, from the rates of all pairs."""
    if not rates:
        return Noise(0.0, MOST_SCATTER)
    ordered = sorted(rates, reverse=True)
    faster = ordered[: (len(rates) + 1) // 2]
    quarter = statistics.median(faster)
    if not quarter:
        return Noise(0.0, MOST_SCATTER)
    scatter = (ordered[len(rates) // 10] - faster[-1]) / TENTH_TO_MIDDLE / quarter
    scatter = (scatter * len(rates) + MOST_SCATTER * PRIOR_PAIRS) / (len(rates) + PRIOR_PAIRS)
    scatter = min(max(scatter, LEAST_SCATTER), MOST_SCATTER)
    return Noise(quarter / (1 - TOP_TO_QUARTER * scatter), scatter)


def _is_fast(one: Result, line: float) -> bool:
    """What hangs, fails or is wrong is not, and where nothing has a rate nothing is."""
    return one.status == OK and one.value >= line > 0


def _ratio(one: Result, noise: Noise) -> float:
    """How much a run that is not fast says; all that one can, where there is no rate to compare with."""
    return noise.ratio(one.value) if one.status == OK and noise.normal > 0 else likelihood.GRAVE


def _weight(value: float, lines: Sequence[float]) -> float:
    """How much it says that a value lies below a weak, a strong and a sure line."""
    return max((weight for weight, line in zip(WEIGHTS, lines, strict=True) if value < line), default=0.0)


def _dice(state: State) -> random.Random:
    return random.Random(f"{state.options.seed}/{len(state.rounds)}")


# what to run next


def _sweep(state: State, view: _View) -> list[Run]:
    """All nodes in disjoint pairs; with an odd number the last one goes with one that is done already."""
    if len(state.nodes) < 2 or view.count(RETEST, PATH):
        return []
    seen = {node: sum(one.run.kind == PAIR for one in view.of[node]) for node in state.nodes}
    sweep = min(seen.values(), default=0)
    if sweep >= state.options.sweeps:
        return []
    left = [node for node in state.nodes if seen[node] == sweep]
    dice = _dice(state)
    dice.shuffle(left)
    if len(left) == 1:
        met = view.partners(left[0])
        others = [node for node in state.nodes if node != left[0] and node not in met]
        return [Run(PAIR, (left[0], dice.choice(others or [n for n in state.nodes if n != left[0]])))]
    pairs = _across_blocks(left, view, dice) if state.blocks else []
    taken = {node for pair in pairs for node in pair}
    pairs += _new_pairs([node for node in left if node not in taken], view)
    return [Run(PAIR, pair) for pair in pairs]


def _new_pairs(left: Iterable[str], view: _View) -> list[tuple[str, str]]:
    """Pairs in the order given, avoiding those that have met where that is easy."""
    pairs = []
    left = list(left)
    while len(left) > 1:
        one = left.pop()
        met = view.partners(one)
        at = next((at for at in range(len(left) - 1, -1, -1) if left[at] not in met), len(left) - 1)
        pairs.append((one, left.pop(at)))
    return pairs


def _across_blocks(left: list[str], view: _View, dice: random.Random) -> list[tuple[str, str]]:
    """One pair for every two blocks of the topology, as far as the nodes go: each path between blocks is seen."""
    members: dict[str, list[str]] = {}
    for node in left:
        members.setdefault(view.block(node), []).append(node)
    names = sorted(members)
    wanted = [(one, two) for i, one in enumerate(names) for two in names[i + 1 :]]
    dice.shuffle(wanted)
    pairs = []
    for one, two in wanted:
        for first in members[one]:
            met = view.partners(first)
            second = next((node for node in members[two] if node not in met), None)
            if second is not None:
                pairs.append((first, second))
                members[one].remove(first)
                members[two].remove(second)
                break
    return pairs


def _doubt(state: State, view: _View) -> list[Run]:
    """Suspects with partners that are beyond doubt; and doubtful paths with others of the nodes that they join."""
    if not view.suspects or view.count(RETEST, PATH) >= state.options.retest_rounds:
        return []
    dice = _dice(state)
    trusted = view.trusted()
    dice.shuffle(trusted)
    free = dict.fromkeys(trusted)
    nodes = [key for key in view.suspects if isinstance(key, str)]
    dice.shuffle(nodes)
    runs = _nodes_in_doubt(state, view, nodes, free)
    for key in view.suspects:
        pair = _path_in_doubt(view, key, free)
        if pair is not None:
            runs.append(Run(PATH, pair))
            for node in pair:
                free.pop(node, None)
    return runs


def _nodes_in_doubt(state: State, view: _View, nodes: Sequence[str], free: dict[str, None]) -> list[Run]:
    """Each with a partner out of the free ones, which is taken from them; else with each other."""
    homes = {view.block(node) for node in free}
    again = state.options.at_times
    # where a block has nobody to trust, its suspects may clear each other: no path between blocks is in the way
    lonely = [node for node in nodes if state.blocks and view.block(node) not in homes]
    runs = [Run(RETEST, pair) for pair in _at_home(view, lonely)]
    busy = {node for run in runs for node in run.nodes}
    waiting = []
    for node in nodes:
        if node in busy:
            continue
        partner = _best_partner(node, free, view, homes)
        if partner is None:
            waiting.append(node)
        else:
            del free[partner]
            runs.append(Run(RETEST, (node, partner)))
    pairs = _at_home(view, waiting) if state.blocks else _new_pairs(waiting, view)
    return runs + [Run(RETEST, pair) for pair in pairs if again or pair[1] not in view.partners(pair[0])]


def _at_home(view: _View, nodes: Iterable[str]) -> list[tuple[str, str]]:
    """Pairs inside blocks; of nodes that have met only where a fault may come and go."""
    of: dict[str, list[str]] = {}
    for node in nodes:
        of.setdefault(view.block(node), []).append(node)
    pairs = [pair for members in of.values() for pair in _new_pairs(members, view)]
    return [pair for pair in pairs if view.options.at_times or pair[1] not in view.partners(pair[0])]


def _best_partner(node: str, free: Iterable[str], view: _View, homes: set[str]) -> str | None:
    """A new partner of the same block, so that no path between blocks comes in; else any new one; else any.

    Where the block has partners that others took this time, None: better wait than bring in a path.
    """
    met, home = view.partners(node), view.block(node)
    far = old = None
    for other in free:
        if view.block(other) != home:
            far = far or (None if other in met else other)
        elif other not in met:
            return other
        else:
            old = old or other
    if old is not None and view.state.blocks:
        return old
    if view.state.blocks and home in homes:
        return None
    return far or old or next(iter(free), None)


def _path_in_doubt(view: _View, key: Key, free: Mapping[str, None]) -> tuple[str, str] | None:
    """Who tests a path: free nodes of both its blocks; or the pair itself, once there is no doubt about either."""
    if isinstance(key, str):
        return None
    if isinstance(key, frozenset):
        first, second = sorted(key)
        return (first, second) if first in free and second in free else None
    ends: list[list[str]] = [[node for node in free if view.block(node) == block] for block in key]
    for first in ends[0]:
        met = view.partners(first)
        for second in ends[1]:
            if second not in met or view.options.at_times:
                return first, second
    return None


def _looked_into(view: _View) -> list[str]:
    """Accused nodes that are slow; one that hangs or fails would only do so again."""
    slow = {node for one in view.slow if one.status == OK for node in one.run.nodes}
    return [node for node in view.nodes if node in slow][:MOST_INSIDE]


def _alone(state: State, view: _View) -> list[Run]:
    """The accused, and some good nodes to compare with, each for itself: is the fault inside the node?"""
    nodes = _looked_into(view)
    if not state.options.alone or not nodes or view.inside:
        return []
    return [Run(ALONE, (node,)) for node in [*nodes, *view.trusted()[:CONTROLS]]]


def _rail(state: State, view: _View) -> list[Run]:
    """One GPU position at a time, of an accused node and a good partner; slow ones again until it is sure."""
    options = state.options
    if options.rails < 2 or view.count(RAIL) >= _rail_rounds(options):
        return []
    partners = view.trusted()
    runs = []
    for node in _looked_into(view):
        if not partners:
            break
        if slow_alone(view, node):  # inside the node no NIC is used
            continue
        done = [one for one in view.rails if one.run.nodes[0] == node]
        partner = done[0].run.nodes[1] if done else partners[-1]
        if partner in partners:
            partners.remove(partner)
        rail = _next_rail(view, node, done)
        if rail is not None:
            runs.append(Run(RAIL, (node, partner), rail))
    return runs


def slow_alone(view: _View, node: str) -> bool | None:
    """Whether the node is slow without any partner; None where that was not tried, or one run cannot tell."""
    alone = {one.run.nodes[0]: one.value for one in view.inside}
    controls = [value for other, value in alone.items() if other not in view.nodes]
    if node not in alone or not controls:
        return None
    weak, strong, _ = view.shares
    share = alone[node] / (statistics.median(controls) or 1.0)
    return True if share < strong else False if share >= weak else None


def _rail_rounds(options: Options) -> int:
    """The most rounds of rails: all passes, and some to confirm."""
    return options.rails * options.rail_passes + 2 * CONFIRM if options.rails > 1 else 0


def _next_rail(view: _View, node: str, done: list[Result]) -> int | None:
    """Each rail once; then those in doubt, until it is sure; then all again, for a fault that comes and goes."""
    rails = range(view.options.rails)
    times = Counter(one.run.rail for one in done)
    if missing := [rail for rail in rails if not times[rail]]:
        return missing[0]
    found = _rails(view, node)
    if found.named and not found.open:
        return None
    doubtful = [rail for rail in found.suspects() if rail != ALL_RAILS]
    if doubtful:
        return min(doubtful, key=lambda rail: (times[rail], rail))
    least = min(times.values())
    return next(rail for rail in rails if times[rail] == least) if least < view.options.rail_passes else None


def _rails(view: _View, node: str) -> likelihood.Explanation[int]:
    """What explains the slow runs of one GPU position at a time: some of the positions, or the node as a whole."""
    done = [one for one in view.rails if one.run.nodes[0] == node]
    best = sorted((one.value for one in done), reverse=True)[: max(1, len(done) // 2)]
    usual = statistics.median(best or [0.0])
    noise = replace(view.noise, normal=usual / (1 - TOP_TO_QUARTER * view.noise.sigma))
    # a rail that slows the node is about as slow as the node itself
    share = _share(view, [one for one in view.slow if node in one.run.nodes])
    line = noise.normal * min(1 - noise.least, (1 + share) / 2)
    fast = Counter(one.run.rail for one in done if _is_fast(one, line))
    runs = [
        likelihood.Doubtful(_ratio(one, noise), (one.run.rail, ALL_RAILS))
        for one in done
        if one.run.rail is not None and not _is_fast(one, line)
    ]
    price = likelihood.price(view.options.rails)
    return likelihood.Explanation(
        runs,
        lambda rail: fast.total() if rail == ALL_RAILS else fast[rail],
        lambda rail: price,
        view.options.at_times,
        suspicion=RAIL_SUSPICION,
    )


def slow_rails(view: _View, node: str) -> list[int]:
    """Rails of a node that are slow, while most are not."""
    if not any(one.run.nodes[0] == node for one in view.rails):
        return []
    found = _rails(view, node)
    named = sorted(rail for rail in found.named if rail not in found.open)
    return [] if ALL_RAILS in named or len(named) > view.options.rails // 2 else named


# faults that show only with many nodes


def _group(state: State, view: _View) -> list[Run]:
    """All together; then halves of the candidates, each filled up with known good nodes to half of all."""
    quiet = not (view.nodes or view.paths or view.suspects)
    if not state.options.scale or not quiet or len(state.nodes) < 4:
        return []
    if not view.groups:
        return [Run(GROUP, state.nodes)]
    candidates, again = _halving(state, view)
    if not again:
        return []
    return [Run(GROUP, tuple(half)) for half in _halves(state, candidates)]


def _halves(state: State, candidates: Sequence[str]) -> list[list[str]]:
    """Two groups of half of all nodes, with half of the candidates in each."""
    size = len(state.nodes) // 2
    middle = len(candidates) // 2
    inside = set(candidates)
    good = [node for node in state.nodes if node not in inside]
    filling = size - middle
    first = [*candidates[:middle], *good[:filling]]
    second = [*candidates[middle:], *good[filling:]][:size]
    return [first, second]


def _halving(state: State, view: _View) -> tuple[list[str], bool]:
    """Who may be at fault after the comparisons so far, and whether another one can tell more."""
    candidates = list(state.nodes)
    left = view.groups[1:]
    while len(candidates) > 1:
        halves = [tuple(half) for half in _halves(state, candidates)]
        weights, times = [0.0, 0.0], 0
        while len(left) >= 2 and [left[0].run.nodes, left[1].run.nodes] == halves and max(weights) < PROOF:
            for side, weight in enumerate(_slower(view, left[0].value, left[1].value)):
                weights[side] += weight
            times, left = times + 1, left[2:]
        if max(weights) >= PROOF and min(weights) == 0:
            slower = set(halves[weights.index(max(weights))])
            candidates = [node for node in candidates if node in slower]
            continue
        # no difference at first sight: it needs more than half of the nodes, or there is nothing
        return candidates, times < CONFIRM and (not times or max(weights) > 0) and min(weights) == 0
    return candidates, False


def _slower(view: _View, one: float, two: float) -> tuple[float, float]:
    """The weight against each of two halves."""
    return _weight(one, [share * two for share in view.shares]), _weight(two, [share * one for share in view.shares])


# the verdict


def verdict(state: State) -> Verdict:
    """Who is named, who is undecided, and what was slow only once."""
    view = _View(state)
    view.weigh()
    named = [one for node, how in view.nodes.items() for one in _named_node(view, node, how)]
    named += [_named_path(view, key, how) for key, how in sorted(view.paths.items(), key=lambda one: sorted(one[0]))]
    if len(view.groups) > 2:
        named += _named_group(state, view)
    strong = view.noise.normal * view.shares[1]
    pairs = (tuple(sorted(one.run.nodes)) for one in view.unexplained if one.value < strong)
    return Verdict(
        tuple(named),
        tuple(key for key in view.suspects if isinstance(key, str) and key not in view.nodes),
        tuple(sorted({pair for pair in pairs if view.fast.issuperset(pair)})),
        view.noise.normal,
        view.line,
        len(view.fast),
        view.groups[0].value if view.groups else None,
        view.groups[0].status if view.groups else OK,
        tuple(sorted({tuple(sorted(one.run.nodes)) for one in view.wrong()})),
        () if view.fast else tuple(sorted({one.status for one in view.slow})),
        len(state.nodes),
    )


def _named_node(view: _View, node: str, how: str) -> list[Named]:
    slow = [one for one in view.slow if node in one.run.nodes]
    slow = [one for one in slow if all(other == node or other not in view.nodes for other in one.run.nodes)]
    bad = [one.status for one in slow if one.status != OK]
    if bad and len(bad) * 2 >= len(slow):
        how = statistics.mode(bad)
    inside = slow_alone(view, node)
    base = Named("node", (node,), how, _share(view, slow), len(slow), len(view.of[node]), None, inside)
    return [replace(base, kind="rail", rail=rail) for rail in slow_rails(view, node)] or [base]


def _share(view: _View, slow: list[Result]) -> float:
    rates = [one.value for one in slow if one.status == OK]
    return statistics.median(rates) / view.noise.normal if rates and view.noise.normal else 0.0


def _named_path(view: _View, key: Key, how: str) -> Named:
    """A path between two blocks, or between two nodes."""
    blocks = key if isinstance(key, tuple) else ()
    slow = [one for one in view.slow if (view.blocks(one) == blocks if blocks else key == frozenset(one.run.nodes))]
    bad = [one.status for one in slow if one.status != OK]
    if bad and len(bad) * 2 >= len(slow):
        how = statistics.mode(bad)
    nodes = sorted({node for one in slow for node in one.run.nodes})
    fast = view.count_fast(key)
    return Named("path", tuple(nodes), how, _share(view, slow), len(slow), len(slow) + fast, blocks=blocks)


def _named_group(state: State, view: _View) -> list[Named]:
    candidates, _ = _halving(state, view)
    if len(candidates) == len(state.nodes):
        return []
    halves = view.groups[1:]
    slow = [one for one in halves if set(candidates) <= set(one.run.nodes)]
    fast = [one.value for one in halves if one not in slow and one.value]
    rates = [one.value for one in slow if one.value]
    share = statistics.median(rates) / statistics.median(fast) if rates and fast else 0.0
    kind = "node" if len(candidates) == 1 else "group"
    return [Named(kind, tuple(candidates), "slow with many nodes", share, len(slow), len(slow))]


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
    rails = _rail_rounds(options)
    rail_waves = rails * math.ceil(min(MOST_INSIDE, nodes // 2) / most)
    whole = 1 if halving else 0
    rounds, waves = rounds + max(rails, whole + halving), waves + max(rail_waves, whole + halving * math.ceil(2 / most))
    minutes = waves * seconds / 60
    return Bound(rounds, waves, minutes, minutes * nodes)
