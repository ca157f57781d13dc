"""HyperPod's own view: the cluster, its instance groups, and every instance.

One DescribeCluster and one paged ListClusterNodes describe it all. A cluster can be
InService while a group is short of instances, and an instance can carry the message of
a failure long gone: the status decides, never the message.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from hpslurm.cluster.aws.view import CLUSTER, Need, Source, View
from hpslurm.cluster.failures import failure_of
from hpslurm.cluster.model import CONTROLLER, LOGIN, WORKER, Cluster, Group, Instance
from hpslurm.core.finding import CONFIGURE, LOOK, P0, P1, P2, Evidence, Finding, Rule, Suggestion
from hpslurm.core.policy import Policy
from hpslurm.core.probe import Unknown
from hpslurm.core.text import clean
from hpslurm.core.values import dataclass
from hpslurm.sources.aws import CLUSTER_ARN, Aws, Listing

SECTION = "operations.md § 6"
CLUSTER_DOWN = Rule("hyperpod-cluster-failed", P0, "HyperPod cluster failed or is being deleted", SECTION)
CLUSTER_CHANGING = Rule("hyperpod-cluster-changing", P2, "HyperPod is changing the cluster", SECTION)
GROUP_FAILED = Rule("hyperpod-group-failed", P1, "Instance group failed or degraded", SECTION)
SHORT = Rule("hyperpod-capacity", P1, "Fewer instances than wanted", SECTION)
SCALING = Rule("hyperpod-scaling", P2, "Instance group is being scaled", SECTION)
RECOVERY_OFF = Rule("hyperpod-recovery-off", P2, "Automatic node recovery is off", SECTION)
FAILED = Rule("hyperpod-instance-failed", P1, "HyperPod calls an instance failed", SECTION)
GONE = Rule("hyperpod-instance-gone", P1, "Instance does not exist any more", SECTION)
CHANGING = Rule("hyperpod-instance-changing", P2, "HyperPod is working on an instance", SECTION)
UPDATE_FAILED = Rule("hyperpod-update-failed", P1, "Software update failed or was rolled back", SECTION)
UPDATING = Rule("hyperpod-updating", P2, "Software update is under way", SECTION)
IMAGES = Rule("hyperpod-image-differs", P1, "Instances of one group run different images", SECTION)
IMAGE_OLD = Rule("hyperpod-image-old", P2, "Image is at its end of life or lacks security updates", SECTION)
EKS = Rule("hyperpod-eks", P2, "Not a Slurm cluster", SECTION)

STUCK_MINUTES = 90  # HyperPod may retry; without a new attempt for this long it has stopped
# status of an instance: what is going on, in words
WORKING = {
    "Pending": "being provisioned, or the new half of a replacement",
    "ShuttingDown": "being ended: scale-in or replacement",
    "SystemUpdating": "software update or replacement",
    "DeepHealthCheckInProgress": "isolated for a deep health check, for one to two hours",
    "DetachInProgress": "being moved; its volumes are wiped on the way",
    "AttachInProgress": "being moved; its volumes are wiped on the way",
}
_NODE_NAME = re.compile(r"ip-(\d{1,3})-(\d{1,3})-(\d{1,3})-(\d{1,3})")


@dataclass(frozen=True)
class Facts:
    cluster: Cluster
    instances: tuple[Instance, ...]
    now: float
    trouble: str = ""


# reading


def describe(aws: Aws, name: str) -> dict[str, Any]:
    """Raises Unknown as the door does; NotFound where no cluster has the name."""
    return aws.read("sagemaker", "DescribeCluster", ClusterName=name)


def parse_cluster(raw: dict[str, Any]) -> Cluster:
    arn = str(raw["ClusterArn"])
    vpc = raw.get("VpcConfig") or {}
    groups = [*(raw.get("InstanceGroups") or ()), *(raw.get("RestrictedInstanceGroups") or ())]
    match = CLUSTER_ARN.fullmatch(arn)
    return Cluster(
        arn=arn,
        id=match["id"] if match else arn.rpartition("/")[2],
        name=str(raw["ClusterName"]),
        status=str(raw["ClusterStatus"]),
        groups=tuple(_group(group, vpc) for group in groups),
        failure=clean(raw.get("FailureMessage") or ""),
        recovery=raw.get("NodeRecovery") or "",
        continuous=raw.get("NodeProvisioningMode") == "Continuous",
        # An older cluster has no such key at all, and runs Slurm.
        orchestrator="eks" if (raw.get("Orchestrator") or {}).get("Eks") else "slurm",
        security_groups=tuple(vpc.get("SecurityGroupIds") or ()),
        subnets=tuple(vpc.get("Subnets") or ()),
    )


def _group(raw: dict[str, Any], vpc: dict[str, Any]) -> Group:
    network = raw.get("OverrideVpcConfig") or vpc
    slurm = raw.get("SlurmConfig") or {}
    role = {"Controller": CONTROLLER, "Login": LOGIN, "Compute": WORKER, "Worker": WORKER}
    return Group(
        name=str(raw["InstanceGroupName"]),
        type=str(raw.get("InstanceType") or "").removeprefix("ml."),
        status=raw.get("Status") or "",
        current=raw.get("CurrentCount"),
        target=raw.get("TargetCount"),
        role=role.get(slurm.get("NodeType", ""), ""),
        partitions=tuple(slurm.get("PartitionNames") or ()),
        security_groups=tuple(network.get("SecurityGroupIds") or ()),
        subnets=tuple(network.get("Subnets") or ()),
        scaling=bool((raw.get("ActiveOperations") or {}).get("Scaling")),
        image_status=raw.get("ImageVersionStatus") or "",
        update=raw.get("SoftwareUpdateStatus") or "",
    )


def fetch_instances(aws: Aws, name: str) -> Listing:
    """Raw summaries of every instance, 100 a page: no call for each node is needed."""
    return aws.listed("sagemaker", "ListClusterNodes", "ClusterNodeSummaries", ClusterName=name, MaxResults=100)


def parse_instance(raw: dict[str, Any], cluster: Cluster | None) -> Instance:
    node = str(raw.get("PrivateDnsHostname") or "").split(".")[0]
    match = _NODE_NAME.fullmatch(node)
    status = raw.get("InstanceStatus") or {}
    group = str(raw.get("InstanceGroupName") or "")
    home = cluster.group(group) if cluster else None
    return Instance(
        id=str(raw.get("InstanceId") or raw.get("NodeLogicalId") or ""),
        group=group,
        # Consoles and guides say Failed where the API says Failure.
        status={"Failed": "Failure"}.get(status.get("Status", ""), status.get("Status", "")),
        node=node,
        address=".".join(match.groups()) if match else "",
        type=str(raw.get("InstanceType") or "").removeprefix("ml."),
        message=clean(status.get("Message") or ""),
        launched=seconds(raw.get("LaunchTime")),
        image=raw.get("CurrentImageReleaseVersion") or "",
        image_status=raw.get("ImageVersionStatus") or "",
        role=home.role if home else "",
    )


def seconds(value: Any) -> float | None:
    """Seconds since the epoch of a time as boto3 gives it."""
    return value.timestamp() if isinstance(value, datetime) else None


def _read_instances(source: Source) -> tuple[tuple[Instance, ...], str]:
    """Also where the cluster may not be described; then no group tells their roles."""
    cluster = None if isinstance(source.answer, Unknown) else source.cluster
    listing = fetch_instances(source.aws, cluster.name if cluster else source.name)
    return tuple(parse_instance(raw, cluster) for raw in listing.items), listing.trouble


INSTANCES = Need("instances", lambda source, _: _read_instances(source))
NEEDS = (CLUSTER, INSTANCES)


def collect(view: View) -> Facts:
    (instances, partial), trouble = view.maybe(INSTANCES, ((), ""))
    return Facts(view.get(CLUSTER), instances, view.now, "; ".join(filter(None, (trouble or partial, view.old))))


# judging


def judge(facts: Facts, policy: Policy) -> Iterator[Finding]:
    cluster = facts.cluster
    yield from _judge_cluster(cluster)
    for group in cluster.groups:
        yield from _judge_group(group, cluster)
    for instance in facts.instances:
        yield from _judge_instance(instance, cluster, facts.now)
    yield from _judge_images(facts.instances)
    if facts.trouble:
        raise Unknown(facts.trouble)


def _judge_cluster(cluster: Cluster) -> Iterator[Finding]:
    describe = Suggestion(LOOK, "see status and failure message", f"aws sagemaker describe-cluster {named(cluster)}")
    if cluster.orchestrator == "eks":
        yield EKS.found("this cluster is orchestrated by EKS; hpslurm looks at Slurm clusters", subject=cluster.name)
    if cluster.status in ("Failed", "Deleting"):
        yield CLUSTER_DOWN.found(
            f"cluster status {cluster.status}, InService wanted" + _meaning(cluster.failure),
            evidence=[Evidence("DescribeCluster", f"{cluster.status}: {cluster.failure or 'no failure message'}")],
            suggest=[describe, *_remedy(cluster.failure)],
            subject=cluster.name,
        )
    elif cluster.status != "InService":
        yield CLUSTER_CHANGING.found(
            f"cluster status {cluster.status}: instances may be missing until it is InService",
            evidence=[Evidence("DescribeCluster", f"ClusterStatus {cluster.status}")],
            suggest=[describe],
            subject=cluster.name,
        )
    if cluster.recovery == "None":
        yield RECOVERY_OFF.found(
            "NodeRecovery is None, Automatic wanted: HyperPod will act on no Action:Reboot and no Action:Replace",
            evidence=[Evidence("DescribeCluster", "NodeRecovery None")],
            suggest=[
                Suggestion(LOOK, "see the setting", f"aws sagemaker describe-cluster {named(cluster)}"),
                Suggestion(
                    CONFIGURE,
                    "turn recovery on, or accept that nobody acts on a reason string",
                    f"aws sagemaker update-cluster {named(cluster)} --node-recovery Automatic",
                ),
            ],
            subject=cluster.name,
        )


def _judge_group(group: Group, cluster: Cluster) -> Iterator[Finding]:
    seen = Evidence(
        "DescribeCluster", f"group {group.name}: {group.status}, {group.current} of {group.target} {group.type}"
    )
    look = Suggestion(
        LOOK, "see the group's instances", f"aws sagemaker list-cluster-nodes {named(cluster)} "
        f"--instance-group-name-contains {shlex.quote(group.name)}"
    )  # fmt: skip
    if group.status in ("Failed", "Degraded"):
        yield GROUP_FAILED.found(
            f"instance group status {group.status}, InService wanted",
            evidence=[seen],
            suggest=[look],
            subject=group.name,
        )
    if group.short:
        moving = group.scaling or group.status in ("Creating", "Updating", "SystemUpdating")
        rule = SCALING if moving else SHORT
        yield rule.found(
            f"{group.current} of {group.target} {group.type} instances are there"
            + (", scaling is under way" if moving else ", and no scaling is under way"),
            evidence=[seen],
            suggest=[
                look,
                Suggestion(
                    CONFIGURE,
                    "without capacity a retry does not help: compare the zone of the group's subnet with the zone of "
                    "your capacity or training plan",
                ),
            ],
            subject=group.name,
        )
    if group.update in ("Failed", "RollbackInProgress", "RollbackComplete"):
        yield UPDATE_FAILED.found(
            f"SoftwareUpdateStatus {group.update}: the group runs its old image, whatever the lifecycle log says last",
            evidence=[Evidence("DescribeCluster", f"group {group.name}: SoftwareUpdateStatus {group.update}")],
            suggest=[look, Suggestion(LOOK, "read the LifecycleConfig streams of the group's instances")],
            subject=group.name,
        )
    elif group.update in ("Pending", "InProgress"):
        yield UPDATING.found(
            f"SoftwareUpdateStatus {group.update}: wait; it takes 30 to 60 minutes and rewrites the root volumes",
            evidence=[Evidence("DescribeCluster", f"group {group.name}: SoftwareUpdateStatus {group.update}")],
            subject=group.name,
        )
    if group.image_status in ("EndOfLife", "SecurityUpdateRequired"):
        yield IMAGE_OLD.found(
            f"ImageVersionStatus {group.image_status}, UpToDate wanted",
            evidence=[Evidence("DescribeCluster", f"group {group.name}: ImageVersionStatus {group.image_status}")],
            suggest=[
                Suggestion(
                    CONFIGURE,
                    "plan an update: it re-runs the lifecycle scripts and wipes the root volumes",
                    f"aws sagemaker update-cluster-software {named(cluster)}",
                )
            ],
            subject=group.name,
        )


def _judge_instance(instance: Instance, cluster: Cluster, now: float) -> Iterator[Finding]:
    minutes = None if instance.launched is None else max(0, int((now - instance.launched) / 60))
    age = "" if minutes is None else f", launched {span(minutes)} ago"
    seen = Evidence(
        "ListClusterNodes",
        f"{instance.id} of {instance.group}: {instance.status}"
        + (f": {instance.message}" if instance.message and instance.status != "Running" else ""),
    )
    look = Suggestion(
        LOOK, "see what HyperPod says about it", f"aws sagemaker describe-cluster-node {named(cluster)} "
        f"--node-id {shlex.quote(instance.id)}"
    )  # fmt: skip
    if instance.status == "Failure":
        stuck = minutes is not None and minutes > STUCK_MINUTES
        after = "no new attempt for so long: it is stuck" if stuck else "HyperPod may try again by itself"
        yield FAILED.found(
            f"{instance.id} has status Failure{age}; {after}" + _meaning(instance.message),
            evidence=[seen],
            suggest=[look, *_remedy(instance.message)],
            subject=instance.subject,
        )
    elif instance.status == "NotFound":
        yield GONE.found(
            f"{instance.id} has status NotFound: Slurm's node is left over, or waits for a replacement",
            evidence=[seen],
            suggest=[look],
            subject=instance.subject,
        )
    elif instance.status in WORKING:
        yield CHANGING.found(
            f"{instance.id} has status {instance.status}: {WORKING[instance.status]}{age}; wait",
            evidence=[seen],
            suggest=[look],
            subject=instance.subject,
        )


def _judge_images(instances: tuple[Instance, ...]) -> Iterator[Finding]:
    groups: dict[str, Counter[str]] = {}
    for instance in instances:
        if instance.image and instance.status == "Running":
            groups.setdefault(instance.group, Counter())[instance.image] += 1
    for group, versions in groups.items():
        usual = max(versions, key=lambda version: (versions[version], version))
        for instance in instances:
            odd = instance.group == group and instance.status == "Running" and instance.image not in ("", usual)
            if odd:
                yield IMAGES.found(
                    f"image {instance.image}, while {versions[usual]} instances of {group} run {usual}: "
                    "driver, CUDA and NCCL can differ",
                    evidence=[Evidence("ListClusterNodes", f"{instance.id}: image release {instance.image}")],
                    suggest=[
                        Suggestion(
                            LOOK,
                            "compare the versions that jobs use",
                            "clush -b -w {nodes} cat /sys/module/nvidia/version /opt/amazon/efa_installed_packages",
                        )
                    ],
                    subject=instance.subject,
                )


def named(cluster: Cluster) -> str:
    """The options by which the AWS command line finds the cluster."""
    match = CLUSTER_ARN.fullmatch(cluster.arn)
    region = f" --region {match['region']}" if match else ""
    return f"--cluster-name {shlex.quote(cluster.name)}{region}"


def _meaning(text: str) -> str:
    failure = failure_of(text)
    return f"; {failure.meaning}" if failure else ""


def _remedy(text: str) -> list[Suggestion]:
    failure = failure_of(text)
    return [Suggestion(CONFIGURE, failure.remedy)] if failure else []


def span(minutes: float) -> str:
    """A time in the unit a person would use."""
    if minutes < 120:
        return f"{int(minutes)} minutes"
    return f"{int(minutes / 60)} hours" if minutes < 48 * 60 else f"{int(minutes / 1440)} days"
