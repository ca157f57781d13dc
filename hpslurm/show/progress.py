"""What is going on, for whoever waits at a terminal."""

from __future__ import annotations

import sys

from hpslurm.core.text import clean
from hpslurm.show import render


class Progress:
    """One line on a terminal that is written over; nothing where nobody looks."""

    def __init__(self) -> None:
        self.on = sys.stderr.isatty()
        self.width = 0
        self.last = ""

    def say(self, text: str) -> None:
        if self.on and text != self.last:
            self.last = text
            text = clean(text, render.terminal_width() - 1)
            sys.stderr.write("\r" + text.ljust(self.width))
            sys.stderr.flush()
            self.width = len(text)

    def done(self) -> None:
        if self.on and self.width:
            sys.stderr.write("\r" + " " * self.width + "\r")
            sys.stderr.flush()
            self.width = 0
            self.last = ""
