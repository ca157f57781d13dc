"""What HyperPod's failure texts mean: ``tables/failures.toml``, first match."""

from __future__ import annotations

from functools import cache

from hpslurm.core import toml
from hpslurm.core.values import dataclass


@dataclass(frozen=True)
class Cause:
    """``retry`` is yes, no or maybe: whether trying again helps by itself."""

    id: str
    contains: str
    cause: str
    retry: str
    step: str
    example: str


@cache
def table() -> tuple[Cause, ...]:
    return tuple(Cause(**row) for row in toml.table("failures"))


def cause_of(text: str) -> Cause | None:
    return next((row for row in table() if row.contains in text), None)
