"""The table of patterns, as values. Expressions are compiled when they are first needed."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache, lru_cache
from typing import Any

from hpslurm.core import linear, toml
from hpslurm.core.values import dataclass, field


@dataclass(frozen=True)
class Pattern:
    """One row. ``number`` is its place in the table."""

    number: int
    id: str
    emitter: str
    meaning: str
    role: str
    regex: str
    example: str
    cause: str = ""
    weight: int = 0
    literals: tuple[bytes, ...] = ()
    beats: frozenset[str] = field(default=frozenset())
    check: str = ""
    transient: bool = False
    outlived: bool = False
    echo: bool = False
    part: bool = False
    benign: bool = False
    late: bool = False
    seen: str = ""
    section: int = 0
    teardown: bool = False


@dataclass(frozen=True)
class Table:
    patterns: tuple[Pattern, ...]
    by_id: dict[str, Pattern]
    literals: tuple[bytes, ...]
    wanted_by: tuple[tuple[int, ...], ...]  # for each literal, the patterns that it may start


@cache
def compiled(regex: str) -> re.Pattern[str]:
    """Compiled when it is first needed: compiling all takes longer than most scans."""
    return linear.compile(regex)


@lru_cache(maxsize=1)
def _noise() -> tuple[Pattern, ...]:
    return tuple(row for row in table().patterns if row.role == "noise" and not row.literals and not row.part)


def noise(line: str) -> bool:
    """Whether the line never counts. Row by row: one expression of all takes as long to search, and longer to make."""
    return any(compiled(row.regex).search(line) for row in _noise())


@lru_cache(maxsize=1)
def boilerplate() -> re.Pattern[str]:
    """One expression for words that never count, whatever stands beside them in a line."""
    return linear.compile("|".join(f"(?:{row.regex})" for row in table().patterns if row.part))


@lru_cache(maxsize=1)
def _benign() -> tuple[Pattern, ...]:
    return tuple(row for row in table().patterns if row.benign)


def benign(line: str) -> Pattern | None:
    """The row that says why this line, though it looks like trouble, is normal; None for other lines."""
    return next((row for row in _benign() if compiled(row.regex).search(line)), None)


def known(line: str, patterns: Table) -> bool:
    """Whether any row's expression finds something in the line."""
    data = line.encode("utf-8", "replace")
    rows = (row for row in patterns.patterns if any(literal in data for literal in row.literals))
    return any(compiled(row.regex).search(line) for row in rows)


def _row(number: int, row: dict[str, Any]) -> Pattern:
    return Pattern(
        number,
        row["id"],
        row["emitter"],
        row["meaning"],
        row["role"],
        row["regex"],
        row["example"],
        row.get("cause", ""),
        row.get("weight", 0),
        tuple(literal.encode() for literal in row.get("literals", ())),
        frozenset(row.get("beats", ())),
        row.get("check", ""),
        row.get("transient", False),
        row.get("outlived", False),
        row.get("echo", False),
        row.get("part", False),
        row.get("benign", False),
        row.get("late", False),
        row.get("seen", ""),
        row.get("section", 0),
        row.get("teardown", False),
    )


@lru_cache(maxsize=1)
def table() -> Table:
    return table_of(toml.whole("patterns")["pattern"])


def table_of(rows: Iterable[dict[str, Any]]) -> Table:
    """The table of these rows; all but one, where somebody wants to know what that one is worth."""
    patterns = tuple(_row(number, row) for number, row in enumerate(rows))
    wanted: dict[bytes, list[int]] = {}
    for pattern in patterns:
        for literal in pattern.literals:
            wanted.setdefault(literal, []).append(pattern.number)
    literals = tuple(sorted(wanted))
    return Table(
        patterns,
        {pattern.id: pattern for pattern in patterns},
        literals,
        tuple(tuple(wanted[literal]) for literal in literals),
    )
