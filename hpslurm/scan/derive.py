"""Roots that no single line shows: ranks in different collectives, work that outlasts a time-out, the odd host.

What each is worth stands in tables/reasoning.toml.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

from hpslurm.core.finding import Event
from hpslurm.core.text import whole
from hpslurm.core.values import replace
from hpslurm.scan import model
from hpslurm.scan.case import Case

NEAR = 64  # sequence numbers: farther apart they belong to different groups of ranks
WAITED = (0.85, 1.25)  # of the time-out: when the work began that it waited for
SHORTEST = 30  # seconds of a time-out that long work can be told from
MOST_OPEN = 2  # collectives that one rank may wait in at once and still be compared with others
HALF_DONE = 98  # percent from which a progress bar counts as ended
LONG_WORK = 290  # seconds of preparation that outlast a time-out nobody names: the shortest that is usual


def roots(case: Case) -> Iterator[Event]:
    watched = [event for event in case.symptoms if event.pattern == "watchdog"]
    yield from _desync(watched)
    yield from _finished_barrier(watched)
    yield from _busy(case, watched)
    yield from _busy_last(case, watched)
    yield from _unfinished(case, watched)
    yield from _flight(case)
    yield from _differences(case)
    yield from _one_sided(case)
    yield from _odd_end(case)
    yield from _claimed_twice(case)


def made(event: Event, pattern: str, **changes: Any) -> Event:
    """The event as evidence for a derived pattern's cause, worth what the table says."""
    row = model.derived()[pattern]
    return replace(event, pattern=row.pattern or pattern, role=row.role, cause=row.cause, weight=row.weight, **changes)


def _seq(event: Event) -> int:
    return whole(event.fact("seq")) or 0


def _desync(watched: list[Event]) -> Iterator[Event]:
    """Ranks that wait in different collectives. Sequence numbers of different groups must not be compared."""
    groups: dict[str, dict[int, list[Event]]] = defaultdict(lambda: defaultdict(list))
    for event in watched:
        if event.rank is not None and whole(event.fact("seq")) is not None:
            groups[event.fact("pg")][event.rank].append(event)
    for ranks in groups.values():
        if len(ranks) < 2 or any(len(events) > MOST_OPEN for events in ranks.values()):
            continue
        first = [min(events, key=_seq) for events in ranks.values()]
        shapes = Counter(_shape(event) for event in first)
        numbers, operations = {_seq(event) for event in first}, {event.fact("op") for event in first}
        near = max(numbers) - min(numbers) <= NEAR
        if len(numbers) == 1 and len(operations) == 1:
            differ = len({(event.fact("inn"), event.fact("out")) for event in first}) > 1
        else:
            differ = near and len(operations) > 1
        behind = near and len(numbers) > 1 and len(operations) == 1
        if len(shapes) > 1 and (differ or behind):
            rare = min(shapes, key=lambda shape: (shapes[shape], whole(shape[0]) or 0))
            event = next(event for event in first if _shape(event) == rare)
            yield made(event, "desync-watchdog" if differ else "behind-watchdog")
            return


def _shape(event: Event) -> tuple[str, ...]:
    return tuple(event.fact(name) for name in ("seq", "op", "inn", "out"))


def _finished_barrier(watched: list[Event]) -> Iterator[Event]:
    """After the end of training one rank waits in a barrier that nobody else enters."""
    ranks = {event.rank for event in watched}
    for event in watched:
        if event.fact("finished") and len(ranks) == 1 and event.fact("inn") in ("1", ""):
            yield made(event, "lone-barrier")
            return


def _busy(case: Case, watched: list[Event]) -> Iterator[Event]:
    """Long work that began about one time-out before the watchdog fired and was not seen to end."""
    for event in watched:
        limit = (whole(event.fact("ran") or event.fact("limit")) or 0) / 1000
        for busy in case.busy:
            if busy.time is None or event.time is None or limit < SHORTEST:
                continue
            if WAITED[0] * limit <= event.time - busy.time <= WAITED[1] * limit + 5:
                rank = busy.rank if busy.rank is not None else 0  # rank 0 saves and logs by convention
                yield made(busy, "busy-timeout", rank=rank)
                return


