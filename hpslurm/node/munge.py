"""munge: does the daemon answer that authenticates every message between Slurm's parts?

Without it slurmd cannot talk to the controller, and no step can be started. The kernel's
list of sockets shows whether munged listens; the socket's file would outlive it.
"""

from __future__ import annotations

from collections.abc import Iterator

from hpslurm.core.finding import LOOK, P0, Evidence, Finding, Rule, Suggestion
from hpslurm.core.policy import Policy
from hpslurm.core.probe import Skip, Unknown
from hpslurm.core.values import dataclass
from hpslurm.sources.host import Host

DOWN = Rule("munge-down", P0, "munge does not run", "debugging-guide.md § 8")
SOCKET = "munge.socket.2"


@dataclass(frozen=True)
class Facts:
    listens: bool


def collect(host: Host) -> Facts:
    if not host.exists("/etc/munge"):
        raise Skip("munge is not installed")
    table = host.read("/proc/net/unix", most=16 << 20)
    if not table.startswith("Num "):
        raise Unknown("/proc/net/unix has no heading")
    return Facts(listens(table))


def listens(table: str) -> bool:
    """Whether ``/proc/net/unix`` lists munged's socket.

    >>> listens('''Num       RefCount Protocol Flags    Type St Inode Path
    ... 0000000000000000: 00000002 00000000 00010000 0001 01 21345 /run/munge/munge.socket.2
    ... ''')
    True
    """
    return any(line.endswith("/" + SOCKET) for line in table.splitlines())


def judge(facts: Facts, policy: Policy) -> Iterator[Finding]:
    if not facts.listens:
        yield DOWN.found(
            f"nothing listens at /run/munge/{SOCKET}, expected munged",
            evidence=[Evidence("/proc/net/unix", f"no {SOCKET}")],
            suggest=[
                Suggestion(
                    LOOK,
                    "see why it stopped: a key that others may read, a full disk, a clock far off",
                    "clush -w {nodes} 'systemctl status munge; ls -l /etc/munge'",
                ),
            ],
        )
