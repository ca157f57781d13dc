"""One look at a job in order for judging: its ranks, where each stands, whose GPU is whose; and what a verdict is."""

from __future__ import annotations

from collections import Counter

from hpslurm.core.finding import Culprit
from hpslurm.core.text import whole
from hpslurm.core.values import dataclass, replace
from hpslurm.job.hang import places as hang_places
from hpslurm.job.hang.facts import Gpu, Node, Rank, Sample
from hpslurm.job.hang.places import NOWHERE, Kind, Place
from hpslurm.scan.reason import HEALTHY, UNDETERMINED

HIGH, MEDIUM, LOW = "high", "medium", "low"
ALIKE = 8  # one in so many ranks: more than that wait alike in the kernel, and it is how this job waits
FEW, MOST = 16, 8  # one in so many ranks, and no more than that: a few, at a place that nobody knows
ALONE = 4  # a class of a few is odd where every other class is so many times as large
BYTES_TRICKLE = 100_000  # bytes a second that a network sends again and again
BYTES_MOVE = 1 << 20  # bytes a second and node, over EFA or NVLink; a job that hangs moves nothing
BUSY_GPU, IDLE_GPU = 90, 5  # percent of use: a kernel runs
LOW_POWER, HIGH_POWER = 0.4, 0.5  # of the limit: below, a kernel only spins; above, it computes
MOVING = 10  # one in so many ranks that move, and the job does
WAKES = 20.0  # times a second: whoever wakes so often polls, or works
SPINS = 0.3  # seconds of CPU a second
UNSEEN = Kind("unseen", words="no Python stack, and its state is that of ranks that wait", waits=True)


@dataclass(frozen=True)
class Suspect:
    """Who holds the job up, and what it does; without a rank it is the node."""

    node: str
    what: str
    rank: int | None = None
    local: int | None = None
    pid: int | None = None
    gpu: str = ""


@dataclass(frozen=True)
class Group:
    """Ranks that do the same. ``suspect``: the few that the others wait for."""

    label: str
    words: str
    ranks: tuple[Rank, ...]
    suspect: bool


@dataclass(frozen=True)
class Verdict:
    """``cause`` is one of scan's words, or ``healthy`` for a job that does not hang."""

    cause: str
    confidence: str
    why: str
    suspects: tuple[Suspect, ...] = ()
    groups: tuple[Group, ...] = ()
    settle: tuple[str, ...] = ()  # what else would settle it

    @property
    def hangs(self) -> bool:
        return self.cause not in (HEALTHY, UNDETERMINED)

    @property
    def culprit(self) -> Culprit | None:
        if not self.suspects:
            return None
        first = self.suspects[0]
        return Culprit(first.rank, first.local, first.node or None, first.gpu or None, first.pid)


@dataclass(frozen=True)
class Case:
    """The ranks of one step, where each stands, and how many there should be."""

    sample: Sample
    ranks: tuple[Rank, ...]
    places: dict[int, Place]  # by the rank's place in ``ranks``
    world: int
    gpus: dict[tuple[str, int], Gpu]  # of ranks, by node and pid

    @property
    def seen(self) -> list[tuple[Rank, Place]]:
        return [(rank, self.places[number]) for number, rank in enumerate(self.ranks)]

    def place_of(self, rank: Rank) -> Place:
        return next(place for other, place in self.seen if other is rank)

    def spins(self, rank: Rank) -> bool:
        """Its GPU is busy at low power: a kernel of NCCL that waits for the others."""
        gpu = self.gpus.get((rank.node, rank.pid))
        return gpu is not None and (gpu.use or 0) >= BUSY_GPU and power_share(gpu) < LOW_POWER

    def is_idle(self, rank: Rank) -> bool:
        gpu = self.gpus.get((rank.node, rank.pid))
        return gpu is not None and gpu.use is not None and gpu.use < IDLE_GPU

    def is_blind(self, rank: Rank) -> bool:
        """It alone has no stack, where others have: that makes it no odd one."""
        return not rank.stack and self.has_stacks

    def looks_waiting(self, rank: Rank) -> bool:
        """From outside it looks as those do that wait."""
        return any(sign_of(rank) == sign_of(other) for other, place in self.seen if place.kind.waits)

    @property
    def has_stacks(self) -> bool:
        return any(rank.stack for rank in self.ranks)


