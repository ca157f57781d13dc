"""What is going on, for whoever waits at a terminal for longer than two seconds."""

from __future__ import annotations

import os
import sys
import threading
import time
from types import TracebackType

from hpslurm.core.text import clean
from hpslurm.show import render

AFTER = 2.0  # seconds until the first sign of life
EVERY = 0.5


class Progress:
    """One line on stderr that is written over, with what is done and for how long; nothing where nobody looks.

    A thread of its own writes it, because what takes long seldom says a word. It writes to the file itself: Python's
    lock on stderr would be held for ever in a child that is forked meanwhile.
    """

    def __init__(self, text: str = "", *, wanted: bool = True, to: int | None = None, after: float = AFTER) -> None:
        self.text = text
        self.fd = to if to is not None else 2
        self.on = wanted and (os.isatty(self.fd) if to is not None else sys.stderr.isatty())
        self.began = time.monotonic()
        self.after = after
        self.over = threading.Event()
        self.drawn = 0  # columns
        self.thread: threading.Thread | None = None
        if self.on and text:
            self._start()

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.done()

    def say(self, text: str) -> None:
        """What is done now."""
        self.text = text
        if self.on and self.thread is None:
            self._start()

    def done(self) -> None:
        """Take the line away; another ``say`` begins anew."""
        if self.thread:
            self.over.set()
            self.thread.join()
            self.thread = None
            self.over.clear()

    def _start(self) -> None:
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        wait = self.began + self.after - time.monotonic()
        while not self.over.wait(max(0.0, wait)):
            self._draw(f"{clean(self.text)} ({time.monotonic() - self.began:.0f} s)")
            wait = EVERY
        if self.drawn:
            self._write("\r" + " " * self.drawn + "\r")
            self.drawn = 0

    def _draw(self, text: str) -> None:
        text = clean(text, render.terminal_width() - 1)
        self._write("\r" + text.ljust(self.drawn))
        self.drawn = len(text)

    def _write(self, text: str) -> None:
        try:
            os.write(self.fd, text.encode("utf-8", "replace"))
        except OSError:  # the terminal is gone; the work is not
            return
