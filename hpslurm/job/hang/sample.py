"""One node's share of a look at a running job: its ranks three times in two seconds, and what counters gained.

Nothing is paused: py-spy reads the stacks of running processes, everything else comes from /proc, sysfs and NVML.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable
from typing import Any

from hpslurm.core.probe import Skip, Unknown
from hpslurm.core.text import clean
from hpslurm.job.hang import ranks as hang_ranks
from hpslurm.job.hang.facts import MOST_RANKS, STUCK, Child, Frame, Gpu, Node, Rank, Stack
from hpslurm.node import efa_counters
from hpslurm.sources import gpu, processes, ras_client
from hpslurm.sources.host import Host, error_of
from hpslurm.sources.processes import Process

APART = 2.0  # seconds between the two looks
SECONDS = 12.0  # for all programs of one look: less than the step has
MOST_THREADS, MOST_THREAD_FRAMES = 6, 8
BAD = (STUCK, "T", "t", "Z")  # states of a process that does not get on
DUMPS = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")  # where flight recorder dumps begin with
PIPES = "TORCH_NCCL_DEBUG_INFO_PIPE_FILE"  # named pipes, one a rank: whoever writes into one asks for a dump
PTRACE = "/proc/sys/kernel/yama/ptrace_scope"

Threads = dict[int, list[dict[str, Any]]]  # of each process, as py-spy has them


def take(job: str, node: str, root: str = "/", own_step: str = "") -> Node:
    """Look at the job's processes here. Raises nothing: what could not be seen is a note."""
    looks = [_Look(root), _Look(root), _Look(root)]
    try:
        return _take(job, node, own_step, *looks)
    finally:
        for look in looks:
            look.host.end_all()
            look.spy.end_all()


class _Look:
    """The doors of one look: a door keeps what it was told. Processes are always this machine's own."""

    def __init__(self, root: str) -> None:
        self.host = Host(root, seconds=SECONDS)
        self.spy = Host(seconds=SECONDS)


def _take(job: str, node: str, own_step: str, one: _Look, two: _Look, three: _Look) -> Node:
    notes: list[str] = []
    gpu.start(one.host)
    found, hung = processes.of_job(job, node, own_step)
    ranks = hang_ranks.ranks_of(found)[:MOST_RANKS]
    began = time.monotonic()
    efa_before = _efa(one.host)
    first = _stacks([process for _, process in ranks], one.spy, notes)
    snapshot = _snapshot(one.host)
    gpu.start(two.host)
    seen = [process for _, process in ranks if process.pid in first]
    _wait_until(began + APART / 2)
    later = _stacks(seen, two.spy, [])
    _wait_until(began + APART)
    again = {process.pid: process for process in _again(found)}
    later = _differing(first, later, _stacks(seen, three.spy, []))
    gained, seconds = _gained(efa_before, _efa(two.host)), time.monotonic() - began
    gpus, nvlink = _gpus(snapshot, _snapshot(two.host))
    notes += [f"process {pid} could not be read: it does not let go in the kernel" for pid in hung[:8]]
    return Node(
        node,
        tuple(_rank(node, name, process, again, found, first, later) for name, process in ranks),
        gpus,
        round(seconds, 2),
        gained,
        nvlink,
        _free(two.host),
        _load(two.host),
        tuple(process.pid for process in found if process.state == "Z"),
        tuple(dict.fromkeys(notes)),
        ras_client.status(_variable(found, "NCCL_RAS_ADDR")) if any(name.rank == 0 for name, _ in ranks) else "",
        next(filter(None, (_variable(found, name) for name in DUMPS)), ""),
        _variable(found, PIPES),
    )


def _wait_until(when: float) -> None:
    time.sleep(max(0.0, when - time.monotonic()))


def _differing(first: Threads, second: Threads, third: Threads) -> Threads:
    """The third look, but for processes whose stack moved in the second."""
    moved = {pid: threads for pid, threads in second.items() if main_stack(threads, pid) != main_stack(first[pid], pid)}
    return {**third, **moved}


def _again(found: Iterable[Process]) -> list[Process]:
    return list(processes.each([process.pid for process in found], processes.read)[0].values())


def _rank(
    node: str,
    name: hang_ranks.Name,
    process: Process,
    again: dict[int, Process],
    found: list[Process],
    first: Threads,
    later: Threads,
) -> Rank:
    now = again.get(process.pid)
    seen = now or process
    apart = max(0.1, seen.seen - process.seen)
    threads = first.get(process.pid)
    bad = [again[child.pid] for child in hang_ranks.descendants(process.pid, found)
           if child.pid in again and again[child.pid].state in BAD]  # fmt: skip
    return Rank(
        node,
        process.pid,
        name.rank,
        name.local,
        name.world,
        name.locals,
        name.step,
        process.name,
        "X" if now is None else seen.state,  # gone while we looked
        process.state,
        seen.channel,
        round(max(0.0, seen.cpu - process.cpu) / apart, 2),
        round(max(0, seen.switches - process.switches) / apart, 1),
        max(0, seen.bytes - process.bytes),
        round(time.time() - process.began, 1),
        processes.stuck_at(process.pid) if seen.state == STUCK else "",
        main_stack(threads, process.pid),
        main_stack(later.get(process.pid), process.pid),
        _threads(threads, process.pid),
        tuple(processes.kernel_stack(process.pid)) if os.geteuid() == 0 else (),
        tuple(_child(child) for child in bad[:16]),
    )


def _child(process: Process) -> Child:
    where = processes.stuck_at(process.pid) if process.state == STUCK else ""
    return Child(process.pid, process.name, process.state, process.channel, where)


# Python stacks


