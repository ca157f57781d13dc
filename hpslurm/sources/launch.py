"""Job steps inside the caller's own allocation: started side by side, read line by line, ended by step id.

This is the only door that starts work on nodes, and it opens only where the user already holds
them: without SLURM_JOB_ID it refuses. Every step has a time limit, and none outlives the call that
started it: not a slow one, not an interrupted one, not one whose reader lost interest.

    where = launch.allocation()
    steps = [launch.Step(node, (node,), ("hpslurm-check", "--json")) for node in where.nodes]
    for event in launch.run(steps, where):
        if isinstance(event, launch.Line):
            print(event.step.name, event.text)
        elif not event.ok:
            print(event.step.name, event.why)
"""

from __future__ import annotations

import os
import pwd
import re
import select
import selectors
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from hpslurm.core import nodeset
from hpslurm.core.text import clean
from hpslurm.core.values import dataclass, field

MOST_SIDE_BY_SIDE = 64  # each srun holds a few threads and sockets on the node that runs us
MOST_LINE = 64 << 10  # bytes; a longer line is cut into pieces
GRACE = 10.0  # seconds between asking a step to end and giving up on its srun
_FOLDERS = ("/opt/slurm/bin", "/usr/bin", "/usr/local/bin", "/usr/local/slurm/bin")
# What srun needs from the job's environment. The other SLURM_ variables are the job's own options,
# which srun would take for options of the step (SLURM_NTASKS, SLURM_MEM_PER_CPU, SLURM_GPUS ...).
_KEPT = ("SLURM_CONF", "SLURM_JOB_ID", "SLURM_MPI_TYPE")
# So do those of an MPI process that we run in; what the user set for an MPI to come (PMIX_MCA_gds) stays.
_DROPPED = re.compile(r"(?:SLURM|SRUN|PMI|PMIX|OMPI)_(?!MCA_)")
_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_NOT_YET = re.compile(r"srun: (?:Job \d+ step creation temporarily disabled|Job step creation temporarily disabled)")


class CannotLaunch(Exception):
    """We are not inside an allocation, or Slurm's commands are missing; the text says what to do."""


@dataclass(frozen=True)
class Allocation:
    """The caller's job. ``gpus`` and ``cpus`` are per node; None is what Slurm did not say."""

    job: str
    nodes: tuple[str, ...]
    srun: str
    cpus: int | None = None
    gpus: int | None = None
    inside_step: bool = False
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    uid: int | None = (
        None  # whose srun it is, where root asks about another's job: Slurm lets only its user start steps
    )


@dataclass(frozen=True)
class Step:
    """What to start where. ``name`` tells steps of one call apart; ``seconds`` is the time limit.

    ``tasks`` is the number of processes per node. ``gpus`` per node is asked of Slurm only where the
    job holds GPUs as gres. ``options`` go to srun as they are (``--mpi=pmix``, ``--container-image=...``).
    ``mpirun`` is the path of Open MPI's launcher, which then starts the processes: it starts one daemon
    a node, by an srun of its own.
    """

    name: str
    nodes: tuple[str, ...]
    argv: tuple[str, ...]
    tasks: int = 1
    seconds: float = 300.0
    gpus: int = 0
    options: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    mpirun: str = ""


@dataclass(frozen=True)
class Line:
    """One line of a step's output, without its end; ``error`` marks standard error. Not cleaned."""

    step: Step
    text: str
    error: bool = False


@dataclass(frozen=True)
class End:
    """How a step ended. ``status`` is the launcher's, or None where we had to end it.

    ``timed_out`` means that our limit passed; ``started`` is False where Slurm never gave it the nodes.
    """

    step: Step
    status: int | None
    seconds: float
    timed_out: bool = False
    started: bool = True

    @property
    def ok(self) -> bool:
        return self.status == 0

    @property
    def why(self) -> str:
        if self.ok:
            return "completed"
        if not self.started:
            return f"Slurm did not start it within {self.step.seconds:.0f} s (are the nodes busy with another step?)"
        if self.timed_out:
            return f"not done after {self.step.seconds:.0f} s; ended"
        return f"{'mpirun' if self.step.mpirun else 'srun'} ended with {self.status}"


