"""GPU count: does this node, or this step, have all its GPUs?

A hook counts against the instance table, and on the PCI bus too: if the bus shows all
and NVML fewer, the driver lost one; if the bus itself shows fewer, the hardware did. A
job step sees only the GPUs that Slurm gave it, so it counts against Slurm's own numbers
and never against the table.
"""

from __future__ import annotations

from collections.abc import Iterator

from hpslurm.core import suggest
from hpslurm.core.finding import LOOK, P0, Evidence, Finding, Rule, Suggestion
from hpslurm.core.policy import Policy
from hpslurm.core.probe import Skip, Unknown
from hpslurm.core.text import whole
from hpslurm.core.values import dataclass
from hpslurm.node import gpus, instance
from hpslurm.sources import gpu
from hpslurm.sources.host import Host

MISSING = Rule("gpu-missing", P0, "GPUs missing", "debugging-guide.md § 7", cause="gpu_fell_off_bus", gateable=True)
TABLE, SLURM, BUS = "the instance table", "Slurm", "the PCI bus"


@dataclass(frozen=True)
class Facts:
    source: str  # who says how many there should be
    expected: int | None
    count: int | None  # as NVML counts; None where it did not answer
    on_bus: int | None  # as PCI shows; None in a step, where it says nothing
    type: str = ""
    uptime: float = 0.0  # seconds
    trouble: str = ""
    uuids: tuple[str, ...] = ()  # GPU 0 (GPU-..., 0000:53:00): who is who, for the history of one GPU
    names: tuple[str, ...] = ()
    vbios: tuple[str, ...] = ()
    serials: tuple[str, ...] = ()


def start(host: Host) -> None:
    gpu.start(host)


def in_step(host: Host) -> bool:
    """May a device cgroup hide GPUs from us? In a job, or in a shell that Slurm adopted."""
    if host.in_hook:
        return False
    if "SLURM_JOB_ID" in host.env:
        return True
    try:
        return "slurm" in host.read("/proc/self/cgroup")
    except OSError:
        return False


def of_step(host: Host) -> int | None:
    """GPUs that Slurm gave this task: the smallest of the numbers it names, as a task may have fewer than its node."""
    counts = []
    if (count := whole(host.env.get("SLURM_GPUS_ON_NODE", "").rpartition(":")[2])) is not None:
        counts.append(count)
    for name in ("SLURM_STEP_GPUS", "CUDA_VISIBLE_DEVICES"):
        if listed := [word for word in host.env.get(name, "").split(",") if word.strip()]:
            counts.append(len(listed))
    return min(counts) if counts else None


def collect(host: Host) -> Facts:
    trouble, seen = "", None
    name, wanted = "", None
    try:
        name, row = instance.expected(host)
        wanted = row.gpus
    except Unknown as why:
        trouble = str(why)
    try:
        seen = gpu.snapshot(host)
    except Skip:
        if not wanted:
            raise
    except Unknown as why:
        trouble = str(why)
    count = seen.count if seen else None
    if seen and count is None:
        trouble = f"NVML did not count: {gpus.no_answer(seen)}"
    source = TABLE
    on_bus: int | None = len(gpu.on_bus(host))
    if in_step(host):
        source, wanted, on_bus = SLURM, of_step(host), None
        if wanted is None:
            raise Skip("Slurm names no GPU of this step (SLURM_GPUS_ON_NODE is not set)")
    elif wanted is None:
        source, wanted = BUS, on_bus
    here = seen.gpus if seen else ()
    return Facts(
        source,
        wanted,
        count,
        on_bus,
        name,
        uptime(host),
        trouble,
        tuple(str(gpu) for gpu in here),
        tuple(sorted({gpu.name for gpu in here if gpu.name})),
        tuple(sorted({gpu.vbios for gpu in here if gpu.vbios})),
        tuple(gpu.serial for gpu in here),
    )


def uptime(host: Host) -> float:
    try:
        return float(host.read("/proc/uptime").split()[0])
    except (OSError, ValueError, IndexError):
        return float("inf")


def judge(facts: Facts, policy: Policy) -> Iterator[Finding]:
    wanted, count, bus = facts.expected, facts.count, facts.on_bus
    short_bus = bool(wanted) and bus is not None and bus < (wanted or 0)
    short = wanted is not None and count is not None and count < wanted
    if (short or short_bus) and facts.uptime < policy.gpu_boot_grace:
        raise Unknown(f"{count} of {wanted} GPUs, but the node is up for {facts.uptime:.0f} s only: look again")
    if short or short_bus:
        yield _missing(facts, short_bus)
    if count is None or facts.trouble:
        raise Unknown(facts.trouble or "NVML did not count")


def _missing(facts: Facts, short_bus: bool) -> Finding:
    whose = f"a {facts.type}" if facts.source == TABLE else facts.source
    seen = "not asked" if facts.count is None else str(facts.count)
    if facts.on_bus is None:
        detail = f"NVML shows {seen} of the {facts.expected} GPUs that Slurm gave this step"
    elif short_bus:
        detail = f"the PCI bus shows {facts.on_bus} of {facts.expected} GPUs of {whose}: hardware"
    else:
        detail = f"NVML shows {seen} of {facts.expected} GPUs of {whose}, PCI shows {facts.on_bus}: the driver lost one"
    return MISSING.found(
        detail,
        evidence=[Evidence("NVML", " ".join(facts.uuids) or "no GPU")]
        + ([Evidence(gpu.PCI, f"{facts.on_bus} GPUs of NVIDIA")] if facts.on_bus is not None else []),
        suggest=[
            gpus.see("nvidia-smi -L", "see which GPUs are left"),
            Suggestion(
                LOOK,
                "see which one the bus or the driver lost",
                "srun -w {nodes} sh -c 'lspci -n -d 10de: ; dmesg | grep -i nvrm | tail -40'",
            ),
            suggest.save_evidence(),
            suggest.drain(MISSING.id),
            suggest.reboot("a GPU that fell off the bus may come back"),
            suggest.replace("if it is still missing after the reboot"),
        ],
    )
