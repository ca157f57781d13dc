"""Foreign text made harmless: logs, reasons and environments are written by anybody."""

from __future__ import annotations

import re

_SHAPE = re.compile(r"xid\s*\(", re.IGNORECASE)
GPU_UUID = re.compile(r"GPU-[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")
LONGEST = 400  # characters of foreign text on one line of ours

# Terminal escapes start with a control character; bidirectional marks reorder what is read.
_CONTROLS = dict.fromkeys((*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029), " ")
_CONTROLS.update(dict.fromkeys((0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A), 0xFEFF), " "))
_CONTROLS.update(dict.fromkeys(range(0xD800, 0xE000), "?"))  # lone surrogates cannot be encoded


def whole(text: str) -> int | None:
    """A whole number of at most 20 ASCII digits, or None for anything else (int() takes far more)."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 20 else None


def size(count: float) -> str:
    """A number of bytes as a person reads it, never more than it is; the exact one stands in the evidence.

    >>> size(65536), size((8 << 30) - 1), size(1000), size(float("inf"))
    ('64 KiB', '7.9 GiB', '1000 bytes', 'unlimited')
    """
    if count == float("inf"):
        return "unlimited"
    for unit, shift in (("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if count >= 1 << shift:
            tenths = int(count * 10) >> shift
            return f"{tenths // 10} {unit}" if int(count) % (1 << shift) == 0 else f"{tenths / 10} {unit}"
    return f"{count:.0f} bytes"


def clean(text: str, longest: int = LONGEST) -> str:
    """One line without control characters, cut to ``longest`` characters.

    ``Xid (`` loses its shape: HyperPod's health agent reads logs, and a quoted line of the
    GPU driver, or a process that calls itself so, must not cost a healthy node its life.
    """
    line = text[: longest * 4].translate(_CONTROLS).strip()
    if "xid" in line.lower():
        line = _SHAPE.sub("XID code (", line)
    return line if len(line) <= longest else line[: longest - 1] + "…"
