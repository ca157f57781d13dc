"""Ways to start nccl-tests, each for real: srun with PMIx and PMI-2, Open MPI's mpirun, containers by a SPANK plugin,
on a Slurm that shares out cores, memory and GPUs."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab import processes
from tests.lab.fixtures import why_not
from tests.lab.lab import Lab, new_folder, slurm_version
from tests.lab.nccl_cluster import FAKE, GPUS, Cluster, need_compiler, need_mpirun, need_pmix

pytestmark = pytest.mark.lab
# A folder for PMIx' sockets on each node; on one machine all nodes would share /tmp.
CONF = "SelectTypeParameters=CR_Core_Memory\nDefMemPerNode=200\nTmpFS=@LAB@/spool/%n"
IMAGE = "/fsx/images/nccl-tests.sqsh"


@pytest.fixture(scope="module")
def started() -> Iterator[Cluster]:
    if reason := why_not():
        pytest.skip(reason)
    with Lab(new_folder(), gpus=GPUS, conf=CONF) as lab:
        yield Cluster(lab)


@pytest.fixture
def tests(started: Cluster) -> Cluster:
    started.faults()
    return started


@pytest.fixture
def mpirun(tests: Cluster) -> Cluster:
    need_mpirun()
    return tests


@pytest.fixture
def pyxis(tests: Cluster) -> Iterator[Cluster]:
    """Slurm with the plugin; the next srun and the next step read plugstack.conf."""
    need_compiler()
    library = Path(tests.lab.path("etc", "pyxis.so"))
    number = subprocess.run(["/usr/sbin/slurmctld", "-V"], capture_output=True, text=True).stdout
    micro = re.search(r"\d+\.\d+\.(\d+)", number)
    major, minor = slurm_version()
    version = f"-DSLURM_VERSION={major << 16 | minor << 8 | int(micro[1] if micro else 0)}"
    subprocess.run(["gcc", "-shared", "-fPIC", version, str(FAKE / "pyxis.c"), "-o", str(library)], check=True)
    stack = Path(tests.lab.path("etc", "plugstack.conf"))
    stack.write_text(f"required {library}\n")
    yield tests
    stack.unlink()


def ranks_in(out: str) -> str:
    found = re.search(r"on \d+ nodes?, \d+ ranks?", out)
    return found[0] if found else out


# PMI


def test_pmix_starts_the_ranks_of_a_real_mpi_build_over_all_nodes(tests: Cluster) -> None:
    need_pmix()
    code, out, err = tests.run("--mpi", "pmix", program=tests.built("mpi"), job=("--exclusive", "--gpus-per-node=2"))
    assert (0, "on 4 nodes, 8 ranks") == (code, ranks_in(out)), err


def test_pmi2_starts_the_ranks_of_a_real_pmi2_build(tests: Cluster) -> None:
    code, out, err = tests.run("--mpi", "pmi2", program=tests.built("pmi2"))
    assert (0, "on 4 nodes, 8 ranks") == (code, ranks_in(out)), err


@pytest.mark.parametrize("kind", ["pmi2", "none"])
def test_ranks_that_do_not_find_each_other_are_several_programs_and_no_pass(tests: Cluster, kind: str) -> None:
    code, out, _ = tests.run("-v", "--mpi", "none", program=tests.built(kind), nodes=2)
    assert 1 == code
    assert "busbw-no-mpi  4 programs ran side by side, each as rank 0" in out
    assert "hpslurm nccl-tests --launcher mpirun" in out


def test_a_search_with_ranks_that_do_not_find_each_other_measures_nothing(tests: Cluster) -> None:
    code, _, err = tests.run("--mpi", "none", "--find-slow", program=tests.built("none"), nodes=2)
    assert 1 == code
    assert "not one of 1 runs printed a table" in err


def test_an_mpi_that_cannot_use_the_pmi_is_named_with_the_way_out(tests: Cluster) -> None:
    """Debian's Open MPI knows PMIx only, like many builds that came from an mpirun."""
    code, out, _ = tests.run("--mpi", "pmi2", program=tests.built("mpi"), nodes=2)
    assert 1 == code
    assert "srun and the MPI of this build do not find each other" in out
    assert "hpslurm nccl-tests --launcher mpirun" in out
    code, _, err = tests.run("--mpi", "pmi2", "--find-slow", program=tests.built("mpi"), nodes=2)
    assert 1 == code
    assert "do not find each other" in err