def allocation(env: Mapping[str, str] | None = None) -> Allocation:
    """The job that we run in, from Slurm's environment; raises CannotLaunch outside of one."""
    env = os.environ if env is None else env
    job = env.get("SLURM_JOB_ID", "")
    if not job.isdigit():
        raise CannotLaunch(
            "not inside a Slurm allocation (SLURM_JOB_ID is not set): use sbatch, or salloc -N2 --exclusive first"
        )
    nodes = nodes_in(env.get("SLURM_JOB_NODELIST") or env.get("SLURM_NODELIST") or "")
    if not nodes:
        raise CannotLaunch(f"SLURM_JOB_NODELIST of job {job} names no node")
    return Allocation(
        job,
        nodes,
        program("srun", env),
        _least(env.get("SLURM_JOB_CPUS_PER_NODE", "")),
        _gpus(env),
        inside_step(env),
        dict(env),
    )


def inside_step(env: Mapping[str, str]) -> bool:
    """Whether srun started us. A batch script, an external step and the shell of salloc have numbers of their own."""
    return "SLURM_STEP_ID" in env and env["SLURM_STEP_ID"] not in ("4294967291", "4294967294", "4294967290")


def nodes_in(text: str) -> tuple[str, ...]:
    """Slurm's folded node list unfolded; raises CannotLaunch when it is none.

    >>> nodes_in("ip-10-1-0-[3-4],login")
    ('ip-10-1-0-3', 'ip-10-1-0-4', 'login')
    """
    try:
        nodes = tuple(nodeset.unfold(text))
    except nodeset.NoNodeList as error:
        raise CannotLaunch(f"{clean(text, 80)!r} is not a valid node list: {clean(str(error))}") from error
    if strange := [node for node in nodes if not _NODE.fullmatch(node)]:
        raise CannotLaunch(f"{clean(strange[0], 80)!r} is not a valid node name")
    return nodes


def _least(text: str) -> int | None:
    """Slurm writes ``96(x3),48``; the smallest node is the one that every step must fit.

    >>> _least("96(x3),48"), _least("192"), _least("")
    (48, 192, None)
    """
    numbers = [int(number) for number in re.findall(r"(?:^|,)(\d+)", text)]
    return min(numbers, default=None)


def _gpus(env: Mapping[str, str]) -> int | None:
    """GPUs of a node, by what Slurm put into the environment.

    >>> _gpus({"SLURM_GPUS_PER_NODE": "h100:8"}), _gpus({"SLURM_JOB_GPUS": "0,1"}), _gpus({})
    (8, 2, None)
    """
    for key in ("SLURM_GPUS_ON_NODE", "SLURM_GPUS_PER_NODE"):  # the second may be "h100:8"
        if (count := env.get(key, "").rpartition(":")[2]).isdigit():
            return int(count)
    ids = env.get("SLURM_JOB_GPUS", "")
    return len(ids.split(",")) if ids else None


def program(name: str, env: Mapping[str, str] | None = None) -> str:
    """Where one of Slurm's programs is. Raises CannotLaunch."""
    env = os.environ if env is None else env
    for folder in _FOLDERS:
        if os.access(f"{folder}/{name}", os.X_OK):
            return f"{folder}/{name}"
    path = shutil.which(name, path=env.get("PATH", ""))
    if path is None:
        raise CannotLaunch(f"{name} not found in {', '.join(_FOLDERS)} or PATH")
    return os.path.abspath(path)


def command(step: Step, where: Allocation) -> list[str]:
    """The command of a step, for running and for a dry run."""
    if step.mpirun:
        return _by_mpirun(step, where)
    words = [
        where.srun,
        f"--jobid={where.job}",
        f"--nodelist={','.join(step.nodes)}",
        f"--nodes={len(step.nodes)}",
        f"--ntasks={len(step.nodes) * step.tasks}",
        f"--ntasks-per-node={step.tasks}",
        "--kill-on-bad-exit=1",
        "--input=none",
        *_needs(step, where, step.tasks),
    ]
    return [*words, *step.options, "--", *step.argv]


