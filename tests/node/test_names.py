"""Names of nodes, and what the name service says to them."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpslurm.core.policy import Policy
from hpslurm.core.probe import Unknown
from hpslurm.node import names
from hpslurm.sources.host import REST, Host

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


def asked(host: Host) -> str:
    """Why the probe could not look, as a hook runs it."""
    names.start(host)
    with pytest.raises(Unknown) as why:
        names.collect(host)
    host.end_all()
    return str(why.value)


def test_a_name_service_that_gives_no_answer_is_left_alone_for_a_while(
    tmp_path: Path, write: Callable[..., Path]
) -> None:
    calls, locks = tmp_path / "calls", tmp_path / "locks"
    write("root/proc/sys/kernel/hostname", "n2\n")
    write("root/usr/bin/getent", f"#!/bin/sh\necho $2 >> {calls}\nexec sleep 1000\n", 0o755)

    def of_a_job() -> Host:
        return Host(str(tmp_path / "root"), seconds=1.0, locks=str(locks), env={"SLURM_JOB_NODELIST": "n[1-2]"})

    assert "did not answer within" in asked(of_a_job())
    count = len(calls.read_text().splitlines())  # both names may be asked side by side, the first time
    assert 1 <= count <= 2
    began = time.monotonic()
    for _ in range(5):
        assert re.fullmatch(r"getent failed or was late \d+ s ago, asked again after 300 s", asked(of_a_job()))
    assert time.monotonic() - began < 1
    assert count == len(calls.read_text().splitlines())
    for ago, more in ((REST - 20, 0), (REST + 1, 1)):
        os.utime(locks / "getent.late", (time.time() - ago,) * 2)
        asked(of_a_job())
        assert (len(calls.read_text().splitlines()) > count) == bool(more), ago


@pytest.mark.parametrize(
    ("program", "told"),
    [
        ("sleep 1.2; exit 2", r"getent ahosts n2 failed: no answer after 1\.\d s"),  # no server answered
        ("sleep 1.2; echo gone >&2; exit 1", "getent ahosts n2 failed: gone"),
        ("echo gone >&2; exit 1", "getent ahosts n2 failed: gone"),
        ("echo what now", "getent ahosts n2 failed: it printed no address"),
        ("sleep 1.2; echo 10.1.0.2 STREAM n2", ""),  # right, but late: the next jobs shall not wait
    ],
)
def test_a_name_service_that_fails_or_is_slow_is_left_alone_for_a_while(
    program: str, told: str, tmp_path: Path, write: Callable[..., Path]
) -> None:
    write("root/proc/sys/kernel/hostname", "n2\n")
    write("root/usr/bin/getent", f"#!/bin/sh\necho $2 >> {tmp_path}/calls\n{program}\n", 0o755)

    def host() -> Host:
        return Host(str(tmp_path / "root"), seconds=4.0, locks=str(tmp_path / "locks"), env={})

    if told:
        assert re.fullmatch(told, asked(host()))
    else:
        assert ("10.1.0.2",) == names.collect(host()).own_addresses
    assert asked(host()).startswith("getent failed or was late 0 s ago")
    assert ["n2"] == (tmp_path / "calls").read_text().split()


@pytest.mark.parametrize(("program", "addresses"), [("exit 2", ()), ("echo 10.1.0.2 STREAM n2", ("10.1.0.2",))])
def test_a_quick_answer_is_one_and_asked_for_again(
    program: str, addresses: tuple[str, ...], tmp_path: Path, write: Callable[..., Path]
) -> None:
    write("root/proc/sys/kernel/hostname", "n2\n")
    write("root/usr/bin/getent", f"#!/bin/sh\n{program}\n", 0o755)
    for _ in range(2):
        host = Host(str(tmp_path / "root"), seconds=4.0, locks=str(tmp_path / "locks"), env={})
        names.start(host)
        time.sleep(1.2)  # a hook looks at other things meanwhile
        assert addresses == names.collect(host).own_addresses


def test_an_answer_without_an_address_is_unknown(host_with: Callable[..., Host]) -> None:
    with pytest.raises(Unknown, match="getent ahosts n2"):
        names.collect(host_with({**OWN, "/commands/getent-n2.txt": "what now\n"}))
