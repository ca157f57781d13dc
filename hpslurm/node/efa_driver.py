"""EFA's kernel driver: is it loaded for every card on the PCI bus, and may we open the devices?

A card without its driver is not in /sys/class/infiniband at all, and looks like one that
was never attached. In a container the cards can be there while their device files are
not: libfabric then finds nothing, and NCCL goes on over TCP.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from hpslurm.core import suggest
from hpslurm.core.finding import CONFIGURE, LOOK, P0, Evidence, Finding, Rule, Suggestion
from hpslurm.core.policy import Policy
from hpslurm.core.probe import Skip
from hpslurm.core.values import dataclass
from hpslurm.node import efa
from hpslurm.sources.host import Host

SECTION = "debugging-guide.md § 6"
UNBOUND = Rule("efa-driver-missing", P0, "EFA cards without a driver", SECTION, cause="efa_not_used")
CLOSED = Rule("efa-not-allowed", P0, "EFA device files missing or closed", SECTION)
PCI, MODULE = "/sys/bus/pci/devices", "/sys/module/efa"


@dataclass(frozen=True)
class Facts:
    cards: int | None  # EFA cards on the PCI bus; None where the bus cannot be seen
    devices: int  # in /sys/class/infiniband
    module: str  # driver version, "loaded" where it shows none, empty where it is not loaded
    files: int  # /dev/infiniband/uverbs*
    closed: tuple[str, ...]  # those that this process may not open


def cards(host: Host) -> int | None:
    """EFA cards on the PCI bus; None where no device of Amazon's is seen there, so that the bus may be hidden."""
    ours = [path for path in host.glob(f"{PCI}/*/vendor") if host.word(path) == efa.VENDOR]
    if not ours:
        return None
    return sum(bool(efa.DEVICE.fullmatch(host.word(path[: -len("vendor")] + "device") or "")) for path in ours)


def collect(host: Host) -> Facts:
    count = cards(host)
    devices = len(efa.devices(host))
    if not count and not devices:
        raise Skip("no EFA card")
    module = host.word(f"{MODULE}/version") or ("loaded" if host.exists(MODULE) else "")
    files = host.glob("/dev/infiniband/uverbs*")
    closed = tuple(path for path in files if not os.access(host.path(path), os.R_OK | os.W_OK))
    return Facts(count, devices, module, len(files), closed)


def judge(facts: Facts, policy: Policy) -> Iterator[Finding]:
    if facts.cards is not None and facts.devices < facts.cards:
        yield UNBOUND.found(
            f"{facts.devices} of {facts.cards} EFA cards have their driver; "
            + (f"module efa is loaded ({facts.module})" if facts.module else "module efa is not loaded"),
            evidence=[Evidence(MODULE, facts.module or "does not exist"), Evidence(PCI, f"{facts.cards} EFA cards")],
            suggest=[
                Suggestion(
                    LOOK, "see why it did not load", "clush -w {nodes} 'lsmod | grep efa; sudo dmesg | grep -i efa'"
                ),
                Suggestion(
                    CONFIGURE,
                    "after a kernel update the driver has to be built again (dkms); the EFA installer does it",
                    "clush -w {nodes} 'dkms status; uname -r; head -1 /opt/amazon/efa_installed_packages'",
                ),
                suggest.drain(UNBOUND.id),
            ],
        )
    if facts.devices and (facts.files < facts.devices or facts.closed):
        yield CLOSED.found(
            f"{facts.files - len(facts.closed)} device files may be opened, expected {facts.devices}",
            evidence=[Evidence("/dev/infiniband", f"{facts.files} uverbs files")]
            + [Evidence(path, "may not be read and written") for path in facts.closed[:8]],
            suggest=[
                Suggestion(LOOK, "see them in a step", "srun -w {nodes} ls -l /dev/infiniband"),
                Suggestion(
                    CONFIGURE,
                    "pass /dev/infiniband into the container (enroot mounts it), or look at rdma-core's udev rules",
                ),
            ],
        )
