"""Which rank of a running job hangs, and why: the facts of one look in, the verdict out.

In a job that hangs nearly all ranks wait for a few, and what those few do is the reason. So ranks that stand at the
same place are one class, and whoever does not wait while the others do is a suspect. Harder facts come first: a
process that is gone, stopped, or stuck in a file system, a GPU that is lost, a node that does not answer. Ranks that
wait at several places are no evidence by themselves: in pipelines they do so by design.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence

from hpslurm.core import nodeset
from hpslurm.core.finding import Culprit, Diagnosis
from hpslurm.core.text import clean
from hpslurm.core.values import dataclass, replace
from hpslurm.job import hang_places
from hpslurm.job.hang_facts import STOPPED, TRACED, ZOMBIE, Gpu, Node, Rank, Sample
from hpslurm.job.hang_places import NOWHERE, UNKNOWN, Place
from hpslurm.scan.reason import HEALTHY, UNDETERMINED

HIGH, MEDIUM, LOW = "high", "medium", "low"
FEW, MOST = 16, 8  # one in so many ranks, and no more than that: a few, at a place that nobody knows
ALONE = 4  # a class of a few is odd where every other class is so many times as large
BYTES_TRICKLE = 100_000  # bytes a second that a network sends again and again
BYTES_MOVE = 1 << 20  # bytes a second and node, over EFA or NVLink; a job that hangs moves nothing
RANK_MOVES = 1 << 20  # bytes a rank read and wrote between the looks
BUSY_GPU, IDLE_GPU = 90, 5  # percent of use: a kernel runs
LOW_POWER, HIGH_POWER = 0.4, 0.5  # of the limit: below, a kernel only spins; above, it computes
MOVING = 10  # one in so many ranks that move, and the job does
WAKES = 20.0  # times a second: whoever wakes so often polls, or works
SPINS = 0.3  # seconds of CPU a second


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
    suspect: bool = False


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

    def spins(self, rank: Rank) -> bool:
        """Its GPU is busy at low power: a kernel of NCCL that waits for the others."""
        gpu = self.gpus.get((rank.node, rank.pid))
        return gpu is not None and (gpu.use or 0) >= BUSY_GPU and _share(gpu) < LOW_POWER

    def is_idle(self, rank: Rank) -> bool:
        gpu = self.gpus.get((rank.node, rank.pid))
        return gpu is not None and gpu.use is not None and gpu.use < IDLE_GPU

    @property
    def has_stacks(self) -> bool:
        return any(rank.stack for rank in self.ranks)


def main_step(sample: Sample) -> Sample:
    """The ranks of the step that has most of them: the training, not a shell beside it."""
    steps = Counter(rank.step for rank in sample.ranks)
    step = max(steps, key=lambda name: (steps[name], name.isdigit(), int(name) if name.isdigit() else 0), default="")
    nodes = (replace(node, ranks=tuple(rank for rank in node.ranks if rank.step == step)) for node in sample.nodes)
    return replace(sample, nodes=tuple(nodes))


def judge(sample: Sample, told: Diagnosis | None = None) -> Verdict:
    """``told`` is what scan reads in NCCL's RAS report and in flight recorder dumps that lie there."""
    case = case_of(sample)
    verdict = next(filter(None, (look(case) for look in LOOKS)), None) or _nothing(case)
    verdict = replace(verdict, groups=tuple(groups(case, verdict.suspects)))
    return _with_told(verdict, told, case) if told is not None else verdict


def case_of(sample: Sample) -> Case:
    ranks = sorted(sample.ranks, key=lambda rank: (_number(rank), rank.node))
    worlds = Counter(rank.world for rank in ranks if rank.world is not None)
    world = worlds.most_common(1)[0][0] if worlds else len(ranks)
    return Case(sample, tuple(ranks), dict(enumerate(map(hang_places.of_rank, ranks))), world, _gpus(sample))


def _gpus(sample: Sample) -> dict[tuple[str, int], Gpu]:
    pairs = ((node, gpu, _rank_on(node, gpu)) for node in sample.nodes for gpu in node.gpus)
    return {(node.name, rank.pid): gpu for node, gpu, rank in pairs if rank}


def _share(gpu: Gpu) -> float:
    """Of the power that it may take."""
    return gpu.power / gpu.limit if gpu.power is not None and gpu.limit else 0.0


