"""Samples of another make than ``hanging``: other frameworks, other work of one rank alone, other noise.

Written from the libraries' sources, without a look at the rules that judge them; ``hanging_stacks.toml`` has the
stacks. In a Megatron job each rank waits for the group that it shares with the rank to blame: its tensor parallel
peers in a layer, its pipeline at its neighbours, all others at the gradients. Elsewhere all stand at one place, or
at several at once.
"""

from __future__ import annotations

import dataclasses
import random
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from hpslurm.core.values import replace
from hpslurm.job.hang.facts import Frame, Gpu, Node, Rank, Sample, Stack
from hpslurm.job.hang.sample import short_path
from tests.fake.hanging import Made

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PER_NODE = 8
SIZES = (8, 16, 24, 48, 64, 96, 128, 256, 512, 1024, 2048)
FRAMEWORKS = ("ddp", "fsdp", "deepspeed", "jax", "vllm", "megatron")
STATES = ("stopped", "traced", "gone", "zombie", "absent", "stuck", "desync", "lost")
CAUSES = {
    "stopped": {"slow_rank_work"},
    "traced": {"slow_rank_work", "app_error"},
    "gone": {"peer_exit"},
    "zombie": {"peer_exit"},
    "absent": {"rendezvous_unreachable"},
    "stuck": {"storage"},
    "desync": {"collective_desync"},
    "lost": {"gpu_fell_off_bus"},
}
NONE = ("network", "trains", "evaluates", "compiles", "starts", "saves", "serves")
D_CHANNELS = ("folio_wait_bit_common", "rpc_wait_bit_killable", "cl_sync_io_wait", "request_wait_answer")


@dataclass(frozen=True)
class Style:
    """How ranks of one job wait: their state, and what their GPUs show meanwhile. ``gpus``: NVML answers."""

    state: Callable[[random.Random], tuple[str, str, float, float]]
    use: int
    watts: float
    gpus: bool


def table() -> dict[str, Any]:
    return _read(Path(__file__).with_name("hanging_stacks.toml").read_text())


@lru_cache(1)
def _read(text: str) -> dict[str, Any]:
    return tomllib.loads(text)


def kinds() -> tuple[str, ...]:
    return (*dict.fromkeys(row["kind"] for row in table()["alone"]), *STATES)


