"""Words for verdicts: who, how many, what would settle it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hpslurm.core import nodeset
from hpslurm.job.hang.case import HIGH, Case, Suspect
from hpslurm.job.hang.facts import STOPPED, Rank
from hpslurm.job.hang.places import Place


def suspect_of(rank: Rank, what: str) -> Suspect:
    return Suspect(rank.node, what, rank.rank, rank.local, rank.pid)


def what_it_does(rank: Rank, place: Place) -> str:
    parts = [place.kind.words or "is at", f"({place.label})" if place.kind.words else place.label]
    if rank.state in ("D", STOPPED):
        parts.append(f"state {rank.state}{f' at {rank.where}' if rank.where else ''}")
    return " ".join(parts)


def who(ranks: Sequence[Rank]) -> str:
    if len(ranks) == 1:
        return f"Rank {ranks[0].rank if ranks[0].rank is not None else '?'} on {ranks[0].node}"
    numbers = [rank.rank for rank in ranks if rank.rank is not None]
    nodes = nodeset.fold(dict.fromkeys(rank.node for rank in ranks))
    return f"{len(ranks)} ranks ({folded(numbers)}) on {nodes}"


def each(ranks: Sequence[Rank]) -> str:
    """The same, before a verb for one of them."""
    return who(ranks) if len(ranks) == 1 else f"Each of {who(ranks)}"


def folded(numbers: Iterable[int]) -> str:
    """``0-6,8``."""
    parts: list[list[int]] = []
    for number in sorted(set(numbers)):
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)


def numbers(missing: Sequence[int]) -> str:
    return f"rank {missing[0]}" if len(missing) == 1 else f"ranks {folded(missing)}"


def rank_or_ranks(number: int) -> str:
    return "rank" if number == 1 else "ranks"


def output_of(missing: Sequence[int]) -> str:
    return f"the output of {numbers(missing)}, and the kernel log of its node"


def settle(case: Case, sure: str, collectives: bool = False) -> tuple[str, ...]:
    """What would make it surer; nothing where it is sure."""
    if sure == HIGH:
        return ()
    found = [] if case.has_stacks else ["Python stacks (py-spy on the nodes; see below)"]
    if collectives and not any(node.ras for node in case.sample.nodes):
        found.append(
            "NCCL's RAS report (NCCL 2.24 or later), or PyTorch's flight recorder (TORCH_NCCL_TRACE_BUFFER_SIZE; with "
            "TORCH_NCCL_DEBUG_INFO_PIPE_FILE it can be asked while the job hangs)"
        )
    return tuple(found)
