"""Which process of a node is which rank: of all that a launcher starts, the one that trains."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from hpslurm.core.text import whole
from hpslurm.core.values import dataclass
from hpslurm.sources import processes
from hpslurm.sources.processes import Process

BATCH = "batch"  # the step of what runs in the job script itself


@dataclass(frozen=True)
class Name:
    """Who a process says it is."""

    step: str
    rank: int
    local: int | None
    world: int | None
    locals: int | None
    by: str  # the variable that says so


def name_of(process: Process) -> Name | None:
    env = process.env
    for rank, local, world in zip(processes.RANK, _padded(processes.LOCAL), _padded(processes.WORLD), strict=True):
        number = whole(env.get(rank, ""))
        if number is not None:
            step = env.get("SLURM_STEP_ID", BATCH)
            locals_ = next(
                (found for name in processes.LOCALS if (found := whole(env.get(name, ""))) is not None), None
            )
            return Name(step, number, _of(env, local), _of(env, world), locals_, rank)
    return None


def _padded(names: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    """Slurm's own names go with Slurm's rank only: a launcher's ranks are others."""
    own, slurm = tuple(n for n in names if not n.startswith("SLURM")), tuple(n for n in names if n.startswith("SLURM"))
    return (*[own] * (len(processes.RANK) - 1), slurm)


def _of(env: Mapping[str, str], names: Iterable[str]) -> int | None:
    return next((found for name in names if (found := whole(env.get(name, ""))) is not None), None)


def ranks_of(found: Iterable[Process]) -> list[tuple[Name, Process]]:
    """The process of each rank, in the order of steps and ranks."""
    found = list(found)
    by_pid = {process.pid: process for process in found}
    named = [(name, process) for process in found if process.state != "Z" and (name := name_of(process))]
    launched = {
        (process.env.get("SLURM_STEP_ID"), process.env.get("SLURM_PROCID"))
        for name, process in named if name.by != "SLURM_PROCID"
    }  # fmt: skip
    groups: dict[tuple[str, int, str], list[tuple[Name, Process]]] = {}
    for name, process in named:
        task = (process.env.get("SLURM_STEP_ID"), process.env.get("SLURM_PROCID"))
        if name.by == "SLURM_PROCID" and task in launched:
            continue  # the launcher of other ranks, or a helper of it
        groups.setdefault((name.step, name.rank, name.by), []).append((name, process))
    return [min(members, key=lambda member: _order(member[1], by_pid)) for _, members in sorted(groups.items())]


def _order(process: Process, by_pid: Mapping[int, Process]) -> tuple[int, float, int]:
    """The topmost Python; where there is none, whoever took most CPU time (a shell takes little), else the lowest."""
    depth = _depth(process, by_pid)
    return (0, depth, process.pid) if is_python(process) else (1, -round(process.cpu, 1), -depth)


def is_python(process: Process) -> bool:
    return process.name.startswith(("python", "pt_main_thread", "ray::", "pypy"))


def _depth(process: Process, by_pid: Mapping[int, Process]) -> int:
    depth, seen = 0, set()
    while process.parent in by_pid and process.pid not in seen:
        seen.add(process.pid)
        process = by_pid[process.parent]
        depth += 1
    return depth


def descendants(pid: int, found: Iterable[Process]) -> list[Process]:
    children: dict[int, list[Process]] = {}
    for process in found:
        children.setdefault(process.parent, []).append(process)
    below, todo = [], [pid]
    while todo:
        mine = children.pop(todo.pop(), [])
        below += mine
        todo += [process.pid for process in mine]
    return below
