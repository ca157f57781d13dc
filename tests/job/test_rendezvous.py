"""The heartbeat limit of PyTorch's watchdog, at its default and beside it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hpslurm.core.policy import Policy
from hpslurm.job import nccl_env, rendezvous
from hpslurm.job.rendezvous import Facts, judge
from hpslurm.sources.host import Host


def found(nodes: int | None, heartbeat: int | None) -> list[str]:
    return [
        finding.rule.id for finding in judge(Facts(nodes, "absent", None, True, (32768, 60999), heartbeat), Policy())
    ]


@pytest.mark.parametrize(("heartbeat", "ids"), [(479, ["timeout-short"]), (480, []), (None, [])])
@pytest.mark.parametrize("nodes", [1, 2, 1000, None])
def test_a_heartbeat_limit_is_short_below_the_default_whatever_the_size_of_the_job(
    nodes: int | None, heartbeat: int | None, ids: list[str]
) -> None:
    assert ids == found(nodes, heartbeat)


def test_nobody_is_told_to_raise_it() -> None:
    (finding,) = judge(Facts(512, "absent", None, True, (32768, 60999), 60), Policy())
    assert ["leave it unset"] == [suggestion.why for suggestion in finding.suggestions]


@pytest.mark.parametrize(("value", "risky"), [("480", False), ("1799", False), ("1800", True), ("7200", True)])
def test_a_limit_that_lets_a_stuck_watchdog_hold_all_is_told(value: str, risky: bool) -> None:
    seen = nccl_env.judged(rendezvous.HEARTBEAT, value, nccl_env.Facts({}, {}, {}))
    assert risky == (seen is not None)


@pytest.mark.parametrize(
    ("port", "good"), [("", True), ("0", False), ("1", True), ("65535", True), ("65536", False), ("x", False)]
)
def test_a_port_is_between_one_and_65535(host_with: Callable[..., Host], port: str, good: bool) -> None:
    host = host_with({"/proc/sys/net/ipv4/ip_local_port_range": "32768\t60999\n"}, env={"MASTER_PORT": port})
    assert good == rendezvous.collect(host).port_good


@pytest.mark.parametrize(("nodes", "told"), [(1, []), (2, ["master-addr-loopback"]), (None, [])])
def test_a_loopback_address_is_wrong_for_more_than_one_node(nodes: int | None, told: list[str]) -> None:
    facts = Facts(nodes, "loopback", None, True, (32768, 60999), None)
    assert told == [finding.rule.id for finding in judge(facts, Policy())]
