"""Lists of node names: folded as Slurm writes them, ``ip-10-1-0-[3,7]``, and unfolded again.

ClusterShell does both, and is imported only when it is needed: hooks and containers do without.
Names can be anybody's text. A group resolver would run a program for one with @ in it, so there
is none here; and ClusterShell writes every number of a range out before anybody can count them,
so a list is measured first.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing costs a hook as much as several probes
    from typing import Any

MOST = 65_536  # names in one list; scontrol 22.05 refuses a range that is longer by one
_OPERATORS = frozenset("!&^")  # of ClusterShell, which would take names away; Slurm has none


class NoNodeList(ValueError):
    """The text is no list of nodes, or one of too many; says why."""


def fold(names: Iterable[str]) -> str:
    """One list of all names; what no list can hold stands behind it as it is."""
    names = tuple(dict.fromkeys(names))
    if len(names) < 2:  # inside a container there is one name, and no ClusterShell
        return "".join(names)
    return _folded(names)


@lru_cache(maxsize=16)  # a screen names the same thousands several times
def _folded(names: tuple[str, ...]) -> str:
    folded = _node_set("")
    odd = []
    for name in _ranges(names):
        try:
            if not _OPERATORS.isdisjoint(name):
                raise NoNodeList("no name")
            folded.update(_node_set(name))
        except NoNodeList:
            odd.append(name)
    return ",".join([*([str(folded)] if folded else []), *odd])


def unfold(text: str, most: int = MOST) -> list[str]:
    """All names of a list, sorted. Raises NoNodeList."""
    names = _node_set(text)
    if len(names) > most:
        raise NoNodeList(f"{len(names)} names, {most} at most")
    return list(names)


def names_in(text: str, most: int = MOST) -> list[str]:
    """The same for text that may be cut off or anybody's: no name where it is no list."""
    try:
        return unfold(text, most)
    except NoNodeList:
        return []


def _node_set(text: str) -> Any:
    from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet

    size = _size(text)
    if size > MOST:
        raise NoNodeList(f"{size} names, {MOST} at most")
    try:
        return NodeSet(text, resolver=RESOLVER_NOGROUP)
    except Exception as error:
        raise NoNodeList(str(error)) from error


# A name with its ranges, up to one of ClusterShell's operators; a bracket that nothing closes goes to the end.
_PATTERN = re.compile(r"(?:[^\[,!&^]|\[[^\]]*\]?)+")
_BRACKET = re.compile(r"\[([^\]]*)(\]?)")
_RANGE = re.compile(r"\s*([0-9]{1,18})\s*(?:-\s*([0-9]{1,18})\s*(?:/\s*([0-9]{1,18})\s*)?)?")


def _size(text: str) -> int:
    """How many names the list has at most, by its ranges alone. Raises NoNodeList for a range that is none.

    It stops at a number that can be printed: of some hundred brackets, the product cannot.
    """
    size = sum(math.prod(map(_bracket_size, _BRACKET.finditer(pattern))) for pattern in _PATTERN.findall(text))
    return min(size, 10**18)


def _bracket_size(bracket: re.Match[str]) -> int:
    if not bracket[2]:
        raise NoNodeList(f"missing bracket: {bracket[0]!r}")
    return sum(map(_range_size, bracket[1].split(",")))


def _range_size(text: str) -> int:
    """Only plain digits are let through: for ClusterShell, ``-9_000_000-9_000_000`` is a range, too."""
    numbers = _RANGE.fullmatch(text)
    if not numbers:
        raise NoNodeList(f"bad range: {text!r}")
    first, last, step = int(numbers[1]), int(numbers[2] or numbers[1]), int(numbers[3] or 1)
    return max(0, last - first) // max(1, step) + 1


_NUMBERED = re.compile(r"([A-Za-z0-9._-]*[A-Za-z._-])([0-9]{1,9})")


def _ranges(names: Iterable[str]) -> Iterator[str]:
    """Names that differ in their last number as one range: ClusterShell takes 0.1 ms for each name, 10,000 a second."""
    numbers: dict[tuple[str, int], set[int]] = {}
    for name in names:
        match = _NUMBERED.fullmatch(name)
        if not match:
            yield name
            continue
        digits = match[2]
        width = len(digits) if digits[0] == "0" and len(digits) > 1 else 0
        numbers.setdefault((match[1], width), set()).add(int(digits))
    for (prefix, width), numbers_of in numbers.items():
        parts = []
        first = last = -1
        for number in sorted(numbers_of):
            if number != last + 1 or first < 0:
                if first >= 0:
                    parts.append((first, last))
                first = number
            last = number
        parts.append((first, last))
        text = ",".join(f"{a:0{width}}" if a == b else f"{a:0{width}}-{b:0{width}}" for a, b in parts)
        yield f"{prefix}[{text}]"


_NEVER = _OPERATORS | {"@"}
_PIECE = re.compile(r"\[[^\]]*(?:\]|$)|[^\[,]+|,")
MOST_STARS = 4  # in one list; each may stand for any part of a name


def trouble(text: str) -> str:
    """Why ``names`` can do nothing with this list, or empty. Without ClusterShell: hooks ask."""
    if not text or any(sign.isspace() or not sign.isprintable() or sign in _NEVER for sign in text):
        return "it is empty, or has a blank, a control character or one of !&^@ in it"
    try:
        size = _size(text)
    except NoNodeList as error:
        return str(error)
    if size > MOST:
        return f"{size} names, {MOST} at most"
    if text.count("*") > MOST_STARS:
        return f"{text.count('*')} stars, {MOST_STARS} at most"
    return "" if all(_pieces(text)) else "a name is empty"


def names(text: str, name: str) -> bool:
    """Whether a list that ``trouble`` finds nothing wrong with names this node.

    As Slurm counts, n[1-3] is not n01 and n[01-03] is not n1. A star stands for any characters.

    >>> [names("gpu-[1-64],ip-10-1-*", one) for one in ("gpu-7", "gpu-07", "gpu-65", "ip-10-1-0-3")]
    [True, False, False, True]
    """
    return any(_fits(pieces, name) for pieces in _pieces(text))


def _pieces(text: str) -> list[list[str]]:
    """Each pattern of a list, cut into plain text and brackets."""
    patterns: list[list[str]] = [[]]
    for piece in _PIECE.finditer(text):
        if piece[0] == ",":
            patterns.append([])
        else:
            patterns[-1].append(piece[0])
    return patterns


def _fits(pieces: list[str], name: str) -> bool:
    parts = [r"(\d{1,18})" if one[0] == "[" else re.escape(one).replace(r"\*", ".*") for one in pieces]
    match = re.fullmatch("".join(parts), name, re.ASCII)
    ranges = [one[1:-1] for one in pieces if one[0] == "["]
    return match is not None and all(map(_in_bracket, ranges, match.groups()))


def _in_bracket(bracket: str, digits: str) -> bool:
    return any(_in_range(part, digits) for part in bracket.split(","))


def _in_range(text: str, digits: str) -> bool:
    numbers = _RANGE.fullmatch(text)
    if not numbers:
        return False
    width = len(numbers[1]) if numbers[1][0] == "0" else 1
    first, last, step = int(numbers[1]), int(numbers[2] or numbers[1]), int(numbers[3] or 1)
    number = int(digits)
    return first <= number <= last and (number - first) % max(1, step) == 0 and digits == f"{number:0{width}}"
