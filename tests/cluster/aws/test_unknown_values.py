"""What AWS may say tomorrow is shown as it comes: unknown is never taken for fine, and never acted on."""

from __future__ import annotations

import botocore.session
import pytest

from hpslurm.cluster.aws import events, hyperpod, instances, operations, patching
from hpslurm.cluster.aws.events import LEVELS
from tests.cluster.aws.looking import WORKERS, World, look

MODEL = botocore.session.get_session().get_service_model("sagemaker")


def words(shape: str) -> set[str]:
    return set(MODEL.shape_for(shape).enum)


@pytest.mark.parametrize(
    ("shape", "known"),
    [
        ("ClusterStatus", hyperpod.CLUSTER_STATUS),
        ("InstanceGroupStatus", hyperpod.GROUP_STATUS),
        ("ClusterInstanceStatus", instances.KNOWN),
        ("SoftwareUpdateStatus", hyperpod.UPDATE_STATUS),
        ("ClusterImageVersionStatus", hyperpod.IMAGE_STATUS),
        ("ClusterNodeRecovery", hyperpod.RECOVERY),
        ("ClusterEventLevel", LEVELS),
        ("ClusterEventResourceType", ("Cluster", "InstanceGroup", "Instance")),
        ("ClusterNodeProvisioningMode", ("Continuous",)),
        ("ClusterSlurmNodeType", ("Controller", "Login", "Compute")),
        ("ClusterCapacityType", ("Spot", "OnDemand")),
        ("SlurmHealthStatus", ("Healthy", "Unhealthy")),
        ("ClusterOperationType", operations.TYPES),
        ("ClusterOperationStatus", operations.STATUS),
        ("ClusterPatchingStrategy", patching.STRATEGIES),
        ("TrainingPlanStatus", ("Pending", "Active", "Scheduled", "Expired", "Failed")),
    ],
)
def test_every_value_of_the_apis_model_is_known_here(shape, known):
    """Fails when boto3 is upgraded and AWS has a new value: then decide what it means, and add it to the table."""
    assert set(known) == words(shape)


# What we read of each answer, or know and do not need. A new field is worth a look: it may be what was missing.
FIELDS = {
    "ClusterEventSummary": "EventId ClusterArn ClusterName InstanceGroupName InstanceId ResourceType EventTime "
    "Description EventLevel OperationId",
    "EventMetadata": "Cluster InstanceGroup InstanceGroupScaling Instance DatabaseConfiguration SlurmHealth",
    "InstanceMetadata": "CustomerEni AdditionalEnis InstanceRequirementsEniConfigurations CapacityReservation "
    "FailureMessage LcsExecutionState NodeLogicalId",
    "InstanceGroupMetadata": "FailureMessage AvailabilityZoneId CapacityReservation SubnetId SecurityGroupIds "
    "AmiOverride",
    "SlurmHealthMetadata": "Component Status Reason",
    "DatabaseConfigurationMetadata": "RollbackStatus Advisory FailureMessage",
    "ClusterNodeSummary": "InstanceGroupName InstanceId NodeLogicalId InstanceType LaunchTime LastSoftwareUpdateTime "
    "InstanceStatus UltraServerInfo PrivateDnsHostname CurrentImageReleaseVersion ImageVersionStatus",
    "ClusterInstanceStatusDetails": "Status Message",
    "ClusterInstanceGroupDetails": "CurrentCount TargetCount MinCount InstanceGroupName InstanceType "
    "InstanceRequirements InstanceTypeDetails LifeCycleConfig ExecutionRole ThreadsPerCore InstanceStorageConfigs "
    "OnStartDeepHealthChecks Status TrainingPlanArn TrainingPlanStatus OverrideVpcConfig ScheduledUpdateConfig "
    "AutoPatchConfig CurrentImageId DesiredImageId CurrentImageReleaseVersion DesiredImageReleaseVersion "
    "ImageVersionStatus ActiveOperations KubernetesConfig CapacityRequirements TargetStateCount SoftwareUpdateStatus "
    "ActiveSoftwareUpdateConfig SlurmConfig NetworkInterface",
    "DescribeClusterResponse": "ClusterArn ClusterName ClusterStatus CreationTime FailureMessage InstanceGroups "
    "RestrictedInstanceGroups RestrictedInstanceGroupsConfig VpcConfig Orchestrator TieredStorageConfig NodeRecovery "
    "NodeProvisioningMode ClusterRole AutoScaling",
    "ClusterOrchestrator": "Eks Slurm",
    "ClusterOperationSummary": "OperationId ClusterArn Type Status CreationTime",
    "ClusterAutoPatchConfigDetails": "PatchingStrategy CurrentPatchSchedule DesiredPatchSchedule DeploymentConfig "
    "IdleWaitWindowInSeconds DrainPolicy",
}


@pytest.mark.parametrize("shape", FIELDS)
def test_every_field_of_the_apis_model_has_been_looked_at(shape):
    assert set(FIELDS[shape].split()) == set(MODEL.shape_for(shape).members)


