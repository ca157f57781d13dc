"""Limits of the looks from the controller: at each one and a step beside it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hpslurm.cluster import node_records, node_rows, queue, reasons, slurm_conf
from hpslurm.cluster.aws import events, hyperpod
from hpslurm.cluster.aws.events import ClusterEvent
from hpslurm.cluster.aws.security_groups import SgRule
from hpslurm.cluster.model import Cluster, Member, Members
from hpslurm.core.policy import Policy
from hpslurm.core.probe import Unknown
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
