"""The only code that touches pyslurm: a child process that prints nodes or jobs as JSON lines.

pyslurm is bound to one Slurm release. Importing it can end the process (no slurm.conf),
fail on a missing symbol (Slurm was upgraded under it), and a call may hang (munge is
down). So nobody imports it but this child, whose last line says that all was printed.
Attributes are those that 22.5, 24.11 and 25.11 have in common.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from typing import Any


def node_line(node: Any) -> dict[str, Any]:
    """One node; ``state`` is in scontrol's words (IDLE+DRAIN), times are seconds since the epoch."""
    return {
        "name": node.name,
        "state": node.state,
        "reason": node.reason,
        "reason_user": node.reason_user,
        "reason_time": node.reason_time,
        "boot_time": node.boot_time,
        "slurmd_start_time": node.slurmd_start_time,
        "features": _list(node.available_features),
        "active_features": _list(node.active_features),
        "partitions": _list(node.partitions),
        "cpus": node.total_cpus,
        "cpus_used": node.allocated_cpus,
        "comment": node.comment,
        "extra": node.extra,
        "address": node.address,
        "hostname": node.hostname,
        "version": node.slurm_version,
    }


def job_line(job: Any) -> dict[str, Any]:
    """One job of the queue."""
    return {
        "id": job.id,
        "state": job.state,
        "user": job.user_name,
        "uid": job.user_id,
        "partition": job.partition,
        "node_count": job.num_nodes,
        "start_time": job.start_time,
        "end_time": job.end_time,
        "nodes": job.allocated_nodes,
        "reason": job.state_reason,
    }


def _list(value: Any) -> list[str]:
    return value.split(",") if isinstance(value, str) else list(value or ())


def lines(what: str, pyslurm: Any) -> Iterator[dict[str, Any]]:
    """The version first, then everything, then ``end`` with the count."""
    yield {"pyslurm": str(getattr(pyslurm, "__version__", ""))}
    rows: Iterable[Any] = (pyslurm.Nodes if what == "nodes" else pyslurm.Jobs).load().values()
    count = 0
    for row in rows:
        yield node_line(row) if what == "nodes" else job_line(row)
        count += 1
    yield {"end": count}


def main() -> None:
    """``nodes`` or ``jobs`` on the command line; any failure is the last line on stderr, and exit status 1."""
    try:
        import pyslurm

        for line in lines(sys.argv[-1], pyslurm):
            print(json.dumps(line))
    except Exception as error:  # RPCError is the extension's own class
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
