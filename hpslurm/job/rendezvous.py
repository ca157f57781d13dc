"""MASTER_ADDR, MASTER_PORT and time limits: can the ranks of this job meet at all?

Every rank connects to the first one at the address that these variables name. Loopback,
a name that this node does not know, or a port that nobody can open let the job wait until
its limit. Of the address only what is wrong with it is said, never the address itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from hpslurm.core.finding import CONFIGURE, LOOK, P0, P2, Evidence, Finding, Rule, Suggestion
from hpslurm.core.policy import Policy
from hpslurm.core.probe import Skip, Unknown
from hpslurm.core.text import whole
from hpslurm.core.values import dataclass
from hpslurm.node.names import NOT_FOUND
from hpslurm.sources.host import Host, error_of

SECTION = "debugging-guide.md § 1"
LOOPBACK = Rule("master-addr-loopback", P0, "MASTER_ADDR means each node itself", SECTION)
UNKNOWN_ADDR = Rule("master-addr-unknown", P0, "MASTER_ADDR has no address on this node", "debugging-guide.md § 12")
PORT = Rule("master-port-invalid", P0, "MASTER_PORT is not a port", SECTION)
EPHEMERAL = Rule("master-port-ephemeral", P2, "MASTER_PORT may be taken by any connection", SECTION)
SHORT = Rule("timeout-short", P2, "Heartbeat limit shorter than PyTorch's own", SECTION)

HEARTBEAT = "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC"
# Seconds; PyTorch's default since 2.4 (600 before): the time that the watchdog thread of one rank may stand still,
# whatever the size of the job: no time-out of a collective, and not to be raised like one.
HEARTBEAT_DEFAULT = 480
_ADDRESS = re.compile(r"[A-Za-z0-9][A-Za-z0-9.:_-]{0,252}")


@dataclass(frozen=True)
class Facts:
    nodes: int | None  # of the step; None where Slurm does not say
    address: str  # absent, loopback, unknown, known, or no name: what MASTER_ADDR is
    port: int | None  # MASTER_PORT; None where it is not set
    port_good: bool
    ephemeral: tuple[int, int]  # ports that the kernel hands out
    heartbeat: int | None  # seconds


def _address(host: Host) -> str:
    return host.env.get("MASTER_ADDR", "").strip()


def _is_loopback(address: str) -> bool:
    return address.lower() in ("localhost", "::1", "0.0.0.0") or address.startswith("127.")


def _to_ask(host: Host) -> bool:
    address = _address(host)
    return not host.in_hook and bool(_ADDRESS.fullmatch(address)) and not _is_loopback(address)


def start(host: Host) -> None:
    if _to_ask(host):
        host.start("getent", _address(host))


def collect(host: Host) -> Facts:
    if host.in_hook:
        raise Skip("the user's environment exists in a step only")
    nodes = host.env.get("SLURM_STEP_NUM_NODES") or host.env.get("SLURM_JOB_NUM_NODES") or ""
    port, heartbeat = host.env.get("MASTER_PORT", "").strip(), host.env.get(HEARTBEAT, "").strip()
    span = re.fullmatch(r"(\d{1,5})\s+(\d{1,5})", host.read("/proc/sys/net/ipv4/ip_local_port_range").strip())
    if not span:
        raise Unknown("/proc/sys/net/ipv4/ip_local_port_range names no two ports")
    number = whole(port)
    return Facts(
        whole(nodes),
        _kind(host),
        number,
        not port or (number is not None and 0 < number < 65536),
        (int(span[1]), int(span[2])),
        whole(heartbeat),
    )


def _kind(host: Host) -> str:
    address = _address(host)
    if not address:
        return "absent"
    if _is_loopback(address):
        return "loopback"
    if not _to_ask(host):
        return "no name"
    output = host.run("getent", address)
    if output.status == NOT_FOUND:
        return "unknown"
    if output.status:
        raise Unknown(f"getent ahosts MASTER_ADDR failed: {error_of(output)}")
    return "known"


def judge(facts: Facts, policy: Policy) -> Iterator[Finding]:
    several = facts.nodes is not None and facts.nodes > 1
    set_it = Suggestion(
        CONFIGURE,
        "set it in the job script to the first node of the job",
        'export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)',
    )
    if facts.address == "loopback" and several:
        yield LOOPBACK.found(
            f"MASTER_ADDR is a loopback address in a step of {facts.nodes} nodes; expected the first node's name",
            evidence=[Evidence("environment of this step", "MASTER_ADDR is loopback")],
            suggest=[set_it],
        )
    if facts.address in ("unknown", "no name"):
        yield UNKNOWN_ADDR.found(
            "MASTER_ADDR is a name that this node cannot resolve; expected the first node's name",
            evidence=[Evidence("getent ahosts MASTER_ADDR", "no address")],
            suggest=[Suggestion(LOOK, "ask again", "srun -w {nodes} sh -c 'getent ahosts \"$MASTER_ADDR\"'"), set_it],
        )
    if not facts.port_good:
        yield PORT.found(
            "MASTER_PORT is not a whole number from 1 to 65535",
            evidence=[Evidence("environment of this step", "MASTER_PORT is not a port")],
            suggest=[Suggestion(CONFIGURE, "set MASTER_PORT to a port such as 29500")],
        )
    elif facts.port is not None and facts.ephemeral[0] <= facts.port <= facts.ephemeral[1]:
        yield EPHEMERAL.found(
            f"MASTER_PORT is one of {facts.ephemeral[0]} to {facts.ephemeral[1]}, which the kernel hands out to any "
            "connection: once in a while it is taken",
            evidence=[Evidence("/proc/sys/net/ipv4/ip_local_port_range", "{} {}".format(*facts.ephemeral))],
            suggest=[Suggestion(CONFIGURE, f"take one below {facts.ephemeral[0]}, such as 29500")],
        )
    if facts.heartbeat is not None and facts.heartbeat < HEARTBEAT_DEFAULT:
        yield SHORT.found(
            f"{HEARTBEAT}={facts.heartbeat}, PyTorch's default is {HEARTBEAT_DEFAULT} s: a rank that is slow for that "
            "long in loading, compiling or writing ends the job",
            evidence=[Evidence("environment of this step", f"{HEARTBEAT}={facts.heartbeat}")],
            suggest=[Suggestion(CONFIGURE, "leave it unset")],
        )
