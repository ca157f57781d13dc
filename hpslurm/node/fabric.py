"""Fabric: did the GPUs join the NVSwitch fabric, and does its manager run?

Until a GPU has joined, CUDA does not start (error 802), or NCCL goes over PCIe at a
tenth of the speed without a word. Hosts that own their switches need the fabric
manager; rack-scale systems have it elsewhere. The health mask has fields of two bits,
where 2 means "no": a mask that is not zero is no fault.
"""

from __future__ import annotations

from collections.abc import Iterator

from hpslurm.core import suggest
from hpslurm.core.finding import CONFIGURE, LOOK, P0, P1, Evidence, Finding, Rule, Suggestion
from hpslurm.core.policy import Policy
from hpslurm.core.probe import Skip, Unknown
from hpslurm.core.values import dataclass
from hpslurm.node import gpu_count, gpu_driver, gpus
from hpslurm.sources import gpu
from hpslurm.sources.host import Host

SECTION = "debugging-guide.md § 19"
NOT_READY = Rule(
    "fabric-not-ready", P0, "GPUs have not joined the fabric", SECTION, cause="fabric_manager", gateable=True
)
COMING = Rule("fabric-in-progress", P1, "GPUs are still joining the fabric", SECTION, cause="fabric_manager")
SICK = Rule("fabric-unhealthy", P0, "Fabric unhealthy", SECTION, cause="gpu_nvlink", gateable=True)
DEGRADED = Rule("fabric-degraded", P1, "Fabric degraded", SECTION, cause="gpu_nvlink", gateable=True)
NO_MANAGER = Rule("fabric-manager-down", P0, "Fabric manager not running", SECTION, cause="fabric_manager")

MANAGER = "nvidia-fabricmanager"
NOT_SUPPORTED, NOT_STARTED, IN_PROGRESS, COMPLETED = 0, 1, 2, 3
STATES = {NOT_STARTED: "not started", IN_PROGRESS: "in progress", COMPLETED: "completed"}
# first bit of the field, of two bits: 1 is yes, 2 is no
DEGRADED_FIELDS = {"degraded bandwidth": 0, "route recovery": 2}
SICK_FIELDS = {"route unhealthy": 4, "access time-out": 6}
CONFIGURATION = 8  # first bit of a field of four: 1 is correct, 2 and more names what is wrong
UNHEALTHY, LIMITED = 2, 3  # of the summary


@dataclass(frozen=True)
class Joined:
    gpu: str
    state: int
    status: int = 0  # NVML return code of the joining, valid once completed
    mask: int = 0
    summary: int = 0


@dataclass(frozen=True)
class Facts:
    joined: tuple[Joined, ...]
    switches: int  # NVSwitches of this host, on the PCI bus
    manager: bool | None  # runs; None where services cannot be seen
    uptime: float  # seconds
    trouble: str = ""


def start(host: Host) -> None:
    gpu.start(host)


def collect(host: Host) -> Facts:
    answers = gpus.answers(host, "fabric", must=False)
    switches = len(gpu.on_bus(host, (gpu.SWITCH_CLASS,)))
    joined = tuple(
        Joined(str(device), *(value or 0 for value in device.fabric))
        for device in answers.gpus
        if device.fabric and device.fabric[0] != NOT_SUPPORTED
    )
    if not joined and not switches and not answers.trouble:
        raise Skip("no NVSwitch fabric here")
    manager = gpu_driver.service_runs(host, MANAGER) if switches else None
    return Facts(joined, switches, manager, gpu_count.uptime(host), answers.trouble)


def complaints(joined: Joined) -> tuple[list[str], list[str]]:
    """What the driver says is sick, and what is only degraded."""

    def yes(fields: dict[str, int]) -> list[str]:
        return [name for name, bit in fields.items() if joined.mask >> bit & 3 == 1]

    sick, degraded = yes(SICK_FIELDS), yes(DEGRADED_FIELDS)
    if (number := joined.mask >> CONFIGURATION & 15) > 1:
        sick.append(f"incorrect configuration ({number})")
    if joined.summary == UNHEALTHY and not sick:
        sick.append("unhealthy")
    if joined.summary == LIMITED and not degraded:
        degraded.append("limited")
    return sick, degraded


def judge(facts: Facts, policy: Policy) -> Iterator[Finding]:
    away = [joined for joined in facts.joined if joined.state != COMPLETED]
    if away:
        coming = facts.uptime < policy.gpu_boot_grace and all(joined.state == IN_PROGRESS for joined in away)
        told = [f"state {STATES.get(joined.state, joined.state)}" for joined in away]
        yield _found(COMING if coming else NOT_READY, away, told)
    done = [joined for joined in facts.joined if joined.state == COMPLETED]
    if failed := [joined for joined in done if joined.status]:
        yield _found(NOT_READY, failed, [f"joining failed with code {joined.status}" for joined in failed])
    good = [joined for joined in done if not joined.status]
    if sick := [joined for joined in good if complaints(joined)[0]]:
        yield _found(SICK, sick, [", ".join(complaints(joined)[0]) for joined in sick])
    if weak := [joined for joined in good if complaints(joined)[1] and not complaints(joined)[0]]:
        yield _found(DEGRADED, weak, [", ".join(complaints(joined)[1]) for joined in weak])
    if facts.switches and facts.manager is False:
        yield NO_MANAGER.found(
            f"{MANAGER} is not running on a host with {facts.switches} NVSwitches",
            evidence=[Evidence(f"{MANAGER}.service", "no process"), Evidence(gpu.PCI, f"{facts.switches} NVSwitches")],
            suggest=[_SEE_MANAGER, suggest.drain(NO_MANAGER.id), _START],
        )
    if facts.trouble:
        raise Unknown(facts.trouble)
    if facts.switches and facts.manager is None:
        raise Unknown(f"cannot see from here whether {MANAGER} runs")


_SEE_MANAGER = Suggestion(
    LOOK,
    "its version must be the driver's; see both, and what it said",
    "srun -w {nodes} sh -c 'nv-fabricmanager --version; cat /proc/driver/nvidia/version; "
    "tail /var/log/fabricmanager.log'",
)
_START = Suggestion(CONFIGURE, "start it, now and at boot", f"clush -w {{nodes}} sudo systemctl enable --now {MANAGER}")


def _found(rule: Rule, ill: list[Joined], told: list[str]) -> Finding:
    return rule.found(
        f"{gpus.names(joined.gpu for joined in ill)}: {told[0]}" + ("" if len(set(told)) == 1 else ", ..."),
        evidence=[
            Evidence(joined.gpu, f"fabric {words}; mask {joined.mask:#x}, summary {joined.summary}")
            for joined, words in zip(ill, told, strict=True)
        ],
        suggest=[
            gpus.see("nvidia-smi -q", "see the fabric section of each GPU"),
            _SEE_MANAGER,
            suggest.save_evidence(),
            suggest.drain(rule.id),
            suggest.reboot("the fabric is set up at boot"),
            suggest.replace("if it is the same after the reboot"),
        ],
    )
