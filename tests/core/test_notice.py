"""The user whose job starts on a sick node is told in his own output."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from hpslurm.core import notice
from hpslurm.core.finding import P0, P1, Finding, Rule
from hpslurm.core.values import replace
from tests.lab.lab import Lab

SCRIPT = Path(__file__).parents[2] / "taskprolog.d/hpslurm.sh"
SICK = Rule("efa-missing", P0, "EFA devices missing", "x").found("31 of 32 EFA devices of a p5.48xlarge")
SLOW = Rule("clock-off", P1, "Clock off", "x").found("12 s off")
TOLD = "hpslurm: n1 efa-missing: 31 of 32 EFA devices of a p5.48xlarge; see hpslurm report 77"


def task(tmp_path: Path, script: Path = SCRIPT, **env: str) -> tuple[int, str, str]:
    """Run a copy of the script, with its folder edited, by the system's own sh."""
    copy = tmp_path / "taskprolog.sh"
    copy.write_text(script.read_text().replace("RESULTS=/var/lib/hpslurm", f"RESULTS={tmp_path}"))
    given = {"SLURM_JOB_ID": "77", "SLURMD_NODENAME": "n1", "SLURM_LOCALID": "0", "SLURM_STEP_ID": "0", **env}
    done = subprocess.run(["/bin/sh", "-e", copy], env=given, capture_output=True, text=True, timeout=30)
    return done.returncode, done.stdout, done.stderr


def leave(tmp_path: Path, *findings: Finding) -> Path:
    folder = tmp_path / "jobs/77"
    folder.mkdir(parents=True, exist_ok=True)
    notice.leave(str(folder), "n1", "77", -1, findings)
    return folder / "n1.told"


def test_the_first_task_of_a_node_prints_what_the_prolog_left(tmp_path: Path) -> None:
    leave(tmp_path, SICK)
    assert (0, f"print {TOLD}\n", "") == task(tmp_path)


def test_a_batch_script_is_told_too(tmp_path: Path) -> None:
    leave(tmp_path, SICK)
    assert f"print {TOLD}\n" == task(tmp_path, SLURM_STEP_ID="4294967291")[1]
    for step in ("", "-5", "4294967291"):  # a batch script's own task: seen on 22.05 and on 26.05
        assert f"print {TOLD}\n" == task(tmp_path, SLURM_STEP_ID=step, ENVIRONMENT="BATCH", SLURM_NODEID="0")[1]


def test_the_first_step_of_a_batch_script_is_told_on_the_other_nodes_only(tmp_path: Path) -> None:
    leave(tmp_path, SICK)
    of_a_batch_job = {"ENVIRONMENT": "BATCH", "SLURM_STEP_ID": "0"}
    assert (0, "", "") == task(tmp_path, **of_a_batch_job, SLURM_NODEID="0")  # the script itself was told there
    assert f"print {TOLD}\n" == task(tmp_path, **of_a_batch_job, SLURM_NODEID="1")[1]
    assert f"print {TOLD}\n" == task(tmp_path, SLURM_STEP_ID="0", SLURM_NODEID="0")[1]  # srun without a script


@pytest.mark.parametrize("env", [{"SLURM_LOCALID": "1"}, {"SLURM_STEP_ID": "1"}, {"SLURM_STEP_ID": "4711"}])
def test_other_tasks_and_later_steps_say_nothing(tmp_path: Path, env: dict[str, str]) -> None:
    leave(tmp_path, SICK)
    assert (0, "", "") == task(tmp_path, **env)


@pytest.mark.parametrize("env", [{}, {"SLURM_JOB_ID": ""}, {"SLURM_JOB_ID": "../.."}, {"SLURMD_NODENAME": "n2"}])
def test_a_healthy_node_says_nothing(tmp_path: Path, env: dict[str, str]) -> None:
    assert (0, "", "") == task(tmp_path, **env)


def test_what_cannot_be_read_is_no_reason_to_end_the_task(tmp_path: Path) -> None:
    leave(tmp_path, SICK).write_bytes(b"")
    assert (0, "", "") == task(tmp_path)
    leave(tmp_path).mkdir()
    assert (0, "", "") == task(tmp_path)


