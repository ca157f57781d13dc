"""Disks: is there room for logs, checkpoints' temporary files, and container layers?

A full root volume stops slurmd, munge and the job's own logging; a job then ends in
ways that look like anything but a full disk. HyperPod gives the large types local NVMe
at /opt/dlami/nvme: where it is not mounted, everything written there fills the root.
"""

from __future__ import annotations

from collections.abc import Iterator

from hpslurm.core.finding import CONFIGURE, LOOK, P0, P1, Evidence, Finding, Rule, Suggestion
from hpslurm.core.policy import Policy
from hpslurm.core.probe import Unknown
from hpslurm.core.text import size
from hpslurm.core.values import dataclass
from hpslurm.node import instance, mounts
from hpslurm.sources.host import Host

SECTION = "debugging-guide.md § 7"
FULL = Rule("disk-full", P0, "Root volume full", SECTION)
LOW = Rule("disk-low", P1, "Disk nearly full", SECTION)
INODES = Rule("disk-inodes", P1, "Inodes nearly used up", SECTION)
NVME = Rule("nvme-not-mounted", P1, "Local NVMe not mounted", SECTION)
PLACES = ("/", "/opt/dlami/nvme", "/opt/sagemaker")
LOCAL = "/opt/dlami/nvme"
WITH_NVME = ("p4d.", "p4de.", "p5.48", "p5e.", "p5en.", "p6-")  # types with several TB of local NVMe
ALMOST_NOTHING = 1 << 30  # bytes; below this slurmd and munge may fail to write
_SEE = Suggestion(
    LOOK, "see what fills it", "srun -w {nodes} sh -c 'df -h; df -i; sudo du -xh -d 2 / | sort -h | tail'"
)


@dataclass(frozen=True)
class Place:
    path: str
    size: int  # bytes
    free: int  # bytes, for ordinary users
    inodes: int  # 0 where the file system does not count them
    inodes_free: int


@dataclass(frozen=True)
class Facts:
    places: tuple[Place, ...]
    type: str  # instance type; empty where not known
    local_mounted: bool


def collect(host: Host) -> Facts:
    mounted = mounts.kinds(host.read("/proc/self/mounts"))
    if "/" not in mounted:
        raise Unknown("/proc/self/mounts does not list the root file system")
    places = []
    for path in PLACES:
        if path in mounted:
            space = host.space(path)
            places.append(Place(path, space.total, space.free, space.inodes, space.inodes_free))
    try:
        name = instance.instance_type(host)
    except Unknown:
        name = ""
    return Facts(tuple(places), name, LOCAL in mounted)


def judge(facts: Facts, policy: Policy) -> Iterator[Finding]:
    full = [place for place in facts.places if place.path == "/" and place.free < ALMOST_NOTHING]
    for place in full:
        yield FULL.found(
            f"/ has {size(place.free)} free, expected {size(ALMOST_NOTHING)}", evidence=_rows(full), suggest=[_SEE]
        )
    low = [
        place for place in facts.places if place not in full and _used(place.size, place.free) > policy.disk_used_max
    ]
    if low:
        most = max(low, key=lambda place: _used(place.size, place.free))
        yield LOW.found(
            f"{most.path} is {_used(most.size, most.free):.0%} used, expected at most {policy.disk_used_max:.0%}",
            evidence=_rows(low),
            suggest=[_SEE],
        )
    short = [place for place in facts.places if _used(place.inodes, place.inodes_free) > policy.disk_used_max]
    if short:
        most = max(short, key=lambda place: _used(place.inodes, place.inodes_free))
        yield INODES.found(
            f"{most.path} has used {_used(most.inodes, most.inodes_free):.0%} of its inodes, "
            f"expected at most {policy.disk_used_max:.0%}",
            evidence=_rows(short),
            suggest=[_SEE],
        )
    if facts.type.startswith(WITH_NVME) and not facts.local_mounted:
        yield NVME.found(
            f"a {facts.type} has local NVMe, but nothing is mounted at {LOCAL}",
            evidence=[Evidence("/proc/self/mounts", f"no line for {LOCAL}")],
            suggest=[
                Suggestion(LOOK, "see the disks", "srun -w {nodes} lsblk"),
                Suggestion(
                    CONFIGURE,
                    "HyperPod's own service mounts it at boot; see why it did not",
                    "srun -w {nodes} systemctl status dlami-nvme",
                ),
            ],
        )


def _used(total: int, free: int) -> float:
    return 1 - free / total if total > 0 else 0.0


def _rows(places: list[Place]) -> list[Evidence]:
    return [
        Evidence(
            f"file system at {place.path}",
            f"{place.free} of {place.size} bytes free, {place.inodes_free} of {place.inodes} inodes free",
        )
        for place in places
    ]
