"""Much fails at once: one cause, one finding, one plan, and no machine that drowns out the others."""

from __future__ import annotations

import json

import pytest

from hpslurm.cluster.aws import instances as judge
from hpslurm.cluster.aws import many
from hpslurm.core.policy import Policy
from hpslurm.sources import aws
from tests.cluster.aws.looking import HARDWARE, WORKERS, World, identity, look
from tests.cluster.aws.test_hyperpod import NOW, ONE


@pytest.fixture(autouse=True)
def no_pause(monkeypatch):
    monkeypatch.setattr(aws, "LOG_PAUSE", 0.0)


def all_workers(**about):
    world = World()
    for number in range(1, 9):
        world.set(number, **about)
    return world


def test_eight_failed_instances_that_still_take_jobs_are_one_cause(tmp_path):
    seen = look(tmp_path, all_workers(status="Failure", message=HARDWARE))
    found = seen.one("cluster-one-cause")
    assert "8 of 8 nodes are in trouble at once" in found.detail
    assert f"8 of them with message '{HARDWARE}'" in found.detail
    assert any("open one case with AWS Support" in item.why for item in found.suggestions)
    assert not any("Action:" in command or "batch-" in command for command in seen.commands())
    assert "sudo scontrol update nodename='ip-10-1-0-[1-8]' state=drain" in seen.text  # one command for all


def test_three_of_eight_are_told_one_by_one(tmp_path):
    world = World()
    for number in (1, 2, 3):
        world.set(number, status="Failure")
    seen = look(tmp_path, world)
    assert "cluster-one-cause" not in seen.ids()
    assert f"{identity(2)} has status Failure" in seen.one("hyperpod-instance-failed", "ip-10-1-0-2").detail


def test_nodes_that_hyperpod_updates_are_no_trouble_however_many(tmp_path):
    seen = look(tmp_path, all_workers(status="SystemUpdating").silent(*range(1, 9)))
    assert "cluster-one-cause" not in seen.ids()
    assert [] == seen.changes()


def test_the_sites_share_decides_what_is_much(tmp_path):
    world = World()
    for number in range(1, 5):
        world.set(number, status="Failure")
    assert "cluster-one-cause" in look(tmp_path, world).ids()
    assert "cluster-one-cause" not in look(tmp_path, world, policy=Policy(guard_share=0.5)).ids()


def big(total, bad, **about):
    """A large cluster of which Slurm knows every node, and every third of the first is ill."""
    world = World()
    world.slurm = {}
    for number in range(1, 9):
        del world.nodes[number]
    for number in range(1, total + 1):
        address = f"10.1.{4 + number // 250}.{number % 250 + 1}"
        ill = about if number % 3 == 0 and number <= 3 * bad else {}
        world.nodes[1000 + number] = {"group": WORKERS, "first": address, "id": identity(number), **ill}
        world.slurm[f"ip-{address.replace('.', '-')}"] = {"state": ["IDLE"]}
    world.groups[WORKERS].update(CurrentCount=total, TargetCount=total)
    return world


def test_six_hundred_failed_instances_of_two_thousand_are_a_report_that_can_be_read(tmp_path):
    seen = look(tmp_path, big(2000, 600, status="Failure", message=HARDWARE))
    assert seen.text.count("\n") < 80
    assert 0 == seen.text.count("describe-cluster-node ")
    assert 1 == seen.text.count("InstanceStatus.Status==")
    assert "600 of 2,000 nodes are in trouble at once" in seen.text
    assert "600 of 2000 instances of worker-group-1 have status Failure" in seen.text
    assert sum(seen.calls.values()) < 45


@pytest.mark.parametrize("status", ["Pending", "SystemUpdating", "NotFound", "Quarantined"])
def test_any_other_state_of_many_is_short_as_well(tmp_path, status):
    seen = look(tmp_path, big(200, 60, status=status, hours=0.5), slurm=False)
    assert seen.text.count("\n") < 60
    assert 0 == seen.text.count("describe-cluster-node ")


def test_many_faults_scripts_and_events_of_one_kind_are_told_once(tmp_path):
    world = all_workers(status="Failure")
    for number in range(1, 9):
        world.agent(number, number, "NvidiaErrorTerminate")
        world.script(number, "An error occurred (AccessDenied) when calling the GetObject operation")
        text = f"Instance lifecycle script execution for EC2 Instance {identity(number)} has Failed."
        world.event(number, text, instance=identity(number))
    seen = look(tmp_path, world)
    for rule, words in (
        ("agent-fault", "8 of a kind, the last 1 minutes ago: Xid 79; the agent asks for a replacement"),
        ("lifecycle-failed", "8 of a kind"),
        ("event-lifecycle-failed", "8 of a kind, the last 1 minutes ago"),
    ):
        details = {finding.detail for finding in seen.findings if finding.rule.id == rule}
        assert 1 == len(details), details
        assert words in details.pop()
    assert 1 == seen.text.count("aws logs tail")
    assert 0 == seen.text.count("describe-cluster-event ")


def test_three_of_a_kind_keep_their_own_words_and_four_do_not():
    from hpslurm.cluster.model import Cluster
    from hpslurm.core.values import replace

    cluster = Cluster("", "", "demo", "InService", ())
    for number, own in ((many.MANY, True), (many.MANY + 1, False)):
        alike = tuple(replace(ONE, id=f"i-{n}", node=f"n{n}", status="Failure") for n in range(number))
        details = [finding.detail for finding in judge.judge(judge.Facts(cluster, alike, NOW), Policy())]
        assert own == all(f"i-{n} has status" in detail for n, detail in enumerate(details))


# one machine that writes without end


def noise(reason, number, minutes):
    text = {"details: ": {"reason": reason, "message": f"NVRM: Xid (PCI:0000:b9:00): 13, pid {10000 + number}"}}
    return {
        "stream": f"SagemakerHealthMonitoringAgent/{WORKERS}/{identity(1)}",
        "minutes": minutes,
        "text": json.dumps({**text, "HealthMonitoringAgentDetectionEvent": "HealthEvent"}),
    }


@pytest.mark.parametrize("reason", ["XidUserAppError", "ThermalViolation"])
def test_a_machine_that_writes_without_end_does_not_hide_the_fault_of_another(tmp_path, reason):
    world = World()
    world.more["logs"] = [noise(reason, number, number / 100) for number in range(9000)]
    seen = look(tmp_path, world.agent(7, 100))
    assert "agent-fault" in seen.ids("ip-10-1-0-7")
    loud = [finding for finding in seen.of("ip-10-1-0-1") if finding.rule.id.startswith("agent-")]
    assert 1 == len(loud) and "at least 50 times" in loud[0].detail
    assert seen.calls["logs:FilterLogEvents"] < 45


def test_where_not_all_could_be_read_the_machine_that_wrote_most_is_named(tmp_path):
    world = World()
    world.more |= {"log_page": 100, "logs": [noise("ThermalViolation", n, n / 100) for n in range(9000)]}
    seen = look(tmp_path, world)
    assert "only the first 50 read: stopped after 40 pages; most lines are of SagemakerHealth" in seen.notes
