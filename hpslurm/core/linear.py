"""Regular expressions whose time grows with the text and no faster, whatever the text is.

Python's engine tries every way in which repetitions can share a text between them, so ``a\\w*[^\\n]*b`` takes a
thousand times as long on a line ten times as long, and lines are written by anybody. Here every repetition without a
bound gets one, and of two neighbours that take the same signs the first goes: it changes nothing but the time.
Lines are cut to ``LONGEST`` before any expression of ``scan`` sees them.
"""

from __future__ import annotations

import re
from collections.abc import Callable

LONGEST = 4096  # characters of one line
# Times that a repetition without a bound repeats: of anything, of all but some signs, of a kind of sign or a group.
MOST_OF_ANYTHING, MOST_BUT, MOST_OF_KIND = 256, 128, 64

_SUBSUMED = re.compile(r"(?:\\[wSd]|\[[^\]\\^]{1,40}\])[*](?=\[\^\\n\]\*)")
_PART = re.compile(
    r"\\.|\[\^?\]?(?:\\.|[^\]\\]){0,400}\]|\{\d{1,3},\}|.", re.DOTALL
)  # an escape, a class, any other sign


def bounded(regex: str) -> str:
    """The expression with a bound on each of its repetitions.

    >>> print(bounded(r"a[*+]\\*b*c+?\\d{2,}(?:x|y)*\\S+"))
    a[*+]\\*b{0,64}c{1,64}?\\d{2,64}(?:x|y){0,64}\\S{1,128}
    >>> print(bounded(r"socket\\w*[^\\n]*(?:failed)"))
    socket[^\\n]{0,256}(?:failed)
    """
    parts: list[str] = []
    for part in _PART.findall(_SUBSUMED.sub("", regex)):
        least = {"*": "0", "+": "1"}.get(part) or (part[1:-2] if part.endswith(",}") else "")
        parts.append(f"{{{least},{max(_most(parts[-1]), int(least))}}}" if least and parts else part)
    return "".join(parts)


def _most(unit: str) -> int:
    if unit in (".", r"[^\n]"):
        return MOST_OF_ANYTHING
    return MOST_BUT if unit in (r"\S", r"\W", r"\D") or unit.startswith("[^") else MOST_OF_KIND


class Late:
    """An expression that is compiled when it is first used: compiling all takes longer than most scans."""

    def __init__(self, regex: str, flags: int, made: Callable[[str], str]) -> None:
        self._regex, self._flags, self._made = regex, flags, made

    def __getattr__(self, name: str) -> object:
        """A method or value of the compiled expression, which from then on is an attribute of this."""
        if name.startswith("_"):
            raise AttributeError(name)
        value: object = getattr(re.compile(self._made(self._regex), self._flags), name)
        self.__dict__[name] = value
        return value


def compile(regex: str, flags: int = 0) -> re.Pattern[str]:
    """The bounded expression, compiled late. A mistake in it is told by ``re.error`` when it is first used."""
    return Late(regex, flags, bounded)  # type: ignore[return-value]


def late(regex: str, flags: int = 0) -> re.Pattern[str]:
    """Compiled late like those, and as it stands: for one whose repetitions are harmless or must not end."""
    return Late(regex, flags, str)  # type: ignore[return-value]