def test_an_instance_status_that_no_table_has_is_shown_and_the_node_left_alone(tmp_path):
    seen = look(tmp_path, World().set(3, status="Quarantined").silent(3))
    assert "instance status Quarantined" in seen.one("hyperpod-status-unknown", "ip-10-1-0-3").detail
    assert [] == seen.changes("ip-10-1-0-3")
    assert "1 Quarantined" in seen.text


def test_an_instance_without_any_status_is_no_running_one(tmp_path):
    assert "status none at all" in look(tmp_path, World().set(3, status="")).text


@pytest.mark.parametrize("status", ["RollbackFailed", "Hibernating"])
def test_group_and_cluster_and_update_are_shown_with_words_that_are_new(tmp_path, status):
    world = World(ClusterStatus=status)
    world.groups[WORKERS].update(Status=status, SoftwareUpdateStatus=status)
    seen = look(tmp_path, world)
    assert f"cluster status {status}" in seen.one("hyperpod-status-unknown", "demo").detail
    told = " ".join(finding.detail for finding in seen.of(WORKERS))
    assert f"instance group status {status}" in told
    assert ("SoftwareUpdateStatus RollbackFailed" in told) == ("Fail" in status)  # that much can be read off the word
    assert 2 == told.count(status)


def test_a_group_that_is_being_deleted_says_what_becomes_of_its_jobs(tmp_path):
    world = World()
    world.groups[WORKERS]["Status"] = "Deleting"
    found = look(tmp_path, world).one("hyperpod-group-deleting", WORKERS)
    assert ("P1", True) == (found.rule.priority, "jobs on them die" in found.detail)


def test_settings_that_are_new_are_for_information(tmp_path):
    world = World(NodeRecovery="Semiautomatic")
    world.groups[WORKERS].update(
        ImageVersionStatus="Withdrawn", TrainingPlanStatus="Paused", TrainingPlanArn="a/plan-1"
    )
    seen = look(tmp_path, world)
    told = {finding.detail for finding in seen.findings if finding.rule.id == "hyperpod-value-unknown"}
    assert {
        "NodeRecovery 'Semiautomatic'",
        "ImageVersionStatus 'Withdrawn'",
        "training plan plan-1 of the group is Paused",
    } == told
    assert {"P2"} == {f.rule.priority for f in seen.findings if f.rule.id == "hyperpod-value-unknown"}


@pytest.mark.parametrize(
    ("level", "rule", "priority"),
    [
        ("Error", "event-other-error", "P1"),
        ("Warn", "event-other-warning", "P2"),
        ("Critical", "event-other-error", "P1"),
    ],
)
def test_an_event_of_a_text_that_no_row_has_counts_by_its_level(tmp_path, level, rule, priority):
    found = look(tmp_path, World().event(9, "Flux capacitor misaligned", level)).one(rule, WORKERS)
    assert (priority, True) == (found.rule.priority, "Flux capacitor misaligned" in found.detail)
    assert ("(Critical)" in found.detail) == (level == "Critical")


def test_an_event_of_a_text_that_no_row_has_is_no_trouble_where_aws_calls_it_info_or_says_nothing(tmp_path):
    world = World().event(9, "Flux capacitor aligned", "Info").event(8, "Flux capacitor seen", None)
    assert not [rule for rule in look(tmp_path, world).ids() if rule.startswith("event-")]


@pytest.mark.parametrize(
    "text",
    [
        "Failed to schedule UpdateClusterSoftware for IG worker-group-1 in Cluster demo.",
        "Failed to complete UpdateClusterSoftware for IG worker-group-1 in Cluster demo.",
        "UpdateClusterSoftware failed for IG worker-group-1 in Cluster demo. Initiating rollback.",
        "UpdateClusterSoftware rollback failed for instance i-00000000000000007 in IG worker-group-1.",
        "Rollback failed for IG worker-group-1 in Cluster demo. Some instances may be in FailedMaintenance state.",
    ],
)
@pytest.mark.parametrize("level", ["Error", None])
def test_no_informative_row_stands_before_an_updates_failure(tmp_path, text, level):
    found = look(tmp_path, World().event(9, text, level)).one("event-update-failed", WORKERS)
    assert text in found.detail


def test_an_informative_row_does_not_speak_for_an_event_that_aws_calls_an_error(tmp_path):
    text = "Slurm was reconfigured successfully on the controller"
    assert "event-other-error" in look(tmp_path, World().event(9, text, "Error")).ids(WORKERS)
    assert events.rule_of(events.ClusterEvent("1", 0.0, text, "Info")) is None


def test_what_an_events_details_say_of_slurms_health_is_told(tmp_path):
    about = {"SlurmHealth": {"Component": "Slurmdbd", "Status": "Unhealthy", "Reason": "DbUnreachable"}}
    text = "Slurm accounting daemon slurmdbd on the controller is unhealthy"
    found = look(tmp_path, World().event(9, text, "Error", about=about)).one("event-accounting-unhealthy")
    assert "Reason DbUnreachable" in found.detail
