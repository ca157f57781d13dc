"""NCCL RAS status text: which ranks are missing, dead or behind.

The report lists the outliers, not the culprits: ranks that are ahead are listed when they are the few.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from hpslurm.finding import ROOT, SYMPTOM, Event

_RANK = re.compile(
    r"^\s+Rank (\d+)(?: (?:has|reported) [^-]*?(?:operation (\d+)|status (\w+)|any operations)?)? -- (?:GPU ([\d,-]+) managed by process (\d+) on node (\S+)|\[process)"  # noqa: E501
)
_PROCESS = re.compile(r"^\s+Process (\d+) on node (\S+) managing GPUs? ([\d,-]+)")
_HEAD = re.compile(r"^(?:#\d+-\d+ \([0-9a-f]+\) )?(INCOMPLETE|DEAD|ERROR|MISMATCH|TIMEOUT)\b")


def events(path: str, lines: list[tuple[int, str]]) -> Iterator[Event]:
    section = ""
    start = (0, "")
    counts: list[tuple[int, int, int, str]] = []  # how many ranks, operation, line, text
    listed: list[tuple[int, int | None, str, int, str, str]] = []
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
                            weight=58 if dead else 46, host=process[2], gpu=process[3], pid=int(process[1]))  # fmt: skip  # noqa: E501
        elif rank := _RANK.match(line):
            listed.append(
                (int(rank[1]), int(rank[5]) if rank[5] else None, rank[6] or "", number, line.strip(), rank[4] or "")
            )
            if section == "INCOMPLETE":
                yield Event("ras-missing-rank", ROOT, path, number, line.strip(), cause="peer_exit", weight=54, rank=int(rank[1]),  # noqa: E501
                            host=rank[6] or "", pid=int(rank[5]) if rank[5] else None)  # fmt: skip
            elif section == "ERROR":
                yield Event(
                    "ras-error-rank",
                    ROOT,
                    path,
                    number,
                    line.strip(),
                    cause="app_error",
                    weight=44,
                    rank=int(rank[1]),
                    host=rank[6] or "",
                )
        elif many := re.match(r"^\s+(\d+) ranks? have (?:launched up to operation (\d+)|not launched any)", line):
            counts.append((int(many[1]), int(many[2] or 0), number, line.strip()))


def _behind(
    path: str,
    section: str,
    counts: list[tuple[int, int, int, str]],
    listed: list[tuple[int, int | None, str, int, str, str]],
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
