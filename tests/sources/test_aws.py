from __future__ import annotations

import os
import time
from typing import Any

import boto3
import pytest
from botocore import xform_name

from hpslurm.sources import aws, aws_errors
from hpslurm.sources.aws import Aws
from tests.aws_server import serve


@pytest.fixture(autouse=True)
def no_pause(monkeypatch):
    monkeypatch.setattr(aws, "LOG_PAUSE", 0.0)


SERVICES = ("sagemaker", "ec2", "ssm", "logs", "sts")
HEALTHY_NODES = 6


def with_trouble(**trouble: Any) -> dict[str, Any]:
    """Three pages of two nodes, and one kind of trouble."""
    return {
        "page": 2,
        "cluster": {"InstanceGroups": [{"InstanceGroupName": "workers", "CurrentCount": 6}]},
        "nodes": [{"group": "workers", "count": 6}],
        "subnets": [{"id": "subnet-0aaaaaaaaaaaaaaaa", "zone": "us-west-2a", "cidr": "10.1.0.0/20"}],
        "trouble": [trouble] if trouble else [],
    }


def door(**options: Any) -> Aws:
    return Aws("us-west-2", **options)


def nodes(aws_door: Aws) -> aws.Listing:
    return aws_door.listed("sagemaker", "ListClusterNodes", "ClusterNodeSummaries", ClusterName="demo", MaxResults=100)


def least(shape: Any, depth: int = 0) -> Any:
    """The smallest value that botocore's own validation lets pass."""
    kind = shape.type_name
    if kind == "structure":
        wanted = list(shape.required_members)
        if getattr(shape, "is_tagged_union", False):
            wanted = wanted or [next(iter(shape.members))]
        return {name: least(shape.members[name], depth + 1) for name in wanted}
    if kind == "list":
        return [least(shape.member, depth + 1)] * int(shape.metadata.get("min", 0))
    if kind == "map":
        return {}
    if kind == "string":
        return shape.enum[0] if shape.enum else "x" * max(1, int(shape.metadata.get("min", 1)))
    if kind in ("integer", "long", "float", "double"):
        return int(shape.metadata.get("min", 1))
    return {"boolean": True, "timestamp": 0, "blob": b"x"}[kind]


@pytest.mark.parametrize("service", SERVICES)
def test_every_operation_off_the_list_is_refused_before_anything_is_sent(service):
    with serve(with_trouble()) as server:
        client = door().client(service)
        model = client.meta.service_model
        ours = {operation.name for operation in aws.OPERATIONS if operation.service == service}
        others = sorted(set(model.operation_names) - ours)
        assert len(others) > 10
        for name in others:
            shape = model.operation_model(name).input_shape
            with pytest.raises(aws_errors.Forbidden, match=f"{service}:{name} is not on the list"):
                getattr(client, xform_name(name))(**(least(shape) if shape else {}))
        assert 0 == sum(server.calls.values())


def test_a_session_is_started_only_by_a_door_that_was_asked_for_sessions():
    with serve(with_trouble()):
        with pytest.raises(aws_errors.Forbidden):
            door().client("ssm").start_session(Target="x")
        with pytest.raises(aws_errors.Forbidden):
            door(sessions=True).client("ssm").send_command(DocumentName="x")
        assert "ssm:StartSession" in door(sessions=True).allowed


def test_every_row_is_an_operation_that_botocore_knows_and_that_only_reads():
    for operation in aws.OPERATIONS:
        model = boto3.session.Session(region_name="us-west-2").client(operation.service).meta.service_model
        assert operation.name in model.operation_names
        assert operation.name.startswith(("Describe", "List", "Get", "Filter"))


def test_all_pages_are_read_with_tokens_taken_as_they_are():
    with serve(with_trouble()) as server:
        listing = nodes(door())
        assert (6, "") == (len(listing.items), listing.trouble)
        assert 3 == server.calls["sagemaker:ListClusterNodes"]


def test_a_token_that_comes_again_ends_the_loop_with_what_was_read():
    with serve(with_trouble(operation="ListClusterNodes", kind="repeat_token")):
        listing = nodes(door())
        assert "repeats a page token" in listing.trouble
        assert len(listing.items) >= 2


def test_pages_read_before_a_denial_are_kept():
    with serve(with_trouble(operation="ListClusterNodes", kind="denied", after=2)):
        listing = nodes(door())
        assert 4 == len(listing.items)
        assert "only 4 read, then: grant sagemaker:ListClusterNodes, operations.md § 2" == listing.trouble


@pytest.mark.parametrize(
    ("kind", "error", "words"),
    [
        ("denied", aws_errors.Denied, "grant sagemaker:ListClusterNodes, operations.md § 2"),
        ("throttled", aws_errors.NoAnswer, "AWS throttled sagemaker:ListClusterNodes; run again"),
        ("validation", aws_errors.Unsupported, "sagemaker:ListClusterNodes refused: The request is not valid"),
        ("expired", aws_errors.NoAccess, "ExpiredTokenException: The security token is expired"),
        ("missing", aws_errors.NotFound, "sagemaker:ListClusterNodes: It does not exist"),
        ("failure", aws_errors.NoAnswer, "sagemaker:ListClusterNodes failed: InternalFailure"),
        ("garbage", aws_errors.NoAnswer, "not AWS but something between answered (content type text/html)"),
        ("broken", aws_errors.NoAnswer, "no answer to sagemaker:ListClusterNodes: the connection ended after 1 of"),
    ],
)
def test_what_aws_answers_instead_becomes_a_step_to_take(kind, error, words):
    with serve(with_trouble(operation="ListClusterNodes", kind=kind)), pytest.raises(error) as caught:
        nodes(door())
    assert words in str(caught.value)


