"""Commands to copy work for whoever asked: with their region and profile, and for this kind of cluster."""

from __future__ import annotations

import re
import shlex

import pytest

from hpslurm.cluster import deeds
from tests.cluster.aws.looking import HARDWARE, WORKERS, World, look

AWS = re.compile(r"\baws [a-z0-9-]+ [a-z0-9-]+[^|;]*")


def sick(**cluster):
    world = World(**cluster).set(2, status="Failure", message=HARDWARE).agent(5, 10).silent(3)
    world.event(9, "Failed to create FSx for IG worker-group-1")
    world.groups[WORKERS].update(CurrentCount=8, TargetCount=9, ImageVersionStatus="EndOfLife", Status="Degraded")
    world.nodes[9] = {"group": WORKERS, "first": "10.1.0.9", "id": "i-00000000000000009", "hours": 3}
    world.more["rules"] = []
    world.set(8, status="Pending", hours=0.3).script(8, "An error occurred (AccessDenied)", "connect timeout")
    return world


def test_every_aws_command_has_the_region_and_the_profile_of_the_caller(tmp_path, monkeypatch):
    (tmp_path / "config").write_text('[profile "on call"]\naws_access_key_id = x\naws_secret_access_key = x\n')
    monkeypatch.setattr("tests.aws_server.server.Server.environ", property(lambda self: {
        "AWS_ENDPOINT_URL": self.url, "AWS_CONFIG_FILE": str(tmp_path / "config"),
    }))  # fmt: skip
    seen = look(tmp_path, sick(NodeRecovery="None"), profile="on call")
    commands = [found[0] for command in seen.commands() for found in AWS.finditer(command)]
    assert len(commands) > 10
    assert [] == [one for one in commands if "--region us-west-2" not in one or "--profile 'on call'" not in one]


def test_every_suggested_command_is_one_that_a_shell_takes(tmp_path):
    for command in look(tmp_path, sick()).commands():
        assert shlex.split(command, comments=True)


def test_no_command_of_ssh_is_given_a_folded_list_of_nodes(tmp_path):
    world = World()
    for number in (9, 10, 11, 12):
        world.nodes[number] = {"group": WORKERS, "first": f"10.1.0.{number}", "id": f"i-000000000000000{number:02}"}
    seen = look(tmp_path, world)
    assert "ip-10-1-0-[9-12]" in seen.text
    assert not re.search(r"\bssh '?ip-", seen.text)
    assert "clush -w 'ip-10-1-0-[9-12]' sudo systemctl restart slurmd" in seen.text


def test_on_a_cluster_of_eks_no_program_of_slurms_is_suggested(tmp_path):
    world = sick(Orchestrator={"Eks": {"ClusterArn": "arn:aws:eks:us-west-2:123456789012:cluster/k8s"}})
    seen = look(tmp_path, world, slurm=False)
    assert "hyperpod-eks" in seen.ids()
    assert [] == [command for command in seen.commands() if deeds.of_slurm(command)]


def test_also_where_its_instances_could_not_all_be_listed(tmp_path):
    world = sick(Orchestrator={"Eks": {"ClusterArn": "arn:aws:eks:us-west-2:123456789012:cluster/k8s"}})
    world.more |= {"page": 4, "trouble": [{"operation": "ListClusterNodes", "kind": "throttled", "after": 1}]}
    seen = look(tmp_path, world, slurm=False)
    assert [] == [command for command in seen.commands() if deeds.of_slurm(command)]


def test_a_node_that_slurm_does_not_know_is_not_drained(tmp_path):
    seen = look(tmp_path, sick().agent(9, 5))
    assert {"agent-fault", "join-not-registered"} <= seen.ids("ip-10-1-0-9")
    assert not any("scontrol update" in command for command in seen.commands("ip-10-1-0-9"))


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("aws ec2 describe-subnets", "aws ec2 describe-subnets --profile p --region r"),
        ("aws ec2 describe-subnets --region x", "aws ec2 describe-subnets --profile p --region x"),
        ("scontrol show node n1", "scontrol show node n1"),
        ("aws logs tail /a | grep x", "aws logs tail --profile p --region r /a | grep x"),
    ],
)
def test_region_and_profile_are_added_where_they_lack(command, told):
    assert told == deeds.for_caller(command, "r", "p")
