"""Every state of a Slurm node together with every state of its instance."""

from __future__ import annotations

import pytest

from hpslurm.cluster import guard, join, matrix
from hpslurm.cluster.aws.hyperpod import WORKING
from hpslurm.cluster.model import CONTROLLER, LOGIN, WORKER, Member, Members
from hpslurm.core import suggest
from hpslurm.core.finding import REBOOT, Suggestion
from hpslurm.core.policy import Policy
from hpslurm.core.probe import Result
from hpslurm.core.values import replace
from hpslurm.sources.slurm import Queued, SlurmNode
from tests.cluster.aws.test_hyperpod import HEALTHY, NOW, ONE, with_group

SHORT = with_group(current=3)
NODES = {
    matrix.ABSENT: None,
    matrix.UP: SlurmNode("ip-10-1-0-1", "IDLE", ("CLOUD",)),
    matrix.ACTION: SlurmNode("ip-10-1-0-1", "DOWN", ("FAIL", "NOT_RESPONDING"), "Action:Replace : Not responding"),
    matrix.MISSPELT: SlurmNode("ip-10-1-0-1", "IDLE", ("DRAIN",), "action:replace"),
    matrix.REBOOTED: SlurmNode("ip-10-1-0-1", "DOWN", (), "Node unexpectedly rebooted"),
    matrix.GPU_COUNT: SlurmNode(
        "ip-10-1-0-1", "IDLE", ("DRAIN", "INVALID_REG"), "gres/gpu count reported lower than configured (7 < 8)"
    ),
    matrix.KILL_TASK: SlurmNode("ip-10-1-0-1", "IDLE", ("DRAIN",), "Kill task failed"),
    matrix.PROLOG: SlurmNode("ip-10-1-0-1", "IDLE", ("DRAIN",), "Prolog error"),
    matrix.SILENT: SlurmNode("ip-10-1-0-1", "DOWN", ("NOT_RESPONDING",), "Not responding"),
    matrix.OUT: SlurmNode("ip-10-1-0-1", "IDLE", ("DRAIN",), "looking at it"),
}
INSTANCES = {
    "none": None,
    "NotFound": replace(ONE, status="NotFound"),
    "Running": ONE,
    "Failure": replace(ONE, status="Failure"),
    "Hibernating": replace(ONE, status="Hibernating"),  # no such status exists, yet
    **{status: replace(ONE, status=status) for status in WORKING},
}
LEAVING = ("ShuttingDown", "SystemUpdating", "DetachInProgress")
COMING = ("Pending", "AttachInProgress")


def member(here, there, role=WORKER):
    return Member("ip-10-1-0-1", slurm=NODES[here], instance=INSTANCES[there], role=role)


ANSWERS = (matrix.UP, matrix.MISSPELT, matrix.GPU_COUNT, matrix.KILL_TASK, matrix.PROLOG, matrix.OUT)


def expected(here, there):
    """Part of the words, the rule's id, and whether hands are off: the whole matrix, written a second time."""
    if here == matrix.ABSENT:
        if there in WORKING:
            return "wait", None, True
        return {
            "Running": ("Slurm does not know it", "join-not-registered", False),
            "Hibernating": ("the status Hibernating, which hpslurm does not know", None, True),
        }.get(there)
    if here == matrix.ACTION:
        return "leave it alone", None, True
    if there in ("none", "NotFound"):
        if here in ANSWERS:
            return "do not remove the node", "join-not-listed", False
        return "left over after a scale-in", "join-no-instance", True
    if there == "Hibernating":
        return "look at it before any change", None, True
    if here == matrix.UP:
        if there == "Failure":
            return "drain it", "join-failed-in-use", False
        if there in LEAVING:
            return "they will die", "join-lost-in-use", False
        if there in COMING or there == "DeepHealthCheckInProgress":
            return "wait", None, True
        return None
    if there in WORKING:
        return "wait; no command", "join-wait", True
    if there == "Failure":
        return "HyperPod calls the instance failed too", None, False
    return (
        {
            matrix.REBOOTED: "agent log and Xid first, and resume",
            matrix.SILENT: "check slurmd on the node, only then reboot",
            matrix.KILL_TASK: "not hardware",
            matrix.GPU_COUNT: "restart slurmd",
            matrix.PROLOG: "a hook returned non-zero",
            matrix.MISSPELT: "nothing will happen",
            matrix.OUT: "the reason says who took it out",
        }[here],
        None,
        False,
    )


