"""Kernel lines about GPUs and their bus that carry no XID: a GPU gone before the driver came, PCIe errors.

A GPU that was already off the bus at boot makes no XID and is in no NVML answer; these
lines are its only trace. They are of this boot; what still holds, the other probes say.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from hpslurm.core import linear
from hpslurm.core.finding import P0, Evidence, Finding, Rule
from hpslurm.core.policy import Policy
from hpslurm.core.probe import Skip
from hpslurm.core.text import clean
from hpslurm.core.values import dataclass, field, replace
from hpslurm.node import gpu_witness, gpus, xid_table
from hpslurm.sources import gpu, kmsg
from hpslurm.sources.host import Host

# As in the table, which a healthy node does not read; a test compares.
MARKS = (
    b"API mismatch",
    b"fallen off the bus and is not",
    b"Rate limiting GSP RPC",
    b"probe routine was not called",
    b"RmInitAdapter failed",
    b"No NVIDIA ",
    b"None of the NVIDIA",
    b"probe routine failed",
    b"mce: [Hardware Error]",
    b"Rx Detect Link mask",
    b"PCIe Bus Error: severity=",
)
MOST_LINES = 5000


@dataclass(frozen=True)
class Hit:
    """Lines of one row of the table, on one device where they name it."""

    id: str
    pci: str
    count: int
    first: float  # seconds since the epoch
    last: float
    text: str  # of the first


@dataclass(frozen=True)
class Facts:
    hits: tuple[Hit, ...] = ()
    signs: dict[str, str] = field(
        default_factory=dict
    )  # address of each GPU to what another source shows wrong with it


def start(host: Host) -> None:
    gpu.start(host)


def collect(host: Host) -> Facts:
    if not gpu.present(host):
        raise Skip("no NVIDIA GPU here")
    records = kmsg.read(host).matching(*MARKS)[:MOST_LINES]
    if not records:
        return Facts()
    rows = [(row, linear.compile(row["pattern"])) for row in xid_table.kernel_rows()]
    hits: dict[tuple[str, str], list[kmsg.Record]] = {}
    for record in records:
        for row, pattern in rows:
            if match := pattern.match(record.text):
                pci = match.groupdict().get("pci") or ""
                hits.setdefault((row["id"], gpu.short_pci(pci)), []).append(record)
                break
    return Facts(
        tuple(
            # without the driver's prefix: health agents read logs, and would act on a quote
            Hit(row, pci, len(lines), lines[0].time, lines[-1].time, clean(lines[0].text.replace("NVRM: ", ""), 200))
            for (row, pci), lines in hits.items()
        ),
        gpu_witness.signs(host),
    )


def table_rules() -> Iterator[Rule]:
    for row in xid_table.kernel_rows():
        # a line of this boot may tell of what is over, so only what stops a node for good may gate
        yield Rule(
            row["id"], row["priority"], row["title"], row["reference"], row.get("cause", ""), row["priority"] == P0
        )


def judge(facts: Facts, policy: Policy) -> Iterator[Finding]:
    if not facts.hits:
        return
    rows = {row["id"]: row for row in xid_table.kernel_rows()}
    for rule in table_rules():
        hits = [hit for hit in facts.hits if hit.id == rule.id]
        if hits:
            row = rows[rule.id]
            count = sum(hit.count for hit in hits)
            note = f"; {row['note']}" if "note" in row else ""
            alone = rule.gateable and not any(gpu_witness.confirms(facts.signs, hit.pci) for hit in hits)
            yield replace(rule, gateable=rule.gateable and not alone).found(
                f"{count} lines, the last at {_when(max(hit.last for hit in hits))}: {hits[0].text}{note}",
                evidence=[
                    *(Evidence("kernel log", f"{_when(hit.first)} {hit.count} times: {hit.text}") for hit in hits),
                    *([Evidence("NVML and the bus", gpu_witness.NOBODY)] if alone else ()),
                ],
                suggest=gpus.steps(rule.id, row["suggest"]),
            )


def _when(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S%z", time.localtime(seconds))
