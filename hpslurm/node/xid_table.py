"""What the XID and SXID codes mean: rows of the tables, read when a code was seen.

``row(79)`` and ``switch_row(20034)`` serve ``explain`` and ``scan`` too. A code that is
in no table has no row, and no meaning is invented for it.
"""

from __future__ import annotations

import re
from functools import cache

from hpslurm.core import linear, toml
from hpslurm.core.values import dataclass, field, fields

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing costs a hook as much as several probes
    from typing import Any


@dataclass(frozen=True)
class Row:
    """One code. ``priority`` may be ``info`` (never a finding), or ``word`` (an SXID whose printed word decides)."""

    id: str
    code: int
    name: str
    priority: str
    title: str
    reference: str
    example: str
    kind: str = ""  # application, driver, hardware, memory, nvlink, nvswitch, thermal, informational
    origin: str = "hardware"
    action: str = ""
    then: str = ""
    suggest: str = ""
    cause: str = ""
    proof: int = 0  # how directly the code proves its cause, 0 to 100
    note: str = ""
    hyperpod: str = ""  # what is publicly known of the health agent's reaction
    reach: str = ""  # of an SXID
    pattern: str = ""
    applies: tuple[str, ...] = field(default=())


@dataclass(frozen=True)
class SubCode:
    """One row of the NVLink 5 table."""

    code: int
    unit: str
    v1_mask: int
    v1_value: int
    v2_mask: int
    v2_value: int
    status: int
    action: str
    then: str
    severity: str
    origin: str
    example: str
    promoted: str = ""


@dataclass(frozen=True)
class Bits:
    """One kind of bits in a register of XID 74."""

    register: int
    kind: str
    bits: tuple[int, ...]
    example: str


def _row(raw: dict[str, Any]) -> Row:
    raw = {**raw, "kind": raw.get("class", "nvswitch"), "applies": tuple(raw.get("applies", ()))}
    return Row(**{one.name: raw[one.name] for one in fields(Row) if one.name in raw})


@cache
def xids() -> dict[int, Row]:
    return {raw["code"]: _row(raw) for raw in toml.table("xid")}


@cache
def sxids() -> dict[int, Row]:
    return {raw["code"]: _row(raw) for raw in toml.table("sxid")}


@cache
def sub_codes() -> tuple[SubCode, ...]:
    return tuple(SubCode(**raw) for raw in toml.table("nvlink5"))


@cache
def registers() -> tuple[Bits, ...]:
    return tuple(Bits(**{**raw, "bits": tuple(raw["bits"])}) for raw in toml.table("nvlink4"))


@cache
def kernel_rows() -> tuple[dict[str, str], ...]:
    """Lines without a number: id, priority, title, suggest, reference, mark, pattern, example."""
    return tuple(toml.table("gpu_kernel"))


def row(code: int) -> Row | None:
    """The row of an XID, or None where the table does not have it."""
    return xids().get(code)


def switch_row(code: int) -> Row | None:
    """The row of an SXID, or None where the table does not have it."""
    return sxids().get(code)


@cache
def pattern(code: int) -> re.Pattern[str] | None:
    """What to read out of the message of an XID."""
    known = row(code)
    return linear.compile(known.pattern) if known and known.pattern else None
