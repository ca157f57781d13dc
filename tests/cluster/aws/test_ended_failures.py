"""A failure is over by a success of the very same thing, and by nothing else; different failures stay apart."""

from __future__ import annotations

import pytest

from tests.cluster.aws.looking import WORKERS, World, identity, look

FSX = "Failed to create FSx for IG worker-group-1 in Cluster demo"
SCALING = "Instance Group worker-group-1 scaling in Cluster demo"


def events_of(seen):
    return {finding.rule.id for finding in seen.findings if finding.rule.id.startswith("event-")}


@pytest.mark.parametrize(
    ("failure", "later", "over"),
    [
        (FSX, f"Instance creation {identity(8)} in Cluster demo and IG worker-group-1 completed successfully", False),
        (FSX, "Cluster demo update completed successfully", False),
        (FSX, "Successfully created FSx for IG worker-group-1 in Cluster demo", True),
        (f"{SCALING} failed", f"{SCALING} completed successfully", True),
        (f"{SCALING} failed", f"{SCALING} started successfully", False),
        ("Failed to start Cluster demo update", "Cluster demo update started successfully", True),
        ("Failed to update FSx for IG worker-group-1", "Successfully deleted FSx for IG worker-group-1", False),
    ],
)
def test_only_a_success_of_the_same_thing_ends_a_failure(tmp_path, failure, later, over):
    world = World().event(60, failure).event(30, later, "Info")
    assert (set() if over else {"event-failed"}) == events_of(look(tmp_path, world))


def test_a_success_before_the_failure_ends_nothing(tmp_path):
    world = World().event(30, f"{SCALING} failed").event(60, f"{SCALING} completed successfully", "Info")
    assert {"event-failed"} == events_of(look(tmp_path, world))


def test_the_success_of_one_instance_does_not_end_the_failure_of_another_that_is_there(tmp_path):
    text = "Instance lifecycle script execution for EC2 Instance {} has {}"
    failed = (60, text.format(identity(7), "Failed"))
    world = World().event(*failed, instance=identity(7))
    world.event(30, text.format(identity(8), "Succeeded"), "Info", instance=identity(8))
    assert {"event-lifecycle-failed"} == events_of(look(tmp_path, world))
    world.event(20, text.format(identity(7), "Succeeded"), "Info", instance=identity(7))
    assert set() == events_of(look(tmp_path, world))


def test_the_failure_of_an_instance_that_is_gone_is_over_when_its_group_is_complete_again(tmp_path):
    text = f"Instance {identity(99)} failed to start as part of instance replacement in Cluster demo"
    done = f"Instance creation {identity(8)} completed successfully as part of instance replacement"
    world = World().event(60, text, instance=identity(99)).event(30, done, "Info", instance=identity(8))
    assert set() == events_of(look(tmp_path, world))
    world.groups[WORKERS]["CurrentCount"] = 7
    assert "event-replacement-failed" in events_of(look(tmp_path, world))


def test_different_failures_under_one_rule_are_told_one_by_one_and_equal_ones_counted(tmp_path):
    world = World().event(50, FSX).event(40, f"{SCALING} failed").event(30, FSX)
    details = sorted(f.detail for f in look(tmp_path, world).findings if f.rule.id == "event-failed")
    assert [
        "2 times, last 30 minutes ago: Failed to create FSx for IG worker-group-1 in Cluster demo",
        "40 minutes ago: Instance Group worker-group-1 scaling in Cluster demo failed",
    ] == details


def test_the_reason_of_a_failure_is_asked_for_and_told_where_no_table_knows_it(tmp_path):
    found = look(tmp_path, World().event(9, FSX, failure="The moon is in the wrong phase")).one("event-failed")
    assert found.detail.endswith(": The moon is in the wrong phase")


def test_one_event_whose_details_cannot_be_had_does_not_cost_those_of_the_others(tmp_path):
    world = World().event(9, FSX, failure="wrong phase").event(8, f"{SCALING} failed", failure="no subnet")
    world.more["trouble"] = [{"operation": "DescribeClusterEvent", "kind": "missing", "times": 1}]
    seen = look(tmp_path, world)
    assert 1 == ("wrong phase" in seen.text) + ("no subnet" in seen.text)
    assert "failure messages not read" in seen.notes


# Lines as the AWS CLI, shells, dpkg and Lustre print them.
@pytest.mark.parametrize(
    ("line", "meaning"),
    [
        (
            "fatal error: An error occurred (AccessDenied) when calling the GetObject operation: Access Denied",
            "lacks a permission",
        ),
        ("fatal error: An error occurred (403) when calling the HeadObject operation: Forbidden", "lacks a permission"),
        (
            'fatal error: Connect timeout on endpoint URL: "https://x.s3.us-west-2.amazonaws.com/"',
            "S3 cannot be reached",
        ),
        (
            'Could not connect to the endpoint URL: "https://api.sagemaker.us-west-2.amazonaws.com/"',
            "NAT or a VPC endpoint",
        ),
        ("curl: (6) Could not resolve host: github.com", "DNS of the VPC"),
        ("mount.nfs: Temporary failure in name resolution", "DNS of the VPC"),
        ("/tmp/on_create.sh: /bin/bash^M: bad interpreter: No such file or directory", "Windows line ends"),
        ("on_create.sh: line 2: $'\\r': command not found", "Windows line ends"),
        ("tar: ./x: Cannot write: No space left on device", "root volume is full"),
        ("E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 999", "dpkg's lock"),
        (
            "mount.lustre: mount fs-0.fsx.us-west-2.amazonaws.com@tcp:/x at /fsx failed: Connection timed out",
            "file system",
        ),
    ],
)
def test_the_cause_inside_a_lifecycle_log_is_fetched_and_named(tmp_path, line, meaning):
    world = World().set(8, status="Failure").script(8, "installing", line, "provisioning exited")
    found = look(tmp_path, world).one("lifecycle-failed", "ip-10-1-0-8")
    assert meaning in found.detail
    assert line[:40] in found.evidence[0].text


def test_the_line_that_proves_most_is_named_and_not_the_last_one(tmp_path):
    world = (
        World()
        .set(8, status="Failure")
        .script(8, "cp: No space left on device", "Error: step 3", "[SageMaker] Lifecycle scripts failed, exit code 1")
    )
    assert "root volume is full" in look(tmp_path, world).one("lifecycle-failed", "ip-10-1-0-8").detail


def test_lines_that_say_there_was_no_error_are_none(tmp_path):
    world = World().set(8, status="Pending", hours=0.2).script(8, "PLAY RECAP ok=9 failed=0", "0 errors, 0 failures")
    assert "lifecycle-failed" not in look(tmp_path, world).ids()
