"""What one look at a running job brought: its ranks, what each does, and what its nodes' counters gained meanwhile.

Plain values, as JSON lines between the nodes and whoever judges, and in a file for later. A line may come from
anybody's file, so every word of it is cleaned, and everything of the wrong shape is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from hpslurm.core.text import clean
from hpslurm.core.values import asdict, dataclass, field, replace

MOST_FRAMES = 60  # of one stack
MOST_RANKS = 1024  # of one node
STUCK, STOPPED, TRACED, ZOMBIE = "D", "T", "t", "Z"


class Frame(NamedTuple):
    """One call; ``library`` is code that is not the user's own."""

    function: str
    file: str
    line: int
    library: bool


Stack = tuple[Frame, ...]  # of the main thread, the innermost call first


@dataclass(frozen=True)
class Child:
    """A process that a rank started, and that cannot go on."""

    pid: int
    name: str
    state: str
    channel: str = ""
    where: str = ""


@dataclass(frozen=True)
class Rank:
    """One rank's process, looked at three times in two seconds.

    ``stack`` is its first stack, ``later`` the one that differs from it, or the last; None where it was not seen.
    ``busy`` is the CPU time that it took a second, ``wakes`` how often a second its main thread slept and woke,
    ``read`` the bytes that it read and wrote meanwhile, ``channel`` where it waits in the kernel, ``where`` the
    file that it waits for in state D.
    """

    node: str
    pid: int
    rank: int | None = None
    local: int | None = None
    world: int | None = None
    locals: int | None = None  # ranks of this node, as the launcher says
    step: str = ""
    name: str = ""
    state: str = ""
    before: str = ""  # its state at the first look
    channel: str = ""
    busy: float = 0.0
    wakes: float = 0.0
    read: int = 0
    age: float = 0.0
    where: str = ""
    stack: Stack | None = None
    later: Stack | None = None
    threads: tuple[tuple[str, Stack], ...] = ()
    kernel: tuple[str, ...] = ()  # its stack in the kernel, where root looked
    children: tuple[Child, ...] = ()


@dataclass(frozen=True)
class Gpu:
    """``power`` and ``limit`` in watts, ``use`` in percent, ``lost`` why NVML does not reach it, or empty."""

    index: int
    use: int | None = None
    power: float | None = None
    limit: float | None = None
    memory: int | None = None  # MiB in use
    clock: int | None = None  # MHz
    processes: tuple[int, ...] = ()
    lost: str = ""


@dataclass(frozen=True)
class Node:
    """One node; ``efa`` and ``nvlink`` are bytes that moved in ``seconds``, or None where there is no such counter."""

    name: str
    ranks: tuple[Rank, ...] = ()
    gpus: tuple[Gpu, ...] = ()
    seconds: float = 0.0
    efa: int | None = None
    nvlink: int | None = None
    free: float | None = None  # share of memory that is available
    load: float | None = None
    zombies: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()
    ras: str = ""  # NCCL's own report
    dumps: str = ""  # what the names of flight recorder dumps begin with
    pipes: str = ""  # and those of the pipes by which PyTorch is asked for one: the rank and ".pipe" follow


@dataclass(frozen=True)
class Sample:
    """One look at a job. ``silent`` are nodes of it that did not answer."""

    job: str
    nodes: tuple[Node, ...] = ()
    silent: tuple[str, ...] = ()
    time: float = 0.0
    user: str = ""
    notes: tuple[str, ...] = field(default=())

    @property
    def ranks(self) -> list[Rank]:
        return [rank for node in self.nodes for rank in node.ranks]


# as JSON


def line_of(node: Node) -> dict[str, Any]:
    """A node as one JSON line."""
    about = asdict(replace(node, ranks=()))
    return {"schema": 1, "type": "hang_node", **about, "ranks": [_rank_line(rank) for rank in node.ranks]}


def _rank_line(rank: Rank) -> dict[str, Any]:
    """Without what is not known, and the second stack only where it differs: 1,000 nodes send these."""
    plain = asdict(replace(rank, stack=None, later=None, threads=()))
    line = {name: value for name, value in plain.items() if value not in ("", (), None) and name != "node"}
    if rank.stack is not None:
        line["stack"] = list(map(list, rank.stack))
    if rank.later is not None:
        line["later"] = "same" if rank.later == rank.stack else list(map(list, rank.later))
    if rank.threads:
        line["threads"] = [[name, list(map(list, stack))] for name, stack in rank.threads]
    return line


def head_of(sample: Sample) -> dict[str, Any]:
    return {
        "schema": 1,
        "type": "hang_sample",
        "job": sample.job,
        "user": sample.user,
        "time": sample.time,
        "silent": list(sample.silent),
        "notes": list(sample.notes),
    }


