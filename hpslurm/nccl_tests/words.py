"""Numbers as people read them."""

from __future__ import annotations


def count(number: int | None, what: str) -> str:
    """``2 nodes``, ``1 node``; ``? nodes`` where nobody knows."""
    return f"{'?' if number is None else number} {what}{'' if number == 1 else 's'}"


def size_name(size: int) -> str:
    """``8 GiB``: the largest unit that divides the size."""
    for unit, shift in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if size >= 1 << shift and size % (1 << shift) == 0:
            return f"{size >> shift} {unit}"
    return f"{size} B"