def made(kind: str, seed: int, stacks: str = "all") -> Made:
    """``stacks``: of all ranks, of ``some`` (py-spy failed for the others), or ``none``."""
    chance = random.Random(f"{kind} {seed} {stacks}")
    framework = chance.choice(FRAMEWORKS if kind != "serves" else ("vllm",))
    size = chance.choice(SIZES if framework != "vllm" else (8, 16))
    whole_node = size >= 128 and kind in ("data", "stuck", "save") and chance.random() < 0.15
    guilty = _guilty(size, whole_node, chance) if kind not in NONE else []
    ranks, gpus = _ranks(kind, framework, size, guilty, chance)
    ranks = _seen(ranks, stacks, chance)
    names = {rank.node for rank in ranks} | {f"n{number}" for number in range(-(-size // PER_NODE))}
    by_node: dict[str, list[Rank]] = {name: [] for name in names}
    for rank in ranks:
        by_node[rank.node].append(rank)
    moved = _bytes(kind, len(names), chance)
    nodes = tuple(
        Node(name, tuple(by_node[name]), tuple(gpus.get(name, ())), 2.0, moved[number], None)
        for number, name in enumerate(sorted(names, key=lambda name: int(name[1:])))
    )
    causes = CAUSES.get(kind) or {cause for row in _alone(kind) for cause in row["causes"]}
    if kind == "absent" and stacks == "none":
        causes = causes | CAUSES["gone"]  # nobody could tell
    return Made(Sample("4711", nodes), frozenset(guilty), frozenset(causes if guilty else ()))


def _guilty(size: int, whole_node: bool, chance: random.Random) -> list[int]:
    if whole_node:
        first = PER_NODE * chance.randrange(size // PER_NODE)
        return list(range(first, first + PER_NODE))
    return sorted(chance.sample(range(size), 1 if size < 16 or chance.random() < 0.7 else 2))


def _alone(kind: str) -> list[dict[str, Any]]:
    return [row for row in table()["alone"] if row["kind"] == kind]


def _ranks(
    kind: str, framework: str, size: int, guilty: list[int], chance: random.Random
) -> tuple[list[Rank], dict[str, list[Gpu]]]:
    row = chance.choice(_alone(kind)) if _alone(kind) else None
    starts = kind in ("absent", "starts") or bool(row and row.get("starts"))
    style = _style(starts, chance)
    if kind == "lost":
        style = dataclasses.replace(style, gpus=True)  # else nobody could say
    waits = _waits(framework, size, guilty, ("start" if kind == "absent" else "early") if starts else "", chance)
    ranks, gpus = [], {}
    for number in range(size):
        waiting = _rank(number, size, waits[number], style.state(chance), chance)
        rank, gpu = _of_kind(kind, framework, waiting, row, number in guilty, style, chance)
        gpus.setdefault(waiting.node, []).append(replace(gpu, index=number % PER_NODE, processes=_owner(rank, chance)))
        if rank is not None:
            ranks.append(rank)
    return ranks, gpus if style.gpus else {}


def _rank(number: int, size: int, stack: Stack, state: tuple[str, str, float, float], chance: random.Random) -> Rank:
    letter, channel, busy, wakes = state
    before = chance.choice((letter, letter, "R" if busy > 0.5 else letter))
    return Rank(
        f"n{number // PER_NODE}", 40_000 + number * 7, number, number % PER_NODE, size, min(PER_NODE, size), "0",
        "python", letter, before, channel, busy, wakes, chance.choice((0, 0, 0, 4096)), 5000.0, "", stack, stack,
    )  # fmt: skip


def _owner(rank: Rank | None, chance: random.Random) -> tuple[int, ...]:
    """In a container NVML names processes by other numbers, or not at all."""
    return (rank.pid,) if rank is not None and chance.random() < 0.8 else ()


# how ranks wait


def _style(starts: bool, chance: random.Random) -> Style:
    """By the job: CUDA spins or blocks, NCCL's blocking wait sleeps; before the first collective GPUs are idle."""
    spins = chance.random() < 0.6
    blocked = chance.choice((("futex_wait_queue", 0.0), ("do_poll.constprop.0", 0.0), ("hrtimer_nanosleep", 150.0)))

    def state(chance: random.Random) -> tuple[str, str, float, float]:
        if starts:
            return "S", chance.choice(("hrtimer_nanosleep", "do_poll.constprop.0")), 0.01, chance.choice((0, 1, 5))
        if spins:
            busy = chance.choice((1.0, 0.99, 1.01, 1.3))
            return ("R", "", busy, 0.0) if chance.random() < 0.85 else ("S", "futex_wait_queue", busy, 2.0)
        return "S", blocked[0], chance.choice((0.0, 0.01, 0.04)), blocked[1]

    idle = starts or chance.random() < 0.1
    return Style(state, 0 if idle else 100, 95.0 if idle else chance.choice((130, 180, 240)), chance.random() < 0.85)


def _waits(framework: str, size: int, guilty: list[int], start: str, chance: random.Random) -> list[Stack]:
    rows = table()[framework]
    outer = _frames(rows["base"])
    if start:
        places = rows["start"] + (rows.get(start, []) if start == "early" else [])
        place = (*_frames(chance.choice(places)), *outer[-1:])
        return [place] * size
    if framework == "megatron":
        return _megatron(rows, outer, size, guilty, chance)
    if chance.random() < 0.3:
        places = [(*_frames(stack), *outer) for stack in rows["spread"]]
        return chance.choices(places, [chance.random() ** 2 + 0.01 for _ in places], k=size)
    return [(*_frames(chance.choice(rows["waits"])), *outer)] * size


def _megatron(rows: dict[str, Any], outer: Stack, size: int, guilty: list[int], chance: random.Random) -> list[Stack]:
    """Ranks are numbered as Megatron does: tensor parallel first, then data parallel, then stages."""
    tensor = chance.choice([width for width in (1, 2, 4, 8) if size % width == 0])
    stages = chance.choice([depth for depth in (1, 2, 4, 8) if size % (tensor * depth) == 0])
    wide = size // tensor // stages
    chosen = {name: (*_frames(chance.choice(rows[name])), *outer) for name in ("tensor", "before", "after", "data")}

    def at(number: int) -> tuple[int, int, int]:
        return number % tensor, number // tensor % wide, number // tensor // wide

    blamed = [at(number) for number in guilty]

    def wait(number: int) -> Stack:
        _, replica, stage = at(number)
        for _, other, its_stage in blamed:
            if (other, its_stage) == (replica, stage):
                return chosen["tensor"]
        for _, other, its_stage in blamed:
            if other == replica:
                return chosen["before" if stage < its_stage else "after"]
        return chosen["data"]

    return [wait(number) for number in range(size)]


# what those do that the others wait for


def _of_kind(
    kind: str, framework: str, rank: Rank, row: dict[str, Any] | None, guilty: bool, style: Style, chance: random.Random
) -> tuple[Rank | None, Gpu]:
    waiting = Gpu(0, style.use, style.watts + chance.uniform(-25, 25), 700.0, 61_000, 1980)
    idle = replace(waiting, use=0, power=chance.uniform(70, 125))
    busy = replace(waiting, use=chance.choice((97, 100)), power=chance.uniform(380, 690))
    if kind in NONE:
        return _together(kind, framework, rank, waiting, idle, busy, chance)
    if not guilty:
        return rank, waiting
    if kind in ("gone", "absent"):
        return None, replace(idle, memory=0)
    if kind == "zombie":
        return replace(rank, state="Z", before="Z", busy=0.0, wakes=0.0, channel="", stack=None, later=None), idle
    if kind in ("stopped", "traced"):
        letter = "T" if kind == "stopped" else "t"
        return replace(rank, state=letter, before=letter, busy=0.0, wakes=0.0, channel="do_signal_stop"), waiting
    if kind == "stuck":
        stack = _within(chance.choice(_alone("save") + _alone("load")), framework)
        return replace(rank, state="D", before="D", busy=0.0, wakes=0.0, channel=chance.choice(D_CHANNELS),
                       where="/fsx/run/ckpt/step_4000/x.pt", stack=stack, later=stack), idle  # fmt: skip
    if kind == "lost":
        return rank, Gpu(0, lost="GPU is lost")
    if kind == "desync":
        stack = (*_frames(chance.choice(table()[framework]["other"])), *_frames(table()[framework]["base"]))
        return replace(rank, stack=stack, later=stack), waiting
    assert row is not None
    letter, channel, used, wakes = chance.choice(row["states"])
    stack = _within(row, framework)
    later = _within({**row, "stack": row["moves"]}, framework) if "moves" in row and chance.random() < 0.7 else stack
    moved = 0 if letter == "S" and not wakes else chance.choice((0, 20_000, 3_000_000))
    return replace(rank, state=letter, before=letter, channel=channel, busy=used, wakes=float(wakes), read=moved,
                   stack=stack, later=later), _gpu_of(row, waiting, idle, busy, chance)  # fmt: skip


def _gpu_of(row: dict[str, Any], waiting: Gpu, idle: Gpu, busy: Gpu, chance: random.Random) -> Gpu:
    """A rank may have queued something before it went its own way: then its GPU spins as the others' do."""
    if row.get("gpu") == "computes":
        return busy
    return waiting if chance.random() < 0.15 else idle


def _together(
    kind: str, framework: str, rank: Rank, waiting: Gpu, idle: Gpu, busy: Gpu, chance: random.Random
) -> tuple[Rank, Gpu]:
    """Nobody is to blame: the network stands still, or all are at the same long work."""
    if kind == "network":
        return rank, waiting
    rows = {"evaluates": "eval", "compiles": "compile", "saves": "save", "starts": "data", "trains": "", "serves": ""}
    if kind == "serves":
        stack = (*_frames(table()["vllm"]["idle"][0]), *_frames(table()["vllm"]["base"]))
        return replace(rank, state="S", before="S", channel="do_poll.constprop.0", busy=0.0, wakes=1.0,
                       stack=stack, later=stack), idle  # fmt: skip
    if kind == "trains":
        places = table()[framework].get("spread") or table()[framework]["data"] + table()[framework]["after"]
        first, second = ((*_frames(chance.choice(places)), *_frames(table()[framework]["base"])) for _ in range(2))
        return replace(rank, state="R", before="R", channel="", busy=1.0, stack=first, later=second), busy
    row = _alone(rows[kind])[0 if kind in ("evaluates", "starts") else -1]  # of one job all do the same
    stack = _within(row, framework)
    later = _within({**row, "stack": row["moves"]}, framework) if "moves" in row and chance.random() < 0.9 else stack
    letter, channel, used, wakes = row["states"][0]
    moved = chance.randrange(50_000_000, 900_000_000) if kind in ("saves", "starts") else 0
    return replace(rank, state=letter, before=letter, channel=channel, busy=used, wakes=float(wakes), read=moved,
                   stack=stack, later=later), busy if kind == "evaluates" else idle  # fmt: skip


def _within(row: dict[str, Any], framework: str) -> Stack:
    """What a rank does alone, called from the framework's loop, or in place of it."""
    outer = _frames(table()[framework]["base"])
    return (*_frames(row["stack"]), *(outer[-1:] if row.get("whole") else outer))


# noise


def _seen(ranks: list[Rank], stacks: str, chance: random.Random) -> list[Rank]:
    if stacks == "all":
        return ranks
    share = chance.choice((0.02, 0.1, 0.3))
    nodes = {rank.node for rank in ranks}
    blind = {name for name in nodes if chance.random() < share / 2}
    return [
        replace(rank, stack=None, later=None)
        if stacks == "none" or rank.node in blind or chance.random() < share / 2
        else rank
        for rank in ranks
    ]


def _bytes(kind: str, nodes: int, chance: random.Random) -> list[int | None]:
    if chance.random() < 0.25:
        return [None] * nodes
    if kind == "trains":
        return [chance.randrange(2_000_000_000, 80_000_000_000) for _ in range(nodes)]
    return [chance.choice((0, 512, 9000, 60_000)) for _ in range(nodes)]


def _frames(rows: Iterable[str]) -> Stack:
    return _frames_of(tuple(rows))


@lru_cache(None)
def _frames_of(rows: tuple[str, ...]) -> Stack:
    return tuple(map(_frame, rows))


def _frame(row: str) -> Frame:
    """As the nodes make it of what py-spy says."""
    function, _, place = row.rpartition(" ")
    if " <frozen" in row:
        function, _, place = row.partition(" ")
    path, _, line = place.rpartition(":")
    if path.startswith("py/"):
        path = "/usr/lib/python3.11/" + path[3:]
    elif not path.startswith(("/", "<")):
        path = "/opt/venv/lib/python3.11/site-packages/" + path
    library, short = short_path(path)
    return Frame(function, short, int(line), library)
