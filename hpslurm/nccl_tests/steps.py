"""What to start for a bandwidth test: which program, with which sizes, in which steps.

One process a GPU, as training runs. Nothing here starts anything; ``sources/launch.py`` does.
"""

from __future__ import annotations

import glob
import os
import re
import shutil
from collections.abc import Mapping, Sequence

from hpslurm.core.values import dataclass, replace
from hpslurm.nccl_tests.runs import RAIL, Run
from hpslurm.sources.launch import Step

PROGRAM = "all_reduce_perf"
# Where images put them: AWS's deep learning images, containers, own builds. The newest CUDA first.
PLACES = (
    "/opt/nccl-tests/build",
    "/usr/local/cuda/efa/test-cuda*",
    "/usr/local/cuda-*/efa/test-cuda-*",
    "/opt/nccl-tests",
    "/usr/local/nccl-tests/build",
    "/usr/local/bin",
    "/usr/bin",
)
# Open MPI of AWS's images first: it is the one that their nccl-tests are linked with.
MPIRUNS = (
    "/opt/amazon/openmpi/bin/mpirun",
    "/opt/amazon/openmpi5/bin/mpirun",
    "/usr/local/bin/mpirun",
    "/usr/lib64/openmpi/bin/mpirun",
    "/usr/bin/mpirun",
)
SHARED = "nccl"  # beginning of the files that NCCL writes, one a rank
_VERSION = re.compile(r"\d+")


@dataclass(frozen=True)
class Preset:
    """Sizes in bytes, each ``factor`` times the one before; ``seconds`` is the limit for one step."""

    smallest: int
    largest: int
    factor: int
    iterations: int
    seconds: float


# Four sizes at which the figures of others exist: 3 to 5 s of transfers on a p5 pair, 20 to 60 s to start.
QUICK = Preset(1 << 30, 8 << 30, 2, 20, 180.0)
FULL = Preset(1 << 20, 16 << 30, 2, 50, 900.0)
# One large size is enough to compare pairs with each other.
SEARCH = Preset(4 << 30, 4 << 30, 2, 20, 120.0)
PRESETS = {"quick": QUICK, "full": FULL}


@dataclass(frozen=True)
class How:
    """How to start the tests on this cluster. ``gpus`` is per node, ``options`` go to srun.

    ``per_node`` starts one process a node that drives all its GPUs; for a build or a site without PMI.
    ``mpirun`` is the path of Open MPI's launcher, empty: srun starts the processes itself.
    ``logs`` is the folder for NCCL's own lines, empty: they stay in the output.
    """

    program: str
    gpus: int
    preset: Preset
    mpi: str = "none"
    per_node: bool = False
    options: tuple[str, ...] = ()
    logs: str = ""
    check: bool = True
    mpirun: str = ""


def find_program(name: str, given: str, path: str) -> str | None:
    """The program: what the user gave (a file or a folder), else in PATH, else in the usual places; or None."""
    if given:
        inside = os.path.join(given, name)
        return inside if os.path.isdir(given) else given
    if program := shutil.which(name, path=path):
        return os.path.abspath(program)
    for place in PLACES:
        for folder in sorted(glob.glob(place), key=lambda text: [int(n) for n in _VERSION.findall(text)], reverse=True):
            if os.access(os.path.join(folder, name), os.X_OK):
                return os.path.join(folder, name)
    return None


def find_mpirun(given: str, path: str) -> str | None:
    """What the user gave, if it is a path; else in PATH, else in the usual places; or None."""
    if os.sep in given:
        return given if os.access(given, os.X_OK) else None
    if program := shutil.which("mpirun", path=path):
        return os.path.abspath(program)
    return next((place for place in MPIRUNS if os.access(place, os.X_OK)), None)


def best_mpi(text: str) -> str:
    """The type for ``srun --mpi`` out of what ``srun --mpi=list`` prints: PMIx, else PMI-2, else none."""
    words = re.findall(r"[a-z][a-z0-9_]*", text)
    newest = sorted((word for word in words if re.fullmatch(r"pmix_v\d+", word)), reverse=True)
    return next((str(name) for name in ("pmix", *newest, "pmi2") if name in words), "none")


def arguments(how: How, gpus: int) -> tuple[str, ...]:
    """The words behind the program; ``gpus`` per process. Only options that all versions since 2.0 know."""
    preset = how.preset
    words = ["-b", str(preset.smallest), "-e", str(preset.largest), "-f", str(preset.factor)]
    words += ["-n", str(preset.iterations), "-w", "5", "-g", str(gpus), "-c", "1" if how.check else "0"]
    return tuple(words)


def whole(nodes: Sequence[str], how: How) -> Step:
    """All GPUs of these nodes in one step."""
    tasks, each = (1, how.gpus) if how.per_node else (how.gpus, 1)
    name = f"{os.path.basename(how.program).removesuffix('_perf')}-{len(nodes)}"
    return _step(name, nodes, how, (how.program, *arguments(how, each)), tasks)


def of_run(run: Run, how: How, tag: str) -> Step:
    """The step of one planned run; a rail is one GPU of each node, chosen inside the task.

    Only rails have NCCL's lines in files, ``how.logs``: they are few, and tell which NICs a slow one has.
    """
    name = f"{run.kind}-{tag}"
    if run.rail is not None:
        # Slurm sets this variable for the step, so it must be set again inside
        words = ("env", f"CUDA_VISIBLE_DEVICES={run.rail}", how.program, *arguments(how, 1))
        return _step(f"{run.kind}{run.rail}-{tag}", run.nodes, how, words, 1)
    how = replace(how, logs="")
    tasks, each = (1, how.gpus) if how.per_node else (how.gpus, 1)
    return _step(name, run.nodes, how, (how.program, *arguments(how, each)), tasks)


def _step(name: str, nodes: Sequence[str], how: How, argv: tuple[str, ...], tasks: int) -> Step:
    # A label tells processes apart that each believe to be the first: without PMI every one prints a table.
    options = how.options if how.mpirun else (f"--mpi={how.mpi}", "--label", *how.options)
    env = tuple(nccl_environment(how.logs, name).items())
    return Step(name, tuple(nodes), argv, tasks, how.preset.seconds, how.gpus, options, env, how.mpirun)


def nccl_environment(logs: str, name: str) -> Mapping[str, str]:
    """What tells which network ran: NCCL's own lines, in a file for each rank where there is a folder for them."""
    if not logs:
        return {"NCCL_DEBUG": "WARN"}
    return {
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_SUBSYS": "INIT,NET,ENV",
        "NCCL_DEBUG_FILE": os.path.join(logs, f"{SHARED}.{name}.%h.%p"),
    }


def log_files(logs: str, name: str) -> list[str]:
    """The files that NCCL wrote for a step, as far as they can be seen from here."""
    return sorted(glob.glob(os.path.join(glob.escape(logs), f"{SHARED}.{glob.escape(name)}.*"))) if logs else []


def rail_files(logs: str, rail: int) -> list[str]:
    """The files that NCCL wrote in the runs of this rail."""
    return sorted(glob.glob(os.path.join(glob.escape(logs), f"{SHARED}.{RAIL}{rail}-*"))) if logs else []