def _number(rank: Rank) -> int:
    return rank.rank if rank.rank is not None else -1


# --------------------------------------------------------------------------- hard facts


def _nobody(case: Case) -> Verdict | None:
    if case.ranks:
        return None
    if case.sample.silent and not case.sample.nodes:
        return Verdict(UNDETERMINED, LOW, "No node of the job answered", settle=("hpslurm hang again; sinfo -R",))
    why = "No process of the job that is a rank was seen on its nodes: it starts, ends, or runs in another way"
    return Verdict(UNDETERMINED, LOW, why, settle=("squeue -s -j JOBID, and what the job script does now",))


def _stopped(case: Case) -> Verdict | None:
    found = [rank for rank in case.ranks if rank.state in (STOPPED, TRACED)]
    if not found:
        return None
    words = {STOPPED: "stopped by a signal (state T)", TRACED: "held by a debugger (state t)"}
    suspects = [_suspect(rank, words[rank.state]) for rank in found]
    why = f"{_who(found)} {_is(found)} {words[found[0].state]}; the others wait for what {_it(found)} would do next"
    if len(found) == len(case.ranks):
        why = "All ranks are stopped: the job is suspended (scontrol suspend), or somebody stopped it"
    return Verdict(
        "slow_rank_work", HIGH, why, tuple(suspects), settle=("who sent SIGSTOP: a debugger, a user, gcore",)
    )


def _gone(case: Case) -> Verdict | None:
    """Ranks that should be there and are not: they died, or never began."""
    there = {rank.rank for rank in case.ranks if rank.state not in (ZOMBIE, "X")}
    missing = [number for number in range(case.world) if number not in there] if len(there) < case.world else []
    if case.sample.silent:  # they may be where nobody answers
        missing = [number for number in missing if home(case, number)]
    if not missing or len(missing) > case.world // 2:
        return None
    at_start = _mostly(case, "rendezvous")
    homes = {number: home(case, number) for number in missing}
    dead = [node for node in case.sample.nodes if node.zombies]
    what = "never came" if at_start else "its process is gone"
    suspects = [Suspect(homes[number], what, number) for number in missing]
    named = f"{_numbers(missing)} of {case.world}"
    if at_start:
        why = f"{named} never came to the start, where the others wait"
        return Verdict("rendezvous_unreachable", HIGH, why, tuple(suspects), settle=(_output_of(missing),))
    zombie = f"; dead and not yet collected on {nodeset.fold(node.name for node in dead)}" if dead else ""
    why = f"The process of {named} is gone, and the others wait for it{zombie}"
    sure = HIGH if case.has_stacks and _waiting(case) * 2 > len(case.ranks) else MEDIUM
    return Verdict("peer_exit", sure, why, tuple(suspects), settle=(_output_of(missing), "hpslurm report JOBID"))


def home(case: Case, number: int) -> str:
    """The node that a rank belongs to, by what the launcher numbered in a row there; empty where nothing tells."""
    for node in case.sample.nodes:
        bases = {rank.rank - rank.local for rank in node.ranks if rank.rank is not None and rank.local is not None}
        if len(bases) == 1:
            base = bases.pop()
            if base <= number < base + _per_node(case, node):
                return node.name
    empty = [node.name for node in case.sample.nodes if not node.ranks]
    return empty[0] if len(empty) == 1 else ""


def _per_node(case: Case, node: Node) -> int:
    """How many ranks a node should have: as its launcher says, else as many as the fullest one."""
    said = [rank.locals for rank in node.ranks if rank.locals]
    return said[0] if said else max((len(node.ranks) for node in case.sample.nodes), default=0)


def _lost_gpu(case: Case) -> Verdict | None:
    found = [(node, gpu) for node in case.sample.nodes for gpu in node.gpus if gpu.lost]
    if not found:
        return None
    suspects = [_gpu_suspect(node, gpu, f"is lost: {gpu.lost}") for node, gpu in found]
    first = suspects[0]
    at = f", which is rank {first.rank}'s" if first.rank is not None else ""
    why = f"NVML does not reach GPU {first.gpu} on {first.node}{at}"
    return Verdict("gpu_fell_off_bus", HIGH, why, tuple(suspects), settle=("the node's kernel log: an XID 79 or 119",))


