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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

PAIR = "pair"
RETEST = "retest"  # a suspect with a partner that was fast
PATH = "path"  # a slow pair again, after both were fast with others
ALONE = "alone"  # inside one node
RAIL = "rail"  # one GPU of each node, and so its NICs
GROUP = "group"  # many nodes

OK = "ok"
HUNG = "hung"
FAILED = "failed"
WRONG = "wrong data"

# Between these bounds the scatter of the pairs decides (share of the median). Independent public runs agree
# within 1 percent; a site with more than 3 percent would hide what we look for.
FEW_PAIRS = 6
LEAST_SCATTER, MOST_SCATTER = 0.008, 0.03
WEAK, STRONG = 2.5, 5.0  # scatters below the median: perhaps noise, surely not noise
LEAST_WEAK, LEAST_STRONG = 0.05, 0.1  # share below the median that is not worth a hunt
PROOF = 3.0  # weights of slow runs that name somebody: two strong ones, or three weak ones
STRONG_WEIGHT, WEAK_WEIGHT = 1.5, 1.0
CONTROLS = 3  # good nodes that run alone beside the accused
MOST_INSIDE = 8  # accused nodes that are looked into, alone and by rail


@dataclass(frozen=True)
class Options:
    """How thorough. ``sweeps`` of pairs with new partners; ``acquit``: fast runs that clear a strong suspect.

    A fault that is always there needs one sweep. One that shows in half of the runs needs many: after eight
    sweeps it was missed in 4 of 1,000 cases.
    """

    sweeps: int = 1
    acquit: int = 1
    retest_rounds: int = 4
    path_rounds: int = 3
    rails: int = 0  # GPUs of a node; 0: rails are not looked at
    alone: bool = True
    scale: bool = True
    seed: int = 0


QUICK = Options()
FULL = Options(sweeps=8, acquit=8, retest_rounds=12)


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
    """What the results say so far. ``normal`` is the median pair in GB/s, ``line`` what counts as slow."""

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


