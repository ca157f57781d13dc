"""ECC: did a GPU meet memory errors since the driver was loaded that it could not correct?

An uncorrected error ends the program that touched the data, and NCCL's other ranks wait
for it. Only counters since the driver was loaded count here: those of the board's whole
life are history, and a healed GPU keeps them for ever. With ECC off, errors go unseen.
"""

from __future__ import annotations

from collections.abc import Iterator

from hpslurm.core import suggest
from hpslurm.core.finding import CONFIGURE, P0, P1, P2, Evidence, Finding, Rule, Suggestion
from hpslurm.core.policy import Policy
from hpslurm.core.probe import Unknown
from hpslurm.core.values import dataclass
from hpslurm.node import gpus
from hpslurm.sources import gpu
from hpslurm.sources.host import Host

SECTION = "debugging-guide.md § 21"
UNCORRECTED = Rule("ecc-uncorrected", P0, "Uncorrected GPU memory errors", SECTION, cause="gpu_ecc", gateable=True)
SRAM = Rule("ecc-sram", P0, "GPU's on-chip memory beyond its error limit", SECTION, cause="gpu_ecc", gateable=True)
OFF = Rule("ecc-off", P1, "ECC is off", SECTION)
CHANGE = Rule("ecc-change-pending", P2, "A change of ECC waits for a reboot", SECTION)


@dataclass(frozen=True)
class Errors:
    gpu: str
    on: bool | None = None  # now; None where not supported
    next: bool | None = None  # after the next reboot
    corrected: int | None = None  # since the driver was loaded
    uncorrected: int | None = None
    life_corrected: int | None = None  # of the board
    life_uncorrected: int | None = None
    sram: bool = False  # the driver says: more than the limit
    repair_pending: bool = False  # row_remap tells it then

    def in_words(self) -> str:
        return (
            f"since the driver was loaded {self.uncorrected} uncorrected, {self.corrected} corrected; "
            f"in the board's life {self.life_uncorrected} and {self.life_corrected}"
        )


@dataclass(frozen=True)
class Facts:
    errors: tuple[Errors, ...]
    trouble: str = ""


def start(host: Host) -> None:
    gpu.start(host)


def collect(host: Host) -> Facts:
    answers = gpus.answers(host, "ecc", "ecc_mode", "sram_exceeded")
    errors = []
    for device in answers.gpus:
        on, later = device.ecc_mode or (None, None)
        counts = device.ecc or (None, None, None, None)
        repair = bool(device.remap and (device.remap[2] or device.remap[3]))
        errors.append(
            Errors(
                str(device),
                None if on is None else bool(on),
                None if later is None else bool(later),
                corrected=counts[0],
                uncorrected=counts[1],
                life_corrected=counts[2],
                life_uncorrected=counts[3],
                sram=bool(device.sram_exceeded),
                repair_pending=repair,
            )
        )
    return Facts(tuple(errors), answers.trouble)


def judge(facts: Facts, policy: Policy) -> Iterator[Finding]:
    see = gpus.see("nvidia-smi -q -d ECC", "see the counters of each GPU")
    keep = suggest.save_evidence()
    sram = [errors for errors in facts.errors if errors.sram]
    bad = [errors for errors in facts.errors if errors.uncorrected and not errors.repair_pending and not errors.sram]
    if sram:
        yield SRAM.found(
            f"{gpus.names(errors.gpu for errors in sram)}: the driver says that the limit is exceeded",
            evidence=[Evidence(errors.gpu, f"SRAM threshold exceeded; {errors.in_words()}") for errors in sram],
            suggest=[see, keep, suggest.drain(SRAM.id), suggest.replace("no reset repairs on-chip memory")],
        )
    if bad:
        yield UNCORRECTED.found(
            f"{gpus.names(errors.gpu for errors in bad)}: {bad[0].in_words()}" + ("" if len(bad) == 1 else ", ..."),
            evidence=[Evidence(errors.gpu, errors.in_words()) for errors in bad],
            suggest=[
                see,
                keep,
                suggest.drain(UNCORRECTED.id),
                suggest.reboot("results since the last checkpoint are suspect, and the GPU needs a reset"),
                suggest.replace("if errors come again within a day of the reboot"),
            ],
        )
    if off := [errors.gpu for errors in facts.errors if errors.on is False]:
        yield OFF.found(
            f"{gpus.names(off)}: ECC off, expected on: wrong results would go unseen",
            evidence=[Evidence(name, "ECC mode: off") for name in off],
            suggest=[
                see,
                Suggestion(
                    CONFIGURE,
                    "switch it on when no job runs; it takes a reboot",
                    "clush -w {nodes} sudo nvidia-smi -e 1",
                ),
                suggest.reboot("the change takes place then"),
            ],
        )
    if waits := [errors.gpu for errors in facts.errors if errors.on is not None and errors.on != errors.next]:
        yield CHANGE.found(
            f"{gpus.names(waits)}: ECC changes at the next reboot",
            evidence=[Evidence(name, "ECC mode now and pending differ") for name in waits],
            suggest=[see],
        )
    if facts.trouble:
        raise Unknown(facts.trouble)
