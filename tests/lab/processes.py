"""Processes of a lab: known by pid and start time together, so that a pid used again is never taken for ours."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable

Process = tuple[int, int]  # pid, start time in clock ticks since boot


def start_time(pid: int) -> int | None:
    """In clock ticks since boot; None for a process that is gone, or a zombie."""
    fields = _stat(pid)
    return None if fields is None or fields[0] in (b"Z", b"X") else int(fields[19])


def parent(pid: int) -> int:
    fields = _stat(pid)
    return int(fields[1]) if fields else 0


def _stat(pid: int) -> list[bytes] | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()
    except OSError:
        return None


def alive(process: Process) -> bool:
    return start_time(process[0]) == process[1]


def all_pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def environment(pid: int) -> list[bytes]:
    """``NAME=value`` as the process was started with; empty where we may not look."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return file.read().split(b"\0")
    except OSError:
        return []


def name(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/comm") as file:
            return file.read().strip()
    except OSError:
        return ""


def has_open(pid: int, folder: str) -> bool:
    """Whether it holds a file below the folder open."""
    try:
        return any(os.readlink(one.path).startswith(f"{folder}/") for one in os.scandir(f"/proc/{pid}/fd"))
    except OSError:
        return False


def with_descendants(pids: Iterable[int]) -> list[Process]:
    """These and all below them, but never this process or one above it."""
    children: dict[int, list[int]] = {}
    for pid in all_pids():
        children.setdefault(parent(pid), []).append(pid)
    found: dict[int, int] = {}
    spared = _this_and_above()
    waiting = list(pids)
    while waiting:
        pid = waiting.pop()
        began = start_time(pid)
        if pid in found or pid in spared or began is None:
            continue
        found[pid] = began
        waiting += children.get(pid, [])
    return list(found.items())


def below_this() -> list[Process]:
    """All descendants of this process."""
    return with_descendants(pid for pid in all_pids() if parent(pid) == os.getpid())


def _this_and_above() -> set[int]:
    above, pid = set(), os.getpid()
    while pid > 0 and pid not in above:
        above.add(pid)
        pid = parent(pid)
    return above


def stop(processes: list[Process], grace: float) -> list[Process]:
    """Ask, wait at most ``grace`` seconds, then kill. Returns those that are still there."""
    for sign, seconds in ((signal.SIGTERM, grace), (signal.SIGKILL, 3.0)):
        processes = [process for process in processes if alive(process)]
        for pid, _ in processes:
            try:
                os.kill(pid, sign)
            except ProcessLookupError:
                continue
        end = time.monotonic() + seconds
        while time.monotonic() < end and any(alive(process) for process in processes):
            time.sleep(0.02)
    return [process for process in processes if alive(process)]
