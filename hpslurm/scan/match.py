"""The fast pass: which lines hold one of the literals?

Hyperscan where its wheel is installed, else the standard library, which is slower and finds the same lines.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

from hpslurm.core.linear import LONGEST

REST = 512  # bytes behind a hit that are looked at, at least
BIG = 300 << 20  # bytes that take the standard library about a second
DENSE = 20_000  # hits of one literal in one file after which it is only counted

Finder = Callable[[bytearray, int, int, int], Iterator[tuple[int, int, list[int]]]]


def finder(literals: tuple[bytes, ...], *, fast: bool = True) -> Finder:
    """A function of (data, size, start, end) that gives (line start, line end, literal numbers) in order.

    A line's bounds are newlines; very long lines are cut around the hit. It counts hits: one for each file.
    """
    if not fast:
        return _stdlib(literals)
    small = _small(literals)
    made: list[Finder] = []

    def find(data: bytearray, size: int, start: int, end: int) -> Iterator[tuple[int, int, list[int]]]:
        if not made and small.has_room(end - start):
            return _by_line(small.hits(data, start, end), data, size, start)
        if not made:
            made.append(_large(literals))
        return made[0](data, size, start, end)

    return find


def _large(literals: tuple[bytes, ...]) -> Finder:
    try:
        return _hyperscan(literals)
    except Exception:  # no wheel, or a processor that it does not know
        return _stdlib(literals)


def hint(size: int) -> str:
    """What would have made the reading of ``size`` bytes faster; empty where nothing would, or it was quick anyway."""
    if size < BIG:
        return ""
    from importlib.util import find_spec

    if find_spec("hyperscan"):
        return ""
    return "the module hyperscan reads such logs about three times as fast: pip install hyperscan"


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
        return _by_line(hits, data, size, start)

    return find


def _by_line(
    hits: list[tuple[int, int]], data: bytearray, size: int, start: int
) -> Iterator[tuple[int, int, list[int]]]:
    """The lines of these hits: each where a literal ends, counted from ``start``, and its number."""
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


SMALL = 64 << 10  # bytes, of all files together, for which making Hyperscan's database takes longer than this
GRAM = 3  # bytes


class _Small:
    """Little text: only literals whose first bytes stand in it are looked for."""

    def __init__(self, literals: tuple[bytes, ...]) -> None:
        self._by_gram: dict[bytes, list[int]] = {}
        self._short: list[int] = []
        self._literals = literals
        self._left = SMALL
        for number, literal in enumerate(literals):
            of = self._short if len(literal) < GRAM else self._by_gram.setdefault(literal[:GRAM], [])
            of.append(number)

    def has_room(self, size: int) -> bool:
        """Whether so many bytes more are still little; takes them off what is left."""
        self._left -= size
        return self._left > 0

    def hits(self, data: bytearray, start: int, end: int) -> list[tuple[int, int]]:
        text = bytes(data[start:end])
        grams = {text[at : at + GRAM] for at in range(len(text) - GRAM + 1)}
        numbers = [number for gram in self._by_gram.keys() & grams for number in self._by_gram[gram]] + self._short
        hits = []
        for number in numbers:
            literal = self._literals[number]
            at = text.find(literal)
            while at >= 0:
                hits.append((at + len(literal), number))
                at = text.find(literal, at + 1)
        return sorted(hits)


@lru_cache(maxsize=4)
def _small(literals: tuple[bytes, ...]) -> _Small:
    return _Small(literals)


DIGITS = b"0123456789"
FEW_LINES = 2_000  # of a block; so many shapes are learnt in any case
MOST_SHAPES = 100_000  # of lines that are remembered, for all files together


def _stdlib(literals: tuple[bytes, ...]) -> Finder:
    """Looks at each shape of line once: logs repeat themselves, but for their digits."""
    shapes = _Shapes(literals)
    words = _Words(literals)

    def within(data: bytearray, size: int, at: int, end: int) -> Iterator[tuple[int, int, list[int]]]:
        """Goes from hit to hit; of lines too long to be looked at in one piece, too."""
        while match := words.search(data, at, end):
            begin, stop = _bounds(data, match.end() - 1, size)
            yield begin, stop, words.of(bytes(data[begin : stop + 1]))
            at = max(stop, match.end())

    def find(data: bytearray, size: int, start: int, end: int) -> Iterator[tuple[int, int, list[int]]]:
        text = bytes(data[start:end])
        bare = text.translate(None, DIGITS).split(b"\n")
        if shapes.are_many(bare):
            yield from within(data, size, start, end)
            return
        if not shapes.learn(bare):
            return
        known = shapes.known
        begin = start
        for line, shape in zip(text.split(b"\n"), bare, strict=True):
            stop = begin + len(line)
            if candidates := known[shape]:
                if len(line) > LONGEST:
                    yield from within(data, size, begin, stop)
                elif numbers := [number for number in candidates if literals[number] in line + b"\n"]:
                    yield begin, stop, numbers
            begin = stop + 1

    return find


class _Words:
    """Which literals stand in a text."""

    def __init__(self, literals: tuple[bytes, ...]) -> None:
        self.search = _expression(literals).search
        self._longer: dict[bytes, list[tuple[int, bytes]]] = {}  # by the shortest that they begin with
        for number, literal in enumerate(literals):
            shortest = self.search(literal)
            self._longer.setdefault(shortest[0] if shortest else literal, []).append((number, literal))

    def of(self, text: bytes) -> list[int]:
        """Their numbers, in order."""
        numbers: set[int] = set()
        at = 0
        while match := self.search(text, at):
            at = match.start()
            numbers.update(number for number, literal in self._longer[match[0]] if text.startswith(literal, at))
            at += 1
        return sorted(numbers)


class _Shapes:
    """Which literals a line may hold, by what is left of it without its digits."""

    def __init__(self, literals: tuple[bytes, ...]) -> None:
        bare: dict[bytes, list[int]] = {}
        for number, literal in enumerate(literals):
            bare.setdefault(literal.translate(None, DIGITS), []).append(number)
        self._numbers = list(bare.values())
        self._words = _Words(tuple(bare))
        self.known: dict[bytes, list[int]] = {}

    def are_many(self, lines: list[bytes]) -> bool:
        """Whether most of these differ from all that were seen and from each other, so that shapes spare no work."""
        return len(lines) > FEW_LINES and len(set(lines) - self.known.keys()) > len(lines) // 4

    def learn(self, lines: list[bytes]) -> bool:
        """Afterwards all of these are known. False where none of them can hold a literal."""
        if len(self.known) > MOST_SHAPES:
            self.known.clear()
        shapes = set(lines)
        for shape in shapes - self.known.keys():
            words = self._words.of(shape + b"\n")  # some literals end with it
            self.known[shape] = sorted(number for word in words for number in self._numbers[word])
        return any(map(self.known.__getitem__, shapes))


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
        branches = [(byte, re.escape(bytes([byte])) + write(child)) for byte, child in sorted(node.items())]
        return branches[0][1] if len(branches) == 1 else b"(?:" + _either(branches) + b")"

    return write(root)


FEW = 3  # branches that are tried one after the other


def _either(branches: list[tuple[int, bytes]]) -> bytes:
    """One of these, by their first bytes: halved again and again, since ``re`` has no table to jump by."""
    if len(branches) <= FEW:
        return b"|".join(branch for _, branch in branches)
    half = len(branches) // 2
    return b"|".join(
        b"(?=[" + b"".join(re.escape(bytes([byte])) for byte, _ in part) + b"])(?:" + _either(part) + b")"
        for part in (branches[:half], branches[half:])
    )
