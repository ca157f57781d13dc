"""What the results of a search say: the normal rate, which runs were slow, and which nodes and paths explain that.

The scatter of the pairs themselves tells what is slow; ``likelihood.py`` says who is at fault.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence

from hpslurm.nccl_tests import likelihood
from hpslurm.nccl_tests.likelihood import Noise
from hpslurm.nccl_tests.runs import ALONE, GROUP, OK, PAIR, PATH, RAIL, RETEST, WRONG, Result, State

# Scatter follows from the faster half of the pairs, which faults do not reach as long as they touch less than half:
# from the way between their fastest tenth and the middle. It is kept between these shares: independent public runs
# agree within 1 percent, but a little more costs nothing; more than 5 would hide what we look for. Few pairs tell
# little, so the upper bound counts like so many pairs more.
LEAST_SCATTER, MOST_SCATTER, PRIOR_PAIRS = 0.02, 0.05, 100
TENTH_TO_MIDDLE, TOP_TO_QUARTER = 0.549, 0.319  # in scatters, for the absolute value of a normal distribution
# One of two halves, or a node alone, against another: perhaps noise, hardly noise, not noise. In scatters, and the
# share that is not worth a hunt.
LINES = ((1.8, 0.05), (3.4, 0.1), (4.4, 0.13))
# A node is at fault more often than a path; in nats.
PATH_PRICE = 2.0
CONFIRM = 3  # times that two halves are compared at most, and extra rounds for rails
SLOW, AT_TIMES = "slow", "slow at times"

Key = str | tuple[str, str] | frozenset[str]  # a node, the two blocks that a path joins, a pair


def _is_path(key: Key) -> bool:
    return isinstance(key, tuple)


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


def is_fast(result: Result, line: float) -> bool:
    """What hangs, fails or is wrong is not, and where nothing has a rate nothing is."""
    return result.status == OK and result.value >= line > 0


def ratio(result: Result, noise: Noise) -> float:
    """How much a run that is not fast says; all that one can, where there is no rate to compare with."""
    return noise.ratio(result.value) if result.status == OK and noise.normal > 0 else likelihood.GRAVE


class Seen:
    """The results of all rounds, sorted by what was run."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.options = state.options
        every = [result for results in state.rounds for result in results]
        self.pairs = [result for result in every if result.run.kind in (PAIR, RETEST, PATH)]
        self.inside = [result for result in every if result.run.kind == ALONE]
        self.rails = [result for result in every if result.run.kind == RAIL]
        self.groups = [result for result in every if result.run.kind == GROUP]
        self.of: dict[str, list[Result]] = {node: [] for node in state.nodes}
        for result in self.pairs:
            for node in result.run.nodes:
                self.of[node].append(result)

    def block(self, node: str) -> str:
        """The topology's block of a node; all have the same where it is not known."""
        return self.state.blocks.get(node, "")

    def blocks(self, result: Result) -> tuple[str, str]:
        """The blocks of the two nodes of a pair."""
        first, second = result.run.nodes
        first, second = self.block(first), self.block(second)
        return (first, second) if first < second else (second, first)

    def partners(self, node: str) -> set[str]:
        """Those with whom it has run."""
        return {other for result in self.of[node] for other in result.run.nodes if other != node}

    def count(self, *kinds: str) -> int:
        """Rounds of these kinds so far."""
        return sum(bool(results) and results[0].run.kind in kinds for results in self.state.rounds)


