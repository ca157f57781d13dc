"""Which settings a job had: each once, and where it was seen."""

from __future__ import annotations

import os
from typing import Any

import pytest

from hpslurm.bundle.environment import environment
from hpslurm.core.probe import PASS, Result
from hpslurm.core.records import Record
from hpslurm.job.logs import Log
from hpslurm.job.nccl_env import SHOWN
from hpslurm.sources.userfile import Taken


@pytest.fixture(autouse=True)
def _no_settings_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(SHOWN)]:
        monkeypatch.delenv(name)


def record(node: str, **settings: Any) -> Record:
    result = Result("nccl_env", PASS, facts={"settings": settings})
    return Record(node, "check", {}, (result,), (), {}, True)


def log(name: str, text: str) -> Log:
    return Log(f"/j/{name}", Taken(head=text.encode()))


def test_a_setting_is_read_from_what_nccl_prints_and_from_printenv() -> None:
    text = "n1:7:7 [0] NCCL INFO NCCL_SOCKET_IFNAME set by environment to ens32\nFI_PROVIDER=efa\nHOME=/root\n"
    assert ["FI_PROVIDER=efa    # a.log", "NCCL_SOCKET_IFNAME=ens32    # a.log"] == environment(
        [], [log("a.log", text)]
    )


def test_nodes_with_the_same_setting_are_folded_and_another_value_is_a_line_of_its_own() -> None:
    records = [record("n1", NCCL_DEBUG="INFO"), record("n2", NCCL_DEBUG="INFO"), record("n3", NCCL_DEBUG="WARN")]
    assert ["NCCL_DEBUG=INFO    # records of n[1-2]", "NCCL_DEBUG=WARN    # records of n3"] == environment(records, [])


@pytest.mark.parametrize(("count", "more"), [(4, ""), (5, " …")])
def test_of_many_logs_with_a_setting_four_are_named(count: int, more: str) -> None:
    (line,) = environment([], [log(f"{number}.log", "FI_PROVIDER=efa") for number in range(count)])
    assert f"FI_PROVIDER=efa    # 0.log, 1.log, 2.log, 3.log{more}" == line


def test_our_own_environment_counts_and_nothing_else_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCCL_DEBUG", "INFO")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    assert ["NCCL_DEBUG=INFO    # the environment of hpslurm bundle"] == environment([], [])
