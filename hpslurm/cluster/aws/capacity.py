"""Capacity: does every group have its instances, and if not, do more come, and what do they wait for?

A cluster stays InService while a group waits for capacity that never comes. What the group's own
fields do not say, the event history does: each attempt that failed, and why. A training plan that
is over takes its instances with it, and no retry brings them back.
"""

from __future__ import annotations

from collections.abc import Iterator

from hpslurm.cluster.aws.events import EVENTS, ClusterEvent, kind_of
from hpslurm.cluster.aws.hyperpod import (
    NEW_VALUE,
    PLAN_OVER,
    SECTION,
    about_role,
    ago,
    group_evidence,
    look_at_group,
)
from hpslurm.cluster.aws.view import CLUSTER, View
from hpslurm.cluster.failures import failure_of
from hpslurm.cluster.model import CHANGING, Cluster, Group
from hpslurm.core.finding import CONFIGURE, P1, P2, Evidence, Finding, Rule, Suggestion
from hpslurm.core.policy import Policy
from hpslurm.core.values import dataclass

SHORT = Rule("hyperpod-capacity", P1, "Fewer instances than requested", SECTION)
SCALING = Rule("hyperpod-scaling", P2, "Instance group is being scaled", SECTION)
PLAN_ENDED = Rule("hyperpod-plan-over", P1, "Training plan of a group is over", SECTION)
PLAN_WAITS = Rule("hyperpod-plan-waiting", P2, "Training plan of a group has not begun", SECTION)

PLAN_WAITING = ("Pending", "Scheduled")
RECENT = 6 * 3600  # seconds: attempts that failed longer ago do not speak for what goes on now
ATTEMPTS = ("event-provision-failed", "event-reservation-failed", "event-replacement-failed", "event-interface-failed")


@dataclass(frozen=True)
class Facts:
    cluster: Cluster
    now: float
    events: tuple[ClusterEvent, ...] = ()


NEEDS = (CLUSTER, EVENTS)


def collect(view: View) -> Facts:
    (happened, _), _ = view.maybe(EVENTS, ((), ""))
    return Facts(view.get(CLUSTER), view.now, happened)


def judge(facts: Facts, policy: Policy) -> Iterator[Finding]:
    for group in facts.cluster.groups:
        yield from _judge_plan(group, facts.cluster)
        if group.short:
            yield _short(group, facts)


def _judge_plan(group: Group, cluster: Cluster) -> Iterator[Finding]:
    if not group.plan_status or group.plan_status == "Active":
        return
    told = f"training plan {group.plan} of the group is {group.plan_status}"
    seen = [Evidence("DescribeCluster", f"group {group.name}: TrainingPlanStatus {group.plan_status}")]
    look = look_at_group(group, cluster)
    if group.plan_status in PLAN_OVER:
        renew = Suggestion(CONFIGURE, "buy a new plan and give it to the group; until then nothing brings them back")
        words = f"{told}: HyperPod takes its instances back, and no retry, reboot or replacement helps"
        yield PLAN_ENDED.found(words, evidence=seen, suggest=[look, renew], subject=group.name)
    elif group.plan_status in PLAN_WAITING:
        words = f"{told}: its instances come when the plan begins, not before; wait for its start"
        yield PLAN_WAITS.found(words, evidence=seen, suggest=[look], subject=group.name)
    else:
        yield NEW_VALUE.found(told, evidence=seen, suggest=[look], subject=group.name)


def _short(group: Group, facts: Facts) -> Finding:
    attempts = _failed(group, facts)
    moving = group.scaling or group.status in CHANGING
    rule = SCALING if moving and not attempts and group.plan_status not in PLAN_OVER else SHORT
    seen = [group_evidence(group)]
    if attempts:
        seen.append(Evidence("event", f"{attempts[0].text} ({attempts[0].failure or 'no reason given'})"))
    return rule.found(
        f"{about_role(group.role)}{group.current} of {group.target} {group.type} instances are there"
        f"{_why(group, attempts, moving, facts)}",
        evidence=seen,
        suggest=[look_at_group(group, facts.cluster), _advice(group, attempts, moving)],
        subject=group.name,
    )


def _failed(group: Group, facts: Facts) -> list[ClusterEvent]:
    """Attempts of the last hours that came to nothing, newest first."""
    attempts = [
        event
        for event in facts.events
        if event.group == group.name
        and facts.now - event.time < RECENT
        and (kind := kind_of(event)) is not None
        and kind.id in ATTEMPTS
    ]
    return sorted(attempts, key=lambda event: -event.time)


def _why(group: Group, attempts: list[ClusterEvent], moving: bool, facts: Facts) -> str:
    if group.plan_status in PLAN_OVER:
        return f": training plan {group.plan} is {group.plan_status}, and its instances went with it"
    if group.plan_status in PLAN_WAITING:
        return f": training plan {group.plan} is {group.plan_status}, they come when it begins"
    spot = "; spot capacity, which AWS takes back and gives as it has it" if group.spot else ""
    if attempts:
        failure = next(filter(None, (failure_of(event.failure) for event in attempts)), None)
        cause = failure.meaning if failure else attempts[0].failure or "no reason given"
        return f", attempts fail, the last one {ago(facts.now, attempts[0].time)}: {cause}{spot}"
    if moving:
        return f", scaling is under way: wait 30 minutes{spot}"
    return f", and no scaling is under way{spot}"


def _advice(group: Group, attempts: list[ClusterEvent], moving: bool) -> Suggestion:
    if group.plan_status in PLAN_OVER:
        return Suggestion(CONFIGURE, "give the group a new training plan, or set its count to what is there")
    if group.plan_status in PLAN_WAITING:
        return Suggestion(CONFIGURE, "nothing to do before the plan's start")
    if group.spot:
        return Suggestion(CONFIGURE, "wait, allow more instance types or zones, or take on-demand capacity or a plan")
    failure = next(filter(None, (failure_of(event.failure) for event in attempts)), None)
    if failure:
        return Suggestion(CONFIGURE, failure.remedy)
    return Suggestion(
        CONFIGURE,
        "without capacity a retry does not help: compare the zone of the group's subnet with the zone of "
        "your capacity or training plan",
    )
