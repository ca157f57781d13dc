"""From a line to a verdict: sub-codes, register bits, words in the message, then the table's row.

The driver's own recovery action stands above all of this; ``xid`` applies it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from hpslurm.core.finding import P0, P1, P2, PRIORITIES
from hpslurm.core.values import dataclass
from hpslurm.node import xid_table
from hpslurm.node.gpus import AFTER_JOB, NO_ADVICE, REBOOT, RERUN, WATCH
from hpslurm.node.xid_lines import SXID, Line
from hpslurm.node.xid_table import Row, SubCode

INFO = "info"

R575 = 575  # driver branch from which NVLink 5 prints the newer layout
ECHOES = {43, 45, 94, 95, 144, 145, 146, 154, 159}  # often follow another code, which is then the cause
STRONGER_THAN_94 = {48, 74, 140, 149}
_BUCKETS = {
    "INVESTIGATE_PEER_DEVICE": "look at the other end of the link first",
    "INVESTIGATE_LINK_SI": "signal quality of the link",
    "INVESTIGATE_LINK_SI_AND_CABLES": "signal quality of the link, cables",
    "INVESTIGATE_SW_USER": "software or a user took the link down",
    "INVESTIGATE_SW_USER_LINK_SI": "software, a user, or signal quality",
    "INVESTIGATE_HOST": "the host",
    "SYMPATHETIC_REPORT_SOLO": "the echo of another code, unless it stands alone",
    "CHECK_NVLINK_FAILURE_FLOW": "a by-product when a link went down in the 30 s before",
}


@dataclass(frozen=True)
class Verdict:
    """What one line comes to. ``echo``: something else failed first."""

    priority: str  # P0, P1, P2 or info
    advice: str
    words: str = ""
    echo: bool = False


def weaker(priority: str, most: str) -> str:
    """The priority, but no graver than ``most``."""
    order = (*PRIORITIES, INFO)
    return order[max(order.index(priority), order.index(most))]


def decode(line: Line, row: Row | None, beside: Iterable[Line], driver: int | None) -> Verdict:
    """``beside``: other lines of the same GPU in the incident. ``driver``: branch, such as 570."""
    if line.kind == SXID:
        return _switch(line, row)
    if row is None:
        return Verdict(P1, WATCH, "not in the table: no meaning is known here")
    got = _groups(row, line)
    codes = {one.code for one in beside if one.kind == line.kind}
    if line.code == 74:
        return _nvlink4(row, got)
    if 144 <= line.code <= 150:
        return _nvlink5(line, row, got, driver)
    if line.code in (94, 95):
        return _contained(row, got)
    if line.code == 48:
        return _memory(row, got, codes)
    words = row.title
    if got.get("repair") == "Dynamic Page Retirement":
        words += "; a page, as this GPU is older than Ampere"
    if line.code == 119 and got.get("function"):
        words += f"; call {got['function']}"
    if line.code == 64 and got.get("pending"):
        return Verdict(P1, AFTER_JOB, "An earlier repair of memory still waits for the reset, so no other was recorded")
    priority = row.priority
    if line.code == 109 and codes & {119, 62, 46}:
        priority = P0
    if line.code == 38 and codes - {38, *ECHOES}:
        priority = P1
    return Verdict(priority, row.suggest, words)


def _groups(row: Row, line: Line) -> dict[str, str]:
    pattern = xid_table.pattern(row.code)
    match = pattern.search(line.text) if pattern else None
    return {name: value for name, value in match.groupdict().items() if value} if match else {}


def _switch(line: Line, row: Row | None) -> Verdict:
    """The printed word decides; the table says what the code means."""
    words = (row.note or row.title) if row else "not in the table: no meaning is known here"
    if row and row.reach == "always_fatal":
        words += "; takes down the fabric of the whole host"
    if line.word == "Fatal":
        return Verdict(P0, REBOOT, words)
    priority = row.priority if row else P1
    if priority == "word":
        priority = INFO if line.word == "Non-fatal" else P1
    if line.word == "Non-fatal":
        priority = weaker(priority, P1)
    return Verdict(priority, {P0: REBOOT, P1: WATCH}.get(priority, NO_ADVICE), words)


def _memory(row: Row, got: dict[str, str], codes: set[int]) -> Verdict:
    if 171 in codes or got.get("place") == "framebuffer":
        place = "in DRAM"
    elif 172 in codes:
        place = "in SRAM: see whether its error limit is exceeded"
    else:
        place = "whether in DRAM or SRAM could not be told"
    repair = "; its repair was recorded" if codes & {63, 177} else "; its repair failed" if 64 in codes else ""
    return Verdict(row.priority, row.suggest, f"{row.title} {place}{repair}")


def _contained(row: Row, got: dict[str, str]) -> Verdict:
    unit = f" ({got['unit'].strip()})" if got.get("unit") else ""
    advice = row.suggest
    if got.get("rst") == "Yes":
        advice = REBOOT
    elif got.get("drain") == "Yes":
        advice = AFTER_JOB
    suspect = "" if row.code == 94 else "; all programs on the GPU are suspect, results since the last checkpoint too"
    return Verdict(row.priority, advice, row.title + unit + suspect)


def set_bits(text: str) -> dict[int, set[int]]:
    """``0x10000, 0x0`` as the numbers of the bits that are set, for each register from 1 on.

    >>> set_bits("0x10000, 0x0, 0x5")
    {1: {16}, 2: set(), 3: {0, 2}}
    """
    values = [int(word, 16) for word in re.findall(r"0x[0-9A-Fa-f]{1,16}", text)]
    return {
        number: {bit for bit in range(value.bit_length()) if value >> bit & 1}
        for number, value in enumerate(values, start=1)
    }


def _nvlink4(row: Row, got: dict[str, str]) -> Verdict:
    link = f"link {got['link']}" if "link" in got else "a link"
    bits = set_bits(got.get("registers", ""))
    kinds = {one.kind for one in xid_table.registers() if bits.get(one.register, set()) & set(one.bits)} - {"ignore"}
    told = f"{row.title}, {link}" + (f": {', '.join(sorted(kinds)).replace('_', ' ')}" if kinds else "")
    if kinds and all(kind.startswith("sympathetic") for kind in kinds):
        return Verdict(P1, WATCH, f"{told}; the other end failed first: see the other GPUs and the switches", echo=True)
    if kinds == {"ecc_limit_continue"}:
        return Verdict(P1, WATCH, told)
    return Verdict(row.priority, row.suggest, told)


def _nvlink5(line: Line, row: Row, got: dict[str, str], driver: int | None) -> Verdict:
    registers = [int(word, 16) for word in re.findall(r"0x[0-9A-Fa-f]{1,16}", got.get("regs", ""))]
    if len(registers) < 2:
        return Verdict(row.priority, row.suggest, f"{row.title}; its sub-code could not be read")
    info, status = registers[:2]
    link = f", link {int(got['link'])}"
    layouts = (2, 1) if driver is None else (2,) if driver >= R575 else (1,)
    rows = [sub_code for sub_code in xid_table.sub_codes() if sub_code.code == line.code and sub_code.status == status]
    rows.sort(
        key=lambda sub_code: sub_code.unit != got.get("unit")
    )  # in the older layout two units may share their number
    for layout in layouts:
        for sub_code in rows:
            if action := _action(sub_code, info, layout):
                guess = f" (layout v{layout}, the driver's version is not known)" if driver is None else ""
                return _sub_code(sub_code, action, f"{row.title}{link}: {sub_code.unit}{guess}")
    if line.code == 150 and status in (0, 0xFFFFFFFF):
        return Verdict(P0, REBOOT, f"{row.title}{link}: firmware degraded")
    return Verdict(row.priority, row.suggest, f"{row.title}{link}; sub-code {info:#x} {status:#x} is not in the table")


def _action(row: SubCode, info: int, layout: int) -> str:
    """The action where the row matches, or empty. A row with a promoted action leaves one bit open."""
    mask, value, bit = (row.v1_mask, row.v1_value, 10) if layout == 1 else (row.v2_mask, row.v2_value, 7)
    if row.promoted:
        mask &= ~(1 << bit)
    if info & mask != value & mask:
        return ""
    return row.promoted if row.promoted and info >> bit & 1 else row.action


def _sub_code(row: SubCode, action: str, told: str) -> Verdict:
    why = _BUCKETS.get(row.then, "")
    told = f"{told}, {row.severity.replace('_', '-')}" + (f"; {why}" if why else "")
    if action == "RESET_GPU":
        return Verdict(P0, REBOOT, told, echo=row.then == "INVESTIGATE_PEER_DEVICE")
    if action == "XID_154_EVAL":
        return Verdict(P2, RERUN, told)
    return Verdict(P2 if row.severity == "non_fatal" else P1, WATCH, told)
