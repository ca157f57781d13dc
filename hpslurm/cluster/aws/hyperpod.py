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

from hpslurm.cluster import holders
from hpslurm.cluster.aws.view import CLUSTER, Need, Source, View
from hpslurm.cluster.failures import failure_of
from hpslurm.cluster.model import CHANGING, CONTROLLER, LOGIN, SPECIAL, WORKER, Cluster, Group, Instance, Patching
from hpslurm.cluster.model import UPDATING as UNDER_UPDATE
from hpslurm.core.finding import CONFIGURE, LOOK, P0, P1, P2, Evidence, Finding, Rule, Suggestion
from hpslurm.core.policy import Policy
from hpslurm.core.probe import Unknown
from hpslurm.core.text import clean
from hpslurm.core.values import dataclass
from hpslurm.sources.aws import CLUSTER_ARN, Aws, Listing
from hpslurm.sources.aws_errors import Unsupported

SECTION = "operations.md § 6"
CLUSTER_DOWN = Rule("hyperpod-cluster-failed", P0, "HyperPod cluster failed or is being deleted", SECTION)
CLUSTER_CHANGING = Rule("hyperpod-cluster-changing", P2, "HyperPod is changing the cluster", SECTION)
GROUP_FAILED = Rule("hyperpod-group-failed", P1, "Instance group failed or degraded", SECTION)
GROUP_ENDING = Rule("hyperpod-group-deleting", P1, "Instance group is being deleted", SECTION)
GROUP_CHANGING = Rule("hyperpod-group-changing", P2, "HyperPod is changing an instance group", SECTION)
RECOVERY_OFF = Rule("hyperpod-recovery-off", P2, "Automatic node recovery is off", SECTION)
UPDATE_FAILED = Rule("hyperpod-update-failed", P1, "Software update failed or was rolled back", SECTION)
UPDATING = Rule("hyperpod-updating", P2, "Software update is under way", SECTION)
IMAGES = Rule("hyperpod-image-differs", P1, "Instances of one group run different images", SECTION)
IMAGE_OLD = Rule("hyperpod-image-old", P2, "Image is at its end of life or lacks security updates", SECTION)
EKS = Rule("hyperpod-eks", P2, "Not a Slurm cluster", SECTION)
STRANGE = Rule("hyperpod-status-unknown", P1, "HyperPod reports a status that hpslurm does not know", SECTION)
NEW_VALUE = Rule("hyperpod-value-unknown", P2, "HyperPod reports a setting that hpslurm does not know", SECTION)

STUCK_MINUTES = 90  # HyperPod may retry; without a new attempt for this long it has stopped
IDLE_WAIT_SECONDS = 86400  # the API's default of AutoPatchConfig.IdleWaitWindowInSeconds
PLAN_OVER = ("Expired", "Failed")  # status of a training plan that gives no instances any more
# status of an instance: what is going on, and how long it takes, in words
WORKING = {
    "Pending": "being provisioned, or the new half of a replacement; 20 to 30 minutes as a rule",
    "ShuttingDown": "being ended: scale-in or replacement",
    "SystemUpdating": "software update or replacement; 30 to 60 minutes as a rule",
    "DeepHealthCheckInProgress": "isolated for a deep health check, for one to two hours",
    "DetachInProgress": "being moved; its volumes are wiped on the way",
    "AttachInProgress": "being moved; its volumes are wiped on the way",
}
# Every value that the API has, as botocore's model names them; a test compares. All others are shown as they come.
CLUSTER_STATUS = ("InService", "Failed", "Deleting", "Creating", "Updating", "SystemUpdating", "RollingBack")
GROUP_STATUS = ("InService", "Failed", "Degraded", "Deleting", *CHANGING)
UPDATE_STATUS = ("Succeeded", "Failed", "RollbackComplete", *UNDER_UPDATE)
IMAGE_STATUS = ("UpToDate", "UpdateAvailable", "SecurityUpdateRequired", "EndOfLife")
RECOVERY = ("Automatic", "None")
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
        updated=raw.get("TargetStateCount"),
        plan=clean(str(raw.get("TrainingPlanArn") or "").rpartition("/")[2], 80),
        plan_status=clean(raw.get("TrainingPlanStatus") or "", 80),
        spot="Spot" in (raw.get("CapacityRequirements") or {}),
        patching=_patching(raw.get("AutoPatchConfig") or {}),
    )


