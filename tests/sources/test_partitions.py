"""Is this node in a partition? By the slurm.conf that is there, without asking Slurm; None where it does not tell."""

from __future__ import annotations

import pytest

from hpslurm.sources.partitions import is_in_one

CONF = "/etc/slurm/slurm.conf"


@pytest.mark.parametrize(
    ("nodes", "inside"),
    [
        ("n1", True),
        ("n2,n1", True),
        ("n[1-4]", True),
        ("n[2-4],m1", False),
        ("n[0-9]x", False),
        ("n[01-04]", False),
        ("ALL", True),
        ("n11", False),
        ("n[10-19]", False),
        ("n[", False),
        ("", None),
    ],
)
def test_a_node_is_in_a_partition_that_lists_it(host_with, nodes, inside):
    host = host_with({CONF: f"PartitionName=canary Nodes={nodes} Default=YES\n"}, env={})
    assert inside is is_in_one(host, "n1", ["canary"])


@pytest.mark.parametrize(
    ("node", "inside"),
    [("r1-n07", True), ("r2-n10", True), ("r1-n7", False), ("r3-n07", False), ("r1-n11", False), ("r1-n007", False)],
)
def test_two_brackets_and_leading_zeros_mean_what_they_mean_to_slurm(host_with, node, inside):
    host = host_with({CONF: "PartitionName=canary Nodes=r[1-2]-n[07-10]\n"}, env={})
    assert inside is is_in_one(host, node, ["canary"])


@pytest.mark.parametrize(
    ("text", "inside"),
    [
        ("PartitionName=other Nodes=n1\n", None),  # canary was made by scontrol, perhaps
        ("PartitionName=canary Nodes=n2\nPartitionName=other Nodes=n1\n", False),
        ("partitionname=canary State=UP \\\n  nodes=n1\n", True),
        ("PartitionName=DEFAULT Nodes=n1\nPartitionName=canary State=UP\n", True),
        ("# PartitionName=canary Nodes=n1\nPartitionName=canary Nodes=n2 # n1\n", False),
        ("NodeSet=blue Nodes=n[1-2]\nPartitionName=canary Nodes=blue\n", True),
        ("NodeSet=blue Feature=x\nPartitionName=canary Nodes=blue\n", None),
        ("Include parts.conf\n", True),
        ("Include gone.conf\nPartitionName=canary Nodes=n2\n", None),
    ],
)
def test_what_the_file_does_not_tell_is_not_known(host_with, text, inside):
    host = host_with({CONF: text, "/etc/slurm/parts.conf": "PartitionName=canary Nodes=n1\n"}, env={})
    assert inside is is_in_one(host, "n1", ["canary"])


def test_one_of_several_partitions_is_enough_and_no_file_tells_nothing(host_with):
    text = "PartitionName=a Nodes=n2\nPartitionName=b Nodes=n1\n"
    assert True is is_in_one(host_with({CONF: text}, env={}), "n1", ["a", "b"])
    assert None is is_in_one(host_with({}, env={"SLURM_CONF": "/nowhere"}), "n9", ["c"])


def test_slurmds_own_copy_comes_before_a_file_that_was_left_behind(host_with):
    copy = "/var/spool/slurmd/conf-cache/slurm.conf"
    files = {CONF: "PartitionName=a Nodes=n1\n", copy: "PartitionName=a Nodes=n2\n"}
    assert False is is_in_one(host_with(files, env={}), "n1", ["a"])
