"""Automatic patching: when HyperPod will keep, or keeps, a group's nodes from new jobs to patch them.

On the day of a patch it cordons every instance of the group at once, whatever the strategy, and gives each
back when it is patched, or unpatched when the wait for idle instances is over. Slurm then shows a whole group
drained, and no node of it is ill.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone

from hpslurm.cluster.aws.hyperpod import NEW_VALUE, SECTION, about_role, ago, look_at_group, named, span
from hpslurm.cluster.aws.view import CLUSTER, View
from hpslurm.cluster.model import Cluster, Group, Patching
from hpslurm.core.finding import CONFIGURE, LOOK, P2, Evidence, Finding, Rule, Suggestion
from hpslurm.core.policy import Policy
from hpslurm.core.text import clean
from hpslurm.core.values import dataclass

PLANNED = Rule("hyperpod-patch-planned", P2, "Automatic patching of a group is planned", SECTION)
HOLDS = Rule("hyperpod-patch-holds", P2, "Automatic patching may keep a group's nodes from new jobs", SECTION)

# As botocore's model names them, and when the group's nodes come back; a test compares.
STRATEGIES = {
    "WhenIdle": "each comes back as soon as it is patched",
    "WhenAllIdle": "none is patched before all are idle, and all come back together",
    "DrainFirst": "what runs there is evicted, batch by batch",
}


@dataclass(frozen=True)
class Facts:
    cluster: Cluster
    now: float


NEEDS = (CLUSTER,)


def collect(view: View) -> Facts:
    return Facts(view.get(CLUSTER), view.now)


def judge(facts: Facts, policy: Policy) -> Iterator[Finding]:
    for group in facts.cluster.groups:
        if group.patching is None:
            continue
        if group.patching.strategy not in STRATEGIES:
            told = f"PatchingStrategy {clean(group.patching.strategy, 40)!r}"
            yield NEW_VALUE.found(told, suggest=[look_at_group(group, facts.cluster)], subject=group.name)
        if group.patching.begins is not None:
            yield from _judge_date(group, group.patching, group.patching.begins, facts)


def _judge_date(group: Group, patching: Patching, begins: float, facts: Facts) -> Iterator[Finding]:
    day = f"{datetime.fromtimestamp(begins, timezone.utc):%Y-%m-%d %H:%M} UTC"
    seen = [Evidence("DescribeCluster", f"group {group.name}: {patching.strategy}, NextPatchDate {day}")]
    who = f"{about_role(group.role)}automatic patching ({clean(patching.strategy, 40)})"
    how = STRATEGIES.get(patching.strategy, "how they come back hpslurm does not know")
    most = span(patching.waits / 60)
    look = _look(facts.cluster)
    if facts.now < begins:
        yield PLANNED.found(
            f"{who} begins {day}, in {span((begins - facts.now) / 60)}: HyperPod then keeps all its nodes from new "
            f"jobs, for {most} at most; {how}",
            evidence=seen,
            suggest=[
                look,
                Suggestion(CONFIGURE, "where a job must run then, set another day (UpdateCluster)"),
            ],
            subject=group.name,
        )
    elif patching.holds(facts.now):
        yield HOLDS.found(
            f"{who} was due {ago(facts.now, begins)}: HyperPod may keep its nodes from new jobs until they are "
            f"patched, for {most} at most; {how}. Nodes of this group that are drained and show no fault come back by "
            "themselves: do not resume them by hand",
            evidence=seen,
            suggest=[look],
            subject=group.name,
        )


def _look(cluster: Cluster) -> Suggestion:
    return Suggestion(
        LOOK,
        "see plan and progress of each group",
        f"aws sagemaker describe-cluster {named(cluster)} "
        "--query 'InstanceGroups[].[InstanceGroupName,SoftwareUpdateStatus,AutoPatchConfig]'",
    )
