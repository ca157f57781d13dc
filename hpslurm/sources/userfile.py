"""A file that a user chose and owns, read with that user's rights and nothing more.

The epilog runs as root on a path that came with the job. So a child takes on the user's uid, gid and groups,
opens without following a link and without waiting, takes regular files of that user only, and sends back at
most so many bytes. The parent waits at most so long; a child stuck in the kernel is left behind, not waited for.
"""

from __future__ import annotations

import os
import re
import select
import signal
import stat
import time
from collections.abc import Callable
from errno import ELOOP
from typing import NoReturn

from hpslurm.core.text import clean, size
from hpslurm.core.values import dataclass

LIMIT = 8 << 20  # bytes, half of them from either end of a larger file
SECONDS = 2.0
MOST_ENTRIES, MOST_NAMES = 100_000, 1024  # of a folder: looked at, and given
NAMES = 256 << 10  # bytes of names together
NOBODY = 0xFFFFFFFF  # (uid_t)-1, which for the kernel means: stay who you are
_HEADER = 64  # bytes of the first message: status, size, length of the head


@dataclass(frozen=True)
class Taken:
    """``head`` and ``tail`` of the file; a small file is all head. ``note`` says what is missing, or is empty."""

    head: bytes = b""
    tail: bytes = b""
    size: int = 0
    note: str = ""

    @property
    def whole(self) -> bool:
        return not self.note and len(self.head) + len(self.tail) >= self.size


def take(
    path: str,
    uid: int,
    gid: int,
    *,
    user: str = "",
    limit: int = LIMIT,
    seconds: float = SECONDS,
    own: bool = True,
) -> Taken:
    """Reads ``path`` as the user. Never raises for what the user did: the note says it.

    Without ``own`` it may be another's file that this user may read.
    """
    shown = clean(path, 200)
    if not path.startswith("/") or "\0" in path:
        return Taken(note=f"{shown}: not an absolute path")
    if os.geteuid() != 0 and os.geteuid() != uid:
        return Taken(note=f"{shown}: only root or the user itself may read it here")
    if not (0 <= uid < NOBODY and 0 <= gid < NOBODY):
        return Taken(note=f"{shown}: uid {uid} and gid {gid} are nobody's, so it is not read")
    try:
        data, ended = _asked(lambda out: _send(out, path, uid if own else -1, limit), uid, gid, user, limit, seconds)
    except OSError as error:
        return Taken(note=f"{shown}: no process to read it with ({error.strerror})")
    return _taken(shown, data, ended, seconds)


def names(
    folder: str, uid: int, gid: int, *, user: str = "", containing: str = "", seconds: float = SECONDS
) -> list[str]:
    """Names of the user's regular files in a folder, as the user sees it; those that hold this number or word.

    At most MOST_NAMES, in their order; empty where the folder cannot be read or does not answer in time.
    """
    if not (0 <= uid < NOBODY and 0 <= gid < NOBODY):
        return []
    if not folder.startswith("/") or "\0" in folder or os.geteuid() not in (0, uid):
        return []
    try:
        data, _ = _asked(lambda out: _list(out, folder, uid, containing), uid, gid, user, NAMES, seconds)
    except OSError:
        return []
    text = bytes(data[_HEADER:]).decode("utf-8", "replace") if data.startswith(b"ok") else ""
    return sorted(name for name in text.split("\0") if name and "/" not in name)[:MOST_NAMES]


def _asked(
    answer: Callable[[int], None], uid: int, gid: int, user: str, limit: int, seconds: float
) -> tuple[bytearray, bool]:
    """What a child with the user's rights answers, and whether it was done in time. Raises OSError without a child."""
    deadline = time.monotonic() + seconds
    receive, send = os.pipe()
    try:
        pid = os.fork()
    except OSError:
        os.close(receive)
        os.close(send)
        raise
    if pid == 0:
        _child(send, answer, uid, gid, user)
    os.close(send)
    data, ended = _receive(receive, deadline, limit)
    os.close(receive)
    _end(pid)
    return data, ended


