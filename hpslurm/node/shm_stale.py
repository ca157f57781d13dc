"""/dev/shm/nccl-*: segments of dead jobs, which nobody will ever remove.

A rank that is killed leaves its segments behind; they hold memory until somebody
removes them or the node boots. A segment counts as stale only if no process has it
mapped or open: the files of a running job look just the same. A job whose /dev/shm is
private (job_container/tmpfs) has its own, which ends with it, and sees no other.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator

from hpslurm.core.finding import CONFIGURE, LOOK, P2, Evidence, Finding, Rule, Suggestion
from hpslurm.core.policy import Policy
from hpslurm.core.probe import Skip, Unknown
from hpslurm.core.text import clean, size
from hpslurm.core.values import dataclass
from hpslurm.sources.host import Host

STALE = Rule("shm-stale", P2, "NCCL segments in /dev/shm that no process holds", "debugging-guide.md § 15")
PRIVATE = Rule("shm-private", P2, "The job has a /dev/shm of its own", "debugging-guide.md § 15")
USERS_FILL_IT = True
MOST = 2000  # segments that are looked at
MOST_ENTRIES = 200_000  # names in /dev/shm that are looked at: anybody may put a million there
MOST_NAMED = 50  # in the record
SECONDS = 1.0  # for looking into processes
_OURS = re.compile(r"/dev/shm/nccl-\S{1,255}")


@dataclass(frozen=True)
class Facts:
    stale: tuple[str, ...]  # names, without the folder
    size: int  # bytes that they hold
    held: int  # segments that a process holds
    private: bool  # /dev/shm belongs to this job alone
    unseen: int = 0  # segments of other users, whose processes we may not look into
    count: int = 0  # of all that no process holds; ``stale`` names the first
    more: bool = False  # there are more names than were looked at


def collect(host: Host) -> Facts:
    private = is_private(host)
    owners: dict[str, tuple[int, int]] = {}  # path: uid, bytes
    paths, more = _segments(host)
    for path in paths:
        try:
            about = os.lstat(host.path(path))
        except FileNotFoundError:  # its job removed it just now
            continue
        owners[path] = (about.st_uid, about.st_blocks * 512)
    if not owners and not private:
        if not host.exists("/dev/shm"):
            raise Skip("there is no /dev/shm")
        return Facts((), 0, 0, False)
    me = os.geteuid()
    mine = {path: owner for path, owner in owners.items() if me in (0, owner[0])}
    held = _held(host, {uid for uid, _ in mine.values()}) if mine else set()
    stale = sorted(path for path in mine if path not in held and host.exists(path))
    total = sum(mine[path][1] for path in stale)
    names = tuple(clean(path.rpartition("/")[2], 80) for path in stale[:MOST_NAMED])
    return Facts(names, total, len(held & set(mine)), private, len(owners) - len(mine), len(stale), more)


def _segments(host: Host) -> tuple[list[str], bool]:
    """The first of them, and whether there are more than we look at."""
    segments: list[str] = []
    try:
        with os.scandir(host.path("/dev/shm")) as entries:
            for count, entry in enumerate(entries):
                if count >= MOST_ENTRIES or len(segments) > MOST:
                    break
                if entry.name.startswith("nccl-"):
                    segments.append(f"/dev/shm/{entry.name}")
            else:
                return sorted(segments), False
    except FileNotFoundError:
        return [], False
    return sorted(segments)[:MOST], True


def is_private(host: Host) -> bool:
    """In a step of a cluster with job_container/tmpfs: Slurm then binds /tmp from ``<base>/<job>/.<job>``."""
    job = host.env.get("SLURM_JOB_ID", "")
    if host.in_hook or not job.isdigit():
        return False
    mounts = [line.split() for line in host.read("/proc/self/mountinfo").splitlines()]
    bound = any(len(words) > 4 and f"/{job}/.{job}" in words[3] for words in mounts)
    return bound and any(len(words) > 4 and words[4] == "/dev/shm" for words in mounts)


def _held(host: Host, uids: set[int]) -> set[str]:
    """Segments that a process of these users (or of root) has mapped or open."""
    held: set[str] = set()
    until = time.monotonic() + SECONDS
    for folder in host.glob("/proc/[0-9]*"):
        if time.monotonic() > until:
            raise Unknown(f"too many processes to see within {SECONDS:g} s who holds the segments in /dev/shm")
        try:
            if os.stat(host.path(folder)).st_uid not in uids | {0}:
                continue
            held.update(_OURS.findall(host.read(f"{folder}/maps", most=64 << 20)))
            for handle in os.listdir(host.path(f"{folder}/fd")):
                held.update(_OURS.findall(os.readlink(host.path(f"{folder}/fd/{handle}"))))
        except (FileNotFoundError, ProcessLookupError):  # it ended meanwhile, or is a kernel thread
            continue
    return held


def judge(facts: Facts, policy: Policy) -> Iterator[Finding]:
    if facts.private:
        yield PRIVATE.found(
            "job_container/tmpfs gave this job a private /dev/shm: what is found there counts for this job only",
            evidence=[Evidence("/proc/self/mountinfo", "/tmp is bound from the folder of this job")],
        )
    if facts.stale:
        count = max(facts.count, len(facts.stale))
        names = " ".join(facts.stale[:5]) + (" ..." if count > 5 else "")
        yield STALE.found(
            f"{count}{' and more' * facts.more} segments of {size(facts.size)} that no process holds "
            f"({facts.held} are in use)",
            evidence=[Evidence("/dev/shm", names), Evidence("their size", f"{facts.size} bytes")],
            suggest=[
                Suggestion(LOOK, "see which are open", "srun -w {nodes} sh -c 'ls -l /dev/shm; sudo lsof +D /dev/shm'"),
                Suggestion(
                    CONFIGURE,
                    "when the node is idle, an epilog that removes the files of the job's user keeps it clean "
                    "(or job_container/tmpfs with /dev/shm in Dirs)",
                ),
            ],
        )
    if facts.unseen and not facts.stale:
        raise Unknown(f"{facts.unseen} NCCL segments belong to other users; only root can see who holds them")
