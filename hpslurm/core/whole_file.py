"""Writes a file that the user named: whole or not at all, and nothing else than a file."""

from __future__ import annotations

import os
import stat
import tempfile


def write(path: str, content: bytes, mode: int = 0o644, *, new: bool = False) -> None:
    """Give ``path`` this content in one step, and keep the old one if that fails. Raises OSError.

    ``new``: nothing may be there yet, FileExistsError otherwise.

    The folder may belong to another user, so nothing at a name that could be guessed is opened, and what stands
    at ``path`` is replaced only if it is a regular file: as root, /dev/null could be replaced, too.
    """
    if not new and os.path.lexists(path) and not stat.S_ISREG(os.lstat(path).st_mode):
        raise OSError(None, "not a regular file, left as it is", path)
    handle, part = tempfile.mkstemp(prefix=".hpslurm-", suffix=".part", dir=os.path.dirname(path) or ".")
    try:
        with os.fdopen(handle, "wb") as file:
            os.fchmod(file.fileno(), mode)  # whatever the umask
            file.write(content)
        if new:
            os.link(part, path)
        else:
            os.replace(part, path)
            return
    except BaseException:
        os.unlink(part)
        raise
    os.unlink(part)
