"""Every part for itself, so that one that fails takes no other along."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

import click

from hpslurm.bundle.archive import KEPT, Part
from hpslurm.core import probe
from hpslurm.core.text import clean
from hpslurm.show.render import as_wide_as

T = TypeVar("T")
WIDTH = 120  # columns of the reports


class Parts:
    """Collects parts, and why others are missing."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.say = say
        self.parts: list[Part] = []
        self.missing: list[tuple[str, str]] = []

    def add(self, name: str, text: str, source: str, kind: str = KEPT, left_out: int = 0, note: str = "") -> None:
        self.parts.append(Part(name, text if text.endswith("\n") else text + "\n", source, kind, left_out, note))

    def miss(self, what: str, why: str) -> None:
        self.missing.append((what, clean(why)))

    def tried(self, what: str, make: Callable[[], T], otherwise: T) -> T:
        """What it makes; where it fails, why is kept and the bundle goes on."""
        self.say(what)
        try:
            return make()
        except Exception as error:
            self.miss(what, probe.reason(error))
            return otherwise

    def text(self, name: str, source: str, make: Callable[[], str], kind: str = KEPT) -> None:
        if text := self.tried(name, make, ""):
            self.add(name, text, source, kind)

    def report(self, name: str, source: str, make: Callable[[], Iterable[str]]) -> None:
        """Lines that people see, without colours, and as wide whatever terminal this was typed on."""

        def plain() -> str:
            with as_wide_as(WIDTH):
                return click.unstyle("\n".join(make()))

        self.text(name, source, plain)
