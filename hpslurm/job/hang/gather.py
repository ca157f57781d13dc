"""A look at a running job over all its nodes: one step, one task a node, its lines merged as they come."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Iterable

from hpslurm.core.records import LAST, MORE, encode
from hpslurm.core.text import clean
from hpslurm.core.values import replace
from hpslurm.job.hang.facts import Node, Reader, Sample, line_of
from hpslurm.sources import launch
from hpslurm.sources.slurm import SlurmJob

SECONDS = 20.0  # for the whole step: start, two looks, and the slowest node
PROGRAM = "hpslurm"
# What srun says on top of our own time limit, and of where it puts a step
_ECHO = re.compile(r"cpu binding|Job step aborted|task [\d,-]+: Killed|launch/slurm")
LARGEST = 64 << 10  # characters that one node sends


class Joiner:
    """Pieces of lines, as they come, to nodes: a line is read, and forgotten, with its last piece."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self._parts: dict[str, list[str]] = {}
        self._reader = Reader()

    def add(self, text: str) -> bool:
        """Whether it was one."""
        node, _, rest = text.partition(" ")
        mark, _, piece = rest.partition(" ")
        if mark not in (LAST, MORE):
            return False
        parts = self._parts.setdefault(node, [])
        parts.append(piece)
        if mark == LAST:
            del self._parts[node]
            self._whole(node, "".join(parts))
        return True

    def _whole(self, node: str, text: str) -> None:
        try:
            found = self._reader.node(json.loads(text), node)
        except (ValueError, RecursionError):
            return
        if found is not None:
            self.nodes[node] = found


def look(job: SlurmJob, nodes: Iterable[str], root: str = "/") -> Sample:
    """Start the step and merge what comes. Raises CannotLaunch where srun is missing."""
    names = tuple(nodes)
    where = launch.Allocation(
        str(job.id), names, launch.program("srun"), inside_step=True, env=dict(os.environ), uid=_user(job)
    )
    words = [_program(), "hang", str(job.id), "--pieces", *(("--root", root) if root != "/" else ())]
    step = launch.Step("hang", names, tuple(words), seconds=SECONDS, options=("--kill-on-bad-exit=0",))
    joiner, said, notes = Joiner(), [], []
    for event in launch.run([step], where, grace=2.0):
        if isinstance(event, launch.End):
            notes += [] if event.ok else [f"srun: {event.why}"]
        elif event.error:
            said.append(clean(event.text))
        else:
            joiner.add(event.text)
    silent = tuple(name for name in names if name not in joiner.nodes)
    notes += [line for line in said if not _ECHO.search(line)][-3:] if silent else []
    return Sample(str(job.id), tuple(joiner.nodes[name] for name in names if name in joiner.nodes), silent,
                  time.time(), job.user, tuple(dict.fromkeys(notes)))  # fmt: skip


def _user(job: SlurmJob) -> int | None:
    """Root asks as the job's user: Slurm refuses a step in another's job, root's as well (22.05)."""
    return job.uid if os.geteuid() == 0 and job.uid else None


def _program() -> str:
    """The same hpslurm on the nodes as here, where it lies at the same place."""
    beside = os.path.join(os.path.dirname(os.path.abspath(sys.argv[0])), PROGRAM)
    return beside if os.access(beside, os.X_OK) else PROGRAM


def fitting(node: Node) -> Node:
    """The node in at most LARGEST characters: what is said least is left out first."""
    for smaller in (_as_it_is, _without_threads, _with_short_stacks, _without_stacks):
        node = smaller(node)
        if len(encode(line_of(node), ascii_only=True)) <= LARGEST:
            return node
    return replace(node, ras="", ranks=node.ranks[:128], notes=(*node.notes, "cut: too much for one line"))


def _as_it_is(node: Node) -> Node:
    return replace(node, ras=node.ras[: LARGEST // 2])


def _without_threads(node: Node) -> Node:
    return replace(node, ranks=tuple(replace(rank, threads=(), kernel=rank.kernel[:6]) for rank in node.ranks))


def _with_short_stacks(node: Node) -> Node:
    return replace(
        node,
        ranks=tuple(
            replace(rank, stack=rank.stack and rank.stack[:12], later=rank.later and rank.later[:12])
            for rank in node.ranks
        ),
    )


def _without_stacks(node: Node) -> Node:
    return replace(node, ranks=tuple(replace(rank, stack=None, later=None, children=()) for rank in node.ranks))
