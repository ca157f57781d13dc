"""What the reasoning knows, from tables: causes and their consequences, derived evidence, and the fitted numbers.

tables/causes.toml says what each cause explains, tables/reasoning.toml what evidence of several lines is worth and
how the parts of a hypothesis are weighed. benchmarks/fit_reasoning.py fits those numbers.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from hpslurm.core import toml
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
    suggest: tuple[dict[str, str], ...]


@dataclass(frozen=True)
class Derived:
    """Evidence that several lines give together. ``trait`` names what hosts are compared in."""

    id: str
    cause: str
    weight: int
    meaning: str
    trait: str = ""
    always: bool = False


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
            tuple(row.get("suggest", ())),
        )
        for row in toml.table("causes", "cause")
    }


@cache
def derived() -> dict[str, Derived]:
    return {row["id"]: Derived(**row) for row in toml.table("reasoning", "derived")}


@cache
def numbers() -> Numbers:
    raw: dict[str, Any] = toml.whole("reasoning")["numbers"]
    return Numbers(**{name: float(value) for name, value in raw.items()})


def explains(cause: str, other: str) -> bool:
    known = causes().get(cause)
    return known is not None and other in known.explains
