"""nccl-tests on real Slurm: the program is a model that prints the real format, started by real srun on every node."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpslurm.nccl_tests import search_file
from hpslurm.nccl_tests.runs import QUICK, State
from tests.lab.fixtures import why_not
from tests.lab.lab import Lab, new_folder
from tests.lab.nccl_cluster import RUN, Cluster

pytestmark = pytest.mark.lab


@pytest.fixture(scope="module")
def started() -> Iterator[Cluster]:
    """One lab for all tests here: each only starts jobs in it."""
    if reason := why_not():
        pytest.skip(reason)
    with Lab(new_folder(), nodes=8) as lab:
        yield Cluster(lab)


@pytest.fixture
def tests(started: Cluster) -> Cluster:
    started.faults()
    return started


def test_outside_an_allocation_nothing_is_started(tests: Cluster) -> None:
    done = tests.lab.run(*RUN)
    assert 1 == done.returncode
    assert "not inside a Slurm allocation" in done.stderr
    assert "salloc" in done.stderr


def test_a_run_over_all_nodes_is_judged_and_recorded(tests: Cluster) -> None:
    site = tests.lab.path("work", "site.jsonl")
    code, out, err = tests.run("--record", "--baselines", site)
    assert (0, "") == (code, "".join(line for line in err.splitlines(True) if not line.startswith("salloc")))
    assert "all_reduce on 4 nodes, 8 ranks, p5.48xlarge" in out
    assert "no source for a floor" in out  # two GPUs of eight: nobody published that
    assert "recorded 4 sizes" in out
    tests.faults(slow={"n3": 0.6})
    code, out, err = tests.run("--baselines", site)
    assert 3 == code
    assert "busbw-failed" in out
    assert "own median of 1 runs" in out


def test_output_is_kept_where_all_nodes_see_it(tests: Cluster) -> None:
    tests.run("--output", tests.lab.path("work", "out-%j"), nodes=2)
    (folder,) = Path(tests.lab.path("work")).glob("out-*")
    assert "# Avg bus bandwidth" in (folder / "all_reduce-2.out").read_text()


def test_the_slow_node_is_named_by_pairs_on_real_srun(tests: Cluster) -> None:
    tests.faults(slow={"n5": 0.6})
    code, out, _ = tests.run("--find-slow", "-v", nodes=8, seconds=120)
    assert 3 == code
    assert "Named: n5\n" in out
    assert "busbw-slow-node  n5" in out
    assert "at most" in out  # the bound, before it starts


def test_healthy_nodes_are_all_fast_and_nobody_is_named(tests: Cluster) -> None:
    code, out, _ = tests.run("--find-slow", nodes=5, seconds=120)
    assert 0 == code
    assert "No slow node: all 5 were fast" in out


def test_a_node_that_hangs_is_named_apart_from_slow_ones(tests: Cluster) -> None:
    tests.faults(hang=["n2"])
    code, out, _ = tests.run("--find-slow", "-v", "--time-limit", "5", nodes=4, seconds=180)
    assert 3 == code
    assert "busbw-bad-node  n2  hung" in out


def test_the_slow_rail_is_named_with_its_node(tests: Cluster) -> None:
    tests.faults(rails={"n4 1": 0.5})
    code, out, _ = tests.run("--find-slow", "-v", nodes=4, seconds=180)
    assert 3 == code
    assert "busbw-slow-rail  n4  GPU 1 and its NICs rdmap80s0, rdmap81s0, rdmap82s0, rdmap83s0:" in out
    assert "GPU 1: rdmap80s0 (0000:50:00.0)" in out


def test_a_hang_names_the_phase_and_leaves_no_step_behind(tests: Cluster) -> None:
    tests.faults(hang=["n1"])
    code, out, _ = tests.run("--time-limit", "3", nodes=2, seconds=60)
    assert 1 == code
    assert "busbw-hang" in out
    assert "the first transfer" in out
    assert "" == tests.steps_left()


def test_an_interrupt_ends_the_steps_and_says_so_by_its_exit_code(tests: Cluster) -> None:
    tests.faults(hang=["n1"])
    command = [
        "salloc",
        "-wn[1-2]",
        "--exclusive",
        "timeout",
        "--preserve-status",
        "-s",
        "INT",
        "4",
        *RUN,
        "--mpi",
        "none",
    ]
    done = tests.lab.run(*command, "--program", str(tests.program), env={"HPSLURM_MODEL": str(tests.model)})
    assert 130 == done.returncode, done.stderr
    assert "Traceback" not in done.stderr
    assert "" == tests.steps_left()


def test_a_search_goes_on_from_its_file(tests: Cluster) -> None:
    tests.faults(slow={"n3": 0.6})
    folder = tests.lab.path("work", "search")
    code, _, _ = tests.run("--find-slow", "--output", folder, nodes=4, seconds=120)
    path = os.path.join(folder, "find-slow.jsonl")
    lines = Path(path).read_text().splitlines(True)
    Path(path).write_text("".join(lines[:2]) + lines[2][:20])  # killed in the middle of the first round
    again, out, err = tests.run("--resume", path, nodes=4, seconds=120)
    assert (3, 3) == (code, again), err
    assert "Named: n3\n" in out
    kept = [json.loads(line) for line in Path(path).read_text().splitlines() if line.endswith("}")]
    assert json.loads(lines[1]) == kept[1]


def test_a_node_that_is_gone_when_the_search_goes_on_is_named_and_the_others_are_tested(tests: Cluster) -> None:
    state = State(tuple(f"n{i}" for i in range(1, 5)), QUICK)
    path = tests.lab.script("gone.jsonl", json.dumps(search_file.head_line(state, "all_reduce_perf")) + "\n")
    code, out, err = tests.run("--resume", path, "-v", nodes=3, seconds=120)
    assert 3 == code, err
    assert "busbw-bad-node  n4  failed" in out


def test_it_runs_inside_a_step_too(tests: Cluster) -> None:
    first = '[ "$SLURM_PROCID" = 0 ] || exec sleep 8; exec "$@"'
    words = ["srun", "-wn[1-2]", "--exclusive", "-n2", "--overcommit", "sh", "-c", first, "sh"]
    words += [*RUN, "--mpi", "none", "--program", str(tests.program)]
    done = tests.lab.run(*words, env={"HPSLURM_MODEL": str(tests.model)})
    assert "all_reduce on 2 nodes, 4 ranks" in done.stdout, done.stderr


def test_a_dry_run_prints_commands_and_bounds_and_starts_nothing(tests: Cluster) -> None:
    folder = Path(tests.lab.path("work", "dry"))
    code, out, _ = tests.run("--find-slow", "--dry-run", "--output", str(folder), nodes=8)
    assert 0 == code
    assert "--nodelist=" in out
    assert "node-minutes" in out
    assert not folder.exists()


def test_a_program_that_prints_nothing_is_no_pass(tests: Cluster) -> None:
    silent = tests.lab.script("all_reduce_perf", "#!/bin/sh\nexit 0\n")
    code, out, _ = tests.run(program=silent, nodes=2)
    assert 1 == code
    assert "busbw-no-output" in out
    code, _, err = tests.run("--find-slow", program=silent, nodes=2)
    assert 1 == code
    assert "not one of 1 runs printed a table" in err


def test_a_batch_script_runs_it_as_written_in_the_help(tests: Cluster) -> None:
    script = tests.lab.script(
        "job.sh",
        "#!/bin/bash\n#SBATCH --nodelist=n[1-4] --exclusive\n"
        f"export HPSLURM_MODEL={tests.model}\n{' '.join(RUN)} --mpi none --program {tests.program} --find-slow\n",
    )
    tests.faults(slow={"n2": 0.6})
    job = tests.lab.submit("--output", tests.lab.path("work", "job.out"), script)
    tests.lab.wait_for_job(job, seconds=120)
    assert "Named: n2\n" in Path(tests.lab.path("work", "job.out")).read_text()


@pytest.mark.parametrize("columns", [60, 200])
def test_a_terminal_shows_the_size_reached_and_the_bandwidth_so_far(tests: Cluster, columns: int) -> None:
    tests.faults(seconds=0.9)  # after two seconds a terminal is told
    said = tests.on_terminal(columns)
    live = [piece.partition(" (")[0] for piece in said if re.fullmatch(r"all_reduce-4: [^\x1b]* \(\d+ s\) *", piece)]
    rates = {"1 GiB 396.0 GB/s", "2 GiB 405.1 GB/s", "4 GiB 418.0 GB/s", "8 GiB 436.2 GB/s"}
    assert {piece.partition(": ")[2] for piece in live} <= rates
    assert 2 <= len(set(live))
    plain = [re.sub(r"\x1b\[[0-9;]*m", "", piece) for piece in said]
    assert [] == [piece for piece in plain if len(piece) > columns]
    assert any("█" in piece for piece in plain)


def test_a_terminal_shows_the_round_of_a_search_and_what_is_left_of_it(tests: Cluster) -> None:
    tests.faults(seconds=2.6)  # after two seconds a terminal is told
    said = tests.on_terminal(60, "--find-slow")
    assert any(
        re.match(r"round 1, pair: [01] of 2 done, pair-0\.[01]: (starting|\d GiB [\d.]+ GB/s) \(\d", piece)
        for piece in said
    )
    assert any(re.match(r"round 2, group: group-1\.0: (starting|\d GiB [\d.]+ GB/s) \(\d", piece) for piece in said)
