from __future__ import annotations

import pytest

from hpslurm.cluster import failures
from hpslurm.cluster.aws import capacity, hyperpod
from hpslurm.cluster.aws import instances as judge_instances
from hpslurm.cluster.aws.events import ClusterEvent
from hpslurm.cluster.aws.hyperpod import Facts
from hpslurm.cluster.model import LOGIN, WORKER, Cluster, Group, Instance
from hpslurm.core.policy import Policy
from hpslurm.core.probe import Unknown
from hpslurm.core.values import replace

NOW = 1_000_000.0
WORKERS = Group("worker-group-1", "p5.48xlarge", "InService", 4, 4, WORKER, ("gpu",))
ARN = "arn:aws:sagemaker:us-west-2:123456789012:cluster/abcdefghijkl"
HEALTHY = Cluster(ARN, "abcdefghijkl", "demo", "InService", (WORKERS,), recovery="Automatic")
ONE = Instance(
    "i-0123456789abcdef0", "worker-group-1", "Running", "ip-10-1-0-1", "10.1.0.1", launched=NOW - 86400, image="1.4.0"
)


def findings(cluster=HEALTHY, instances=(ONE,), events=()):
    """Of the cluster and its groups, of its instances, and of its capacity."""
    return [
        *hyperpod.judge(Facts(cluster, tuple(instances), NOW), Policy()),
        *judge_instances.judge(judge_instances.Facts(cluster, tuple(instances), NOW, tuple(events)), Policy()),
        *capacity.judge(capacity.Facts(cluster, NOW, tuple(events)), Policy()),
    ]


def ids(*args, **kwargs):
    return [(finding.rule.id, finding.subject) for finding in findings(*args, **kwargs)]


def with_group(**changes):
    return replace(HEALTHY, groups=(replace(WORKERS, **changes),))


def test_a_healthy_cluster_has_no_findings():
    assert [] == ids()


@pytest.mark.parametrize("status", ["Failed", "Deleting"])
def test_a_cluster_that_cannot_be_used_blocks_training(status):
    assert [("hyperpod-cluster-failed", "demo")] == ids(replace(HEALTHY, status=status))


@pytest.mark.parametrize("status", ["Creating", "Updating", "SystemUpdating", "RollingBack"])
def test_a_cluster_that_is_being_changed_is_worth_a_line(status):
    assert [("hyperpod-cluster-changing", "demo")] == ids(replace(HEALTHY, status=status))


def test_the_failure_message_of_a_cluster_is_explained():
    text = "We currently do not have sufficient capacity in the Availability Zone you requested"
    found = findings(replace(HEALTHY, status="Failed", failure=text))[0]
    assert found.detail.endswith("the subnet's zone does not hold the capacity")
    assert any("zone of the reserved capacity" in step.why for step in found.suggestions)


def test_recovery_off_is_said_because_actions_then_have_no_effect():
    assert [("hyperpod-recovery-off", "demo")] == ids(replace(HEALTHY, recovery="None"))
    assert [] == ids(replace(HEALTHY, recovery=""))


def test_a_group_short_of_instances_lacks_capacity():
    assert [("hyperpod-capacity", "worker-group-1")] == ids(with_group(current=3))
    assert "3 of 4 p5.48xlarge instances are there" in findings(with_group(current=3))[0].detail


def test_a_group_short_of_instances_while_it_scales_only_needs_time():
    assert [("hyperpod-scaling", "worker-group-1")] == ids(with_group(current=3, scaling=True))
    updating = with_group(current=3, status="Updating")
    assert [("hyperpod-group-changing", "worker-group-1"), ("hyperpod-scaling", "worker-group-1")] == ids(updating)


def test_more_instances_than_wanted_are_no_lack_of_capacity():
    assert [] == ids(with_group(current=5))


@pytest.mark.parametrize("status", ["Failed", "Degraded"])
def test_a_failed_group_is_found(status):
    assert [("hyperpod-group-failed", "worker-group-1")] == ids(with_group(status=status))


@pytest.mark.parametrize("update", ["Failed", "RollbackInProgress", "RollbackComplete"])
def test_an_update_that_failed_is_told_by_its_own_status(update):
    assert [("hyperpod-update-failed", "worker-group-1")] == ids(with_group(update=update))


@pytest.mark.parametrize("update", ["Pending", "InProgress"])
def test_an_update_under_way_asks_to_wait(update):
    assert [("hyperpod-updating", "worker-group-1")] == ids(with_group(update=update))
    assert [] == ids(with_group(update="Succeeded"))


@pytest.mark.parametrize("status", ["EndOfLife", "SecurityUpdateRequired"])
def test_an_old_image_is_worth_a_line(status):
    assert [("hyperpod-image-old", "worker-group-1")] == ids(with_group(image_status=status))
    assert [] == ids(with_group(image_status="UpdateAvailable"))


FAILED = replace(ONE, status="Failure", launched=NOW - 10 * 86400)


def failed(minutes):
    """The history's word on an instance that failed so many minutes ago."""
    text = f"Failed to provision EC2 Instance {ONE.id} in Cluster demo and IG worker-group-1"
    return ClusterEvent("1", NOW - minutes * 60, text, "Error", "worker-group-1", ONE.id)


def test_when_an_instance_failed_is_not_reckoned_from_its_launch():
    (found,) = findings(instances=[FAILED])
    assert "launched 10 days ago, when it failed is not reported: HyperPod may try again" in found.detail
    assert "look again in 30 minutes" in found.detail


