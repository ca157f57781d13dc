"""Processes on GPUs that no job of this node owns: left over from an earlier job.

They hold GPU memory, so that the next job runs out of it, or its NCCL waits for a
device that is still busy. Asked only in a hook: in a step the job's own are there. Who
owns a process is read from its cgroup, as Slurm puts each job into one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from hpslurm.core import suggest
from hpslurm.core.finding import CONFIGURE, P1, Evidence, Finding, Rule, Suggestion
from hpslurm.core.policy import Policy
from hpslurm.core.probe import Skip, Unknown
from hpslurm.core.text import clean
from hpslurm.core.values import dataclass
from hpslurm.node import gpus
from hpslurm.sources import gpu
from hpslurm.sources.host import STUCK, Host

LEFT = Rule("gpu-leftover", P1, "Processes left on a GPU", "debugging-guide.md § 11", cause="gpu_oom", gateable=True)

# Monitoring that may hold a context; names as /proc/<pid>/comm cuts them.
SERVICES = ("nv-hostengine", "dcgm-exporter", "nvidia-cuda-mps", "nvidia-persiste", "nvidia-smi")
FIRST_USER = 1000  # uid; below are root and the accounts of services
JOB_CGROUP = re.compile(r"/job_([0-9]+)(?:/|$)", re.MULTILINE)
_STEP = re.compile(r"slurmstepd: \[([0-9]+)[.\]]")


@dataclass(frozen=True)
class Process:
    gpu: str
    pid: int
    name: str
    state: str  # as in /proc/<pid>/stat
    seconds: float  # since it was started
    job: str  # whose cgroup it is in, or empty


@dataclass(frozen=True)
class Facts:
    left: tuple[Process, ...]
    trouble: str = ""


def start(host: Host) -> None:
    gpu.start(host)


def collect(host: Host) -> Facts:
    if not host.in_hook:
        raise Skip("in a step the job's own processes are on its GPUs")
    answers = gpus.answers(host, "processes")
    left, hidden = [], []
    running: set[str] | None = None
    for device in answers.gpus:
        for pid in device.processes or ():
            process = _process(host, str(device), pid)
            if process is None:
                hidden.append(pid)
            elif not (process.name in SERVICES and _uid(host, pid) < FIRST_USER):
                running = jobs(host) if running is None else running
                if not process.job or process.job not in running:
                    left.append(process)
    trouble = [answers.trouble] if answers.trouble else []
    if hidden:
        trouble.append(f"process {', '.join(map(str, hidden))} on a GPU is not visible here (another pid namespace?)")
    return Facts(tuple(left), "; ".join(trouble))


def jobs(host: Host) -> set[str]:
    """Jobs that have a slurmstepd of root here, and the one this hook is for."""
    running = {host.env.get("SLURM_JOB_ID", "")} if host.env.get("SLURM_SCRIPT_CONTEXT") != gpus.EPILOG else set()
    for path in host.glob("/proc/[0-9]*/cmdline"):
        try:
            match = _STEP.match(host.read(path, 4096))
            if match and _uid(host, int(path.split("/")[2])) in (0, os.geteuid()):
                running.add(match[1])
        except OSError:  # it ended meanwhile
            continue
    return running


def _uid(host: Host, pid: int) -> int:
    """Whose process it is: its name and its arguments it may choose itself."""
    try:
        return os.stat(host.path(f"/proc/{pid}")).st_uid
    except OSError:
        return FIRST_USER


def _stat(text: str) -> tuple[str, str, float]:
    """Name, state, and seconds after boot at which it began, out of /proc/PID/stat. Raises ValueError or IndexError.

    >>> _stat("4711 (tmux: client (1)) S 1 4711 4711 0 -1 4194304 98 0 0 0 1 2 0 0 20 0 1 0 123456 2703360 100")
    ('tmux: client (1)', 'S', 1234.56)
    """
    words = text[text.rindex(")") + 1 :].split()
    return text[text.index("(") + 1 : text.rindex(")")], words[0], int(words[19]) / 100


def _process(host: Host, label: str, pid: int) -> Process | None:
    try:
        name, state, began = _stat(host.read(f"/proc/{pid}/stat"))
        seconds = float(host.read("/proc/uptime").split()[0]) - began
        match = JOB_CGROUP.search(host.read(f"/proc/{pid}/cgroup"))
    except (OSError, ValueError, IndexError):
        return None
    return Process(label, pid, clean(name, 20), clean(state, 1), round(seconds, 1), match[1] if match else "")


def judge(facts: Facts, policy: Policy) -> Iterator[Finding]:
    if facts.left:
        yield _found(list(facts.left))
    if facts.trouble:
        raise Unknown(facts.trouble)


def _found(left: list[Process]) -> Finding:
    pids = sorted({process.pid for process in left})
    stuck = sorted({process.pid for process in left if process.state == STUCK})
    steps = [
        gpus.see("nvidia-smi --query-compute-apps=gpu_uuid,pid,name,used_memory --format=csv", "see who holds what"),
        suggest.drain(LEFT.id),
        Suggestion(
            CONFIGURE,
            "end them, once you know that nobody needs them",
            f"clush -w {{nodes}} sudo kill {' '.join(map(str, pids))}",
        ),
    ]
    if stuck:
        steps.append(suggest.reboot(f"process {stuck[0]} is stuck in the kernel (state {STUCK}) and cannot be killed"))
    return LEFT.found(
        f"{len(pids)} processes on {gpus.names(sorted({process.gpu for process in left}))} belong to no running job: "
        + ", ".join(f"{process.pid} {process.name}" for process in left[:4]),
        evidence=[
            Evidence(
                process.gpu,
                f"pid {process.pid} {process.name}, state {process.state}, {process.seconds:.0f} s old, "
                + (f"of job {process.job}, which has ended" if process.job else "of no job"),
            )
            for process in left
        ],
        suggest=steps,
    )
