from __future__ import annotations

import pytest

from hpslurm.cluster.aws import zones
from hpslurm.cluster.aws.security_groups import Interface
from hpslurm.cluster.aws.view import View
from hpslurm.cluster.aws.zones import Facts, Subnet
from hpslurm.cluster.model import CONTROLLER, Instance
from hpslurm.core.policy import Policy
from hpslurm.core.probe import Skip
from hpslurm.core.values import replace
from tests.cluster.aws.test_hyperpod import HEALTHY, WORKERS

WEST_A = Subnet("subnet-a", "us-west-2a", "10.1.0.0/24", 4000)
WEST_B = Subnet("subnet-b", "us-west-2b", "10.1.1.0/24", 4000)
GROUP = replace(WORKERS, subnets=("subnet-a",))
CLUSTER = replace(HEALTHY, groups=(GROUP,))
NODES = ("ip-10-1-0-1", "ip-10-1-0-2", "ip-10-1-1-1")


def ids(facts):
    return [(finding.rule.id, finding.subject) for finding in zones.judge(facts, Policy())]


def facts(where, partitions=None, cluster=CLUSTER, subnets=(WEST_A, WEST_B)):
    return Facts(cluster, subnets, dict(zip(NODES, where, strict=False)), partitions or {"gpu": NODES})


def test_a_partition_in_one_zone_is_fine():
    assert [] == ids(facts(["a", "a", "a"]))


def test_the_node_in_the_rarer_zone_is_the_odd_one():
    assert [("zone-split", "ip-10-1-1-1")] == ids(facts(["a", "a", "b"]))


def test_partitions_in_a_zone_each_are_fine_but_one_over_both_is_not():
    apart = {"one": NODES[:2], "two": NODES[2:]}
    assert [] == ids(facts(["a", "a", "b"], apart))
    assert [("zone-split", "ip-10-1-1-1")] == ids(facts(["a", "a", "b"], {**apart, "dev": NODES}))


def test_a_partition_over_all_does_not_repeat_what_a_smaller_one_said():
    assert 1 == len(ids(facts(["a", "a", "b"], {"gpu": NODES, "dev": (*NODES, "ip-10-1-0-100")})))


def test_a_node_whose_zone_is_not_known_is_not_judged():
    assert [] == ids(facts(["a"]))


def test_subnets_in_two_zones_are_worth_a_line():
    wide = replace(CLUSTER, groups=(replace(GROUP, subnets=("subnet-a", "subnet-b")),))
    assert [("zone-subnets", "worker-group-1")] == ids(facts(["a", "a", "a"], cluster=wide))


def test_a_subnet_needs_an_address_for_each_efa_device_of_a_missing_instance():
    short = replace(CLUSTER, groups=(replace(GROUP, current=2),))
    for free, expected in ((64, []), (63, [("subnet-full", "worker-group-1")])):
        assert expected == ids(facts(["a"], cluster=short, subnets=(replace(WEST_A, free=free),)))


def test_the_interface_says_the_zone_before_the_subnet_does():
    nodes = [Instance("i-1", "worker-group-1", "Running", name, name[3:].replace("-", ".")) for name in NODES]
    found = zones.zones_of(CLUSTER, nodes, (WEST_A, WEST_B), [Interface("10.1.0.2", (), "us-west-2c")])
    assert dict(zip(NODES, ("us-west-2a", "us-west-2c", "us-west-2b"), strict=True)) == found


def test_a_cluster_without_efa_types_is_skipped():
    cluster = replace(CLUSTER, groups=(replace(GROUP, role=CONTROLLER),))
    with pytest.raises(Skip, match="no instance group of a type with EFA"):
        zones.collect(View({"cluster": cluster, "subnets": ((), "")}, 0, 0))
