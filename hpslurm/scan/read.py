"""Logs of any size in constant memory: one block that is used again and again.

A block overlaps the one before it, so that a line, a traceback or the three lines around a kernel
message are always seen whole. No mmap: mapped pages would count as our memory.
"""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Iterator
from typing import IO, Any

BLOCK = 4 << 20  # bytes read at once
BEHIND = 16 << 10  # bytes of context kept before the part that is looked at
AHEAD = 64 << 10  # bytes that must follow a line before it is looked at, unless the file ends


class Unreadable(Exception):
    """This input cannot be read; the message names the file and what would help."""


class Part:
    """``data[start:end]`` is new and made of whole lines; around it is context. ``line`` numbers the line at ``start``."""  # noqa: E501

    __slots__ = ("data", "end", "line", "lines", "size", "start")  # lines: how many, left by whoever counted them

    def __init__(self, data: bytearray, size: int, start: int, end: int, line: int) -> None:
        self.data, self.size, self.start, self.end, self.line = data, size, start, end, line
        self.lines = -1


def block() -> bytearray:
    """Room for one part; thousands of files share it."""
    return bytearray(BLOCK + BEHIND + 2 * AHEAD)


def parts(stream: IO[bytes], limit: int | None = None, data: bytearray | None = None, line: int = 1) -> Iterator[Part]:
    """Goes once through ``stream``, at most ``limit`` bytes of it, in the block ``data``."""
    data = data if data is not None else block()
    view = memoryview(data)
    size = start = 0
    taken = 0
    ended = False
    while not ended:
        while size < len(data):
            want = len(data) - size
            if limit is not None:
                want = min(want, limit - taken)
            got = stream.readinto(view[size : size + want]) if want > 0 else 0  # type: ignore[attr-defined]
            if not got:
                ended = True
                break
            size += got
            taken += got
        if ended:
            end = size
        else:
            end = data.rfind(b"\n", start, size - AHEAD) + 1
            if end <= start:  # one line longer than the block: take it in pieces
                end = size - AHEAD
        if end > start:
            part = Part(data, size, start, end, line)
            yield part
            line += part.lines if part.lines >= 0 else data.count(b"\n", start, end)
        if not ended:
            keep = max(0, end - BEHIND)
            view[: size - keep] = view[keep:size]
            start = end - keep
            size -= keep


def opened(path: str) -> IO[bytes]:
    """The file, decompressed when its first bytes say so. ``-`` is standard input."""
    raw: Any
    if path == "-":
        raw = io.FileIO(os.dup(0), "rb")
        head = _peek_pipe(raw)
        if head is not None:
            raw = head
    else:
        try:
            kind = os.stat(path).st_mode
            if not (stat.S_ISREG(kind) or stat.S_ISFIFO(kind)):
                raise Unreadable(f"{path}: not a regular file")
            raw = io.FileIO(path, "rb")
        except OSError as error:
            raise Unreadable(f"{path}: {error.strerror or error}") from error
    if not raw.seekable():
        return io.BufferedReader(raw, 1 << 20) if isinstance(raw, io.RawIOBase) else raw
    magic = raw.read(6)
    raw.seek(0)
    return decompressed(path, raw, magic)


def _peek_pipe(raw: io.FileIO) -> IO[bytes] | None:
    try:
        raw.seek(0, os.SEEK_CUR)
        return None
    except OSError:
        buffered = io.BufferedReader(raw, 1 << 20)
        return decompressed("-", buffered, bytes(buffered.peek(6)[:6]))


def decompressed(path: str, raw: Any, magic: bytes) -> IO[bytes]:
    """``raw`` as it is, or what is packed in it by its first bytes. Raises Unreadable without a module for it."""
    if magic.startswith(b"\x1f\x8b"):
        import gzip

        return gzip.GzipFile(fileobj=raw)  # type: ignore[return-value]
    if magic.startswith(b"BZh"):
        import bz2

        return bz2.BZ2File(raw)
    if magic.startswith(b"\xfd7zXZ"):
        import lzma

        return lzma.LZMAFile(raw)
    if magic.startswith(b"\x28\xb5\x2f\xfd"):
        return _zstd(path, raw)
    return raw  # type: ignore[no-any-return]


def _zstd(path: str, raw: Any) -> IO[bytes]:
    try:
        from compression import zstd  # type: ignore[import-not-found,unused-ignore]  # Python 3.14

        return zstd.ZstdFile(raw)  # type: ignore[no-any-return,unused-ignore]
    except ImportError:
        pass
    try:
        import zstandard

        return io.BufferedReader(zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True), 1 << 20)
    except ImportError:
        raise Unreadable(
            f"{path}: zstd-compressed; install the module zstandard, or run zstdcat {path} | hpslurm scan -"
        ) from None


def files_below(path: str, most: int = 20_000) -> list[str]:
    """Every regular file below a folder, in order; links are not followed."""
    found: list[str] = []
    for folder, folders, names in os.walk(path):
        folders.sort()
        for name in sorted(names):
            whole = os.path.join(folder, name)
            try:
                if stat.S_ISREG(os.lstat(whole).st_mode):
                    found.append(whole)
            except OSError:
                continue
            if len(found) >= most:
                return found
    return found
