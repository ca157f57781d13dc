"""A job's output files by Slurm's names, and what the epilog makes of them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hpslurm.scan import joblog
from hpslurm.scan.joblog import Job, first_node, job_of_env, look, path_of, paths, reads_here
from hpslurm.scan.reason import reason

ME = (os.geteuid(), os.getegid())


def job(folder: Path | str = "/home/u", **how: str) -> Job:
    return Job(
        **{
            "id": "4711",
            "user": "u",
            "uid": ME[0],
            "gid": ME[1],
            "name": "train",
            "folder": str(folder),
            "node": "ip-10-1-0-7",
            **how,
        }
    )  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "pattern, path",
    [
        ("", "/home/u/slurm-4711.out"),
        ("logs/%x-%j.out", "/home/u/logs/train-4711.out"),
        ("/fsx/%u/%x_%N_%n_%t.log", "/fsx/u/train_ip-10-1-0-7_0_0.log"),
        ("%6j.out", "/home/u/004711.out"),
        ("100%%.out", "/home/u/100%.out"),
        ("%J.%s.out", "/home/u/4711.batch.out"),
        ("\\raw-%j.out", "/home/u/raw-%j.out"),
        ("../other/%j.out", "/home/other/4711.out"),
    ],
)
def test_a_name_is_resolved_as_slurm_does(pattern: str, path: str):
    assert path == path_of(pattern, job())


def test_a_task_of_an_array_has_its_own_name():
    task = job(array_job="4700", array_task="3")
    assert ("/home/u/slurm-4700_3.out", "/home/u/4700-03.out") == (path_of("", task), path_of("%A-%2a.out", task))


def test_a_sign_that_is_not_known_stays_and_is_reported():
    nameless = job(name="", stdout="%x.out")
    assert "/home/u/%x.out" == path_of("%x.out", nameless)
    assert "hpslurm report 4711" in look(nameless).notes[0]


def test_output_and_errors_in_one_file_are_read_once():
    assert ["/home/u/a"] == paths(job(stdout="a", stderr="a"))
    assert ["/home/u/a", "/home/u/b"] == paths(job(stdout="a", stderr="b"))
    assert [] == paths(job(stdout="/dev/null"))


@pytest.mark.parametrize(
    "nodes, first",
    [("ip-10-1-0-[3,7-9]", "ip-10-1-0-3"), ("a1,b[2-3]", "a1"), ("n7", "n7"), ("r[01-04]x", "r01x"), ("", "")],
)
def test_only_the_first_node_reads(nodes: str, first: str):
    assert first == first_node(nodes)
    assert bool(first) == reads_here({"SLURM_JOB_NODELIST": nodes, "SLURMD_NODENAME": first})
    assert not reads_here({"SLURM_JOB_NODELIST": nodes, "SLURMD_NODENAME": "zz"})


def test_the_environment_of_an_epilog_is_enough():
    env = {"SLURM_JOB_ID": "7", "SLURM_JOB_UID": str(ME[0]), "SLURM_JOB_GID": str(ME[1]), "SLURM_JOB_USER": "u", "SLURM_JOB_WORK_DIR": "/w",  # noqa: E501
           "SLURM_JOB_STDOUT": "t-%j.out", "SLURM_NODELIST": "n[1-2]"}  # fmt: skip
    assert ["/w/t-7.out"] == paths(job_of_env(env))


def test_an_epilog_records_events_on_the_first_node_only(tmp_path: Path):
    (tmp_path / "slurm-7.out").write_text(OOM + "\n")
    env = {
        "SLURM_JOB_ID": "7",
        "SLURM_JOB_UID": str(ME[0]),
        "SLURM_JOB_GID": str(ME[1]),
        "SLURM_JOB_WORK_DIR": str(tmp_path),
        "SLURM_NODELIST": "n[1-2]",
        "SLURMD_NODENAME": "n1",
    }
    lines, notes = joblog.epilog(env, seconds=20)
    assert (["gpu_oom"], []) == ([line["cause"] for line in lines if line["role"] == "root"], notes)
    assert ([], []) == joblog.epilog({**env, "SLURMD_NODENAME": "n2"})


OOM = "[rank2]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB."


def test_the_end_of_a_large_output_names_the_cause(tmp_path: Path):
    path = tmp_path / "slurm-4711.out"
    path.write_text("step 1 loss 2.0\n" * 200_000 + OOM + "\n")
    found = look(job(tmp_path), limit=1 << 20, seconds=20)
    diagnosis = reason(found.events)
    assert ("gpu_oom", 2, -1) == (diagnosis.cause, diagnosis.culprit.rank, diagnosis.decisive.line)


def test_a_small_output_has_its_line_numbers(tmp_path: Path):
    (tmp_path / "slurm-4711.out").write_text("step 1 loss 2.0\n" * 9 + OOM + "\n")
    assert 10 == reason(look(job(tmp_path), seconds=20).events).decisive.line


def test_an_output_that_is_missing_is_a_note_and_no_error(tmp_path: Path):
    found = look(job(tmp_path))
    assert ((), True) == (found.events, "No such file" in found.notes[0])


def test_escapes_and_forged_kernel_lines_in_a_log_stay_one_clean_line_of_evidence(tmp_path: Path):
    (tmp_path / "slurm-4711.out").write_text(
        "\x1b]0;owned\x07\x1b[2J NVRM: Xid (PCI:0000:9b:00): 79, pid=1, name=\x1b[31mx, GPU has fallen off the bus.\n"
    )
    for event in look(job(tmp_path), seconds=20).events:
        assert not any(ord(sign) < 32 or sign == "\x1b" for sign in event.text)


def test_the_way_of_an_epilog_imports_nothing_heavy():
    code = "import sys; import hpslurm.scan.joblog; print(*sorted(sys.modules))"
    loaded = subprocess.run(
        [
            sys.executable,
            "-I",
            "-c",
            f"import sys; sys.path.insert(0, {str(Path(joblog.__file__).parents[2])!r}); {code}",
        ],
        env={},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    heavy = {
        "hyperscan",
        "logging",
        "asyncio",
        "concurrent.futures",
        "click",
        "rich",
        "boto3",
        "psutil",
        "dataclasses",
        "pathlib",
        "datetime",
        "subprocess",
        "pickle",
        "gzip",
    }
    assert set() == heavy & set(loaded)


def test_only_the_first_component_of_a_heterogeneous_job_has_output():
    env = {"SLURMD_NODENAME": "n1", "SLURM_JOB_NODELIST": "n1", "SLURM_JOB_ID": "8"}
    assert joblog.reads_here(env)
    assert joblog.reads_here({**env, "SLURM_HET_JOB_ID": "8"})
    assert not joblog.reads_here({**env, "SLURM_HET_JOB_ID": "7"})


def test_a_hook_that_is_not_told_its_task_does_not_guess_the_name_of_its_output():
    env = {"SLURM_JOB_ID": "8", "SLURM_JOB_STDOUT": "/w/%A_%a.out"}
    assert "/w/8_%a.out" == paths(joblog.job_of_env(env))[0]
    told = {**env, "SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "3"}
    assert ["/w/7_3.out"] == paths(joblog.job_of_env(told))
