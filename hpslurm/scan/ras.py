"""NCCL RAS status text: which ranks are missing, dead or behind.

The report lists the outliers, not the culprits: ranks that are ahead are listed when they are the few.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from hpslurm.core import linear
from hpslurm.core.finding import NOISE, Event
from hpslurm.core.text import clean, whole
from hpslurm.core.values import dataclass, field
from hpslurm.scan.model import evidence

_RANK = linear.late(
    r"^\s+Rank (\d+)(?: (?:has|reported) [^-]*?(?:operation (\d+)|status (\w+)|any operations)?)? -- (?:GPU ([\d,-]+) managed by process (\d+) on node (\S+)|\[process)"  # noqa: E501
)
_PROCESS = linear.late(r"^\s+Process (\d+) on node (\S+) managing GPUs? ([\d,-]+)")
_HEAD = linear.late(r"^(?:#\d+-\d+ \([0-9a-f]+\) )?(INCOMPLETE|DEAD|ERROR|MISMATCH|TIMEOUT)\b")


_MANY = linear.late(r"^\s+(\d+) ranks? have (?:launched up to operation (\d+)|not launched any)")
_END = (0, "#0-0 (0) ERROR")  # as if another section followed


@dataclass(frozen=True)
class Group:
    """So many ranks have launched so many operations."""

    ranks: int
    operation: int
    number: int  # of its line
    text: str


@dataclass(frozen=True)
class Rank:
    rank: int | None
    pid: int | None
    host: str
    gpu: str
    number: int  # of its line
    text: str


@dataclass
class Section:
    name: str = ""
    head: str = ""
    groups: list[Group] = field(default_factory=list)
    listed: list[Rank] = field(default_factory=list)


def events(path: str, lines: list[tuple[int, str]]) -> Iterator[Event]:
    section = Section()
    for number, line in [*lines, _END]:
        if head := _HEAD.match(line.strip() if line.startswith(("#", "D", "I", "M", "E", "T")) else line):
            yield from _behind(path, section)
            section = Section(head[1], line)
            if section.name == "TIMEOUT" and number:
                yield evidence("ras-timeout", path, number, line.strip())
        elif process := _PROCESS.match(line):
            yield from _gone(path, number, line, section, process)
        elif match := _RANK.match(line):
            rank = Rank(whole(match[1]), whole(match[5] or ""), match[6] or "", match[4] or "", number, line.strip())
            section.listed.append(rank)
            yield from _failed(path, section, rank)
        elif many := _MANY.match(line):
            section.groups.append(Group(whole(many[1]) or 0, whole(many[2] or "") or 0, number, line.strip()))


def _gone(path: str, number: int, line: str, section: Section, process: re.Match[str]) -> Iterator[Event]:
    if section.name in ("DEAD", "INCOMPLETE") or "missing" in section.head:
        row = "ras-dead" if section.name == "DEAD" else "ras-missing"
        yield evidence(row, path, number, line.strip(), host=process[2], gpu=process[3], pid=whole(process[1]))


def _failed(path: str, section: Section, rank: Rank) -> Iterator[Event]:
    if section.name == "INCOMPLETE":
        yield evidence("ras-missing-rank", path, rank.number, rank.text, rank=rank.rank, host=rank.host, pid=rank.pid)
    elif section.name == "ERROR":
        yield evidence("ras-error-rank", path, rank.number, rank.text, rank=rank.rank, host=rank.host)


def _behind(path: str, section: Section) -> Iterator[Event]:
    if section.name != "MISMATCH" or not section.groups:
        return
    least = min(section.groups, key=lambda group: group.operation)
    most = max(section.groups, key=lambda group: group.ranks)
    fewest = min(section.groups, key=lambda group: group.ranks)
    if fewest.operation <= most.operation and section.listed and fewest.operation == least.operation:
        rank = section.listed[0]  # the few are behind, and they are listed
        yield evidence("ras-behind", path, rank.number, rank.text, rank=rank.rank, pid=rank.pid, host=rank.host,
                       gpu=rank.gpu)  # fmt: skip
    else:
        yield evidence("ras-ahead", path, least.number, least.text)


# --------------------------------------------------------------------------- the JSON form (NCCL 2.28)

LARGEST = 64 << 20  # bytes


def looks_like_json(head: bytes) -> bool:
    return head.lstrip()[:1] == b"{" and b'"communicators' in head


def json_events(data: bytes, path: str) -> list[Event]:
    """Dead and missing ranks, and ranks behind in a collective. Empty when it is something else."""
    try:
        report = json.loads(data)
        communicators = report["communicators"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return []
    events = [Event("kind:ras", NOISE, path, 1, "ras")]
    for communicator in _dicts(communicators):
        events += [_missing(path, rank) for rank in _dicts(communicator.get("missing_ranks"))]
        events += _counts(path, _dicts(communicator.get("ranks")))
    return events


def _missing(path: str, rank: dict[str, object]) -> Event:
    status = rank.get("status")
    dead = isinstance(status, dict) and bool(status.get("considered_dead"))
    text = f"rank {rank.get('rank')} on {rank.get('host')} pid {rank.get('pid')}: {'dead' if dead else 'missing'}"
    return evidence("ras-dead" if dead else "ras-missing-rank", path, 1, clean(text), **_who(rank))


def _who(rank: dict[str, object]) -> dict[str, Any]:
    host = clean(str(rank.get("host") or ""), 80)
    return {"rank": _int(rank.get("rank")), "host": host, "pid": _int(rank.get("pid"))}


def _counts(path: str, ranks: list[dict[str, object]]) -> list[Event]:
    """Ranks that have launched fewer operations of one kind than most."""
    for operation, groups in _launched(ranks).items():
        least = min(groups)
        behind = groups[least]
        if len(groups) > 1 and len(behind) * 2 < len(ranks):
            text = f"{len(behind)} ranks have launched {least} {operation}, others up to {max(groups)}"
            text += f": rank {behind[0].get('rank')}"
            return [evidence("ras-behind", path, 1, clean(text), **_who(behind[0]))]
    return []


def _launched(ranks: list[dict[str, object]]) -> dict[str, dict[int, list[dict[str, object]]]]:
    """For each operation: how often it was launched, and by whom."""
    launched: dict[str, dict[int, list[dict[str, object]]]] = {}
    for rank in ranks:
        counts = rank.get("collective_counts")
        for operation, count in counts.items() if isinstance(counts, dict) else ():
            if isinstance(count, int):
                launched.setdefault(str(operation), {}).setdefault(count, []).append(rank)
    return launched


def _dicts(value: object) -> list[dict[str, object]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _int(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
