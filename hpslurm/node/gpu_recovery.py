"""Recovery action: what does the driver itself want done with each GPU?

Newer drivers answer it (NVML field 230). It is the driver's own verdict after an error,
and it wins over every table of error codes, ours too.
"""

from __future__ import annotations

from collections.abc import Iterator

from hpslurm.core import suggest
from hpslurm.core.finding import P0, P1, Evidence, Finding, Rule, Suggestion
from hpslurm.core.policy import Policy
from hpslurm.core.probe import Unknown
from hpslurm.core.values import dataclass
from hpslurm.node import gpus
from hpslurm.sources import gpu
from hpslurm.sources.host import Host

SECTION = "debugging-guide.md § 7"
WANTED = Rule("gpu-recovery-now", P0, "Driver asks for a recovery before the next job", SECTION, gateable=True)
LATER = Rule("gpu-recovery-later", P1, "Driver asks for a reset after the running job", SECTION, gateable=True)

NONE, RESET, REBOOT, DRAIN_P2P, DRAIN_AND_RESET, IMEX = 0, 1, 2, 3, 4, 5
WORDS = {
    NONE: "none",
    RESET: "reset the GPU",
    REBOOT: "reboot the node",
    DRAIN_P2P: "end all programs that use peer access",
    DRAIN_AND_RESET: "finish the running work, start no other, then reset the GPU",
    IMEX: "recover the IMEX domain (rack-scale systems)",
    6: "reset the bus",
    7: "reboot the system",
}


@dataclass(frozen=True)
class Facts:
    actions: dict[str, int]  # GPU to the action its driver wants
    trouble: str = ""


def start(host: Host) -> None:
    gpu.start(host)


def collect(host: Host) -> Facts:
    answers = gpus.answers(host, "recovery")
    return Facts(
        {str(device): device.recovery for device in answers.gpus if device.recovery is not None}, answers.trouble
    )


def word(action: int) -> str:
    return WORDS.get(action, f"action {action}, which this version does not know")


def judge(facts: Facts, policy: Policy) -> Iterator[Finding]:
    for rule, actions in (
        (WANTED, {name: action for name, action in facts.actions.items() if action not in (NONE, DRAIN_AND_RESET)}),
        (LATER, {name: action for name, action in facts.actions.items() if action == DRAIN_AND_RESET}),
    ):
        if actions:
            yield rule.found(
                "; ".join(f"{gpus.names([name])}: {word(action)}" for name, action in actions.items()),
                evidence=[Evidence(name, f"NVML field 230 is {action}") for name, action in actions.items()],
                suggest=_steps(rule, set(actions.values())),
            )
    if facts.trouble:
        raise Unknown(facts.trouble)


def _steps(rule: Rule, actions: set[int]) -> list[Suggestion]:
    steps = [
        gpus.see("nvidia-smi -q", "see the recovery action and the error counters"),
        suggest.save_evidence(),
        suggest.drain(rule.id),
    ]
    if DRAIN_P2P in actions:
        steps.append(gpus.see("nvidia-smi pmon -c 1", "all programs with peer access must end first; see them"))
    if actions - {DRAIN_P2P, IMEX}:
        when = "once the running job has ended; " if actions == {DRAIN_AND_RESET} else ""
        steps.append(suggest.reboot(f"{when}on HyperPod a reboot stands for the reset of a GPU"))
        steps.append(suggest.replace("if the driver asks again within a day of the reboot"))
    return steps
