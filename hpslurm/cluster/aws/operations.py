"""Operations: what HyperPod says it is at work on, by its own list.

A scaling or a deep health check that somebody asked for takes nodes out, or brings new ones, while
cluster and groups stay InService. The list says that it was asked for, when, and under which id.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from hpslurm.cluster.aws.hyperpod import NEW_VALUE, SECTION, ago, named, seconds
from hpslurm.cluster.aws.view import CLUSTER, Need, Source, View
from hpslurm.cluster.model import Cluster
from hpslurm.core.finding import LOOK, P2, Evidence, Finding, Rule, Suggestion
from hpslurm.core.policy import Policy
from hpslurm.core.probe import Skip, Unknown
from hpslurm.core.text import clean
from hpslurm.core.values import dataclass
from hpslurm.sources.aws_errors import Unsupported

RUNNING = Rule("hyperpod-operation", P2, "HyperPod operation is under way", SECTION)

# Types that the API has, as botocore's model names them, and what each does to nodes; a test compares.
TYPES = {
    "Scaling": "instances come or go until it is done",
    "DeepHealthCheck": "the nodes under test are out for one to two hours each; wait, and bring none back by hand",
}
STATUS = ("InProgress", "Superseded", "Done")
_LIST = ("sagemaker", "ListClusterOperations")


@dataclass(frozen=True)
class Operation:
    """``began`` is seconds since the epoch."""

    id: str
    type: str
    began: float | None


@dataclass(frozen=True)
class Facts:
    cluster: Cluster
    operations: tuple[Operation, ...]
    now: float
    trouble: str = ""


def fetch(source: Source) -> tuple[tuple[Operation, ...], str]:
    """Operations in progress, newest first, and why they are not all. Raises Skip where the cluster keeps no list."""
    try:
        listing = source.aws.listed(
            *_LIST, "ClusterOperationSummaries", ClusterName=source.cluster.name, Status="InProgress", MaxResults=100
        )
    except Unsupported as why:
        if not source.aws.knows(*_LIST):  # then it is us who cannot ask
            raise
        raise Skip(f"no list of operations: {why}") from why
    operations = (
        Operation(str(raw.get("OperationId", "")), str(raw.get("Type", "")), seconds(raw.get("CreationTime")))
        for raw in listing.items
    )
    return tuple(operations), listing.trouble


OPERATIONS = Need("operations", lambda source, _: fetch(source))
NEEDS = (CLUSTER, OPERATIONS)


def collect(view: View) -> Facts:
    operations, trouble = view.get(OPERATIONS)
    return Facts(view.get(CLUSTER), operations, view.now, trouble)


def judge(facts: Facts, policy: Policy) -> Iterator[Finding]:
    for operation in facts.operations:
        kind = clean(operation.type, 40) or "no type"
        began = "" if operation.began is None else f", begun {ago(facts.now, operation.began)}"
        seen = Evidence("ListClusterOperations", f"{kind} {clean(operation.id, 40)}: InProgress")
        steps = _look(operation, facts.cluster)
        if operation.type in TYPES:
            told = f"{kind}{began}: {TYPES[operation.type]}"
            yield RUNNING.found(told, evidence=[seen], suggest=steps, subject=facts.cluster.name)
        else:
            told = f"operation of type {kind}{began}"
            yield NEW_VALUE.found(told, evidence=[seen], suggest=steps, subject=facts.cluster.name)
    if facts.trouble:
        raise Unknown(facts.trouble)


def _look(operation: Operation, cluster: Cluster) -> list[Suggestion]:
    return [
        Suggestion(
            LOOK,
            "see which groups or nodes it is about",
            f"aws sagemaker describe-cluster-operation {named(cluster)} --operation-id {shlex.quote(operation.id)}",
        )
    ]
