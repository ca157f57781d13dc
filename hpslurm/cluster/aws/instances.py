"""Every instance as HyperPod sees it: which failed, which are being worked on, which have a state that is new to us.

When one failed its state does not say: LaunchTime is weeks older. The event history, where
there is one, does. Many of one kind are told in the same words, so that they become one finding.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator

from hpslurm.cluster.aws import events
from hpslurm.cluster.aws.events import EVENTS, ClusterEvent
from hpslurm.cluster.aws.hyperpod import (
    INSTANCES,
    SECTION,
    STUCK_MINUTES,
    WORKING,
    about_role,
    ago,
    meaning,
    named,
    remedy,
    span,
    strange,
)
from hpslurm.cluster.aws.many import MANY
from hpslurm.cluster.aws.view import CLUSTER, View
from hpslurm.cluster.holders import owner_line
from hpslurm.cluster.model import SPECIAL, Cluster, Instance
from hpslurm.core.finding import LOOK, P1, P2, Evidence, Finding, Rule, Suggestion
from hpslurm.core.policy import Policy
from hpslurm.core.probe import Unknown
from hpslurm.core.text import clean
from hpslurm.core.values import dataclass

FAILED = Rule("hyperpod-instance-failed", P1, "HyperPod calls an instance failed", SECTION)
FAILED_BEFORE = Rule("hyperpod-instance-failed-before", P2, "A failed instance has a successor already", SECTION)
GONE = Rule("hyperpod-instance-gone", P1, "Instance does not exist any more", SECTION)
CHANGING = Rule("hyperpod-instance-changing", P2, "HyperPod is working on an instance", SECTION)
SLOW = Rule("hyperpod-instance-slow", P1, "Instance does not come up", SECTION)

KNOWN = ("Running", "Failure", "NotFound", *WORKING)


@dataclass(frozen=True)
class Facts:
    cluster: Cluster
    instances: tuple[Instance, ...]
    now: float
    events: tuple[ClusterEvent, ...] = ()
    trouble: str = ""


NEEDS = (CLUSTER, INSTANCES, EVENTS)


def collect(view: View) -> Facts:
    (instances, partial), why = view.maybe(INSTANCES, ((), ""))
    (happened, _), _ = view.maybe(EVENTS, ((), ""))
    return Facts(view.get(CLUSTER), instances, view.now, happened, why or partial)


def judge(facts: Facts, policy: Policy) -> Iterator[Finding]:
    kinds = Counter((item.status, item.group) for item in facts.instances)
    for instance in facts.instances:
        alike = kinds[instance.status, instance.group]
        yield from _judge(instance, facts, alike if alike > MANY else 0)
    if facts.trouble:
        raise Unknown(facts.trouble)


def _judge(instance: Instance, facts: Facts, alike: int) -> Iterator[Finding]:
    who = f"{about_role(instance.role)}{_many(instance, facts, alike) if alike else instance.id}"
    look = _look(instance, facts.cluster, alike)
    seen = [_evidence(instance)]
    tail = owner_line(instance)
    if instance.status == "Failure":
        verb = "have" if alike else "has"
        rule = FAILED_BEFORE if _succeeded(instance, facts) else FAILED
        yield rule.found(
            f"{who} {verb} status Failure{meaning(instance.message)}; {_when(instance, facts, alike)}{tail}",
            evidence=[*seen, *_attempts(instance, facts)],
            suggest=[look, *_special(instance)] if instance.role in SPECIAL else [look, *remedy(instance.message)],
            subject=instance.subject,
        )
    elif instance.status == "NotFound":
        yield GONE.found(
            f"{who} has status NotFound: Slurm's node is left over, or waits for a replacement{tail}",
            evidence=seen,
            suggest=[look],
            subject=instance.subject,
        )
    elif instance.status in WORKING:
        yield _working(instance, facts, who, [look], alike, tail)
    elif instance.status not in KNOWN:
        yield strange("instance", instance.status, "ListClusterNodes", instance.subject, look)


def _succeeded(instance: Instance, facts: Facts) -> bool:
    """Whether a newer instance has its name; where an older one has it, a further attempt failed."""
    heir = next((item for item in facts.instances if item.id == instance.heir), None)
    return heir is not None and (heir.launched or 0.0) > (instance.launched or 0.0)


def _many(instance: Instance, facts: Facts, alike: int) -> str:
    home = facts.cluster.group(instance.group)
    of = f" of {home.current or alike}" if home else ""
    return f"{alike}{of} instances of {instance.group}"


def _working(instance: Instance, facts: Facts, who: str, suggest: list[Suggestion], alike: int, tail: str) -> Finding:
    minutes = None if instance.launched is None else max(0.0, (facts.now - instance.launched) / 60)
    what = f"status {instance.status}: {WORKING[instance.status]}"
    if instance.id == instance.logical and instance.status == "Pending":
        what = "status Pending: asked for, and no machine given yet; it comes when there is capacity"
    elif instance.status == "Pending" and minutes is not None and minutes > STUCK_MINUTES:
        since = "for over 90 minutes" if alike else f"launched {span(minutes)} ago"
        return SLOW.found(
            f"{who} {'have' if alike else 'has'} status Pending, {since}: "
            "a lifecycle script hangs, or the network lets it reach nothing; read its LifecycleConfig stream",
            evidence=[_evidence(instance)],
            suggest=[*suggest, *_special(instance)],
            subject=instance.subject,
        )
    age = "" if minutes is None or alike else f", launched {span(minutes)} ago"
    return CHANGING.found(
        f"{who} {'have' if alike else 'has'} {what}{age}; wait{tail}",
        evidence=[_evidence(instance)],
        suggest=suggest,
        subject=instance.subject,
    )


def _when(instance: Instance, facts: Facts, alike: int) -> str:
    """Since when, what HyperPod does about it, and when that was long enough."""
    if instance.role in SPECIAL:
        return "do not wait for HyperPod to try again: open a case with AWS Support now"
    if facts.cluster.recovery == "None":
        return "node recovery is off: HyperPod does nothing by itself"
    newest = next(iter(_of(instance, facts)), None)
    if newest is None:
        known = "" if instance.launched is None or alike else f"launched {ago(facts.now, instance.launched)}, "
        return (
            f"{known}when it failed is not reported: HyperPod may try again by itself; look again in 30 minutes, and "
            f"if nothing changed after {STUCK_MINUTES}, open a case with AWS Support"
        )
    if alike:
        return (
            f"HyperPod may try again by itself; if nothing changed after {STUCK_MINUTES} minutes, open one case for all"
        )
    since = (facts.now - newest.time) / 60
    if since > STUCK_MINUTES:
        return f"last attempt {ago(facts.now, newest.time)}, none since: open a case with AWS Support"
    return (
        f"last attempt {ago(facts.now, newest.time)}: HyperPod may try again by itself; wait "
        f"{STUCK_MINUTES - int(max(0.0, since))} minutes more, then open a case with AWS Support"
    )


def _of(instance: Instance, facts: Facts) -> list[ClusterEvent]:
    """What the history says of this instance, newest first."""
    return sorted((item for item in facts.events if item.instance == instance.id), key=lambda item: -item.time)


def _attempts(instance: Instance, facts: Facts) -> list[Evidence]:
    return [events.evidence(item) for item in _of(instance, facts)[:3]]


def _evidence(instance: Instance) -> Evidence:
    said = f": {instance.message}" if instance.message and instance.status != "Running" else ""
    return Evidence("ListClusterNodes", f"{instance.id} of {instance.group}: {clean(instance.status, 60)}{said}")


def _special(instance: Instance) -> list[Suggestion]:
    return [Suggestion(LOOK, SPECIAL[instance.role])] if instance.role in SPECIAL else []


def _look(instance: Instance, cluster: Cluster, alike: int) -> Suggestion:
    """One command for all of a kind."""
    if alike:
        query = f"ClusterNodeSummaries[?InstanceStatus.Status=='{instance.status}'].[InstanceId,InstanceStatus.Message]"
        return Suggestion(
            LOOK,
            f"see all of them that are {clean(instance.status, 60)}",
            f"aws sagemaker list-cluster-nodes {named(cluster)} --instance-group-name-contains "
            f"{shlex.quote(instance.group)} --query {shlex.quote(query)} --output text",
        )
    named_by = "--node-logical-id" if instance.id == instance.logical else "--node-id"
    return Suggestion(
        LOOK, "see what HyperPod says about it", f"aws sagemaker describe-cluster-node {named(cluster)} "
        f"{named_by} {shlex.quote(instance.id)}"
    )  # fmt: skip
