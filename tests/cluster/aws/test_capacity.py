"""Capacity: what the APIs say of instances that are not there, and what there is to wait for."""

from __future__ import annotations

import pytest

from hpslurm.cluster import failures
from tests.cluster.aws.looking import HARDWARE, WORKERS, World, identity, look

PLAN = "arn:aws:sagemaker:us-west-2:123456789012:training-plan/p5-plan"
PROVISION = "Failed to provision EC2 Instance in Cluster demo and InstanceGroup worker-group-1"
NO_CAPACITY = "We currently do not have sufficient capacity to launch new ml.p5.48xlarge instances. Please try again."


def short(missing=(7, 8), **group):
    """Some workers are missing and their nodes silent."""
    world = World().gone(*missing).silent(*missing)
    world.groups[WORKERS].update(CurrentCount=8 - len(missing), **group)
    return world


@pytest.mark.parametrize("status", ["Expired", "Failed"])
def test_a_training_plan_that_is_over_is_the_reason_and_no_command_on_nodes_helps(tmp_path, status):
    seen = look(tmp_path, short(range(1, 9), TrainingPlanArn=PLAN, TrainingPlanStatus=status))
    found = seen.one("hyperpod-capacity", WORKERS)
    assert f"0 of 8 p5.48xlarge instances are there: training plan p5-plan is {status}" in found.detail
    assert "hyperpod-plan-over" in seen.ids(WORKERS)
    for number in range(1, 9):
        assert [] == seen.changes(f"ip-10-1-0-{number}")
    assert "cluster-one-cause" not in seen.ids()


@pytest.mark.parametrize("status", ["Scheduled", "Pending"])
def test_a_training_plan_that_has_not_begun_asks_to_wait_for_its_start(tmp_path, status):
    seen = look(tmp_path, short(TrainingPlanArn=PLAN, TrainingPlanStatus=status))
    found = seen.one("hyperpod-plan-waiting", WORKERS)
    assert ("P2", True) == (found.rule.priority, "wait for its start" in found.detail)
    assert "they come when it begins" in seen.one("hyperpod-capacity", WORKERS).detail


def test_an_active_plan_is_not_worth_a_line(tmp_path):
    world = World()
    world.groups[WORKERS].update(TrainingPlanArn=PLAN, TrainingPlanStatus="Active")
    assert set() == look(tmp_path, world).ids(WORKERS)


def test_scaling_whose_attempts_fail_is_a_lack_of_capacity(tmp_path):
    world = short(ActiveOperations={"Scaling": 1})
    assert "wait 30 minutes" in look(tmp_path, world).one("hyperpod-scaling", WORKERS).detail
    for hours in range(20):
        world.event(30 + 60 * hours, PROVISION, failure=NO_CAPACITY)
    found = look(tmp_path, world).one("hyperpod-capacity", WORKERS)
    assert "6 of 8" in found.detail
    assert "attempts fail, the last one 30 minutes ago: no capacity for this instance type" in found.detail


@pytest.mark.parametrize(("minutes", "rule"), [(359, "hyperpod-capacity"), (361, "hyperpod-scaling")])
def test_attempts_of_more_than_six_hours_ago_do_not_speak_for_now(tmp_path, minutes, rule):
    world = short(ActiveOperations={"Scaling": 1}).event(minutes, PROVISION, failure=NO_CAPACITY)
    assert rule in look(tmp_path, world).ids(WORKERS)


def test_instances_that_are_asked_for_and_not_there_are_told_as_that(tmp_path):
    world = short(ActiveOperations={"Scaling": 1}).event(500, "Cluster demo update in progress", "Info")
    world.nodes |= {9: {"group": WORKERS, "first": "10.1.0.7", "coming": True, "status": "Pending"}}
    seen = look(tmp_path, world)
    (found,) = [one for one in seen.findings if one.rule.id == "hyperpod-instance-changing"]
    assert "asked for, and no machine given yet; it comes when there is capacity" in found.detail
    assert any("--node-logical-id" in command for command in seen.commands(found.subject))
    assert "2 counted but not listed" not in seen.text


