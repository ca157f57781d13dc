"""How much a door reads, and with which rights: at each limit and one step beside it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from hpslurm.sources import elf, kmsg, userfile
from hpslurm.sources.host import NO_LOCK, Host

MIB = 1 << 20


def test_of_a_file_a_mebibyte_is_read_unless_more_was_asked_for(host_with: Callable[..., Host]) -> None:
    host = host_with({"/large": "x" * (MIB + 1)})
    assert [MIB, MIB + 1, 7] == [len(host.read("/large", *most)) for most in ((), (2 * MIB,), (7,))]


def test_of_a_sysfs_file_a_page_is_read(host_with: Callable[..., Host]) -> None:
    assert 4096 == len(host_with({"/large": "x" * 5000}).word("/large") or "")


def test_nobody_waits_for_a_pipe_in_the_place_of_a_sysfs_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert "" == Host(str(tmp_path)).word("/pipe")


def test_a_lock_is_ours_alone_and_no_link_is_followed(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        host = Host(locks=str(tmp_path / "locks"))
        handle = host._lock("nvml", wait=False)
    finally:
        os.umask(before)
    assert handle is not None and handle >= 0
    os.close(handle)
    assert 0o700 == (tmp_path / "locks").stat().st_mode & 0o777
    assert 0o600 == (tmp_path / "locks/nvml.lock").stat().st_mode & 0o777
    (tmp_path / "locks/getent.lock").symlink_to(tmp_path / "victim")
    assert NO_LOCK == host._lock("getent", wait=False)
    assert not (tmp_path / "victim").exists()


def test_of_a_users_file_four_mebibytes_of_either_end_are_read(tmp_path: Path) -> None:
    path = tmp_path / "job.out"
    for size, head, tail in ((8 * MIB, 8 * MIB, 0), (8 * MIB + 1, 4 * MIB, 4 * MIB)):
        path.write_bytes(b"x" * size)
        taken = userfile.take(str(path), os.geteuid(), os.getegid(), seconds=60)
        assert (head, tail, size, "") == (len(taken.head), len(taken.tail), taken.size, taken.note)
        assert (tail == 0) == taken.whole


def test_a_file_of_which_nothing_was_taken_is_empty() -> None:
    assert 0 == userfile.Taken().size


def test_machines_have_the_numbers_of_the_elf_standard() -> None:
    assert {"x86_64": 62, "aarch64": 183} == elf.MACHINES


@pytest.mark.parametrize(("prefix", "taken"), [(0, True), (7, True), (8, False), (14, False)])
def test_only_the_kernels_own_facility_counts(prefix: int, taken: bool) -> None:
    log = kmsg.Log((f"{prefix},1,5000000,-;the word".encode(),), 0.0)
    assert taken == bool(log.matching(b"word"))


def test_a_number_of_twenty_digits_is_none_of_a_record() -> None:
    assert (3, 10**18, 5) == kmsg.head(f"3,{10**18},5,-;x".encode())
    assert (-1, -1, -1) == kmsg.head(f"3,{10**19},5,-;x".encode())
