"""Did the same fault come back on the same physical GPU after a reboot? That is what speaks for a replacement.

One fault may be an accident that a reboot cures. Slurm's node name and the PCI address prove
nothing across a replacement, so the GPU is followed by its UUID through all records of the
node that are kept.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator

from hpslurm.cluster.model import Member, Members
from hpslurm.core import suggest
from hpslurm.core.finding import LOOK, P0, Evidence, Finding, Rule, Suggestion
from hpslurm.core.records import Record
from hpslurm.job import gpu_history

AGAIN = Rule("gpu-fault-again", P0, "A GPU's fault came back after a reboot", "debugging-guide.md § 7")


def judge(members: Members, records_of: Callable[[str], Iterable[Record]]) -> Iterator[Finding]:
    """``records_of`` gives all records of a node that are kept; it is asked for nodes with a GPU fault only."""
    for member in members.members:
        uuids = faulty(member)
        if not uuids:
            continue
        kept = list(records_of(member.name))
        for uuid in uuids:
            history = gpu_history.history(kept, uuid)
            if history.again:
                yield _found(member.name, uuid, history)


def faulty(member: Member) -> list[str]:
    """UUIDs that the newest record's findings are about."""
    found = member.record.findings if member.record else []
    about = [item.source for one in found if one.rule.priority != "P2" and not one.muted for item in one.evidence]
    return sorted({match[0] for text in about for match in gpu_history.UUID.finditer(text)})


def _found(node: str, uuid: str, history: gpu_history.History) -> Finding:
    worst = history.again[0]
    return AGAIN.found(
        f"{uuid}: {history.verdict}",
        evidence=[
            Evidence(f"record of {one.node} ({one.hook}, boot {one.boot[:8] or 'unknown'})", fault.text)
            for one in (worst.first, worst.last)
            for fault in one.faults[:1]
        ],
        suggest=[
            Suggestion(LOOK, "all records of this GPU", f"hpslurm report --gpu {shlex.quote(uuid)}"),
            suggest.save_evidence(),
            suggest.drain(AGAIN.id),
            suggest.replace("a reboot was tried, and the same GPU failed the same way"),
        ],
        subject=node,
    )
