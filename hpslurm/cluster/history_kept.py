"""The verdicts that ``hpslurm history --keep`` left in a results folder. Light: a timer reads them every minute."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from hpslurm.core import records
from hpslurm.core.values import dataclass

FILE = "history.jsonl"
FRESH = 3 * 86400.0  # seconds


@dataclass(frozen=True)
class Verdicts:
    """What was kept. ``time`` is when it was looked at, seconds since the epoch; lines are ``node_history``."""

    time: float
    lines: tuple[Mapping[str, Any], ...]


def kept(folders: Sequence[str]) -> Verdicts | None:
    """The newest that was kept in any of the folders; None where there is none."""
    all_kept = [verdicts for folder in folders if (verdicts := _read(os.path.join(folder, FILE)))]
    return max(all_kept, key=lambda one: one.time, default=None)


def _read(path: str) -> Verdicts | None:
    try:
        lines = [json.loads(line) for line in records.read_text(path).splitlines()]
    except (OSError, ValueError, RecursionError):
        return None
    lines = [line for line in lines if isinstance(line, dict)]
    times = [line.get("time") for line in lines if line.get("type") == "run"]
    when = times[0] if times and isinstance(times[0], (int, float)) and 0 <= times[0] < records.END_OF_TIME else None
    return Verdicts(float(when), tuple(filter(_whole, lines))) if when is not None else None


_NUMBERS = ("jobs", "node_hours", "failures", "expected", "ratio", "chance")


def _whole(line: Mapping[str, Any]) -> bool:
    """A line of ours, with all that a reader counts on."""
    return (
        line.get("type") == "node_history"
        and all(isinstance(line.get(name), str) for name in ("node", "verdict", "instance", "gpu"))
        and all(isinstance(line.get(name), (int, float)) for name in _NUMBERS)
        and isinstance(line.get("evidence"), list)
    )