@pytest.mark.parametrize("there", INSTANCES)
@pytest.mark.parametrize("here", NODES)
def test_every_combination_has_its_reading(here, there):
    reading = matrix.read(member(here, there), HEALTHY, NOW)
    wanted = expected(here, there)
    assert (wanted is None) == (reading is None)
    if wanted:
        words, rule, hands_off = wanted
        assert words in reading.words
        assert (rule, hands_off) == (reading.rule.id if reading.rule else None, reading.hands_off)


@pytest.mark.parametrize("here", NODES)
def test_slurms_side_is_told_in_one_word(here):
    assert here == matrix.of_slurm(NODES[here])


def test_an_old_reason_on_a_node_that_is_in_use_says_nothing():
    assert matrix.UP == matrix.of_slurm(SlurmNode("n", "IDLE", (), "Action:Replace"))


@pytest.mark.parametrize("role", [CONTROLLER, LOGIN])
def test_controllers_and_login_nodes_need_not_be_in_slurm(role):
    assert matrix.read(member(matrix.ABSENT, "Running", role), HEALTHY, NOW) is None
    assert matrix.read(member(matrix.UP, "none", role), HEALTHY, NOW) is None


def test_an_instance_has_ten_minutes_to_register():
    for minutes, rule in ((9, "join-registering"), (10, "join-not-registered")):
        one = replace(member(matrix.ABSENT, "Running"), instance=replace(ONE, launched=NOW - minutes * 60))
        assert rule == matrix.read(one, HEALTHY, NOW).rule.id


def test_where_nobody_knows_the_role_a_missing_node_is_no_fault():
    assert matrix.read(member(matrix.ABSENT, "Running", ""), HEALTHY, NOW).rule is None


@pytest.mark.parametrize(
    ("minutes", "cluster", "rule", "words"),
    [
        (89, SHORT, "join-between-attempts", "wait 90 minutes"),
        (90, SHORT, "join-no-instance", "capacity is missing"),
        (89, HEALTHY, "join-no-instance", "left over"),
    ],
)
def test_a_node_without_an_instance_may_wait_for_one_while_a_group_is_short(minutes, cluster, rule, words):
    node = replace(NODES[matrix.SILENT], reason_time=int(NOW - minutes * 60))
    reading = matrix.read(Member("ip-10-1-0-1", slurm=node, role=WORKER), cluster, NOW)
    assert (rule, True) == (reading.rule.id, words in reading.words)


def judged(*members, cluster=HEALTHY):
    return [(one.rule.id, one.subject) for one in matrix.judge(matrix.Facts(Members(members, NOW), cluster), Policy())]


def test_only_contradictions_become_findings_with_both_sides_as_evidence():
    assert [] == judged(member(matrix.KILL_TASK, "Running"), member(matrix.UP, "Running"))
    assert [("join-failed-in-use", "ip-10-1-0-1")] == judged(member(matrix.UP, "Failure"))
    found = next(matrix.judge(matrix.Facts(Members((member(matrix.UP, "Failure"),), NOW), HEALTHY), Policy()))
    assert ["Slurm: IDLE+CLOUD", "HyperPod: i-0123456789abcdef0 of worker-group-1: Failure, launched 24 hours ago"] == [
        f"{one.source}: {one.text}" for one in found.evidence
    ]


@pytest.mark.parametrize("there", ["Pending", "ShuttingDown", "SystemUpdating", "DeepHealthCheckInProgress"])
def test_no_reboot_is_suggested_for_a_node_that_hyperpod_works_on(there):
    rule = matrix.NOT_REGISTERED
    finding = rule.found("x", suggest=[Suggestion(REBOOT, "why", "boot {nodes}")], subject="ip-10-1-0-1")
    for status, left in ((there, []), ("Running", [REBOOT])):
        members = Members((member(matrix.SILENT, status),), NOW)
        (result,) = guard.apply([Result("x", "fail", findings=(finding,))], members, Policy())
        assert left == [one.harm for one in result.findings[0].suggestions if one.harm == REBOOT]


