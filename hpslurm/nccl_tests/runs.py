"""What a search for the slow node runs, and what came of it: plain values. Rates are busbw in GB/s."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from hpslurm.core.values import dataclass, field, replace

PAIR = "pair"
RETEST = "retest"  # a suspect with a partner that was fast
PATH = "path"  # nodes beyond doubt, over a path that is in doubt
ALONE = "alone"  # inside one node
RAIL = "rail"  # one GPU of each node, and so its NICs
GROUP = "group"  # many nodes

OK = "ok"
HUNG = "hung"
FAILED = "failed"
WRONG = "wrong data"


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


def observe(state: State, results: Iterable[Result]) -> State:
    """The state after a complete round."""
    return replace(state, rounds=(*state.rounds, tuple(results)))