class Weighed(Seen):
    """The same results, and what they say: which were slow, who is named for it, and who is in doubt.

    Only needed, and only possible, once all nodes have run in pairs.
    """

    def __init__(self, state: State) -> None:
        super().__init__(state)
        rates = [result for result in self.pairs if result.status == OK]
        swept = [result for result in rates if result.run.kind == PAIR]
        self.noise = _noise([result.value for result in swept or rates])
        self.line = self.noise.normal * (1 - self.noise.least)  # below this rate a run is not fast
        self.slow: list[Result] = []  # not fast, to be exact
        fast: list[Key] = []
        for result in self.pairs:  # thousands of them, made anew for each round
            if not self.is_fast(result):
                self.slow.append(result)
                continue
            fast += result.run.nodes
            blocks = self.blocks(result)
            if blocks[0] != blocks[1]:
                fast.append(blocks)
        self._times_fast: dict[Key, int] = Counter(fast)
        self.fast = {key for key in self._times_fast if isinstance(key, str)}  # nodes with a fast run
        self._explain()

    def is_fast(self, result: Result) -> bool:
        return is_fast(result, self.line)

    @property
    def shares(self) -> tuple[float, float, float]:
        """The weak, the strong and the sure line, as shares of what is compared with."""
        weak, strong, sure = (1 - max(times * self.noise.sigma, least) for times, least in LINES)
        return weak, strong, sure

    def _explain(self) -> None:
        """Name the nodes and paths that explain the slow runs best."""
        runs = []
        for result in self.slow:
            blocks = self.blocks(result)
            touched = (*result.run.nodes, frozenset(result.run.nodes), *((blocks,) if blocks[0] != blocks[1] else ()))
            runs.append(likelihood.Doubtful[Key](ratio(result, self.noise), touched))
        many, leaves = len(self.state.nodes), len(set(self.state.blocks.values()))
        of_node = likelihood.price(many)
        of_blocks = likelihood.price(leaves * (leaves - 1) // 2, PATH_PRICE)
        of_pair = likelihood.price(many * (many - 1) // 2, PATH_PRICE)

        def price(key: Key) -> float:
            return of_node if isinstance(key, str) else of_blocks if isinstance(key, tuple) else of_pair

        best = likelihood.Explanation(runs, self.count_fast, price, self.options.at_times, (_is_path,))
        named = {key: SLOW if often == likelihood.ALWAYS else AT_TIMES for key, often in best.named.items()}
        # where nobody was ever fast, all may be as bad as each other
        named = {key: how for key, how in named.items() if key not in best.open and self.fast}
        self.nodes = {key: how for key, how in named.items() if isinstance(key, str)}
        self.paths = {key: how for key, how in named.items() if not isinstance(key, str)}
        doubtful = best.suspects()
        never_fast = [node for node in self.state.nodes if node not in self.fast and self.of[node]]
        never_fast = [node for node in never_fast if node not in named]
        self.suspects = list(dict.fromkeys((*doubtful, *never_fast)))
        self.unexplained = [result for result, run in zip(self.slow, runs, strict=True) if run.rest == 1]

    def count_fast(self, key: Key) -> int:
        """How many fast runs a node, a path or a pair was in."""
        if isinstance(key, frozenset):
            return sum(self.is_fast(result) for result in self.of[min(key)] if key.issuperset(result.run.nodes))
        return self._times_fast.get(key, 0)

    def wrong(self) -> list[Result]:
        """Runs that computed wrong data without a named node or path in them."""
        wrong = [result for results in self.state.rounds for result in results if result.status == WRONG]
        blamed = {*self.nodes, *self.paths}
        return [
            result
            for result in wrong
            if blamed.isdisjoint(result.run.nodes)
            and frozenset(result.run.nodes) not in blamed
            and (len(result.run.nodes) != 2 or self.blocks(result) not in blamed)
        ]

    def share(self, slow: Sequence[Result]) -> float:
        """The median of slow runs, as a share of the normal rate; 0 where none has a rate."""
        rates = [result.value for result in slow if result.status == OK]
        return statistics.median(rates) / self.noise.normal if rates and self.noise.normal else 0.0

    def trusted(self) -> list[str]:
        """Nodes that were fast, and about which there is no doubt."""
        doubtful = {*self.suspects, *self.nodes}
        return [node for node in self.state.nodes if node in self.fast and node not in doubtful]
