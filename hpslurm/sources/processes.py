"""The door to the processes of one job on this machine: psutil, and /proc for what psutil lacks.

Nothing is paused, signalled or written. A process whose memory is locked in the kernel may hang whoever reads its
command line or environment, so each is read by a thread that is left behind where it does not return. Hooks do
not import this.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

import psutil

from hpslurm.core.text import clean
from hpslurm.core.values import dataclass, field, replace

T = TypeVar("T")
OWN_MOUNTS = ("", "/", "/dev", "/proc", "/sys", "/run")  # of the machine itself: nobody waits for these
PATIENCE = 0.5  # seconds for one process; reading a healthy one takes 0.2 ms
LETTERS = {
    psutil.STATUS_RUNNING: "R",
    psutil.STATUS_SLEEPING: "S",
    psutil.STATUS_DISK_SLEEP: "D",
    psutil.STATUS_STOPPED: "T",
    psutil.STATUS_TRACING_STOP: "t",
    psutil.STATUS_ZOMBIE: "Z",
    psutil.STATUS_DEAD: "X",
    psutil.STATUS_IDLE: "I",
}
# Who a process is in its job; nothing else of an environment leaves this file.
RANK = ("RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID")
LOCAL = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID")
WORLD = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS")
LOCALS = ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE")
KEPT = (
    *RANK, *LOCAL, *WORLD, *LOCALS, "SLURM_JOB_ID", "SLURM_STEP_ID", "SLURMD_NODENAME", "SLURM_CONF", "NCCL_RAS_ADDR",
    "TORCH_NCCL_DEBUG_INFO_PIPE_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE", "TORCH_FR_DUMP_TEMP_FILE",
)  # fmt: skip


@dataclass(frozen=True)
class Process:
    """One process at one moment. ``cpu`` is seconds of CPU time, ``bytes`` what it read and wrote, since its start."""

    pid: int
    parent: int
    name: str
    state: str
    began: float
    cpu: float = 0.0
    bytes: int = 0
    switches: int = 0  # of its main thread, of its own accord
    channel: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    in_cgroup: bool = False
    seen: float = 0.0  # when, on the monotonic clock


def each(items: Iterable[int], look: Callable[[int], T], patience: float = PATIENCE) -> tuple[dict[int, T], list[int]]:
    """``look`` at each, and those at which it did not return; the thread that hangs there is left behind."""
    todo = list(items)
    asked = set(todo)
    todo.reverse()
    looks: dict[int, T] = {}
    gone: set[int] = set()

    def work() -> None:
        while todo:
            item = todo.pop()
            try:
                looks[item] = look(item)
            except (psutil.Error, OSError):
                gone.add(item)

    while todo:
        done = -1
        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        while thread.is_alive() and done != len(looks) + len(gone):
            done = len(looks) + len(gone)
            thread.join(patience)
    return dict(looks), sorted(asked - set(looks) - gone)


def of_job(job: str, node: str, own_step: str = "") -> tuple[list[Process], list[int]]:
    """Processes of a job on this node, but for those of our own step, and pids that could not be read."""
    known, hung = each(psutil.pids(), lambda pid: belonging(pid, job))
    mine = {process.pid: process for process in chosen(known, job, node, own_step)}
    readable, stuck = each(mine, read)
    whole = [replace(process, env=mine[pid].env) for pid, process in sorted(readable.items())]
    return whole, sorted({*hung, *stuck})


def _of_another_cluster(env: Mapping[str, str]) -> bool:
    """Numbers of jobs are one cluster's own; on a machine of several, its configuration tells."""
    theirs, ours = env.get("SLURM_CONF"), os.environ.get("SLURM_CONF")
    try:
        return bool(theirs and ours) and not os.path.samefile(theirs or "", ours or "")
    except OSError:
        return False


def belonging(pid: int, job: str) -> Process:
    """Only what says whose process it is: a node has a thousand, and few are the job's."""
    process = psutil.Process(pid)
    return Process(pid, process.ppid(), "", "", 0.0, env=_env(process), in_cgroup=is_of(job, _text(pid, "cgroup")))


def chosen(known: Mapping[int, Process], job: str, node: str, own_step: str) -> list[Process]:
    """Those that carry the job's number (or lie in its cgroup), and all that descend from them."""
    ours = {os.getpid()}
    mine: dict[int, bool] = {}

    def is_mine(pid: int) -> bool:
        if pid in mine:
            return mine[pid]
        mine[pid] = False  # in case of a circle
        process = known.get(pid)
        if process is None or pid in ours:
            return False
        if own_step and process.env.get("SLURM_STEP_ID") == own_step and process.env.get("SLURM_JOB_ID") == job:
            return False
        if "SLURM_JOB_ID" in process.env:
            here = process.env.get("SLURMD_NODENAME") in (None, node)  # several slurmds may share a machine
            mine[pid] = process.env["SLURM_JOB_ID"] == job and here and not _of_another_cluster(process.env)
        else:
            mine[pid] = process.in_cgroup or is_mine(process.parent)
        return mine[pid]

    return [process for pid, process in sorted(known.items()) if is_mine(pid)]


