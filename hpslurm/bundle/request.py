"""What the command line asks for."""

from __future__ import annotations

from hpslurm.cluster.aws import whom
from hpslurm.core import policy
from hpslurm.core.values import dataclass


@dataclass(frozen=True)
class Request:
    """The command line. ``since`` and ``until`` are seconds since the epoch, or None."""

    job: str = ""
    options: whom.Options = whom.Options()
    since: float | None = None
    until: float | None = None
    logs: tuple[str, ...] = ()
    results: str | None = None
    reports: tuple[str, ...] = ()
    policy: str = policy.PATH
    aws: bool = True
    slurm: bool = True
    root: str = "/"
    limit: int = 50 << 20
    hang: bool = False  # look at the running job, by a step on its nodes
