"""The table of nodes on the page and in a bundle: a row for each member."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from hpslurm.cluster.model import CONTROLLER, LOGIN, Member, Members
from hpslurm.core.finding import PRIORITIES
from hpslurm.core.probe import Result
from hpslurm.core.text import clean
from hpslurm.show.page import GRAVEST, Row


def node_rows(results: Iterable[Result], members: Members) -> list[Row]:
    """A row for each node, gravest first; the order of names within."""
    ids_of: dict[str, dict[str, str]] = {}
    for result in results:
        for finding in result.findings:
            if finding.subject and not finding.muted:
                ids_of.setdefault(finding.subject, {})[finding.rule.id] = finding.rule.priority
    rows = [_row(member, ids_of.get(member.name, {}), members.now) for member in members.members]
    order = ["p0", "p1", "p2", "unknown", "ok"]
    return sorted(rows, key=lambda row: order.index(row.grade))


def _row(member: Member, priority_of: Mapping[str, str], now: float) -> Row:
    node, instance, record = member.slurm, member.instance, member.record
    ids = sorted(priority_of.items(), key=lambda pair: (PRIORITIES.index(pair[1]), pair[0]))
    # No job ever runs on a controller or login node, so nothing looks at it from the inside.
    looked_at = record is not None or member.role in (CONTROLLER, LOGIN)
    made = record.run.get("time") if record else None
    return Row(
        name=clean(member.name, 80),
        role=member.role,
        group=instance.group if instance else "",
        instance=member.instance_id,
        slurm=node.words if node else "",
        reason=clean(node.reason, 120) if node else "",
        hyperpod=instance.status if instance else "",
        jobs=str(len(member.jobs) or ""),
        record=_age(now - made) if isinstance(made, (int, float)) else "",
        findings=tuple((identity, GRAVEST[priority]) for identity, priority in ids),
        grade=GRAVEST[ids[0][1]] if ids else "ok" if looked_at else "unknown",
    )


def _age(seconds: float) -> str:
    minutes = max(0, int(seconds / 60))
    return f"{minutes} min ago" if minutes < 120 else f"{minutes // 60} h ago"
