"""The door to what Slurm keeps of a month: jobs that ended, a page of time after the other, and events of nodes.

A month may hold a million jobs, so pages are asked for one after the other and are gone when they are read. Only
fields are asked for that no user can write. Times are UTC.
"""

from __future__ import annotations

import calendar
import re
import time
from collections.abc import Callable, Iterator
from functools import lru_cache

from hpslurm.core import nodeset
from hpslurm.core.probe import Unknown
from hpslurm.core.text import whole
from hpslurm.core.values import dataclass
from hpslurm.sources import slurm
from hpslurm.sources.host import COMMANDS, EVENT_FIELDS, SACCT_ENDED_FIELDS, SACCT_MARK, Host, Output

PAGE = 86400  # seconds
SMALLEST = 900  # a page that is cut off is asked for in halves, down to this
SECONDS = 120.0  # for one page; slurmdbd reads a busy day of a large cluster in some seconds
DISABLED = ("storage is disabled", "is supported")  # sacct's words, and sacctmgr's: only slurmdbd is supported
NO_ACCOUNTING = "no accounting here (AccountingStorageType); the epilogs' records have to do"
_COLUMNS = len(SACCT_ENDED_FIELDS.split(","))
_EVENT_COLUMNS = len(EVENT_FIELDS.split(","))
# names as Slurm folds them most: ip-10-1-0-[3,7-9]
_FOLDED = re.compile(r"([A-Za-z0-9._-]+)\[([0-9,-]+)\]")
Say = Callable[[str], None]


@dataclass(frozen=True)
class Ended:
    """One run of a job that is over, as the accounting keeps it."""

    id: int
    state: str
    code: int
    signal: int
    start: int
    end: int
    user: str
    partition: str
    nodes: tuple[str, ...]


@dataclass(frozen=True)
class Event:
    """Slurm's note on a node: from when to when it was in a state, by whose hand, and why."""

    cluster: str
    node: str
    start: int
    end: int | None
    state: str
    user: str
    reason: str


# jobs


def ended_jobs(root: str, since: float, now: float, say: Say = lambda text: None) -> Iterator[Ended]:
    """Jobs that ended in this time, about in order. Raises Unknown, before the first or after some."""
    count = 0
    start = int(since) // PAGE * PAGE
    pages = range(start, int(now) + 1, PAGE)
    for number, page in enumerate(pages, start=1):
        say(f"sacct: day {number} of {len(pages)}, {count:,} jobs so far")
        for job in _page(root, page, page + PAGE):
            if since <= job.end <= now:
                count += 1
                yield job


def _page(root: str, start: int, end: int) -> Iterator[Ended]:
    output = _asked(root, "sacct_ended", _stamp(start), _stamp(end))
    if len(output.out) < COMMANDS["sacct_ended"].most or end - start <= SMALLEST:
        # a job that runs over midnight stands on several pages, and counts where it ended
        yield from (job for job in jobs_of_text(output.out) if start <= job.end < end)
        return
    middle = (start + end) // 2
    yield from _page(root, start, middle)
    yield from _page(root, middle, end)


def _stamp(when: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(when))


def _asked(root: str, name: str, *words: str) -> Output:
    host = Host(root, seconds=SECONDS)
    try:
        output = host.run(name, *words)
    finally:
        host.end_all()
    if output.status != 0:
        if any(words in (output.err + output.out).lower() for words in DISABLED):
            raise Unknown(NO_ACCOUNTING)
        raise Unknown(slurm.trouble(name.partition("_")[0], output))
    return output


