"""One job: how it ended by Slurm's word, and what its nodes recorded before and after it.

The epilog's look counts; the prolog's tells whether a finding was there before the job.
A node that left no record is named: silence is not health.
"""

from __future__ import annotations

from collections.abc import Iterable

from hpslurm.core.finding import Evidence, Finding
from hpslurm.core.probe import PASS, UNKNOWN
from hpslurm.core.records import Record
from hpslurm.core.values import dataclass, replace

BEFORE_THE_JOB = "seen by the prolog already, so it was there before the job"
PROLOG, EPILOG = "prolog", "epilog"


@dataclass(frozen=True)
class Unseen:
    """Nodes of which a record is missing, or was cut off."""

    what: str
    nodes: tuple[str, ...]


@dataclass(frozen=True)
class View:
    """What the records of one job come to. ``findings`` have their node as subject."""

    findings: tuple[Finding, ...]
    not_checked: tuple[tuple[str, str, str], ...]  # probe, why, node
    passed: int
    unseen: tuple[Unseen, ...]


def view(records: Iterable[Record], nodes: Iterable[str], *, over: bool = True, all_read: bool = True) -> View:
    """``nodes`` is Slurm's list of the job's nodes; ``over``: epilogs should have run.

    Without ``all_read`` some records may be there and could not be read: nobody may then be said to have left none.
    """
    by: dict[tuple[str, str], Record] = {(record.node, record.hook): record for record in records}
    seen = {node for node, _ in by}
    names = list(dict.fromkeys([*nodes, *sorted(seen)]))
    findings: list[Finding] = []
    not_checked: list[tuple[str, str, str]] = []
    passed = 0
    for node in names:
        before, after = by.get((node, PROLOG)), by.get((node, EPILOG))
        last = after or before
        if last is None:
            continue
        findings += [_dated(finding, before, after) for finding in last.findings]
        for result in last.results:
            passed += result.outcome == PASS
            if result.outcome == UNKNOWN:
                not_checked.append((result.probe, result.note, node))
    wanted = (PROLOG, EPILOG) if over else (PROLOG,)
    none = "no record" if all_read else "no readable record"
    unseen = [Unseen(f"{none} of the {hook}", tuple(n for n in names if (n, hook) not in by)) for hook in wanted]
    unseen += [
        Unseen(f"record of the {hook} cut off", tuple(n for n in names if (r := by.get((n, hook))) and not r.complete))
        for hook in wanted
    ]
    return View(tuple(findings), tuple(not_checked), passed, tuple(one for one in unseen if one.nodes))


def _dated(finding: Finding, before: Record | None, after: Record | None) -> Finding:
    """The finding with one more piece of evidence: since when it is there, as far as records tell."""
    if after is None:
        when = "seen by the prolog; the epilog left no record"
    elif before is None or not before.complete:
        when = "seen by the epilog; the prolog left no whole record"
    elif any(one.rule.id == finding.rule.id for one in before.findings):
        when = BEFORE_THE_JOB
    else:
        when = "seen by the epilog only, so it came during the job"
    return replace(finding, evidence=(*finding.evidence, Evidence("records", when)))
