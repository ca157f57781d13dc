"""Operations that HyperPod lists as under way, and automatic patching: told, and no node acted on."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import pytest

from hpslurm.cluster.aws import patching
from hpslurm.cluster.aws.hyperpod import IDLE_WAIT_SECONDS, parse_cluster
from hpslurm.core.finding import Rule
from hpslurm.core.policy import Policy
from tests.cluster.aws.looking import ARN, WORKERS, World, group, look

NOW = 1_800_000_000.0
DAY = 86400.0


@pytest.mark.parametrize(("kind", "words"), [("Scaling", "come or go"), ("DeepHealthCheck", "one to two hours")])
def test_an_operation_in_progress_is_told_with_its_age_and_how_to_see_more(tmp_path, kind, words):
    world = World()
    world.more["operations"] = [{"type": kind, "minutes": 40}]
    seen = look(tmp_path, world)
    finding = seen.one("hyperpod-operation", "demo")
    assert (True, True) == (finding.detail.startswith(f"{kind}, begun 40 minutes ago: "), words in finding.detail)
    (command,) = [item.command for item in finding.suggestions]
    assert command.startswith("aws sagemaker describe-cluster-operation --cluster-name demo --region us-west-2 ")
    assert "--operation-id 00000000-1111-4111-8111-000000000000" in command
    assert [] == seen.changes()


@pytest.mark.parametrize("status", ["Done", "Superseded"])
def test_an_operation_that_is_over_is_nothing_to_tell(tmp_path, status):
    world = World()
    world.more["operations"] = [{"type": "Scaling", "status": status}]
    assert "hyperpod-operation" not in look(tmp_path, world).ids()


def test_an_operation_of_a_type_that_is_new_is_shown_as_it_came(tmp_path):
    world = World()
    world.more["operations"] = [{"type": "Defragment"}]
    assert "type Defragment" in look(tmp_path, world).one("hyperpod-value-unknown", "demo").detail


def test_without_the_permission_it_is_unknown_and_said_once(tmp_path):
    world = World()
    world.more["trouble"] = [{"operation": "ListClusterOperations", "kind": "denied"}]
    seen = look(tmp_path, world)
    assert [("hyperpod_operations", "unknown")] == [
        (result.probe, result.outcome) for result in seen.results if "ListClusterOperations" in result.note
    ]
    assert 1 == seen.text.count("grant sagemaker:ListClusterOperations")


def test_a_cluster_that_has_no_such_list_is_no_fault(tmp_path):
    world = World()
    world.more["trouble"] = [{"operation": "ListClusterOperations", "kind": "validation"}]
    assert [("hyperpod_operations", "skip")] == [
        (result.probe, result.outcome) for result in look(tmp_path, world).results if "operations" in result.probe
    ]


def judged(begins: float | None, strategy: str = "WhenIdle", **more: Any) -> list[tuple[Rule, str]]:
    schedule = {} if begins is None else {"NextPatchDate": datetime.fromtimestamp(begins, timezone.utc)}
    config = {"PatchingStrategy": strategy, "CurrentPatchSchedule": schedule, **more}
    raw = {"ClusterArn": ARN, "ClusterName": "demo", "ClusterStatus": "InService"}
    cluster = parse_cluster({**raw, "InstanceGroups": [group(WORKERS, "Compute", 8, AutoPatchConfig=config)]})
    found = list(patching.judge(patching.Facts(cluster, NOW), Policy()))
    return [(finding.rule, finding.detail) for finding in found]


def test_before_the_day_the_plan_is_told_with_its_day_and_what_it_does():
    ((rule, told),) = judged(NOW + 3 * DAY, "WhenAllIdle")
    assert patching.PLANNED == rule
    assert "automatic patching (WhenAllIdle) begins 2027-01-18 08:00 UTC, in 3 days" in told
    assert "for 24 hours at most" in told and "all come back together" in told


@pytest.mark.parametrize(
    ("begins", "rules"),
    [
        (NOW + 1, [patching.PLANNED]),
        (NOW, [patching.HOLDS]),
        (NOW - IDLE_WAIT_SECONDS, [patching.HOLDS]),
        (NOW - IDLE_WAIT_SECONDS - 1, []),
        (None, []),
    ],
)
def test_from_its_day_until_the_wait_is_over_nodes_may_be_held(begins, rules):
    assert rules == [rule for rule, _ in judged(begins)]


def test_the_groups_own_wait_counts():
    assert [patching.HOLDS] == [rule for rule, _ in judged(NOW - 20 * DAY, IdleWaitWindowInSeconds=25 * 86400)]


def test_a_strategy_that_is_new_is_shown_as_it_came():
    assert "PatchingStrategy 'WhenFull'" in [told for _, told in judged(None, "WhenFull")]


def test_drained_nodes_of_a_group_under_patch_are_explained_and_none_is_touched(tmp_path):
    world = World()
    begun = datetime.now(timezone.utc).timestamp() - 3600
    world.groups[WORKERS]["AutoPatchConfig"] = {
        "PatchingStrategy": "WhenIdle",
        "CurrentPatchSchedule": {"NextPatchDate": begun},
    }
    world.slurm["ip-10-1-0-3"] = {"state": ["IDLE", "DRAIN"], "reason": "maintenance"}
    seen = look(tmp_path, world)
    finding = seen.one("hyperpod-patch-holds", WORKERS)
    assert "was due 60 minutes ago" in finding.detail and "do not resume them by hand" in finding.detail
    assert "may be patching its group, and gives it back" in seen.text
    assert [] == seen.changes()
    world.groups[WORKERS]["AutoPatchConfig"]["CurrentPatchSchedule"]["NextPatchDate"] = begun - 2 * DAY
    assert any("state=resume" in command for command in look(tmp_path, world).changes("ip-10-1-0-3"))


def test_a_group_without_automatic_patching_is_nothing_to_tell(tmp_path):
    assert not [rule for rule in look(tmp_path, World()).ids() if "patch" in rule]