def _stacks(wanted: Iterable[Process], host: Host, notes: list[str]) -> Threads:
    """Threads of each Python process by py-spy, all asked at once; why there are none is one note."""
    pythons = [process.pid for process in wanted if hang_ranks.is_python(process) and process.state != "Z"]
    try:
        for pid in pythons:
            host.start("py_spy", str(pid))
    except Unknown as why:
        notes.append(without_stacks(str(why), host))
        return {}
    found = {}
    for pid in pythons:
        output = host.answer("py_spy", str(pid))
        threads = _json(output.out) if output.status == 0 else None
        if threads is None:
            notes.append(without_stacks(output.late or error_of(output), host))
        else:
            found[pid] = threads
    return found


def without_stacks(why: str, host: Host) -> str:
    """One line: what is missing, and what would bring it."""
    if "not installed" in why:
        return "no Python stacks: py-spy is not installed on the nodes"
    if "permission" in why.lower() or "ptrace" in why.lower():
        scope = host.word(PTRACE) or "0"
        because = "to read the processes is not permitted" if scope == "0" else f"kernel.yama.ptrace_scope is {scope}"
        root = "root gets them on a node (sudo hpslurm hang JOBID --here)"
        bring = root if scope in ("0", "3") else f"{root}, all with 0"
        return f"no Python stacks, since {because}: {bring}, or the job itself by faulthandler.register"
    return f"no Python stacks of some processes: {clean(why, 120)}"


def _json(text: str) -> list[dict[str, Any]] | None:
    try:
        threads = json.loads(text)
    except ValueError:
        return None
    return [thread for thread in threads if isinstance(thread, dict)] if isinstance(threads, list) else None


def main_stack(threads: list[dict[str, Any]] | None, pid: int) -> Stack | None:
    """Of the main thread, whose number is the process's; never the values of variables."""
    for thread in threads or ():
        if thread.get("os_thread_id") == pid or thread.get("thread_name") == "MainThread":
            return _frames(thread)
    return None


def _threads(threads: list[dict[str, Any]] | None, pid: int) -> tuple[tuple[str, Stack], ...]:
    others = [thread for thread in threads or () if thread.get("os_thread_id") != pid]
    return tuple(
        (clean(str(thread.get("thread_name") or ""), 40), _frames(thread)[:MOST_THREAD_FRAMES])
        for thread in others[:MOST_THREADS]
    )


def _frames(thread: dict[str, Any]) -> Stack:
    frames = thread.get("frames")
    found = [frame_of(row) for row in frames if isinstance(row, dict)] if isinstance(frames, list) else []
    return tuple(found)


def frame_of(row: dict[str, Any]) -> Frame:
    path = str(row.get("filename") or "")
    library, short = short_path(path)
    line = row.get("line")
    return Frame(
        clean(str(row.get("name") or ""), 80), clean(short, 120), line if isinstance(line, int) else 0, library
    )


def short_path(path: str) -> tuple[bool, str]:
    """Whether a file is a library's, and its path below it; of the program's own file its last two names."""
    for mark in ("/site-packages/", "/dist-packages/"):
        if mark in path:
            return True, path.rpartition(mark)[2]
    head, _, below = path.rpartition("/python3")
    if head and "/" in below and head.endswith(("/lib", "/lib64")):
        return True, below.partition("/")[2]
    return path.startswith("<"), "/".join(path.rsplit("/", 2)[-2:])


# counters


def _efa(host: Host) -> int | None:
    try:
        devices = efa_counters.collect(host).devices
    except (Skip, Unknown, OSError):
        return None
    return sum(counts.get(name, 0) for counts in devices.values() for name in efa_counters.MOVED)


def _gained(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None else max(0, after - before)


def _snapshot(host: Host) -> gpu.Snapshot | None:
    try:
        return gpu.snapshot(host) if gpu.present(host) else None
    except (Skip, Unknown):
        return None


def _gpus(before: gpu.Snapshot | None, after: gpu.Snapshot | None) -> tuple[tuple[Gpu, ...], int | None]:
    """The GPUs at the second look, and the bytes that moved over NVLink since the first."""
    if before is None or after is None:
        return (), None
    moved = [
        now.nvlink_kib - then.nvlink_kib
        for then, now in zip(before.gpus, after.gpus, strict=False)
        if then.nvlink_kib is not None and now.nvlink_kib is not None and now.nvlink_kib >= then.nvlink_kib
    ]
    return tuple(map(_gpu, after.gpus)), sum(moved) * 1024 if moved else None


def _gpu(one: gpu.Gpu) -> Gpu:
    use, power, limit, memory, clock = one.activity or (None,) * 5
    lost = [text.text for text in one.trouble.values() if text.code in (gpu.LOST, gpu.RESET_REQUIRED)]
    watts = tuple(value / 1000 if value is not None else None for value in (power, limit))
    return Gpu(
        one.index, use, watts[0], watts[1], memory, clock, one.processes or (), clean(lost[0], 120) if lost else ""
    )


def _free(host: Host) -> float | None:
    rows = dict(line.split(":", 1) for line in _read(host, "/proc/meminfo").splitlines() if ":" in line)
    try:
        return round(int(rows["MemAvailable"].split()[0]) / int(rows["MemTotal"].split()[0]), 3)
    except (KeyError, ValueError, IndexError, ZeroDivisionError):
        return None


def _load(host: Host) -> float | None:
    try:
        return float(_read(host, "/proc/loadavg").split()[0])
    except (ValueError, IndexError):
        return None


def _read(host: Host, path: str) -> str:
    try:
        return host.read(path)
    except OSError:
        return ""


def _variable(found: Iterable[Process], name: str) -> str:
    return next((process.env[name] for process in found if name in process.env), "")
