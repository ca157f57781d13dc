"""The checks of Slurm's side, by what they look at; those of AWS stand in ``aws/checks.py``.

A new check is a module and a row here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from hpslurm.cluster import (
    accounting,
    controllers,
    gate_reason,
    gpu_again,
    job_stalled,
    keeps_failing,
    matrix,
    queue,
    slurm_conf,
    slurm_nodes,
)
from hpslurm.cluster.check import Row, row, run
from hpslurm.cluster.model import Gathered
from hpslurm.core import probe
from hpslurm.core.policy import Policy
from hpslurm.core.probe import Result, Skip
from hpslurm.setup import hook_lines
from hpslurm.sources.host import Host

# Slurm's nodes and jobs
OF_SLURM: tuple[Row[Gathered], ...] = (
    row("slurm_nodes", slurm_nodes, slurm_nodes.figures),
    row("jobs", queue),
)
# what only Slurm and HyperPod together can tell
OF_BOTH: tuple[Row[Gathered], ...] = (row("slurm_and_hyperpod", matrix),)
# records that nodes left, over time or side by side
OF_RECORDS: tuple[Row[Gathered], ...] = (
    row("gate_reason", gate_reason),
    row("gpu_again", gpu_again),
    row("job_stalled", job_stalled),
    row("history", keeps_failing),
)
# why Slurm does not answer
OF_DAEMONS: tuple[Row[Host], ...] = (row("controllers", controllers),)


def of_controller(hooks: frozenset[str]) -> tuple[Row[Host], ...]:
    """What asks this machine or Slurm something of its own. ``hooks`` are those that left records."""
    return (
        row("accounting", accounting),
        row("slurm_conf", slurm_conf),
        row("hooks", hook_lines.Hooks(hooks)),
        *OF_DAEMONS,
    )


def asked(rows: Iterable[Row[Host]], host: Host, policy: Policy) -> list[Result]:
    return [probe.run(check.name, check.check, host, policy) for check in rows]


def judged(rows: Iterable[Row[Gathered]], gathered: Gathered, policy: Policy) -> Iterator[Result]:
    """A result for each check that has something to look at."""
    for check in rows:
        try:
            yield run(check, gathered, policy)
        except Skip:
            continue
