"""NCCL RAS status text: which ranks are missing, dead or behind.

The report lists the outliers, not the culprits: ranks that are ahead are listed when they are the few.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from hpslurm.core.finding import NOISE, ROOT, SYMPTOM, Event
from hpslurm.core.text import clean, whole

_RANK = re.compile(
    r"^\s+Rank (\d+)(?: (?:has|reported) [^-]*?(?:operation (\d+)|status (\w+)|any operations)?)? -- (?:GPU ([\d,-]+) managed by process (\d+) on node (\S+)|\[process)"  # noqa: E501
)
_PROCESS = re.compile(r"^\s+Process (\d+) on node (\S+) managing GPUs? ([\d,-]+)")
_HEAD = re.compile(r"^(?:#\d+-\d+ \([0-9a-f]+\) )?(INCOMPLETE|DEAD|ERROR|MISMATCH|TIMEOUT)\b")


def events(path: str, lines: list[tuple[int, str]]) -> Iterator[Event]:
    section = ""
    start = (0, "")
    counts: list[tuple[int, int, int, str]] = []  # how many ranks, operation, line, text
    listed: list[tuple[int | None, int | None, str, int, str, str]] = []
    for number, line in [*lines, (0, "#0-0 (0) ERROR")]:
        if head := _HEAD.match(line.strip() if line.startswith(("#", "D", "I", "M", "E", "T")) else line):
            yield from _behind(path, section, counts, listed)
            section, start, counts, listed = head[1], (number, line), [], []
            if section == "TIMEOUT" and number:
                yield Event(
                    "ras-timeout", SYMPTOM, path, number, line.strip(), cause="collective_timeout_unknown", weight=20
                )
            continue
        if process := _PROCESS.match(line):
            if section in ("DEAD", "INCOMPLETE") or "missing" in start[1]:
                dead = section == "DEAD"
                yield Event("ras-dead" if dead else "ras-missing", ROOT, path, number, line.strip(), cause="peer_exit" if dead else "straggler",  # noqa: E501
                            weight=58 if dead else 46, host=process[2], gpu=process[3], pid=whole(process[1]))  # fmt: skip  # noqa: E501
        elif rank := _RANK.match(line):
            listed.append(
                (
                    whole(rank[1]),
                    whole(rank[5] or ""),
                    rank[6] or "",
                    number,
                    line.strip(),
                    rank[4] or "",
                )
            )
            if section == "INCOMPLETE":
                yield Event("ras-missing-rank", ROOT, path, number, line.strip(), cause="peer_exit", weight=54, rank=whole(rank[1]),  # noqa: E501
                            host=rank[6] or "", pid=whole(rank[5] or ""))  # fmt: skip
            elif section == "ERROR":
                yield Event(
                    "ras-error-rank",
                    ROOT,
                    path,
                    number,
                    line.strip(),
                    cause="app_error",
                    weight=44,
                    rank=whole(rank[1]),
                    host=rank[6] or "",
                )
        elif many := re.match(r"^\s+(\d+) ranks? have (?:launched up to operation (\d+)|not launched any)", line):
            counts.append((whole(many[1]) or 0, whole(many[2] or "") or 0, number, line.strip()))


def _behind(
    path: str,
    section: str,
    counts: list[tuple[int, int, int, str]],
    listed: list[tuple[int | None, int | None, str, int, str, str]],
) -> Iterator[Event]:
    if section != "MISMATCH" or not counts:
        return
    least = min(counts, key=lambda item: item[1])
    most = max(counts, key=lambda item: item[0])
    fewest = min(counts, key=lambda item: item[0])
    if fewest[1] <= most[1] and listed and fewest[1] == least[1]:  # the few are behind, and they are listed
        rank, pid, host, number, text, gpu = listed[0]
        yield Event(
            "ras-behind", ROOT, path, number, text, cause="straggler", weight=60, rank=rank, pid=pid, host=host, gpu=gpu
        )
    else:
        yield Event("ras-ahead", ROOT, path, least[2], least[3], cause="straggler", weight=40)


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
    found = [Event("kind:ras", NOISE, path, 1, "ras")]
    for one in communicators if isinstance(communicators, list) else []:
        if not isinstance(one, dict):
            continue
        for gone in _dicts(one.get("missing_ranks")):
            status = gone.get("status")
            dead = isinstance(status, dict) and bool(status.get("considered_dead"))
            text = (
                f"rank {gone.get('rank')} on {gone.get('host')} pid {gone.get('pid')}: {'dead' if dead else 'missing'}"
            )
            found.append(Event("ras-dead" if dead else "ras-missing-rank", ROOT, path, 1, clean(text), cause="peer_exit", weight=58 if dead else 54,  # noqa: E501
                               rank=_int(gone.get("rank")), host=clean(str(gone.get("host") or ""), 80), pid=_int(gone.get("pid"))))  # fmt: skip  # noqa: E501
        found += _counts(path, _dicts(one.get("ranks")))
    return found


def _counts(path: str, ranks: list[dict[str, object]]) -> list[Event]:
    """Ranks that have launched fewer operations of one kind than most."""
    by_op: dict[str, dict[int, list[dict[str, object]]]] = {}
    for rank in ranks:
        counts = rank.get("collective_counts")
        for op, count in counts.items() if isinstance(counts, dict) else ():
            if isinstance(count, int):
                by_op.setdefault(str(op), {}).setdefault(count, []).append(rank)
    for op, groups in by_op.items():
        if len(groups) < 2:
            continue
        least = min(groups)
        behind = groups[least]
        if len(behind) * 2 < len(ranks):
            first = behind[0]
            text = (
                f"{len(behind)} ranks have launched {least} {op}, others up to {max(groups)}: rank {first.get('rank')}"
            )
            return [Event("ras-behind", ROOT, path, 1, clean(text), cause="straggler", weight=60, rank=_int(first.get("rank")),  # noqa: E501
                          host=clean(str(first.get("host") or ""), 80), pid=_int(first.get("pid")))]  # fmt: skip
    return []


def _dicts(value: object) -> list[dict[str, object]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _int(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
