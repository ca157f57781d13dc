"""Clocks: is a GPU slowed down by heat or by its power supply?

One slow GPU slows every rank of the job. The reasons are a bit mask of this moment, and
an idle GPU shows little: what was lost during a job is in ``gpu_counters``.
"""

from __future__ import annotations

from collections.abc import Iterator

from hpslurm.core import suggest
from hpslurm.core.finding import P0, P1, P2, Evidence, Finding, Rule
from hpslurm.core.policy import Policy
from hpslurm.core.probe import Unknown
from hpslurm.core.values import dataclass
from hpslurm.node import gpus
from hpslurm.sources import gpu
from hpslurm.sources.host import Host

SECTION = "debugging-guide.md § 7"
SLOWED = Rule("gpu-slowdown", P1, "GPU slowed down", SECTION, cause="straggler", gateable=True)
UNDER_LOAD = Rule("gpu-slowdown-load", P0, "GPU slowed down by its hardware under load", SECTION, cause="straggler")
CAPPED = Rule("gpu-power-cap-idle", P2, "Idle GPU at its power limit", SECTION)
HOT = Rule("gpu-hot", P1, "GPU hot", SECTION, gateable=True)

POWER_CAP, HARDWARE, SOFTWARE_THERMAL, HARDWARE_THERMAL, POWER_BRAKE = 0x4, 0x8, 0x20, 0x40, 0x80
REASONS = {
    HARDWARE: "hardware slowdown",
    SOFTWARE_THERMAL: "software thermal slowdown",
    HARDWARE_THERMAL: "hardware thermal slowdown",
    POWER_BRAKE: "power brake",
}
BAD = HARDWARE | SOFTWARE_THERMAL | HARDWARE_THERMAL | POWER_BRAKE


@dataclass(frozen=True)
class Clock:
    gpu: str
    reasons: int | None  # bit mask
    temperature: int | None  # degrees Celsius
    busy: bool  # a process has a context on it


@dataclass(frozen=True)
class Facts:
    clocks: tuple[Clock, ...]
    trouble: str = ""


def start(host: Host) -> None:
    gpu.start(host)


def collect(host: Host) -> Facts:
    answers = gpus.answers(host, "clocks", "temperature")
    return Facts(
        tuple(Clock(str(device), device.clocks, device.temperature, bool(device.processes)) for device in answers.gpus),
        answers.trouble,
    )


def words(mask: int) -> str:
    return ", ".join(name for bit, name in REASONS.items() if mask & bit)


def judge(facts: Facts, policy: Policy) -> Iterator[Finding]:
    slowed = [clock for clock in facts.clocks if clock.reasons and clock.reasons & BAD]
    load = [clock for clock in slowed if clock.busy and (clock.reasons or 0) & (HARDWARE_THERMAL | POWER_BRAKE)]
    for rule, clocks in ((UNDER_LOAD, load), (SLOWED, [clock for clock in slowed if clock not in load])):
        if clocks:
            yield _found(rule, clocks, [words(clock.reasons or 0) for clock in clocks])
    if hot := [clock for clock in facts.clocks if (clock.temperature or 0) >= policy.gpu_hot]:
        yield _found(HOT, hot, [f"{clock.temperature} C, expected below {policy.gpu_hot} C" for clock in hot])
    capped = [
        clock for clock in facts.clocks if (clock.reasons or 0) & POWER_CAP and not clock.busy and clock not in slowed
    ]
    if capped:
        yield _found(CAPPED, capped, ["power cap without a process"] * len(capped))
    if facts.trouble:
        raise Unknown(facts.trouble)


def _found(rule: Rule, clocks: list[Clock], told: list[str]) -> Finding:
    see = gpus.see("nvidia-smi -q -d CLOCK,PERFORMANCE,TEMPERATURE,POWER", "see clocks, their limits and the heat")
    steps = [see] if rule.priority == P2 else [see, suggest.save_evidence(), suggest.drain(rule.id)]
    if rule.priority != P2:
        steps.append(suggest.reboot("it clears a slowdown that is stuck"))
        steps.append(suggest.replace("if the same GPU slows down again: cooling and power are not ours to repair"))
    return rule.found(
        f"{gpus.names(clock.gpu for clock in clocks)}: {told[0]}" + ("" if len(set(told)) == 1 else ", ..."),
        evidence=[
            Evidence(clock.gpu, f"{what}; reasons {clock.reasons or 0:#x}, {clock.temperature} C")
            for clock, what in zip(clocks, told, strict=True)
        ],
        suggest=steps,
    )
