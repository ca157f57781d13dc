"""How much a door reads, and with which rights: at each limit and one step beside it."""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from hpslurm.sources import aws, elf, kmsg, launch, nvml, partitions, userfile
from hpslurm.sources.host import COMMANDS, NO_LOCK, Host

MIB = 1 << 20


def test_of_a_file_a_mebibyte_is_read_unless_more_was_asked_for(host_with: Callable[..., Host]) -> None:
    host = host_with({"/large": "x" * (MIB + 1)})
    assert [MIB, MIB + 1, 7, 1] == [len(host.read("/large", *most)) for most in ((), (2 * MIB,), (7,), (1,))]


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


def test_a_link_is_not_followed_even_to_a_file_of_the_user(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("text")
    (tmp_path / "job.out").symlink_to(tmp_path / "mine")
    taken = userfile.take(str(tmp_path / "job.out"), os.geteuid(), os.getegid(), seconds=60)
    assert (b"", True) == (taken.head, taken.note.endswith("job.out: a link, which is not followed"))


def test_a_step_is_one_process_a_node_without_gpus_for_five_minutes() -> None:
    step = launch.Step("a", ("n1",), ("true",))
    assert (1, 0, 300) == (step.tasks, step.gpus, step.seconds)
    end = launch.End(step, 0, 1.0)
    assert (True, False, True) == (end.ok, end.timed_out, end.started)
    assert not launch.Line(step, "text").error
    assert not launch.Allocation("7", (), "srun").inside_step


def test_slurms_answers_may_have_64_mebibytes_and_those_in_json_of_all_nodes_256() -> None:
    most = {name: command.most for name, command in COMMANDS.items() if command.most != MIB}
    assert 256 * MIB == most.pop("scontrol_nodes_json")
    assert {64 * MIB} == set(most.values())
    assert {"scontrol_nodes", "pyslurm_nodes", "squeue", "sacct"} <= set(most)


def test_only_the_session_plugin_needs_a_terminal() -> None:
    assert ["session_manager_plugin"] == [name for name, command in COMMANDS.items() if command.terminal]


class Library:
    """What the bindings of NVML answer: for each call a number that tells which question it was."""

    NVML_VALUE_TYPE_UNSIGNED_INT, NVML_VALUE_TYPE_UNSIGNED_LONG, NVML_VALUE_TYPE_DOUBLE = 1, 2, 0

    class NVMLError(Exception):
        value = 999

    def nvmlDeviceGetFieldValues(self, gpu: object, asked: list[tuple[int, int]]) -> list[SimpleNamespace]:
        ((number, scope),) = asked
        value = 70 if number == 91 else 10 * number + scope
        return [SimpleNamespace(nvmlReturn=0, valueType=1, value=SimpleNamespace(uiVal=value))]


class OlderLibrary(Library):
    def nvmlDeviceGetNvLinkErrorCounter(self, gpu: object, link: int, counter: int) -> int:
        return 1000 * counter + link


def test_counters_of_links_are_asked_for_by_their_numbers_of_at_most_64_links() -> None:
    newer, older = (nvml.Nvml(library()).link_errors(None) or {} for library in (Library, OlderLibrary))
    assert {"nvlink_replay": 1610, "nvlink_recovery": 1620, "nvlink_crc": 1630} == {
        name: values[0] for name, values in newer.items()
    }
    assert [0, 1000, 2000, 3000] == [
        older[name][0] for name in ("nvlink_replay", "nvlink_recovery", "nvlink_crc", "nvlink_crc_data")
    ]
    assert {64} == {len(values) for values in (*newer.values(), *older.values())}
    assert 1613 == newer["nvlink_replay"][3]


def test_the_other_fields_have_their_numbers_too() -> None:
    door = nvml.Nvml(Library())
    assert (900, 2300) == (door.link_speed(None), door.recovery(None))
    assert {"software_thermal": 2690, "hardware_thermal": 2700, "power_brake": 2710} == door.slowdown(None)


@pytest.mark.parametrize("code", [2, 3, 13, 25])
def test_what_a_gpu_does_not_have_is_none(code: int) -> None:
    class Lacking(Library):
        def nvmlDeviceGetFieldValues(self, gpu: object, asked: list[tuple[int, int]]) -> list[SimpleNamespace]:
            return [SimpleNamespace(nvmlReturn=code, valueType=1, value=SimpleNamespace(uiVal=1))]

    assert None is nvml.Nvml(Lacking()).recovery(None)


PLUGIN = Path(__file__).parents[1] / "hosts/p5-healthy/opt/amazon/ofi-nccl/lib64/libnccl-net.so"
RUNPATH, RPATH = (struct.pack("<Q", tag) for tag in (29, 15))  # of the ELF specification


def test_a_library_may_say_where_it_looks_in_the_old_way(tmp_path: Path) -> None:
    (tmp_path / "old.so").write_bytes(PLUGIN.read_bytes().replace(RUNPATH, RPATH))
    assert elf.read(str(PLUGIN)).folders == elf.read(str(tmp_path / "old.so")).folders


def test_a_pipe_in_place_of_a_library_holds_nobody_up(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.so")
    with pytest.raises(OSError, match="seek"):
        elf.read(str(tmp_path / "pipe.so"))


@pytest.mark.parametrize(("given", "kept"), [(500, 500), (501, 500)])
def test_of_one_log_stream_five_hundred_lines_are_kept(given: int, kept: int) -> None:
    share = aws._Share()
    words = ("".join(chr(97 + int(digit)) for digit in str(number)) for number in range(given))
    assert kept == sum(share.keep({"logStreamName": "a", "message": word}) for word in words)
    assert (["a"] if given > kept else []) == share.noisy


@pytest.mark.parametrize(("given", "kept"), [(50, 50), (51, 50)])
def test_of_lines_that_differ_in_times_only_fifty_are_kept(given: int, kept: int) -> None:
    share = aws._Share()
    assert kept == sum(share.keep({"logStreamName": "a", "message": f"at {10_000 + at}"}) for at in range(given))
    assert (["a"] if given > kept else []) == share.noisy


def test_only_who_we_are_may_be_asked_without_a_permission() -> None:
    assert ["GetCallerIdentity"] == [operation.name for operation in aws.OPERATIONS if operation.free]


@pytest.mark.parametrize(("ago", "rests"), [(290.0, True), (301.0, False), (-60.0, False), (0.5, True)])
def test_a_program_that_gave_no_answer_is_left_alone_for_five_minutes(ago: float, rests: bool, tmp_path: Path) -> None:
    host = Host(locks=str(tmp_path))
    host.rest("nvml")
    assert host.rests("nvml")
    then = time.time() - ago
    os.utime(tmp_path / "nvml.late", (then, then))
    assert rests is bool(host.rests("nvml"))


def test_that_it_gave_no_answer_is_noted_in_a_file_of_ours_and_through_no_link(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        Host(locks=str(tmp_path)).rest("nvml")
    finally:
        os.umask(old)
    assert 0o600 == (tmp_path / "nvml.late").stat().st_mode & 0o777
    (tmp_path / "getent.late").symlink_to(tmp_path / "victim")
    Host(locks=str(tmp_path)).rest("getent")
    assert not (tmp_path / "victim").exists()


def test_a_machine_is_looked_at_by_a_person_unless_a_hook_says_so() -> None:
    assert [False, True] == [Host().in_hook, Host(in_hook=True).in_hook]


def test_a_line_of_the_gravest_level_leaves_no_gap() -> None:
    lines = [f"{level},{number},{number}000000,-;x".encode() for number, level in ((0, 6), (1, 0), (2, 6), (2, 6))]
    assert 0.0 == kmsg.Log(tuple(lines[:3]), 100.0).begins
    assert 102.0 == kmsg.Log(tuple(lines), 100.0).begins  # a number that comes twice


def test_what_a_job_has_in_its_environment_is_not_shown() -> None:
    where = launch.Allocation("7", ("n1",), "srun", env={"WANDB_API_KEY": "secret"})
    assert "secret" not in repr(where)


@pytest.mark.parametrize(("length", "pieces"), [(64 * 1024, 1), (64 * 1024 + 1, 2)])
def test_a_line_of_more_than_64_kib_is_cut_into_pieces(length: int, pieces: int, tmp_path: Path) -> None:
    """What a step prints without a line feed comes before its end."""
    srun, go = tmp_path / "srun", tmp_path / "go"
    wait = f"until test -e {go}; do sleep 0.05; done; " if pieces > 1 else ""
    srun.write_text(f"#!/bin/sh\nhead -c {length} /dev/zero | tr '\\0' x\n{wait}printf y\n")
    srun.chmod(0o755)
    where = launch.Allocation("7", ("n1",), str(srun), inside_step=True)
    lines = []
    for event in launch.run([launch.Step("a", ("n1",), ("true",), seconds=60)], where):
        if isinstance(event, launch.Line):
            lines.append(event.text)
            go.touch()
    assert (pieces, length + 1) == (len(lines), sum(map(len, lines)))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to others")
@pytest.mark.parametrize(("uid", "is_it"), [(0, True), (1, False)])
def test_a_daemon_is_a_process_of_root(uid: int, is_it: bool, host_with: Callable[..., Host]) -> None:
    host = host_with({"/proc/70/comm": "slurmd\n"})
    os.chown(host.path("/proc/70/comm"), uid, 0)
    assert is_it is host._is(70, "slurmd")


@pytest.mark.parametrize(("deep", "known"), [(4, True), (5, False)])
def test_partitions_are_read_of_files_that_include_one_another_four_deep(
    deep: int, known: bool, host_with: Callable[..., Host]
) -> None:
    files = {f"/etc/{number}.conf": f"include {number + 1}.conf\n" for number in range(deep)}
    host = host_with({**files, f"/etc/{deep}.conf": "PartitionName=gpu Nodes=n1\n"})
    assert known is bool(partitions._lines(host, "/etc/0.conf"))
