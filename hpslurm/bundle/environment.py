"""Which settings of NCCL, libfabric and PyTorch the job had, by all that shows one."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from hpslurm.bundle.parts import Parts
from hpslurm.core import nodeset
from hpslurm.core.records import Record
from hpslurm.core.text import clean
from hpslurm.job import logs
from hpslurm.job.nccl_env import SHOWN

# How NCCL says in a log which settings it took, and printenv in a job's output.
_SETTING = re.compile(
    r"\b(?P<name>(?:NCCL|OFI_NCCL|FI|TORCH)_[A-Z0-9_]+)(?: set (?:by environment |by user )?to |=)(?P<value>[^\s;,]+)"
)


def add(kept: Iterable[Record], read: Iterable[logs.Log], parts: Parts) -> list[str]:
    """The settings, a line each."""
    settings = environment(kept, read)
    if settings:
        parts.add("environment.txt", "\n".join(settings), "records, logs and this process")
    else:
        parts.miss(
            "environment.txt", "no record of hpslurm-check and no log says: srun hpslurm-check in the allocation"
        )
    return settings


def environment(kept: Iterable[Record], read: Iterable[logs.Log]) -> list[str]:
    """``NCCL_*``, ``OFI_NCCL_*``, ``FI_*`` and ``TORCH_*``, by where they were seen."""
    where: dict[tuple[str, str], list[str]] = {}
    nodes: dict[tuple[str, str], list[str]] = {}
    for record in kept:
        for result in record.results:
            settings = (result.facts or {}).get("settings") if result.probe == "nccl_env" else None
            for name, value in settings.items() if isinstance(settings, dict) else ():
                nodes.setdefault((str(name), str(value)), []).append(record.node)
    for log in read:
        for match in _SETTING.finditer(log.text):
            value = match["value"].rstrip(".")
            files = where.setdefault((match["name"], value), [])
            files += [os.path.basename(log.path)] if os.path.basename(log.path) not in files else []
    for name, value in os.environ.items():
        if name.startswith(SHOWN):
            where.setdefault((name, value), []).append("the environment of hpslurm bundle")
    for pair, some in nodes.items():
        where.setdefault(pair, []).append(f"records of {nodeset.fold(some)}")
    return [
        f"{name}={clean(value)}    # {', '.join(files[:4])}{' …' if len(files) > 4 else ''}"
        for (name, value), files in sorted(where.items())
        if name.startswith(SHOWN)
    ]
