"""Logs that a person names or a job wrote, whole or from both ends, read with no more rights than are needed.

Root reads a file as whoever owns the first part of its path that is not root's: what lies in alice's folder is read
as alice, so no link of hers leads to what she may not read. Packed logs are unpacked; what is no text is left out.
"""

from __future__ import annotations

import io
import os
import pwd
import time
from collections.abc import Iterable, Sequence
from functools import cached_property

from hpslurm.core.text import clean
from hpslurm.core.values import dataclass, replace
from hpslurm.scan import joblog, read
from hpslurm.scan.collect import Collector
from hpslurm.sources import userfile
from hpslurm.sources.userfile import Taken

LARGEST = 64 << 20  # bytes of one log that are looked at, half of them from either end
ALL = 256 << 20  # bytes of all logs together
SECONDS = 60.0  # for one log
MOST = 2000  # files of one folder


@dataclass(frozen=True)
class Log:
    """One log as it was read; a small one is all head. ``note`` says what is missing of it, or is empty."""

    path: str
    taken: Taken
    note: str = ""

    def line(self, number: int) -> str:
        """A line as it stands there; negative numbers count from the end, as ``scan`` gives them. Empty: not there."""
        lines, at = (self._lines[0], number - 1) if number > 0 else (self._lines[1], number)
        return lines[at].decode("utf-8", "replace") if -len(lines) <= at < len(lines) else ""

    @cached_property
    def _lines(self) -> tuple[list[bytes], list[bytes]]:
        head, tail = (piece.removesuffix(b"\n").split(b"\n") for piece in (self.taken.head, self.taken.tail))
        return head, tail if self.taken.tail else head

    @property
    def text(self) -> str:
        return (self.taken.head + self.taken.tail).decode("utf-8", "replace")


def files(paths: Iterable[str]) -> list[str]:
    """Absolute paths of files, and of those below folders."""
    expanded = []
    for path in map(os.path.abspath, paths):
        expanded += read.files_below(path, MOST) if os.path.isdir(path) and not os.path.islink(path) else [path]
    return list(dict.fromkeys(expanded))


def look(paths: Sequence[str], job: joblog.Job | None, collector: Collector) -> tuple[list[Log], list[tuple[str, str]]]:
    """The logs, and what could not be read, with the reason. Events go to ``collector``.

    ``job``: its own output, which must be its user's. Without, any file.
    """
    logs, missing = [], []
    limit = max(1 << 20, min(LARGEST, ALL // max(1, len(paths))))
    for path in paths:
        taken = _take(path, job, limit)
        if taken.note and not taken.head:
            missing.append((path, taken.note.removeprefix(f"{clean(path, 200)}: ")))
            continue
        try:
            taken, note = _unpacked(path, taken, limit)
        except (OSError, EOFError, ValueError, read.Unreadable) as error:
            missing.append((path, f"packed and damaged, or not to be unpacked here: {clean(str(error))}"))
            continue
        if collector.dump(io.BytesIO(taken.head), path):
            missing.append((path, "a dump, no text that could be masked; its events are in errors.txt"))
        elif b"\0" in taken.head[:8192] or taken.head[:1] == b"\x80":
            missing.append((path, "no text, so it cannot be masked"))
        else:
            notes = joblog.scan(collector, path, taken, time.monotonic() + SECONDS)
            logs.append(Log(path, taken, "; ".join(filter(None, [note, taken.note, *notes]))))
    return logs, missing


def _take(path: str, job: joblog.Job | None, limit: int) -> Taken:
    me = os.geteuid()
    if me == 0 and job is not None and job.uid > 0:
        return userfile.take(path, job.uid, job.gid, user=job.user, limit=limit, seconds=SECONDS)
    try:
        uid = owner(path) if me == 0 else me
    except OSError as error:
        return Taken(note=f"{clean(path, 200)}: {error.strerror}")
    try:
        user = pwd.getpwuid(uid)
    except KeyError:
        return userfile.take(path, uid, os.lstat(path).st_gid, limit=limit, seconds=SECONDS, own=False)
    return userfile.take(path, uid, user.pw_gid, user=user.pw_name, limit=limit, seconds=SECONDS, own=False)


def owner(path: str) -> int:
    """Whoever is the first on the way from / to the file that is not root; root where all of it is root's."""
    parts = path.strip("/").split("/")
    owners = [os.lstat("/" + "/".join(parts[: count + 1])).st_uid for count in range(len(parts))]
    return next((uid for uid in owners if uid), 0)


def _unpacked(path: str, taken: Taken, limit: int) -> tuple[Taken, str]:
    raw = io.BytesIO(taken.head)
    stream = read.decompressed(path, raw, taken.head[:6])
    if stream is raw:
        return taken, ""
    if not taken.whole or taken.tail:
        raise ValueError(f"{taken.size} bytes, more than are read at once")
    data = stream.read(limit + 1)
    note = f"packed; of more than {limit} bytes the first are here" if len(data) > limit else "unpacked"
    return replace(taken, head=data[:limit], size=len(data)), note


def shares(sizes: Sequence[int], budget: int) -> list[int]:
    """How much of each may stay: small ones whole, and the large ones the same of what is left."""
    given = [0] * len(sizes)
    left = budget
    for done, at in enumerate(sorted(range(len(sizes)), key=lambda one: sizes[one])):
        given[at] = min(sizes[at], left // (len(sizes) - done))
        left -= given[at]
    return given