def test_a_line_cannot_become_another_word_of_slurm(tmp_path: Path) -> None:
    leave(tmp_path, replace(SICK, detail="x\nexport LD_PRELOAD=/tmp/evil.so %s \\n $(id)"))
    _, out, _ = task(tmp_path)
    assert 1 == out.count("\n")
    assert out.startswith("print hpslurm: n1 efa-missing: x export LD_PRELOAD=/tmp/evil.so %s \\n $(id);")


def test_only_what_blocks_training_is_told(tmp_path: Path) -> None:
    assert not leave(tmp_path, SLOW).exists()
    assert not leave(tmp_path, replace(SICK, muted="known")).exists()


def test_several_blocking_findings_are_counted(tmp_path: Path) -> None:
    assert "efa-missing (and 1 more): 31 of" in leave(tmp_path, SLOW, SICK, SICK).read_text()


def test_a_requeued_job_on_a_repaired_node_is_told_nothing(tmp_path: Path) -> None:
    assert leave(tmp_path, SICK).exists()
    assert not leave(tmp_path).exists()


def test_others_may_not_read_the_line(tmp_path: Path) -> None:
    assert 0o640 == leave(tmp_path, SICK).stat().st_mode & 0o777


def test_a_link_in_the_way_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "jobs/77").mkdir(parents=True)
    os.symlink(tmp_path / "target", tmp_path / "jobs/77/n1.told.part")
    with pytest.raises(OSError):
        leave(tmp_path, SICK)
    assert not (tmp_path / "target").exists()


def test_a_job_on_a_sick_node_of_a_real_slurm_is_told_in_its_output(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(
        nodes=2,
        hooks=("prolog", "taskprolog"),
        settings={"RESULTS": "@LAB@/results/$SLURMD_NODENAME"},
        conf="PrologFlags=Alloc\n",
        machines={"n2": {"efa": 16}},
        memlock={"n1": -1, "n2": -1},
    )
    done = lab.run("srun", "-N2", "--ntasks-per-node=2", "true", user=65534)
    said = [line for line in done.stdout.splitlines() if line.startswith("hpslurm: ")]
    assert 0 == done.returncode, done.stderr
    assert 1 == len(said), done.stdout
    assert said[0].startswith("hpslurm: n2 efa-missing: 16 of 32 EFA devices of a p5.48xlarge; see hpslurm report ")


def test_a_batch_job_is_told_once_of_each_sick_node(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(
        nodes=3,
        hooks=("prolog", "taskprolog"),
        settings={"RESULTS": "@LAB@/results/$SLURMD_NODENAME"},
        conf="PrologFlags=Alloc\n",
        machines={"n1": {"efa": 16}, "n2": {"efa": 16}},
        memlock={"n1": -1, "n2": -1, "n3": -1},
    )
    script = "srun --ntasks-per-node=2 --overcommit true; srun true; srun -N1 -n1 true"
    job = lab.submit("-N3", "-o", lab.path("work/told.out"), "--wrap", script, user=65534)
    lab.wait_for_job(job)
    lines = [line for line in Path(lab.path("work/told.out")).read_text().splitlines() if line.startswith("hpslurm: ")]
    assert ["hpslurm: n1 efa-missing:", "hpslurm: n2 efa-missing:"] == sorted(
        " ".join(line.split()[:3]) for line in lines
    )


def test_the_line_has_three_hundred_characters_at_most(tmp_path: Path) -> None:
    assert 300 == len(notice.line("n1", [replace(SICK, detail="x" * 400)]))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_the_line_is_for_the_jobs_group(tmp_path: Path) -> None:
    notice.leave(str(tmp_path), "n1", "77", 4242, [SICK])
    about = (tmp_path / "n1.told").stat()
    assert (0, 4242) == (about.st_uid, about.st_gid)


def test_a_part_of_an_earlier_start_is_written_anew(tmp_path: Path) -> None:
    (tmp_path / "n1.told.part").write_text("x" * 1000)
    notice.leave(str(tmp_path), "n1", "77", -1, [SICK])
    assert f"{TOLD}\n" == (tmp_path / "n1.told").read_text()
