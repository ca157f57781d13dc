"""Modes: persistence and MIG, as training wants them?

Without persistence the driver lets go of a GPU that nobody uses: the next first touch
takes seconds, and the counters start again. With MIG on, a GPU is cut into pieces that
have no NVLink, and NCCL does not run across them. hpslurm switches neither.
"""

from __future__ import annotations

from collections.abc import Iterator

from hpslurm.core.finding import CONFIGURE, P1, P2, Evidence, Finding, Rule, Suggestion
from hpslurm.core.policy import Policy
from hpslurm.core.probe import Unknown
from hpslurm.core.values import dataclass
from hpslurm.node import gpus
from hpslurm.sources import gpu
from hpslurm.sources.host import Host

SECTION = "debugging-guide.md § 7"
PERSISTENCE = Rule("gpu-persistence-off", P2, "Persistence mode off", SECTION)
MIG = Rule("gpu-mig-on", P1, "MIG is on", SECTION)


@dataclass(frozen=True)
class Facts:
    persistence: dict[str, int]  # GPU to 1 on, 0 off
    mig: dict[str, int]
    trouble: str = ""


def start(host: Host) -> None:
    gpu.start(host)


def collect(host: Host) -> Facts:
    answers = gpus.answers(host, "persistence", "mig")
    return Facts(
        {str(device): device.persistence for device in answers.gpus if device.persistence is not None},
        {str(device): device.mig[0] for device in answers.gpus if device.mig},
        answers.trouble,
    )


def judge(facts: Facts, policy: Policy) -> Iterator[Finding]:
    if off := [name for name, on in facts.persistence.items() if not on]:
        yield PERSISTENCE.found(
            f"{gpus.names(off)}: off, expected on",
            evidence=[Evidence(name, "persistence mode off") for name in off],
            suggest=[
                Suggestion(
                    CONFIGURE,
                    "run NVIDIA's daemon for it, in the lifecycle script as well",
                    "clush -w {nodes} sudo systemctl enable --now nvidia-persistenced",
                )
            ],
        )
    if cut := [name for name, on in facts.mig.items() if on]:
        yield MIG.found(
            f"{gpus.names(cut)}: MIG on, expected whole GPUs; row remap and ECC cannot be read fully then",
            evidence=[Evidence(name, "MIG mode on") for name in cut],
            suggest=[
                gpus.see("nvidia-smi mig -lgi", "see the instances, and who needs them"),
                Suggestion(CONFIGURE, "switch it off when no job runs", "clush -w {nodes} sudo nvidia-smi -mig 0"),
            ],
        )
    if facts.trouble:
        raise Unknown(facts.trouble)