def read(pid: int) -> Process:
    """What one process does. Raises psutil.Error or OSError where it is gone."""
    process = psutil.Process(pid)
    with process.oneshot():
        state = LETTERS.get(process.status(), "?")
        times = process.cpu_times()
        return Process(
            pid,
            process.ppid(),
            clean(_name(pid), 40),
            state,
            process.create_time(),
            times.user + times.system,
            _bytes(process),
            process.num_ctx_switches().voluntary,
            _channel(pid),
            seen=time.monotonic(),
        )


def _name(pid: int) -> str:
    """Of /proc, since psutil looks into the command line for a long one."""
    return _text(pid, "comm")


def _bytes(process: psutil.Process) -> int:
    try:
        counters = process.io_counters()
    except (psutil.Error, OSError, ValueError):
        return 0
    return int(counters.read_chars + counters.write_chars)


def _env(process: psutil.Process) -> dict[str, str]:
    try:
        env = process.environ()
    except (psutil.Error, OSError, ValueError):  # a zombie, or another user's
        return {}
    return {name: clean(env[name], 200) for name in KEPT if name in env}


def _channel(pid: int) -> str:
    return clean(_text(pid, "wchan"), 60).strip("0")


def is_of(job: str, cgroup: str) -> bool:
    """Whether a process with this /proc/PID/cgroup is one of the job's: of version 2, and of 1.

    >>> is_of("4711", "0::/system.slice/slurmstepd.scope/job_4711/step_0/user/task_0")
    True
    >>> is_of("471", "4:memory:/slurm/uid_1001/job_4711/step_batch"), is_of("471", "4:memory:/slurm/uid_1001/job_471")
    (False, True)
    """
    return re.search(rf"/job_{re.escape(job)}(?:/|$)", cgroup, re.MULTILINE) is not None


def _text(pid: int, name: str) -> str:
    try:
        with open(f"/proc/{pid}/{name}", errors="replace") as file:
            return file.read(1 << 16).strip()
    except OSError:
        return ""


def kernel_stack(pid: int) -> list[str]:
    """Functions of the kernel that it is in, the innermost first; empty for whoever is not root."""
    return functions_of(_text(pid, "stack"))


def functions_of(stack: str) -> list[str]:
    """The names of ``/proc/<pid>/stack``.

    >>> functions_of('''
    ... [<0>] nv_drm_wait+0x2a/0x40 [nvidia]
    ... [<0>] do_syscall_64+0x5b/0xb0
    ... ''')
    ['nv_drm_wait', 'do_syscall_64']
    """
    return [clean(name, 80) for name in re.findall(r"\] ([A-Za-z0-9_.]+)", stack)]


def stuck_at(pid: int) -> str:
    """The file that a process in state D waits for: by its system call where we may see that, else by its open files.

    Links only are read: to look at the file itself could hang us as well, and psutil's open_files does.
    """
    files = _open_files(pid)
    words = _text(pid, "syscall").split()
    if len(words) > 1 and words[1].startswith("0x"):
        try:
            if (path := files.get(int(words[1], 16))) is not None:
                return path
        except ValueError:
            pass
    mounts = _mounts(pid)
    away = [path for path in files.values() if _mount_of(path, mounts) not in OWN_MOUNTS]
    return away[-1] if away else ""


def _open_files(pid: int) -> dict[int, str]:
    paths = {}
    try:
        numbers = sorted(os.listdir(f"/proc/{pid}/fd"), key=lambda name: int(name) if name.isdigit() else 0)[:4096]
    except OSError:
        return {}
    for number in numbers:
        try:
            target = os.readlink(f"/proc/{pid}/fd/{number}")
        except OSError:
            continue
        if target.startswith("/") and not target.startswith(("/dev/", "/proc/", "/sys/", "/memfd:")):
            paths[int(number)] = clean(target, 200)
    return paths


def _mounts(pid: int) -> list[str]:
    rows = (line.split() for line in _text(pid, "mountinfo").splitlines())
    return sorted((row[4] for row in rows if len(row) > 4), key=len, reverse=True)


def _mount_of(path: str, mounts: Iterable[str]) -> str:
    """The mount that a path is below; the longest stand first.

    >>> _mount_of("/fsx/ada/ckpt", ["/fsx/ada", "/fsx", "/"]), _mount_of("/fsx2/x", ["/fsx", "/"])
    ('/fsx/ada', '/')
    """
    return next((mount for mount in mounts if path == mount or path.startswith(mount.rstrip("/") + "/")), "")