def _child(send: int, answer: Callable[[int], None], uid: int, gid: int, user: str) -> NoReturn:
    """Sends one message and leaves; no exception gets out of here, or we would run our caller twice."""
    try:
        os.dup2(send, 3)
        os.closerange(0, 3)  # a child that hangs must not hold the hook's output open
        os.closerange(4, 4096)
        for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGALRM):
            signal.signal(signum, signal.SIG_DFL)
        os.chdir("/")
        if os.geteuid() == 0 and uid != 0:
            if user:
                os.initgroups(user, gid)
            else:
                os.setgroups([gid])
            os.setresgid(gid, gid, gid)
            os.setresuid(uid, uid, uid)
            if os.getresuid() != (uid, uid, uid) or os.getresgid() != (gid, gid, gid):
                raise PermissionError(1, "the user's rights could not be taken on")
        answer(3)
    except OSError as error:
        _refuse(3, "a link, which is not followed" if error.errno == ELOOP else error.strerror or "cannot be read")
    except BaseException as error:
        _refuse(3, type(error).__name__)
    os._exit(0)


def _send(out: int, path: str, uid: int, limit: int) -> None:
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    status = os.fstat(file)
    if not stat.S_ISREG(status.st_mode):
        return _refuse(out, "not a regular file")
    if uid >= 0 and status.st_uid != uid:
        return _refuse(out, "not owned by the job's user")
    size = status.st_size
    head = size if size <= limit else limit // 2
    os.write(out, f"ok {size} {head}".encode().ljust(_HEADER))
    _copy(file, out, 0, head)
    if size > limit:  # the size of a moment ago: a file that grows does not keep us
        _copy(file, out, size - (limit - head), limit - head)


def _list(out: int, folder: str, uid: int, containing: str) -> None:
    word = re.compile(rf"(?<!\d){re.escape(containing)}(?!\d)")
    names: list[bytes] = []
    with os.scandir(folder) as entries:
        for count, entry in enumerate(entries):
            if count >= MOST_ENTRIES or len(names) >= MOST_NAMES:
                break
            if not word.search(entry.name) or not entry.is_file(follow_symlinks=False):
                continue
            if entry.stat(follow_symlinks=False).st_uid == uid:
                names.append(os.fsencode(entry.name))
    os.write(out, b"ok 0 0".ljust(_HEADER))
    data = b"\0".join(names)[:NAMES]
    while data:
        data = data[os.write(out, data) :]


def _copy(file: int, out: int, at: int, count: int) -> None:
    while count > 0:
        piece = os.pread(file, min(count, 1 << 16), at)
        if not piece:
            piece = b"\0" * min(count, 1 << 16)  # it shrank: keep the promised length
        view = memoryview(piece)
        while view:
            view = view[os.write(out, view) :]
        at += len(piece)
        count -= len(piece)


def _refuse(out: int, why: str) -> None:
    try:
        os.write(out, f"no {why}".encode("utf-8", "replace")[:_HEADER].ljust(_HEADER))
    except OSError:
        pass


def _receive(receive: int, deadline: float, limit: int) -> tuple[bytearray, bool]:
    data = bytearray()
    most = limit + _HEADER
    while len(data) < most:
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([receive], [], [], left)[0]:
            return data, False
        piece = os.read(receive, min(1 << 16, most - len(data)))
        if not piece:
            return data, True
        data += piece
    return data, True


def _end(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    for _ in range(20):  # 0.1 s in all; one that the kernel holds is reaped by init when we are gone
        if os.waitpid(pid, os.WNOHANG)[0]:
            return
        time.sleep(0.005)


def _taken(shown: str, data: bytearray, ended: bool, seconds: float) -> Taken:
    words = bytes(data[:_HEADER]).decode("utf-8", "replace").split(None, 1)
    if len(words) < 2:
        return Taken(
            note=f"{shown}: no answer within {seconds:g} s, perhaps its file system hangs"
            if not ended
            else f"{shown}: cannot be read"
        )
    if words[0] != "ok":
        return Taken(note=f"{shown}: {clean(words[1], 80)}")
    total, head = (int(word) for word in words[1].split()[:2])
    body = bytes(data[_HEADER:])
    wanted = total if head == total else None
    note = (
        ""
        if ended and (wanted is None or len(body) >= wanted)
        else f"{shown}: only {size(len(body))} came within {seconds:g} s"
    )
    return Taken(body[:head], body[head:], total, note)
