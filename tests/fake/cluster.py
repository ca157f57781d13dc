"""A model cluster with faults, for the planner: what a run on it would measure."""

from __future__ import annotations

import random

from hpslurm.core.values import dataclass
from hpslurm.nccl_tests.accused import Verdict, verdict
from hpslurm.nccl_tests.runs import Options, Result, Run, State, observe
from hpslurm.nccl_tests.search import next_round

NODE, PATH, RAIL = "node", "path", "rail"
SIGMA = 0.05  # one-sided noise: every run is slower by the absolute value of a normal with this deviation
NORMAL = 478.0  # GB/s
RAILS = 8
MOST_ROUNDS = 200


@dataclass(frozen=True)
class Fault:
    """``nodes`` is one node, or for a path two blocks. It slows to ``share``, in a run with probability ``often``."""

    kind: str
    nodes: tuple[str, ...]
    share: float
    rail: int | None = None
    often: float = 1.0
    least: int = 1  # nodes of a run in which it shows


@dataclass
class Cluster:
    """Nodes in blocks of the topology, and what is wrong with them."""

    nodes: tuple[str, ...]
    blocks: dict[str, str]
    faults: tuple[Fault, ...]
    dice: random.Random
    sigma: float = SIGMA

    def measure(self, run: Run) -> Result:
        rate = NORMAL
        for fault in self.faults:
            if self.touches(fault, run) and (fault.often >= 1 or self.dice.random() < fault.often):
                rate = min(rate, NORMAL * fault.share)
        return Result(run, rate * (1 - abs(self.dice.gauss(0, self.sigma))))

    def touches(self, fault: Fault, run: Run) -> bool:
        if fault.kind == PATH:
            return set(fault.nodes) <= {self.blocks[node] for node in run.nodes}
        if fault.nodes[0] not in run.nodes or len(run.nodes) < fault.least:
            return False
        if fault.kind == RAIL:  # inside the node it is not used
            return len(run.nodes) > 1 and run.rail in (None, fault.rail)
        return True


def cluster(size: int, kind: str, faults: int, share: float, seed: int, often: float = 1.0) -> Cluster:
    """A cluster of ``size`` nodes in blocks, with that many distinct faults of one kind."""
    dice = random.Random(f"{size}/{kind}/{faults}/{share}/{often}/{seed}")
    nodes = tuple(f"ip-10-1-{i // 256}-{i % 256}" for i in range(size))
    per_block = max(4, 2 ** ((size.bit_length()) // 2))  # 4 blocks of 4, 16 of 8, 32 of 32
    blocks = {node: f"block{i // per_block}" for i, node in enumerate(nodes)}
    if kind == PATH:
        names = sorted(set(blocks.values()))
        pairs = [(one, two) for i, one in enumerate(names) for two in names[i + 1 :]]
        found = tuple(Fault(PATH, pair, share, None, often) for pair in dice.sample(pairs, faults))
    else:
        rail = dice.randrange(RAILS) if kind == RAIL else None
        found = tuple(Fault(kind, (node,), share, rail, often) for node in dice.sample(nodes, faults))
    return Cluster(nodes, blocks, found, dice)


def search(model: Cluster, options: Options) -> tuple[State, Verdict]:
    """The whole search, as the runner does it."""
    state = State(model.nodes, options, model.blocks)
    while runs := next_round(state):
        state = observe(state, [model.measure(run) for run in runs])
        assert len(state.rounds) < MOST_ROUNDS, "the planner does not end"
    return state, verdict(state)


def named(verdict: Verdict) -> set[tuple[str, tuple[str, ...], int | None]]:
    return {(one.kind, one.blocks if one.kind == PATH and one.blocks else one.nodes, one.rail) for one in verdict.named}


def truth(model: Cluster) -> set[tuple[str, tuple[str, ...], int | None]]:
    return {(fault.kind, fault.nodes, fault.rail) for fault in model.faults}


def healthy_accused(model: Cluster, verdict: Verdict) -> int:
    """Nodes that are named as bad though nothing is wrong with them; of a path none is."""
    bad = {fault.nodes[0] for fault in model.faults if fault.kind != PATH}
    return len({node for one in verdict.named if one.kind in (NODE, RAIL) for node in one.nodes} - bad)
