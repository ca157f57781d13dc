"""The fast pass: which lines hold one of the literals?

Hyperscan where its wheel is installed, else a single expression of the standard library, which is
slower and finds the same lines.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

from hpslurm.core.linear import LONGEST

REST = 512  # bytes behind a hit that are looked at, at least
DENSE = 20_000  # hits of one literal in one file after which it is only counted

Finder = Callable[[bytearray, int, int, int], Iterator[tuple[int, int, list[int]]]]


def finder(literals: tuple[bytes, ...], *, fast: bool = True) -> Finder:
    """A function of (data, size, start, end) that gives (line start, line end, literal numbers) in order.

    A line's bounds are newlines; very long lines are cut around the hit. It counts hits: one for each file.
    """
    if fast:
        try:
            return _hyperscan(literals)
        except Exception:  # no wheel, or a processor that it does not know
            pass
    return _stdlib(literals)


def _bounds(data: bytearray, at: int, size: int) -> tuple[int, int]:
    """Of a line that is too long, its beginning where the hit stands there, else what stands around the hit."""
    low = max(0, at - LONGEST + REST)
    begin = data.rfind(b"\n", low, at) + 1 or max(0, at - LONGEST // 2)
    high = min(size, begin + LONGEST)
    stop = data.find(b"\n", at, high)
    return begin, (high if stop < 0 else stop)


@lru_cache(maxsize=4)
def _database(literals: tuple[bytes, ...]) -> Any:
    import hyperscan

    base: Any = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
    count = len(literals)
    base.compile(expressions=list(literals), ids=list(range(count)), elements=count, flags=[0] * count, literal=True)
    base.scratch = hyperscan.Scratch(base)
    return base


def _hyperscan(literals: tuple[bytes, ...]) -> Finder:
    base = _database(literals)
    seen = [0] * len(literals)

    def find(data: bytearray, size: int, start: int, end: int) -> Iterator[tuple[int, int, list[int]]]:
        hits: list[tuple[int, int]] = []
        append = hits.append

        def on_match(number: int, _from: int, to: int, _flags: int, _context: Any) -> None:
            seen[number] += 1
            if seen[number] <= DENSE:
                append((to, number))

        base.scan(memoryview(data)[start:end], match_event_handler=on_match)
        line_end = -1
        begin = stop = 0
        numbers: list[int] = []
        for to, number in hits:
            at = start + to - 1
            if at >= line_end:
                if numbers:
                    yield begin, stop, numbers
                begin, stop = _bounds(data, at, size)
                line_end, numbers = stop + 1, []
            numbers.append(number)
        if numbers:
            yield begin, stop, numbers

    return find


def _stdlib(literals: tuple[bytes, ...]) -> Finder:
    search = _expression(literals).search
    numbered = list(enumerate(literals))

    def find(data: bytearray, size: int, start: int, end: int) -> Iterator[tuple[int, int, list[int]]]:
        at = start
        while match := search(data, at, end):
            begin, stop = _bounds(data, match.end() - 1, size)
            line = bytes(data[begin : stop + 1])
            yield begin, stop, [number for number, literal in numbered if literal in line]
            at = max(stop, match.end())

    return find


@lru_cache(maxsize=4)
def _expression(literals: tuple[bytes, ...]) -> re.Pattern[bytes]:
    return re.compile(_trie(literals), re.DOTALL)


def _trie(literals: tuple[bytes, ...]) -> bytes:
    """One expression that shares beginnings, so that most positions are refused after one or two bytes."""
    root: dict[int, Any] = {}
    for literal in literals:
        node = root
        for byte in literal:
            node = node.setdefault(byte, {})
        node[-1] = {}

    def write(node: dict[int, Any]) -> bytes:
        if -1 in node:  # a shorter literal is enough
            return b""
        branches = []
        for byte, child in sorted(node.items()):
            branches.append(re.escape(bytes([byte])) + write(child))
        return branches[0] if len(branches) == 1 else b"(?:" + b"|".join(branches) + b")"

    return write(root)
