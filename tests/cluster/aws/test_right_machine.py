"""The right machine: who has the name now, since when, and whether anybody is missing at all."""

from __future__ import annotations

import time

import pytest

from hpslurm.cluster import holders
from hpslurm.cluster.aws.hyperpod import ago
from hpslurm.core.values import replace
from tests.cluster.aws.looking import HARDWARE, WORKERS, World, group, identity, look, node
from tests.cluster.aws.test_hyperpod import NOW, ONE

FOURTH = "ip-10-1-0-4"
NEW = identity(0x444)


def successor(**about):
    """Instance 4 and, of the same name, a younger one that runs."""
    world = World().set(4, **about)
    world.nodes[444] = node(4, id=NEW, hours=1)
    return world


def test_a_dying_instances_fault_is_not_its_healthy_successors(tmp_path):
    seen = look(tmp_path, successor(status="ShuttingDown").agent(4, 30, "NvidiaErrorTerminate"))
    assert set() == seen.ids(FOURTH)
    found = seen.one("agent-fault", identity(4))
    assert f"ip-10-1-0-4 is another instance of the same name now ({NEW}), which is not meant" in found.detail
    assert [] == seen.changes(identity(4))


def test_a_failed_instance_with_a_successor_is_for_information_and_drains_nobody(tmp_path):
    seen = look(tmp_path, successor(status="Failure", message=HARDWARE))
    assert set() == seen.ids(FOURTH)
    assert "P2" == seen.one("hyperpod-instance-failed-before", identity(4)).rule.priority


def test_a_second_attempt_that_failed_is_a_failure_of_its_own_while_the_first_runs(tmp_path):
    world = World()
    world.nodes[444] = node(4, id=NEW, hours=1, status="Failure", message=HARDWARE)
    seen = look(tmp_path, world)
    assert set() == seen.ids(FOURTH)
    assert "same name" in seen.one("hyperpod-instance-failed", NEW).detail


def test_a_successor_in_another_group_took_the_address_over(tmp_path):
    world = World().set(6, status="ShuttingDown").agent(6, 50)
    world.groups["worker-group-2"] = group("worker-group-2", "Compute", 1)
    world.nodes[666] = node(6, "worker-group-2", id=identity(0x666), hours=0.5)
    world.groups[WORKERS].update(CurrentCount=7, TargetCount=7)
    seen = look(tmp_path, world)
    assert set() == seen.ids("ip-10-1-0-6")


@pytest.mark.parametrize(
    ("old", "new", "who"),
    [
        ("ShuttingDown", "Pending", "new"),
        ("Running", "Pending", "old"),
        ("Failure", "Failure", "new"),
        ("Running", "Running", "new"),
        ("Failure", "Quarantined", "new"),
        ("NotFound", "SystemUpdating", "new"),
    ],
)
def test_of_two_of_one_name_the_one_that_runs_then_the_one_that_comes_then_the_newer_has_it(old, new, who):
    pair = [
        replace(ONE, id="old", status=old, launched=NOW - 9999),
        replace(ONE, id="new", status=new, launched=NOW - 60),
    ]
    for order in (pair, pair[::-1]):
        assert [who] == [one.id for one in holders.held(order) if one.node]


# who is missing


def test_a_node_that_answers_is_never_called_left_over(tmp_path):
    world = World().gone(8)
    world.groups[WORKERS].update(CurrentCount=7, TargetCount=7)
    seen = look(tmp_path, world)
    assert "do not remove the node" in seen.one("join-not-listed", "ip-10-1-0-8").detail
    assert "left over" not in seen.text


def test_a_drained_node_that_answers_is_not_left_over_either(tmp_path):
    world = World().gone(8)
    world.groups[WORKERS].update(CurrentCount=7, TargetCount=7)
    world.slurm["ip-10-1-0-8"] = {"state": ["IDLE", "DRAIN"], "reason": "NHC: check_hw_eth failed"}
    assert "join-not-listed" in look(tmp_path, world).ids("ip-10-1-0-8")


def test_while_the_list_lags_behind_the_counts_nobody_is_missing(tmp_path):
    seen = look(tmp_path, World().gone(8).silent(8))
    assert "the groups count 1 more than the list has" in seen.one("join-between-attempts", "ip-10-1-0-8").detail
    assert [] == seen.changes("ip-10-1-0-8")
    assert "1 counted but not listed" in seen.text


