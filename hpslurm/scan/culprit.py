"""Who started it: the rank, host or GPU that the decisive line names, completed by what other lines tell of it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from hpslurm.core.finding import ROOT, SYMPTOM, Culprit, Event
from hpslurm.core.text import whole
from hpslurm.core.values import replace
from hpslurm.scan import model
from hpslurm.scan.case import LATE, Case
from hpslurm.scan.hypotheses import shape

UNDETERMINED = "undetermined"
_NO_NAME = re.compile(r"[\d.]+|[0-9a-f:.\[\]]+|i-[0-9a-f]+")  # an address or an instance: nothing to shorten
MOST_RANKS = 0.75  # share of the ranks from which the same error is everybody's


def culprit_of(case: Case, chosen: Event, events: Sequence[Event]) -> Culprit | None:
    """None where the lines accuse nobody, or everybody alike."""
    found = _of_line(case, chosen, events)
    found = _completed(case, chosen, found, [*events, *case.of("place"), *case.of("identity")])
    if (
        found.rank is not None
        and chosen.role == ROOT
        and not chosen.fact("named_rank")
        and _everybody(case, chosen, events)
    ):
        hosts = {event.host for event in events if event.pattern == chosen.pattern and event.host}
        found = replace(found, rank=None, local_rank=None, pid=None, host=found.host if len(hosts) == 1 else None)
    nobody = found.rank is None and found.local_rank is None and found.pid is None
    return None if nobody and not (found.host or found.gpu or found.peer) else found


def _of_line(case: Case, chosen: Event, events: Sequence[Event]) -> Culprit:
    rank, local, host, pid, gpu, peer = chosen.rank, chosen.local_rank, chosen.host, chosen.pid, chosen.gpu, chosen.peer
    named = _voted(chosen, events) or chosen.fact("named_rank") or chosen.fact("busy_rank")
    if named:
        rank, local, pid = whole(named), None, None
        host = host if chosen.pattern.startswith("cancel") else ""
    elif chosen.role == SYMPTOM and chosen.pattern != "launcher-child":
        rank = local = pid = None
        host, gpu = "", ""
        if chosen.cause == "peer_exit":
            local, host, rank = _closed(events, peer)
            peer = peer or _most_lost(events)
    row = model.causes().get(chosen.cause)
    if row and row.hardware:
        pid = None
    if row and row.of_node and not host and chosen.role == ROOT:
        host = _most_named(events, chosen.cause) or chosen.fact("batch_host")
    return Culprit(rank, local, short(host) or None, gpu or None, pid, peer or None)


def _voted(chosen: Event, events: Iterable[Event]) -> str:
    """Ranks that differ accuse each other, two a line: the one in most lines is the odd one."""
    if chosen.pattern != "desync-detected":
        return ""
    lines = [event for event in events if event.pattern == chosen.pattern]
    votes = Counter(str(rank) for event in lines for rank in {event.fact("named_rank"), str(event.rank)} - {"", "None"})
    (first, most), *rest = [*votes.most_common(2), ("", 0), ("", 0)][:2]
    return first if len(lines) > 2 and most > rest[0][1] else ""


def _closed(events: Iterable[Event], peer: str) -> tuple[int | None, str, int | None]:
    """(local rank, host, rank) of the process that most others lost."""
    events = list(events)
    closed = Counter(event.fact("closed") for event in events if event.fact("closed"))
    if closed:
        most = closed.most_common(1)[0][0]
        return whole(most), next((event.host for event in events if event.fact("closed") == most), ""), None
    if any(event.fact("store") for event in events) and not peer:
        return None, "", 0  # rank 0 holds the store
    return None, "", None


def _most_lost(events: Iterable[Event]) -> str:
    """The peer that the other lines of a lost connection name."""
    peers = Counter(event.peer for event in events if event.peer and event.cause == "peer_exit")
    return peers.most_common(1)[0][0] if peers else ""


def _most_named(events: Iterable[Event], cause: str) -> str:
    events = [event for event in events if event.host]
    hosts = Counter(event.host for event in events if event.cause == cause)
    hosts = hosts or Counter(event.host for event in events if event.cause != UNDETERMINED)
    return hosts.most_common(1)[0][0] if hosts else ""


def _completed(case: Case, chosen: Event, found: Culprit, events: Sequence[Event]) -> Culprit:
    """The host of a rank, or the rank that the same cause's other lines name, as far as they agree."""
    if chosen.role == ROOT and found.rank is None and found.local_rank is None:
        if not found.host:
            found = _from_others(chosen, found, events)
        elif len({event.host for event in events if event.pattern == chosen.pattern and event.host}) > 1:
            named = _from_others(chosen, replace(found, host=None, pid=None), events)  # the launcher says who was first
            found = named if named.rank is not None and named.host else found
    if found.rank is not None and not found.host and (host := case.hosts.get(found.rank)):
        return replace(found, host=short(host))
    return found