def _patching(raw: dict[str, Any]) -> Patching | None:
    if not raw:
        return None
    schedule = raw.get("CurrentPatchSchedule") or {}
    return Patching(
        strategy=raw.get("PatchingStrategy") or "",
        begins=seconds(schedule.get("NextPatchDate")),
        waits=float(raw.get("IdleWaitWindowInSeconds") or IDLE_WAIT_SECONDS),
    )


def fetch_instances(aws: Aws, name: str, continuous: bool) -> Listing:
    """Raw summaries of every instance, 100 a page: no call for each node is needed.

    Of continuous provisioning those that it has asked for and not got yet are in it, without an id.
    """
    asked: dict[str, Any] = {"ClusterName": name, "MaxResults": 100}
    if continuous and aws.knows("sagemaker", "ListClusterNodes", "IncludeNodeLogicalIds"):
        try:
            return aws.listed(*_NODES, **asked, IncludeNodeLogicalIds=True)
        except Unsupported:
            pass  # then without them
    return aws.listed(*_NODES, **asked)


_NODES = ("sagemaker", "ListClusterNodes", "ClusterNodeSummaries")


def parse_instance(raw: dict[str, Any], cluster: Cluster | None) -> Instance:
    """An instance as ListClusterNodes lists it; the name of a node tells its address.

    >>> instance = parse_instance({"InstanceId": "i-0123456789abcdef0", "InstanceGroupName": "workers",
    ...     "InstanceStatus": {"Status": "Failed"}, "PrivateDnsHostname": "ip-10-1-0-3.ec2.internal"}, None)
    >>> instance.node, instance.address, instance.status
    ('ip-10-1-0-3', '10.1.0.3', 'Failure')
    """
    node = str(raw.get("PrivateDnsHostname") or "").split(".")[0]
    match = _NODE_NAME.fullmatch(node)
    status = raw.get("InstanceStatus") or {}
    group = str(raw.get("InstanceGroupName") or "")
    home = cluster.group(group) if cluster else None
    logical = str(raw.get("NodeLogicalId") or "")
    return Instance(
        id=str(raw.get("InstanceId") or logical),
        logical=logical,
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
    listing = fetch_instances(
        source.aws, cluster.name if cluster else source.name, cluster is not None and cluster.continuous
    )
    trouble = listing.trouble
    if cluster and listing.trouble:
        trouble = trouble.replace(" read", f" read of {cluster.counted}", 1)
    if cluster and not listing.items and cluster.counted:
        trouble = trouble or (
            f"ListClusterNodes lists none of the {cluster.counted} instances that DescribeCluster counts: none is "
            "taken to be missing; run again in a few minutes"
        )
    return holders.held(parse_instance(raw, cluster) for raw in listing.items), trouble


INSTANCES = Need("instances", lambda source, _: _read_instances(source))
NEEDS = (CLUSTER, INSTANCES)


def collect(view: View) -> Facts:
    """What became of the list of instances is told by the check that judges them."""
    (instances, _), _ = view.maybe(INSTANCES, ((), ""))
    return Facts(view.get(CLUSTER), instances, view.now, view.old)


# judging


def judge(facts: Facts, policy: Policy) -> Iterator[Finding]:
    cluster = facts.cluster
    yield from _judge_cluster(cluster)
    for group in cluster.groups:
        yield from _judge_group(group, cluster)
        yield from _judge_update(group, cluster)
    yield from _judge_images(facts.instances, cluster)
    if facts.trouble:
        raise Unknown(facts.trouble)


def _judge_cluster(cluster: Cluster) -> Iterator[Finding]:
    describe = Suggestion(LOOK, "see status and failure message", f"aws sagemaker describe-cluster {named(cluster)}")
    if cluster.orchestrator == "eks":
        yield EKS.found("this cluster is orchestrated by EKS; hpslurm looks at Slurm clusters", subject=cluster.name)
    if cluster.status in ("Failed", "Deleting"):
        yield CLUSTER_DOWN.found(
            f"cluster status {cluster.status}, expected InService" + meaning(cluster.failure),
            evidence=[Evidence("DescribeCluster", f"{cluster.status}: {cluster.failure or 'no failure message'}")],
            suggest=[describe, *remedy(cluster.failure)],
            subject=cluster.name,
        )
    elif cluster.status not in CLUSTER_STATUS:
        yield strange("cluster", cluster.status, "DescribeCluster", cluster.name, describe)
    elif cluster.status != "InService":
        yield CLUSTER_CHANGING.found(
            f"cluster status {cluster.status}: instances may be missing until it is InService"
            + (f"; {cluster.failure}" if cluster.failure else ""),
            evidence=[Evidence("DescribeCluster", f"ClusterStatus {cluster.status}")],
            suggest=[describe],
            subject=cluster.name,
        )
    if cluster.recovery and cluster.recovery not in RECOVERY:
        yield NEW_VALUE.found(f"NodeRecovery {clean(cluster.recovery, 40)!r}", suggest=[describe], subject=cluster.name)
    if cluster.recovery == "None":
        yield RECOVERY_OFF.found(
            "NodeRecovery is None, expected Automatic: HyperPod will act on no Action:Reboot and no Action:Replace",
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
    seen = [group_evidence(group)]
    look = look_at_group(group, cluster)
    about = about_role(group.role)
    if group.status in ("Failed", "Degraded"):
        yield GROUP_FAILED.found(
            f"{about}instance group status {group.status}, expected InService",
            evidence=seen,
            suggest=[look],
            subject=group.name,
        )
    elif group.status == "Deleting":
        yield GROUP_ENDING.found(
            f"{about}instance group status Deleting: its nodes go away, and jobs on them die",
            evidence=seen,
            suggest=[look],
            subject=group.name,
        )
    elif group.status in CHANGING:
        yield GROUP_CHANGING.found(
            f"{about}instance group status {group.status}: instances may come and go until it is InService",
            evidence=seen,
            suggest=[look],
            subject=group.name,
        )
    elif group.status and group.status not in GROUP_STATUS:
        yield strange("instance group", group.status, "DescribeCluster", group.name, look)
    if group.image_status and group.image_status not in IMAGE_STATUS:
        yield NEW_VALUE.found(
            f"ImageVersionStatus {clean(group.image_status, 40)!r}", suggest=[look], subject=group.name
        )
    if group.image_status in ("EndOfLife", "SecurityUpdateRequired"):
        yield IMAGE_OLD.found(
            f"{about}ImageVersionStatus {group.image_status}, expected UpToDate",
            evidence=[Evidence("DescribeCluster", f"group {group.name}: ImageVersionStatus {group.image_status}")],
            suggest=[_update(group, cluster)],
            subject=group.name,
        )


def _update(group: Group, cluster: Cluster) -> Suggestion:
    """Of this group alone; of controllers and login nodes in words only: their root volumes are wiped as well."""
    if group.role in SPECIAL:
        words = "an update wipes the root volume: plan it with AWS's guide, when no job runs, and save what is on it"
        return Suggestion(CONFIGURE, words)
    only = shlex.quote(f'[{{"InstanceGroupName":"{group.name}"}}]')
    return Suggestion(
        CONFIGURE,
        "plan an update of this group, when no job runs: it re-runs the lifecycle scripts and wipes the root volumes",
        f"aws sagemaker update-cluster-software {named(cluster)} --instance-groups {only}",
    )


def _judge_update(group: Group, cluster: Cluster) -> Iterator[Finding]:
    seen = [Evidence("DescribeCluster", f"group {group.name}: SoftwareUpdateStatus {group.update}")]
    look = look_at_group(group, cluster)
    if group.update in ("Pending", "InProgress"):
        reached = "" if group.updated is None else f"; {group.updated} of {group.current} instances have it"
        yield UPDATING.found(
            f"SoftwareUpdateStatus {group.update}{reached}: wait, 30 to 60 minutes for each batch; it rewrites the "
            "root volumes, and until its end the images differ",
            evidence=seen,
            subject=group.name,
        )
    elif group.update in ("Failed", "RollbackInProgress", "RollbackComplete") or "fail" in group.update.lower():
        yield UPDATE_FAILED.found(
            f"SoftwareUpdateStatus {clean(group.update, 40)}: the group runs its old image, at least in part, whatever "
            "the lifecycle log says last",
            evidence=seen,
            suggest=[look, Suggestion(LOOK, "read the LifecycleConfig streams of the group's instances")],
            subject=group.name,
        )
    elif group.update and group.update not in UPDATE_STATUS:
        yield strange("software update", group.update, "DescribeCluster", group.name, look)


def strange(what: str, status: str, source: str, subject: str, look: Suggestion) -> Finding:
    """A status that no table has: shown as it came, and taken for trouble until somebody has looked."""
    status = clean(status, 60) or "none at all"
    return STRANGE.found(
        f"{what} status {status}: hpslurm does not know it; read what AWS says of it before anything is changed",
        evidence=[Evidence(source, f"status {status}")],
        suggest=[look],
        subject=subject,
    )


def _judge_images(instances: tuple[Instance, ...], cluster: Cluster) -> Iterator[Finding]:
    """Of groups that no update is under way in: there the difference is what was ordered."""
    groups: dict[str, Counter[str]] = {}
    for instance in instances:
        home = cluster.group(instance.group)
        quiet = cluster.status != "SystemUpdating" and not (home and home.changing)
        if instance.image and instance.status == "Running" and quiet:
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


def group_evidence(group: Group) -> Evidence:
    return Evidence(
        "DescribeCluster", f"group {group.name}: {group.status}, {group.current} of {group.target} {group.type}"
    )


def look_at_group(group: Group, cluster: Cluster) -> Suggestion:
    return Suggestion(
        LOOK, "see the group's instances", f"aws sagemaker list-cluster-nodes {named(cluster)} "
        f"--instance-group-name-contains {shlex.quote(group.name)}"
    )  # fmt: skip


def about_role(role: str) -> str:
    """Who it is, before what is the matter with it: an on-call reads the first words."""
    return {CONTROLLER: "this is the controller: ", LOGIN: "this is a login node: "}.get(role, "")


def named(cluster: Cluster) -> str:
    """The options by which the AWS command line finds the cluster."""
    match = CLUSTER_ARN.fullmatch(cluster.arn)
    region = f" --region {match['region']}" if match else ""
    return f"--cluster-name {shlex.quote(cluster.name)}{region}"


def meaning(text: str) -> str:
    failure = failure_of(text)
    return f"; {failure.meaning}" if failure else ""


def remedy(text: str) -> list[Suggestion]:
    failure = failure_of(text)
    return [Suggestion(CONFIGURE, failure.remedy)] if failure else []


def span(minutes: float) -> str:
    """A time in the unit a person would use.

    >>> span(119), span(120), span(48 * 60)
    ('119 minutes', '2 hours', '2 days')
    """
    if minutes < 120:
        return f"{int(minutes)} minutes"
    return f"{int(minutes / 60)} hours" if minutes < 48 * 60 else f"{int(minutes / 1440)} days"


def ago(now: float, time: float) -> str:
    """How long ago that was; a clock that is ahead makes no time negative."""
    minutes = (now - time) / 60
    if minutes < -1:
        return f"just now (its clock, or this one, is wrong by {span(-minutes)})"
    return f"{span(max(0.0, minutes))} ago"