def test_the_history_says_when_it_failed_and_how_long_to_wait():
    (found,) = findings(instances=[FAILED], events=[failed(30)])
    assert "last attempt 30 minutes ago: HyperPod may try again by itself; wait 60 minutes more" in found.detail
    assert any("Failed to provision" in item.text for item in found.evidence)


def test_ninety_minutes_after_the_last_attempt_the_case_is_for_support():
    assert "wait 0 minutes more" in findings(instances=[FAILED], events=[failed(90)])[0].detail
    (found,) = findings(instances=[FAILED], events=[failed(92)])
    assert "last attempt 92 minutes ago, none since: open a case with AWS Support" in found.detail


def test_an_attempt_that_does_not_end_is_more_than_a_change():
    for minutes, rule in ((90, "hyperpod-instance-changing"), (91, "hyperpod-instance-slow")):
        coming = replace(ONE, status="Pending", launched=NOW - minutes * 60)
        assert [(rule, "ip-10-1-0-1")] == ids(instances=[coming])


def test_a_message_on_a_running_instance_is_old_and_no_finding():
    assert [] == ids(instances=[replace(ONE, message="Lifecycle scripts did not run successfully")])


def test_the_message_of_a_failed_instance_is_explained():
    found = findings(instances=[replace(ONE, status="Failure", message="EFA health checks did not run successfully")])
    assert "a security group lacks the rule to itself" in found[0].detail


@pytest.mark.parametrize("status", sorted(hyperpod.WORKING))
def test_an_instance_that_hyperpod_works_on_asks_to_wait(status):
    one = replace(ONE, status=status, launched=NOW - 1200)
    assert [("hyperpod-instance-changing", "ip-10-1-0-1")] == ids(instances=[one])


def test_an_instance_that_is_gone_is_found():
    assert [("hyperpod-instance-gone", "ip-10-1-0-1")] == ids(instances=[replace(ONE, status="NotFound")])


def test_the_instance_with_the_rarer_image_is_the_odd_one():
    others = [replace(ONE, id=f"i-{n:08x}", node=f"ip-10-1-0-{n}") for n in range(2, 5)]
    odd = replace(ONE, image="1.3.0")
    assert [("hyperpod-image-differs", "ip-10-1-0-1")] == ids(instances=[odd, *others])
    assert [] == ids(instances=[replace(odd, group="controller-machine"), *others])


def test_an_eks_cluster_is_named_as_such():
    assert [("hyperpod-eks", "demo")] == ids(replace(HEALTHY, orchestrator="eks"))


def test_a_list_that_was_cut_is_judged_and_said_to_be_cut():
    found = []
    with pytest.raises(Unknown, match="only 100 read"):
        gone = (replace(ONE, status="NotFound"),)
        for finding in judge_instances.judge(
            judge_instances.Facts(HEALTHY, gone, NOW, trouble="only 100 read"), Policy()
        ):
            found.append(finding.rule.id)
    assert ["hyperpod-instance-gone"] == found


def test_an_absent_orchestrator_means_slurm_and_an_override_replaces_the_network():
    raw = {
        "ClusterArn": ARN,
        "ClusterName": "demo",
        "ClusterStatus": "InService",
        "VpcConfig": {"SecurityGroupIds": ["sg-1"], "Subnets": ["subnet-1"]},
        "InstanceGroups": [
            {"InstanceGroupName": "a", "InstanceType": "ml.p5.48xlarge", "CurrentCount": 1, "TargetCount": 1},
            {
                "InstanceGroupName": "b",
                "InstanceType": "ml.p5.48xlarge",
                "OverrideVpcConfig": {"SecurityGroupIds": ["sg-2"], "Subnets": ["subnet-2"]},
                "SlurmConfig": {"NodeType": "Worker", "PartitionNames": ["gpu"]},
            },
        ],
    }
    cluster = hyperpod.parse_cluster(raw)
    assert ("slurm", "abcdefghijkl") == (cluster.orchestrator, cluster.id)
    assert [("sg-1",), ("sg-2",)] == [group.security_groups for group in cluster.groups]
    assert [("", ()), (WORKER, ("gpu",))] == [(group.role, group.partitions) for group in cluster.groups]
    assert "eks" == hyperpod.parse_cluster(raw | {"Orchestrator": {"Eks": {"ClusterArn": "x"}}}).orchestrator
    assert "slurm" == hyperpod.parse_cluster(raw | {"Orchestrator": {"Slurm": {}}}).orchestrator


def test_the_node_name_is_the_first_label_of_the_host_name():
    raw = {"InstanceGroupName": "a", "InstanceId": "i-1", "InstanceStatus": {"Status": "Failed"}}
    instance = hyperpod.parse_instance(raw | {"PrivateDnsHostname": "ip-10-1-2-3.us-west-2.compute.internal"}, None)
    assert ("ip-10-1-2-3", "10.1.2.3", "Failure") == (instance.node, instance.address, instance.status)
    assert "i-1" == hyperpod.parse_instance(raw, None).subject


def test_a_type_without_figures_is_not_taken_for_one_without_efa():
    assert replace(WORKERS, type="p9.48xlarge").trains
    assert not replace(WORKERS, type="m7i.48xlarge").trains
    assert not replace(WORKERS, role=LOGIN).trains


@pytest.mark.parametrize("row", failures.table(), ids=lambda row: row.id)
def test_every_failure_text_is_recognised_by_its_own_row(row):
    assert row == failures.failure_of(row.example)
    assert row.retry in ("yes", "no", "maybe")


def test_an_unknown_failure_text_gets_no_cause():
    assert failures.failure_of("everything is fine") is None
