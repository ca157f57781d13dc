"""What HyperPod's failure texts mean: ``tables/failures.toml``, first match."""

from __future__ import annotations

import os
import sys
from functools import cache
from typing import Any

from hpslurm.values import dataclass


@dataclass(frozen=True)
class Cause:
    """``retry`` is yes, no or maybe: whether trying again helps by itself."""

    id: str
    contains: str
    cause: str
    retry: str
    step: str
    example: str


def rows(table: str, name: str = "row") -> list[dict[str, Any]]:
    """The rows of one of our tables."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    path = os.path.join(os.path.dirname(os.path.dirname(__file__)), "tables", f"{table}.toml")
    with open(path, "rb") as file:
        found: list[dict[str, Any]] = tomllib.load(file)[name]
    return found


@cache
def table() -> tuple[Cause, ...]:
    return tuple(Cause(**row) for row in rows("failures"))


def cause_of(text: str) -> Cause | None:
    return next((row for row in table() if row.contains in text), None)
