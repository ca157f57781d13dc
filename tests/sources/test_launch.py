"""Steps are real processes here; only srun, squeue and scancel are small stand-ins in a folder of their own."""

import itertools
import os
import stat
import time
from pathlib import Path

import pytest

from hpslurm.sources import launch
from hpslurm.sources.launch import Allocation, CannotLaunch, End, Line, Step

SRUN = """#!/bin/sh
# runs the words after -- once, as the step named by --job-name
for word; do case $word in --job-name=*) name=${word#--job-name=};; esac; done
while [ "$1" != -- ]; do shift; done; shift
echo "$$ $name" >> "$STEPS"
exec "$@"
"""
# Starts a rank in a group of its own, as mpirun does, and does not end it when it is asked to.
MPIRUN = """#!/usr/bin/env python3
import os, signal, subprocess, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
rank = subprocess.Popen(["sleep", "60"], preexec_fn=lambda: os.setpgid(0, 0))
print(rank.pid, flush=True)
time.sleep(60)
"""
SQUEUE = '#!/bin/sh\n{ while read -r pid name; do echo "7.$pid $name"; done; } < "$STEPS"\n'
SCANCEL = '#!/bin/sh\nfor id; do echo "$id" >> "$STEPS.cancelled"; kill -9 "${id#7.}"; done\n'
INSIDE = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "ip-10-1-0-[1-3]", "SLURM_JOB_CPUS_PER_NODE": "96(x2),48"}


@pytest.fixture
def where(tmp_path):
    for name, text in {"srun": SRUN, "squeue": SQUEUE, "scancel": SCANCEL}.items():
        program = tmp_path / name
        program.write_text(text)
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
    env = {"PATH": os.environ["PATH"], "STEPS": str(tmp_path / "steps"), **INSIDE}
    return Allocation("7", ("n1", "n2"), str(tmp_path / "srun"), cpus=96, gpus=8, env=env)


def step(name, *argv, seconds=20.0, **more):
    return Step(name, ("n1",), argv, seconds=seconds, **more)


def test_lines_and_the_end_of_every_step_arrive_with_the_step_they_belong_to(where):
    events = list(launch.run([step("a", "echo", "one"), step("b", "sh", "-c", "echo two >&2; exit 3")], where))
    assert {("a", "one", False), ("b", "two", True)} == {
        (event.step.name, event.text, event.error) for event in events if isinstance(event, Line)
    }
    assert {("a", 0), ("b", 3)} == {(event.step.name, event.status) for event in events if isinstance(event, End)}


def test_a_last_line_without_an_end_is_still_a_line(where):
    events = list(launch.run([step("a", "printf", "half")], where))
    assert ["half"] == [event.text for event in events if isinstance(event, Line)]


def test_a_step_past_its_time_is_cancelled_by_its_id_and_keeps_what_it_said(where, tmp_path):
    events = list(launch.run([step("slow", "sh", "-c", "echo begun; exec sleep 60", seconds=0.5)], where))
    end = events[-1]
    assert (None, True) == (end.status, end.timed_out)
    assert "not done after" in end.why
    assert ["begun"] == [event.text for event in events if isinstance(event, Line)]
    assert (tmp_path / "steps.cancelled").read_text().startswith("7.")


def test_no_step_outlives_a_reader_that_stops_reading(where, tmp_path):
    events = launch.run([step("slow", "sh", "-c", "echo begun; exec sleep 60")], where)
    next(events)
    pid = int((tmp_path / "steps").read_text().split()[0])
    events.close()
    assert not os.path.exists(f"/proc/{pid}")


def test_no_more_steps_run_at_once_than_allowed(where, tmp_path):
    script = f"ls {tmp_path}/run-* 2>/dev/null | wc -l; : > {tmp_path}/run-$$; sleep 0.05; rm {tmp_path}/run-$$"
    events = list(launch.run([step(f"s{i}", "sh", "-c", script) for i in range(6)], where, most=2))
    assert {"0", "1"} >= {event.text.strip() for event in events if isinstance(event, Line)}
    assert 6 == sum(isinstance(event, End) for event in events)


def test_the_jobs_own_step_options_do_not_reach_srun_but_the_users_settings_do(where):
    where.env.update(SLURM_NTASKS="999", SLURM_MEM_PER_CPU="1", NCCL_ALGO="Ring")
    script = "echo ${SLURM_NTASKS-none} ${SLURM_MEM_PER_CPU-none} $NCCL_ALGO $SLURM_JOB_ID $MORE"
    events = list(launch.run([step("a", "sh", "-c", script, env=(("MORE", "yes"),))], where))
    assert "none none Ring 7 yes" == events[0].text


def test_a_step_asks_for_all_that_it_needs_beside_others(where):
    words = launch.command(Step("pair", ("n1", "n2"), ("prog",), tasks=8, gpus=8, options=("--mpi=pmix",)), where)
    assert {"--nodelist=n1,n2", "--nodes=2", "--ntasks=16", "--ntasks-per-node=8"} <= set(words)
    assert {"--exact", "--mem=0", "--cpus-per-task=12", "--gres=gpu:8", "--mpi=pmix"} <= set(words)
    assert ["--", "prog"] == words[-2:]


def test_gpus_are_not_asked_for_where_the_job_holds_none_as_gres(where):
    bare = Allocation("7", ("n1",), where.srun, cpus=4)
    words = launch.command(Step("one", ("n1",), ("prog",), tasks=8, gpus=8), bare)
    assert not [word for word in words if word.startswith("--gres")]
    assert "--overcommit" in words


