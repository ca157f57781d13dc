"""Which rank of a running job hangs, and why: the facts of one look in, the verdict out.

In a job that hangs nearly all ranks wait for a few, and what those few do is the reason. So ranks that stand at the
same place are one class, and whoever does not wait while the others do is a suspect. Harder facts come first: a
process that is gone, stopped, or stuck in a file system, a GPU that is lost, a node that does not answer. Ranks that
wait at several places are no evidence by themselves: in pipelines they do so by design.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator

from hpslurm.core.finding import Diagnosis
from hpslurm.core.text import clean
from hpslurm.core.values import replace
from hpslurm.job.hang.case import HIGH, LOW, Case, Group, Suspect, Verdict, case_of, count_waiting, mostly
from hpslurm.job.hang.facts import Rank, Sample
from hpslurm.job.hang.few import desync, odd, works
from hpslurm.job.hang.gpus import network, one_gpu
from hpslurm.job.hang.hard import gone, lost_gpu, nobody, silent, stopped, stuck
from hpslurm.job.hang.moves import does_it_move
from hpslurm.job.hang.places import NOWHERE
from hpslurm.job.hang.words import settle
from hpslurm.scan.reason import HEALTHY, UNDETERMINED


def judge(sample: Sample, told: Diagnosis | None = None) -> Verdict:
    """``told`` is what scan reads in NCCL's RAS report and in flight recorder dumps that lie there."""
    case = case_of(sample)
    verdict = next(filter(None, (look(case) for look in LOOKS)), None) or _nothing(case)
    verdict = replace(verdict, groups=tuple(groups(case, verdict.suspects)))
    return _with_told(verdict, told, case) if told is not None else verdict


def _nothing(case: Case) -> Verdict:
    waiting = count_waiting(case)
    if mostly(case, "feed"):
        why = "All ranks wait for work from their engine: it has no requests, or hangs itself"
        return Verdict(UNDETERMINED, LOW, why, settle=("what the engine's own process does (py-spy dump)",))
    if waiting * 10 >= len(case.ranks) * 9 and case.has_stacks:
        places = {place.label for _, place in case.seen}
        one = f"in {next(iter(places))}" if len(places) == 1 else f"at {len(places)} places"
        all_of = "All" if waiting == len(case.ranks) else f"{waiting} of {len(case.ranks)}"
        why = f"{all_of} ranks wait {one}, and nothing tells which of them is late"
        if mostly(case, "rendezvous"):
            return Verdict("rendezvous_unreachable", LOW, f"{why}: they do not find each other at the start",
                           settle=settle(case, LOW))  # fmt: skip
        return Verdict("collective_timeout_unknown", LOW, why, settle=settle(case, LOW, collectives=True))
    why = "Nothing seen tells a job that hangs from one that works"
    return Verdict(UNDETERMINED, LOW, why, settle=settle(case, LOW))


LOOKS: tuple[Callable[[Case], Verdict | None], ...] = (
    nobody, stopped, gone, lost_gpu, stuck, does_it_move, works, odd, silent, desync, one_gpu, network,
)  # fmt: skip


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


def groups(case: Case, suspects: Iterable[Suspect]) -> Iterator[Group]:
    """Classes of ranks, the largest first, suspects of their own."""
    accused = {(suspect.node, suspect.pid) for suspect in suspects}
    classes: dict[tuple[str, str, bool], list[Rank]] = defaultdict(list)
    words: dict[tuple[str, str, bool], str] = {}
    for rank, place in case.seen:
        state = rank.state if rank.state not in ("S", "R", "I") else ""
        key = (place.label, state, (rank.node, rank.pid) in accused)
        classes[key].append(rank)
        words[key] = place.kind.words if place.kind is not NOWHERE else ""
    for key, ranks in sorted(classes.items(), key=lambda item: (item[0][2], -len(item[1]))):
        yield Group(key[0], words[key], tuple(ranks), key[2])
