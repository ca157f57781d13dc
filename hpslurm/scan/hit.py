"""An event in the making, the lines around it, and the table of checks that may refuse or sharpen it."""

from __future__ import annotations

import re
from collections.abc import Callable

from hpslurm.core.linear import LONGEST
from hpslurm.scan import model, prefix


class Hit:
    """An event in the making. ``text`` is the line without its prefix."""

    def __init__(self, pattern: str, role: str, cause: str, weight: int, line: str, mark: prefix.Mark) -> None:
        self.pattern, self.role, self.cause, self.weight = pattern, role, cause, weight
        self.line, self.text = line, mark.text
        self.rank, self.local_rank, self.host, self.pid, self.time = (
            mark.rank,
            mark.local_rank,
            mark.host,
            mark.pid,
            mark.time,
        )
        self.gpu = ""
        self.peer = ""
        self.facts: dict[str, str] = {}

    def turn(self, row: model.Turn | str) -> None:
        """Make of the line what a row of reasoning.toml says."""
        turn = model.turns()[row] if isinstance(row, str) else row
        self.cause = turn.cause or self.cause
        self.role = turn.role or self.role
        self.weight = (self.weight if turn.weight is None else turn.weight) - turn.less
        self.weight = self.weight if turn.at_most is None else min(self.weight, turn.at_most)

    def turn_by(self, check: str, text: str) -> bool:
        """Make of the line what the first row of a check says whose words stand in the text."""
        turn = model.turn_by(check, text)
        if turn is not None:
            self.turn(turn)
        return turn is not None


class Context:
    """The lines around a hit, in the block that is in memory."""

    def __init__(self, data: bytearray, size: int, begin: int, stop: int) -> None:
        self._data, self._size, self._begin, self._stop = data, size, begin, stop

    def before(self, count: int, most: int = 8192) -> list[str]:
        """The nearest line first."""
        piece = bytes(self._data[max(0, self._begin - most) : self._begin]).decode("utf-8", "replace")
        return [prefix.plain(line[:LONGEST]) for line in piece.splitlines()[::-1][:count]]

    def after(self, count: int, most: int = 32768) -> list[str]:
        piece = bytes(self._data[self._stop + 1 : min(self._size, self._stop + 1 + most)]).decode("utf-8", "replace")
        return [prefix.plain(line[:LONGEST]) for line in piece.splitlines()[:count]]

    def around(self, count: int) -> str:
        return "\n".join([*self.before(count), *self.after(count)])


MOST_FEW = 3  # lines that agree by chance


Check = Callable[[Hit, "re.Match[str]", Context], bool]


CHECKS: dict[str, Check] = {}


def check(name: str) -> Callable[[Check], Check]:
    def keep(function: Check) -> Check:
        CHECKS[name] = function
        return function

    return keep


NEIGHBOURS = 12  # lines above that speak of the same process, if they all name one rank


def rank_of_neighbours(context: Context) -> int | None:
    """The rank in front of all lines above, where they have one and it is the same."""
    lines = [line for line in context.before(NEIGHBOURS) if line.strip()]
    ranks = {prefix.read(line).rank for line in lines}
    return ranks.pop() if len(lines) >= MOST_FEW and len(ranks) == 1 else None