@dataclass
class _View:
    """The results, sorted and weighed; everything else reads this."""

    state: State
    normal: float = 0.0
    weak: float = 0.0
    strong: float = 0.0

    def __post_init__(self) -> None:
        every = [result for results in self.state.rounds for result in results]
        self.pairs = [one for one in every if one.run.kind in (PAIR, RETEST, PATH)]
        self.inside = [one for one in every if one.run.kind == ALONE]
        self.rails = [one for one in every if one.run.kind == RAIL]
        self.groups = [one for one in every if one.run.kind == GROUP]
        self._draw_lines([one.value for one in self.pairs if one.run.kind == PAIR and one.status == OK])
        self.of: dict[str, list[Result]] = {node: [] for node in self.state.nodes}
        for one in self.pairs:
            for node in one.run.nodes:
                self.of[node].append(one)
        self.fast = {node for node in self.state.nodes if any(not self.is_slow(one) for one in self.of[node])}
        self.block_paths = self._slow_block_paths()
        self.paths = self._slow_paths()
        self.accused: dict[str, str] = {}
        while (worst := self._worst()) is not None:
            self.accused[worst[0]] = worst[1]

    def _draw_lines(self, rates: list[float]) -> None:
        if not rates:
            return
        few = len(rates) < FEW_PAIRS  # one slow pair of two would be half of the median
        self.normal = max(rates) if few else statistics.median(rates)
        away = self.normal if few else 1.4826 * statistics.median(abs(rate - self.normal) for rate in rates)
        scatter = min(max(away, LEAST_SCATTER * self.normal), MOST_SCATTER * self.normal)
        self.weak = self.normal - max(WEAK * scatter, LEAST_WEAK * self.normal)
        self.strong = self.normal - max(STRONG * scatter, LEAST_STRONG * self.normal)

    def is_slow(self, one: Result) -> bool:
        return one.value < self.weak or one.status != OK

    def is_strong(self, one: Result) -> bool:
        return one.value < self.strong or one.status != OK

    def weight(self, results: Iterable[Result]) -> float:
        return sum(STRONG_WEIGHT if self.is_strong(one) else WEAK_WEIGHT for one in results if self.is_slow(one))

    def block(self, node: str) -> str:
        return self.state.blocks.get(node, "")

    def blocks_of(self, one: Result) -> tuple[str, ...]:
        """The two blocks that a pair joins, or nothing where it stays inside one."""
        blocks = sorted({self.block(node) for node in one.run.nodes})
        return tuple(blocks) if len(blocks) == 2 else ()

    def _slow_block_paths(self) -> set[tuple[str, ...]]:
        """Two blocks between which every pair is slow, of nodes that are fast with others."""
        between: dict[tuple[str, ...], list[Result]] = {}
        for one in self.pairs:
            if blocks := self.blocks_of(one):
                between.setdefault(blocks, []).append(one)
        found = set()
        for blocks, results in between.items():
            pairs = {frozenset(one.run.nodes) for one in results}
            nodes = {node for pair in pairs for node in pair}
            apart = len(pairs) > 1 and not frozenset.intersection(*pairs)  # not one node in all of them
            slow = all(self.is_slow(one) for one in results) and self.weight(results) >= PROOF
            if apart and slow and nodes <= self.fast:
                found.add(blocks)
        return found

    def _slow_paths(self) -> set[frozenset[str]]:
        """Pairs that are slow every time, of nodes that are fast with others."""
        by_pair: dict[frozenset[str], list[Result]] = {}
        for one in self.pairs:
            by_pair.setdefault(frozenset(one.run.nodes), []).append(one)
        return {
            pair
            for pair, results in by_pair.items()
            if len(results) > 1
            and pair <= self.fast
            and all(self.is_slow(one) for one in results)
            and self.weight(results) >= PROOF
            and all(self._often_fast(node) for node in pair)
        }

    def _often_fast(self, node: str) -> bool:
        return self.fast_runs(node) >= self.state.options.acquit

    def fast_runs(self, node: str) -> int:
        return sum(not self.is_slow(one) for one in self.of[node])

    def partner(self, one: Result, node: str) -> str:
        return next(other for other in one.run.nodes if other != node)

    def unexplained(self, node: str) -> list[Result]:
        """Slow runs for which no accused partner and no slow path answers."""
        return [
            one
            for one in self.of[node]
            if self.is_slow(one)
            and self.partner(one, node) not in self.accused
            and frozenset(one.run.nodes) not in self.paths
            and self.blocks_of(one) not in self.block_paths
        ]

    def _worst(self) -> tuple[str, str] | None:
        """The next node that the results name, and how; the one with most evidence first."""
        found = []
        for node in self.state.nodes:
            if node in self.accused:
                continue
            # a partner that was never fast may itself be the reason
            against = [one for one in self.unexplained(node) if self.partner(one, node) in self.fast]
            partners = {self.partner(one, node) for one in against}
            if node not in self.fast:
                if len(partners) > 1 and self.weight(against) >= PROOF:
                    found.append((self.weight(against), node, "slow"))
            elif self.state.options.acquit > 1:
                strong = [one for one in against if self.is_strong(one)]
                if len({self.partner(one, node) for one in strong}) > 1 and self.weight(strong) >= PROOF:
                    found.append((self.weight(strong), node, "slow at times"))
        if not found:
            return None
        _, node, how = max(found)
        return node, how

    def suspects(self) -> list[str]:
        """Nodes about which the runs so far do not decide."""
        return [node for node in self.state.nodes if node not in self.accused and self._is_suspect(node)]

    def _is_suspect(self, node: str) -> bool:
        if not self.of[node]:
            return False
        if node not in self.fast:
            return True
        strong = [one for one in self.unexplained(node) if self.is_strong(one)]
        return bool(strong) and not self._often_fast(node)

    def trusted(self) -> list[str]:
        """Nodes that were fast and against which nothing stands."""
        return [
            node
            for node in self.state.nodes
            if node in self.fast
            and node not in self.accused
            and not any(self.is_strong(one) for one in self.unexplained(node))
        ]


