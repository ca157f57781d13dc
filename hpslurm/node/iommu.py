"""IOMMU: is what GPUs and EFA devices read and write translated on its way?

Peer-to-peer traffic that an IOMMU translates goes through the root complex. On x86 it
belongs off, or in passthrough (groups of type ``identity``). Grace machines need theirs,
and no source says how it has to be set there: they are not judged.
"""

from __future__ import annotations

from collections.abc import Iterator

from hpslurm.core.finding import CONFIGURE, LOOK, P2, Evidence, Finding, Rule, Suggestion
from hpslurm.core.policy import Policy
from hpslurm.core.probe import Skip, Unknown
from hpslurm.core.values import dataclass
from hpslurm.sources.host import Host

TRANSLATES = Rule("iommu-translates", P2, "IOMMU translates for GPUs or EFA devices", "debugging-guide.md § 14")
GROUPS = "/sys/kernel/iommu_groups"
GPU, AMAZON = "0x10de", "0x1d0f"


@dataclass(frozen=True)
class Facts:
    groups: dict[str, str]  # PCI address of a GPU or an Amazon device to the type of its group


def collect(host: Host) -> Facts:
    if host.exists("/sys/firmware/devicetree/base") or (host.word("/proc/sys/kernel/arch") or "x86_64") != "x86_64":
        raise Skip("no x86 machine: no source says how its IOMMU has to be set")
    types = {}
    for path in host.glob(f"{GROUPS}/*/devices/*"):
        if host.word(f"{path}/vendor") in (GPU, AMAZON):
            group = path.split("/devices/")[0]
            types[path.rpartition("/")[2]] = host.word(f"{group}/type") or ""
    if not types:
        raise Skip("no IOMMU is on")
    if not all(types.values()):
        raise Unknown(f"{GROUPS} does not say what type the groups have")
    return Facts(types)


def judge(facts: Facts, policy: Policy) -> Iterator[Finding]:
    translated = {address: kind for address, kind in facts.groups.items() if kind != "identity"}
    if translated:
        yield TRANSLATES.found(
            f"{len(translated)} of {len(facts.groups)} devices are translated, expected identity",
            evidence=[Evidence(f"{GROUPS}, device {address}", kind) for address, kind in list(translated.items())[:20]],
            suggest=[
                Suggestion(LOOK, "see how the kernel was started", "srun -w {nodes} cat /proc/cmdline"),
                Suggestion(CONFIGURE, "start the kernel with iommu=pt, or with the IOMMU off"),
            ],
        )