def jobs_of_text(text: str) -> Iterator[Ended]:
    """Rows; what is none, and what has not begun or not ended, is passed over.

    >>> row = "4711|CANCELLED by 1000|0:15|2026-12-01T10:00:00|2026-12-01T11:00:00|ada|gpu|ip-10-1-0-[3-4]"
    >>> [job] = jobs_of_text(row.replace("|", SACCT_MARK))
    >>> job.state, job.code, job.signal, job.end - job.start, job.nodes
    ('CANCELLED', 0, 15, 3600, ('ip-10-1-0-3', 'ip-10-1-0-4'))
    """
    for line in text.splitlines():
        words = line.split(SACCT_MARK)
        if len(words) != _COLUMNS or whole(words[0]) is None:
            continue
        start, end, nodes = moment(words[3]), moment(words[4]), names(words[7])
        if start is None or end is None or not nodes:
            continue
        code, _, signal = words[2].partition(":")
        yield Ended(
            int(words[0]),
            words[1].partition(" ")[0],
            _number(code),
            _number(signal),
            start,
            end,
            words[5],
            words[6],
            nodes,
        )


def _number(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) < 10 else 0


@lru_cache(maxsize=64)
def _midnight(day: str) -> int | None:
    match = re.fullmatch(r"([0-9]{4})-([0-9]{2})-([0-9]{2})", day)
    try:
        return calendar.timegm((*map(int, match.groups()), 0, 0, 0)) if match else None
    except ValueError:  # no such month
        return None


def moment(text: str) -> int | None:
    """Seconds since the epoch of ``2026-12-01T10:00:00``; None for Unknown, None and whatever else.

    >>> moment("2026-12-01T10:00:00"), moment("Unknown")
    (1796119200, None)
    """
    midnight = _midnight(text[:10])
    if (
        midnight is None
        or len(text) != 19
        or text[10] != "T"
        or not (text[11:13] + text[14:16] + text[17:]).isdecimal()
    ):
        return None
    return midnight + int(text[11:13]) * 3600 + int(text[14:16]) * 60 + int(text[17:])


@lru_cache(maxsize=8192)
def names(folded: str) -> tuple[str, ...]:
    """The nodes of a list. ClusterShell takes a millisecond for what is read here in some microseconds.

    >>> names("ip-10-1-0-[3,7-9]"), names("None assigned")
    (('ip-10-1-0-3', 'ip-10-1-0-7', 'ip-10-1-0-8', 'ip-10-1-0-9'), ())
    """
    if folded in ("None assigned", "(null)", ""):
        return ()
    if "[" not in folded and "," not in folded:
        return (folded,) if re.fullmatch(r"[A-Za-z0-9._-]+", folded) else ()
    match = _FOLDED.fullmatch(folded)
    if match and (quick := _unfolded(match[1], match[2])):
        return quick
    return tuple(nodeset.names_in(folded))


def _unfolded(prefix: str, ranges: str) -> tuple[str, ...]:
    """Nothing for what is not plain: leading zeros, an empty part, too many."""
    made: list[str] = []
    for part in ranges.split(","):
        first, dash, last = part.partition("-")
        last = last if dash else first
        if not first.isdecimal() or not last.isdecimal() or (len(first) > 1 and first[0] == "0") or len(last) > 9:
            return ()
        if int(last) - int(first) + len(made) >= nodeset.MOST:
            return ()
        made += [f"{prefix}{number}" for number in range(int(first), int(last) + 1)]
    return tuple(made)


# events


def events(root: str, since: float, cluster: str = "") -> list[Event]:
    """What happened to nodes since then; of one cluster, if it is named. Raises Unknown."""
    output = _asked(root, "sacctmgr_events", _stamp(int(since)))
    return [event for event in events_of_text(output.out) if not cluster or event.cluster == cluster]


def events_of_text(text: str) -> Iterator[Event]:
    """Rows with a node; those of the whole cluster have none. A reason stands last and may hold anything.

    >>> [event] = events_of_text("demo|ip-10-1-0-3|2026-12-01T10:00:00|Unknown|DOWN|slurm(500)|Not responding | twice")
    >>> event.node, event.start, event.end, event.reason
    ('ip-10-1-0-3', 1796119200, None, 'Not responding | twice')
    """
    for line in text.splitlines():
        words = line.split("|", _EVENT_COLUMNS - 1)
        if len(words) != _EVENT_COLUMNS or not words[1]:
            continue
        cluster, node, start, end, state, user, reason = words
        began = moment(start)
        if began is not None:
            yield Event(cluster, node, began, moment(end), state, user, reason)