def _rank_on(node: Node, gpu: Gpu) -> Rank | None:
    """Whose GPU it is: by its processes, else by the local rank of the same number."""
    return next((rank for rank in node.ranks if rank.pid in gpu.processes), None) or next(
        (rank for rank in node.ranks if rank.local == gpu.index), None
    )


def _stuck(case: Case) -> Verdict | None:
    """Ranks, or processes that they started, which a file system does not let go."""
    found = [rank for rank in case.ranks if hang_places.is_stuck(rank) or _stuck_children(rank)]
    if not found:
        return None
    suspects = [_suspect(rank, _stuck_words(rank)) for rank in found]
    where = {place for rank in found if (place := _stuck_where(rank)).startswith("/")}
    at = f" ({os.path.commonpath(where)})" if where else ""
    if len(found) * 2 > len(case.ranks):
        why = f"{len(found)} of {len(case.ranks)} ranks wait in the kernel for a file{at}: the file system, not a rank"
        return Verdict(
            "storage", HIGH if where else MEDIUM, why, settle=("lfs check servers, or df of it on any node",)
        )
    why = f"{_who(found)} {_is(found)} in state D{at}: the kernel waits for a file system, and the others wait for it"
    return Verdict("storage", HIGH if where else MEDIUM, why, tuple(suspects), settle=("the node's kernel log",))


def _stuck_children(rank: Rank) -> bool:
    return any(child.state == "D" for child in rank.children)


def _stuck_where(rank: Rank) -> str:
    return rank.where or next((child.where for child in rank.children if child.where), "")


def _stuck_words(rank: Rank) -> str:
    who = "" if hang_places.is_stuck(rank) else "a process of it "
    return f"{who}in state D" + (f" at {_stuck_where(rank)}" if _stuck_where(rank) else "")


# --------------------------------------------------------------------------- does it move?


def _moves(case: Case) -> Verdict | None:
    """A job that gets on, even if one of its ranks waits at this moment."""
    reasons = list(filter(None, (_bytes_move(case), _power_is_high(case), _stacks_move(case))))
    if not reasons or case.sample.silent:
        return None
    return Verdict(HEALTHY, HIGH if len(reasons) > 1 else MEDIUM, f"It does not hang: {' and '.join(reasons)}")


def _bytes_move(case: Case) -> str:
    rates = [rate for node in case.sample.nodes if (rate := _rate(node)) is not None]
    moving = [rate for rate in rates if rate >= BYTES_MOVE]
    if len(moving) * 2 <= len(rates):
        return ""
    return f"{sum(moving) / len(moving) / 1e9:.2f} GB/s go through {len(moving)} of {len(rates)} nodes"


def _rate(node: Node) -> float | None:
    """Bytes a second over EFA and NVLink; None where there is no such counter."""
    if (node.efa is None and node.nvlink is None) or not node.seconds:
        return None
    return ((node.efa or 0) + (node.nvlink or 0)) / node.seconds


def _power_is_high(case: Case) -> str:
    shares = _powers(case)
    high = [share for share in shares if share >= HIGH_POWER]
    return f"{len(high)} of {len(shares)} GPUs compute" if shares and len(high) * 2 > len(shares) else ""


def _powers(case: Case) -> list[float]:
    gpus = (gpu for node in case.sample.nodes for gpu in node.gpus)
    return [gpu.power / gpu.limit for gpu in gpus if gpu.power is not None and gpu.limit]


def _stacks_move(case: Case) -> str:
    """Whoever waited for others and then did not, or the other way round, shows that the job gets on."""
    looked = [rank for rank in case.ranks if rank.stack and rank.later]
    moving = [rank for rank in looked if moves(rank)]
    if len(moving) * MOVING < len(looked) or not moving:
        return ""
    return f"{len(moving)} of {len(looked)} ranks came to or left a collective within 2 s"


def moves(rank: Rank) -> bool:
    """It came to a collective, or left one, between the looks."""
    if not rank.stack or not rank.later or rank.stack == rank.later:
        return False
    before, after = hang_places.of_stack(rank.stack), hang_places.of_stack(rank.later)
    return before.label != after.label and (before.kind.waits or after.kind.waits)


# --------------------------------------------------------------------------- the few and the many


