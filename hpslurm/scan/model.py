"""What the reasoning knows, from tables: causes and their consequences, derived evidence, and the fitted numbers.

tables/causes.toml says what each cause explains, tables/reasoning.toml what evidence of several lines is worth, what
a check makes of a line, and how the parts of a hypothesis are weighed. benchmarks/fit_reasoning.py fits those numbers.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from hpslurm.core import linear, toml
from hpslurm.core.finding import ROOT, Event
from hpslurm.core.values import dataclass


@dataclass(frozen=True)
class Cause:
    """``explains``: causes whose lines others print once this one has struck."""

    id: str
    section: int
    explains: frozenset[str]
    priority: str
    hardware: bool
    of_node: bool
    fatal: bool
    suggest: tuple[dict[str, str], ...]
    ask: str
    blame: str


@dataclass(frozen=True)
class Derived:
    """Evidence that several lines give together, or a table, a report or a dump.

    ``trait`` names what hosts are compared in; ``pattern`` is the row that this one is a stronger or weaker form of.
    """

    id: str
    cause: str
    weight: int
    meaning: str
    role: str = ROOT
    pattern: str = ""
    trait: str = ""
    always: bool = False


@dataclass(frozen=True)
class Turn:
    """What a check makes of a line; what is not named stays as the line's pattern says.

    ``words`` picks the row among those of its ``check`` by what the line says.
    """

    id: str
    when: str
    cause: str = ""
    weight: int | None = None
    role: str = ""
    at_most: int | None = None
    less: int = 0
    check: str = ""
    words: str = ""


@dataclass(frozen=True)
class Numbers:
    """How a hypothesis is weighed; see tables/reasoning.toml."""

    near: float
    explained: float
    unexplained: float
    consequence: float
    proven: float
    bias: float
    by_weight: float
    by_rival: float
    by_unknown: float
    by_support: float
    by_symptom: float
    high: float
    medium: float


@dataclass(frozen=True)
class Bounds:
    """Weights at which a line counts as more than its like; see tables/reasoning.toml."""

    strong: int
    weak: int
    given: int
    hang: int
    serious: int
    crash: int
    p0: int
    p1: int
    p2: int


@dataclass(frozen=True)
class State:
    """What it says of the cause that Slurm calls a job's end so."""

    id: str
    cause: str
    weight: int
    role: str = ROOT


ASK = "dmesg and slurmd's log of the node, and the output of the other ranks"  # where causes.toml names nothing else


@cache
def causes() -> dict[str, Cause]:
    return {
        row["id"]: Cause(
            row["id"],
            row["section"],
            frozenset(row.get("explains", ())),
            row.get("priority", "P0"),
            row.get("hardware", False),
            row.get("of_node", False),
            row.get("fatal", False),
            tuple(row.get("suggest", ())),
            row.get("ask", ASK),
            row["blame"],
        )
        for row in toml.table("causes", "cause")
    }


@cache
def of_programs() -> frozenset[str]:
    """Causes that only a job's own processes show: the same words of a system service mean something else."""
    return frozenset(
        cause.id for cause in causes().values() if cause.fatal and cause.blame != "node" and not cause.of_node
    )


@cache
def _reasoning() -> dict[str, Any]:
    return toml.whole("reasoning")


@cache
def derived() -> dict[str, Derived]:
    return {row["id"]: Derived(**row) for row in _reasoning()["derived"]}


def evidence(row_id: str, path: str, number: int, text: str, **fields: Any) -> Event:
    """An event of a derived row: its cause, weight and role."""
    row = derived()[row_id]
    return Event(row.pattern or row.id, row.role, path, number, text, cause=row.cause, weight=row.weight, **fields)


@cache
def turns() -> dict[str, Turn]:
    return {row["id"]: Turn(**row) for row in _reasoning()["turn"]}


@cache
def _worded(check: str) -> tuple[tuple[re.Pattern[str], Turn], ...]:
    return tuple((linear.compile(row.words), row) for row in turns().values() if row.check == check)


def turn_by(check: str, text: str) -> Turn | None:
    """The first row of a check whose words stand in the text."""
    return next((row for expression, row in _worded(check) if expression.search(text)), None)


@cache
def numbers() -> Numbers:
    return Numbers(**{name: float(value) for name, value in _reasoning()["numbers"].items()})


@cache
def bounds() -> Bounds:
    return Bounds(**_reasoning()["bounds"])


@cache
def states() -> dict[str, State]:
    return {row["id"]: State(**row) for row in _reasoning()["state"]}


def explains(cause: str, other: str) -> bool:
    known = causes().get(cause)
    return known is not None and other in known.explains
