from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from hpslurm.cli.iam_policy import command
from hpslurm.cluster.aws import checks
from hpslurm.cluster.aws.whom import Options
from tests.aws_server import serve


def printed(*words: str) -> str:
    result = CliRunner().invoke(command, words, env={"COLUMNS": "120"})
    assert 0 == result.exit_code
    return result.output


def actions(*words: str) -> set[str]:
    return {action for statement in json.loads(printed(*words))["Statement"] for action in statement["Action"]}


def test_the_policy_allows_exactly_what_diagnose_calls():
    with serve("sick") as server:
        checks.collect(Options(region="us-west-2"))
        called = set(server.calls)
    assert called - {"sts:GetCallerIdentity"} == actions()


def test_permissions_are_bound_to_clusters_and_their_logs_where_aws_lets_them_be():
    words = ("--region", "us-west-2", "--account", "123456789012")
    by_resource = {one["Resource"][0]: one["Action"] for one in json.loads(printed(*words))["Statement"]}
    clusters = by_resource["arn:aws:sagemaker:us-west-2:123456789012:cluster/*"]
    assert [
        "DescribeCluster",
        "DescribeClusterEvent",
        "ListClusterEvents",
        "ListClusterNodes",
        "ListClusterOperations",
    ] == [action.removeprefix("sagemaker:") for action in clusters]
    assert ["logs:FilterLogEvents"] == by_resource[
        "arn:aws:logs:us-west-2:123456789012:log-group:/aws/sagemaker/Clusters/*"
    ]
    assert all(action.startswith(("ec2:Describe", "sagemaker:List")) for action in by_resource["*"])


def test_sessions_are_in_the_policy_only_when_asked_for():
    assert {"ssm:StartSession", "ssm:TerminateSession"} == actions("--ssm") - actions()


def test_every_permission_has_its_reason():
    lines = printed("--why").splitlines()
    assert len(lines) == len(actions()) + 1
    assert all(len(line.split(maxsplit=1)[1]) > 20 for line in lines)


@pytest.mark.parametrize(
    "words",
    [
        ("--account", "12"),
        ("--account", "1234567890123"),
        ("--account", "12345678901x"),
        ("--region", 'us-west-2"\n'),
        ("--region", "x"),
        ("--partition", "foo"),
    ],
)
def test_what_no_arn_can_hold_is_refused(words: tuple[str, str]):
    result = CliRunner().invoke(command, words)
    assert 2 == result.exit_code
    assert f"Invalid value for '{words[0]}'" in result.output


@pytest.mark.parametrize(
    ("region", "partition"), [("us-gov-west-1", "aws-us-gov"), ("cn-north-1", "aws-cn"), ("*", "aws")]
)
def test_regions_of_all_partitions_are_taken(region: str, partition: str):
    assert f"arn:{partition}:sagemaker:{region}:" in printed("--region", region, "--partition", partition)


@pytest.mark.parametrize(
    ("region", "partition"),
    [
        ("cn-north-1", "aws-cn"),
        ("us-gov-west-1", "aws-us-gov"),
        ("eusc-de-east-1", "aws-eusc"),
        ("us-iso-east-1", "aws-iso"),
        ("us-isob-east-1", "aws-iso-b"),
        ("us-west-2", "aws"),
    ],
)
def test_the_partition_is_that_of_the_region(region: str, partition: str):
    from botocore.session import get_session

    assert partition == get_session().get_partition_for_region(region)
    assert f"arn:{partition}:logs:{region}:" in printed("--region", region)


def test_only_ones_own_sessions_may_be_ended():
    (sessions,) = [one for one in json.loads(printed("--ssm"))["Statement"] if "ssm:TerminateSession" in one["Action"]]
    assert ["arn:aws:ssm:*:*:session/*"] == sessions["Resource"]
