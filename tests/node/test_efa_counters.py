"""What grew between prolog and epilog."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hpslurm.core.policy import Policy
from hpslurm.core.probe import Unknown
from hpslurm.node import efa_counters
from hpslurm.node.efa_counters import Facts, changed, collect, grown
from hpslurm.sources.host import Host

GB = 1 << 30


def ids(before: Facts, after: Facts) -> list[str]:
    return [finding.rule.id for finding in changed(before, after, Policy())]


def moved(**sizes: int) -> Facts:
    return Facts({name: {"tx_bytes": size, "rx_bytes": 0} for name, size in sizes.items()})


def test_an_error_that_grew_is_told_with_its_device() -> None:
    before, after = (
        Facts({"a": {"reg_mr_err": 5}, "b": {"reg_mr_err": 9}}),
        Facts({"a": {"reg_mr_err": 7}, "b": {"reg_mr_err": 9}}),
    )
    (finding,) = changed(before, after, Policy())
    assert ("efa-errors", "2 errors on 1 of 2 devices, expected 0") == (finding.rule.id, finding.detail)
    assert "reg_mr_err +2" == finding.evidence[0].text


def test_an_old_error_is_history() -> None:
    assert [] == ids(Facts({"a": {"reg_mr_err": 5}}), Facts({"a": {"reg_mr_err": 5}}))


@pytest.mark.parametrize("name", efa_counters.NORMAL)
def test_what_the_protocol_does_by_design_is_no_error(name: str) -> None:
    assert [] == ids(Facts({"a": {name: 5}}), Facts({"a": {name: 5000}}))


def test_a_counter_that_began_again_is_left_out() -> None:
    assert {"a": {}} == grown(Facts({"a": {"tx_bytes": 9}}), Facts({"a": {"tx_bytes": 3, "rx_bytes": 4}}))


def test_a_device_that_was_not_there_before_is_left_out() -> None:
    assert {} == grown(Facts({}), Facts({"a": {"tx_bytes": 3}}))


def test_a_rail_below_a_hundredth_of_the_busiest_is_idle() -> None:
    zero = moved(a=0, b=0)
    assert ["efa-rail-idle"] == ids(zero, moved(a=100 * GB, b=GB - 1))
    assert [] == ids(zero, moved(a=100 * GB, b=GB))


def test_a_job_that_hardly_used_efa_has_no_idle_rail() -> None:
    assert [] == ids(moved(a=0, b=0), moved(a=GB - 1, b=0))
    assert ["efa-rail-idle"] == ids(moved(a=0, b=0), moved(a=GB, b=0))


def device(*counters: str) -> dict[str, str]:
    files = {"/sys/class/infiniband/e0/device/vendor": "0x1d0f\n", "/sys/class/infiniband/e0/device/device": "0xefa2\n"}
    return {**files, **{f"/sys/class/infiniband/e0/{path}": "7\n" for path in counters}}


def test_counters_are_read_per_port_or_of_older_drivers_per_device(host_with: Callable[..., Host]) -> None:
    host = host_with(device("ports/1/hw_counters/tx_bytes", "hw_counters/rx_bytes", "hw_counters/cmds_err"))
    assert Facts({"e0": {"tx_bytes": 7, "rx_bytes": 7, "cmds_err": 7}}) == collect(host)


def test_a_driver_without_counters_is_unknown(host_with: Callable[..., Host]) -> None:
    with pytest.raises(Unknown, match="no EFA device shows counters"):
        collect(host_with(device()))
