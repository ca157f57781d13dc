"""What the GPU probes share: who answered which question, and who did not. No probe itself."""

from __future__ import annotations

from collections.abc import Iterable

from hpslurm.core import suggest
from hpslurm.core.finding import LOOK, Suggestion
from hpslurm.core.probe import Skip, Unknown
from hpslurm.core.values import dataclass
from hpslurm.sources import gpu
from hpslurm.sources.gpu import Gpu, Snapshot
from hpslurm.sources.host import Host

# What a table row suggests; the words are its own
NO_ADVICE, FIX_APP, RERUN, WATCH = "none", "fix_app", "rerun", "watch"
AFTER_JOB, REBOOT, REPLACE, REPLACE_LATER = "reboot_after_job", "reboot_then_replace", "replace", "replace_planned"

PROLOG, EPILOG = "prolog_slurmd", "epilog_slurmd"  # SLURM_SCRIPT_CONTEXT


@dataclass(frozen=True)
class Answers:
    """The GPUs that NVML counts, and in one line why some answers are missing."""

    gpus: tuple[Gpu, ...]
    trouble: str = ""


def answers(host: Host, *steps: str, must: bool = True) -> Answers:
    """The GPUs, with the trouble they had in these steps.

    Raises Unknown where NVML gave no GPU at all (``gpu_driver`` judges that), and Skip
    where no GPU supports any of the steps.
    """
    seen = gpu.snapshot(host)
    if not seen.gpus:
        raise Unknown(f"NVML shows no GPU: {no_answer(seen)}")
    trouble = troubles(seen.gpus, steps)
    if must and not trouble and all(getattr(device, step) in (None, {}) for device in seen.gpus for step in steps):
        raise Skip(f"{' and '.join(steps).replace('_', ' ')}: not supported by these GPUs or this driver")
    return Answers(seen.gpus, trouble)


def no_answer(seen: Snapshot) -> str:
    """Why there is no GPU in a snapshot, in words."""
    for step in ("import", "init", "count"):
        if step in seen.trouble:
            return seen.trouble[step].text
    return seen.late or "it counts none"


def troubles(gpus: Iterable[Gpu], steps: Iterable[str]) -> str:
    """``GPU 1, 3: GPU is lost; GPU 4: no permission`` for these steps, or empty."""
    by_words: dict[str, list[int]] = {}
    wanted = ("handle", *steps)
    for device in gpus:
        why = next((device.trouble[step].text for step in wanted if step in device.trouble), None)
        if why is not None:
            by_words.setdefault(why, []).append(device.index)
    return "; ".join(f"GPU {', '.join(map(str, indexes))}: {why}" for why, indexes in by_words.items())


def names(labels: Iterable[str]) -> str:
    """``GPU 1, 3`` out of labels such as ``GPU 1 (uuid, address)``, for a line that a person reads.

    One that was lost on the way has two labels, with and without its UUID.
    """
    return "GPU " + ", ".join(dict.fromkeys(label.split()[1] for label in labels))


def see(query: str, why: str) -> Suggestion:
    """A look with nvidia-smi; ``query`` is one of its own words."""
    return Suggestion(LOOK, why, f"srun -w {{nodes}} {query}")


def steps(rule_id: str, advice: str) -> list[Suggestion]:
    """What a person could do, for one of the words that tables use."""
    around = see("sh -c 'dmesg -T | grep -i -e nvrm -e nvswitch -e pcie | tail -60'", "see the lines around it")
    if advice == FIX_APP:
        return [
            Suggestion(LOOK, "look at the program first: the GPU did what it was asked to; no reason to drain a node")
        ]
    if advice == RERUN:
        again = "run it again; if the same GPU shows it for another program, suspect the GPU"
        return [Suggestion(LOOK, again), around]
    if advice in (NO_ADVICE, WATCH):
        return [around]
    advised = [around, suggest.save_evidence()]
    if advice == REPLACE_LATER:
        return [*advised, suggest.replace("at the next quiet moment")]
    advised.append(suggest.drain(rule_id))
    if advice == REPLACE:
        return [*advised, suggest.replace("a reboot does not repair it")]
    advised.append(suggest.reboot("once the running job has ended" if advice == AFTER_JOB else "it resets the GPU"))
    return [*advised, suggest.replace("if the same GPU shows the same within a day of the reboot")]
