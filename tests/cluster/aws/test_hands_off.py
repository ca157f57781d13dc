"""Advice: nothing that HyperPod's own work forbids, and nothing for the controller or a login node."""

from __future__ import annotations

import pytest

from hpslurm.cluster import deeds
from hpslurm.cluster.aws.hyperpod import WORKING
from tests.cluster.aws.looking import HARDWARE, WORKERS, World, look

THIRD = "ip-10-1-0-3"


def test_a_healthy_cluster_gets_no_advice_to_change_anything(tmp_path):
    seen = look(tmp_path, World())
    assert [] == seen.changes()
    assert "10 Running" in seen.text


@pytest.mark.parametrize("status", sorted(WORKING))
def test_a_silent_node_whose_instance_hyperpod_works_on_is_left_alone(tmp_path, status):
    seen = look(tmp_path, World().set(3, status=status).silent(3))
    assert "node-not-responding" in seen.ids(THIRD)
    assert [] == seen.changes(THIRD)
    assert "wait" in seen.one("join-wait", THIRD).detail
    assert "wait" in seen.one("node-not-responding", THIRD).detail


def test_a_silent_node_without_an_instance_is_neither_booted_nor_are_its_daemons(tmp_path):
    short = World().gone(3).silent(3)
    short.groups[WORKERS]["CurrentCount"] = 7
    seen = look(tmp_path, short)
    assert [] == seen.changes(THIRD)
    assert "wait 90 minutes" in seen.one("join-between-attempts", THIRD).detail
    assert not any("evidence" in command for command in seen.commands(THIRD))  # there is no machine to save it from


def test_after_ninety_minutes_without_an_instance_capacity_is_named_and_still_nothing_done_to_the_node(tmp_path):
    short = World().gone(3).silent(3, minutes=600)
    short.groups[WORKERS]["CurrentCount"] = 7
    seen = look(tmp_path, short)
    assert [] == seen.changes(THIRD)
    assert "capacity is missing" in seen.one("join-no-instance", THIRD).detail


def test_a_left_over_node_is_for_an_administrator_and_gets_no_reboot(tmp_path):
    scaled_in = World().gone(3).silent(3)
    scaled_in.groups[WORKERS].update(CurrentCount=7, TargetCount=7)
    seen = look(tmp_path, scaled_in)
    assert [] == seen.changes(THIRD)
    assert "left over after a scale-in" in seen.one("join-no-instance", THIRD).detail


def test_silent_for_slurm_and_running_for_hyperpod_is_the_case_for_a_reboot_after_the_evidence(tmp_path):
    seen = look(tmp_path, World().silent(3))
    commands = " ".join(seen.commands(THIRD))
    assert commands.index("hpslurm-evidence.txt") < commands.index("Action:Reboot") < commands.index("Action:Replace")


def test_an_instance_that_hyperpod_calls_failed_is_drained_and_not_booted_unless_recovery_is_off(tmp_path):
    world = World().set(3, status="Failure", message=HARDWARE).silent(3)
    assert not any("Action:" in command for command in look(tmp_path, world).commands(THIRD))
    world.cluster["NodeRecovery"] = "None"
    assert any("Action:Replace" in command for command in look(tmp_path, world).commands(THIRD))


@pytest.mark.parametrize(("number", "who"), [(100, "this is the controller"), (101, "this is a login node")])
def test_the_controller_and_login_nodes_are_named_and_never_changed(tmp_path, number, who):
    world = World().set(number, status="Failure", message=HARDWARE).agent(number, 5, "NvidiaErrorTerminate")
    world.slurm[f"ip-10-1-0-{number}"] = {"state": ["DOWN", "NOT_RESPONDING"], "reason": "Not responding"}
    seen = look(tmp_path, world)
    name = f"ip-10-1-0-{number}"
    assert [] == seen.changes(name)
    assert not any("srun" in command for command in seen.commands(name))
    assert seen.one("hyperpod-instance-failed", name).detail.startswith(who)
    assert seen.one("agent-fault", name).detail.startswith(who)


def test_an_update_is_suggested_for_the_group_that_is_old_and_never_for_the_controllers(tmp_path):
    world = World()
    for group in world.groups.values():
        group["ImageVersionStatus"] = "EndOfLife"
    seen = look(tmp_path, world)
    (update,) = {command for command in seen.commands() if "update-cluster-software" in command}
    assert '--instance-groups \'[{"InstanceGroupName":"worker-group-1"}]\'' in update
    assert "this is the controller" in seen.one("hyperpod-image-old", "controller-machine").detail


def test_a_login_node_that_slurm_lists_and_hyperpod_does_not_is_no_left_over(tmp_path):
    world = World().gone(101)
    world.slurm["ip-10-1-0-101"] = {"state": ["DOWN", "NOT_RESPONDING"], "reason": "Not responding"}
    world.files["provisioning_parameters.json"] = {
        "controller_group": "controller-machine",
        "login_group": "login-group",
    }
    machine = {"CustomerIpAddress": "10.1.0.101", "InstanceId": "i-1"}
    world.files["resource_config.json"] = {"InstanceGroups": [{"Name": "login-group", "Instances": [machine]}]}
    assert "left over" not in look(tmp_path, world).text


@pytest.mark.parametrize(
    ("command", "changes", "job"),
    [
        ("sudo scontrol update nodename=n1 state=drain reason='x'", True, False),
        ("scontrol show node n1", False, False),
        ("aws sagemaker batch-replace-cluster-nodes --cluster-name x", True, False),
        ("aws sagemaker list-cluster-nodes --cluster-name x", False, False),
        ("clush -w n1 'sudo systemctl restart slurmd'", True, False),
        ("clush -w n1 'systemctl status slurmd --no-pager | head'", False, False),
        ("srun -w n1 nvidia-smi", False, True),
        ("mkdir -p reports && srun -w n1 hpslurm-check", False, True),
        ("grep srun /etc/hosts", False, False),
    ],
)
def test_what_a_command_does_is_read_off_its_words(command, changes, job):
    assert (changes, job) == (deeds.changes(command), deeds.starts_job(command))


def test_a_look_through_a_job_step_becomes_a_look_by_ssh():
    assert "clush -w {nodes} 'dmesg -T'" == deeds.without_job("srun -w {nodes} dmesg -T")
    quoted = deeds.without_job("srun -w {nodes} sh -c 'ls /x; dmesg | tail'")
    assert "clush -w {nodes} 'sh -c '\"'\"'ls /x; dmesg | tail'\"'\"''" == quoted
    assert "" == deeds.without_job("mkdir -p reports && srun -w {nodes} hpslurm-check")