def main_step(sample: Sample) -> Sample:
    """The ranks of the step that has most of them: the training, not a shell beside it."""
    steps = Counter(rank.step for rank in sample.ranks)
    step = max(steps, key=lambda name: (steps[name], whole(name) is not None, whole(name) or 0), default="")
    nodes = (replace(node, ranks=tuple(rank for rank in node.ranks if rank.step == step)) for node in sample.nodes)
    return replace(sample, nodes=tuple(nodes))


def case_of(sample: Sample) -> Case:
    ranks = sorted(sample.ranks, key=lambda rank: (_number(rank), rank.node))
    worlds = Counter(rank.world for rank in ranks if rank.world is not None)
    world = worlds.most_common(1)[0][0] if worlds else len(ranks)
    return Case(sample, tuple(ranks), dict(enumerate(_places(ranks))), world, _gpus(sample))


def _places(ranks: list[Rank]) -> list[Place]:
    """Where each stands. What the kernel says of many is how they wait, and so says nothing of one of them."""
    places = [hang_places.of_rank(rank) for rank in ranks]
    signs = {sign_of(rank) for rank, place in zip(ranks, places, strict=True) if rank.stack and place.kind.waits}
    kinds = Counter(hang_places.kind_of_channel(rank.channel).kind for rank in ranks if rank.state == "S")
    common = {kind for kind, count in kinds.items() if count > max(1, min(MOST, len(ranks) // ALIKE))}

    def plainly(rank: Rank, place: Place) -> Place:
        if not place.by_channel:
            return place
        if not rank.stack and sign_of(rank) in signs:
            return replace(place, kind=UNSEEN)
        if not rank.stack and signs and place.kind.waits:  # as none of those whose stack waits: so nobody knows
            return replace(place, kind=NOWHERE)
        if place.kind.kind not in common or place.kind.waits:
            return place
        return hang_places.of_stack(rank.stack) if rank.stack else replace(place, kind=NOWHERE)

    return list(map(plainly, ranks, places))


def sign_of(rank: Rank) -> tuple[str, str, bool]:
    """What is seen of a rank from outside: one without a stack that looks as others that wait is taken to wait."""
    asleep = rank.state == "S"
    return rank.state, rank.channel if asleep else "", rank.busy >= SPINS


def _gpus(sample: Sample) -> dict[tuple[str, int], Gpu]:
    pairs = ((node, gpu, rank_on(node, gpu)) for node in sample.nodes for gpu in node.gpus)
    return {(node.name, rank.pid): gpu for node, gpu, rank in pairs if rank}


def power_share(gpu: Gpu) -> float:
    """Of the power that it may take."""
    return gpu.power / gpu.limit if gpu.power is not None and gpu.limit else 0.0


def _number(rank: Rank) -> int:
    return rank.rank if rank.rank is not None else -1


def rank_on(node: Node, gpu: Gpu) -> Rank | None:
    """Whose GPU it is: by its processes, else by the local rank of the same number."""
    return next((rank for rank in node.ranks if rank.pid in gpu.processes), None) or next(
        (rank for rank in node.ranks if rank.local == gpu.index), None
    )


def bytes_rate(node: Node) -> float | None:
    """Bytes a second over EFA and NVLink; None where there is no such counter."""
    if (node.efa is None and node.nvlink is None) or not node.seconds:
        return None
    return ((node.efa or 0) + (node.nvlink or 0)) / node.seconds


def powers(case: Case) -> list[float]:
    gpus = (gpu for node in case.sample.nodes for gpu in node.gpus)
    return [gpu.power / gpu.limit for gpu in gpus if gpu.power is not None and gpu.limit]


def compared(first: Sample, second: Sample) -> Sample:
    """The later sample, in which what a rank did in the earlier one is its stack before: --again."""
    before = {(rank.node, rank.pid): rank for rank in first.ranks}

    def joined(rank: Rank) -> Rank:
        old = before.get((rank.node, rank.pid))
        return replace(rank, later=rank.stack, stack=old.stack) if old and old.stack and rank.stack else rank

    nodes = tuple(replace(node, ranks=tuple(map(joined, node.ranks))) for node in second.nodes)
    return replace(second, nodes=nodes)


def count_waiting(case: Case) -> int:
    return sum(place.kind.waits for place in case.places.values())


def mostly(case: Case, kind: str) -> bool:
    return sum(place.kind.kind == kind for place in case.places.values()) * 2 > len(case.ranks)
