"""Shared libraries as files: this machine's own, and broken ones."""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path

import pytest

from hpslurm.sources import elf

PLUGIN = Path(__file__).parents[1] / "hosts/p5-healthy/opt/amazon/ofi-nccl/lib64/libnccl-net.so"


def real_library() -> str:
    """The C library that this Python itself has loaded."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        if "/libm.so" in line or "/libm-" in line:
            return line.split()[-1]
    pytest.skip("this Python has no libm mapped")


def test_a_real_library_names_what_it_needs() -> None:
    assert "libc.so.6" in elf.read(real_library()).needed


def test_a_real_library_is_built_for_this_processor() -> None:
    assert elf.MACHINES[os.uname().machine] == elf.read(real_library()).machine


def test_a_text_is_found_in_a_real_file() -> None:
    libc = next(line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "/libc.so.6" in line)
    found = elf.search(libc, rb"GNU C Library [^\0]{0,60}version (\d+\.\d+)")
    assert os.confstr("CS_GNU_LIBC_VERSION").split()[1].encode() == found


def test_the_plugin_names_its_version_and_its_folders() -> None:
    assert b"1.22.0" == elf.search(str(PLUGIN), rb"aws-ofi-nccl (\d+\.\d+[.\d]*)")
    assert ("/opt/amazon/efa/lib64",) == elf.read(str(PLUGIN)).folders


@pytest.mark.parametrize("size", [0, 10, 64, 130, 200, 260])
def test_a_library_that_is_cut_off_is_broken(size: int, tmp_path: Path) -> None:
    path = tmp_path / "cut.so"
    path.write_bytes(PLUGIN.read_bytes()[:size])
    with pytest.raises(elf.Broken):
        elf.read(str(path))


def test_a_script_is_no_library() -> None:
    with pytest.raises(elf.Broken, match="is not a 64-bit shared library"):
        elf.read(__file__)


def test_changed_bytes_are_read_or_broken_and_nothing_else(tmp_path: Path) -> None:
    chance = random.Random(7)
    path = tmp_path / "changed.so"
    for _ in range(300):
        data = bytearray(PLUGIN.read_bytes())
        for _ in range(3):
            data[chance.randrange(16, len(data))] = chance.randrange(256)
        path.write_bytes(data)
        for ask in (lambda: elf.read(str(path)), lambda: elf.search(str(path), rb"aws-ofi-nccl (\d+)")):
            try:
                ask()
            except elf.Broken:
                continue


def test_a_missing_file_is_an_os_error() -> None:
    with pytest.raises(FileNotFoundError):
        elf.read(sys.executable + ".does-not-exist")
