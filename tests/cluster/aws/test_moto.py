"""Against moto's server: clusters made through boto3 there, by people who did not think of hpslurm.

It differs from AWS in ways that must not matter: nodes have no host names and ids like ``workers-0``, an unknown
cluster is an invalid value, the ARN ends in the cluster's name, logs come as text/html, and pages repeat their token.
"""

from __future__ import annotations

import json
import time

import boto3
import pytest
from moto.server import ThreadedMotoServer

from hpslurm.sources import aws
from tests.cluster.aws.looking import REGION, World, ask, put

ROLE = "arn:aws:iam::123456789012:role/hyperpod"


@pytest.fixture(scope="module")
def moto():
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    yield "http://{}:{}".format(*server.get_host_and_port())
    server.stop()


@pytest.fixture
def account(moto, monkeypatch):
    """An environment that asks this server and nobody else."""
    monkeypatch.setattr(aws, "LOG_PAUSE", 0.0)
    for name, value in {
        "AWS_ENDPOINT_URL": moto,
        "AWS_ACCESS_KEY_ID": "x",
        "AWS_SECRET_ACCESS_KEY": "x",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": "/dev/null",
        "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
    }.items():
        monkeypatch.setenv(name, value)
    return lambda service: boto3.client(service, region_name=REGION)


def make(account, name, **groups):
    """A cluster in a VPC of its own, whose security group lets nothing in; ``groups`` are counts by name."""
    ec2 = account("ec2")
    vpc = ec2.create_vpc(CidrBlock="10.1.0.0/16")["Vpc"]["VpcId"]
    subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="10.1.0.0/20")["Subnet"]["SubnetId"]
    group = ec2.create_security_group(GroupName=name, Description=name, VpcId=vpc)["GroupId"]
    made = account("sagemaker").create_cluster(
        ClusterName=name,
        InstanceGroups=[
            {
                "InstanceGroupName": key,
                "InstanceType": "ml.p5.48xlarge",
                "InstanceCount": count,
                "LifeCycleConfig": {"SourceS3Uri": "s3://sagemaker-scripts/", "OnCreate": "on_create.sh"},
                "ExecutionRole": ROLE,
                "ThreadsPerCore": 2,
            }
            for key, count in groups.items()
        ],
        VpcConfig={"SecurityGroupIds": [group], "Subnets": [subnet]},
    )
    return made["ClusterArn"], group


def test_a_cluster_made_there_is_looked_at_in_full(tmp_path, account):
    arn, group = make(account, "full", workers=8)
    put(tmp_path, World())
    seen = ask(tmp_path, cluster="full")
    assert "HyperPod cluster full in us-west-2: InService, instances: 8 Running" in seen.text
    assert {"sg-no-inbound", "sg-no-outbound"} <= seen.ids("workers")
    assert any(f"--group-id {group}" in command for command in seen.commands("workers"))
    assert not any(rule.startswith("join-") for rule in seen.ids())  # nobody can be matched, so nobody is missing
    assert [] == seen.changes()
    assert "hyperpod" in {result.probe for result in ask(tmp_path, cluster=arn).results}


def test_rules_that_are_added_there_are_seen(tmp_path, account):
    _, group = make(account, "open", workers=2)
    all_of_it = [{"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": group}]}]
    account("ec2").authorize_security_group_ingress(GroupId=group, IpPermissions=all_of_it)
    account("ec2").authorize_security_group_egress(GroupId=group, IpPermissions=all_of_it)
    put(tmp_path, World())
    assert not {"sg-no-inbound", "sg-no-outbound"} & ask(tmp_path, cluster="open").ids()


def test_logs_that_come_under_the_wrong_content_type_are_read(tmp_path, account):
    make(account, "logged", workers=2)
    logs, group, stream = (
        account("logs"),
        "/aws/sagemaker/Clusters/logged/logged",
        "SagemakerHealthMonitoringAgent/workers/workers-1",
    )
    logs.create_log_group(logGroupName=group)
    logs.create_log_stream(logGroupName=group, logStreamName=stream)
    said = "Node condition NvidiaErrorReboot is now: True, NVRM: Xid (PCI:0000:b9:00): 79"
    line = json.dumps({"details: ": {"message": said}, "HealthMonitoringAgentDetectionEvent": "HealthEvent"})
    event = {"timestamp": int(time.time() * 1000) - 600_000, "message": line}
    logs.put_log_events(logGroupName=group, logStreamName=stream, logEvents=[event])
    put(tmp_path, World())
    seen = ask(tmp_path, cluster="logged")
    assert "Xid 79" in seen.one("agent-fault", "workers-1").detail
    assert not any("scontrol update" in command for command in seen.commands("workers-1"))  # Slurm has no such node


def test_an_unknown_cluster_is_said_to_be_unknown_and_slurms_half_comes(tmp_path, account):
    make(account, "there", workers=1)
    put(tmp_path, World())
    seen = ask(tmp_path, cluster="nope")
    assert "no cluster 'nope' in us-west-2; clusters in us-west-2:" in seen.notes
    assert "there" in seen.notes and "8 IDLE" in seen.text


def test_pages_that_repeat_their_token_end(tmp_path, account):
    make(account, "large", workers=150)
    put(tmp_path, World())
    seen = ask(tmp_path, cluster="large")
    assert "repeats a page token" in seen.notes
    assert not any(rule.startswith("join-") for rule in seen.ids())


def test_with_hyperpods_own_file_its_ids_say_which_node_is_which(tmp_path, account):
    make(account, "named", workers=8)
    world = World()
    machines = [{"CustomerIpAddress": f"10.1.0.{n}", "InstanceId": f"workers-{n - 1}"} for n in range(1, 9)]
    world.files["resource_config.json"] = {"InstanceGroups": [{"Name": "workers", "Instances": machines}]}
    put(tmp_path, world.silent(3))
    seen = ask(tmp_path, cluster="named")
    together = [
        item.text for item in seen.one("node-not-responding", "ip-10-1-0-3").evidence if item.source == "HyperPod"
    ]
    assert together and "workers-2 of workers: Running" in together[0]