def _dice(state: State) -> random.Random:
    return random.Random(f"{state.options.seed}/{len(state.rounds)}")


def _rounds_of(state: State, kind: str) -> int:
    return sum(bool(results) and results[0].run.kind == kind for results in state.rounds)


# what to run next


def _sweep(state: State, view: _View) -> list[Run]:
    """All nodes in disjoint pairs; with an odd number the last one goes with one that is done already."""
    if len(state.nodes) < 2 or _rounds_of(state, RETEST):
        return []
    met = {frozenset(one.run.nodes) for one in view.pairs}
    seen = {node: sum(one.run.kind == PAIR for one in view.of[node]) for node in state.nodes}
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
    if _rounds_of(state, RETEST) >= state.options.retest_rounds:
        return []
    suspects = view.suspects()
    dice = _dice(state)
    dice.shuffle(suspects)
    partners = view.trusted()
    dice.shuffle(partners)
    if not partners:  # nobody was fast: other pairs may tell more
        met = {frozenset(one.run.nodes) for one in view.pairs}
        fresh = [pair for pair in _new_pairs(suspects, met) if frozenset(pair) not in met]
        return [Run(RETEST, pair) for pair in fresh]
    free = dict.fromkeys(partners)
    runs = []
    for node in suspects:
        met_by = {view.partner(one, node) for one in view.of[node]}
        partner = _best_partner(node, free, met_by, view)
        if partner is not None:
            del free[partner]
            runs.append(Run(RETEST, (node, partner)))
    return runs


def _best_partner(node: str, free: Iterable[str], met_by: set[str], view: _View) -> str | None:
    """A new partner of the same block, so that no path between blocks comes in; else any new one; else any."""
    near = far = old = None
    for other in free:
        if other in met_by:
            old = old or other
        elif view.block(other) == view.block(node):
            near = other
            break
        else:
            far = far or other
    return near or far or old


def _path(state: State, view: _View) -> list[Run]:
    """Slow pairs once more, when both were fast with others."""
    if _rounds_of(state, PATH) >= state.options.path_rounds:
        return []
    runs: list[Run] = []
    busy: set[str] = set()
    by_pair: dict[frozenset[str], list[Result]] = {}
    for one in view.pairs:
        by_pair.setdefault(frozenset(one.run.nodes), []).append(one)
    for pair, results in by_pair.items():
        if (
            pair <= view.fast
            and not pair & (busy | set(view.accused))
            and all(view.is_slow(one) for one in results)
            and view.weight(results) < PROOF
        ):
            runs.append(Run(PATH, results[0].run.nodes))
            busy |= pair
            blocks = view.blocks_of(results[0])
            other = _another_pair(view, blocks, busy) if blocks else None
            if other is not None:  # is it these two nodes, or all that lies between their blocks?
                runs.append(Run(PATH, other))
                busy |= set(other)
    return runs


def _another_pair(view: _View, blocks: tuple[str, ...], busy: set[str]) -> tuple[str, str] | None:
    one, two = (
        next((node for node in view.trusted() if view.block(node) == block and node not in busy), None)
        for block in blocks
    )
    return (one, two) if one is not None and two is not None else None


def _looked_into(view: _View) -> list[str]:
    """Accused nodes that are slow; one that hangs or fails would only do so again."""
    slow = [node for node in view.accused if any(one.status == OK for one in view.unexplained(node))]
    return slow[:MOST_INSIDE]


def _alone(state: State, view: _View) -> list[Run]:
    """The accused, and some good nodes to compare with, each for itself: is the fault inside the node?"""
    nodes = _looked_into(view)
    if not state.options.alone or not nodes or view.inside:
        return []
    return [Run(ALONE, (node,)) for node in [*nodes, *view.trusted()[:CONTROLS]]]


