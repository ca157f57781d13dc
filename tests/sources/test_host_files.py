"""Files, numbers and processes of this machine and of saved ones."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from hpslurm.core.probe import Unknown
from hpslurm.sources.host import Host


def test_an_ancestor_is_found_without_asking_every_process() -> None:
    name = Path(f"/proc/{os.getppid()}/comm").read_text().strip()
    assert os.getppid() == Host().pid_of(name)


def test_a_process_that_is_no_ancestor_is_found_too() -> None:
    assert 1 == Host().pid_of(Path("/proc/1/comm").read_text().strip())


def test_a_process_that_is_not_there_is_unknown() -> None:
    with pytest.raises(Unknown, match="no process named no-such-daemon"):
        Host().pid_of("no-such-daemon")


def test_a_saved_machine_has_no_ancestors_of_ours(host_with: Callable[..., Host]) -> None:
    name = Path(f"/proc/{os.getppid()}/comm").read_text().strip()
    with pytest.raises(Unknown):
        host_with({"/proc/sys/kernel/hostname": "n1\n"}).pid_of(name)


@pytest.mark.parametrize("text", ["", "x", "nan 1", "-5.0 1", "9" * 30 + ".0 1"])
def test_an_uptime_that_is_none_is_unknown(host_with: Callable[..., Host], text: str) -> None:
    with pytest.raises(Unknown, match="/proc/uptime"):
        host_with({"/proc/uptime": text}).uptime()


def test_uptime_in_whole_seconds(host_with: Callable[..., Host]) -> None:
    assert 86400.0 == host_with({"/proc/uptime": "86400.12 16000000.00\n"}).uptime()


def test_a_number_that_is_none_names_the_file(host_with: Callable[..., Host]) -> None:
    host = host_with({"/sys/a": "12\n", "/sys/b": "twelve\n"})
    assert 12 == host.number("/sys/a")
    assert host.number("/sys/c") is None
    with pytest.raises(Unknown, match="/sys/b is not a number: 'twelve'"):
        host.number("/sys/b")


def test_output_that_was_saved_for_a_word_wins_over_that_for_all(host_with: Callable[..., Host]) -> None:
    host = host_with({"/commands/getent.txt": "all\n", "/commands/getent-n1.txt": "n1\n"})
    assert ("n1\n", "all\n") == (host.run("getent", "n1").out, host.run("getent", "n2").out)
