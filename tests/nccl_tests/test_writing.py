"""Where nccl-tests writes, others may have been before: links are replaced, never followed, and root is warned."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hpslurm.nccl_tests import baseline, prepare, running
from hpslurm.sources import launch

STEP = launch.Step("all", ("n1",), ("true",), seconds=5)
PRINTED = launch.Line(STEP, "what the step printed")


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    path = tmp_path / "precious"
    path.write_text("kept")
    return path


@pytest.mark.parametrize("make", [os.symlink, os.link])
def test_the_output_of_a_step_goes_into_a_new_file_and_not_through_a_link(tmp_path, precious, make):
    make(precious, tmp_path / "all.out")
    output = running.StepOutput(STEP, str(tmp_path))
    output.take(PRINTED)
    output.file.close()
    assert ("kept", "what the step printed\n") == (precious.read_text(), (tmp_path / "all.out").read_text())
    assert not (tmp_path / "all.out").is_symlink()


def test_a_link_that_comes_back_between_removing_and_creating_is_refused(tmp_path, precious, monkeypatch):
    """The other user's half of the race, at the very moment that he would wait for."""
    remove = os.unlink

    def removed_and_put_back(path):
        remove(path)
        os.symlink(precious, path)

    os.symlink(precious, tmp_path / "all.out")
    monkeypatch.setattr(os, "unlink", removed_and_put_back)
    with pytest.raises(FileExistsError):
        running.StepOutput(STEP, str(tmp_path))
    assert "kept" == precious.read_text()


def test_the_sites_own_figures_are_not_written_through_a_link(tmp_path, precious):
    os.symlink(precious, tmp_path / "bandwidth.jsonl")
    kind = baseline.kind_of("p5.48xlarge", "all_reduce", 2, 16, "2.27")
    with pytest.raises(OSError, match="symbolic links"):
        baseline.record(str(tmp_path / "bandwidth.jsonl"), kind, "2.27", [(1, 1.0)])
    assert "kept" == precious.read_text()


def start(tmp_path: Path, output: Path) -> str:
    """The command in an allocation whose srun starts nothing; what it says on stderr."""
    for name in ("srun", "all_reduce_perf"):
        (tmp_path / name).write_text("#!/bin/sh\nexit 1\n")
        (tmp_path / name).chmod(0o755)
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": "n1"}
    words = ["nccl-tests", "--gpus", "8", "--instance-type", "p5.48xlarge", "--output", str(output)]
    command = [sys.executable, "-c", "from hpslurm.cli import main; main()", *words]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False).stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root is warned")
def test_root_is_told_before_ranks_write_into_a_folder_of_another_user(tmp_path):
    users = tmp_path / "alice"
    users.mkdir()
    os.chown(users, 1234, 1234)
    said = " ".join(start(tmp_path, users / "out").split())
    assert f"this runs as root, and others may put a link where NCCL writes ({users}: owned by uid 1234" in said
    assert "run it as the user whose directory it is" in said


@pytest.mark.skipif(os.geteuid() != 0, reason="only root is warned")
def test_root_is_told_nothing_where_only_root_may_write(tmp_path):
    assert "as root" not in start(tmp_path, tmp_path / "out")


def test_a_folder_that_all_may_write_is_named_to_root_and_to_nobody_else(tmp_path):
    tmp_path.chmod(0o777)
    assert "group or others may write it" in prepare.word_for_root(str(tmp_path), 0)
    assert "" == prepare.word_for_root(str(tmp_path), 1000)
