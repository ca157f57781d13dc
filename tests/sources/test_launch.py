"""Steps are real processes here; only srun, squeue and scancel are small stand-ins in a folder of their own."""

import os
import stat
import time

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
