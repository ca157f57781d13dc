"""ACS: do PCIe bridges send what one device writes to another up to the root and back?

With request redirect on, traffic between two GPUs, or a GPU and its EFA device, takes
the way through the CPU: many times slower, and GPUDirect may fail. The bit stands in the
configuration space of the bridges, of which only root reads more than 64 bytes.
"""

from __future__ import annotations

from collections.abc import Iterator

from hpslurm.core.finding import CONFIGURE, LOOK, P1, Evidence, Finding, Rule, Suggestion
from hpslurm.core.policy import Policy
from hpslurm.core.probe import Skip, Unknown
from hpslurm.core.values import dataclass
from hpslurm.sources.host import Host

ON = Rule("acs-on", P1, "PCIe bridges redirect traffic between devices", "debugging-guide.md § 14")
DEVICES = "/sys/bus/pci/devices"
BRIDGE = "0x0604"
FIRST, ACS = 0x100, 0x000D  # where extended capabilities begin, and the number of this one
CONTROL = 6  # its control word
REDIRECT = 0x04 | 0x08  # request and completion redirect


@dataclass(frozen=True)
class Facts:
    bridges: int
    redirecting: tuple[str, ...]  # addresses


def collect(host: Host) -> Facts:
    bridges = [path for path in host.glob(f"{DEVICES}/*") if (host.word(f"{path}/class") or "").startswith(BRIDGE)]
    if not bridges:
        raise Skip("no PCIe bridge between devices")
    redirecting = []
    for path in bridges:
        config = host.read_bytes(f"{path}/config", 4096)
        if len(config) <= FIRST:
            raise Unknown(f"{path}/config shows {len(config)} bytes: only root may read all")
        if (_control(config) or 0) & REDIRECT:
            redirecting.append(path.rpartition("/")[2])
    return Facts(len(bridges), tuple(redirecting))


def _control(config: bytes) -> int | None:
    r"""The ACS control word, or None where the device has no ACS. Raises Unknown for a broken chain.

    >>> _control(bytes(0x100) + (0x0001_000D).to_bytes(4, "little") + bytes(2) + b"\x1d\x00" + bytes(8))
    29
    """
    at, steps = FIRST, 0
    while at >= FIRST and at + 8 <= len(config):
        head = int.from_bytes(config[at : at + 4], "little")
        if head & 0xFFFF == ACS:
            return int.from_bytes(config[at + CONTROL : at + CONTROL + 2], "little")
        at, steps = head >> 20, steps + 1
        if steps > 48:  # as many as fit
            raise Unknown("the list of PCIe capabilities runs in a circle")
    return None


def judge(facts: Facts, policy: Policy) -> Iterator[Finding]:
    if facts.redirecting:
        yield ON.found(
            f"{len(facts.redirecting)} of {facts.bridges} PCIe bridges redirect, expected none",
            evidence=[Evidence(f"{DEVICES}/{one}/config", "ACS request redirect on") for one in facts.redirecting[:20]],
            suggest=[
                Suggestion(LOOK, "see them", "clush -w {nodes} 'sudo lspci -vvv | grep -B 40 ACSCtl.*ReqRedir+'"),
                Suggestion(
                    CONFIGURE,
                    "on a machine of your own turn it off in the firmware or at boot; on EC2 the host sets it: "
                    "compare with a node that is fast, and tell AWS",
                ),
            ],
        )
