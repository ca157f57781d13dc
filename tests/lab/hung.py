"""File systems that fail: a full one, one to read only, and one on which every write hangs in the kernel."""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


def _do(*argv: str, why: str) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        pytest.skip(f"{why}: {' '.join(argv)}: {done.stderr.strip()}")


@contextmanager
def full(folder: Path) -> Iterator[None]:
    """A tmpfs without a free byte."""
    folder.mkdir(parents=True, exist_ok=True)
    _do("mount", "-t", "tmpfs", "-o", "size=64k,mode=0755", "hpslurm-test", str(folder), why="may not mount here")
    try:
        with open(folder / "filler", "wb", buffering=0) as file:
            try:
                while file.write(b"\0" * 4096):
                    pass
            except OSError:
                pass
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """A tmpfs on which nothing may be written."""
    folder.mkdir(parents=True, exist_ok=True)
    _do("mount", "-t", "tmpfs", "-o", "ro,mode=0755", "hpslurm-test", str(folder), why="may not mount here")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@contextmanager
def mounted(folder: Path) -> Iterator[None]:
    """An ext4 of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    image = folder.parent / f"{folder.name}.img"
    with open(image, "wb") as file:
        file.truncate(16 << 20)
    _do("mkfs.ext4", "-q", "-F", str(image), why="no ext4 here")
    _do("mount", "-o", "loop", str(image), str(folder), why="may not mount here")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@contextmanager
def freeze(folder: Path) -> Iterator[None]:
    _do("fsfreeze", "--freeze", str(folder), why="may not freeze here")
    try:
        yield
    finally:
        subprocess.run(["fsfreeze", "--unfreeze", str(folder)], check=True)


@contextmanager
def frozen(folder: Path) -> Iterator[None]:
    """A frozen ext4: who writes there waits in state D, and SIGKILL does not reach him."""
    with mounted(folder), freeze(folder):
        yield


@contextmanager
def silent(folder: Path) -> Iterator[Path]:
    """A file system whose server never answers, as NFS's and Lustre's do when they are gone: who asks it, waits."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        server = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        pytest.skip(f"no FUSE here: {error}")
    try:
        options = f"fd={server},rootmode=40000,user_id=0,group_id=0".encode()
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.mount(b"hpslurm-test", os.fsencode(folder), b"fuse", 0, options):
            pytest.skip(f"may not mount here: {os.strerror(ctypes.get_errno())}")
        try:
            yield folder
        finally:
            subprocess.run(["umount", "-l", str(folder)], check=True)
    finally:
        os.close(server)  # whoever still waits is answered that it is gone
