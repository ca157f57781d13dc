"""The plan of each node: its findings merged, after the guard took back what would do more harm than good.

The guard words what is shown by rule, where a command may name nodes with other troubles, too. A plan is of nodes
with the same troubles, so it asks the guard the same questions again, and names its own nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from hpslurm.cluster import guard, matrix, reasons
from hpslurm.cluster.guard import Scene
from hpslurm.cluster.model import Member, Members
from hpslurm.cluster.slurm_nodes import NO_RECOVERY, STUCK, is_out
from hpslurm.core import suggest
from hpslurm.core.finding import LOOK, P0, Finding, Suggestion
from hpslurm.core.policy import Policy
from hpslurm.core.probe import Result, unmuted
from hpslurm.core.text import clean
from hpslurm.show import plan
from hpslurm.show.plan import OF_PEERS, Known, Plan

NOT_ACTING = {NO_RECOVERY.id, STUCK.id}  # findings that say: HyperPod does not do what it was asked for


def plans(results: Iterable[Result], scene: Scene, policy: Policy) -> list[Plan]:
    """``results`` are those before the guard."""
    findings = unmuted(results)
    left = [_left(finding, scene) for finding in findings]
    if scene.too_many:
        one_cause = policy.mute(guard.one_cause(findings, scene, policy))
        left += [] if one_cause.muted else [one_cause]
    not_acting = {finding.subject for finding in findings if finding.rule.id in NOT_ACTING}
    known = {member.name: _known(member, scene, member.name in not_acting) for member in scene.members.members}
    return plan.plans(left, known, consequences(findings, scene.members), partial(_act, scene))


def _left(finding: Finding, scene: Scene) -> Finding:
    """The finding with what the guard leaves of its advice, and why that is less."""
    if not finding.subject:
        return finding
    items = finding.suggestions
    whys = [guard.withdrawn(item, finding.subject, scene, finding.rule) for item in items]
    kept = [
        made for item, why in zip(items, whys, strict=True) if not why for made in _put(item, finding.subject, scene)
    ]
    notes = dict.fromkeys(why for item, why in zip(items, whys, strict=True) if why and item.harm in guard.ACTS)
    said = [Suggestion(LOOK, f"no reboot or replacement is suggested: {why}") for why in notes]
    return finding.with_suggestions((*kept, *said))


def _put(item: Suggestion, subject: str, scene: Scene) -> Iterable[Suggestion]:
    """As it can be done for this node; reboots and replacements are put into words for the nodes of a plan."""
    if item.harm in guard.ACTS:
        return (item,)
    return (guard.for_caller(made, scene) for made, _ in guard.put(item, [subject], scene))


def _known(member: Member, scene: Scene, not_acting: bool) -> Known:
    out = member.slurm is not None and is_out(member.slurm)
    return Known(out, "" if not_acting else _waits(member, scene))


def _waits(member: Member, scene: Scene) -> str:
    """What HyperPod is doing with the node by itself, or empty."""
    action = reasons.action_of(member.slurm.reason) if member.slurm and is_out(member.slurm) else ""
    doing = {suggest.ACTION_REBOOT: "reboots", suggest.ACTION_REPLACE: "replaces"}.get(action)
    if doing:
        return f"HyperPod {doing} it (reason {action})"
    if matrix.of_hyperpod(member.instance) in (matrix.BUSY, matrix.CHECKED):
        status = clean(member.instance.status, 40) if member.instance else ""
        return f"HyperPod is working on its instance ({status})"
    reading = scene.reading(member.name)
    waits = reading is not None and reading.hands_off and reading.rule is not matrix.NO_INSTANCE
    return reading.words if reading and waits else ""


def _act(scene: Scene, item: Suggestion, nodes: Sequence[str]) -> Iterable[Suggestion]:
    return (guard.for_caller(made, scene) for made in guard.acts(item, nodes, scene))


def consequences(findings: Iterable[Finding], members: Members) -> dict[tuple[str, str], str]:
    """What follows from the fault of the one sick partner of a job: node and rule -> that partner."""
    findings = list(findings)
    sick = {finding.subject for finding in findings if finding.rule.priority == P0 and finding.rule.id not in OF_PEERS}
    of_job: dict[int, set[str]] = {}
    jobs = {member.name: _job(member) for member in members.members}
    for name in sick:
        if job := jobs.get(name):
            of_job.setdefault(job, set()).add(name)
    partner_of = {}
    for finding in findings:
        partners = of_job.get(jobs.get(finding.subject) or 0, set()) - {finding.subject}
        if finding.rule.id in OF_PEERS and len(partners) == 1:
            partner_of[finding.subject, finding.rule.id] = min(partners)
    return partner_of


def _job(member: Member) -> int | None:
    job = member.record.run.get("job") if member.record else None
    return job if isinstance(job, int) else None