def test_a_reboot_is_suggested_in_both_forms_with_the_real_id_and_region():
    finding = matrix.NOT_REGISTERED.found("x", suggest=[suggest.reboot("why")], subject="ip-10-1-0-1")
    members = Members((member(matrix.SILENT, "Running"),), NOW, "demo", region="us-west-2")
    members = replace(members, members=(replace(members.members[0], instance_id=ONE.id),))
    (result,) = guard.apply([Result("x", "fail", findings=(finding,))], members, Policy())
    assert [
        "sudo scontrol update nodename=ip-10-1-0-1 state=fail reason='Action:Reboot'",
        f"aws sagemaker batch-reboot-cluster-nodes --cluster-name demo --region us-west-2 --node-ids {ONE.id}",
    ] == [one.command for one in result.findings[0].suggestions if one.harm == REBOOT]


def test_a_node_in_use_that_hyperpod_takes_away_may_be_drained():
    (finding,) = matrix.judge(matrix.Facts(Members((member(matrix.UP, "ShuttingDown"),), NOW), HEALTHY), Policy())
    members = Members((member(matrix.UP, "ShuttingDown"),), NOW)
    (result,) = guard.apply([Result("x", "fail", findings=(finding,))], members, Policy())
    assert ["look", "drain"] == [one.harm for one in result.findings[0].suggestions]


def test_slurms_findings_get_hyperpods_word_beside_them():
    from hpslurm.cluster import slurm_nodes

    members = Members((member(matrix.SILENT, "Running"),), NOW)
    (finding,) = matrix.beside(slurm_nodes.judge(members, Policy()), members, HEALTHY)
    assert [
        ("HyperPod", "i-0123456789abcdef0 of worker-group-1: Running, launched 24 hours ago"),
        ("together", "the instance runs: slurmd or the network; check slurmd on the node, only then reboot"),
    ] == [(one.source, one.text) for one in finding.evidence[-2:]]


# the join itself


def joined(nodes, instances, **more):
    members = join.join(nodes, NOW, instances=instances, **more).members
    return [(one.name, one.instance.id if one.instance else "") for one in members]


def test_the_host_name_joins_a_node_to_its_instance_and_to_no_longer_one():
    nodes = [SlurmNode("ip-10-1-0-1", "IDLE"), SlurmNode("ip-10-1-0-10", "IDLE")]
    assert [("ip-10-1-0-1", ONE.id), ("ip-10-1-0-10", "")] == joined(nodes, [ONE])


def test_without_a_host_name_the_id_of_hyperpods_own_files_joins_else_the_address():
    nameless = replace(ONE, node="", address="")
    assert [("n1", ONE.id)] == joined([SlurmNode("n1", "IDLE")], [nameless], instance_ids={"n1": ONE.id})
    assert [("n1", ONE.id)] == joined([SlurmNode("n1", "IDLE", address="10.1.0.1")], [ONE])


def test_while_a_node_is_being_replaced_the_newer_instance_counts():
    old = replace(ONE, id="i-0fedcba9876543210", status="ShuttingDown", launched=NOW - 99999)
    new = replace(ONE, status="Pending", launched=NOW - 60)
    assert [("ip-10-1-0-1", new.id), (old.id, old.id)] == joined([SlurmNode("ip-10-1-0-1", "DOWN")], [new, old])


def test_an_instance_that_is_no_node_of_slurm_comes_last():
    assert [("n1", ""), ("ip-10-1-0-1", ONE.id)] == joined([SlurmNode("n1", "IDLE")], [ONE])


def test_the_role_and_the_id_come_from_aws_before_the_files():
    one = replace(ONE, role=WORKER)
    (member,) = join.join(
        [SlurmNode(ONE.node, "IDLE")],
        NOW,
        instances=[one],
        roles={ONE.node: CONTROLLER},
        instance_ids={ONE.node: "i-0fedcba9876543210"},
        queue=[Queued(7, "RUNNING", "ann", 1, "gpu", 1, None, None, ONE.node, "")],
    ).members
    assert (WORKER, ONE.id, 7) == (member.role, member.instance_id, member.jobs[0].id)


def test_a_stuck_action_is_not_stuck_once_another_instance_came():
    from hpslurm.cluster import slurm_nodes

    node = replace(NODES[matrix.ACTION], reason_time=int(NOW - 7200))
    for launched, rule in ((NOW - 86400, "action-stuck"), (NOW - 600, "action-under-way")):
        one = Member("ip-10-1-0-1", slurm=node, instance=replace(ONE, launched=launched), role=WORKER)
        found = list(slurm_nodes.judge(Members((one,), NOW), Policy()))
        assert [rule] == [finding.rule.id for finding in found]
