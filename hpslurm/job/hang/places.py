"""Where a rank stands in its program and in a library, and what that means: ``tables/hang.toml`` has the names."""

from __future__ import annotations

import re
from functools import cache

from hpslurm.core import toml
from hpslurm.core.values import dataclass
from hpslurm.job.hang.facts import STUCK, Frame, Rank, Stack

UNKNOWN = "unknown"
MOVED_CPU = 0.5  # seconds of CPU a second, from which a process is busy
STILL = 0.5  # wakes a second: none in the two seconds of a look
WRAPPERS = frozenset(
    ("wrapper", "inner", "_fn", "decorate_context", "_call_impl", "_wrapped_call_impl", "log_wrapper", "wrapped_fn",
     "reraise_with_filtered_traceback", "inner_func", "_use_grad", "__call__")
)  # fmt: skip


@dataclass(frozen=True)
class Kind:
    """What a rank does where it stands. ``waits``: for others, which is no reason to suspect it."""

    kind: str
    cause: str = ""
    words: str = ""
    waits: bool = False
    weak: str = ""  # counts where nothing else does; "inner": and no call of the program's own stands further in


@dataclass(frozen=True)
class Place:
    """``label`` is ``all_reduce (train.py:210)``: the call into a library, and the line of the program that made it."""

    label: str
    kind: Kind
    call: str = ""  # the library's function, or the program's own
    program: str = ""  # file:line of the program's innermost frame
    by_channel: bool = False  # only the kernel's wait channel says so


NOWHERE = Kind(UNKNOWN)


@cache
def _rows() -> tuple[tuple[re.Pattern[str], re.Pattern[str] | None, Kind], ...]:
    return tuple(
        (
            re.compile(row["function"]),
            re.compile(row["file"]) if row["file"] else None,
            Kind(row["kind"], row["cause"], row["words"], row["waits"], row["weak"]),
        )
        for row in toml.table("hang", "place")
    )


@cache
def _channels() -> tuple[tuple[re.Pattern[str], Kind], ...]:
    return tuple(
        (re.compile(row["name"]), Kind(row["kind"], row["cause"], row["words"], row["kind"] == "wait"))
        for row in toml.table("hang", "channel")
    )


@cache
def kind_of_channel(channel: str) -> Kind:
    return next((kind for name, kind in _channels() if name.fullmatch(channel)), NOWHERE)


@cache
def _row_of(frame: Frame) -> int:
    """The first row that this frame fits, or their number where it fits none."""
    for number, (function, file, _) in enumerate(_rows()):
        if function.fullmatch(_bare(frame.function)) and (file is None or file.search(frame.file)):
            return number
    return len(_rows())


@cache
def of_stack(stack: Stack) -> Place:
    """The place of one stack; equal stacks are looked at once."""
    at = _deciding(stack)
    if at is None:  # nothing known: the innermost call of the program's own, and what it calls
        at = next((number for number, frame in enumerate(stack) if not frame.library), len(stack) - 1)
        inner = [frame for frame in stack[:at] if not _passes_on(frame)]
        return _place(inner[-1] if inner else stack[at], stack[at], NOWHERE) if stack else Place("no frame", NOWHERE)
    row = _row_of(stack[at])
    kind = _rows()[row][2]
    call = stack[_outermost(stack, at, row)]
    callers = [frame for frame in stack[at + 1 :] if not frame.library]
    outside = call.library or kind.waits
    return _place(call, callers[0] if outside and callers else call, kind)


def _deciding(stack: Stack) -> int | None:
    """Which frame says what the rank does: the innermost that fits a row, else by the first of the weak rows."""
    rows = [_row_of(frame) for frame in stack]
    kinds = [_rows()[row][2] if row < len(_rows()) else NOWHERE for row in rows]
    strong = next((number for number, kind in enumerate(kinds) if kind is not NOWHERE and not kind.weak), None)
    if strong is not None:
        return strong
    own = next((number for number, frame in enumerate(stack) if not frame.library), len(stack))
    weak = [number for number, kind in enumerate(kinds) if kind.weak == "yes" or (kind.weak and number <= own)]
    return min(weak, key=lambda number: (rows[number], number), default=None)


def _passes_on(frame: Frame) -> bool:
    """A wrapper around what the program called: its name says nothing."""
    return frame.library and _bare(frame.function) in WRAPPERS


def _outermost(stack: Stack, at: int, row: int) -> int:
    """What the program calls is nearer to it than what that calls: ``run`` of subprocess, and not ``_wait`` in it."""
    outer = at
    while outer + 1 < len(stack) and stack[outer].library and stack[outer + 1].library:
        outer += 1
        if _passes_on(stack[outer]):
            continue
        if _row_of(stack[outer]) != row:
            break
        at = outer
    return at


def _place(call: Frame, program: Frame, kind: Kind) -> Place:
    at = f"{_base(program.file)}:{program.line}"
    name = _bare(call.function)
    return Place(f"{name} ({at})", kind, name, at)


def _bare(function: str) -> str:
    """Without the class that newer Pythons put in front."""
    return function.rpartition(".")[2] or function


def _base(file: str) -> str:
    return file.rpartition("/")[2] or file


def of_rank(rank: Rank) -> Place:
    """By its Python stack; without one, or where that says nothing, by its wait channel in the kernel."""
    waits = kind_of_channel(rank.channel) if rank.channel else NOWHERE
    if rank.stack:
        place = of_stack(rank.stack)
        if place.kind is NOWHERE and waits.kind not in (UNKNOWN, "wait"):
            return Place(f"{place.label}, {waits.words}", waits, place.call, place.program, by_channel=True)
        return place
    return Place(_state(rank), waits if rank.state != "R" else NOWHERE, by_channel=True)


def _state(rank: Rank) -> str:
    """``S in futex_wait``, ``R, busy``: all there is to say without a stack."""
    busy = ", CPU busy" if rank.busy >= MOVED_CPU else ""
    where = f" in {rank.channel}" if rank.channel and rank.state != "R" else ""
    return f"state {rank.state or '?'}{where}{busy}"


def is_stuck(rank: Rank) -> bool:
    """In state D both times, and its main thread did not wake in between; other threads may work or write."""
    return rank.state == STUCK == rank.before and rank.wakes < STILL