def test_an_empty_list_is_no_proof_that_all_are_gone(tmp_path):
    seen = look(tmp_path, World().gone(*range(1, 9), 100, 101).silent(3))
    assert not any(rule.startswith("join-") for rule in seen.ids())
    assert "lists none of the 10 instances that DescribeCluster counts" in seen.notes
    assert "10 counted but not listed" in seen.text


def test_instances_without_host_names_are_not_said_to_be_missing(tmp_path):
    world = World().silent(3)
    for number in range(1, 9):
        world.set(number, no_dns=True)
    seen = look(tmp_path, world)
    assert "left over" not in seen.text and "join-not-registered" not in seen.ids()
    assert "8 instances without a host name" in seen.text
    assert not any("Action:" in command for command in seen.commands("ip-10-1-0-3"))


def machines(numbers):
    return {
        "InstanceGroups": [
            {"Name": WORKERS, "Instances": [{"CustomerIpAddress": f"10.1.0.{n}", "InstanceId": i} for n, i in numbers]}
        ]
    }


def test_without_host_names_the_ids_in_hyperpods_own_file_say_who_is_who(tmp_path):
    world = World().set(3, status="Failure", message=HARDWARE)
    for number in range(1, 9):
        world.set(number, names=identity(number))  # subnets that name hosts after their instance
    world.files["resource_config.json"] = machines((n, identity(n)) for n in range(1, 9))
    seen = look(tmp_path, world)
    assert {"hyperpod-instance-failed", "join-failed-in-use"} == seen.ids("ip-10-1-0-3")


def test_an_old_file_does_not_give_a_name_to_an_instance_that_has_another(tmp_path):
    world = World().set(3, status="Failure", message=HARDWARE)
    world.files["resource_config.json"] = machines([(4, identity(3))])  # was ip-10-1-0-4 before it was moved
    seen = look(tmp_path, world)
    assert set() == seen.ids(FOURTH)
    assert "hyperpod-instance-failed" in seen.ids("ip-10-1-0-3")


# since when


def test_a_condition_that_was_cleared_is_no_fault(tmp_path):
    seen = look(tmp_path, World().agent(5, 20).agent(5, 10, state="False"))
    assert set() == seen.ids("ip-10-1-0-5")


def test_a_fault_from_before_the_last_boot_is_for_information_but_a_replacement_is_still_wanted(tmp_path):
    world = World().agent(5, 100)
    world.slurm["ip-10-1-0-5"]["boot_time"] = int(time.time() - 3600)
    seen = look(tmp_path, world)
    found = seen.one("agent-fault-before-boot", "ip-10-1-0-5")
    assert ("P2", True) == (found.rule.priority, "the node was booted since" in found.detail)
    assert [] == seen.changes("ip-10-1-0-5")
    world.more["logs"] = []
    assert "agent-fault" in look(tmp_path, world.agent(5, 100, "NvidiaErrorTerminate")).ids("ip-10-1-0-5")


def test_a_clock_that_is_ahead_makes_no_time_negative(tmp_path):
    assert "just now (its clock, or this one, is wrong by 59 minutes)" == ago(NOW, NOW + 59 * 60)
    assert "0 minutes ago" == ago(NOW, NOW + 50)
    seen = look(tmp_path, World().agent(5, -59).event(-59, "Failed to create FSx for IG worker-group-1"))
    assert "-5" not in seen.one("agent-fault").detail + seen.one("event-failed").detail


def test_images_may_differ_while_an_update_is_under_way_and_not_after_it(tmp_path):
    world = World().set(1, version="1.5.0").set(2, version="1.5.0")
    world.groups[WORKERS].update(SoftwareUpdateStatus="InProgress", TargetStateCount=2)
    seen = look(tmp_path, world)
    assert "hyperpod-image-differs" not in seen.ids()
    assert "2 of 8 instances have it" in seen.one("hyperpod-updating").detail
    world.groups[WORKERS].update(SoftwareUpdateStatus="Succeeded")
    assert {"hyperpod-image-differs"} == look(tmp_path, world).ids("ip-10-1-0-1")
