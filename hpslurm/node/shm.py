"""/dev/shm: is there room for the segments through which NCCL's ranks of one node talk?

NCCL puts its buffers for ranks without peer-to-peer access into files there, and
data loaders their batches. On a small or full one a rank stops with SIGBUS or
"failed to extend"; on a file system that is no tmpfs every exchange goes to disk.
"""

from __future__ import annotations

from collections.abc import Iterator

from hpslurm.core.finding import CONFIGURE, LOOK, P0, P1, Evidence, Finding, Rule, Suggestion
from hpslurm.core.policy import Policy
from hpslurm.core.probe import Unknown
from hpslurm.core.text import size
from hpslurm.core.values import dataclass
from hpslurm.node import mounts
from hpslurm.sources.host import Host

SHM = "/dev/shm"
SECTION = "debugging-guide.md § 17"
TINY = Rule("shm-tiny", P0, "/dev/shm far too small", SECTION)
SMALL = Rule("shm-small", P1, "/dev/shm small", SECTION)
FULL = Rule("shm-full", P1, "/dev/shm nearly full", SECTION)
NOT_TMPFS = Rule("shm-not-tmpfs", P1, "/dev/shm is not a tmpfs", SECTION)
_SEE = Suggestion(
    LOOK, "see its size, and what fills it", "srun -w {nodes} sh -c 'df -h /dev/shm; ls -lhS /dev/shm | head'"
)
_GROW = Suggestion(
    CONFIGURE,
    "mount it larger at boot (fstab, and the lifecycle script, or it is lost with the next replacement)",
    "srun -w {nodes} grep -n /dev/shm /etc/fstab",
)


@dataclass(frozen=True)
class Facts:
    kind: str  # file system type; empty where nothing is mounted there of its own
    size: int  # bytes
    free: int  # bytes


def collect(host: Host) -> Facts:
    mounted = mounts.kinds(host.read("/proc/self/mounts"))
    if not mounted:
        raise Unknown("/proc/self/mounts lists no mount")
    space = host.space(SHM)
    return Facts(mounted.get(SHM, ""), space.total, space.free)


def judge(facts: Facts, policy: Policy) -> Iterator[Finding]:
    seen = [Evidence(f"file system of {SHM}", f"{facts.kind or 'no mount'} {facts.size} bytes, {facts.free} free")]
    if facts.kind != "tmpfs":
        yield NOT_TMPFS.found(
            f"{SHM} is {facts.kind or 'an ordinary folder'}, expected tmpfs", evidence=seen, suggest=[_SEE, _GROW]
        )
    if facts.size < policy.shm_min:
        rule, wanted = (TINY, policy.shm_tiny) if facts.size < policy.shm_tiny else (SMALL, policy.shm_min)
        yield rule.found(
            f"{SHM} holds {size(facts.size)}, expected {size(wanted)}", evidence=seen, suggest=[_SEE, _GROW]
        )
    used = 1 - facts.free / facts.size if facts.size else 1.0
    if used > policy.shm_used_max:
        yield FULL.found(
            f"{SHM} is {used:.0%} used, expected at most {policy.shm_used_max:.0%}", evidence=seen, suggest=[_SEE]
        )
