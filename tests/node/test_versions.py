"""Versions out of files, their order, and every known combination with its example."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hpslurm.node import version_pairs, versions
from hpslurm.node.versions import Facts, order, within
from hpslurm.sources.host import Host

SAVED = Path(__file__).parents[1] / "hosts/p5-healthy"
HEALTHY = Facts(
    type="p5.48xlarge",
    kernel="6.8.0-1021-aws",
    driver="570.133.20",
    cuda="12.8.1",
    nccl="2.26.2",
    plugin="1.22.0",
    libfabric="2.7.0amzn2.0",
    efa_installer="1.51.0",
    efa="2.17.3g",
    gdrcopy="2.5",
)


def test_the_healthy_p5_shows_all_of_them() -> None:
    found = versions.collect(Host(str(SAVED), in_hook=True))
    assert {name: getattr(HEALTHY, name) for name in versions.COMPARED} == {
        name: getattr(found, name) for name in versions.COMPARED
    }


@pytest.mark.parametrize(
    ("version", "numbers"),
    [("2.1.0amzn3.0", (2, 1, 0)), ("2.17.3g", (2, 17, 3)), ("v1.5", (1, 5)), ("570", (570,)), ("", ()), ("amzn", ())],
)
def test_numbers_of_a_version(version: str, numbers: tuple[int, ...]) -> None:
    assert numbers == order(version)


@pytest.mark.parametrize(
    ("version", "low", "below", "inside"),
    [
        ("2.18.5", "2.17", "2.18.5", False),
        ("2.18.4", "2.17", "2.18.5", True),
        ("2.17", "2.17.0", "", True),
        ("1.13", "", "1.13", False),
        ("1.9.9", "", "1.13", True),
        ("", "", "", False),
        ("unknown", "", "9", False),
    ],
)
def test_a_version_between_bounds(version: str, low: str, below: str, inside: bool) -> None:
    assert inside == within(version, low, below)


@pytest.mark.parametrize("row", version_pairs.rows(), ids=[row["id"] for row in version_pairs.rows()])
def test_each_combination_fires_for_its_example_and_not_for_a_healthy_p5(row: dict[str, Any]) -> None:
    assert version_pairs.applies(row, Facts(**row["example"]))
    assert not version_pairs.applies(row, HEALTHY)
    assert not version_pairs.applies(row, Facts())


@pytest.mark.parametrize(
    ("type", "plugin", "found"),
    [
        ("p5.48xlarge", "1.13.1", ["plugin-lost-errors"]),  # 1.13.1 uses dma-buf
        ("p5.48xlarge", "1.14.1", ["plugin-dmabuf-off", "plugin-lost-errors"]),
        ("p5.48xlarge", "1.14.2", ["plugin-lost-errors"]),
        ("p5.48xlarge", "1.16.3", ["plugin-lost-errors"]),  # the leak came with 1.17.0
        ("p5.48xlarge", "1.17.2", ["plugin-host-memory-leak", "plugin-lost-errors"]),
        ("p4d.24xlarge", "1.17.2", ["plugin-lost-errors"]),  # its protocol is SENDRECV
        ("p6-b300.48xlarge", "1.17.3", ["plugin-lost-errors", "plugin-old-p6-b300"]),
        ("g7e.48xlarge", "1.17.1", ["plugin-host-memory-leak", "plugin-lost-errors", "plugin-old-g7e"]),
        ("p5.48xlarge", "1.19.1", ["plugin-lost-errors", "plugin-multirecv-wrong"]),
        ("p5.48xlarge", "1.19.2", ["plugin-lost-errors"]),
        ("p5.48xlarge", "1.20.0", ["plugin-eager-hang"]),
        ("p5.48xlarge", "1.21.0", []),
    ],
)
def test_known_faults_of_plugins_by_version(type: str, plugin: str, found: list[str]) -> None:
    facts = Facts(type=type, plugin=plugin)
    assert found == [row["id"] for row in version_pairs.rows() if version_pairs.applies(row, facts)]


def test_running_untuned_is_for_information() -> None:
    assert {"P2"} == {row["priority"] for row in version_pairs.rows() if row["id"] == "plugin-old-p6-b300"}


def test_rows_are_sorted_and_name_versions_that_are_collected() -> None:
    ids = [row["id"] for row in version_pairs.rows()]
    assert sorted(set(ids)) == ids
    assert {name for row in version_pairs.rows() for name in row["when"]} <= set(versions.COMPARED)


def test_nccl_of_a_python_package_is_read_from_its_name(host_with: Callable[..., Host]) -> None:
    site = "/venv/lib/python3.11/site-packages"
    files = {
        f"{site}/nvidia/nccl/lib/libnccl.so.2": "x",
        f"{site}/nvidia_nccl_cu12-2.27.5.dist-info/METADATA": "Name: nvidia-nccl-cu12\n",
        "/usr/lib64/libnccl.so.2": "x",
    }
    found = versions.nccl_library(host_with(files, env={"VIRTUAL_ENV": "/venv"}))
    assert (f"{site}/nvidia/nccl/lib/libnccl.so.2", "2.27.5") == found


def test_a_users_library_path_does_not_reach_a_hook(host_with: Callable[..., Host]) -> None:
    files = {"/home/u/libnccl.so.2": "x"}
    env = {"LD_LIBRARY_PATH": "/home/u:relative"}
    assert "/home/u/libnccl.so.2" == versions.nccl_library(host_with(files, env=env))[0]
    assert "" == versions.nccl_library(host_with(files, env=env, in_hook=True))[0]
