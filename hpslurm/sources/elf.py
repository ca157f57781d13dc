"""A shared library as a file: what it needs, where it looks, and the texts in it.

Loading a library to ask for its version would run its code, and start CUDA on the way.
Only the tables are read: a few pages of a file that may have hundreds of megabytes.
"""

from __future__ import annotations

import os
import re

from hpslurm.core.probe import Unknown
from hpslurm.core.values import dataclass

MACHINES = {"x86_64": 62, "aarch64": 183}
DYNAMIC, NEEDED, STRTAB, RPATH, RUNPATH = 2, 1, 5, 15, 29
LOAD = 1
LARGEST = 64 << 20  # bytes of read-only data that we search


@dataclass(frozen=True)
class Library:
    machine: int
    needed: tuple[str, ...]
    folders: tuple[str, ...]  # RUNPATH or RPATH, $ORIGIN still in it


class Broken(Unknown):
    """The file is no shared library of this kind of machine."""


class _File:
    def __init__(self, path: str) -> None:
        self.path = path
        self.handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self.size = os.fstat(self.handle).st_size
        head = os.pread(self.handle, 64, 0)
        if head[:6] != b"\x7fELF\x02\x01" or len(head) < 64:
            os.close(self.handle)
            raise Broken(f"{path} is not a 64-bit shared library")
        self.machine = _number(head, 18, 2)
        self.segments = self._table(_number(head, 32, 8), _number(head, 54, 2), _number(head, 56, 2), 56)
        self.head = head

    def _table(self, offset: int, size: int, count: int, least: int) -> list[bytes]:
        if not count:
            return []
        data = self.read(size * count, offset)
        if size < least or len(data) < size * count:
            raise Broken(f"{self.path} is cut off")
        return [data[at : at + size] for at in range(0, size * count, size)]

    def read(self, size: int, offset: int) -> bytes:
        if offset >= self.size:
            raise Broken(f"{self.path} is cut off")
        return os.pread(self.handle, size, offset)

    def at(self, address: int) -> int:
        """The place in the file of an address in memory."""
        for segment in self.segments:
            start, size = _number(segment, 16, 8), _number(segment, 32, 8)
            if _number(segment, 0, 4) == LOAD and start <= address < start + size:
                return address - start + _number(segment, 8, 8)
        raise Broken(f"{self.path} names an address that it does not have")


def _number(data: bytes, at: int, size: int) -> int:
    return int.from_bytes(data[at : at + size], "little")


def _entries(data: bytes) -> list[tuple[int, int]]:
    """Tags and values of a dynamic section, as ``readelf -d`` lists them; half an entry at the end is none.

    >>> _entries(bytes.fromhex("0100000000000000 5300000000000000 1d00000000000000 9100000000000000 01"))
    [(1, 83), (29, 145)]
    """
    return [(_number(data, at, 8), _number(data, at + 8, 8)) for at in range(0, len(data) - 15, 16)]


def read(path: str) -> Library:
    """The library's own tables. Raises OSError, and Broken for anything that is none."""
    file = None
    try:
        file = _File(path)
        dynamic = next((one for one in file.segments if _number(one, 0, 4) == DYNAMIC), None)
        if dynamic is None:
            raise Broken(f"{path} is not a shared library")
        size = min(_number(dynamic, 32, 8), 1 << 16)
        data = file.read(size, _number(dynamic, 8, 8))
        if len(data) < size or not size:
            raise Broken(f"{path} is cut off")
        entries = _entries(data)
        texts = file.at(next(value for tag, value in entries if tag == STRTAB))

        def text(offset: int) -> str:
            return file.read(4096, texts + offset).split(b"\0")[0].decode("utf-8", "replace")

        needed = tuple(text(value) for tag, value in entries if tag == NEEDED)
        paths = [text(value) for tag, value in entries if tag == RUNPATH] or [
            text(value) for tag, value in entries if tag == RPATH
        ]
        return Library(file.machine, needed, tuple(one for path in paths for one in path.split(":") if one))
    except StopIteration:
        raise Broken(f"{path} has no table of texts") from None
    finally:
        if file:
            os.close(file.handle)


def search(path: str, pattern: bytes) -> bytes | None:
    """The first group of the pattern in the file's read-only data, where literal texts are."""
    file = _File(path)
    try:
        rows = file._table(_number(file.head, 40, 8), _number(file.head, 58, 2), _number(file.head, 60, 2), 64)
        names = rows[_number(file.head, 62, 2)] if _number(file.head, 62, 2) < len(rows) else b""
        texts = file.read(min(_number(names, 32, 8), 1 << 20), _number(names, 24, 8)) if names else b""
        for row in rows:
            start = _number(row, 0, 4)
            if texts[start : start + 7] == b".rodata":
                group = _search(file, _number(row, 24, 8), min(_number(row, 32, 8), LARGEST), pattern)
                if group:
                    return group
        return None
    finally:
        os.close(file.handle)


def _search(file: _File, offset: int, size: int, pattern: bytes) -> bytes | None:
    step, overlap = 1 << 20, 256
    for at in range(offset, offset + size, step):
        match = re.search(pattern, file.read(min(step + overlap, offset + size - at), at))
        if match:
            return match[1]
    return None
