"""Stack limit: how large are the stacks of the threads that NCCL starts?

glibc sizes a new thread's stack by this limit. A tiny one overflows in NCCL's or the
framework's threads. ``unlimited`` does not mean large: glibc then gives each thread
2 MiB, and NCCL before 2.30 was seen to crash in that.
"""

from __future__ import annotations

from collections.abc import Iterator

from hpslurm.core.finding import CONFIGURE, LOOK, P1, P2, Evidence, Finding, Rule, Suggestion
from hpslurm.core.policy import Policy
from hpslurm.core.probe import Unknown
from hpslurm.core.text import size
from hpslurm.core.values import dataclass
from hpslurm.node.limits import soft_limit
from hpslurm.sources.host import Host

SECTION = "debugging-guide.md § 17"
SMALL = Rule("stack-small", P1, "Stack limit small", SECTION)
UNLIMITED = Rule("stack-unlimited", P2, "Stack limit unlimited: threads get 2 MiB", SECTION)
_SEE = Suggestion(LOOK, "see the limit a job step gets", "srun -w {nodes} bash -c 'ulimit -s'")
_SET = Suggestion(
    CONFIGURE,
    "set LimitSTACK=8M for slurmd, and see PropagateResourceLimits: the submit host's limit may come along",
    "sudo systemctl edit slurmd",
)


@dataclass(frozen=True)
class Facts:
    whose: str
    soft: float  # bytes; infinity when unlimited


def collect(host: Host) -> Facts:
    whose = "slurmd" if host.in_hook else "this process"
    limits = f"/proc/{host.pid_of('slurmd') if host.in_hook else 'self'}/limits"
    soft = soft_limit(host.read(limits), "Max stack size")
    if soft is None:
        raise Unknown(f"{limits} does not list the stack size")
    return Facts(whose, soft)


def judge(facts: Facts, policy: Policy) -> Iterator[Finding]:
    seen = [Evidence(f"limits of {facts.whose}", f"Max stack size {facts.soft:.0f} bytes")]
    if facts.soft < policy.stack_min:
        yield SMALL.found(
            f"{facts.whose} has a stack of {size(facts.soft)}, expected {size(policy.stack_min)}",
            evidence=seen,
            suggest=[_SEE, _SET],
        )
    if facts.soft == float("inf"):
        yield UNLIMITED.found(
            f"{facts.whose} has an unlimited stack, so threads get 2 MiB; expected 8 MiB, or NCCL 2.30 and later",
            evidence=seen,
            suggest=[_SEE, _SET],
        )
