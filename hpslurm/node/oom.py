"""OOM kills: did the kernel end a process because memory ran out, and whose?

A rank that is killed prints nothing. The others wait for it until a time-out that looks
like a network fault. During a job only its own time counts; without a job, the last day.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator

from hpslurm.core.finding import CONFIGURE, LOOK, P1, Evidence, Finding, Rule, Suggestion
from hpslurm.core.policy import Policy
from hpslurm.core.probe import Unknown
from hpslurm.core.text import clean, whole
from hpslurm.core.values import dataclass
from hpslurm.sources import kmsg
from hpslurm.sources.host import Host

KILLED = Rule("oom-kill", P1, "The kernel killed a process for memory", "debugging-guide.md § 4")
RECENT = 86400.0  # seconds
SLACK = 5.0  # seconds; the kernel's clock drifts
_KILLED = re.compile(r"(Memory cgroup out of memory|Out of memory)[^:]*: Killed process (\d{1,10}) \(([^)]{0,64})\)")
_CGROUP = "oom-kill:constraint="  # ...,task_memcg=/slurm/job_4711/step_0,task=python3,pid=77,uid=1000
_PID = re.compile(r",pid=(\d{1,10})\b")
_JOB = re.compile(r",task_memcg=[^,\s]{0,4000}?/job_(\d{1,12})")


@dataclass(frozen=True)
class Kill:
    time: float  # seconds since the epoch
    pid: int
    name: str
    cgroup: bool  # its cgroup's limit, not the node's memory, was the reason
    job: int | None  # as the cgroup's path names it


@dataclass(frozen=True)
class Facts:
    kills: tuple[Kill, ...]  # since the job began, or within a day
    earlier: int
    begins: float  # since when the log is whole; 0: since boot


def since(host: Host, log: kmsg.Log) -> float:
    """From when on a line counts: the job's start, else a day ago. A saved machine has its own now."""
    began = host.env.get("SLURM_JOB_START_TIME", "")
    start = whole(began)
    if start is not None:
        return start - SLACK
    return (log.booted + host.uptime() if host.root else time.time()) - RECENT


def read(host: Host) -> kmsg.Log:
    """The kernel's log. Raises Unknown where it shows no record at all, OSError where we may not read it."""
    log = kmsg.read(host)
    if not any(line.partition(b",")[0].isdigit() for line in log.raw):
        raise Unknown(f"{kmsg.PATH} shows no record of the kernel")
    return log


def collect(host: Host) -> Facts:
    log = read(host)
    kills = list(kills_of(log.matching(b"oom-kill:", b"Killed process")))
    start = since(host, log)
    fresh = tuple(kill for kill in kills if kill.time >= start)
    return Facts(fresh[-50:], len(kills) - len(fresh), log.begins)


def kills_of(records: Iterable[kmsg.Record]) -> Iterator[Kill]:
    """The kills among lines of the kernel; the line before one names the cgroup, and so the job.

    >>> lines = (
    ...     "oom-kill:constraint=CONSTRAINT_MEMCG,task_memcg=/slurm/job_4711/step_0,task=python3,pid=77,uid=1000",
    ...     "Memory cgroup out of memory: Killed process 77 (python3) total-vm:9kB, anon-rss:1kB, UID:1000",
    ... )
    >>> list(kills_of(kmsg.Record(0, 1.0, 1756720001.0, 3, line) for line in lines))
    [Kill(time=1756720001.0, pid=77, name='python3', cgroup=True, job=4711)]
    """
    jobs: dict[int, int | None] = {}
    for record in records:
        if record.text.startswith(_CGROUP):
            pid, job = _last(_PID, record.text), _last(_JOB, record.text)
            if pid is not None:
                jobs[pid] = job
        elif match := _KILLED.match(record.text):
            pid = int(match[2])
            yield Kill(record.time, pid, clean(match[3], 40), match[1].startswith("Memory"), jobs.get(pid))


def _last(expression: re.Pattern[str], text: str) -> int | None:
    """The last number: what stands before it, such as the name of the task, is its user's."""
    numbers = expression.findall(text)
    return int(numbers[-1]) if numbers else None


def judge(facts: Facts, policy: Policy) -> Iterator[Finding]:
    if not facts.kills:
        return
    last = facts.kills[-1]
    reason = "its cgroup's limit" if last.cgroup else "the node's memory"
    whose = f" of job {last.job}" if last.job is not None else ""
    yield KILLED.found(
        f"{len(facts.kills)} processes killed, the last one {last.name} ({last.pid}){whose} for {reason}",
        evidence=[
            Evidence(
                "kernel log",
                f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime(kill.time))} {kill.name} ({kill.pid})"
                + (f" job {kill.job}" if kill.job is not None else ""),
            )
            for kill in facts.kills[-8:]
        ],
        suggest=[
            Suggestion(LOOK, "see all of them", "clush -w {nodes} 'sudo dmesg -T | grep -i -e oom-kill -e Killed'"),
            Suggestion(CONFIGURE, "ask for more memory (--mem=0 takes the node's), or start fewer data loader workers"),
        ],
    )