def test_outside_an_allocation_it_refuses_and_says_how_to_get_one():
    with pytest.raises(CannotLaunch, match="salloc"):
        launch.allocation({})


def test_the_smallest_node_of_a_mixed_job_sets_the_cpus():
    try:
        found = launch.allocation({**INSIDE, "PATH": os.environ["PATH"], "SLURM_GPUS_PER_NODE": "h100:8"})
    except CannotLaunch as missing:
        pytest.skip(str(missing))
    assert (("ip-10-1-0-1", "ip-10-1-0-2", "ip-10-1-0-3"), 48, 8) == (found.nodes, found.cpus, found.gpus)


def test_a_node_list_that_would_run_a_program_is_refused_as_text():
    with pytest.raises(CannotLaunch):
        launch.nodes_in("@group:*")


def test_srun_that_never_got_its_nodes_is_told_apart_from_a_hang(where):
    waiting = "echo 'srun: Job 7 step creation temporarily disabled, retrying (Requested nodes are busy)' >&2; sleep 60"
    end = list(launch.run([step("busy", "sh", "-c", waiting, seconds=0.5)], where, grace=1.0))[-1]
    assert not end.started
    assert "busy with another step" in end.why


def test_a_process_that_keeps_the_pipe_open_does_not_hold_the_call(where):
    began = time.monotonic()
    list(launch.run([step("fork", "sh", "-c", "sleep 30 & echo done")], where))
    assert 25 > time.monotonic() - began


def words_of(step, where):
    """The words of an mpirun command, and the value behind each option."""
    words = launch.command(step, where)
    return words, dict(itertools.pairwise(words))


def test_mpirun_gets_the_nodes_in_slurms_order_with_a_process_for_each_gpu(where):
    one = Step("pair", ("n2", "n1"), ("prog", "-g", "1"), 8, 30.0, mpirun="/opt/amazon/openmpi/bin/mpirun")
    words, values = words_of(one, where)
    assert "/opt/amazon/openmpi/bin/mpirun" == words[0]
    assert ("n1:8,n2:8", "16", "ppr:8:node") == (values["--host"], values["-np"], values["--map-by"])
    assert 30 < int(values["--timeout"])
    assert ["prog", "-g", "1"] == words[-3:]


def test_the_srun_of_mpirun_asks_for_what_a_step_needs_beside_others(where):
    one = Step("pair", ("n1",), ("prog",), 8, gpus=8, options=("--comment=x",), mpirun="/usr/bin/mpirun")
    words, _ = words_of(one, where)
    asked = words[words.index("plm_slurm_args") + 1].split()
    assert {"--exact", "--mem=0", "--cpus-per-task=96", "--gres=gpu:8", "--comment=x"} <= set(asked)
    assert any(word.startswith("--job-name=hpslurm-") for word in asked)
    assert any(word.startswith("--time=") for word in asked)


def test_mpirun_gets_the_environment_by_name_and_the_users_own_choice_wins(where):
    where.env["OMPI_MCA_btl"] = "self,vader"
    words, _ = words_of(Step("a", ("n1",), ("prog",), env=(("NCCL_DEBUG", "INFO"),), mpirun="/usr/bin/mpirun"), where)
    assert "NCCL_DEBUG=INFO" == words[words.index("-x") + 1]
    assert "btl" not in words
    assert "btl_tcp_if_exclude" in words


def test_settings_for_mpi_stay_and_the_marks_of_an_mpi_process_go(where, tmp_path):
    where.env.update(OMPI_MCA_btl="tcp,self", PMIX_MCA_gds="hash", OMPI_COMM_WORLD_RANK="3", PMIX_RANK="3")
    script = "echo $OMPI_MCA_btl $PMIX_MCA_gds ${OMPI_COMM_WORLD_RANK-none} ${PMIX_RANK-none}"
    events = list(launch.run([step("a", "sh", "-c", script)], where))
    assert "tcp,self hash none none" == events[0].text


def test_fewer_cores_than_processes_are_shared_without_exact(where):
    few = Allocation("7", ("n1",), where.srun, cpus=7, env=where.env)
    words = launch.command(step("a", "prog", tasks=8), few)
    assert "--overcommit" in words
    assert not {"--exact", "--cpus-per-task=0"} & set(words)
    enough = Allocation("7", ("n1",), where.srun, cpus=8, env=where.env)
    words = launch.command(step("a", "prog", tasks=8), enough)
    assert {"--exact", "--cpus-per-task=1"} <= set(words)
    assert "--overcommit" not in words


def test_a_rank_that_a_deaf_mpirun_leaves_behind_is_ended_with_it(where, tmp_path):
    program = tmp_path / "mpirun"
    program.write_text(MPIRUN)
    program.chmod(0o755)
    (tmp_path / "steps").touch()
    events = list(launch.run([step("a", "prog", seconds=2.0, mpirun=str(program))], where, grace=0.5))
    assert events[-1].timed_out
    rank = int(events[0].text)
    for _ in range(50):  # init takes its time to reap it
        try:
            if "Z" in Path(f"/proc/{rank}/stat").read_text().rpartition(")")[2]:
                break
        except (FileNotFoundError, ProcessLookupError):
            break
        time.sleep(0.1)
    else:
        raise AssertionError(f"{rank} is still there")
