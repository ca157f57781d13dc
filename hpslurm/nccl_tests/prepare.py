"""What to run with: instance type, GPUs, program and launcher, from what the user named and from what is here."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable
from difflib import get_close_matches

from hpslurm.core import records
from hpslurm.core.probe import Unknown
from hpslurm.core.text import clean
from hpslurm.core.values import dataclass, replace
from hpslurm.nccl_tests import steps
from hpslurm.nccl_tests.expected import limits_of, tables
from hpslurm.node import instance
from hpslurm.scan.nccl_tests import Output
from hpslurm.sources import launch
from hpslurm.sources.host import Host

PRODUCT = "/sys/devices/virtual/dmi/id/product_name"


class CannotRun(Exception):
    """Nothing can be run so; the text says what to do."""


class WrongOption(Exception):
    """The command line is wrong; ``option`` is the one that is, or empty."""

    def __init__(self, text: str, option: str = "") -> None:
        super().__init__(text)
        self.option = option


@dataclass(frozen=True)
class Request:
    """The command line of ``hpslurm nccl-tests``."""

    find_slow: bool
    preset: str
    test: str
    program: str
    nodes: int | None
    gpus: int | None
    instance_type: str | None
    launcher: str
    mpi: str
    per_node: bool
    container_image: str | None
    container_mounts: str | None
    srun_options: tuple[str, ...]
    time_limit: float | None
    side_by_side: int
    seed: int
    output: str
    resume: str | None
    record: bool
    baselines: str | None
    policy_path: str
    html_path: str | None
    as_json: bool
    dry_run: bool
    verbose: bool = False

    @property
    def searches(self) -> bool:
        return bool(self.find_slow or self.resume)


def nodes_of(request: Request, where: launch.Allocation) -> launch.Allocation:
    """The allocation, cut to as many nodes as were asked for. Raises CannotRun."""
    if not request.nodes:
        return where
    if request.nodes > len(where.nodes):
        raise CannotRun(f"--nodes {request.nodes}, but job {where.job} has {len(where.nodes)}")
    return replace(where, nodes=where.nodes[: request.nodes])


def type_here() -> str:
    """The instance type of this machine, or empty."""
    try:
        return instance.instance_type(Host())
    except (Unknown, OSError):
        return ""


def is_here(nodes: Iterable[str]) -> bool:
    """Whether this machine is one of them: a login node's type says nothing about where a job ran."""
    here = {Host().env.get("SLURMD_NODENAME", ""), socket.gethostname().partition(".")[0]}
    return not here.isdisjoint(name.partition(".")[0] for name in nodes)


def type_of_output(output: Output, name: str | None) -> str:
    """The type that the user named; else of this machine, where the run was on it; else empty."""
    if name is not None:
        return known_type(name)
    hosts = {host for table in output.tables for host in table.hosts} | output.log.hosts
    return type_here() if is_here(hosts) else ""


def known_type(name: str | None) -> str:
    """The type that the user named, of this machine where none is; raises WrongOption for one not in the table."""
    if name is None:
        return type_here()
    name = name.removeprefix("ml.")
    if limits_of(name) is None:
        names = [row["type"] for row in tables()["limits"]]
        close = get_close_matches(name, names, n=3) or names
        raise WrongOption(f"{clean(name, 60)!r} is not in the table; known are {', '.join(close)}")
    return name


def type_of(where: launch.Allocation, given: str | None) -> str:
    """The instance type of the nodes: given; of this machine where it is one of them; else the first node is asked."""
    name = known_type(given) if given or is_here(where.nodes) else ""
    if limits_of(name) is not None:
        return name
    step = launch.Step("instance-type", where.nodes[:1], ("cat", PRODUCT), seconds=60)
    words = [
        event.text.strip() for event in launch.run([step], where) if isinstance(event, launch.Line) and not event.error
    ]
    return next((word for word in words if limits_of(word) is not None), "")


