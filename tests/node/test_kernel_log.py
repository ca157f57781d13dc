"""OOM kills and the kernel's complaints, as their lines stand in the log."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hpslurm.core.policy import Policy
from hpslurm.core.probe import Unknown
from hpslurm.node import efa_kernel, kernel_faults, oom
from hpslurm.sources.host import Host

BOOT = 1_756_720_000


def machine(*lines: str, uptime: int = 100_000) -> dict[str, str]:
    """Lines at 50000 s after boot."""
    records = "".join(f"3,{number},50000000000,-;{line}\n" for number, line in enumerate(lines))
    return {"/dev/kmsg": records, "/proc/stat": f"btime {BOOT}\n", "/proc/uptime": f"{uptime}.00 1.00\n"}


@pytest.mark.parametrize(
    ("line", "name", "cgroup"),
    [
        ("Out of memory: Killed process 12 (python3) total-vm:9kB, anon-rss:1kB", "python3", False),
        ("Memory cgroup out of memory: Killed process 12 (pt_main_thread) total-vm:9kB", "pt_main_thread", True),
        ("Out of memory (oom_kill_allocating_task): Killed process 12 (a b) c) total-vm:9kB", "a b", False),
    ],
)
def test_kills(host_with: Callable[..., Host], line: str, name: str, cgroup: bool) -> None:
    (kill,) = oom.collect(host_with(machine(line))).kills
    assert (12, name, cgroup) == (kill.pid, kill.name, kill.cgroup)


def test_the_cgroup_names_the_job(host_with: Callable[..., Host]) -> None:
    head = "oom-kill:constraint=CONSTRAINT_MEMCG,task_memcg=/slurm/job_4711/step_0,task=python3,pid=12,uid=1000"
    kill = oom.collect(host_with(machine(head, "Memory cgroup out of memory: Killed process 12 (a) x"))).kills
    assert (4711,) == tuple(one.job for one in kill)


def test_a_line_that_a_process_put_into_its_name_is_no_kill(host_with: Callable[..., Host]) -> None:
    assert () == oom.collect(host_with(machine("traps: x Out of memory: Killed process 12 (y)"))).kills


@pytest.mark.parametrize(("began", "counted"), [(BOOT + 50_000 + 6, 0), (BOOT + 50_000 + 4, 1)])
def test_only_the_time_of_the_job_counts_with_some_slack(
    host_with: Callable[..., Host], began: int, counted: int
) -> None:
    host = host_with(machine("Out of memory: Killed process 12 (a) x"), env={"SLURM_JOB_START_TIME": str(began)})
    assert (counted, 1 - counted) == (len(oom.collect(host).kills), oom.collect(host).earlier)


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("INFO: task python3:77 blocked for more than 122 seconds.", "kernel-hung-task"),
        ("INFO: task kworker/3:1:77 blocked in I/O wait for more than 368 seconds.", "kernel-hung-task"),
        ("watchdog: BUG: soft lockup - CPU#17 stuck for 26s! [python3:77]", "kernel-lockup"),
        ("rcu: INFO: rcu_preempt self-detected stall on CPU", "kernel-lockup"),
        ("BUG: kernel NULL pointer dereference, address: 0000000000000008", "kernel-oops"),
        ("Oops: Oops: 0002 [#1] PREEMPT SMP NOPTI", "kernel-oops"),
        ("kernel BUG at mm/slub.c:449!", "kernel-oops"),
        (
            "general protection fault, probably for non-canonical address 0xdead000000000122: 0000 [#1] SMP",
            "kernel-oops",
        ),
        ("Oops: general protection fault, maybe for address 0xff: 0000 [#2] PREEMPT_RT SMP NOPTI", "kernel-oops"),
        ("invalid opcode: 0000 [#1] PREEMPT(voluntary) SMP", "kernel-oops"),
        ("Internal error: Oops: 0000000096000004 [#1] SMP", "kernel-oops"),  # arm64
        ("Unable to handle kernel NULL pointer dereference at virtual address 0000000000000010", "kernel-oops"),
        ("BUG: KASAN: slab-out-of-bounds in nv_open+0x12/0x40", "kernel-oops"),
        ("Kernel panic - not syncing: Fatal exception", "kernel-oops"),
        ("NMI watchdog: Watchdog detected hard LOCKUP on cpu 3", "kernel-lockup"),
    ],
)
def test_complaints(host_with: Callable[..., Host], line: str, rule: str) -> None:
    facts = kernel_faults.collect(host_with(machine(line)))
    assert [rule] == [finding.rule.id for finding in kernel_faults.judge(facts, Policy())]


@pytest.mark.parametrize("line", ["usb 1-1: blocked", "audit: BUGGY", "EXT4-fs: lockups are no problem", "hello"])
def test_other_lines_are_none(host_with: Callable[..., Host], line: str) -> None:
    assert () == kernel_faults.collect(host_with(machine(line))).lines


SEGFAULT = "[7]: segfault at 0 ip 0000000000401126 sp 00007ffc1d2b0b70 error 4 in "


@pytest.mark.parametrize(
    "line",
    [
        "traps: python[1] general protection fault ip:7f3c5e2a1b2c sp:7ffe0c3d5a10 error:0 in libtorch_cpu.so[0+1000]",
        "traps: Oops: 0 [#1][77] trap divide error ip:401126 sp:7ffc1d2b0b70 error:0 in a.out[401000+1000]",
        f"BUG: x{SEGFAULT}a.out[401000+1000]",
        f"BUG: KASAN: xyz{SEGFAULT}BUG: KASAN: use-after-free in x[401000+1000]",
        f"Oops: 0 [#1]{SEGFAULT}a.out[401000+1000]",
        f"Oops: x: 0000 {SEGFAULT}y: 0000 [#1][401000+1000] likely on CPU 3 (core 1, socket 0)",
        f"INFO: task x{SEGFAULT}a:7 blocked for more than 122 seconds[401000+1000]",
        f"kernel BUG at x{SEGFAULT}a.c:449![401000+1000]",
        "overlayfs: failed to resolve 'BUG: unable to handle page fault for address: 0': -2",
        "overlayfs: failed to resolve 'watchdog: BUG: soft lockup - CPU#17 stuck for 26s!': -2",
    ],
)
def test_what_a_user_made_the_kernel_print_is_no_fault_of_the_kernel(host_with: Callable[..., Host], line: str) -> None:
    assert () == kernel_faults.collect(host_with(machine(line))).lines


def test_an_oops_counts_until_the_next_boot_and_a_hang_for_a_day(host_with: Callable[..., Host]) -> None:
    lines = ("Oops: 0002 [#1]", "INFO: task a:1 blocked for more than 122 seconds.")
    facts = kernel_faults.collect(host_with(machine(*lines, uptime=50_000 + 86_401)))
    assert (["kernel-oops"], 1) == ([line.rule for line in facts.lines], facts.earlier)


def test_a_log_without_a_record_is_unknown(host_with: Callable[..., Host]) -> None:
    with pytest.raises(Unknown, match="/dev/kmsg shows no record"):
        oom.collect(host_with({**machine(), "/dev/kmsg": "nothing here\n"}))


def test_of_what_happened_before_the_job_five_seconds_still_count(host_with: Callable[..., Host]) -> None:
    kill = "Out of memory: Killed process 12 (a) x"
    for usec, counted in ((50_000_999_999, 0), (50_001_000_000, 1)):
        files = {**machine(), "/dev/kmsg": f"3,0,{usec},-;{kill}\n"}
        host = host_with(files, env={"SLURM_JOB_START_TIME": str(BOOT + 50_006)})
        assert counted == len(oom.collect(host).kills)


DEVICE = "/sys/class/infiniband/rdmap79s0/device"
EFA = {f"{DEVICE}/vendor": "0x1d0f\n", f"{DEVICE}/device": "0xefa2\n"}
NO_INTERRUPT = "The device sent a completion but the driver didn't receive any MSI-X interrupt"
UNANSWERED = "Wait for completion (polling) timeout"


@pytest.mark.parametrize(
    ("line", "device"),
    [
        (f"infiniband rdmap79s0: {UNANSWERED}", "rdmap79s0"),
        (f"infiniband efa_0: {UNANSWERED}", "efa_0"),
        ("efa 0000:4f:00.0 rdmap79s0: Admin queue is closed", "0000:4f:00.0"),
        ("efa 0000:4f:00.0: Reset indication didn't turn on", "0000:4f:00.0"),
        ("infiniband rdmap79s0: The device didn't send any completion for admin cmd CREATE_QP(1)", "rdmap79s0"),
        (f"infiniband rdmap79s0: {NO_INTERRUPT} for admin cmd CREATE_QP(1)", "rdmap79s0"),
    ],
)
def test_an_efa_device_that_does_not_answer_is_dead(host_with: Callable[..., Host], line: str, device: str) -> None:
    facts = efa_kernel.collect(host_with({**machine(line), **EFA}))
    (finding,) = efa_kernel.judge(facts, Policy())
    assert ("efa-device-dead", "P0", False) == (finding.rule.id, finding.rule.priority, finding.rule.gateable)
    assert finding.detail.startswith(f"{device}: ")
    assert ["drain", "reboot", "replace"] == [one.harm for one in finding.suggestions][-3:]


@pytest.mark.parametrize(
    "line",
    [
        f"ena 0000:00:05.0 ens5: {UNANSWERED}",  # the other network driver prints the same words
        f"infiniband erdma_0: {UNANSWERED}",
        f"python3[77]: infiniband rdmap79s0: {UNANSWERED}",
        "infiniband rdmap79s0: Failed to process command REG_MR (opcode 7) comp_status 1 err -12",
    ],
)
def test_what_other_drivers_and_programs_say_kills_no_efa_device(host_with: Callable[..., Host], line: str) -> None:
    assert () == efa_kernel.collect(host_with({**machine(line), **EFA})).dead