ENDS = ("launcher-child", "mpi-exit", "mpi-signal", "mpi-abort", "srun-killed", "elastic-exit-9")
OF_PROCESS = (
    "app_error",
    "nccl_invalid_usage",
    "gpu_ecc",
    "gpu_oom",
    "gpu_app_fault",
    "host_oom",
    "shm_full",
    "storage",
    "shm_removed",
)


def _from_others(chosen: Event, found: Culprit, events: Sequence[Event]) -> Culprit:
    ranks = {event.rank for event in events if event.cause == chosen.cause and event.rank is not None}
    if len(ranks) == 1 and all(event.pattern not in ENDS for event in events if event.rank in ranks):
        return replace(found, rank=ranks.pop())
    cause = model.causes().get(chosen.cause)
    if chosen.cause not in OF_PROCESS and (cause is None or cause.blame != "job"):
        return replace(found, host=_only_host(chosen, events)) if not found.gpu else found
    ends = [event for event in events if event.pattern in ENDS and (event.host or event.rank is not None)]
    if not ends:
        return found
    first = min(ends, key=lambda event: (event.file, event.line))
    alone = len({(event.host, event.rank) for event in ends}) == 1
    torchrun = any(event.fact("block") or event.local_rank is not None for event in events)
    if alone or first.line < min((event.line for event in ends if event.host != first.host), default=first.line + 1):
        rank = found.rank if torchrun and not alone else first.rank
        return replace(found, host=short(first.host) or None, rank=rank)
    return found


def _only_host(chosen: Event, events: Iterable[Event]) -> str | None:
    """Of a file that speaks of one host only."""
    row = model.causes().get(chosen.cause)
    if row is None or not (row.of_node or row.hardware or chosen.cause == "data_corruption"):
        return None
    hosts = {short(event.host) for event in events if event.host}
    return hosts.pop() if len(hosts) == 1 else None


def _everybody(case: Case, chosen: Event, events: Sequence[Event]) -> bool:
    """The same error on all ranks at once has no culprit; what came after the step was taken down does not count."""
    taken_down = min(
        (event.line for event in [*case.roots, *case.symptoms] if _takes_down(event, chosen)), default=None
    )
    alike = {
        event.rank
        for event in events
        if event.pattern == chosen.pattern
        and shape(event) == shape(chosen)
        and (taken_down is None or event.file != chosen.file or event.line < taken_down)
    }
    times = [event.time for event in events if event.pattern == chosen.pattern and event.rank in alike and event.time]
    ranks = max(case.world, len({event.rank for event in case.all if event.rank is not None}))
    together = not times or max(times) - min(times) <= LATE
    return len(alike) >= 2 and ranks >= 2 and len(alike) >= MOST_RANKS * ranks and together


def _takes_down(event: Event, chosen: Event) -> bool:
    return event.cause == "job_cancelled" and event.file == chosen.file and event.line > chosen.line


def short(host: str) -> str:
    return host if not host or _NO_NAME.fullmatch(host) else host.split(".")[0]