def _needs(step: Step, where: Allocation, tasks: int) -> Iterator[str]:
    """What srun is asked for ``tasks`` processes per node, so that steps on other nodes run at the same time."""
    yield f"--job-name={_job_name(step)}"
    if where.cpus is not None and where.cpus < tasks:
        yield "--overcommit"  # which Slurm refuses together with --exact: takes what the job has on these nodes
    else:
        # Side by side: a step takes only what it asks for, so it must ask for all it needs.
        yield "--exact"
        if where.cpus is not None:
            yield f"--cpus-per-task={where.cpus // tasks}"
    yield "--mem=0"  # all that the job has, by node or by core; else a step takes the default, or a task's part
    yield "--cpu-bind=none"  # else all ranks may share one core
    yield f"--time={int(step.seconds // 60) + 2}"  # minutes; Slurm's own limit, in case that we die
    if step.gpus and where.gpus:
        yield f"--gres=gpu:{min(step.gpus, where.gpus)}"
    if where.inside_step:  # our own step holds resources of this node
        yield "--overlap"


# Open MPI carries a few bytes here; NCCL moves the data. TCP works on every node and inside any fabric.
_MCA = (
    ("pml", "ob1"),
    ("btl", "tcp,self"),
    ("btl_tcp_if_exclude", "lo,docker0,veth_def_agent"),  # not one that only its own node can reach
)


def _in_order(step: Step, where: Allocation) -> list[str]:
    """The nodes as Slurm sorts them. mpirun numbers its daemons by its own list, srun starts them in Slurm's order."""
    return sorted(step.nodes, key=where.nodes.index)


def _by_mpirun(step: Step, where: Allocation) -> list[str]:
    """Open MPI's own launcher. On the node that it runs on it starts the processes itself, on the others by srun."""
    words = [
        step.mpirun,
        "--host",
        ",".join(f"{node}:{step.tasks}" for node in _in_order(step, where)),
        "-np",
        str(len(step.nodes) * step.tasks),
        "--map-by",
        f"ppr:{step.tasks}:node",
        "--bind-to",
        "none",
        "--tag-output",  # tells ranks apart that each believe to be the first
        "--timeout",
        str(int(step.seconds) + 120),  # mpirun's own limit, in case that we die
    ]
    if os.geteuid() == 0:
        words.append("--allow-run-as-root")
    ours = [(key, value) for key, value in _MCA if f"OMPI_MCA_{key}" not in where.env]
    for key, value in (*ours, ("plm_slurm_args", " ".join([*_needs(step, where, 1), *step.options]))):
        words += ["--mca", key, value]
    for key, value in step.env:
        words += ["-x", f"{key}={value}"]
    return [*words, *step.argv]


def _job_name(step: Step) -> str:
    return f"hpslurm-{os.getpid()}-" + re.sub(r"[^A-Za-z0-9_.-]", "_", step.name)[:80]


def _environment(step: Step, where: Allocation) -> dict[str, str]:
    kept = {key: value for key, value in where.env.items() if not _DROPPED.match(key)}
    kept.update((key, where.env[key]) for key in _KEPT if key in where.env)
    if step.mpirun:
        # It reads the allocation from these. All of it: for all nodes that it knows of it calls srun without a
        # node list, which then is any nodes of the job.
        nodes = where.env.get("SLURM_JOB_NODELIST") or where.env.get("SLURM_NODELIST") or ",".join(where.nodes)
        count = len(nodes_in(nodes))
        kept.update(SLURM_JOBID=where.job, SLURM_JOB_NODELIST=nodes, SLURM_NODELIST=nodes)
        kept.update(SLURM_JOB_NUM_NODES=str(count), SLURM_NNODES=str(count))
        kept.update(SLURM_TASKS_PER_NODE=f"{step.tasks}(x{count})", SLURM_JOB_CPUS_PER_NODE=f"{step.tasks}(x{count})")
        kept["PATH"] = os.pathsep.join(
            [kept.get("PATH", "/usr/bin"), os.path.dirname(where.srun)]
        )  # it calls srun by name
    return {**kept, **dict(step.env)}


