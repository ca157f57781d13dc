"""One cause for a job, from its output, its nodes' records and Slurm's own word."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from hpslurm.core.finding import DRAIN, P0, REBOOT, REPLACE, Evidence, Rule
from hpslurm.core.records import Record
from hpslurm.job.cause import find
from hpslurm.job.report import BEFORE_THE_JOB
from hpslurm.scan import lines
from hpslurm.sources.slurm import SlurmJob
from tests.scan.cases import events_of

WATCHDOG = (
    b"[rank0]:[E1 00:00:00.1 ProcessGroupNCCL.cpp:632] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=8, OpType=ALLREDUCE, "  # noqa: E501
    b"NumelIn=1024, NumelOut=1024, Timeout(ms)=600000) ran for 600012 milliseconds before timing out.\n"
)
XID = Rule("xid-79", P0, "GPU off the bus", "debugging-guide.md § 7", "gpu_fell_off_bus")


def job(folder: Path, **how: Any) -> SlurmJob:
    given = {
        "id": 7,
        "name": "train",
        "user": "u",
        "uid": os.geteuid(),
        "gid": os.getegid(),
        "state": "FAILED",
        "work_dir": str(folder),
    }
    return SlurmJob(**{**given, **how})  # type: ignore[arg-type]


def epilog(node: str, events: list[Any]) -> Record:
    return Record(node, "epilog", {}, (), tuple(lines.event_line(event) for event in events))


def test_a_nodes_finding_explains_the_watchdogs_of_the_output(tmp_path: Path):
    (tmp_path / "slurm-7.out").write_bytes(WATCHDOG)
    finding = XID.found("GPU 0000:9b:00 fell off the bus", subject="ip-10-1-0-9")
    diagnosis = find(job(tmp_path), (), [], [finding]).diagnosis
    assert ("gpu_fell_off_bus", "ip-10-1-0-9") == (diagnosis.cause, diagnosis.culprit.host)


def test_events_of_an_epilog_are_enough_when_the_output_is_gone(tmp_path: Path):
    events = events_of(
        b"[rank2]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB.\n", "/gone/slurm-7.out"
    )
    found = find(job(tmp_path), (), [epilog("n1", events)], [])
    diagnosis = found.diagnosis
    assert ("gpu_oom", 2) == (diagnosis.cause, diagnosis.culprit.rank)
    assert "slurm-7.out" in found.notes[0]


def test_a_time_limit_after_a_hang_is_a_hang(tmp_path: Path):
    (tmp_path / "slurm-7.out").write_bytes(WATCHDOG)
    hung = find(job(tmp_path, state="TIMEOUT"), (), [], []).diagnosis
    (tmp_path / "slurm-7.out").write_bytes(b"step 1 loss 2.0\n")
    limit = find(job(tmp_path, state="TIMEOUT"), (), [], []).diagnosis
    assert ("collective_timeout_unknown", "job_cancelled") == (hung and hung.cause, limit and limit.cause)


def test_slurms_word_for_lost_memory_is_a_cause(tmp_path: Path):
    (tmp_path / "slurm-7.out").write_bytes(b"step 1 loss 2.0\n")
    diagnosis = find(job(tmp_path, state="OUT_OF_MEMORY"), (), [], []).diagnosis
    assert "host_oom" == diagnosis.cause


def test_what_a_node_showed_before_the_job_loses_against_the_output(tmp_path: Path):
    (tmp_path / "slurm-7.out").write_bytes(
        b"[rank2]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB.\n"
    )
    new = XID.found("GPU 0000:9b:00 fell off the bus", subject="n1")
    old = XID.found("GPU off the bus", subject="n1", evidence=[Evidence("records", BEFORE_THE_JOB)])
    assert "gpu_fell_off_bus" == find(job(tmp_path), (), [], [new]).diagnosis.cause
    assert "gpu_oom" == find(job(tmp_path), (), [], [old]).diagnosis.cause


def test_output_that_is_named_by_hand_is_read_when_slurm_does_not_know_it(tmp_path: Path):
    (tmp_path / "moved.log").write_bytes(WATCHDOG)
    known = job(tmp_path, source="sacct")
    assert "--output" in find(known, (), [], []).notes[0]
    assert "collective_timeout_unknown" == find(known, [str(tmp_path / "moved.log")], [], []).diagnosis.cause


OOM = b"[rank%d]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU 1 has a total capacity\n"


def test_files_of_tasks_beside_the_output_are_read_and_name_the_rank(tmp_path: Path):
    (tmp_path / "slurm-7.out").write_bytes(b"srun: error: n1: tasks 0-3: Exited with exit code 1\n")
    for task in range(4):
        (tmp_path / f"train-7.{task}.out").write_bytes(OOM % task if task == 2 else b"step 1 loss 2.0\n")
    (tmp_path / "train-71.0.out").write_bytes(OOM % 5)  # another job's
    (tmp_path / "train-7.link.out").symlink_to(tmp_path / "train-71.0.out")
    found = find(job(tmp_path), (), [], [])
    assert ("gpu_oom", 2) == (found.diagnosis.cause, found.diagnosis.culprit.rank)
    assert {"train-7.2.out"} == {os.path.basename(event.file) for event in found.events if event.cause == "gpu_oom"}


def test_the_jobs_number_in_the_name_of_its_output_is_no_rank(tmp_path: Path):
    (tmp_path / "slurm-4711.out").write_bytes(
        b"slurmstepd: error: Detected 1 oom_kill event in StepId=4711.0. Some of the step tasks have been OOM Killed.\n"
    )
    diagnosis = find(job(tmp_path, id=4711, nodes="n3"), (), [], []).diagnosis
    assert "host_oom" == diagnosis.cause
    assert diagnosis.culprit is None or diagnosis.culprit.rank is None


def test_commands_name_the_job_and_its_nodes_and_no_program_that_may_not_be_there(tmp_path: Path):
    (tmp_path / "slurm-7.out").write_bytes(WATCHDOG)
    diagnosis = find(job(tmp_path, nodes="ip-10-1-0-[3-4]"), (), [], []).diagnosis
    commands = [advised.command for advised in diagnosis.suggestions]
    assert "hpslurm report 7" in commands
    assert [] == [command for command in commands if "JOBID" in command or "NODE" in command.split()]
    killed = find(job(tmp_path, state="TIMEOUT", stdout="/nowhere"), (), [], []).diagnosis
    assert [] == [words for words in killed.missing if "sacct" in words]


def test_a_failed_job_is_not_healthy_because_its_output_is_silent(tmp_path: Path):
    (tmp_path / "slurm-7.out").write_bytes(b"step 1 loss 2.0\nstep 2 loss 1.9\n")
    failed = find(job(tmp_path, exit_code=1), (), [], []).diagnosis
    assert ("undetermined", True) == (failed.cause, "exit code 1:0" in failed.why)
    assert "healthy" == find(job(tmp_path, state="COMPLETED", exit_code=0), (), [], []).diagnosis.cause


def test_what_drains_names_one_node_and_only_one_of_the_jobs(tmp_path: Path) -> None:
    finding = XID.found("GPU 0000:9b:00 fell off the bus", subject="ip-10-1-0-9")
    for nodes, named in (("ip-10-1-0-[8-9]", "nodename=ip-10-1-0-9 "), ("ip-10-1-0-[1-2]", "nodename=NODE ")):
        diagnosis = find(job(tmp_path, nodes=nodes), (), [], [finding]).diagnosis
        harmful = [step.command for step in diagnosis.suggestions if step.harm in (DRAIN, REBOOT, REPLACE)]
        assert harmful
        assert [True] * len(harmful) == [named in command for command in harmful], harmful
