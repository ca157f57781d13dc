"""One line for the user whose job starts on a sick node.

The prolog leaves it beside its record, readable by the job's group, and
``taskprolog.d/hpslurm.sh`` prints it into the job's output: ``jobs/<job>/<node>.told``.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from hpslurm.core.finding import P0, Finding
from hpslurm.core.text import clean

LONGEST = 300  # characters


def line(node: str, findings: Sequence[Finding]) -> str:
    """What the user reads, or empty where nothing unmuted blocks training."""
    blocking = [one for one in findings if one.rule.priority == P0 and not one.muted]
    if not blocking:
        return ""
    first = blocking[0]
    more = f" (and {len(blocking) - 1} more)" if len(blocking) > 1 else ""
    return clean(f"hpslurm: {node} {first.rule.id}{more}: {first.detail}; see hpslurm report $SLURM_JOB_ID", LONGEST)


def leave(folder: str, node: str, job: str, gid: int, findings: Sequence[Finding]) -> None:
    """Write the line for the job's first task on this node, or take an older one away. Raises OSError.

    A job that was requeued comes back to the same folder: what was wrong then may be repaired now.
    """
    path = f"{folder}/{node}.told"
    text = line(node, findings).replace("$SLURM_JOB_ID", job)
    if not text:
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass
        return
    handle = os.open(f"{path}.part", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o640)
    try:
        if gid >= 0 and os.geteuid() == 0:
            os.fchown(handle, 0, gid)
        os.write(handle, text.encode("utf-8", "replace") + b"\n")
    finally:
        os.close(handle)
    os.replace(f"{path}.part", path)