def _rail(state: State, view: _View) -> list[Run]:
    """One GPU position at a time, of an accused node and a good partner; slow ones again until it is sure."""
    if state.options.rails < 2 or _rounds_of(state, RAIL) >= 2 * state.options.rails:
        return []
    partners = view.trusted()
    runs = []
    for node in _looked_into(view):
        if not partners:
            break
        done = [one for one in view.rails if one.run.nodes[0] == node]
        partner = done[0].run.nodes[1] if done else partners[-1]
        if partner in partners:
            partners.remove(partner)
        rail = _next_rail(state, view, done)
        if rail is not None:
            runs.append(Run(RAIL, (node, partner), rail))
    return runs


def _next_rail(state: State, view: _View, done: list[Result]) -> int | None:
    count = {rail: sum(one.run.rail == rail for one in done) for rail in range(state.options.rails)}
    for rail, times in count.items():
        if not times:
            return rail
    line = _rail_lines(view, done)
    for rail in count:
        results = [one for one in done if one.run.rail == rail]
        if all(one.value < line[0] for one in results) and _rail_weight(results, line) < PROOF:
            return rail
    return None


def _rail_lines(view: _View, done: list[Result]) -> tuple[float, float]:
    """Weak and strong line for rails: the same shares below their own median as for pairs."""
    middle = statistics.median([one.value for one in done] or [0.0])
    share = (view.weak / view.normal, view.strong / view.normal) if view.normal else (0.0, 0.0)
    return middle * share[0], middle * share[1]


def _rail_weight(results: Iterable[Result], line: tuple[float, float]) -> float:
    return sum(STRONG_WEIGHT if one.value < line[1] else WEAK_WEIGHT for one in results if one.value < line[0])


def slow_rails(view: _View, node: str) -> list[int]:
    """Rails of a node that are slow every time, while most are not."""
    done = [one for one in view.rails if one.run.nodes[0] == node]
    line = _rail_lines(view, done)
    found = []
    for rail in range(view.state.options.rails):
        results = [one for one in done if one.run.rail == rail]
        if results and all(one.value < line[0] for one in results) and _rail_weight(results, line) >= PROOF:
            found.append(rail)
    return found


# faults that show only with many nodes


def _group(state: State, view: _View) -> list[Run]:
    """All together; then halves of the candidates, each filled up with known good nodes to half of all."""
    if not state.options.scale or view.accused or view.paths or view.suspects() or len(state.nodes) < 4:
        return []
    if not view.groups:
        return [Run(GROUP, state.nodes)]
    candidates = _candidates(state, view)
    if len(candidates) < 2 or _rounds_of(state, GROUP) > math.ceil(math.log2(len(state.nodes))):
        return []
    halves = _halves(state, candidates)
    last = [one.run.nodes for one in view.groups[-2:]]
    if len(view.groups) > 1 and [tuple(half) for half in halves] == last:
        return []  # neither half was slower: it needs more than half of the nodes, or there is nothing
    return [Run(GROUP, tuple(half)) for half in halves]


