"""The few and the many: who does something of his own while the others wait, and who waits elsewhere.

Ranks that wait at several places are no evidence by themselves: in pipelines they do so by design.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from hpslurm.job.hang.case import ALIKE, ALONE, FEW, HIGH, LOW, MEDIUM, MOST, SPINS, WAKES, Case, Verdict, count_waiting
from hpslurm.job.hang.facts import Rank
from hpslurm.job.hang.places import NOWHERE, UNKNOWN, Place
from hpslurm.job.hang.words import each, rank_or_ranks, settle, suspect_of, what_it_does

CONTROL = re.compile(
    r"(monitored_)?barrier|(all_)?gather_object|broadcast_object(_list)?|wait_for_everyone|sync_global_.*|broadcast_one_to_all|process_allgather"
)


def works(case: Case) -> Verdict | None:
    """Ranks that do something of their own, and at least as many that wait."""
    working = [] if _wake(case) else [(rank, place) for rank, place in case.seen if _is_work(place)]
    working = _with_neighbours(case, working)
    waiting = len(_known(case)) - len(working)
    if not working or len(working) > waiting or not _waits_somewhere(case):
        return None
    kinds = Counter(place.kind.kind for _, place in working)
    first = kinds.most_common(1)[0][0]
    working.sort(key=lambda one: one[1].kind.kind != first)  # those of the commonest kind are named first
    suspects = [suspect_of(rank, what_it_does(rank, place)) for rank, place in working]
    ranks = [rank for rank, place in working if place.kind.kind == first]
    label, kind = working[0][1].label, working[0][1].kind
    why = f"{each(ranks)} {kind.words} at {label}, while {_many(case, working)}"
    sure = _sure(case, ranks)
    cause = "storage" if any(rank.state == "D" for rank in ranks) else kind.cause
    return Verdict(cause, sure, why, tuple(suspects), settle=settle(case, sure))


def _wake(case: Case) -> bool:
    """Without stacks: those that sleep wake all the time, as they do in a job that works."""
    asleep = [rank for rank in case.ranks if not rank.stack and rank.state == "S"]
    return sum(rank.wakes >= WAKES for rank in asleep) * 2 > len(case.ranks)


def _with_neighbours(case: Case, working: list[tuple[Rank, Place]]) -> list[tuple[Rank, Place]]:
    """And whoever stands at the same line, or has an idle GPU as they have: of two that loop, one is seen awake."""
    if not working:
        return []
    lines = {(place.call, place.program): place for _, place in working if place.program}
    most_spin = _most_spin(case)
    found = []
    for rank, place in case.seen:
        if _is_work(place) or (most_spin and not rank.stack and case.is_idle(rank)):
            found.append((rank, place if _is_work(place) else working[0][1]))
        elif (place.call, place.program) in lines and not place.kind.waits:
            found.append((rank, lines[place.call, place.program]))
    return found


def _many(case: Case, working: Sequence[tuple[Rank, Place]]) -> str:
    """``7 ranks wait at all_reduce (train.py:67)``."""
    odd = {id(rank) for rank, _ in working}
    others = [place.label for rank, place in case.seen if id(rank) not in odd]
    label, count = Counter(others).most_common(1)[0]
    some = f", {count} of them" if count < len(others) else ""
    return f"{len(others)} {rank_or_ranks(len(others))} wait{'s' * (len(others) == 1)}{some} at {label}"


def _is_work(place: Place) -> bool:
    return place.kind.kind != UNKNOWN and not place.kind.waits


def _known(case: Case) -> list[Place]:
    """Without those of which nothing is known, where others show their stacks."""
    return [place for rank, place in case.seen if place.kind is not NOWHERE or not case.is_blind(rank)]


def _waits_somewhere(case: Case) -> bool:
    """Most of those that do not work stand where ranks wait, or all at one place that nobody knows."""
    others = [place for place in _known(case) if not _is_work(place)]
    waiting = [place for place in others if place.kind.waits]
    same = Counter(place.label for place in others).most_common(1)
    return len(waiting) * 2 > len(others) or (bool(same) and same[0][1] * 2 > len(others))


def _sure(case: Case, ranks: Sequence[Rank]) -> str:
    if not all(rank.stack for rank in ranks):
        return MEDIUM if len(ranks) * 8 <= len(case.ranks) or len(ranks) == 1 else LOW
    known = count_waiting(case) * 2 > len(case.ranks) - len(ranks)
    return HIGH if known and len(ranks) * 4 <= len(case.ranks) else MEDIUM


def odd(case: Case) -> Verdict | None:
    """A few at a place that nobody knows, while the many wait, or stand together at another one."""
    few = [] if _wake(case) else [rank for members in _few(case) for rank in members]
    if not few or not _others_stand(case, few):
        return None
    spinning = [rank for rank in few if rank.state == "R" == rank.before and rank.busy >= SPINS]
    place = case.place_of(few[0])
    doing = f"spins, with {spinning[0].busy:.0%} of a CPU," if spinning else "is somewhere else"
    why = f"{each(few)} {doing} at {place.label}, where no other rank is"
    suspects = tuple(suspect_of(rank, what_it_does(rank, case.place_of(rank))) for rank in few)
    rest_waits = count_waiting(case) >= len(case.ranks) - len(few)
    sure = (HIGH if rest_waits else MEDIUM) if all(rank.stack for rank in few) else LOW
    return Verdict("slow_rank_work", sure, why, suspects, settle=settle(case, sure))


def _unknown(case: Case) -> list[list[Rank]]:
    """Classes of ranks at places that nobody knows."""
    classes: dict[str, list[Rank]] = defaultdict(list)
    for rank, place in case.seen:
        if place.kind.kind == UNKNOWN and (not case.is_blind(rank) or _is_idle_alone(case, rank)):
            classes[place.program or place.label].append(rank)
    return list(classes.values())


def _is_idle_alone(case: Case, rank: Rank) -> bool:
    """Its GPU has nothing to do, while most of the others spin."""
    return case.is_idle(rank) and _most_spin(case)


def _most_spin(case: Case) -> bool:
    return sum(map(case.spins, case.ranks)) * 2 > len(case.ranks)


def _few(case: Case) -> list[list[Rank]]:
    """Of those the small ones. A larger class, or one whose GPUs spin, may be a stage of a pipeline that waits."""
    few = (members for members in _unknown(case) if len(members) <= _most_few(case))
    return [members for members in few if not all(case.spins(rank) and case.looks_waiting(rank) for rank in members)]


def _most_few(case: Case) -> int:
    return max(1, min(MOST, len(case.ranks) // FEW))


def _others_stand(case: Case, few: Iterable[Rank]) -> bool:
    """The others wait, or are together; else everybody is everywhere, and nobody is odd."""
    odd = {id(rank) for rank in few}
    others = [place for rank, place in case.seen if id(rank) not in odd]
    waiting = sum(place.kind.waits for place in others)
    same = Counter(place.program or place.label for place in others).most_common(1)
    return waiting * 2 > len(others) or (bool(same) and same[0][1] * 4 > len(others) * 3)


def desync(case: Case) -> Verdict | None:
    """All wait, but a few in another collective. Where ranks wait at many places by design, nobody is odd."""
    if not case.has_stacks or _few(case) or any(_is_work(place) for _, place in case.seen):
        return None
    classes: dict[tuple[str, str], list[Rank]] = defaultdict(list)
    for rank, place in case.seen:
        if rank.stack and place.kind.kind == "gpu":
            classes[("its GPU", "")].append(
                rank
            )  # the program runs ahead of the GPU, of one rank further than of another
        elif rank.stack:
            classes[(place.call, place.program)].append(rank)
    by_size = _control_first(case, sorted(classes.items(), key=lambda item: len(item[1])))
    if len(by_size) < 2 or not _is_odd(case, [len(members) for _, members in by_size]):
        return None
    (call, program), few = by_size[0]
    (other, there), _ = by_size[-1]
    if case.place_of(few[0]).kind.kind != "collective":
        return None  # a few that wait for their own GPU, or that nobody knows, are as well further ahead or behind
    elsewhere = f"the others in {other} ({there})" if there else "the others for their GPUs"
    why = f"{each(few)} waits in {call} ({program}), {elsewhere}: they will never meet"
    suspects = tuple(suspect_of(rank, f"waits in {call} ({program})") for rank in few)
    sure = MEDIUM if len(by_size) == 2 else LOW
    return Verdict("collective_desync", sure, why, suspects, settle=settle(case, sure, collectives=True))


def _control_first(
    case: Case, by_size: list[tuple[tuple[str, str], list[Rank]]]
) -> list[tuple[tuple[str, str], list[Rank]]]:
    """A few at a barrier, or exchanging objects, are one class: no schedule of a step has some of its ranks there."""
    control = [item for item in by_size if CONTROL.fullmatch(item[0][0])]
    few = [rank for _, members in control for rank in members]
    rest = [item for item in by_size if item not in control]
    if not few or not rest or len(few) > max(1, min(MOST, len(case.ranks) // ALIKE)):
        return by_size
    others = [rank for _, members in rest for rank in members]
    return [(control[0][0], few), (rest[-1][0], others)]


def _is_odd(case: Case, sizes: Sequence[int]) -> bool:
    """Whether the smallest class is one of a few that the others wait for, and no stage of a pipeline."""
    one_group = len(sizes) == 2 and all(place.kind.kind != "p2p" for _, place in case.seen)
    most = len(case.ranks) // 4 if one_group else _most_few(case)
    return sizes[1] >= max(3, ALONE * sizes[0]) and sizes[0] <= most