def test_a_pmi_that_slurm_does_not_have_is_named(tests: Cluster) -> None:
    code, out, _ = tests.run("--mpi", "pmix_v99", nodes=2)
    assert 1 == code
    assert "pmix_v99" in " ".join(out.split())
    assert "srun --mpi=list" in out


# mpirun


@pytest.mark.parametrize(
    "job",
    [
        ("--exclusive", "--gpus-per-node=2"),
        ("--ntasks-per-node=1", "--mem=100", "--gres=gpu:2"),
    ],
)
def test_mpirun_starts_a_run_over_all_nodes(mpirun: Cluster, job: tuple[str, ...]) -> None:
    code, out, err = mpirun.run("--launcher", "mpirun", program=mpirun.built("mpi"), job=job)
    assert (0, "on 4 nodes, 8 ranks") == (code, ranks_in(out)), out + err


def test_mpirun_uses_only_the_nodes_that_were_asked_for(mpirun: Cluster) -> None:
    code, out, err = mpirun.run("--launcher", "mpirun", "--nodes", "2", program=mpirun.built("mpi"))
    assert (0, "on 2 nodes, 4 ranks") == (code, ranks_in(out)), out + err


def test_pairs_by_mpirun_run_side_by_side_each_on_its_own_nodes(mpirun: Cluster) -> None:
    stamps = mpirun.lab.path("work", "stamps-mpirun")
    mpirun.faults(seconds=1, stamps=stamps, rails={"n3 1": 0.5})
    code, out, err = mpirun.run("--launcher", "mpirun", "--find-slow", "-v", program=mpirun.built("mpi"), seconds=180)
    assert 3 == code, out + err
    assert "busbw-slow-rail  n3  GPU 1 and its NICs rdmap80s0," in out
    assert_two_pairs_at_once(stamps)


def test_the_slow_node_is_named_by_pairs_that_mpirun_starts(mpirun: Cluster) -> None:
    mpirun.faults(slow={"n2": 0.6})
    code, out, err = mpirun.run(
        "--launcher", "/usr/bin/mpirun", "--find-slow", program=mpirun.built("mpi"), seconds=180
    )
    assert 3 == code, out + err
    assert "Named: n2\n" in out


def test_a_hang_under_mpirun_is_ended_on_every_node(mpirun: Cluster) -> None:
    mpirun.faults(hang=["n3"])
    code, out, _ = mpirun.run("--launcher", "mpirun", "--time-limit", "4", program=mpirun.built("mpi"))
    assert 1 == code
    assert "busbw-hang" in out
    assert [] == left_over(mpirun.lab)


def left_over(lab: Lab, seconds: float = 10) -> list[str]:
    """What of a run is still there a moment later: programs, daemons of mpirun, steps."""
    for _ in range(int(seconds * 5)):
        names = [processes.name(pid) for pid, _ in lab.processes()]
        found = [name for name in names if name in ("mpirun", "orted", "all_reduce_perf", "srun")]
        found += lab.run("squeue", "--steps", "--noheader").stdout.split()
        if not found:
            break
        time.sleep(0.2)
    return found


def test_mpirun_and_what_only_srun_can_do_are_not_mixed(tests: Cluster) -> None:
    for words, said in (
        (["--container-image", IMAGE], "a container (pyxis) is a matter of srun"),
        (["--mpi", "pmix"], "--mpi is for srun"),
        (["--srun-option", "--comment=two words"], "cannot pass on a word that contains spaces"),
    ):
        code, _, err = tests.run("--launcher", "mpirun", *words, nodes=2)
        assert 2 == code
        assert said in err
    code, _, err = tests.run("--launcher", "/no/mpirun", nodes=2)
    assert 1 == code
    assert "/no/mpirun" in err


