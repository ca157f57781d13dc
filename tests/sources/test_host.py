"""The door to the machine: programs with a time limit, files below a root."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from hpslurm.core.probe import Unknown
from hpslurm.sources.host import MOST_BYTES, Busy, Host

FI_INFO = "root/opt/amazon/efa/bin/fi_info"
Write = Callable[..., Path]


def machine(tmp_path: Path, write: Write, script: str, **how: object) -> Host:
    write(FI_INFO, f"#!/bin/sh\n{script}\n", 0o755)
    return Host(str(tmp_path / "root"), **how)  # type: ignore[arg-type]


def test_a_programs_output_and_status_are_returned(tmp_path: Path, write: Write) -> None:
    output = machine(tmp_path, write, "echo out; echo err >&2; exit 61").run("fi_info")
    assert (61, "out\n", "err\n") == (output.status, output.out, output.err)


def test_fi_info_gets_its_fixed_options_and_never_starts_cuda(tmp_path: Path, write: Write) -> None:
    output = machine(tmp_path, write, 'echo "$*"; env').run("fi_info")
    first, *environment = output.out.splitlines()
    assert "-p efa" == first
    assert "FI_HMEM=system" in environment


def test_a_program_sees_nothing_of_our_environment(
    tmp_path: Path, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LD_PRELOAD", "/tmp/evil.so")
    monkeypatch.setenv("FI_PROVIDER", "tcp")
    names = {line.split("=")[0] for line in machine(tmp_path, write, "env").run("fi_info").out.splitlines()}
    assert {"FI_HMEM", "LANG", "PATH"} == names - {"PWD", "SHLVL", "_", "OLDPWD"}


def test_a_program_that_sleeps_for_ever_is_ended(tmp_path: Path, write: Write) -> None:
    host = machine(tmp_path, write, f"echo $$ > {tmp_path}/pid; exec sleep 1000", seconds=0.3)
    with pytest.raises(Unknown, match="did not answer within"):
        host.run("fi_info")
    pid = int((tmp_path / "pid").read_text())
    for _ in range(100):
        if gone(pid):
            break
        time.sleep(0.02)
    assert gone(pid)


def gone(pid: int) -> bool:
    try:
        return b") Z " in Path(f"/proc/{pid}/stat").read_bytes()
    except FileNotFoundError:
        return True


def test_a_program_that_ignores_signals_is_ended(tmp_path: Path, write: Write) -> None:
    host = machine(tmp_path, write, "trap '' TERM INT HUP; while :; do sleep 1; done", seconds=0.3)
    with pytest.raises(Unknown, match="did not answer within"):
        host.run("fi_info")


def test_a_child_of_a_program_that_keeps_its_output_does_not_hold_us(tmp_path: Path, write: Write) -> None:
    host = machine(tmp_path, write, "sleep 1000 & echo started", seconds=0.3)
    with pytest.raises(Unknown, match="did not answer within"):
        host.run("fi_info")


def test_endless_output_is_cut(tmp_path: Path, write: Write) -> None:
    output = machine(tmp_path, write, "head -c 3000000 /dev/zero").run("fi_info")
    assert MOST_BYTES == len(output.out)


def test_a_program_that_is_not_installed_is_unknown_and_says_where_we_looked(host_with: Callable[..., Host]) -> None:
    with pytest.raises(Unknown, match="/opt/amazon/efa/bin/fi_info"):
        host_with({}).run("fi_info")


def test_a_program_that_cannot_run_is_unknown(tmp_path: Path, write: Write) -> None:
    write(FI_INFO, "no program\n", 0o755)
    with pytest.raises(Unknown, match="could not start"):
        Host(str(tmp_path / "root")).run("fi_info")


def test_callers_may_not_pass_options(tmp_path: Path, write: Write) -> None:
    with pytest.raises(ValueError, match="belong into COMMANDS"):
        machine(tmp_path, write, "echo").run("fi_info", "--version")


def test_while_one_hangs_a_second_is_not_started(tmp_path: Path, write: Write) -> None:
    script = f"[ -e {tmp_path}/well ] || exec sleep 1000; echo well"
    first = machine(tmp_path, write, script, seconds=5, locks=str(tmp_path / "locks"))
    first.start("fi_info")
    second = Host(str(tmp_path / "root"), seconds=0.3, locks=str(tmp_path / "locks"))
    second.start("fi_info")  # does not wait, as quick probes come in between
    with pytest.raises(Unknown, match="still runs"):
        second.run("fi_info")
    first.end_all()
    (tmp_path / "well").touch()
    third = Host(str(tmp_path / "root"), seconds=5, locks=str(tmp_path / "locks"))
    assert "well\n" == third.run("fi_info").out


def test_two_started_together_take_the_time_of_the_slower(tmp_path: Path, write: Write) -> None:
    host = machine(tmp_path, write, "echo $2 $3; sleep 0.5; echo done")
    began = time.monotonic()
    host.start("fi_info", "one")
    host.start("fi_info", "two")
    assert ["efa one\ndone\n", "efa two\ndone\n"] == [host.run("fi_info", word).out for word in ("one", "two")]
    assert time.monotonic() - began < 0.95


def test_a_saved_output_stands_in_below_a_root(host_with: Callable[..., Host]) -> None:
    host = host_with({"/commands/fi_info.txt": "provider: efa\n", "/commands/fi_info.status": "3\n"})
    output = host.run("fi_info")
    assert (3, "provider: efa\n") == (output.status, output.out)


def test_a_file_that_is_no_text_is_read_all_the_same(host_with: Callable[..., Host]) -> None:
    assert "�a" == host_with({"/x": b"\xffa"}).read("/x")


def test_a_fifo_does_not_hold_us(host_with: Callable[..., Host]) -> None:
    host = host_with({})
    os.mkfifo(host.path("/pipe"))
    assert "" == host.read("/pipe")


def test_a_process_that_a_user_named_slurmd_is_not_taken_for_it(host_with: Callable[..., Host]) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can make a file of another user")
    stat = "{} (slurmd) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 {} 0 0\n"
    host = host_with({f"/proc/{pid}/comm": "slurmd\n" for pid in (10, 20, 30)})
    for pid, start in ((10, 100), (20, 300), (30, 200)):
        Path(host.path(f"/proc/{pid}/stat")).write_text(stat.format(pid, start))
    os.chown(host.path("/proc/10"), 4242, 4242)
    os.chown(host.path("/proc/10/comm"), 4242, 4242)
    assert 30 == host.pid_of("slurmd")


def test_without_such_a_process_it_is_unknown(host_with: Callable[..., Host]) -> None:
    with pytest.raises(Unknown, match="no process named slurmd"):
        host_with({}).pid_of("slurmd")


def test_space_of_a_real_file_system_is_bytes() -> None:
    space = Host().space("/")
    assert space.total > space.free > 0


def test_what_a_late_program_printed_is_kept(tmp_path: Path, write: Write) -> None:
    output = machine(tmp_path, write, "echo first; exec sleep 1000", seconds=0.4).answer("fi_info")
    assert ("first\n", None) == (output.out, output.left)
    assert output.late.startswith("fi_info -p efa did not answer within 0.4 s; ended")


def test_one_that_waits_in_the_kernel_is_named_by_the_next(tmp_path: Path, write: Write) -> None:
    """A process whose vfork child has not ended waits in state D, as one does that hangs in a driver."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler here: a process in state D cannot be made")
    source = write("d.c", "#include <unistd.h>\nint main(void) { if (!vfork()) { pause(); _exit(0); } return 0; }\n")
    program = write(FI_INFO, "", 0o755)
    subprocess.run([compiler, "-w", "-o", str(program), str(source)], check=True)
    first = Host(str(tmp_path / "root"), seconds=20, locks=str(tmp_path / "locks"))
    first.start("fi_info")
    try:
        second = Host(str(tmp_path / "root"), seconds=1.0, locks=str(tmp_path / "locks"))
        with pytest.raises(Busy, match=r"still runs .*process [0-9]+ in state D") as busy:
            second.run("fi_info")
        assert busy.value.left and "D" == busy.value.left.state
        assert busy.value.left.seconds < 20
    finally:
        first.end_all()