def _as_user(uid: int | None) -> dict[str, Any]:
    """Words for Popen: that user, with the groups that it has."""
    if uid is None or uid == os.geteuid():
        return {}
    try:
        about = pwd.getpwuid(uid)
    except KeyError:
        return {"user": uid, "group": uid, "extra_groups": ()}
    return {"user": uid, "group": about.pw_gid, "extra_groups": os.getgrouplist(about.pw_name, about.pw_gid)}


class _Running:
    def __init__(self, step: Step, where: Allocation) -> None:
        self.step = step
        self.began = time.monotonic()
        self.deadline = self.began + step.seconds
        self.timed_out = False
        self.waiting = False  # srun says that it still waits for the nodes
        self.process = subprocess.Popen(
            command(step, where),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=_environment(step, where),
            **_as_user(where.uid),
            start_new_session=True,  # Ctrl-C reaches us alone, and we end the steps in order; also names them
        )
        assert self.process.stdout is not None and self.process.stderr is not None
        self.rest = {self.process.stdout.fileno(): bytearray(), self.process.stderr.fileno(): bytearray()}
        self.error_fd = self.process.stderr.fileno()
        for fd in self.rest:
            os.set_blocking(fd, False)
        self.open = set(self.rest)

    def read(self, fd: int) -> Iterator[Line]:
        try:
            part = os.read(fd, 1 << 16)
        except BlockingIOError:
            return
        rest = self.rest[fd]
        rest += part
        *whole, last = bytes(rest).split(b"\n")
        if not part or len(last) > MOST_LINE:  # the end, or a line without one
            whole, last = [*whole, last] if last else whole, b""
        self.rest[fd] = bytearray(last)
        if not part:
            self.open.discard(fd)
        for line in whole:
            text = line.decode("utf-8", "replace").rstrip("\r")
            if fd == self.error_fd:
                self.waiting = bool(_NOT_YET.match(text)) or (self.waiting and text.startswith("srun: "))
            else:
                self.waiting = False
            yield Line(self.step, text, fd == self.error_fd)

    def close(self) -> None:
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()


def run(
    steps: Sequence[Step], where: Allocation, most: int = MOST_SIDE_BY_SIDE, grace: float = GRACE
) -> Iterator[Line | End]:
    """Run all steps, at most ``most`` at a time, and yield their lines as they come and one End each.

    A step past its time is ended by its step id; so is every step when the caller stops reading. One that mpirun
    started is ended by mpirun, then by its step id.
    """
    todo = list(reversed(steps))
    running: dict[int, _Running] = {}  # by pid of srun
    with selectors.DefaultSelector() as selector:
        try:
            while todo or running:
                while todo and len(running) < max(1, most):
                    child = _Running(todo.pop(), where)
                    running[child.process.pid] = child
                    for fd in child.open:
                        selector.register(fd, selectors.EVENT_READ, child)
                for key, _ in selector.select(_until_next(running.values())):
                    child = key.data
                    yield from child.read(key.fd)
                    if key.fd not in child.open:
                        selector.unregister(key.fd)
                late = [child for child in running.values() if _is_late(child)]
                if late:
                    _cancel(late, where, grace)
                for child in [child for child in running.values() if _is_over(child)]:
                    for fd in tuple(child.open):  # what came before the end
                        selector.unregister(fd)
                        while fd in child.open and _has_more(fd):
                            yield from child.read(fd)
                    del running[child.process.pid]
                    child.close()
                    yield _end(child)
        finally:
            if running:
                _cancel(list(running.values()), where, grace)
            for child in running.values():
                child.close()


