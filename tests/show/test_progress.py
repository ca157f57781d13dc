"""The line of progress: on a terminal, after a while, and gone at the end."""

from __future__ import annotations

import os
import pty
import time
from collections.abc import Iterator

import pytest

from hpslurm.show.progress import AFTER, Progress


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    """Our end and theirs."""
    ours, theirs = pty.openpty()
    os.set_blocking(ours, False)
    yield ours, theirs
    os.close(ours)
    os.close(theirs)


def written(fd: int) -> str:
    try:
        return os.read(fd, 1 << 16).decode()
    except BlockingIOError:
        return ""


def test_what_takes_long_says_what_it_does_and_the_line_is_gone_at_the_end(terminal: tuple[int, int]) -> None:
    ours, theirs = terminal
    with Progress("asking Slurm", to=theirs, after=0.0) as progress:
        progress.say("waiting for \x1b[31mAWS")
        text, end = "", time.monotonic() + 5
        while "waiting for" not in text and time.monotonic() < end:
            text += written(ours)
            time.sleep(0.01)
    assert "waiting for  [31mAWS (" in text
    assert "\x1b" not in text
    assert written(ours).endswith("\r")


def test_what_is_quick_says_nothing(terminal: tuple[int, int]) -> None:
    ours, theirs = terminal
    with Progress("asking Slurm", to=theirs):
        pass
    assert ("", 2.0) == (written(ours), AFTER)


def test_into_a_pipe_nothing_is_said() -> None:
    ours, theirs = os.pipe()
    with Progress("asking Slurm", to=theirs, after=0.0):
        time.sleep(0.05)
    os.close(theirs)
    assert b"" == os.read(ours, 10)
    os.close(ours)