def _silent(case: Case) -> Verdict | None:
    """Nodes that did not answer. Only where no rank that was seen does something that explains it."""
    silent = case.sample.silent
    if not silent or len(silent) * 2 > len(silent) + len(case.sample.nodes):
        return None
    suspects = tuple(Suspect(node, "did not answer") for node in silent)
    why = f"{nodeset.fold(silent)} did not answer within the time, all other nodes did"
    return Verdict("node_fail", MEDIUM, why, suspects, settle=(f"ping, and scontrol show node {nodeset.fold(silent)}",))


def _works(case: Case) -> Verdict | None:
    """Ranks that do something of their own, and at least as many that wait."""
    working = [] if _wake(case) else [(rank, place) for rank, place in case.seen if _is_work(place)]
    working = _with_neighbours(case, working)
    waiting = len(case.ranks) - len(working)
    if not working or len(working) > waiting or not _waits_somewhere(case):
        return None
    kinds = Counter(place.kind.kind for _, place in working)
    first = kinds.most_common(1)[0][0]
    alike = [(rank, place) for rank, place in working if place.kind.kind == first]
    kind = alike[0][1].kind
    suspects = [
        _suspect(rank, _doing(rank, place)) for rank, place in [*alike, *(w for w in working if w not in alike)]
    ]
    ranks = [rank for rank, _ in alike]
    why = f"{_each(ranks)} {kind.words} at {alike[0][1].label}, while {_many(case, working)}"
    sure = _sure(case, ranks, alike)
    cause = "storage" if any(rank.state == "D" for rank in ranks) else kind.cause
    return Verdict(cause, sure, why, tuple(suspects), settle=_settle(case, sure))


def _wake(case: Case) -> bool:
    """Without stacks: those that sleep wake all the time, as they do in a job that works."""
    asleep = [rank for rank in case.ranks if not rank.stack and rank.state == "S"]
    return sum(rank.wakes >= WAKES for rank in asleep) * 2 > len(case.ranks)


def _with_neighbours(case: Case, working: list[tuple[Rank, Place]]) -> list[tuple[Rank, Place]]:
    """And whoever stands at the same line, or has an idle GPU as they have: of two that loop, one is seen awake."""
    if not working:
        return []
    lines = {place.program: place for _, place in working if place.program}
    most_spin = sum(map(case.spins, case.ranks)) * 2 > len(case.ranks)
    found = []
    for rank, place in case.seen:
        if _is_work(place) or (most_spin and not rank.stack and case.is_idle(rank)):
            found.append((rank, place if _is_work(place) else working[0][1]))
        elif place.program in lines:
            found.append((rank, lines[place.program]))
    return found


def _many(case: Case, working: Sequence[tuple[Rank, Place]]) -> str:
    """``7 ranks wait at all_reduce (train.py:67)``."""
    odd = {id(rank) for rank, _ in working}
    others = [place.label for rank, place in case.seen if id(rank) not in odd]
    label, count = Counter(others).most_common(1)[0]
    return f"{len(others)} {_ranks(len(others))} wait{', most of them' if count < len(others) else ''} at {label}"


def _is_work(place: Place) -> bool:
    return place.kind.kind != UNKNOWN and not place.kind.waits


def _waits_somewhere(case: Case) -> bool:
    """Most of those that do not work stand where ranks wait, or all at one place that nobody knows."""
    others = [place for _, place in case.seen if not _is_work(place)]
    waiting = [place for place in others if place.kind.waits]
    same = Counter(place.label for place in others).most_common(1)
    return len(waiting) * 2 > len(others) or (bool(same) and same[0][1] * 2 > len(others))


def _sure(case: Case, ranks: Sequence[Rank], seen: Sequence[tuple[Rank, Place]]) -> str:
    if not all(rank.stack for rank in ranks):
        return MEDIUM if len(ranks) * 8 <= len(case.ranks) or len(ranks) == 1 else LOW
    known = _waiting(case) * 2 > len(case.ranks) - len(ranks)
    return HIGH if known and len(ranks) * 4 <= len(case.ranks) else MEDIUM


def _odd(case: Case) -> Verdict | None:
    """A few at a place that nobody knows, while the many wait, or stand together at another one."""
    few = [] if _wake(case) else [rank for members in _few(case) for rank in members]
    if not few or not _others_stand(case, few):
        return None
    spinning = [rank for rank in few if rank.state == "R" == rank.before and rank.busy >= SPINS]
    place = hang_places.of_rank(few[0])
    doing = f"spins, with {spinning[0].busy:.0%} of a CPU," if spinning else "is somewhere else"
    why = f"{_each(few)} {doing} at {place.label}, where no other rank is"
    suspects = tuple(_suspect(rank, _doing(rank, hang_places.of_rank(rank))) for rank in few)
    rest_waits = _waiting(case) >= len(case.ranks) - len(few)
    sure = (HIGH if rest_waits else MEDIUM) if all(rank.stack for rank in few) else LOW
    return Verdict("slow_rank_work", sure, why, suspects, settle=_settle(case, sure))


