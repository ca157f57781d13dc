"""MTU: are large packets allowed on the interfaces that carry TCP?

EFA does not use it. NCCL's bootstrap, Gloo, FSx and NCCL's TCP fallback do: within a VPC
the interfaces carry 9001 bytes, and a node with less is slower there than the others.
"""

from __future__ import annotations

from collections.abc import Iterator

from hpslurm.core.finding import CONFIGURE, LOOK, P2, Evidence, Finding, Rule, Suggestion
from hpslurm.core.policy import Policy
from hpslurm.core.probe import Skip
from hpslurm.core.values import dataclass
from hpslurm.sources.host import Host

SMALL = Rule("mtu-small", P2, "MTU small", "debugging-guide.md § 3")
NET = "/sys/class/net"
ETHERNET = 1


@dataclass(frozen=True)
class Facts:
    interfaces: dict[str, int]  # name to bytes: Ethernet that hardware stands behind, and that is up


def collect(host: Host) -> Facts:
    mtus = {}
    for path in host.glob(f"{NET}/*/device"):  # bridges, containers' ends and lo have no device
        folder = path.rpartition("/")[0]
        if host.number(f"{folder}/type") != ETHERNET or host.word(f"{folder}/operstate") != "up":
            continue
        mtu = host.number(f"{folder}/mtu")
        if mtu is not None:
            mtus[folder.rpartition("/")[2]] = mtu
    if not mtus:
        raise Skip("no Ethernet device is up")
    return Facts(mtus)


def judge(facts: Facts, policy: Policy) -> Iterator[Finding]:
    small = {name: mtu for name, mtu in facts.interfaces.items() if mtu < policy.mtu_min}
    if small:
        name = min(small, key=lambda one: small[one])
        yield SMALL.found(
            f"{name} carries {small[name]} bytes, expected {policy.mtu_min}",
            evidence=[Evidence(f"{NET}/{one}/mtu", str(mtu)) for one, mtu in sorted(small.items())],
            suggest=[
                Suggestion(LOOK, "see all interfaces", "srun -w {nodes} ip -br link"),
                Suggestion(CONFIGURE, "EC2 offers 9001 by DHCP; something on this image lowers it"),
            ],
        )