def test_ec2_and_sts_errors_in_xml_are_understood_too():
    with serve(with_trouble(operation="*", kind="denied")):
        with pytest.raises(aws_errors.Denied, match="grant ec2:DescribeSubnets"):
            door().read("ec2", "DescribeSubnets")
        with pytest.raises(aws_errors.Unknown, match="sts:GetCallerIdentity"):
            door().read("sts", "GetCallerIdentity")


def test_one_throttled_call_is_tried_again():
    with serve(with_trouble(operation="ListClusterNodes", kind="throttled", times=1)) as server:
        mine = door()
        assert 6 == len(nodes(mine).items)
        assert 4 == server.calls["sagemaker:ListClusterNodes"] == mine.requests["sagemaker:ListClusterNodes"]


def test_constant_throttling_ends_after_three_attempts():
    with serve(with_trouble(operation="ListClusterNodes", kind="throttled")) as server:
        with pytest.raises(aws_errors.NoAnswer):
            nodes(door())
        assert 3 == server.calls["sagemaker:ListClusterNodes"]


def test_a_slow_answer_is_given_up_and_not_waited_for(monkeypatch):
    monkeypatch.setattr(aws, "READ_SECONDS", 0.2)
    slow = with_trouble(operation="ListClusterNodes", kind="slow", seconds=3)
    with serve(slow), pytest.raises(aws_errors.NoAnswer, match="connected, and nothing came back"):
        nodes(door())


def test_a_connection_that_broke_once_is_tried_again():
    with serve(with_trouble(operation="ListClusterNodes", kind="broken", times=1)):
        assert 6 == len(nodes(door()).items)


def test_after_the_deadline_nothing_more_is_sent():
    with serve(with_trouble()) as server:
        with pytest.raises(aws_errors.NoAnswer, match="no time left"):
            nodes(door(seconds=-1))
        assert 0 == sum(server.calls.values())


def test_without_credentials_the_person_is_told_to_log_in():
    with serve(with_trouble()):
        del os.environ["AWS_ACCESS_KEY_ID"]
        del os.environ["AWS_SECRET_ACCESS_KEY"]
        with pytest.raises(aws_errors.NoAccess, match="log in or pass --profile"):
            nodes(door())


def test_a_profile_that_does_not_exist_is_named():
    with serve(with_trouble()), pytest.raises(aws_errors.NoAccess, match="nobody"):
        door(profile="nobody")


def test_an_operation_that_an_old_boto3_lacks_is_said_to_need_an_upgrade():
    with serve(with_trouble()), pytest.raises(aws_errors.Unsupported, match="upgrade boto3"):
        door().read("sagemaker", "DescribeNothingThatExists")


def test_log_lines_come_newest_first_past_empty_pages():
    scenario = with_trouble() | {
        "empty_log_pages": 2,
        "log_page": 2,
        "logs": [{"stream": "LifecycleConfig/workers/i-1", "minutes": n, "text": f"ERROR {n}"} for n in range(1, 6)],
    }
    with serve(scenario) as server:
        group = server.scenario.log_group
        listing = door().log_lines(group, "LifecycleConfig/", "?ERROR", time.time() - 250)
        assert ["ERROR 1", "ERROR 2", "ERROR 3", "ERROR 4"] == [item["message"] for item in listing.items]
        assert "only the first 2 read" == door().log_lines(group, "LifecycleConfig/", "", 0, most=2).trouble


def test_lines_of_streams_that_are_not_wanted_use_up_nothing():
    noise = [{"stream": "Own/i-1", "minutes": n / 10, "text": f"ERROR {n}"} for n in range(1, 9)]
    theirs = [{"stream": "i-1/training", "minutes": 3, "text": "ERROR of a job"}]
    with serve(with_trouble() | {"log_page": 2, "logs": [*noise, *theirs]}) as server:
        listing = door().log_lines(server.scenario.log_group, "", "", 0, most=2, without=("Own/",))
        assert (["ERROR of a job"], "") == ([item["message"] for item in listing.items], listing.trouble)
        assert all("logStreamNamePrefix" not in asked for _, asked in server.asked)


def test_account_ids_are_masked_in_arns_only():
    assert "arn:aws:sagemaker:us-west-2:********9012:cluster/abc" == aws_errors.mask(
        "arn:aws:sagemaker:us-west-2:123456789012:cluster/abc"
    )
    assert "arn:aws:iam::********9012:role/x, 123456789012" == aws_errors.mask(
        "arn:aws:iam::123456789012:role/x, 123456789012"
    )
