"""What HyperPod's failure texts mean: ``tables/failures.toml``, first match."""

from __future__ import annotations

import re
from functools import cache

from hpslurm.core import linear, toml
from hpslurm.core.values import dataclass


@dataclass(frozen=True)
class Failure:
    """``retry`` is yes, no or maybe: whether trying again helps by itself."""

    id: str
    pattern: str
    meaning: str
    retry: str
    remedy: str
    example: str


@cache
def table() -> tuple[Failure, ...]:
    return tuple(Failure(**row) for row in toml.table("failures"))


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return linear.compile(pattern)


def failure_of(text: str) -> Failure | None:
    """The first row that the text meets.

    >>> failure_of("We currently do not have sufficient capacity to launch new ml.p5.48xlarge instances").id
    'capacity'
    """
    return next((row for row in table() if _compiled(row.pattern).search(text)), None)