# containers


def test_container_options_reach_the_task_of_a_whole_run(pyxis: Cluster) -> None:
    pyxis.faults(show=["PYXIS_GOT"])
    folder = pyxis.lab.path("work", "pyxis")
    words = ["--container-image", IMAGE, "--container-mounts", "/fsx:/fsx,/dev/infiniband:/dev/infiniband"]
    code, out, err = pyxis.run(*words, "--output", folder, program=str(pyxis.bin))
    assert 0 == code, out + err
    said = (Path(folder) / "all_reduce-4.out").read_text()
    got = next(line for line in said.splitlines() if "PYXIS_GOT=" in line).partition("PYXIS_GOT=")[2]
    wanted = [f"container-image={IMAGE}", "container-mounts=/fsx:/fsx,/dev/infiniband:/dev/infiniband"]
    wanted += ["no-container-mount-home", "no-container-remap-root"]
    assert set(wanted) == set(got.split())  # Slurm hands each on more than once
    assert "on 4 nodes, 8 ranks" in out


def test_container_options_reach_pairs_and_rails(pyxis: Cluster) -> None:
    stamps = pyxis.lab.path("work", "stamps-pyxis")
    pyxis.faults(stamps=stamps, note="PYXIS_GOT", rails={"n2 0": 0.5})
    code, out, err = pyxis.run("--find-slow", "--container-image", IMAGE, program=str(pyxis.bin), seconds=180)
    assert 3 == code, out + err
    lines = Path(stamps).read_text().splitlines()
    assert len(lines) > 4
    words = (f"container-image={IMAGE}", "no-container-mount-home", "no-container-remap-root")
    assert all(word in line for word in words for line in lines)


def test_without_pyxis_the_error_says_so_and_what_to_do(tests: Cluster) -> None:
    code, out, _ = tests.run("--container-image", IMAGE, program=str(tests.bin), nodes=2)
    assert 1 == code
    assert "pyxis is not installed on this cluster" in out
    assert "--program" in out
    code, _, err = tests.run("--find-slow", "--container-image", IMAGE, program=str(tests.bin), nodes=2)
    assert 1 == code
    assert "pyxis is not installed on this cluster" in err


# cores, memory, GPUs


def assert_two_pairs_at_once(stamps: str) -> None:
    """Two runs on other nodes whose times overlap."""
    runs = [line.split()[:3] for line in Path(stamps).read_text().splitlines()]
    pairs = [(set(hosts.split(",")), float(began), float(ended)) for hosts, began, ended in runs]
    assert any(
        not one[0] & two[0] and max(one[1], two[1]) < min(one[2], two[2])
        for i, one in enumerate(pairs)
        for two in pairs[i + 1 :]
        if len(one[0]) == len(two[0]) == 2
    ), runs


@pytest.mark.parametrize(
    "job",
    [
        ("--exclusive", "--gres=gpu:2"),
        ("--exclusive", "--gpus-per-node=2"),
        ("--ntasks-per-node=1", "--mem=100", "--gres=gpu:2"),  # fewer cores than processes
        ("--exclusive", "--mem=450", "--gpus-per-node=2"),  # more than the default of 200
        ("-N4", "-n4", "--cpus-per-task=2", "--mem-per-cpu=40", "--gpus-per-node=2"),
    ],
)
def test_pairs_run_at_the_same_time_with_all_gpus_of_the_job(tests: Cluster, job: tuple[str, ...]) -> None:
    stamps = tests.lab.path("work", f"stamps{len(os.listdir(tests.lab.path('work')))}")
    tests.faults(seconds=1, stamps=stamps, note="CUDA_VISIBLE_DEVICES")
    code, out, err = tests.run("--find-slow", job=job, seconds=120)
    assert 0 == code, out + err
    assert "No slow node: all 4 were fast" in out
    assert_two_pairs_at_once(stamps)
    assert {"CUDA_VISIBLE_DEVICES=0,1"} == {line.split()[3] for line in Path(stamps).read_text().splitlines()}