def _unknown(case: Case) -> list[list[Rank]]:
    """Classes of ranks at places that nobody knows."""
    classes: dict[str, list[Rank]] = defaultdict(list)
    for rank, place in case.seen:
        if place.kind.kind == UNKNOWN:
            classes[place.program or place.label].append(rank)
    return list(classes.values())


def _few(case: Case) -> list[list[Rank]]:
    """Of those the small ones. A larger class, or one whose GPUs spin, may be a stage of a pipeline that waits."""
    few = (members for members in _unknown(case) if len(members) <= _most_few(case))
    return [members for members in few if not all(map(case.spins, members))]


def _most_few(case: Case) -> int:
    return max(1, min(MOST, len(case.ranks) // FEW))


def _others_stand(case: Case, few: Iterable[Rank]) -> bool:
    """The others wait, or are together; else everybody is everywhere, and nobody is odd."""
    odd = {id(rank) for rank in few}
    others = [place for rank, place in case.seen if id(rank) not in odd]
    waiting = sum(place.kind.waits for place in others)
    same = Counter(place.program or place.label for place in others).most_common(1)
    return waiting * 2 > len(others) or (bool(same) and same[0][1] * 4 > len(others) * 3)


def _desync(case: Case) -> Verdict | None:
    """All wait, but a few in another collective. Where ranks wait at many places by design, nobody is odd."""
    if not case.has_stacks or _few(case) or any(_is_work(place) for _, place in case.seen):
        return None
    classes: dict[tuple[str, str], list[Rank]] = defaultdict(list)
    for rank, place in case.seen:
        classes[(place.call, place.program)].append(rank)
    by_size = sorted(classes.items(), key=lambda item: len(item[1]))
    if len(by_size) < 2 or not _is_odd(case, [len(members) for _, members in by_size]):
        return None
    (call, program), few = by_size[0]
    (other, there), _ = by_size[-1]
    why = f"{_each(few)} waits in {call} ({program}), the others in {other} ({there}): they will never meet"
    suspects = tuple(_suspect(rank, f"waits in {call} ({program})") for rank in few)
    sure = MEDIUM if len(by_size) == 2 else LOW
    return Verdict("collective_desync", sure, why, suspects, settle=_settle(case, sure, collectives=True))


def _is_odd(case: Case, sizes: Sequence[int]) -> bool:
    """Whether the smallest class is one of a few that the others wait for, and no stage of a pipeline."""
    one_group = len(sizes) == 2 and all(place.kind.kind != "p2p" for _, place in case.seen)
    most = len(case.ranks) // 4 if one_group else _most_few(case)
    return sizes[1] >= max(3, ALONE * sizes[0]) and sizes[0] <= most


# --------------------------------------------------------------------------- all alike: GPUs and the network


def _one_gpu(case: Case) -> Verdict | None:
    """GPUs of a few compute, or do nothing, while those of the others run a kernel that only waits."""
    gpus = [(node, gpu) for node in case.sample.nodes for gpu in node.gpus if gpu.power is not None and gpu.limit]
    spin = [gpu for _, gpu in gpus if (gpu.use or 0) >= BUSY_GPU and _share(gpu) < LOW_POWER]
    if len(gpus) < 3 or len(spin) * 2 <= len(gpus):
        return None
    idle = [(node, gpu) for node, gpu in gpus if gpu.use is not None and gpu.use < IDLE_GPU]
    hot = [(node, gpu) for node, gpu in gpus if _share(gpu) >= HIGH_POWER]
    for few, cause, what in ((idle, "slow_rank_work", "has nothing to do"), (hot, "straggler", "computes")):
        if few and len(few) * 4 <= len(gpus):
            suspects = tuple(_gpu_suspect(node, gpu, what) for node, gpu in few)
            first = suspects[0]
            whose = f"rank {first.rank}'s GPU" if first.rank is not None else f"GPU {first.gpu}"
            more = f" (and {len(few) - 1} more)" if len(few) > 1 else ""
            why = f"{whose} on {first.node}{more} {what}, while the others run a kernel that only waits"
            return Verdict(cause, MEDIUM, why, suspects, settle=_settle(case, MEDIUM, collectives=True))
    return None


def _gpu_suspect(node: Node, gpu: Gpu, what: str) -> Suspect:
    rank = _rank_on(node, gpu)
    number, local, pid = (rank.rank, rank.local, rank.pid) if rank else (None, None, None)
    return Suspect(node.name, f"GPU {gpu.index} {what}", number, local, pid, str(gpu.index))


def _network(case: Case) -> Verdict | None:
    """All in a collective, GPUs spin, nothing moves: the network, or a GPU that computes wrongly."""
    if _waiting(case) * 10 < len(case.ranks) * 9:
        return None
    known = [node for node in case.sample.nodes if _rate(node) is not None]
    still = [node for node in known if not _rate(node)]
    moving = [node for node in known if (_rate(node) or 0) >= BYTES_TRICKLE]
    few = len(still) * 4 <= len(known) and bool(still) and len(moving) * 2 > len(known)
    suspects = (
        tuple(Suspect(node.name, "its network counters stand still, others move") for node in still) if few else ()
    )
    shares = _powers(case)
    spin = bool(shares) and sum(share < LOW_POWER for share in shares) * 2 > len(shares) and _gpus_run(case)
    if not suspects and not (spin and still):
        return None
    counters = (
        "counters of " + nodeset.fold(node.name for node in still) + " stand still" if still else "bytes hardly move"
    )
    why = f"All ranks wait in collectives, GPUs run at low power, {counters}: the network, or a GPU"
    sure = MEDIUM if suspects else LOW
    find = "hpslurm nccl-tests --find-slow on these nodes"
    return Verdict("network_link", sure, why, suspects, settle=(find, *_settle(case, sure, collectives=True)))


def _gpus_run(case: Case) -> bool:
    used = [gpu.use for node in case.sample.nodes for gpu in node.gpus if gpu.use is not None]
    return bool(used) and sum(use >= BUSY_GPU for use in used) * 2 > len(used)


def _nothing(case: Case) -> Verdict:
    waiting = _waiting(case)
    if waiting * 10 >= len(case.ranks) * 9 and case.has_stacks:
        places = {place.label for _, place in case.seen}
        one = f"in {next(iter(places))}" if len(places) == 1 else f"at {len(places)} places"
        why = f"All ranks wait {one}, and nothing tells which of them is late"
        if _mostly(case, "rendezvous"):
            return Verdict("rendezvous_unreachable", LOW, f"{why}: they do not find each other at the start",
                           settle=_settle(case, LOW))  # fmt: skip
        return Verdict("collective_timeout_unknown", LOW, why, settle=_settle(case, LOW, collectives=True))
    why = "Nothing seen tells a job that hangs from one that works"
    return Verdict(UNDETERMINED, LOW, why, settle=("hpslurm hang JOBID --again 30", *_settle(case, LOW)))


LOOKS: tuple[Callable[[Case], Verdict | None], ...] = (
    _nobody, _stopped, _gone, _lost_gpu, _stuck, _moves, _works, _odd, _silent, _desync, _one_gpu, _network,
)  # fmt: skip


# --------------------------------------------------------------------------- with what others say


def _with_told(verdict: Verdict, told: Diagnosis, case: Case) -> Verdict:
    """NCCL's own report, or a flight recorder's, where it names somebody; what we saw ourselves explains it."""
    if told.cause in (HEALTHY, UNDETERMINED) or told.culprit is None or verdict.cause == HEALTHY:
        return verdict
    named = told.culprit.rank
    said = clean(told.decisive.text, 160) if told.decisive else told.why
    if named is not None and any(suspect.rank == named for suspect in verdict.suspects):
        return replace(verdict, confidence=HIGH, why=f"{verdict.why}. NCCL says the same: {said}")
    if verdict.suspects and verdict.confidence == HIGH:
        return verdict
    rank = next((rank for rank in case.ranks if rank.rank == named), None) if named is not None else None
    node = rank.node if rank else told.culprit.host or ""
    suspect = Suspect(node, f"NCCL says: {said}", named, rank.local if rank else None, rank.pid if rank else None)
    changed = replace(
        verdict, cause=told.cause, confidence=told.confidence, why=f"{told.why}: {said}", suspects=(suspect,)
    )
    return replace(changed, groups=tuple(groups(case, changed.suspects)))


# --------------------------------------------------------------------------- two samples


def compared(first: Sample, second: Sample) -> Sample:
    """The later sample, in which what a rank did in the earlier one is its stack before: --again."""
    before = {(rank.node, rank.pid): rank for rank in first.ranks}

    def joined(rank: Rank) -> Rank:
        old = before.get((rank.node, rank.pid))
        return replace(rank, later=rank.stack, stack=old.stack) if old and old.stack and rank.stack else rank

    nodes = tuple(replace(node, ranks=tuple(map(joined, node.ranks))) for node in second.nodes)
    return replace(second, nodes=nodes)


# --------------------------------------------------------------------------- words


def groups(case: Case, suspects: Iterable[Suspect]) -> Iterator[Group]:
    """Classes of ranks, the largest first, suspects of their own."""
    accused = {suspect.pid for suspect in suspects if suspect.pid is not None}
    classes: dict[tuple[str, str, bool], list[Rank]] = defaultdict(list)
    words: dict[tuple[str, str, bool], str] = {}
    for rank, place in case.seen:
        state = rank.state if rank.state not in ("S", "R", "I") else ""
        key = (place.label, state, rank.pid in accused)
        classes[key].append(rank)
        words[key] = place.kind.words if place.kind is not NOWHERE else ""
    for key, ranks in sorted(classes.items(), key=lambda item: (item[0][2], -len(item[1]))):
        yield Group(key[0], words[key], tuple(ranks), key[2])


def _suspect(rank: Rank, what: str) -> Suspect:
    return Suspect(rank.node, what, rank.rank, rank.local, rank.pid)


def _doing(rank: Rank, place: Place) -> str:
    parts = [place.kind.words or "is at", f"({place.label})" if place.kind.words else place.label]
    if rank.state in ("D", STOPPED):
        parts.append(f"state {rank.state}{f' at {rank.where}' if rank.where else ''}")
    return " ".join(parts)


def _who(ranks: Sequence[Rank]) -> str:
    if len(ranks) == 1:
        return f"Rank {ranks[0].rank if ranks[0].rank is not None else '?'} on {ranks[0].node}"
    numbers = [rank.rank for rank in ranks if rank.rank is not None]
    nodes = nodeset.fold(dict.fromkeys(rank.node for rank in ranks))
    return f"{len(ranks)} ranks ({folded(numbers)}) on {nodes}"


def _each(ranks: Sequence[Rank]) -> str:
    """The same, before a verb for one of them."""
    return _who(ranks) if len(ranks) == 1 else f"Each of {_who(ranks)}"


def folded(numbers: Iterable[int]) -> str:
    """``0-6,8``."""
    parts: list[list[int]] = []
    for number in sorted(set(numbers)):
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)


def _numbers(missing: Sequence[int]) -> str:
    return f"rank {missing[0]}" if len(missing) == 1 else f"ranks {folded(missing)}"


def _is(ranks: Sequence[Rank]) -> str:
    return "is" if len(ranks) == 1 else "are"


def _it(ranks: Sequence[Rank]) -> str:
    return "it" if len(ranks) == 1 else "they"


def _ranks(number: int) -> str:
    return "rank" if number == 1 else "ranks"


def _waiting(case: Case) -> int:
    return sum(place.kind.waits for place in case.places.values())


def _mostly(case: Case, kind: str) -> bool:
    return sum(place.kind.kind == kind for place in case.places.values()) * 2 > len(case.ranks)


def _output_of(missing: Sequence[int]) -> str:
    return f"the output of {_numbers(missing)}, and the kernel log of its node"


def _settle(case: Case, sure: str, collectives: bool = False) -> tuple[str, ...]:
    """What would make it surer; nothing where it is sure."""
    if sure == HIGH:
        return ()
    found = [] if case.has_stacks else ["Python stacks (py-spy on the nodes; see below)"]
    if collectives and not any(node.ras for node in case.sample.nodes):
        found.append(
            "NCCL's RAS report (NCCL 2.24 or later), or PyTorch's flight recorder (TORCH_NCCL_TRACE_BUFFER_SIZE)"
        )
    return (*found, "a second look: hpslurm hang JOBID --again 30")
