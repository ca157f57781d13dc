"""Limits of the looks from the controller: at each one and a step beside it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hpslurm.cluster import job_stalled, keeps_failing, node_records, node_rows, queue, reasons, slurm_conf, view
from hpslurm.cluster.aws import events, hyperpod
from hpslurm.cluster.aws.events import ClusterEvent
from hpslurm.cluster.aws.security_groups import SgRule
from hpslurm.cluster.model import Cluster, Member, Members
from hpslurm.core.finding import P0, Rule
from hpslurm.core.policy import Policy
from hpslurm.core.probe import Unknown
from hpslurm.node.job_activity import DIFFERS, WAITS
from hpslurm.show.plan import Plan, plans
from hpslurm.sources.host import Host
from hpslurm.sources.slurm import Queued, SlurmNode


@pytest.mark.parametrize(
    ("minutes", "words"),
    [(119.9, "119 minutes"), (120, "2 hours"), (179, "2 hours"), (48 * 60 - 1, "47 hours"), (48 * 60, "2 days")],
)
def test_a_time_is_told_in_the_unit_a_person_would_use(minutes: float, words: str) -> None:
    assert words == hyperpod.span(minutes)


@pytest.mark.parametrize(("seconds", "words"), [(-5, "0 min ago"), (7199, "119 min ago"), (7200, "2 h ago")])
def test_the_age_of_a_record_is_told_in_minutes_for_two_hours(seconds: float, words: str) -> None:
    assert words == node_rows._age(seconds)


@pytest.mark.parametrize(
    ("ports", "words"),
    [((-1, -1), "tcp all ports from sg-1"), ((0, 0), "tcp 0 from sg-1"), ((22, 22), "tcp 22 from sg-1"),
     ((0, 65535), "tcp 0-65535 from sg-1")],
)  # fmt: skip
def test_the_ports_of_a_rule(ports: tuple[int, int], words: str) -> None:
    assert words == str(SgRule("sg-1", False, "tcp", "sg-1", ports=ports))


def test_a_rule_that_names_no_ports_is_for_all() -> None:
    assert (-1, -1) == SgRule("sg-1", False, "tcp").ports


def test_one_command_names_at_most_a_hundred_jobs() -> None:
    jobs = [Queued(number, "PENDING", "a", 1, "all", 1, None, None, "", "None") for number in range(101)]
    assert [str(number) for number in range(100)] == queue._ids(jobs).split()


@pytest.mark.parametrize(("nodes", "lines"), [(512, [512]), (513, [512, 1])])
def test_one_srun_looks_at_no_more_than_512_nodes(nodes: int, lines: list[int]) -> None:
    names = [f"n{number}" for number in range(nodes)]
    members = Members(tuple(Member(name, SlurmNode(name, "IDLE")) for name in names), 0.0)
    (finding,) = node_records._without_record(names, members, Policy()).findings
    assert [f"look at {count} of them now" for count in lines] == [one.why for one in finding.suggestions[:-1]]


def include(host_with: Callable[..., Host], files: int) -> set[str]:
    texts = {f"/etc/{number}.conf": f"include {number + 1}.conf\n" for number in range(files)}
    host = host_with({**texts, f"/etc/{files}.conf": "NodeName=n[1-2]\n"})
    return slurm_conf.nodes_of(host, "/etc/0.conf")


def test_files_may_include_one_another_five_deep(host_with: Callable[..., Host]) -> None:
    assert {"n1", "n2"} == include(host_with, 5)
    with pytest.raises(Unknown, match="more than 5 deep"):
        include(host_with, 6)


def test_of_slurm_conf_sixteen_mebibytes_are_read(host_with: Callable[..., Host]) -> None:
    for length, names in ((16 << 20, {"n1"}), ((16 << 20) + 1, set())):
        text = "#" * (length - len("\nNodeName=n1")) + "\nNodeName=n1"
        found = slurm_conf.nodes_of(host_with({"/etc/slurm.conf": text}), "/etc/slurm.conf")
        assert names == found - {"n"}


@pytest.mark.parametrize(
    ("seen", "wanted", "alike"),
    [
        ("reboot", "reboot", True),
        ("rebot", "reboot", True),  # 10 of 11 letters
        ("rboo", "reboot", True),  # 8 of 10
        ("roo", "reboot", False),  # 6 of 9
        ("reploc", "replace", False),  # 10 of 13
        ("replacexxx", "replace", True),  # 14 of 17, three letters more
        ("replacexxxx", "replace", False),
    ],
)
def test_what_has_nearly_the_letters_of_an_action_was_meant_to_be_one(seen: str, wanted: str, alike: bool) -> None:
    assert alike == reasons._alike(seen, wanted)


FAILED = "Failed to provision EC2 Instance in Cluster demo and InstanceGroup worker-group-1"
CREATION = "Instance creation in Cluster demo failed"


@pytest.mark.parametrize(("seconds", "times"), [(5.0, 1), (5.1, 2)])
def test_the_two_texts_of_one_failure_come_within_five_seconds(seconds: float, times: int) -> None:
    happened = (
        ClusterEvent("a", 10_000.0, FAILED, group="worker-group-1"),
        ClusterEvent("b", 10_000.0 + seconds, CREATION, group="worker-group-1"),
    )
    cluster = Cluster("arn", "id", "demo", "InService", ())
    (finding,) = events.judge(events.Facts(happened, cluster, (), 20_000.0), Policy())
    assert times == len(finding.evidence)


def test_a_cluster_has_no_history_of_events_and_a_row_counts_unless_they_say_so() -> None:
    assert not Cluster("arn", "id", "demo", "InService", ()).continuous
    assert {False, True} == {row.noise_while_scaling for row in events.table()}


@pytest.mark.parametrize(("chance", "words"), [(0.0001, "0.01 % by chance"), (0.00009, "less than 0.01 % by chance")])
def test_a_chance_below_a_hundredth_of_a_percent_is_told_as_less(chance: float, words: str) -> None:
    assert words == keeps_failing.by_chance(chance)


@pytest.mark.parametrize(("traces", "shown"), [(6, 6), (7, 6)])
def test_six_traces_of_a_node_that_keeps_failing_are_shown(traces: int, shown: int) -> None:
    line = {"failures": 9, "jobs": 40, "node_hours": 210.0, "expected": 0.8, "ratio": 5.6, "chance": 0.5, "gpu": "",
            "node": "n7", "evidence": [{"source": "record", "text": str(at)} for at in range(traces)]}  # fmt: skip
    assert 1 + shown == len(keeps_failing.found(line, 0.0).evidence)


@pytest.mark.parametrize(("waiting", "stands"), [(2, False), (3, True)])
def test_a_job_stands_where_most_of_its_nodes_wait(waiting: int, stands: bool) -> None:
    shares = tuple(
        job_stalled.Share(f"n{number}", WAITS if number < waiting else DIFFERS, 0.0, 3600.0, 8) for number in range(4)
    )
    assert stands is (job_stalled._stands(shares, 3600.0, Policy()) is not None)


def grave(*nodes: str, waits: str = "") -> list[Plan]:
    """A plan for each node; one without a name is of the cluster itself."""
    rules = [Rule(f"efa-{number}", P0, f"Title {number}", "x") for number in range(len(nodes))]
    made = plans(rule.found("d", subject=node) for rule, node in zip(rules, nodes, strict=True))
    return [Plan(plan.nodes, plan.troubles, plan.steps, waits) for plan in made]


@pytest.mark.parametrize(
    ("plan", "nodes", "words"),
    [
        (grave("n1"), 1, "1 of 1 node needs attention"),
        (grave("n1", "n2"), 2, "2 of 2 nodes need attention"),
        (grave("n1", waits="x"), 3, "1 of 3 nodes waits for HyperPod"),
        (grave("n1", "n2", waits="x"), 3, "2 of 3 nodes wait for HyperPod"),
        (grave(""), 1, "1 trouble of the cluster itself, none of its 1 node"),
        (grave("", "s1"), 2, "2 troubles of the cluster itself, none of its 2 nodes"),
    ],
)
def test_one_is_told_as_one(plan: list[Plan], nodes: int, words: str) -> None:
    members = Members(tuple(Member(f"n{number}") for number in range(1, nodes + 1)), 0.0)
    assert f"Cluster: {words}" == view._headline(plan, members, partly=False)


@pytest.mark.parametrize(("nodes", "more"), [(("n1",), 0), (("n1", "n2"), 1)])
def test_of_several_nodes_one_alone_may_be_looked_at(nodes: tuple[str, ...], more: int) -> None:
    assert more == sum(words.startswith("with --node") for words in view._more(grave("n1")[0], nodes))
