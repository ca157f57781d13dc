"""What each job does on this node's GPUs, kept from one health check to the next: a job that hangs shows itself.

NCCL's kernel keeps a GPU busy while it waits, at a fraction of its power, and no byte moves. One look cannot tell
that from a slow step, so each record says since when the picture is the same; ``diagnose`` and ``metrics`` compare
the job's nodes. A job is known by the processes on the GPUs: to read all of a node would cost ten times as much.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Mapping

from hpslurm.core.finding import Finding
from hpslurm.core.policy import Policy
from hpslurm.core.probe import Skip, Unknown
from hpslurm.core.records import Record
from hpslurm.core.text import whole
from hpslurm.core.values import dataclass, field
from hpslurm.node import efa, efa_counters, gpus
from hpslurm.node.gpu_processes import JOB_CGROUP
from hpslurm.sources import gpu
from hpslurm.sources.host import Host

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing costs a hook as much as several probes
    from typing import Any

BUSY, IDLE = 90, 5  # percent of use: a kernel runs, or none
LOW_POWER = 0.4  # share of the limit; a kernel that only waits takes less
BYTES = 1 << 20  # a second, over EFA, NVLink and files, from which something moves
LEAST = 20.0  # seconds between two looks that can be compared
WAITS, DIFFERS, IDLES, WORKS, UNKNOWN = "waits", "differs", "idle", "works", "unknown"
PROBE = "job_activity"
_ENV = re.compile(rb"(?:^|\0)SLURM_JOB_ID=([0-9]{1,12})(?:\0|$)")
_MOST_ENV = 256 << 10  # bytes of one environment


@dataclass(frozen=True)
class Job:
    """What one job does here. Of its GPUs ``waiting`` run a kernel at low power and ``idle`` none.

    ``cpu`` is seconds of CPU time and ``bytes`` what its processes read and wrote, since their start. ``doing`` and
    ``since`` come by comparing with the health check before: see ``compared``.
    """

    gpus: int = 0
    waiting: int = 0
    idle: int = 0
    seen: int = 0  # of its GPUs, those that told what they do
    cpu: float = 0.0
    bytes: int = 0
    uid: int = -1
    doing: str = UNKNOWN
    since: float = 0.0


@dataclass(frozen=True)
class Facts:
    time: float  # seconds since the epoch
    jobs: dict[str, Job] = field(default_factory=dict)
    moved: int = 0  # bytes over EFA and NVLink since the drivers were loaded


def start(host: Host) -> None:
    gpu.start(host)


def collect(host: Host) -> Facts:
    if not host.in_hook:
        raise Skip("only the health check looks at other people's jobs")
    answers = gpus.answers(host, "activity", "processes", must=False)
    jobs: dict[str, list[tuple[gpu.Gpu, int]]] = {}
    for device in answers.gpus:
        for pid in device.processes or ():
            if job := _job_of(host, pid):
                jobs.setdefault(job, []).append((device, pid))
    if not jobs:
        raise Skip("no job uses a GPU here")
    links = sum(device.nvlink_kib or 0 for device in answers.gpus) * 1024
    return Facts(round(time.time(), 1), {job: _job(host, uses) for job, uses in jobs.items()}, links + _efa(host))


def _job_of(host: Host, pid: int) -> str:
    """By Slurm's cgroup, else by what the process carries; empty where it is no job's."""
    try:
        if match := JOB_CGROUP.search(host.read(f"/proc/{pid}/cgroup")):
            return match[1]
        named = _ENV.search(host.read_bytes(f"/proc/{pid}/environ", _MOST_ENV))
    except OSError:  # it ended meanwhile, or is of another namespace
        return ""
    return named[1].decode() if named else ""


def _job(host: Host, uses: list[tuple[gpu.Gpu, int]]) -> Job:
    devices = {device.index: device for device, _ in uses}.values()
    known = [device.activity for device in devices if device.activity and device.activity[0] is not None]
    pids = sorted({pid for _, pid in uses})
    return Job(
        len(devices),
        sum((use or 0) >= BUSY and _share(power, limit) < LOW_POWER for use, power, limit, *_ in known),
        sum((use or 0) < IDLE for use, *_ in known),
        len(known),
        round(sum(_cpu(host, pid) for pid in pids), 2),
        sum(_bytes(host, pid) for pid in pids),
        _uid(host, pids[0]),
    )


def _share(power: int | None, limit: int | None) -> float:
    return power / limit if power is not None and limit else 1.0


def _efa(host: Host) -> int:
    """Two counters of each device: all of them, which ``efa_counters`` reads, cost six times as much."""
    moved = 0
    for device in efa.devices(host):
        for name in efa_counters.MOVED:
            for place in (f"{efa.SYSFS}/{device}/ports/1/hw_counters", f"{efa.SYSFS}/{device}/hw_counters"):
                try:
                    count = host.number(f"{place}/{name}")
                except (Unknown, OSError):
                    count = None
                if count is not None:
                    moved += count
                    break
    return moved


def _cpu(host: Host, pid: int) -> float:
    """Seconds of CPU time of a process with all its threads."""
    try:
        words = host.read(f"/proc/{pid}/stat").rpartition(")")[2].split()
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return 0.0


def _bytes(host: Host, pid: int) -> int:
    try:
        rows = dict(line.split(": ", 1) for line in host.read(f"/proc/{pid}/io").splitlines() if ": " in line)
    except OSError:
        return 0
    return sum(whole(rows.get(name, "")) or 0 for name in ("rchar", "wchar"))


def _uid(host: Host, pid: int) -> int:
    try:
        match = re.search(r"^Uid:\s+(\d+)", host.read(f"/proc/{pid}/status"), re.MULTILINE)
    except OSError:
        return -1
    return int(match[1]) if match else -1


def judge(facts: Facts, policy: Policy) -> Iterator[Finding]:
    """Nothing: one node alone does not tell a job that hangs from one that works elsewhere."""
    return iter(())


# compared with the health check before


def compared(before: Any, after: dict[str, Any]) -> dict[str, Any]:
    """``after`` with what each job did since ``before``, and since when. Both as a record has them."""
    then: dict[str, Any] = before if isinstance(before, dict) else {}
    old = then.get("jobs")
    jobs = {name: _since(then, after, job, (old if isinstance(old, dict) else {}).get(name))
            for name, job in after["jobs"].items()}  # fmt: skip
    return {**after, "jobs": jobs}


def _since(then: dict[str, Any], after: dict[str, Any], job: dict[str, Any], old: Any) -> dict[str, Any]:
    if not isinstance(old, dict):
        return {**job, "since": after["time"]}  # seen for the first time
    seconds = after["time"] - _number(then, "time")
    if seconds < LEAST:  # too soon to say anything new
        return {**job, "doing": old.get("doing", UNKNOWN), "since": _number(old, "since")}
    doing = _doing(job, old, seconds, after["moved"] - _number(then, "moved"))
    if doing == WORKS:
        return {**job, "doing": doing, "since": after["time"]}
    since = _number(old, "since") if old.get("doing") == doing else _number(then, "time")
    return {**job, "doing": doing, "since": since}


def _doing(job: dict[str, Any], old: dict[str, Any], seconds: float, moved: float) -> str:
    if job["seen"] < job["gpus"]:
        return UNKNOWN
    files = job["bytes"] - _number(old, "bytes")
    cores = (job["cpu"] - _number(old, "cpu")) / seconds
    if (moved + files) / seconds >= BYTES or job["waiting"] + job["idle"] < job["gpus"]:
        return WORKS
    if job["idle"] and cores >= job["gpus"] - 0.5:  # each that waits spins; so does who has no kernel: it computes
        return WORKS
    return WAITS if not job["idle"] else IDLES if not job["waiting"] else DIFFERS


def _number(values: dict[str, Any], name: str) -> float:
    value = values.get(name)
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else 0.0


# read back from records


@dataclass(frozen=True)
class Share:
    """What one node does for a job. ``seen`` is when it was looked at, ``since`` from when on it did the same."""

    node: str
    doing: str
    since: float
    seen: float
    gpus: int


def activity(record: Record | None) -> Mapping[str, Any] | None:
    """What a health check recorded of the jobs on its node."""
    for result in record.results if record is not None and record.hook == "health" else ():
        if result.probe == PROBE and isinstance(result.facts, dict):
            return result.facts
    return None


def share_of(node: str, facts: Mapping[str, Any] | None, job: str) -> Share | None:
    jobs = facts.get("jobs") if facts else None
    activity = jobs.get(job) if isinstance(jobs, dict) else None
    if facts is None or not isinstance(activity, dict):
        return None
    since, seen, count = activity.get("since"), facts.get("time"), activity.get("gpus")
    if not isinstance(since, (int, float)) or not isinstance(seen, (int, float)) or not isinstance(count, int):
        return None
    return Share(node, str(activity.get("doing")), float(since), float(seen), count)


def stalled(told: Mapping[str, Mapping[str, Any]]) -> dict[tuple[str, int], float]:
    """Job and uid to the seconds that it stands still on all nodes that tell of it; 0 where one of them works."""
    shares: dict[tuple[str, int], list[Share]] = {}
    for node, facts in told.items():
        jobs = facts.get("jobs")
        for job, activity in jobs.items() if isinstance(jobs, dict) else ():
            if share := share_of(node, facts, str(job)):
                uid = activity.get("uid")
                shares.setdefault((str(job), uid if isinstance(uid, int) else -1), []).append(share)
    return {key: _seconds(found) for key, found in shares.items()}


def _seconds(shares: list[Share]) -> float:
    waiting = sum(share.doing == WAITS for share in shares)
    if any(share.doing in (WORKS, UNKNOWN) for share in shares) or waiting * 2 <= len(shares):
        return 0.0
    return max(0.0, min(share.seen for share in shares) - max(share.since for share in shares))