def _until_next(running: Iterable[_Running]) -> float:
    now = time.monotonic()
    return max(0.0, min([0.5, *(child.deadline - now for child in running if not child.timed_out)]))


def _is_late(child: _Running) -> bool:
    if child.timed_out or time.monotonic() < child.deadline or child.process.poll() is not None:
        return False
    child.timed_out = True
    return True


def _is_over(child: _Running) -> bool:
    """srun is gone. A grandchild that still holds the pipe is no reason to wait."""
    return child.process.poll() is not None and (not child.open or not any(_has_more(fd) for fd in child.open))


def _has_more(fd: int) -> bool:
    return bool(select.select([fd], [], [], 0)[0])


def _end(child: _Running) -> End:
    status = child.process.returncode
    seconds = round(time.monotonic() - child.began, 2)
    if child.timed_out:
        return End(child.step, None, seconds, timed_out=True, started=not child.waiting)
    return End(child.step, status, seconds)


def _cancel(children: Sequence[_Running], where: Allocation, grace: float) -> None:
    """End steps by their ids through scancel, then the launcher itself; waits ``grace`` seconds at most for each."""
    by_mpirun = [child for child in children if child.step.mpirun and child.process.poll() is None]
    for child in by_mpirun:  # it ends its processes everywhere, if it still can
        child.process.terminate()
    _wait(by_mpirun, grace / 2)
    alive = [child for child in children if child in by_mpirun or child.process.poll() is None]
    if not alive:
        return
    ids = _step_ids(where, grace)
    step_ids = [ids[name] for name in map(_job_name, (child.step for child in alive)) if name in ids]
    if step_ids:
        _slurm("scancel", step_ids, where, grace)
    for child in alive:  # one that still waits for its nodes has no step id: srun gives up by itself
        if _job_name(child.step) not in ids:
            child.process.terminate()
    for child in _wait(alive, grace):
        child.process.kill()
        child.process.wait()
    for child in by_mpirun:
        _kill_session(child.process.pid)


def _wait(children: Sequence[_Running], seconds: float) -> list[_Running]:
    """Those that are still there after so many seconds, for all of them together."""
    deadline = time.monotonic() + seconds
    left = []
    for child in children:
        try:
            child.process.wait(timeout=max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            left.append(child)
    return left


def _kill_session(session: int) -> None:
    """End what mpirun left behind on this node: its processes have groups of their own, but its session."""
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            if os.getsid(int(name)) == session:
                os.kill(int(name), signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            continue


def _step_ids(where: Allocation, seconds: float) -> dict[str, str]:
    text = _slurm("squeue", ["--steps", f"--jobs={where.job}", "--noheader", "--format=%i %j"], where, seconds)
    return steps_of_text(text)


def steps_of_text(text: str) -> dict[str, str]:
    r"""Names of steps and their ids, as ``squeue --steps --format='%i %j'`` prints them.

    >>> steps_of_text("4711.0 hpslurm-check\n4711.batch\n")
    {'hpslurm-check': '4711.0'}
    """
    rows = (line.split() for line in text.splitlines())
    return {row[1]: row[0] for row in rows if len(row) == 2}


def ask(name: str, words: Sequence[str], where: Allocation, seconds: float = 20.0) -> str:
    """What a Slurm command of the same folder prints (``srun --mpi=list``); empty where it fails."""
    return _slurm(name, list(words), where, seconds)


def _slurm(name: str, words: list[str], where: Allocation, seconds: float) -> str:
    try:
        done = subprocess.run(
            [os.path.join(os.path.dirname(where.srun), name), *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=seconds,
            env=dict(where.env),
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        print(f"hpslurm: {name}: {clean(str(error))}", file=sys.stderr)
        return ""
    if name == "srun" and not done.stdout:  # up to 22.05 --mpi=list prints to the error output
        return done.stderr.decode("utf-8", "replace")
    return done.stdout.decode("utf-8", "replace")
