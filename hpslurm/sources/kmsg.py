"""The door to the kernel's log: /dev/kmsg, record by record, without waiting.

Only records of the kernel itself count (facility 0): any user can write a line that
looks like one into a syslog file, and root into /dev/kmsg, but not into that facility.
The log is a ring: where it does not begin with record 0, or one is missing, older lines
are gone, and that is part of the answer.
"""

from __future__ import annotations

import os
import re
import stat
from functools import lru_cache

from hpslurm.core.probe import Unknown
from hpslurm.core.values import dataclass
from hpslurm.sources.host import Host

PATH = "/dev/kmsg"
BOOT_ID = "/proc/sys/kernel/random/boot_id"
RECORD = 8192  # bytes; a smaller buffer gets EINVAL
MOST_READS = 1 << 18
MOST_BYTES = 32 << 20  # the ring of a large machine is 16 MiB at most


@dataclass(frozen=True)
class Record:
    """One line of the kernel. ``time`` is seconds since the epoch, ``boot`` seconds since boot."""

    seq: int
    boot: float
    time: float
    level: int  # 0 emergency to 7 debug
    text: str


@dataclass(frozen=True)
class Log:
    """The whole log as it was read; ``matching`` makes records of the few lines that matter."""

    raw: tuple[bytes, ...]
    booted: float  # seconds since the epoch
    boot_id: str = ""

    def matching(self, *words: bytes) -> list[Record]:
        """Records of the kernel whose text holds one of the words, oldest first."""
        records = []
        for line in self.raw:
            if any(word in line for word in words) and (record := self._record(line)):
                records.append(record)
        return records

    def _record(self, line: bytes) -> Record | None:
        prefix, seq, usec = head(line)
        if not 0 <= prefix < 8:  # facility * 8 + level: not the kernel's own
            return None
        body = line.partition(b";")[2].split(b"\n", 1)[0].decode("utf-8", "replace")
        return Record(seq, usec / 1e6, self.booted + usec / 1e6, prefix, body)

    @property
    def begins(self) -> float:
        """Seconds since the epoch from which on no line is missing; 0 where this boot is here from its start."""
        if self.raw and (head(self.raw[0])[1], head(self.raw[-1])[1]) == (0, len(self.raw) - 1):
            return 0.0
        began, expected = 0.0, 0
        for line in self.raw:
            prefix, seq, usec = head(line)
            if prefix >= 0:
                if seq != expected:
                    began = self.booted + usec / 1e6
                expected = seq + 1
        return began


def head(line: bytes) -> tuple[int, int, int]:
    """Facility and level, number, microseconds since boot; (-1, -1, -1) where it is no record.

    >>> head(b"6,339,5140900,-;NET: Registered PF_INET6 protocol family")
    (6, 339, 5140900)
    >>> head(b" SUBSYSTEM=acpi")
    (-1, -1, -1)
    """
    words = line.partition(b";")[0].split(b",", 3)[:3]
    if len(words) < 3 or not all(word.isdigit() and len(word) < 20 for word in words):
        return -1, -1, -1
    return int(words[0]), int(words[1]), int(words[2])


@lru_cache(maxsize=4)  # several probes of one look read it
def read(host: Host) -> Log:
    """All records that are there now. Raises OSError as open() does (EPERM: only root may), or Unknown."""
    handle = os.open(host.path(PATH), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        raw = _saved(handle) if stat.S_ISREG(os.fstat(handle).st_mode) else _device(handle)
    finally:
        os.close(handle)
    return Log(tuple(raw), booted(host), _boot_id(host))


def _device(handle: int) -> list[bytes]:
    raw: list[bytes] = []
    size = 0
    os.lseek(handle, 0, os.SEEK_SET)  # the oldest record, whatever someone else has cleared
    for _ in range(MOST_READS):  # a driver that prints without end must not hold us
        try:
            record = os.read(handle, RECORD)
        except BlockingIOError:
            break
        except BrokenPipeError:  # overwritten while we read: the numbers show the gap
            continue
        raw.append(record)
        size += len(record)
        if not record or size > MOST_BYTES:
            break
    return raw


def _saved(handle: int) -> list[bytes]:
    """A file of records, as a saved machine has it: the newest ``MOST_BYTES`` of it."""
    size = os.fstat(handle).st_size
    if size > MOST_BYTES:
        os.lseek(handle, size - MOST_BYTES, os.SEEK_SET)
    parts = []
    while part := os.read(handle, 1 << 20):
        parts.append(part)
    lines = b"".join(parts).split(b"\n")
    return [line for line in lines[1 if size > MOST_BYTES else 0 :] if line[:1].isdigit()]


def booted(host: Host) -> float:
    """When this machine was booted, in seconds since the epoch. Raises Unknown."""
    seconds = btime(host.read("/proc/stat"))
    if seconds is None:
        raise Unknown("/proc/stat has no btime: times of the kernel log are not known")
    return seconds


def btime(stat_text: str) -> float | None:
    """When the machine was booted, of ``/proc/stat``, or None.

    >>> btime('''
    ... ctxt 1990473
    ... btime 1756720000
    ... processes 2915
    ... ''')
    1756720000.0
    """
    match = re.search(r"^btime[ \t]+([0-9]{1,20})[ \t]*$", stat_text, re.M)
    return float(match[1]) if match else None


def _boot_id(host: Host) -> str:
    try:
        return host.word(BOOT_ID) or ""
    except OSError:
        return ""
