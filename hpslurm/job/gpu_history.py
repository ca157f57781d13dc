"""One physical GPU through the records: where it was, and whether its fault came back after a reboot.

A GPU keeps its UUID wherever it is put; a PCI address or a Slurm node name is no proof,
as HyperPod puts another machine behind the same name. The same fault again after a
reboot is what speaks for a replacement. Pure: records in, a history out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from hpslurm.core.records import Record
from hpslurm.core.values import dataclass

UUID = re.compile(r"GPU-[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")
DAY = 86400.0
# Findings about the same trouble, seen through NVML and through the kernel log
SAME = (
    ("gpu-lost", "xid-79", "gpu-fell-off-at-boot", "gpu-missing"),
    (
        *("row-remap-pending", "row-remap-failed", "row-remap-exhausted", "ecc-uncorrected", "ecc-sram"),
        *(f"xid-{code}" for code in (48, 63, 64, 92, 94, 95, 140, 171, 172)),
    ),
    ("nvlink-down", "nvlink-errors", "xid-74", "xid-136", "xid-149", "xid-150", "xid-155"),
    ("gpu-driver-stuck", "gpu-silent", "xid-119", "xid-120", "gpu-gsp-flood"),
    ("gpu-recovery-now", "gpu-reset-required"),
)


@dataclass(frozen=True)
class Fault:
    rule: str
    priority: str
    text: str


@dataclass(frozen=True)
class Sighting:
    """One record in which the GPU was seen."""

    time: float  # seconds since the epoch
    node: str
    instance: str
    boot: str
    job: int | None
    hook: str
    label: str  # GPU 3 (GPU-..., 0000:9b:00)
    faults: tuple[Fault, ...]


@dataclass(frozen=True)
class Again:
    """A fault that was there before and after a reboot, or on two machines."""

    what: str  # id of the finding at its last sighting
    first: Sighting
    last: Sighting
    boots: int  # boots in which it was seen

    @property
    def within_a_day(self) -> bool:
        return self.last.time - self.first.time <= DAY


@dataclass(frozen=True)
class History:
    uuid: str
    sightings: tuple[Sighting, ...]  # oldest first
    again: tuple[Again, ...]

    @property
    def verdict(self) -> str:
        """One line: what speaks for a replacement, or that nothing does."""
        if not self.sightings:
            return "not seen in any record"
        if self.again:
            worst = self.again[0]
            moved = "on another machine" if worst.last.instance != worst.first.instance else "after a reboot"
            soon = ", within a day" if worst.within_a_day else ""
            return f"{worst.what} came back {moved}{soon} ({worst.boots} boots): speaks for a replacement"
        if any(one.faults for one in self.sightings):
            return "faults in one boot only: a reboot comes first"
        return "no fault of this GPU in the records"


def sighting(record: Record, uuid: str) -> Sighting | None:
    """What one record tells of the GPU; None where it does not name it."""
    label = next((name for result in record.results for name in _labels(result.facts) if uuid in name), "")
    faults = []
    for result in record.results:
        for finding in result.findings:
            # the source names whom it is about; the text may name GPUs that are well
            text = next((one.text for one in finding.evidence if uuid in one.source), None)
            if text is not None:
                faults.append(Fault(finding.rule.id, finding.rule.priority, text))
    if not label and not faults:
        return None
    when, job = record.run.get("time"), record.run.get("job")
    return Sighting(
        float(when) if isinstance(when, (int, float)) else 0.0,
        str(record.run.get("node") or ""),
        str(record.run.get("instance") or ""),
        str(record.run.get("boot") or ""),
        job if isinstance(job, int) else None,
        str(record.run.get("hook") or ""),
        label or uuid,
        tuple(faults),
    )


def _labels(facts: object) -> list[str]:
    """Labels of all GPUs of the node, which the facts of ``gpu_count`` hold."""
    names = facts.get("uuids") if isinstance(facts, dict) else None
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []


def history(records: Iterable[Record], uuid: str) -> History:
    """The GPU through all records, in any order. Raises ValueError for a text that is no UUID."""
    if not UUID.fullmatch(uuid):
        raise ValueError(f"{uuid[:60]!r} is not a GPU UUID; one looks like GPU-12345678-1234-1234-1234-123456789abc")
    seen = [seen_in for record in records if (seen_in := sighting(record, uuid))]
    seen.sort(key=lambda one: one.time)
    return History(uuid, tuple(seen), tuple(_again(seen)))


def _again(seen: list[Sighting]) -> list[Again]:
    """Troubles seen in more than one boot, the one with most boots first."""
    groups: dict[str, list[tuple[Sighting, Fault]]] = {}
    for sighting in seen:
        for fault in sighting.faults:
            if fault.priority != "P2":
                groups.setdefault(_trouble(fault.rule), []).append((sighting, fault))
    again = []
    for group in groups.values():
        boots = {(one.instance, one.boot) for one, _ in group if one.boot}
        if len(boots) > 1:
            again.append(Again(group[-1][1].rule, group[0][0], group[-1][0], len(boots)))
    return sorted(again, key=lambda one: (-one.boots, one.first.time))


def _trouble(rule: str) -> str:
    return next((group[0] for group in SAME if rule in group), rule)


def gpus(records: Iterable[Record]) -> dict[str, int]:
    """Every UUID that the records name, with the number of records: for a message when one is not found."""
    counts: dict[str, int] = {}
    for record in records:
        names = [name for result in record.results for name in _labels(result.facts)]
        for uuid in set(UUID.findall(" ".join(names))):
            counts[uuid] = counts.get(uuid, 0) + 1
    return counts
