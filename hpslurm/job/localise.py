"""Finds the node, path or rail that slows a collective: plans which nodes run together next.

One slow NIC slows every node of a job, and the whole does not tell which. Two nodes that run alone together do.
So all nodes run in disjoint pairs, at the same time; the members of slow pairs run again with partners that were
fast, and who is slow with every partner is named. Two nodes that are fast with others and slow together have a
slow path between them. What shows only with many nodes is found by halving, with known good nodes as filling.

Everything here is a pure function of the nodes, the seed and the results so far: the runner, the dry run, the
resumed run and the simulator take the same steps. A round is a set of runs on disjoint nodes.

Noise only ever slows a run, so a node's best run counts, and the line between fast and slow follows from the
scatter of the pairs themselves. Rates are busbw in GB/s.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence

from hpslurm.values import dataclass, field, replace

PAIR = "pair"
RETEST = "retest"  # a suspect with a partner that was fast
PATH = "path"  # a slow pair again, after both were fast with others
ALONE = "alone"  # inside one node
RAIL = "rail"  # one GPU of each node, and so its NICs
GROUP = "group"  # many nodes

SLOW, AT_TIMES = "slow", "slow at times"

OK = "ok"
HUNG = "hung"
FAILED = "failed"
WRONG = "wrong data"

# The lines between fast and slow follow from the faster half of the pairs, which faults do not reach as long as
# they touch less than half. Noise only slows, so scatter is taken from the way between the fastest tenth and the
# middle, and kept between these shares: independent public runs agree within 1 percent; more than 4 would hide what
# we look for. Few pairs tell little about scatter, so the upper bound counts like so many pairs more.
LEAST_SCATTER, MOST_SCATTER, PRIOR_PAIRS = 0.008, 0.037, 32
TENTH_TO_MIDDLE = 1.35  # scatters in that way, so that 2.5 scatters hold 96 percent of half-normal noise
WEAK, STRONG, SURE = 2.5, 4.6, 6.0  # scatters below normal: perhaps noise, hardly noise, not noise
LEAST_WEAK, LEAST_STRONG, LEAST_SURE = 0.05, 0.1, 0.13  # share below normal that is not worth a hunt
# Weights of slow runs. A fault that is always there slows every run alike, so all runs of a node weigh what its
# fastest one does: two sure ones name it, three strong ones or four weak ones.
WEAK_WEIGHT, STRONG_WEIGHT, SURE_WEIGHT, PROOF = 0.75, 1.0, 1.5, 3.0
# There are many more paths than nodes, so chance has more to choose from: three sure runs, five or six others.
PATH_PROOF = 4.5
# One that was fast, too, is named by two sure runs, four strong ones or nine weak ones.
AT_TIMES_WEIGHTS, PROOF_AT_TIMES = {WEAK_WEIGHT: 0.6, STRONG_WEIGHT: 1.4, SURE_WEIGHT: 2.5}, 5.0
CONFIRM = 3  # times that two halves, or one rail, are compared at most
CONTROLS = 3  # good nodes that run alone beside the accused
MOST_INSIDE = 8  # accused nodes that are looked into, alone and by rail


@dataclass(frozen=True)
class Options:
    """How thorough. ``sweeps`` of pairs with new partners; ``acquit``: fast retests that clear a strong suspect.

    A fault that is always there needs one sweep. One that shows in half of the runs needs many: eight sweeps
    miss it in 4 of 1,000 cases, ten in one. With ``acquit`` above 1, slow at times is enough to be named.
    """

    sweeps: int = 1
    acquit: int = 1
    retest_rounds: int = 6
    path_rounds: int = 4
    rails: int = 0  # GPUs of a node; 0: rails are not looked at
    rail_passes: int = 1
    alone: bool = True
    scale: bool = True
    seed: int = 0

    @property
    def at_times(self) -> bool:
        return self.acquit > 1


QUICK = Options()
FULL = Options(sweeps=10, acquit=8, retest_rounds=16, rail_passes=8)


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


def observe(state: State, results: Iterable[Result]) -> State:
    """The state after a complete round."""
    return replace(state, rounds=(*state.rounds, tuple(results)))


def next_round(state: State) -> tuple[Run, ...]:
    """The runs to do next, on disjoint nodes; empty when there is nothing left to learn."""
    view = _View(state)
    for plan in (_sweep, _retest, _path, _alone, _rail, _group):
        if runs := plan(state, view):
            return tuple(runs)
    return ()


# what the results say


class _Seen:
    """One result of a pair, weighed once. ``blocks`` are the two that it joins, empty inside one."""

    __slots__ = ("blocks", "pair", "result", "weight")  # thousands of them, made anew for each round

    def __init__(self, result: Result, blocks: tuple[str, ...], weight: float) -> None:
        self.result = result
        self.pair = frozenset(result.run.nodes)
        self.blocks = blocks
        self.weight = weight  # 0 when fast

    def partner(self, node: str) -> str:
        one, two = self.result.run.nodes
        return two if one == node else one


class _View:
    """The results, sorted and weighed, and who they name; everything else reads this."""

    def __init__(self, state: State) -> None:
        self.state = state
        self._by_blocks: dict[tuple[str, ...], list[_Seen]] = {}
        self.options = state.options
        every = [result for results in state.rounds for result in results]
        pairs = [one for one in every if one.run.kind in (PAIR, RETEST, PATH)]
        self.inside = [one for one in every if one.run.kind == ALONE]
        self.rails = [one for one in every if one.run.kind == RAIL]
        self.groups = [one for one in every if one.run.kind == GROUP]
        self.normal = self.weak = self.strong = self.sure = 0.0
        self._draw_lines([one.value for one in pairs if one.run.kind == PAIR and one.status == OK])
        self.seen = [self._weigh(one) for one in pairs]
        self.of: dict[str, list[_Seen]] = {node: [] for node in state.nodes}
        for one in self.seen:
            for node in one.result.run.nodes:  # not of the pair: the order of a set differs by process
                self.of[node].append(one)
        self.slow = [one for one in self.seen if one.weight]
        self.fast = {node for one in self.seen if not one.weight for node in one.pair}
        self.nodes: dict[str, str] = {}  # named, and how
        self.paths: dict[frozenset[str], str] = {}
        self.block_paths: dict[tuple[str, ...], str] = {}
        self._name()

    def _draw_lines(self, rates: list[float]) -> None:
        if not rates:
            return
        ordered = sorted(rates, reverse=True)
        faster = ordered[: (len(rates) + 1) // 2]
        self.normal = statistics.median(faster)
        away = (ordered[len(rates) // 10] - faster[-1]) * TENTH_TO_MIDDLE
        away = (away * len(rates) + MOST_SCATTER * self.normal * PRIOR_PAIRS) / (len(rates) + PRIOR_PAIRS)
        scatter = min(max(away, LEAST_SCATTER * self.normal), MOST_SCATTER * self.normal)
        self.weak = self.normal - max(WEAK * scatter, LEAST_WEAK * self.normal)
        self.strong = self.normal - max(STRONG * scatter, LEAST_STRONG * self.normal)
        self.sure = self.normal - max(SURE * scatter, LEAST_SURE * self.normal)

    @property
    def shares(self) -> tuple[float, float, float]:
        """The weak, the strong and the sure line as shares of normal."""
        if not self.normal:
            return 0.9, 0.85, 0.8
        return self.weak / self.normal, self.strong / self.normal, self.sure / self.normal

    def _weigh(self, one: Result) -> _Seen:
        first, second = self.block(one.run.nodes[0]), self.block(one.run.nodes[1])
        blocks = () if first == second else (first, second) if first < second else (second, first)
        weight = SURE_WEIGHT if one.status != OK else _weight(one.value, self.weak, self.strong, self.sure)
        return _Seen(one, blocks, weight)

    def block(self, node: str) -> str:
        return self.state.blocks.get(node, "")

    # who is named: the one with most evidence first, because a named one explains the slow runs of others

    def _name(self) -> None:
        self.unexplained = list(self.slow)
        while (best := max(self._candidates(), key=lambda one: one[0], default=None)) is not None:
            _, key, how = best
            if isinstance(key, str):
                self.nodes[key] = how
                self.unexplained = [one for one in self.unexplained if key not in one.pair]
            elif isinstance(key, tuple):
                self.block_paths[key] = how
                self.unexplained = [one for one in self.unexplained if one.blocks != key]
            else:
                self.paths[key] = how
                self.unexplained = [one for one in self.unexplained if one.pair != key]
        self.against: dict[str, list[_Seen]] = {}
        for one in self.unexplained:
            for node in one.result.run.nodes:
                self.against.setdefault(node, []).append(one)

    def _candidates(self) -> Iterator[tuple[float, str | tuple[str, ...] | frozenset[str], str]]:
        by_node: dict[str, list[_Seen]] = {}
        by_pair: dict[frozenset[str], list[_Seen]] = {}
        by_blocks: dict[tuple[str, ...], list[_Seen]] = {}
        for one in self.unexplained:
            for node in one.result.run.nodes:
                by_node.setdefault(node, []).append(one)
            if one.pair <= self.fast:
                by_pair.setdefault(one.pair, []).append(one)
                if one.blocks:
                    by_blocks.setdefault(one.blocks, []).append(one)
        for node, slow in by_node.items():
            # a partner that was never fast may itself be the reason
            slow = [one for one in slow if one.partner(node) in self.fast]
            how = self._how(slow, steady=node not in self.fast)
            if how and self._apart(node, slow, how):
                yield _total(slow), node, how
        for blocks, slow in by_blocks.items():
            pairs = {one.pair for one in slow}
            steady = not any(not one.weight for one in self._between(min(pairs, key=lambda pair: sorted(pair))))
            if not steady:  # first it must be sure that it is not the nodes
                slow = [one for one in slow if all(self.acquitted(node) for node in one.pair)]
                pairs = {one.pair for one in slow}
            how = self._how(slow, steady=steady, proof=PATH_PROOF)
            if how and len(pairs) > 1 and not frozenset.intersection(*pairs):  # not one node in all of them
                yield _total(slow), blocks, how
        for pair, slow in by_pair.items():
            runs = sum(one.pair == pair for one in self.of[min(pair)])
            if len(slow) == runs > 1 and _steady(slow) >= PATH_PROOF and all(self.acquitted(node) for node in pair):
                yield _total(slow), pair, SLOW

    def _between(self, pair: frozenset[str]) -> list[_Seen]:
        """All runs between the two blocks of a pair."""
        if not self._by_blocks:
            for one in self.seen:
                self._by_blocks.setdefault(one.blocks, []).append(one)
        blocks = tuple(sorted({self.block(node) for node in pair}))
        return self._by_blocks.get(blocks, [])

    def _how(self, slow: list[_Seen], *, steady: bool, proof: float = PROOF) -> str:
        """How those runs name somebody who was never fast (steady) or was fast too; empty: they do not."""
        if steady:
            return SLOW if _steady(slow) >= proof else ""
        if self.options.at_times and sum(AT_TIMES_WEIGHTS[one.weight] for one in slow) >= PROOF_AT_TIMES:
            return AT_TIMES
        return ""

    def _apart(self, node: str, slow: list[_Seen], how: str) -> bool:
        """Several partners, and not all beyond one path.

        For one that is never fast a partner of the own block is enough, or two blocks; for one that is slow at
        times a grave run inside the block, or with four other blocks.
        """
        partners = {one.partner(node) for one in slow}
        blocks = {self.block(partner) for partner in partners}
        if len(partners) < 2 or not self.state.blocks:
            return len(partners) > 1
        if how == SLOW:
            return self.block(node) in blocks or len(blocks) > 1
        grave = [one for one in slow if one.weight >= STRONG_WEIGHT]
        beyond = {self.block(one.partner(node)) for one in grave if one.blocks}
        return len(beyond) > 3 or any(not one.blocks for one in grave)

    # who is still in doubt

    def acquitted(self, node: str) -> bool:
        """Fast often enough since it was suspected (quick: at all)."""
        if not self.options.at_times:
            return node in self.fast
        fast = sum(not one.weight and one.result.run.kind != PAIR for one in self.of[node])
        return fast >= self.options.acquit

    def suspects(self) -> list[str]:
        """Nodes about which the runs so far do not decide."""
        return [node for node in self.state.nodes if node not in self.nodes and self._is_suspect(node)]

    def _is_suspect(self, node: str) -> bool:
        if node not in self.fast:
            return bool(self.of[node])
        strong = any(one.weight >= STRONG_WEIGHT for one in self.against.get(node, ()))
        return strong and not self.acquitted(node)

    def trusted(self) -> list[str]:
        """Nodes that were fast and against which nothing grave stands."""
        return [
            node
            for node in self.state.nodes
            if node in self.fast
            and node not in self.nodes
            and not any(one.weight >= STRONG_WEIGHT for one in self.against.get(node, ()))
        ]

    def count(self, kind: str) -> int:
        """Rounds of a kind so far."""
        return sum(bool(results) and results[0].run.kind == kind for results in self.state.rounds)


def _total(slow: Iterable[_Seen]) -> float:
    return sum(one.weight for one in slow)


def _steady(slow: Sequence[_Seen]) -> float:
    """Slow runs of something that is never fast, weighed as the fastest of them."""
    return len(slow) * min((one.weight for one in slow), default=0.0)


def _weight(value: float, weak: float, strong: float, sure: float) -> float:
    if value >= weak:
        return 0.0
    return WEAK_WEIGHT if value >= strong else STRONG_WEIGHT if value >= sure else SURE_WEIGHT


def _dice(state: State) -> random.Random:
    return random.Random(f"{state.options.seed}/{len(state.rounds)}")


# what to run next


def _sweep(state: State, view: _View) -> list[Run]:
    """All nodes in disjoint pairs; with an odd number the last one goes with one that is done already."""
    if len(state.nodes) < 2 or view.count(RETEST):
        return []
    met = {one.pair for one in view.seen}
    seen = {node: sum(one.result.run.kind == PAIR for one in view.of[node]) for node in state.nodes}
    sweep = min(seen.values(), default=0)
    if sweep >= state.options.sweeps:
        return []
    left = [node for node in state.nodes if seen[node] == sweep]
    dice = _dice(state)
    dice.shuffle(left)
    if len(left) == 1:
        others = [node for node in state.nodes if node != left[0] and frozenset((node, left[0])) not in met]
        return [Run(PAIR, (left[0], dice.choice(others or [n for n in state.nodes if n != left[0]])))]
    pairs = _across_blocks(left, state, dice, met) if state.blocks else []
    taken = {node for pair in pairs for node in pair}
    rest = [node for node in left if node not in taken]
    pairs += _new_pairs(rest, met)
    return [Run(PAIR, pair) for pair in pairs]


def _new_pairs(left: list[str], met: set[frozenset[str]]) -> list[tuple[str, str]]:
    """Pairs in the order given, avoiding those that have met where that is easy."""
    pairs = []
    left = list(left)
    while len(left) > 1:
        one = left.pop()
        for at in range(len(left) - 1, -1, -1):
            if frozenset((one, left[at])) not in met:
                break
        else:
            at = len(left) - 1
        pairs.append((one, left.pop(at)))
    return pairs


def _across_blocks(
    left: list[str], state: State, dice: random.Random, met: set[frozenset[str]]
) -> list[tuple[str, str]]:
    """One pair for every two blocks of the topology, as far as the nodes go: each path between blocks is seen."""
    members: dict[str, list[str]] = {}
    for node in left:
        members.setdefault(state.blocks.get(node, ""), []).append(node)
    names = sorted(members)
    wanted = [(one, two) for i, one in enumerate(names) for two in names[i + 1 :]]
    dice.shuffle(wanted)
    pairs = []
    for one, two in wanted:
        for first in members[one]:
            second = next((node for node in members[two] if frozenset((first, node)) not in met), None)
            if second is not None:
                pairs.append((first, second))
                members[one].remove(first)
                members[two].remove(second)
                break
    return pairs


def _retest(state: State, view: _View) -> list[Run]:
    """Suspects with partners that were fast."""
    suspects = view.suspects()
    if view.count(RETEST) >= state.options.retest_rounds or not suspects:
        return []
    dice = _dice(state)
    dice.shuffle(suspects)
    partners = view.trusted()
    dice.shuffle(partners)
    free = dict.fromkeys(partners)
    homes = {view.block(node) for node in partners}
    met = {one.pair for one in view.seen}
    again = state.options.at_times
    # where a block has nobody to trust, its suspects may clear each other: no path between blocks is in the way
    lonely = [node for node in suspects if state.blocks and view.block(node) not in homes]
    runs = [Run(RETEST, pair) for pair in _at_home(view, lonely, met, again)]
    busy = {node for run in runs for node in run.nodes}
    waiting = []
    for node in suspects:
        if node in busy:
            continue
        partner = _best_partner(node, free, view, homes)
        if partner is None:
            waiting.append(node)
        else:
            del free[partner]
            runs.append(Run(RETEST, (node, partner)))
    pairs = _at_home(view, waiting, met, again) if state.blocks else _new_pairs(waiting, met)
    return runs + [Run(RETEST, pair) for pair in pairs if again or frozenset(pair) not in met]


def _at_home(view: _View, nodes: list[str], met: set[frozenset[str]], again: bool) -> list[tuple[str, str]]:
    """Pairs inside blocks; ``again``: also of nodes that have met."""
    of: dict[str, list[str]] = {}
    for node in nodes:
        of.setdefault(view.block(node), []).append(node)
    pairs = [pair for members in of.values() for pair in _new_pairs(members, met)]
    return [pair for pair in pairs if again or frozenset(pair) not in met]


def _best_partner(node: str, free: Iterable[str], view: _View, homes: set[str]) -> str | None:
    """A new partner of the same block, so that no path between blocks comes in; else any new one; else any.

    Where the block has partners that others took this time, None: better wait than bring in a path.
    """
    met = {one.partner(node) for one in view.of[node]}
    home = view.block(node)
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


def _path(state: State, view: _View) -> list[Run]:
    """Slow pairs once more, when both were fast with others."""
    if view.count(PATH) >= state.options.path_rounds:
        return []
    runs: list[Run] = []
    busy: set[str] = set(view.nodes)
    for pair in dict.fromkeys(one.pair for one in view.unexplained):
        results = [one for one in view.of[min(pair)] if one.pair == pair]
        open_still = all(one.weight for one in results) and _steady(results) < PATH_PROOF
        if open_still and pair <= view.fast and not pair & busy:
            runs.append(Run(PATH, results[0].result.run.nodes))
            busy |= pair
    # is it these two nodes, or all that lies between their blocks?
    doubtful = [run.nodes for run in runs] + [tuple(sorted(pair)) for pair in sorted(view.paths, key=sorted)]
    for first, second in doubtful:
        blocks = tuple(sorted({view.block(first), view.block(second)}))
        others = {one.pair for one in view.slow if one.blocks == blocks} - {frozenset((first, second))}
        other = _another_pair(view, blocks, busy) if len(blocks) == 2 and not others else None
        if other is not None:
            runs.append(Run(PATH, other))
            busy |= set(other)
    return runs


def _another_pair(view: _View, blocks: tuple[str, ...], busy: set[str]) -> tuple[str, str] | None:
    """A pair between two blocks, of nodes that were fast, and that no slow pair between them has."""
    seen = busy | {node for one in view.slow if one.blocks == blocks for node in one.pair}
    one, two = (
        next((node for node in view.trusted() if view.block(node) == block and node not in seen), None)
        for block in blocks
    )
    return (one, two) if one is not None and two is not None else None


def _looked_into(view: _View) -> list[str]:
    """Accused nodes that are slow; one that hangs or fails would only do so again."""
    slow = [node for node in view.nodes if any(one.weight and one.result.status == OK for one in view.of[node])]
    return slow[:MOST_INSIDE]


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
    """A rail that was slow, until it is sure; else the next one of a pass; None when done."""
    rails = range(view.options.rails)
    of = {rail: [one for one in done if one.run.rail == rail] for rail in rails}
    if missing := [rail for rail in rails if not of[rail]]:
        return missing[0]
    line = _rail_lines(view, done)
    weights = {rail: _rail_weight(of[rail], line) for rail in rails}
    if _strong_rails(weights) > len(rails) // 2 or any(weight >= PROOF for weight in weights.values()):
        return None  # all of them: the node; or one is found
    slow = [rail for rail in rails if weights[rail]]
    if not view.options.at_times:
        slow = [rail for rail in slow if all(one.value < line[0] for one in of[rail])]
        return slow[0] if slow else None
    doubtful = [
        rail for rail in slow if weights[rail] >= STRONG_WEIGHT and len(of[rail]) < 2 * view.options.rail_passes
    ]
    if doubtful:
        return doubtful[0]
    least = min(len(results) for results in of.values())
    return next((rail for rail in rails if len(of[rail]) == least), None) if least < view.options.rail_passes else None


def _strong_rails(weights: Mapping[int, float]) -> int:
    return sum(weight >= STRONG_WEIGHT for weight in weights.values())


def _rail_lines(view: _View, done: list[Result]) -> tuple[float, float, float]:
    """The lines for rails: the same shares below the faster half of them as for pairs."""
    best = sorted((one.value for one in done), reverse=True)[: max(1, len(done) // 2)]
    usual = statistics.median(best or [0.0])
    weak, strong, sure = view.shares
    return usual * weak, usual * strong, usual * sure


def _rail_weight(results: Sequence[Result], lines: tuple[float, float, float]) -> float:
    """Steady while all runs are slow; else what the slow ones weigh together."""
    weights = [_weight(one.value, *lines) for one in results]
    least = min(weights, default=0.0)
    return len(weights) * least if least else sum(weights)


def slow_rails(view: _View, node: str) -> list[int]:
    """Rails of a node that are slow, while most are not."""
    done = [one for one in view.rails if one.run.nodes[0] == node]
    line = _rail_lines(view, done)
    of = {rail: [one for one in done if one.run.rail == rail] for rail in range(view.options.rails)}
    weights = {rail: _rail_weight(results, line) for rail, results in of.items()}
    if _strong_rails(weights) > view.options.rails // 2:
        return []
    steady = not view.options.at_times
    return [
        rail
        for rail, weight in weights.items()
        if weight >= PROOF and (not steady or all(one.value < line[0] for one in of[rail]))
    ]


# faults that show only with many nodes


def _group(state: State, view: _View) -> list[Run]:
    """All together; then halves of the candidates, each filled up with known good nodes to half of all."""
    quiet = not (view.nodes or view.paths or view.block_paths or view.suspects())
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
    weak, strong, sure = view.shares
    return _weight(one, weak * two, strong * two, sure * two), _weight(two, weak * one, strong * one, sure * one)


# the verdict


def verdict(state: State) -> Verdict:
    """Who is named, who is undecided, and what was slow only once."""
    view = _View(state)
    named = [one for node, how in view.nodes.items() for one in _named_node(view, node, how)]
    named += _named_paths(view)
    if len(view.groups) > 2:
        named += _named_group(state, view)
    once = {
        tuple(sorted(one.pair)) for one in view.unexplained if one.weight >= STRONG_WEIGHT and one.pair <= view.fast
    }
    return Verdict(
        tuple(named),
        tuple(view.suspects()),
        tuple(sorted(once)),
        view.normal,
        view.weak,
        len(view.fast),
        view.groups[0].value if view.groups else None,
    )


def _named_node(view: _View, node: str, how: str) -> list[Named]:
    slow = [one.result for one in view.of[node] if one.weight and one.partner(node) not in view.nodes]
    bad = [one.status for one in slow if one.status != OK]
    if bad and len(bad) * 2 >= len(slow):
        how = statistics.mode(bad)
    inside = slow_alone(view, node)
    base = Named("node", (node,), how, _share(view, slow), len(slow), len(view.of[node]), None, inside)
    return [replace(base, kind="rail", rail=rail) for rail in slow_rails(view, node)] or [base]


def _share(view: _View, slow: list[Result]) -> float:
    rates = [one.value for one in slow if one.status == OK]
    return statistics.median(rates) / view.normal if rates and view.normal else 0.0


def _named_paths(view: _View) -> list[Named]:
    """One for each two blocks with a slow path, and one for each other slow pair."""
    found = []
    for blocks, how in sorted(view.block_paths.items()):
        every = [one for one in view.seen if one.blocks == blocks]
        slow = [one.result for one in every if one.weight]
        nodes = tuple(sorted({node for one in slow for node in one.run.nodes}))
        found.append(Named("path", nodes, how, _share(view, slow), len(slow), len(every), blocks=blocks))
    for pair in sorted(view.paths, key=sorted):
        slow = [one.result for one in view.of[min(pair)] if one.pair == pair]
        bad = [one.status for one in slow if one.status != OK]
        how = bad[0] if bad else SLOW
        found.append(Named("path", tuple(sorted(pair)), how, _share(view, slow), len(slow), len(slow)))
    return found


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
    again = options.retest_rounds + options.path_rounds
    rounds, waves = rounds + again, waves + again * pair_waves
    if options.alone:
        rounds, waves = rounds + 1, waves + math.ceil(min(nodes, MOST_INSIDE + CONTROLS) / most)
    # halving happens only when nobody is accused, so either it or looking inside
    halving = 1 + CONFIRM * math.ceil(math.log2(nodes)) if options.scale and nodes >= 4 else 0
    more = max(_rail_rounds(options), halving)
    rounds, waves = rounds + more, waves + more
    minutes = waves * seconds / 60
    return Bound(rounds, waves, minutes, minutes * nodes)
