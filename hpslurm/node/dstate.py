"""Processes in state D: does one hang in the kernel, where no signal reaches it?

A task that waits for a dead GPU, a hung driver call or a lost file system stays in state
D. It holds its GPU and its segments, and Slurm cannot end its job ("Kill task failed"
drains the node). Waiting for a disk looks the same for a moment, so a process counts
only if it did not run between two looks.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from hpslurm.core import suggest
from hpslurm.core.finding import LOOK, P1, Evidence, Finding, Rule, Suggestion
from hpslurm.core.policy import Policy
from hpslurm.core.probe import Unknown
from hpslurm.core.text import clean
from hpslurm.core.values import dataclass
from hpslurm.sources.host import Host

STUCK = Rule("dstate-stuck", P1, "Processes stuck in the kernel", "debugging-guide.md § 7")
BETWEEN = 0.3  # seconds between the two looks


@dataclass(frozen=True)
class Stuck:
    pid: int
    name: str
    where: str  # the kernel function it waits in; empty where we may not see it


@dataclass(frozen=True)
class Facts:
    stuck: tuple[Stuck, ...]
    seen: int  # processes looked at


def collect(host: Host) -> Facts:
    first, seen = _waiting(host, host.glob("/proc/[0-9]*/stat"))
    if not seen:
        raise Unknown("/proc shows no process")
    if first:
        time.sleep(BETWEEN)
    again, _ = _waiting(host, [f"/proc/{pid}/stat" for pid in first])
    still = [pid for pid, moves in again.items() if moves == first[pid]]
    return Facts(tuple(Stuck(pid, _name(host, pid), _where(host, pid)) for pid in still), seen)


def _waiting(host: Host, paths: list[str]) -> tuple[dict[int, str], int]:
    """Pid to start time and number of switches, of those in state D; and how many were readable."""
    waiting, seen = {}, 0
    for path in paths:
        try:
            state, started = state_and_start(host.read(path))
            if not state:
                continue
            seen += 1
            if state == "D":
                folder = path.rpartition("/")[0]
                switches = [line for line in host.read(f"{folder}/status").splitlines() if "ctxt_switches" in line]
                waiting[int(folder.rpartition("/")[2])] = " ".join([started, *switches])
        except (FileNotFoundError, ProcessLookupError):  # it ended meanwhile
            continue
    return waiting, seen


def state_and_start(stat: str) -> tuple[str, str]:
    """State and start time of a process, of ``/proc/<pid>/stat``; two empty texts where it is cut off.

    >>> state_and_start("6612 (python3 (a) b) D 1 6612 6612 0 -1 4194304 9 0 0 0 12 3 0 0 20 0 1 0 48251")
    ('D', '48251')
    >>> state_and_start("6612 (python3 (a) b) D 1 6612 6612 0 -1 4194304 9 0 0 0 12 3 0 0 20 0 1 0")
    ('', '')
    """
    words = stat.rpartition(")")[2].split()
    return (words[0], words[19]) if len(words) >= 20 else ("", "")


def _name(host: Host, pid: int) -> str:
    try:
        return clean(host.word(f"/proc/{pid}/comm") or "", 40)
    except OSError:
        return ""


def _where(host: Host, pid: int) -> str:
    try:
        return clean(host.word(f"/proc/{pid}/wchan") or "", 60)
    except OSError:
        return ""


def judge(facts: Facts, policy: Policy) -> Iterator[Finding]:
    if facts.stuck:
        names = ", ".join(f"{one.name} ({one.pid})" for one in facts.stuck[:5])
        yield STUCK.found(
            f"{len(facts.stuck)} of {facts.seen} processes did not run between two looks: {names}",
            evidence=[
                Evidence(f"/proc/{process.pid}", f"{process.name} state D in {process.where or 'the kernel'}")
                for process in facts.stuck[:20]
            ],
            suggest=[
                Suggestion(
                    LOOK,
                    "see where they wait: nv* is the GPU driver, ll_ and ptlrpc are Lustre, nfs and rpc are NFS",
                    "clush -w {nodes} 'ps -eo pid,stat,wchan:32,user,comm | grep \" D\"'",
                ),
                suggest.save_evidence(),
                suggest.drain(STUCK.id),
                suggest.reboot("if they are still there after a minute: only a reboot removes them"),
            ],
        )
