"""Names of nodes, and what the name service says to them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpslurm.core.policy import Policy
from hpslurm.core.probe import Unknown
from hpslurm.node import names
from hpslurm.sources.host import Host

OWN = {"/proc/sys/kernel/hostname": "n2\n", "/commands/getent-n2.txt": "10.1.0.2 STREAM n2\n"}


@pytest.mark.parametrize(
    ("nodelist", "first"),
    [
        ("n1", "n1"),
        ("ip-10-1-0-[3-5,7]", "ip-10-1-0-3"),
        ("ip-10-1-0-[003-005]", "ip-10-1-0-003"),
        ("n[7]-gpu,m1", "n7-gpu"),
        ("login,ip-10-1-0-[3-5]", "login"),
        ("", ""),
        ("-rf", ""),
        ("$(id)", ""),
    ],
)
def test_the_first_node_of_a_list(nodelist: str, first: str) -> None:
    assert first == names.first_node(nodelist)


@given(st.text())
def test_whatever_a_list_holds_the_first_node_is_a_word_or_nothing(nodelist: str) -> None:
    assert not names.first_node(nodelist).startswith("-")
    assert not set(names.first_node(nodelist)) & set(" \n;$'\"/`")


def test_the_first_node_is_asked_for_on_the_others_only(host_with: Callable[..., Host]) -> None:
    files = {**OWN, "/commands/getent-n1.txt": "10.1.0.1 STREAM n1\n"}
    assert "n1" == names.collect(host_with(files, env={"SLURM_JOB_NODELIST": "n[1-4]"})).first
    assert "" == names.collect(host_with(files, env={"SLURM_JOB_NODELIST": "n[2-4]"})).first


def test_a_name_that_is_several_addresses_is_fine_if_one_is_no_loopback() -> None:
    facts = names.Facts("n2", ("10.1.0.2", "127.0.1.1"), "", ())
    assert [] == list(names.judge(facts, Policy()))


@pytest.mark.parametrize("addresses", [("127.0.1.1",), ("::1",), ("127.0.0.1", "::1")])
def test_a_name_that_is_loopback_only_is_told(addresses: tuple[str, ...]) -> None:
    (finding,) = names.judge(names.Facts("n2", addresses, "", ()), Policy())
    assert "name-own-loopback" == finding.rule.id


def test_an_answer_without_an_address_is_unknown(host_with: Callable[..., Host]) -> None:
    with pytest.raises(Unknown, match="getent ahosts n2"):
        names.collect(host_with({**OWN, "/commands/getent-n2.txt": "what now\n"}))
