"""Did the same fault come back on the same physical GPU after a reboot? That is what speaks for a replacement.

One fault may be an accident that a reboot cures. Slurm's node name and the PCI address prove
nothing across a replacement, so the GPU is followed by its UUID through all records of the
node that are kept.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from hpslurm.cluster.model import Gathered, Member
from hpslurm.core import suggest
from hpslurm.core.finding import LOOK, P0, Evidence, Finding, Rule, Suggestion
from hpslurm.core.policy import Policy
from hpslurm.core.probe import Skip
from hpslurm.core.text import GPU_UUID
from hpslurm.job import gpu_history

AGAIN = Rule("gpu-fault-again", P0, "A GPU's fault came back after a reboot", "debugging-guide.md § 7")


Facts = tuple[tuple[str, gpu_history.History], ...]  # nodes, each with the history of a GPU that has a fault now


def collect(gathered: Gathered) -> Facts:
    """All records of a node are read for nodes with a GPU fault only."""
    suspects = [(member.name, uuids) for member in gathered.members.members if (uuids := faulty(member))]
    if not suspects:
        raise Skip("no GPU has a fault now")
    return tuple(
        (node, gpu_history.history(kept, uuid))
        for node, uuids in suspects
        for kept in [gathered.records_of(node)]
        for uuid in uuids
    )


def judge(facts: Facts, policy: Policy) -> Iterator[Finding]:
    for node, history in facts:
        if history.again:
            yield _found(node, history)


def faulty(member: Member) -> list[str]:
    """UUIDs that the newest record's findings are about."""
    findings = member.record.findings if member.record else []
    grave = [finding for finding in findings if finding.rule.priority != "P2" and not finding.muted]
    sources = [evidence.source for finding in grave for evidence in finding.evidence]
    return sorted({match[0] for source in sources for match in GPU_UUID.finditer(source)})


def _found(node: str, history: gpu_history.History) -> Finding:
    worst = history.again[0]
    return AGAIN.found(
        f"{history.uuid}: {history.verdict}",
        evidence=[
            Evidence(f"record of {sighting.node} ({sighting.hook}, boot {sighting.boot[:8] or 'unknown'})", fault.text)
            for sighting in (worst.first, worst.last)
            for fault in sighting.faults[:1]
        ],
        suggest=[
            Suggestion(LOOK, "all records of this GPU", f"hpslurm report --gpu {shlex.quote(history.uuid)}"),
            suggest.save_evidence(),
            suggest.drain(AGAIN.id),
            suggest.replace("a reboot was tried, and the same GPU failed the same way"),
        ],
        subject=node,
    )
