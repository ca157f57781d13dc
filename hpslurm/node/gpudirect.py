"""GPUDirect RDMA: can the EFA devices reach GPU memory without a copy through the host?

There are three ways: dma-buf (Linux 5.12 and later with NVIDIA's open driver), EFA's own
peer-memory module (loaded on demand with the open driver), and nvidia_peermem. Where
none is there, AWS's plugin stops the job on the large types ("GDR disabled on
GDR-supported instance type"), and elsewhere every byte is copied once more.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from hpslurm.core.finding import CONFIGURE, LOOK, P0, Evidence, Finding, Rule, Suggestion
from hpslurm.core.policy import Policy
from hpslurm.core.probe import Skip, Unknown
from hpslurm.core.text import clean
from hpslurm.core.values import dataclass
from hpslurm.node import efa, instance
from hpslurm.sources.host import Host

OFF = Rule("gpudirect-off", P0, "No way for EFA to reach GPU memory", "debugging-guide.md § 6")
DRIVER = "/proc/driver/nvidia/version"
MODULES = ("efa_nv_peermem", "nvidia_peermem", "nv_peer_mem")
DMABUF = (5, 12)  # Linux
# Types on which the plugin (1.21) refuses to go on without it.
REQUIRED = ("p4d.", "p4de.", "p5.48", "p5e.", "p5en.", "p6-", "p6e-", "g7e.12", "g7e.24", "g7e.48")


@dataclass(frozen=True)
class Facts:
    type: str  # instance type
    providers: tuple[str, ...]  # what the EFA devices name in device/p2p; empty: none of them names one
    modules: tuple[str, ...]
    open_driver: bool
    kernel: tuple[int, int]

    @property
    def dmabuf(self) -> bool:
        return self.open_driver and self.kernel >= DMABUF


def collect(host: Host) -> Facts:
    devices = efa.devices(host)
    if not devices:
        raise Skip("no EFA device")
    if not host.exists(DRIVER):
        raise Skip("NVIDIA's driver is not loaded")
    kind = instance.instance_type(host)
    if not kind.startswith(REQUIRED):
        raise Skip(f"no source says that a {kind} needs GPUDirect RDMA")
    named = {clean(host.word(f"{efa.SYSFS}/{name}/device/p2p") or "", 40) for name in devices}
    providers = {name for name in named if name.startswith("NVIDIA")}
    if not providers and any(host.word(f"{efa.SYSFS}/{name}/device/gdr") for name in devices):
        providers = {"gdr (older driver)"}
    match = re.match(r"(\d{1,4})\.(\d{1,4})", host.read("/proc/sys/kernel/osrelease"))
    if not match:
        raise Unknown("/proc/sys/kernel/osrelease names no kernel version")
    return Facts(
        kind,
        tuple(sorted(providers)),
        tuple(name for name in MODULES if host.exists(f"/sys/module/{name}")),
        "Open Kernel Module" in host.read(DRIVER),
        (int(match[1]), int(match[2])),
    )


def judge(facts: Facts, policy: Policy) -> Iterator[Finding]:
    if facts.providers or facts.modules or facts.dmabuf:
        return
    driver = "open" if facts.open_driver else "proprietary"
    yield OFF.found(
        f"no peer-memory module, and no dma-buf with the {driver} driver on Linux {facts.kernel[0]}.{facts.kernel[1]}; "
        "expected one of them",
        evidence=[
            Evidence(f"{efa.SYSFS}/*/device/p2p", "empty"),
            Evidence("/sys/module", f"none of {', '.join(MODULES)}"),
        ],
        suggest=[
            Suggestion(LOOK, "see what is loaded", "srun -w {nodes} sh -c 'lsmod | grep -i -e peer -e efa -e nvidia'"),
            Suggestion(
                CONFIGURE,
                "load nvidia_peermem at boot, or take an image with the open driver; in the lifecycle script as well",
                "clush -w {nodes} 'modinfo nvidia_peermem efa_nv_peermem; cat /proc/driver/nvidia/version'",
            ),
        ],
    )
