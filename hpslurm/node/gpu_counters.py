"""GPU counters: what each GPU's links and memory counted, and what grew during a job.

Links repair most errors themselves, and ECC corrects most of the memory's: the data is
right, but time is lost, and growth tells of a part that goes bad. Absolute counts say
nothing about now, so the prolog only keeps them and the epilog judges the difference.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from hpslurm.core import suggest
from hpslurm.core.finding import P1, P2, Evidence, Finding, Rule, Suggestion
from hpslurm.core.policy import Policy
from hpslurm.core.probe import Unknown
from hpslurm.core.values import dataclass, field
from hpslurm.node import counters, gpus
from hpslurm.node.gpu_count import uptime
from hpslurm.sources import gpu
from hpslurm.sources.host import Host

NVLINK = Rule("nvlink-errors", P1, "NVLink errors during the job", "debugging-guide.md § 19", cause="gpu_nvlink")
CRC = Rule("nvlink-crc", P2, "NVLink transfers repeated during the job", "debugging-guide.md § 19")
PCIE = Rule("pcie-replays", P1, "PCIe transfers repeated often during the job", "debugging-guide.md § 7")
CORRECTED = Rule("ecc-corrected", P2, "GPU memory errors corrected during the job", "debugging-guide.md § 21")
SLOWED = Rule("gpu-slowed", P1, "GPU slowed down during the job", "debugging-guide.md § 7", cause="straggler")

RETRAINED = ("nvlink_replay", "nvlink_recovery")
CHECKSUMS = ("nvlink_crc", "nvlink_crc_data")
CHECKSUMS_PER_SECOND = 100.0  # at which DCGM calls a link broken; below, it warns
# Replays per lane and minute that DCGM allows, by PCIe generation
REPLAYS = {1: 0.15, 2: 0.3, 3: 0.48, 4: 0.96, 5: 1.92, 6: 3.84}
SLOW = "slow_"  # prefix of counters of nanoseconds
SLOW_SHARE = 0.01  # of the job's time


@dataclass(frozen=True)
class Facts:
    devices: dict[str, dict[str, int]]  # GPU to counter to count
    uptime: float  # seconds, to make rates of counts
    lanes: dict[str, tuple[int, int]] = field(default_factory=dict)  # GPU to PCIe generation and width
    trouble: str = ""


def start(host: Host) -> None:
    gpu.start(host)


def collect(host: Host) -> Facts:
    answers = gpus.answers(host, "link_errors", "pcie", "ecc", "slowdown")
    lanes = {str(device): (device.pcie[0] or 0, device.pcie[1] or 0) for device in answers.gpus if device.pcie}
    return Facts({str(device): _counts(device) for device in answers.gpus}, uptime(host), lanes, answers.trouble)


def _counts(device: gpu.Gpu) -> dict[str, int]:
    counts = {name: sum(values) for name, values in device.link_errors.items()}
    if device.pcie and device.pcie[4] is not None:
        counts["pcie_replay"] = device.pcie[4]
    if device.ecc and device.ecc[0] is not None:
        counts["ecc_corrected"] = device.ecc[0]
    counts.update({f"{SLOW}{name}": value for name, value in device.slowdown.items()})
    return counts


def judge(facts: Facts, policy: Policy) -> Iterator[Finding]:
    """No finding: an absolute count says nothing about now."""
    if facts.trouble:
        raise Unknown(facts.trouble)
    yield from ()


def changed(before: Facts, after: Facts, policy: Policy) -> Iterator[Finding]:
    """What the epilog finds; ``before`` is of the prolog of the same job, restart and boot."""
    growth = counters.grown(before.devices, after.devices)
    seconds = max(after.uptime - before.uptime, 1.0)
    retrained = counters.only(growth, RETRAINED)
    crc = counters.only(growth, CHECKSUMS)
    broken = {name: found for name, found in crc.items() if sum(found.values()) >= CHECKSUMS_PER_SECOND * seconds}
    if links := {name: {**retrained.get(name, {}), **broken.get(name, {})} for name in {**retrained, **broken}}:
        yield _found(NVLINK, links, "nvidia-smi nvlink --errorcounters", seconds)
    if weak := {name: found for name, found in crc.items() if name not in broken}:
        yield _found(CRC, weak, "nvidia-smi nvlink --errorcounters", seconds)
    replays = counters.only(growth, ["pcie_replay"])
    if often := {name: found for name, found in replays.items() if _often(found, after.lanes.get(name), seconds)}:
        yield _found(PCIE, often, "nvidia-smi -q", seconds)
    if corrected := counters.only(growth, ["ecc_corrected"]):
        yield _found(CORRECTED, corrected, "nvidia-smi -q -d ECC", seconds)
    slow = {
        name: {reason: more for reason, more in counts.items() if reason.startswith(SLOW)}
        for name, counts in growth.items()
    }
    limit = SLOW_SHARE * seconds * 1e9
    if slow := {name: found for name, found in slow.items() if max(found.values(), default=0) > limit}:
        yield _slowed(slow, seconds)


def not_known(before: Facts, after: Facts) -> str:
    """Why ``changed`` could not judge all, for the note of the result; empty where it could."""
    lost = counters.unknown(before.devices, after.devices)
    return f"counters were reset, or not read both times: {gpus.names(lost)}" if lost else ""


def _often(counts: Mapping[str, int], lanes: tuple[int, int] | None, seconds: float) -> bool:
    generation, width = lanes or (0, 0)
    allowed = REPLAYS.get(generation, REPLAYS[6]) * (width or 16) * seconds / 60
    return sum(counts.values()) > allowed


def _found(rule: Rule, rows: Mapping[str, Mapping[str, int]], query: str, seconds: float) -> Finding:
    name, worst = max(rows.items(), key=lambda row: sum(row[1].values()))
    steps: list[Suggestion] = [gpus.see(query, "see the counters now")]
    if rule.priority == P1:
        steps += [suggest.save_evidence(), suggest.reboot("links are trained again at boot; let jobs end first")]
        steps.append(suggest.replace("if the same GPU counts errors again"))
    return rule.found(
        f"{gpus.names(rows)}: {counters.in_words(worst)} on {gpus.names([name])} in {seconds:.0f} s",
        evidence=[Evidence(one, counters.in_words(counts)) for one, counts in sorted(rows.items())],
        suggest=steps,
    )


def _slowed(rows: Mapping[str, Mapping[str, int]], seconds: float) -> Finding:
    def words(counts: Mapping[str, int]) -> str:
        shares = {name[len(SLOW) :].replace("_", " "): ns / 1e9 / seconds for name, ns in counts.items()}
        return ", ".join(f"{name} {share:.0%}" for name, share in shares.items())

    worst = max(rows.values(), key=lambda counts: max(counts.values()))
    return SLOWED.found(
        f"{gpus.names(rows)}: slowed down {words(worst)} of {seconds:.0f} s, expected at most {SLOW_SHARE:.0%}",
        evidence=[Evidence(one, f"of {seconds:.0f} s: {words(counts)}") for one, counts in sorted(rows.items())],
        suggest=[
            gpus.see("nvidia-smi -q -d CLOCK,PERFORMANCE,TEMPERATURE,POWER", "see clocks, their limits and the heat"),
            suggest.save_evidence(),
            suggest.replace("if the same GPU is slower than the others again"),
        ],
    )
