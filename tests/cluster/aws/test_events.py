from __future__ import annotations

import pytest

from hpslurm.cluster.aws import events
from hpslurm.cluster.aws.events import ClusterEvent, Facts
from hpslurm.core.policy import Policy
from hpslurm.core.values import replace
from tests.cluster.aws.looking import WORKERS, World, look
from tests.cluster.aws.test_hyperpod import HEALTHY, NOW, ONE, with_group

FAILED = "Failed to provision EC2 Instance in Cluster demo and InstanceGroup worker-group-1"
CREATION = "Instance creation in Cluster demo failed"
PROVISIONED = "EC2 Instance i-0123456789abcdef0 successfully provisioned in Cluster demo"
NOT_READY = "2 node(s) lost orchestration-ready status. Current: 6/8"


def event(text, minutes=10.0, **changes):
    return ClusterEvent(
        f"event-{text[:8]}-{minutes}", NOW - minutes * 60, text, **{"group": "worker-group-1", **changes}
    )


def findings(*happened, cluster=HEALTHY):
    return list(events.judge(Facts(happened, cluster, (ONE,), NOW), Policy()))


def ids(*happened, **kwargs):
    return [(finding.rule.id, finding.subject) for finding in findings(*happened, **kwargs)]


@pytest.mark.parametrize("row", events.table(), ids=lambda row: row.id)
def test_every_text_is_recognised_by_its_own_row(row):
    assert row == events.kind_of(event(row.example))


@pytest.mark.parametrize("row", events.table(), ids=lambda row: row.id)
def test_errors_and_warnings_are_findings_and_the_rest_is_none(row):
    expected = [(row.id, "worker-group-1")] if row.rule else []
    assert expected == ids(event(row.example))
    assert (row.rule is not None) == (row.level != "Info")


def test_rows_that_end_another_exist():
    known = {row.id for row in events.table()}
    assert set() == {one for row in events.table() for one in row.ended_by} - known


def test_the_level_that_aws_sends_counts_before_ours():
    assert [] == ids(event(FAILED, level="Info"))


def test_a_text_that_we_do_not_know_is_no_finding():
    assert [] == ids(event("The weather is fine", level="Info"))


def test_the_two_texts_of_one_failure_are_one_event():
    found = findings(event(CREATION, 10 - 1 / 60), event(FAILED, 10))
    assert [("event-provision-failed", 1)] == [(one.rule.id, len(one.evidence)) for one in found]


def test_failures_a_minute_apart_are_two():
    found = findings(event(FAILED, 9), event(FAILED, 10))
    assert ["2 times, last 9 minutes ago: " + FAILED] == [one.detail for one in found]


def test_a_later_success_makes_a_failure_history():
    assert [] == ids(event(PROVISIONED, 5), event(FAILED, 10))
    assert [("event-provision-failed", "worker-group-1")] == ids(event(PROVISIONED, 15), event(FAILED, 10))


def test_a_success_does_not_count_while_the_group_is_short():
    short = with_group(current=3)
    assert [("event-provision-failed", "worker-group-1")] == ids(event(PROVISIONED, 5), event(FAILED), cluster=short)


def test_a_success_of_another_group_ends_nothing():
    elsewhere = event(PROVISIONED, 5, group="worker-group-2")
    assert [("event-provision-failed", "worker-group-1")] == ids(elsewhere, event(FAILED))


def test_nodes_not_ready_while_scaling_is_noise():
    assert [("event-not-ready", "worker-group-1")] == ids(event(NOT_READY))
    assert [] == ids(event(NOT_READY), cluster=with_group(current=3))


def test_an_event_of_an_instance_is_told_of_its_node():
    assert [("event-reboot-failed", "ip-10-1-0-1")] == ids(event("Failed to submit reboot request", instance=ONE.id))


def test_the_failure_message_says_the_cause():
    found = findings(event(FAILED, failure="EFA health checks did not run successfully"))[0]
    assert "a security group lacks the rule to itself" in found.detail


def test_the_cause_is_found_on_either_of_the_two_texts():
    for first, second in (("sufficient capacity", ""), ("", "sufficient capacity")):
        found = findings(event(CREATION, 10 - 1 / 60, failure=second), event(FAILED, 10, failure=first))
        assert [True] == [one.detail.endswith("no capacity for this instance type") for one in found]


def test_details_are_asked_for_the_newest_of_each_group_and_text_only():
    happened = [
        event(FAILED, 10),
        event(FAILED, 5),
        event(FAILED, 7, group="b"),
        event(PROVISIONED, 1),
        event(NOT_READY),
    ]
    assert [5.0, 7.0] == [(NOW - one.time) / 60 for one in events._worth_details(happened)]


def test_a_failure_message_is_found_in_any_branch():
    assert "no room" == events._failure({"EventDetails": {"New": {"Deep": [{"FailureMessage": "no room"}]}}})


def test_times_and_levels_are_read_under_their_real_names():
    raw = {"EventId": "1", "Description": "x", "EventLevel": "Warn", "InstanceId": "i-1", "InstanceGroupName": "g"}
    assert ClusterEvent("1", 0.0, "x", "Warn", "g", "i-1") == events.parse(raw)
    assert replace(events.parse(raw), level="") == events.parse(raw | {"EventLevel": None})


@pytest.mark.parametrize(("minutes", "found"), [(24 * 60 - 2, True), (24 * 60 + 2, False)])
def test_events_of_a_day_are_asked_for_whatever_is_read_of_logs(tmp_path, minutes, found):
    seen = look(tmp_path, World().event(minutes, FAILED))
    assert found == ("event-provision-failed" in seen.ids(WORKERS))
