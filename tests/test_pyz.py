"""The check in one file, run by a Python that has nothing but itself."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from hpslurm import bare, pyz
from tests.test_hosts import build


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pyz") / pyz.NAME
    assert 0 == pyz.main([str(path)])
    return path


NO_POLICY = ("--policy", "/nonexistent")  # nor one that this machine may have


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("machine")
    build("p5-step-healthy", path)
    return path


def run(
    archive: Path, *words: str, python: str = sys.executable, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Without site-packages (-S), without the user's environment (-I)."""
    given = {"PATH": "/usr/bin:/bin", "SLURMD_NODENAME": "n1", **(env or {})}
    command = [python, "-I", "-S", archive, *NO_POLICY, *words]
    return subprocess.run(command, env=given, capture_output=True, text=True, timeout=60)


def lines(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in done.stdout.splitlines()]


def outcomes(found: list[dict[str, Any]]) -> dict[str, str]:
    return {line["probe"]: line["outcome"] for line in found if line["type"] == "result"}


def found(lines: list[dict[str, Any]]) -> list[str]:
    return [line["id"] for line in lines if line["type"] == "finding"]


def test_a_healthy_node_is_one_line(archive: Path, machine: Path) -> None:
    done = run(archive, "--root", str(machine))
    assert (0, "") == (done.returncode, done.stderr)
    assert done.stdout.startswith("[PASS] n1  ")
    assert 1 == done.stdout.count("\n")


@pytest.mark.parametrize("case", ["p5-step-old-advice", "p5-nccl-hangs-on-error", "b200-xid-149"])
def test_it_sees_what_the_installed_check_sees(archive: Path, tmp_path: Path, case: str) -> None:
    machine = tmp_path / "machine"
    build(case, machine)
    env = {"PATH": "/usr/bin:/bin", "SLURMD_NODENAME": "n1", "NCCL_NET": "Socket"}
    installed = subprocess.run(
        [
            sys.executable,
            "-c",
            "from hpslurm.cli.check import main; main()",
            "--json",
            "--root",
            str(machine),
            *NO_POLICY,
        ],
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
    )
    bare_run = run(archive, "--json", "--root", str(machine), env=env)
    assert installed.returncode == bare_run.returncode
    assert outcomes(lines(installed)) == outcomes(lines(bare_run))
    assert found(lines(installed)) == found(lines(bare_run)) != []
    assert "end" == lines(bare_run)[-1]["type"]


def test_what_is_found_is_told_and_ends_with_3(archive: Path, machine: Path, tmp_path: Path) -> None:
    sick = tmp_path / "sick"
    shutil.copytree(machine, sick, symlinks=True)
    shutil.rmtree(sick / "sys/class/infiniband/rdmap79s1")
    done = run(archive, "--root", str(sick))
    assert 3 == done.returncode
    assert "[FAIL] P0 efa-missing  n1  31 of 32 EFA devices of a p5.48xlarge" in done.stdout
    assert 0 == run(archive, "--root", str(sick), "--fail-on=never").returncode


def test_other_tasks_of_a_node_say_nothing(archive: Path) -> None:
    done = run(archive, env={"SLURM_LOCALID": "3"})
    assert (0, "", "") == (done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize("words", [["--nonsense"], ["--root"], ["--fail-on", "P9"], ["x"]])
def test_a_wrong_command_line_is_two_lines_and_2(archive: Path, words: list[str]) -> None:
    done = run(archive, *words)
    assert (2, "") == (done.returncode, done.stdout)
    assert 2 == done.stderr.count("\n")
    assert "Traceback" not in done.stderr


def test_an_older_python_without_toml_runs_it_too(archive: Path, machine: Path) -> None:
    python = next(iter(sorted(Path.home().glob(".pyenv/versions/3.10.*/bin/python3.10"))), None)
    older = str(python) if python else shutil.which("python3.10")
    if not older:
        pytest.skip("no Python 3.10 here")
    done = run(archive, "--root", str(machine), python=older)
    assert (0, "") == (done.returncode, done.stderr)
    assert done.stdout.startswith("[PASS] n1  ")


def test_it_brings_nothing_that_looks_beyond_the_node(archive: Path) -> None:
    names = zipfile.ZipFile(archive).namelist()
    assert not [name for name in names if name.startswith(("hpslurm/cli/", "hpslurm/cluster/", "hpslurm/scan/"))]
    assert "hpslurm/tables/nccl_env.json" in names


def test_the_same_sources_give_the_same_file() -> None:
    assert pyz.archive() == pyz.archive()


def test_words_of_the_command_line() -> None:
    assert {
        "fail-on": "P1",
        "policy": "p",
        "root": "/r",
        "json": "yes",
        "strict": "yes",
        "verbose": "yes",
    } == bare.options(["--json", "--fail-on=P1", "--policy", "p", "--strict", "-v", "--root", "/r"])


def test_a_place_that_cannot_be_written_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert 1 == pyz.main([str(tmp_path / "no" / "where")])
    assert "No such file or directory" in capsys.readouterr().err
