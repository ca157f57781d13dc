"""A path that a user chose, read by root: what must not get through, and that everything ends."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

import pytest

from hpslurm.sources import userfile
from hpslurm.sources.userfile import take
from tests.lab import processes

ROOT = os.geteuid() == 0
NOBODY = 65534
as_root = pytest.mark.skipif(not ROOT, reason="needs root to take on another user")


def own(path: Path, uid: int = NOBODY) -> Path:
    """The file and its folders as a user has them."""
    if ROOT:
        os.chown(path, uid, uid)
    return path


@pytest.fixture
def home(tmp_path: Path) -> Path:
    if ROOT:
        for folder in (tmp_path, *tmp_path.parents):
            if str(folder).startswith("/tmp/") and folder.stat().st_uid == 0:
                folder.chmod(folder.stat().st_mode | 0o055)
    return own(tmp_path)


def me() -> tuple[int, int]:
    return (NOBODY, NOBODY) if ROOT else (os.geteuid(), os.getegid())


def test_a_small_file_is_read_whole(home: Path):
    path = home / "job.out"
    path.write_bytes(b"one\ntwo\n")
    own(path)
    taken = take(str(path), *me())
    assert (b"one\ntwo\n", b"", "") == (taken.head, taken.tail, taken.note)


def test_a_large_file_gives_its_two_ends(home: Path):
    path = home / "job.out"
    path.write_bytes(b"a" * 3000 + b"b" * 3000)
    own(path)
    taken = take(str(path), *me(), limit=1000)
    assert (b"a" * 500, b"b" * 500, 6000) == (taken.head, taken.tail, taken.size)


@as_root
def test_a_link_to_a_secret_is_not_followed(home: Path):
    link = home / "job.out"
    link.symlink_to("/etc/shadow")
    taken = take(str(link), *me())
    assert b"" == taken.head
    assert "job.out" in taken.note


@as_root
def test_a_link_in_a_folder_gives_no_more_than_the_user_has(home: Path):
    secret = home / "secret"
    secret.mkdir()
    (secret / "job.out").write_bytes(b"root only\n")
    os.chown(secret, 0, 0)
    secret.chmod(0o700)
    (home / "logs").symlink_to(secret)
    taken = take(str(home / "logs" / "job.out"), *me())
    assert b"" == taken.head
    assert "ermission denied" in taken.note


@as_root
def test_another_users_readable_file_is_refused(home: Path):
    path = home / "job.out"
    path.write_bytes(b"of root\n")
    path.chmod(0o644)
    taken = take(str(path), *me())
    assert (b"", True) == (taken.head, "not owned" in taken.note)


def test_a_fifo_does_not_keep_us(home: Path):
    path = home / "job.out"
    os.mkfifo(path)
    own(path)
    began = time.monotonic()
    taken = take(str(path), *me(), seconds=5)
    assert "not a regular file" in taken.note
    assert time.monotonic() - began < 5


def test_a_socket_is_refused(home: Path):
    path = home / "s"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        assert "" != take(str(path), *me()).note


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/null", "/proc/kmsg"])
def test_a_device_is_refused(device: str):
    taken = take(device, *me())
    assert b"" == taken.head
    assert device in taken.note


def test_a_path_with_a_newline_and_escapes_is_one_harmless_line_in_the_note(home: Path):
    taken = take(str(home / "x\nNVRM: Xid (PCI:0000:9b:00): 79\x1b[2J"), *me())
    assert "\n" not in taken.note
    assert "\x1b" not in taken.note
    assert "No such file" in taken.note


def test_a_relative_path_and_a_nul_are_refused():
    assert "not an absolute path" in take("job.out", *me()).note
    assert "not an absolute path" in take("/tmp/a\0b", *me()).note


def test_a_file_that_grows_is_read_to_the_size_it_had(home: Path):
    path = home / "job.out"
    path.write_bytes(b"x" * 4096)
    own(path)
    writer = os.fork()
    if writer == 0:
        with open(path, "ab", buffering=0) as file:
            until = time.monotonic() + 3
            while time.monotonic() < until:
                file.write(b"y" * 65536)
                time.sleep(0.001)
        os._exit(0)
    try:
        time.sleep(0.05)
        taken = take(str(path), *me(), limit=1 << 20)
    finally:
        os.kill(writer, 9)
        os.waitpid(writer, 0)
    assert len(taken.head) + len(taken.tail) <= 1 << 20
    assert b"x" * 4096 == taken.head[:4096]


def test_a_file_system_that_hangs_is_given_up_in_time(home: Path, monkeypatch: pytest.MonkeyPatch):
    path = home / "job.out"
    path.write_bytes(b"x")
    own(path)
    # No file system here can be made to hang, so the child's open sleeps, as it would in the kernel.
    monkeypatch.setattr(userfile.os, "open", lambda *words, **more: time.sleep(30))
    began = time.monotonic()
    taken = take(str(path), *me(), seconds=0.3)
    assert "perhaps its file system hangs" in taken.note
    assert time.monotonic() - began < 10


@as_root
def test_the_child_has_lost_every_right_of_root(home: Path):
    path = home / "job.out"
    path.write_bytes(b"x")
    path.chmod(0o000)
    os.chown(path, 0, 0)
    assert "ermission denied" in take(str(path), *me()).note


def test_nothing_of_a_child_is_left_behind(home: Path):
    path = home / "job.out"
    path.write_bytes(b"x")
    own(path)
    before = children()  # other tests of this process may have left some
    take(str(path), *me())
    assert set() == children() - before


def children() -> set[int]:
    """Also those that have ended and were not waited for."""
    return {pid for pid in processes.all_pids() if processes.parent(pid) == os.getpid()}


@pytest.mark.parametrize(
    ("uid", "gid"), [(0xFFFFFFFF, 1000), (1000, 0xFFFFFFFF), (-1, 1000), (1000, -1), (1 << 40, 1000)]
)
def test_nobodys_numbers_are_no_rights_to_read_with(tmp_path: Path, uid: int, gid: int) -> None:
    """For the kernel (uid_t)-1 means: stay who you are, and that is root."""
    (tmp_path / "x1.out").write_text("secret")
    taken = userfile.take(str(tmp_path / "x1.out"), uid, gid, own=False)
    assert (b"", True) == (taken.head, "is not read" in taken.note or "only root" in taken.note)
    assert [] == userfile.names(str(tmp_path), uid, gid, containing="1")


def test_names_are_those_of_the_users_own_files_that_hold_the_number(home: Path) -> None:
    for name in ("slurm-11.out", "slurm-1.out", "log-1-0", "other.out"):
        (home / name).write_text("x")
        own(home / name)
    (home / "folder-1").mkdir()
    own(home / "folder-1")
    assert ["log-1-0", "slurm-1.out"] == userfile.names(str(home), *me(), containing="1")
