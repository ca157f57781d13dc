"""Plans of a cluster's nodes: what the guard leaves, who waits for HyperPod, and what is only a consequence."""

from __future__ import annotations

import pytest

from hpslurm.cluster import guard
from hpslurm.cluster.model import CONTROLLER, WORKER, Instance, Member, Members
from hpslurm.cluster.plans import plans
from hpslurm.core import suggest
from hpslurm.core.finding import DRAIN, LOOK, P0, P1, REBOOT, REPLACE, Finding, Rule, Suggestion
from hpslurm.core.policy import Policy
from hpslurm.core.probe import Result
from hpslurm.core.records import Record
from hpslurm.show.plan import Plan
from hpslurm.sources.slurm import Queued, SlurmNode

LOST = Rule("gpu-lost", P0, "GPU lost", "debugging-guide.md § 7")
ERRORS = Rule("efa-errors", P1, "EFA errors", "debugging-guide.md § 6")
ADVICE = (
    Suggestion(LOOK, "look", "scontrol show node {nodes}"),
    suggest.save_evidence(),
    suggest.drain("gpu-lost"),
    suggest.reboot("first"),
    suggest.replace("later"),
)


def cluster(*special: Member, count: int = 20, name: str = "") -> Members:
    named = {member.name: member for member in special}
    names = [f"n{number}" for number in range(1, count + 1)]
    return Members(tuple(named.get(one) or Member(one, SlurmNode(one, "IDLE")) for one in names), 0.0, name)


def lost(*names: str) -> list[Finding]:
    return [LOST.found("1 of 8 GPUs lost", suggest=ADVICE, subject=name) for name in names]


def planned(members: Members, findings: list[Finding], policy: Policy | None = None) -> list[Plan]:
    results, rules = [Result("gpu", "fail", findings=tuple(findings))], policy or Policy()
    return plans(results, guard.scene_of(results, members, rules), rules)


def harms(plan: Plan) -> list[str]:
    return [step.harm for step in plan.steps]


def test_the_plan_of_nodes_names_its_own_nodes_only() -> None:
    slow = ERRORS.found("12 errors", suggest=[suggest.reboot("it may help")], subject="n5")
    first, second = planned(cluster(), [*lost("n2", "n3"), slow])
    assert [LOOK, LOOK, DRAIN, REBOOT, REPLACE] == harms(first)
    assert "nodename='n[2-3]' state=fail reason='Action:Reboot'" in first.steps[3].command
    assert ["sudo scontrol update nodename=n5 state=fail reason='Action:Reboot'"] == [
        step.command for step in second.steps
    ]


def test_a_controller_is_never_rebooted_and_the_plan_says_why() -> None:
    (plan,) = planned(cluster(Member("n1", SlurmNode("n1", "IDLE"), role=CONTROLLER)), lost("n1"))
    assert {REBOOT, REPLACE}.isdisjoint(harms(plan))
    assert "no reboot or replacement is suggested: this is the controller" in [step.why for step in plan.steps]


@pytest.mark.parametrize(("action", "doing"), [("Action:Replace", "replaces"), ("Action:Reboot", "reboots")])
def test_a_node_that_hyperpod_was_asked_to_take_waits(action: str, doing: str) -> None:
    (plan,) = planned(cluster(Member("n2", SlurmNode("n2", "IDLE", ("FAIL",), action))), lost("n2"))
    assert ("wait", f"HyperPod {doing} it (reason {action})", ()) == (plan.do, plan.waits, plan.steps)


def test_without_recovery_there_is_nothing_to_wait_for() -> None:
    off = Rule("action-no-recovery", P1, "Nothing will happen", "operations.md § 8").found("off", subject="n2")
    member = Member("n2", SlurmNode("n2", "IDLE", ("FAIL",), "Action:Replace"))
    (plan,) = planned(cluster(member), [*lost("n2"), off])
    assert "" == plan.waits


def test_a_node_under_hyperpods_hands_that_slurm_still_uses_is_drained_and_waits() -> None:
    instance = Instance("i-1", "g", "SystemUpdating", node="n2")
    (plan,) = planned(cluster(Member("n2", SlurmNode("n2", "IDLE"), role=WORKER, instance=instance)), lost("n2"))
    assert ([DRAIN], "drain, then wait") == (harms(plan), plan.do)


def test_so_many_at_once_are_one_cause_and_none_is_rebooted() -> None:
    everyone = [f"n{number}" for number in range(1, 11)]
    nodes, one_cause = planned(cluster(), lost(*everyone))
    assert ("cluster-one-cause",) == one_cause.rules
    assert {REBOOT, REPLACE}.isdisjoint(harms(nodes))
    assert 10 == len(nodes.nodes)


def test_25_nodes_at_most_are_asked_for_at_once_also_through_the_api() -> None:
    names = [f"n{number}" for number in range(1, 31)]
    members = [Member(name, SlurmNode(name, "IDLE"), instance_id=f"i-{name}") for name in names]
    (plan,) = planned(cluster(*members, count=200, name="demo"), lost(*names))
    reboots = [step.command for step in plan.steps if step.harm == REBOOT]
    assert 4 == len(reboots)
    assert [25, 5] == [command.count(" i-n") for command in reboots if command.startswith("aws ")]


def test_the_jobs_that_a_reboot_ends_are_named() -> None:
    job = Queued(7, "RUNNING", "alice", 1, "p", 1, None, None, "n2", "")
    (plan,) = planned(cluster(Member("n2", SlurmNode("n2", "ALLOCATED"), jobs=(job,))), lost("n2"))
    assert "jobs there: 7 of alice" in next(step.why for step in plan.steps if step.harm == REBOOT)


def test_errors_of_the_one_sick_nodes_partners_are_its_consequence() -> None:
    def ran(name: str, job: int) -> Member:
        return Member(name, SlurmNode(name, "IDLE"), record=Record(name, "epilog", {"job": job}, ()))

    members = cluster(ran("n1", 7), ran("n2", 7), ran("n3", 8))
    errors = [ERRORS.found("12 errors", suggest=[ADVICE[0]], subject=name) for name in ("n1", "n3")]
    explained = {plan.nodes: plan.troubles[0].explained for plan in planned(members, [*lost("n2"), *errors])}
    assert {("n2",): "", ("n1",): "n2", ("n3",): ""} == explained
