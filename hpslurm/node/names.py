"""Names: does this node know its own address, and that of the job's first node?

Every rank looks for the first node (MASTER_ADDR) when it starts, and offers the others
the address that its own name stands for. A name that nobody knows, or that means
127.0.0.1 here, stops the job before NCCL begins. Only these two are asked for, by a
program that can be left behind if the name service hangs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from hpslurm.core.finding import CONFIGURE, LOOK, P0, P1, Evidence, Finding, Rule, Suggestion
from hpslurm.core.policy import Policy
from hpslurm.core.probe import Unknown
from hpslurm.core.text import clean
from hpslurm.core.values import dataclass
from hpslurm.sources.host import Host, error_of

SECTION = "debugging-guide.md § 12"
OWN = Rule("name-own-unknown", P1, "The node's own name has no address", SECTION)
LOOPBACK = Rule("name-own-loopback", P1, "The node's own name means loopback", SECTION)
FIRST = Rule("name-first-unknown", P0, "The job's first node has no address", SECTION)
NOT_FOUND = 2  # getent: no such name
SLOW = 1.0  # seconds: the resolver's shortest time-out (resolv.conf(5)), so a server gave no answer, whatever came then
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")
_FIRST = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)(?:\[(\d{1,18})[^\]]*\]([A-Za-z0-9._-]*))?")
_ADDRESS = re.compile(
    r"\d{1,3}(?:\.\d{1,3}){3}|(?=[^:]{0,4}:[^:]{0,4}:)(?=[:.]{0,40}[0-9a-fA-F])[0-9a-fA-F:.]{3,45}(?:%\w{1,16})?",
    re.ASCII,
)
_SEE = Suggestion(LOOK, "see what the name service says", "srun -w {nodes} sh -c 'getent ahosts $(hostname)'")


@dataclass(frozen=True)
class Facts:
    own: str
    own_addresses: tuple[str, ...]
    first: str  # empty outside of a job, and on the first node itself
    first_addresses: tuple[str, ...]


def first_node(nodelist: str) -> str:
    """The first name of a Slurm node list; empty if it is none.

    >>> first_node("ip-10-1-0-[3-5,7],login"), first_node("n1,n2"), first_node("$(reboot)")
    ('ip-10-1-0-3', 'n1', '')
    """
    match = _FIRST.match(nodelist)
    return "".join(part or "" for part in match.groups()) if match else ""


def _names(host: Host) -> tuple[str, str]:
    own = (host.word("/proc/sys/kernel/hostname") or "").strip()
    if not _NAME.fullmatch(own):
        raise Unknown(f"this node's name is {clean(own, 60)!r}, which is not a host name")
    first = first_node(host.env.get("SLURM_JOB_NODELIST", ""))
    return own, "" if first == own or not _NAME.fullmatch(first) else first


def start(host: Host) -> None:
    if host.rests("getent"):
        return
    for name in _names(host):
        if name:
            host.start("getent", name)


def collect(host: Host) -> Facts:
    own, first = _names(host)
    return Facts(own, _addresses(host, own), first, _addresses(host, first) if first else ())


def _addresses(host: Host, name: str) -> tuple[str, ...]:
    if why := host.rests("getent"):
        raise Unknown(why)
    output = host.answer("getent", name)
    slow = output.seconds > SLOW
    resolved = addresses(output.out) if output.status == 0 else ()
    if slow or output.late or (not resolved and output.status != NOT_FOUND):
        host.rest("getent")
    if output.late:
        raise Unknown(output.late)
    if resolved or (output.status == NOT_FOUND and not slow):
        return resolved
    known = {0: "it printed no address", NOT_FOUND: f"no answer after {output.seconds:.1f} s"}
    raise Unknown(f"getent ahosts {name} failed: {known.get(output.status) or error_of(output)}")


def addresses(getent: str) -> tuple[str, ...]:
    """The addresses in what ``getent ahosts`` prints, each once.

    >>> addresses('''
    ... 10.1.0.7        STREAM ip-10-1-0-7.ec2.internal
    ... 10.1.0.7        DGRAM
    ... fe80::1%ens5    RAW
    ... ''')
    ('10.1.0.7', 'fe80::1%ens5')
    """
    first = {words[0] for line in getent.splitlines() if (words := line.split())}
    return tuple(sorted(word for word in first if _ADDRESS.fullmatch(word)))


def judge(facts: Facts, policy: Policy) -> Iterator[Finding]:
    said = [Evidence(f"getent ahosts {facts.own}", " ".join(facts.own_addresses) or "no address")]
    if not facts.own_addresses:
        yield OWN.found(
            f"{facts.own} has no address, expected the one of the first interface", evidence=said, suggest=[_SEE]
        )
    elif all(address.startswith("127.") or address == "::1" for address in facts.own_addresses):
        yield LOOPBACK.found(
            f"{facts.own} means {' '.join(facts.own_addresses)} here, expected the address of the first interface",
            evidence=said,
            suggest=[
                _SEE,
                Suggestion(
                    CONFIGURE, "take the name off the line of 127.0.x.1", "srun -w {nodes} grep -n 127. /etc/hosts"
                ),
            ],
        )
    if facts.first and not facts.first_addresses:
        yield FIRST.found(
            f"{facts.first}, the first node of the job, has no address here",
            evidence=[Evidence(f"getent ahosts {facts.first}", "no address")],
            suggest=[
                Suggestion(LOOK, "ask again, on this node", f"srun -w {{nodes}} getent ahosts {facts.first}"),
                Suggestion(
                    CONFIGURE,
                    "Slurm can hand out its nodes' addresses (LaunchParameters=enable_nss_slurm), or compare "
                    "/etc/hosts and the VPC's DNS settings between nodes",
                ),
            ],
        )
