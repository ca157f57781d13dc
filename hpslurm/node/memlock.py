"""Locked memory: may a process here pin the buffers that RDMA needs?

EFA registers memory with the kernel before it sends from it. Under a low limit
registration fails, and NCCL stops or falls back to TCP. A hook looks at slurmd,
whose limit bounds every job (root itself may lock what it likes); a job step
looks at itself.
"""

from __future__ import annotations

from collections.abc import Iterator

from hpslurm.core.finding import CONFIGURE, LOOK, P0, P1, P2, Evidence, Finding, Rule, Suggestion
from hpslurm.core.policy import Policy
from hpslurm.core.probe import Unknown
from hpslurm.core.text import size, whole
from hpslurm.core.values import dataclass
from hpslurm.node.limits import soft_limit
from hpslurm.sources.host import Host

KERNEL_DEFAULT = 8 << 20  # bytes; 64 KiB before Linux 5.16
TINY = Rule("memlock-default", P0, "Locked memory at the kernel's default", "debugging-guide.md § 17")
LOW = Rule("memlock-low", P1, "Locked-memory limit low", "debugging-guide.md § 17")
LARGE = Rule("memlock-unlimited-large", P2, "No locked-memory limit on very many nodes", "debugging-guide.md § 17")
LARGE_JOB = 256  # nodes; AWS's support saw NCCL's topology search hang there, without a documented reason


@dataclass(frozen=True)
class Facts:
    whose: str
    soft: float  # bytes; infinity when unlimited
    nodes: int | None = None  # of the step; None in a hook


def collect(host: Host) -> Facts:
    whose = "slurmd" if host.in_hook else "this process"
    limits = f"/proc/{host.pid_of('slurmd') if host.in_hook else 'self'}/limits"
    soft = soft_limit(host.read(limits), "Max locked memory")
    if soft is None:
        raise Unknown(f"{limits} does not list locked memory")
    nodes = host.env.get("SLURM_STEP_NUM_NODES") or host.env.get("SLURM_JOB_NUM_NODES") or ""
    return Facts(whose, soft, None if host.in_hook else whole(nodes))


def judge(facts: Facts, policy: Policy) -> Iterator[Finding]:
    if facts.soft == float("inf") and facts.nodes is not None and facts.nodes >= LARGE_JOB:
        yield LARGE.found(
            f"unlimited, and {facts.nodes} nodes: if the job hangs before its first collective, try a fixed limit",
            evidence=[Evidence(f"limits of {facts.whose}", "Max locked memory unlimited")],
            suggest=[
                Suggestion(LOOK, "see the limit a job step gets", "srun -w {nodes} bash -c 'ulimit -l'"),
                Suggestion(CONFIGURE, "try 8388608 KiB in this shell, which srun hands on", "ulimit -l 8388608"),
            ],
        )
    if facts.soft >= policy.memlock_min:
        return
    rule = TINY if facts.soft <= KERNEL_DEFAULT else LOW
    yield rule.found(
        f"{facts.whose} may lock {size(facts.soft)}, expected {size(policy.memlock_min)}",
        evidence=[Evidence(f"limits of {facts.whose}", f"Max locked memory {facts.soft:.0f} bytes")],
        suggest=[
            Suggestion(LOOK, "see the limit a job step gets", "srun -w {nodes} bash -c 'ulimit -l'"),
            Suggestion(
                CONFIGURE,
                "raise it for slurmd (LimitMEMLOCK=), in the lifecycle script as well, "
                "or it is lost with the next replacement",
                "sudo systemctl edit slurmd",
            ),
        ],
    )