class Reader:
    """Lines to nodes; equal stacks become one object, of which a thousand nodes have few."""

    def __init__(self) -> None:
        self._stacks: dict[Stack, Stack] = {}

    def node(self, line: Any, name: str = "") -> Node | None:
        if not isinstance(line, dict) or line.get("type") != "hang_node":
            return None
        name = name or _text(line, "name", 80)
        return Node(
            name,
            tuple(self._rank(row, name) for row in _rows(line.get("ranks"))[:MOST_RANKS]),
            tuple(map(_gpu, _rows(line.get("gpus"))[:64])),
            _float(line, "seconds") or 0.0,
            _int(line, "efa"),
            _int(line, "nvlink"),
            _float(line, "free"),
            _float(line, "load"),
            tuple(_ints(line.get("zombies")))[:MOST_RANKS],
            tuple(clean(str(note)) for note in _list(line.get("notes"))[:16]),
            str(line.get("ras") or "")[: 1 << 20],
            _text(line, "dumps", 200),
            _text(line, "pipes", 200),
        )

    def _rank(self, row: dict[str, Any], node: str) -> Rank:
        stack = self._stack(row.get("stack"))
        return Rank(
            node,
            _int(row, "pid") or 0,
            _int(row, "rank"),
            _int(row, "local"),
            _int(row, "world"),
            _int(row, "locals"),
            _text(row, "step", 40),
            _text(row, "name", 40),
            _text(row, "state", 1),
            _text(row, "before", 1),
            _text(row, "channel", 60),
            _float(row, "busy") or 0.0,
            _float(row, "wakes") or 0.0,
            _int(row, "read") or 0,
            _float(row, "age") or 0.0,
            _text(row, "where", 200),
            stack,
            stack if row.get("later") == "same" else self._stack(row.get("later")),
            tuple((clean(str(name), 40), self._stack(frames) or ()) for name, frames in _pairs(row.get("threads"))),
            tuple(clean(str(text), 80) for text in _list(row.get("kernel"))[:MOST_FRAMES]),
            tuple(map(_child, _rows(row.get("children"))[:16])),
        )

    def _stack(self, rows: Any) -> Stack | None:
        if not isinstance(rows, list):
            return None
        stack = tuple(frame for row in rows[:MOST_FRAMES] if (frame := _frame(row)))
        return self._stacks.setdefault(stack, stack)


def sample_of(lines: Iterable[dict[str, Any]]) -> Sample | None:
    """A saved sample, of the lines of one file or of several that belong to one job; None where it is none."""
    reader = Reader()
    nodes: dict[str, Node] = {}
    heads = []
    for line in lines:
        if isinstance(line, dict) and line.get("type") == "hang_sample":
            heads.append(line)
        elif found := reader.node(line):
            nodes[found.name] = found
    if not heads and not nodes:
        return None
    silent = dict.fromkeys(clean(str(name), 80) for head in heads for name in _list(head.get("silent")))
    notes = dict.fromkeys(clean(str(note)) for head in heads for note in _list(head.get("notes"))[:16])
    first = heads[0] if heads else {}
    job, user = _text(first, "job", 40), _text(first, "user", 40)
    silent_left = tuple(name for name in silent if name not in nodes)
    return Sample(job, tuple(nodes.values()), silent_left, _float(first, "time") or 0.0, user, tuple(notes))


def lines_of(sample: Sample) -> Iterator[dict[str, Any]]:
    yield head_of(sample)
    yield from map(line_of, sample.nodes)


def _frame(row: Any) -> Frame | None:
    if not isinstance(row, list) or len(row) != 4 or not isinstance(row[2], int) or isinstance(row[2], bool):
        return None
    return Frame(clean(str(row[0]), 80), clean(str(row[1]), 120), row[2], bool(row[3]))


def _child(row: dict[str, Any]) -> Child:
    return Child(
        _int(row, "pid") or 0, _text(row, "name", 40), _text(row, "state", 1), _text(row, "channel", 60),
        _text(row, "where", 200),
    )  # fmt: skip


def _gpu(row: dict[str, Any]) -> Gpu:
    return Gpu(
        _int(row, "index") or 0, _int(row, "use"), _float(row, "power"), _float(row, "limit"), _int(row, "memory"),
        _int(row, "clock"), tuple(_ints(row.get("processes"))), _text(row, "lost", 120),
    )  # fmt: skip


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _rows(value: Any) -> list[dict[str, Any]]:
    return [row for row in _list(value) if isinstance(row, dict)]


def _pairs(value: Any) -> list[tuple[Any, Any]]:
    return [(row[0], row[1]) for row in _list(value)[:16] if isinstance(row, list) and len(row) == 2]


def _ints(value: Any) -> list[int]:
    return [item for item in _list(value) if isinstance(item, int) and not isinstance(item, bool)]


def _text(row: dict[str, Any], name: str, longest: int) -> str:
    value = row.get(name)
    return clean(value, longest) if isinstance(value, str) else ""


def _int(row: dict[str, Any], name: str) -> int | None:
    value = row.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 63 else None


def _float(row: dict[str, Any], name: str) -> float | None:
    value = row.get(name)
    return (
        float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e18 else None
    )
