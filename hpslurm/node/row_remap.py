"""Row remapping: does a GPU wait for the repair of its memory, or is it past repair?

A GPU replaces memory rows that went bad by spare ones, at its next reset. Until then
the running work is safe, but a further error in the row ends a process. Without spare
rows left, or when a repair failed, only another GPU helps. GPUs before Ampere retire
pages instead. A clean DCGM run proves nothing here.
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

SECTION = "debugging-guide.md § 21"
PENDING = Rule("row-remap-pending", P1, "GPU memory waits for a repair", SECTION, cause="gpu_ecc", gateable=True)
FAILED = Rule("row-remap-failed", P0, "GPU memory beyond repair", SECTION, cause="gpu_ecc", gateable=True)
EXHAUSTED = Rule("row-remap-exhausted", P1, "Spare rows of GPU memory used up", SECTION, cause="gpu_ecc", gateable=True)
PAGES = Rule("gpu-pages-retired", P1, "Pages of GPU memory retired", SECTION, cause="gpu_ecc", gateable=True)


@dataclass(frozen=True)
class Memory:
    gpu: str
    corrected: int = 0  # rows replaced for corrected errors
    uncorrected: int = 0  # rows replaced for uncorrected errors
    pending: bool = False
    failed: bool = False
    exhausted: int = 0  # banks without a spare row
    single: int = 0  # pages retired for single-bit errors
    double: int = 0  # pages retired for double-bit errors
    pages_pending: bool = False

    def in_words(self) -> str:
        if self.single or self.double or self.pages_pending:
            return f"pages retired: {self.single} single-bit, {self.double} double-bit, pending {self.pages_pending}"
        flags = f"pending {self.pending}, failed {self.failed}, banks without spare rows {self.exhausted}"
        return f"rows remapped: {self.corrected} correctable, {self.uncorrected} uncorrectable; {flags}"


@dataclass(frozen=True)
class Facts:
    memory: tuple[Memory, ...]
    trouble: str = ""


def start(host: Host) -> None:
    gpu.start(host)


def collect(host: Host) -> Facts:
    answers = gpus.answers(host, "remap", "histogram", "retired")
    memory = []
    for device in answers.gpus:
        rows, pages = device.remap or (0, 0, 0, 0), device.retired or (0, 0, 0)
        if device.remap is None and device.retired is None:
            continue
        memory.append(
            Memory(
                str(device),
                corrected=rows[0],
                uncorrected=rows[1],
                pending=bool(rows[2]),
                failed=bool(rows[3]),
                exhausted=device.histogram[-1] if device.histogram else 0,
                single=pages[0] or 0,
                double=pages[1] or 0,
                pages_pending=bool(pages[2]),
            )
        )
    return Facts(tuple(memory), answers.trouble)


def judge(facts: Facts, policy: Policy) -> Iterator[Finding]:
    failed = [memory for memory in facts.memory if memory.failed]
    pending = [memory for memory in facts.memory if memory.pending and not memory.failed]
    exhausted = [memory for memory in facts.memory if memory.exhausted and not memory.failed]
    pages = [
        memory
        for memory in facts.memory
        if memory.single > policy.pages_retired_max or memory.double or memory.pages_pending
    ]
    see = gpus.see(
        "nvidia-smi --query-remapped-rows=gpu_uuid,remapped_rows.pending,remapped_rows.failure --format=csv",
        "see the rows of each GPU",
    )
    again = suggest.replace("if a repair is pending again, or has failed, after the reboot")
    if failed:
        yield _found(
            FAILED,
            failed,
            [see, suggest.save_evidence(), suggest.drain(FAILED.id), suggest.replace("no reset repairs it")],
        )
    if pending:
        reboot = suggest.reboot("the repair takes place at the next reset of the GPU; let the running job end first")
        yield _found(PENDING, pending, [see, suggest.save_evidence(), suggest.drain(PENDING.id), reboot, again])
    if exhausted:
        later = suggest.replace("at the next quiet moment: the next bad row of such a bank cannot be repaired")
        yield _found(EXHAUSTED, exhausted, [see, suggest.save_evidence(), later])
    if pages:
        see = gpus.see("nvidia-smi -q -d PAGE_RETIREMENT", "see the retired pages")
        reboot = suggest.reboot("a page is taken out of use when the driver is loaded again")
        yield _found(PAGES, pages, [see, suggest.save_evidence(), suggest.drain(PAGES.id), reboot, again])
    if facts.trouble:
        raise Unknown(facts.trouble)


def _found(rule: Rule, memories: list[Memory], steps: list[Suggestion]) -> Finding:
    return rule.found(
        f"{gpus.names(memory.gpu for memory in memories)}: {memories[0].in_words()}"
        + ("" if len(memories) == 1 else ", ..."),
        evidence=[Evidence(memory.gpu, memory.in_words()) for memory in memories],
        suggest=steps,
    )