def _busy_last(case: Case, watched: list[Event]) -> Iterator[Event]:
    """Long work that is the last sign of life before others tire of waiting, where no line carries a time."""
    waited = [event for event in case.symptoms if event.cause == "collective_timeout_unknown"]
    for busy in case.busy:
        first = next((event for event in waited if event.file == busy.file and event.line > busy.line), None)
        after = [life for life in case.life if life.file == busy.file and life.line > busy.line]
        if first is not None and busy.time is None and not after and first.rank != busy.rank:
            yield made(busy, "busy-last", rank=busy.rank if busy.rank is not None else 0)
            return


def _unfinished(case: Case, watched: list[Event]) -> Iterator[Event]:
    """A bar of preparing work that still stood half-way when the others' patience ended."""
    waited = [event for event in case.symptoms if event.cause in ("collective_timeout_unknown", "peer_exit")]
    waited += [event for event in case.roots if event.cause == "rendezvous_unreachable"]
    limits = [(whole(event.fact("ran") or event.fact("limit")) or 0) / 1000 for event in watched]
    limit = max(limits, default=0.0)
    for bar in case.of("progress"):
        percent, elapsed = whole(bar.fact("percent")) or 0, whole(bar.fact("elapsed")) or 0
        if percent >= HALF_DONE or elapsed < (WAITED[0] * limit if limit else LONG_WORK):
            continue
        rank = bar.rank if bar.rank is not None else 0
        if waited:
            yield made(bar, "bar-timeout", rank=rank)
        elif any(event.pattern in ("traceback", "exception") for event in case.roots + case.symptoms):
            yield made(bar, "bar-cut", rank=rank)
        return


def _differences(case: Case) -> Iterator[Event]:
    """Hosts of one job that are not alike; evidence only where something went wrong."""
    for pattern, row in model.derived().items():
        if not row.trait or not (case.roots or case.symptoms or row.always):
            continue
        hosts: dict[str, dict[str, Event]] = defaultdict(dict)
        for event in case.of("trait"):
            if event.fact(row.trait):
                hosts[event.fact(row.trait)].setdefault(event.host, event)
        if len(hosts) != 2:  # more values than two: each host has several, as with several communicators
            continue
        (_, few), (_, many) = sorted(hosts.items(), key=lambda item: (len(item[1]), item[0]))
        if not set(few) & set(many):
            host, event = min(few.items())
            yield made(event, pattern, host=host)


def _one_sided(case: Case) -> Iterator[Event]:
    """GPUDirect on one side of a connection only: the other side's host lacks it."""
    sides: dict[tuple[str, str], dict[str, Event]] = defaultdict(dict)
    for event in case.of("channel"):
        sides[(event.fact("from"), event.fact("to"))].setdefault(event.fact("gdr"), event)
    for pair, seen in sides.items():
        if len(seen) == 2:
            event = seen["no"]
            which = pair[1] if event.fact("side") == "receive" else pair[0]
            yield made(event, "gdr-one-side", rank=whole(which))
            return


def _flight(case: Case) -> Iterator[Event]:
    """What the flight recorders of all ranks say together."""
    dumps = case.of("fr")
    if not dumps:
        return
    from hpslurm.scan import flight

    verdict = flight.judge(dumps)
    if verdict is None:
        return
    yield made(verdict.event, verdict.row, rank=verdict.rank, text=verdict.text)


_CRASH = re.compile(r"Abort|Segmentation|Bus error|Illegal|Floating|exit code (?:13[2-69])\b")


def _odd_end(case: Case) -> Iterator[Event]:
    """One task crashed, or some of one node, and the others of its step merely ended: theirs follows from its end."""
    tasks = case.of("task")
    crashed = [task for task in tasks if _CRASH.search(task.fact("end"))]
    if any(event.cause == "collective_timeout_unknown" for event in case.symptoms):
        return  # a watchdog ends its process by abort
    if len({task.host for task in crashed}) == 1 and len(crashed) < len(tasks):
        yield made(crashed[0], "odd-end", rank=crashed[0].rank if len(crashed) == 1 else None)


def _claimed_twice(case: Case) -> Iterator[Event]:
    """Two tasks say that they are the same rank: the launcher numbers them per node, or was started once per task."""
    claims: dict[int | None, set[str]] = defaultdict(set)
    for claim in case.of("claim"):
        claims[claim.rank].add(claim.fact("task"))
        if len(claims[claim.rank]) > 1:
            yield made(claim, "rank-twice", rank=None)
            return