def test_a_spot_instance_that_was_taken_back_is_told_with_its_group(tmp_path):
    world = short((3,), CapacityRequirements={"Spot": {}}, ActiveOperations={"Scaling": 1})
    world.event(20, f"EC2 Spot instance {identity(3)} was interrupted", "Warn", instance=identity(3))
    world.event(12, PROVISION, failure="There is no Spot capacity available that matches your request.")
    seen = look(tmp_path, world)
    assert "event-spot-interrupted" in seen.ids(WORKERS)
    assert (
        "no spot capacity of this type to give; spot capacity, which AWS takes back"
        in seen.one("hyperpod-capacity").detail
    )
    assert [] == seen.changes("ip-10-1-0-3")


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("Capacity Reservation cr-0123 is EXPIRED", "is over"),
        ("The training plan arn:x has not started", "has not begun"),
        ("The specified capacity reservation is not active", "has not begun"),
        ("Insufficient free addresses in subnet-1", "no free addresses"),
        ("User is not authorized to perform: kms:Decrypt", "lacks a permission"),
    ],
)
def test_what_a_reservation_or_subnet_lacks_is_understood_in_any_spelling(text, meaning):
    failure = failures.failure_of(text)
    assert failure is not None and meaning in failure.meaning


def test_the_history_says_when_an_instance_failed_and_what_was_tried_last(tmp_path):
    world = World().set(3, status="Failure", message=HARDWARE)
    world.event(40, f"Failed to create Customer ENI for instance {identity(3)}", instance=identity(3))
    found = look(tmp_path, world).one("hyperpod-instance-failed", "ip-10-1-0-3")
    assert "last attempt 40 minutes ago: HyperPod may try again by itself; wait 50 minutes more" in found.detail
    assert any("Customer ENI" in item.text for item in found.evidence)


@pytest.mark.parametrize("trouble", [{"kind": "denied"}, {"kind": "throttled", "after": 1}])
def test_the_head_counts_what_is_known_where_the_list_is_denied_or_cut(tmp_path, trouble):
    world = World()
    world.more |= {"page": 4, "trouble": [{"operation": "ListClusterNodes", **trouble}]}
    seen = look(tmp_path, world)
    head = next(line for line in seen.text.splitlines() if line.startswith("HyperPod cluster demo"))
    assert ("10 counted but not listed" if trouble["kind"] == "denied" else "4 Running") in head
    assert not any(rule.startswith("join-") for rule in seen.ids())
    if trouble["kind"] == "throttled":
        assert "only 4 read of 10, then: AWS throttled" in seen.notes


def test_an_instance_that_reaches_no_s3_is_told_what_is_missing_and_how_to_see_it(tmp_path):
    error = 'fatal error: Connect timeout on endpoint URL: "https://b.s3.us-west-2.amazonaws.com/?list-type=2"'
    world = World().set(8, status="Failure", message="Instance bootstrap failed due to network misconfiguration.")
    seen = look(tmp_path, world.silent(8).script(8, error))
    detail = seen.one("lifecycle-failed", "ip-10-1-0-8").detail
    assert "S3 cannot be reached: vpc-0123456789abcdef0 has no S3 endpoint, and its subnet no other way out" in detail
    assert 1 == seen.calls["ec2:DescribeVpcEndpoints"]
    assert any("describe-vpc-endpoints" in command for command in seen.commands("ip-10-1-0-8"))
    assert not any("Action:" in command for command in seen.commands("ip-10-1-0-8"))


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"endpoints": [{"id": "vpce-1", "service": "s3"}]}, "has the S3 endpoint vpce-1: is it in the route table"),
        ({"endpoints": [{"id": "vpce-1", "service": "s3", "vpc": "vpc-other"}]}, "has no S3 endpoint"),
        ({"endpoints": [{"id": "vpce-1", "service": "logs"}]}, "has no S3 endpoint"),
        ({"trouble": [{"operation": "DescribeVpcEndpoints", "kind": "denied"}]}, "needs NAT, or an S3 endpoint"),
    ],
)
def test_of_the_way_to_s3_no_more_is_said_than_is_known(tmp_path, more, words):
    world = World().set(8, status="Failure").script(8, 'Connect timeout on endpoint URL: "https://b.s3.us-west-2.x/"')
    world.more |= more
    seen = look(tmp_path, world)
    assert words in seen.one("lifecycle-failed", "ip-10-1-0-8").detail
    assert ("grant ec2:DescribeVpcEndpoints" in seen.notes) == ("trouble" in more)


def test_all_missing_permissions_are_named_in_one_run(tmp_path):
    world = World()
    world.more["trouble"] = [{"operation": "*", "kind": "denied"}]
    notes = look(tmp_path, world).notes
    for action in ("sagemaker:DescribeCluster", "sagemaker:ListClusterNodes", "logs:FilterLogEvents", "ec2:Describe"):
        assert action in notes
    assert "hpslurm iam-policy --region us-west-2 prints all of it" in notes