def gpus_of(given: int | None, where: launch.Allocation, name: str) -> int:
    """GPUs of a node. Raises CannotRun where nobody says."""
    gpus = given or where.gpus or (limits_of(name) or {}).get("gpus")
    if not gpus:
        raise CannotRun(
            "how many GPUs has a node? Slurm does not say (no gres) and the instance type is not known: use --gpus"
        )
    return int(gpus)


def folder_for(path: str, job: str, *, make: bool) -> str:
    """The folder for output and NCCL's lines; it must be one that all nodes see. Raises CannotRun."""
    path = os.path.abspath(path.replace("%j", job))
    if make:
        try:
            os.makedirs(path, exist_ok=True)
        except OSError as error:
            raise CannotRun(f"{path}: {error.strerror}: name a folder that all nodes share with --output") from None
    return path


def word_for_root(folder: str, uid: int) -> str:
    """What root must know before all ranks write where others may put a link: we follow none, but NCCL opens its
    files (NCCL_DEBUG_FILE) itself. Empty where there is nothing to say."""
    if uid:
        return ""
    try:
        records.refuse_foreign(folder)
        records.refuse_foreign_above(folder)
    except PermissionError as error:
        where = clean(str(error.filename), 200)
        return (
            f"this runs as root, and others may put a link where NCCL writes ({where}: {error.strerror}): "
            "run it as the user whose directory it is, or name a directory of root's with --output"
        )
    return ""


def how_to_start(request: Request, where: launch.Allocation, gpus: int) -> steps.How:
    """The program, the launcher and its options. Raises CannotRun or WrongOption."""
    preset = steps.SEARCH if request.searches else steps.PRESETS[request.preset]
    if request.time_limit:
        preset = replace(preset, seconds=request.time_limit)
    program = _program(request, where)
    options = list(request.srun_options)
    if request.container_image:
        options += [f"--container-image={request.container_image}"]
        options += ["--no-container-mount-home", "--no-container-remap-root"]
    if request.container_mounts:
        options.append(f"--container-mounts={request.container_mounts}")
    mpirun, mpi = _mpirun(request, where), request.mpi
    if mpi == "auto":
        mpi = "none" if mpirun else steps.best_mpi(launch.ask("srun", ["--mpi=list"], where))
    return steps.How(program, gpus, preset, mpi, request.per_node, tuple(options), mpirun=mpirun)


def _program(request: Request, where: launch.Allocation) -> str:
    """The path of the program; inside an image it cannot be looked for."""
    if request.container_image:
        return os.path.join(request.program or "/opt/nccl-tests/build", request.test)
    program = steps.find_program(request.test, request.program, where.env.get("PATH", ""))
    if program is None or not os.access(program, os.X_OK):
        tried = request.program or f"PATH and {', '.join(steps.PLACES)}"
        raise CannotRun(
            f"{request.test} not found (tried {tried}): name it with --program, or its image with --container-image"
        )
    return program


def _mpirun(request: Request, where: launch.Allocation) -> str:
    """The path of mpirun where the user wants it; empty for srun."""
    given = request.launcher
    if given == "srun":
        return ""
    if given != "mpirun" and os.sep not in given:
        raise WrongOption(f"{clean(given, 60)!r} is not srun, mpirun or a path", "--launcher")
    if request.container_image or request.container_mounts:
        raise WrongOption("a container (pyxis) is a matter of srun: leave out --launcher", "--launcher")
    if request.mpi != "auto":
        raise WrongOption("--mpi is for srun, not for mpirun", "--launcher")
    if strange := [word for word in request.srun_options if any(map(str.isspace, word))]:
        raise WrongOption(f"{clean(strange[0], 60)!r}: mpirun cannot pass on a word that contains spaces")
    if (path := steps.find_mpirun(given, where.env.get("PATH", ""))) is None:
        tried = clean(given, 200) if os.sep in given else f"PATH and {', '.join(steps.MPIRUNS)}"
        raise CannotRun(f"mpirun not found (tried {tried}): give its path with --launcher, or leave it out for srun")
    return path
