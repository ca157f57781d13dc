"""The line to submit a job again: what sbatch reads out of it is the same job on other nodes."""

from __future__ import annotations

import shlex

import pytest

from hpslurm.job.resubmit import again
from hpslurm.sources.slurm import SlurmJob
from tests import typed

ALICE = 1000
SCRIPT = "/fsx/alice/train.sbatch"
LINE = "sbatch -N4 --output=logs/%j.out train.sbatch --lr 1e-4"


def job(**how: object) -> SlurmJob:
    given = {"name": "train.sbatch", "state": "FAILED", "user": "alice", "uid": ALICE, "gid": ALICE}
    return SlurmJob(7, **{**given, **how})  # type: ignore[arg-type]


def line(nodes: tuple[str, ...] = ("n2", "n3"), user: int = ALICE, **how: object) -> str:
    text = again(job(**how), nodes, user)
    assert not text or typed.is_command(text)
    return text


def test_the_whole_line_is_known_and_the_script_by_its_path() -> None:
    assert "sbatch --exclude='n[2-3]' -N4 --output=logs/%j.out /fsx/alice/train.sbatch --lr 1e-4" == line(
        command=f"{SCRIPT} --lr 1e-4", submit_line=LINE
    )


def test_the_script_alone_is_known() -> None:
    assert f"sbatch --exclude='n[2-3]' {SCRIPT} --lr 1e-4" == line(command=f"{SCRIPT} --lr 1e-4")


def test_of_a_job_that_the_controller_forgot_the_line_stays_as_it_was_typed() -> None:
    assert f"sbatch --exclude=n2 {LINE.removeprefix('sbatch ')}" == line(("n2",), submit_line=LINE)


def test_without_a_node_to_avoid_the_line_is_the_one_that_was_typed() -> None:
    assert LINE.replace("train.sbatch", SCRIPT) == line((), command=f"{SCRIPT} --lr 1e-4", submit_line=LINE)


@pytest.mark.parametrize("option", ["-x n[7-8]", "-xn7,n8", "--exclude=n7,n8", "--exclude n[7,8]"])
def test_nodes_that_the_line_left_out_stay_out(option: str) -> None:
    assert f"sbatch --exclude='n[2,7-8]' -N1 {SCRIPT}" == line(
        ("n2",), command=SCRIPT, submit_line=f"sbatch {option} -N1 train.sbatch"
    )


@pytest.mark.parametrize("option", ["-w n[1-2]", "-wn2", "--nodelist=n2", "--nodelist n2", "-x n[1-"])
def test_a_line_that_names_a_sick_node_or_no_list_at_all_is_not_handed_out(option: str) -> None:
    assert f"sbatch --exclude=n2 {SCRIPT}" == line(("n2",), command=SCRIPT, submit_line=f"sbatch {option} train.sbatch")


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"submit_line": "sbatch --wrap exit 3", "name": "wrap"},
        {"submit_line": "sbatch -N1", "name": "sbatch"},  # its script came by standard input
        {"submit_line": "sbatch -J llama -N1", "name": "llama"},
        {"command": SCRIPT, "array_job": 7, "array_task": 3},
        {"command": SCRIPT, "het_job": 7},
        {"command": f"/fsx/{'long/' * 20}train.sbatch"},
        {"command": "/fsx/a\x1b[2Jb"},
    ],
)
def test_what_is_not_known_for_certain_is_left_to_the_user(how: dict[str, object]) -> None:
    assert "sbatch --exclude='n[2-3]' JOBSCRIPT" == line(**how)


def test_a_line_that_is_too_long_for_a_screen_gives_way_to_its_script() -> None:
    assert f"sbatch --exclude=n2 {SCRIPT}" == line(
        ("n2",), command=SCRIPT, submit_line=f"sbatch --comment={'x' * 90} {SCRIPT}"
    )


def test_a_script_of_somebody_else_is_never_named() -> None:
    """An administrator who copies the line would run it as root."""
    for user in (0, 1001):
        assert "sbatch --exclude='n[2-3]' JOBSCRIPT" == line(command=SCRIPT, submit_line=LINE, user=user)


@pytest.mark.parametrize("script", ["/fsx/$(reboot)", "/fsx/a;reboot", "/fsx/`reboot`", "/fsx/it's", "/fsx/~&|<>*"])
def test_what_a_user_called_a_script_is_one_word_to_the_shell(script: str) -> None:
    assert ["sbatch", "--exclude=n[2-3]", script] == shlex.split(line(command=script))


@pytest.mark.parametrize("started", ["srun -N2 train", "salloc -N2", "/opt/slurm/bin/srun -N2 train"])
def test_a_job_that_no_sbatch_started_is_not_submitted_by_one(started: str) -> None:
    assert "" == line(submit_line=started)
