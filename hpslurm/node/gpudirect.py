"""GPUDirect RDMA: can the EFA devices reach GPU memory without a copy through the host?

There are three ways: dma-buf (Linux 5.12 and later with NVIDIA's open driver), EFA's own
peer-memory module (loaded on demand with the open driver), and nvidia_peermem. The kernel having dma-buf is not enough:
AWS's plugin must ask for it, and for years did not on the EFA devices of p4d to p5en. Where
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
from hpslurm.core.values import dataclass, replace
from hpslurm.node import efa, instance, versions
from hpslurm.sources.host import Host

OFF = Rule("gpudirect-off", P0, "No way for EFA to reach GPU memory", "debugging-guide.md § 6")
DRIVER = "/proc/driver/nvidia/version"
MODULES = ("efa_nv_peermem", "nvidia_peermem", "nv_peer_mem")
EFA_PACKAGE = "efa-nv-peermem"  # of EFA's installer; its driver loads the module when a job first registers GPU memory
DMABUF = (5, 12)  # Linux
# Plugins with dma-buf off by default: [from, below].
PLUGIN_OFF = ("1.13.2", "1.14.2")
# Plugins that refuse it on EFA of the first three generations, for a fault of their firmware: p4d to p5en.
PLUGIN_REFUSES = ("1.14.2", "1.19.2")
EARLY = ("0xefa0", "0xefa1", "0xefa2")
LIBFABRIC_BY_ITSELF = "2.5"  # the first that takes dma-buf where the plugin does not ask for it
# Types on which the plugin (1.21) refuses to go on without it.
REQUIRED = ("p4d.", "p4de.", "p5.48", "p5e.", "p5en.", "p6-", "p6e-", "g7e.12", "g7e.24", "g7e.48")


_NO_MODULE = [
    Evidence(f"{efa.SYSFS}/*/device/p2p", "empty"),
    Evidence("/sys/module", f"none of {', '.join(MODULES)}"),
]
_SEE = Suggestion(LOOK, "see what is loaded", "srun -w {nodes} sh -c 'lsmod | grep -i -e peer -e efa -e nvidia'")


@dataclass(frozen=True)
class Facts:
    type: str  # instance type
    providers: tuple[str, ...]  # what the EFA devices name in device/p2p; empty: none of them names one
    modules: tuple[str, ...]
    open_driver: bool
    kernel: tuple[int, int]
    generations: tuple[str, ...] = ()  # PCI ids of the EFA devices
    plugin: str = ""  # versions; empty where not needed, or not known
    libfabric: str = ""

    @property
    def kernel_has_dmabuf(self) -> bool:
        return self.open_driver and self.kernel >= DMABUF

    @property
    def refused_by_plugin(self) -> bool:
        """The kernel could, and the plugin does not ask for it."""
        early = any(device in EARLY for device in self.generations)
        off = versions.within(self.plugin, *PLUGIN_OFF) or (early and versions.within(self.plugin, *PLUGIN_REFUSES))
        return off and not versions.within(self.libfabric, LIBFABRIC_BY_ITSELF, "")

    @property
    def not_known(self) -> str:
        """Why it cannot be said whether dma-buf is used; empty where it can."""
        if not self.plugin and any(device in EARLY for device in self.generations):
            return "dma-buf is the only way here, and no plugin was found: only 1.19.2 and later use it on these"
        if self.refused_by_plugin and not self.libfabric:
            return f"dma-buf is the only way here; plugin {self.plugin} leaves it to a libfabric of unknown version"
        return ""


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
    facts = Facts(
        kind,
        tuple(sorted(providers)),
        tuple(name for name in MODULES if host.exists(f"/sys/module/{name}")),
        "Open Kernel Module" in host.read(DRIVER),
        (int(match[1]), int(match[2])),
        tuple(sorted({host.word(f"{efa.SYSFS}/{name}/device/device") or "" for name in devices})),
    )
    if facts.providers or facts.modules or not facts.kernel_has_dmabuf:
        return facts
    if EFA_PACKAGE in versions.packages(host):
        return replace(facts, modules=("efa_nv_peermem, on demand",))
    installed = versions.collect(host)
    return replace(facts, plugin=installed.plugin, libfabric=installed.libfabric)


def judge(facts: Facts, policy: Policy) -> Iterator[Finding]:
    if facts.providers or facts.modules:
        return
    if facts.kernel_has_dmabuf:
        if facts.not_known:
            raise Unknown(facts.not_known)
        if facts.refused_by_plugin:
            yield _refused(facts)
        return
    driver = "open" if facts.open_driver else "proprietary"
    yield OFF.found(
        f"no peer-memory module, and no dma-buf with the {driver} driver on Linux {facts.kernel[0]}.{facts.kernel[1]}; "
        "expected one of them",
        evidence=_NO_MODULE,
        suggest=[
            _SEE,
            Suggestion(
                CONFIGURE,
                "load nvidia_peermem at boot, or take an image with the open driver; in the lifecycle script as well",
                "clush -w {nodes} 'modinfo nvidia_peermem efa_nv_peermem; cat /proc/driver/nvidia/version'",
            ),
        ],
    )


def _refused(facts: Facts) -> Finding:
    return OFF.found(
        f"no peer-memory module, and plugin {facts.plugin} does not use dma-buf on EFA devices "
        f"{' '.join(facts.generations)}; 1.19.2 does",
        evidence=[*_NO_MODULE, Evidence("versions", f"plugin {facts.plugin}, libfabric {facts.libfabric}")],
        suggest=[
            _SEE,
            Suggestion(
                CONFIGURE,
                "load EFA's own peer-memory module (its installer brings it), or take plugin 1.19.2 or later; in the "
                "lifecycle script as well",
                "clush -w {nodes} 'modinfo nvidia_peermem efa_nv_peermem; head -1 /opt/amazon/efa_installed_packages'",
            ),
        ],
    )