def _halves(state: State, candidates: Sequence[str]) -> list[list[str]]:
    middle = (len(candidates) + 1) // 2
    good = [node for node in state.nodes if node not in set(candidates)]
    filling = len(state.nodes) // 2 - middle
    first = [*candidates[:middle], *good[:filling]]
    second = [*candidates[middle:], *good[filling : filling + len(state.nodes) // 2 - (len(candidates) - middle)]]
    return [first, second]


def _candidates(state: State, view: _View) -> list[str]:
    """Who may be at fault after the halvings so far."""
    candidates = list(state.nodes)
    for one, two in zip(view.groups[1::2], view.groups[2::2], strict=False):
        halves = _halves(state, candidates)
        if [one.run.nodes, two.run.nodes] != [tuple(half) for half in halves]:
            break
        slower = _slower(view, one, two)
        if slower is None:
            break
        inside = set(slower.run.nodes)
        candidates = [node for node in candidates if node in inside]
    return candidates


def _slower(view: _View, one: Result, two: Result) -> Result | None:
    """The half that is slower than the other by more than noise."""
    share = view.weak / view.normal if view.normal else 0.9
    if one.value < two.value * share:
        return one
    if two.value < one.value * share:
        return two
    return None


# the verdict


def verdict(state: State) -> Verdict:
    """Who is named, who is undecided, and what was slow only once."""
    view = _View(state)
    named = [one for node, how in view.accused.items() for one in _named_node(view, node, how)]
    named += _named_paths(view)
    whole = view.groups[0].value if view.groups else None
    if len(view.groups) > 2:
        candidates = _candidates(state, view)
        if len(candidates) < len(state.nodes):
            slow = [one for one in view.groups[1:] if set(candidates) <= set(one.run.nodes)]
            fast = [one.value for one in view.groups[1:] if one not in slow]
            share = statistics.median(one.value for one in slow) / max(fast) if slow and fast and max(fast) else 0.0
            kind = "node" if len(candidates) == 1 else "group"
            named.append(Named(kind, tuple(candidates), "slow with many nodes", share, len(slow), len(slow)))
    once = {
        one.run.nodes
        for node in view.fast
        if node not in view.accused
        for one in view.unexplained(node)
        if view.is_strong(one) and set(one.run.nodes) <= view.fast
    }
    undecided = tuple(view.suspects())
    return Verdict(tuple(named), undecided, tuple(sorted(once)), view.normal, view.weak, len(view.fast), whole)


def _named_node(view: _View, node: str, how: str) -> list[Named]:
    slow = [one for one in view.of[node] if view.is_slow(one) and view.partner(one, node) not in view.accused]
    bad = [one.status for one in slow if one.status != OK]
    if bad and len(bad) * 2 >= len(slow):
        how = statistics.mode(bad)
    rates = [one.value for one in slow if one.status == OK]
    share = statistics.median(rates) / view.normal if rates and view.normal else 0.0
    alone = {one.run.nodes[0]: one.value for one in view.inside}
    controls = [value for other, value in alone.items() if other not in view.accused]
    inside = None
    if node in alone and controls and view.normal:
        inside = alone[node] < statistics.median(controls) * view.weak / view.normal
    base = Named("node", (node,), how, share, len(slow), len(view.of[node]), None, inside)
    return [replace(base, kind="rail", rail=rail) for rail in slow_rails(view, node)] or [base]


def _named_paths(view: _View) -> list[Named]:
    """One for each two blocks with a slow path, and one for each other slow pair."""
    found = []
    for blocks in sorted(view.block_paths):
        results = [one for one in view.pairs if view.blocks_of(one) == blocks]
        nodes = tuple(sorted({node for one in results for node in one.run.nodes}))
        found.append(_path_of(view, results, nodes, blocks))
    for pair in sorted(view.paths, key=sorted):
        results = [one for one in view.pairs if frozenset(one.run.nodes) == pair]
        if view.blocks_of(results[0]) not in view.block_paths:
            found.append(_path_of(view, results, tuple(sorted(pair))))
    return found


def _path_of(view: _View, results: list[Result], nodes: tuple[str, ...], blocks: tuple[str, ...] = ()) -> Named:
    rates = [one.value for one in results if one.status == OK]
    share = statistics.median(rates) / view.normal if rates and view.normal else 0.0
    bad = [one.status for one in results if one.status != OK]
    return Named("path", nodes, bad[0] if bad else "slow", share, len(results), len(results), blocks=blocks)


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
    if options.rails > 1:
        rounds, waves = rounds + 2 * options.rails, waves + 2 * options.rails
    elif options.scale and nodes >= 4:
        # halving happens only when nobody is accused, so either it or looking inside
        rounds, waves = rounds + 1 + math.ceil(math.log2(nodes)), waves + 1 + math.ceil(math.log2(nodes))
    minutes = waves * seconds / 60
    return Bound(rounds, waves, minutes, minutes * nodes)
