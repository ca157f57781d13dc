"""The kernel's log: what counts as the kernel's own, what is missing, and bad input."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpslurm.core.probe import Unknown
from hpslurm.sources import kmsg
from hpslurm.sources.host import Host
from hpslurm.sources.kmsg import Log, Record

STAT = "cpu 1 2 3\nbtime 1700000000\n"
HostWith = Callable[..., Host]


def log(*lines: str) -> Log:
    return Log(tuple(line.encode() for line in lines), 1_700_000_000.0)


def test_a_record_has_its_number_time_level_and_text() -> None:
    wanted = Record(340, 1.411405, 1_700_000_001.411405, 6, "NVRM: hello")
    assert [wanted] == log("6,340,1411405,-;NVRM: hello\n SUBSYSTEM=pci\n DEVICE=+pci:0000:9b:00.0\n").matching(b"NVRM")


def test_fields_that_newer_kernels_add_are_passed_over() -> None:
    assert "x" == log("6,340,1411405,-,caller=T1;x").matching(b"x")[0].text


def test_lines_from_user_space_are_no_records() -> None:
    assert [] == log("14,1,1,-;NVRM: Xid", "11,2,1,-;NVRM: Xid", "8,3,1,-;NVRM: Xid").matching(b"NVRM")
    assert 1 == len(log("7,1,1,-;NVRM: Xid").matching(b"NVRM"))


def test_a_log_that_begins_with_record_zero_and_has_no_gap_is_whole() -> None:
    assert 0.0 == log("6,0,0,-;a", "14,1,5,-;from user space", "6,2,9,-;b").begins


def test_a_log_that_begins_later_has_lost_its_beginning() -> None:
    assert 1_700_000_007.0 == log("6,12,7000000,-;a", "6,13,8000000,-;b").begins


def test_a_gap_inside_counts_from_behind_it() -> None:
    assert 1_700_000_009.0 == log("6,0,1000000,-;a", "6,1,2000000,-;b", "6,7,9000000,-;c").begins


def test_a_saved_log_is_read_line_by_line(host_with: HostWith) -> None:
    host = host_with({"/dev/kmsg": "6,0,0,-;a\n SUBSYSTEM=x\n6,1,1,-;b\n", "/proc/stat": STAT})
    assert ["a", "b"] == [record.text for record in kmsg.read(host).matching(b";")]


def test_without_a_boot_time_the_log_is_unknown(host_with: HostWith) -> None:
    with pytest.raises(Unknown, match="no btime"):
        kmsg.read(host_with({"/dev/kmsg": "", "/proc/stat": "cpu 1\n"}))


def test_of_a_huge_log_the_newest_part_is_kept(host_with: HostWith, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kmsg, "MOST_BYTES", 100)
    text = "".join(f"6,{number},{number},-;line {number}\n" for number in range(100))
    found = kmsg.read(host_with({"/dev/kmsg": text, "/proc/stat": STAT}))
    assert "line 99" == found.matching(b"line")[-1].text
    assert found.begins > 0


def test_the_log_of_this_machine_is_read_without_waiting() -> None:
    try:
        found = kmsg.read(Host())
    except OSError as error:
        pytest.skip(f"may not read {kmsg.PATH} here: {error.strerror}")
    assert found.raw
    assert all(record.level < 8 for record in found.matching(b";"))


def test_a_user_who_may_not_read_it_is_told_so(host_with: HostWith) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may read everything")
    host = host_with({"/dev/kmsg": "6,0,0,-;a\n", "/proc/stat": STAT})
    os.chmod(host.path("/dev/kmsg"), 0)
    with pytest.raises(PermissionError):
        kmsg.read(host)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.binary(max_size=60), max_size=8))
def test_no_bytes_break_the_reader(lines: list[bytes]) -> None:
    found = Log(tuple(lines), 0.0)
    assert found.begins >= 0
    assert all(0 <= record.level < 8 for record in found.matching(b""))
