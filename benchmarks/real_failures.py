"""Starts real torch under real Slurm, breaks it in a known way, and keeps the job's output with the truth.

    python benchmarks/real_failures.py --list                      the runs, and what breaks them
    python benchmarks/real_failures.py --out /tmp/cases            all of them, about half an hour
    python benchmarks/real_failures.py --out /tmp/cases --only 'kill|SIG' --set 2 --seed 7

Without ``--out`` nothing starts. Each run is a lab of its own (``tests/lab/lab.py``): slurmctld, and two to four
nodes whose job steps get a host name, an address, a /dev/shm and limits of their own, all on the loopback device of
a network namespace. The programs in ``real_failures/`` train on the CPU over gloo. ``runs.toml`` there says how each
run is launched, what breaks it, and what a reader of the output should find; a run whose job does not end as its
truth says (COMPLETED for a healthy one, anything else for the others) is reported and gives no case. Another seed
gives other job numbers, host names, paths and data.

Out come ``<id>.log`` (of a job with a file a task, all of them in one, as ``tail -n +1`` prints them, and the files
in ``<id>/``) and ``index.toml``, which keeps the rows of earlier calls. Only the paths of the lab and of torch are
replaced in the text.

Needs root, Slurm and Linux namespaces (``make venv`` sets up the first two). torch goes into a virtual environment
below ``--torch-dir``: 200 MB where pip finds a CPU build of the version, else some GB; runs with ``torch = "1.12"``
need Python 3.10, and give no case where none is found.
"""

from __future__ import annotations

import argparse
import contextlib
import glob
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from hpslurm.core import toml
from tests.lab import processes
from tests.lab.fixtures import why_not
from tests.lab.lab import CHECKOUT, MARK, Lab, LabError, new_folder

HERE = Path(__file__).parent / "real_failures"
SECONDS = 420  # for one run, where its row does not say
USER = 1001  # of the jobs that must not be root
PORT = 29500
NODE = "CPUs=8 RealMemory=4000"  # in slurm.conf
# torch by the word of a row: what pip gets, the Python it needs (empty: any that runs this script).
TORCH = {"2.13": (("torch==2.13.0", "numpy"), ""), "1.12": (("torch==1.12.1", "numpy<2"), "3.10")}
# What one site calls its nodes and folders: prefix of the nodes, their network, project, environment.
SITES = (
    ("ip-10-1-44-", "10.1.44.", "/fsx/ubuntu/llm", "/fsx/ubuntu/envs/pt"),
    ("gpu", "172.16.8.", "/home/tanja/projects/pretrain", "/home/tanja/miniconda3/envs/torch"),
    ("node-", "10.20.0.", "/scratch/proj17/mkr/train", "/sw/venvs/torch"),
    ("ip-10-3-201-", "10.3.201.", "/shared/ml/runs", "/opt/conda"),
    ("hpc-st-p5-", "10.60.5.", "/mnt/weka/team/exp", "/mnt/weka/team/venv"),
    ("c17n", "192.168.40.", "/lustre/groups/nlp/u2231", "/lustre/groups/nlp/env"),
)
SCRIPT = """#!/bin/bash
#SBATCH --job-name=train
#SBATCH --nodes={nodes}
#SBATCH --ntasks-per-node={tasks}
#SBATCH --output={work}/slurm-%j.out
{sbatch}
. {venv}/bin/activate
export OMP_NUM_THREADS=1 USER=mkr LOGNAME=mkr
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_PORT={port}
export WORLD_SIZE=$SLURM_NTASKS
{line_up}
{head}
{launch}
{tail}
"""
TORCHRUN = "--nnodes=$SLURM_NNODES --nproc_per_node={per_node}"
LAUNCHES = {
    "srun": "srun {srun} {enter} python -u {name} {args}",
    "torchrun": f"srun {{srun}} {{enter}} torchrun {TORCHRUN} --rdzv_id=$SLURM_JOB_ID --rdzv_backend=c10d"
    " --rdzv_endpoint=$MASTER_ADDR:$MASTER_PORT {torchrun} {name} {args}",
    # Each node needs its own rank, which only the step knows.
    "torchrun-static": "srun {srun} {enter} bash -c 'exec torchrun "
    + TORCHRUN
    + " --node_rank=$SLURM_NODEID --master_addr=$MASTER_ADDR --master_port=$MASTER_PORT {torchrun} {name} {args}'",
}
ENTER = """#!/bin/bash
[ -f {run}/on.$SLURMD_NODENAME ] && . {run}/on.$SLURMD_NODENAME
exec nsenter --target $(cat {run}/holder.$SLURMD_NODENAME) --mount --uts --net {user} \
  /bin/sh -c 'cd "$0" && exec "$@"' "$PWD" "$@"
"""


class RunError(Exception):
    """The run did not become what its row says; the text says why."""


@dataclass(frozen=True)
class Site:
    prefix: str
    network: str
    project: str
    venv: str
    first_job: int
    mapped: bool


@dataclass(frozen=True)
class Running:
    """A lab with the nodes' namespaces, and the row that is run in it."""

    row: dict[str, Any]
    lab: Lab
    site: Site
    venv: str

    @property
    def name(self) -> str:
        return self.row.get("name", f"{self.row['program']}.py")

    @property
    def nodes(self) -> int:
        return self.row.get("nodes", 2)

    @property
    def per_node(self) -> int:
        return self.row.get("per_node", 2)

    def node(self, number: int) -> str:
        return self.lab.nodes[number - 1]

    def holder(self, number: int) -> int:
        with open(self.lab.path("run", f"holder.{self.node(number)}")) as file:
            return int(file.read())


# torch, in a folder of its own


def torch_of(row: dict[str, Any]) -> str:
    return row.get("torch", "2.13")


def environment_of(word: str, folder: str) -> str:
    """The virtual environment with this torch, made when it is not there; empty where its Python is missing."""
    packages, version = TORCH[word]
    venv = os.path.join(folder, f"torch-{word}")
    ready = os.path.join(venv, "ready")
    if os.path.exists(ready):
        return venv
    python = find_python(version)
    if not python:
        return ""
    print(f"torch {word}: installing {' '.join(packages)} into {venv}", flush=True)
    subprocess.run([python, "-m", "venv", "--clear", venv], check=True)
    subprocess.run([f"{venv}/bin/pip", "install", "--quiet", "--no-cache-dir", *packages], check=True)
    Path(ready).touch()
    return venv


def find_python(version: str) -> str:
    """A Python of this version; without one a Python that other users may run, too, so rather the system's."""
    names = [f"/usr/bin/python{version or 3}", shutil.which(f"python{version}") or "", sys.executable]
    names += sorted(glob.glob(os.path.expanduser(f"~/.pyenv/versions/{version}*/bin/python")))
    return next((name for name in names if name and _is_python(name, version)), "")


def _is_python(name: str, version: str) -> bool:
    code = "import ensurepip, venv, sys; print('%d.%d' % sys.version_info[:2])"
    try:
        done = subprocess.run([name, "-c", code], capture_output=True, text=True)
    except OSError:
        return False
    return done.returncode == 0 and done.stdout.strip() == (version or "{}.{}".format(*sys.version_info))


# the nodes


def site_of(row: dict[str, Any], seed: int) -> Site:
    draw = random.Random(f"{row['id']} {seed}")
    return Site(*draw.choice(SITES), first_job=draw.randrange(100, 90000), mapped=draw.random() < 0.6)


def start_nodes(running: Running) -> None:
    """A process for each node that holds its namespaces: mounts and host name of its own, one network for all."""
    lab = running.lab
    # A site without names for the mapped form of addresses has torch warn about them.
    forms = ("", "::ffff:") if running.site.mapped else ("",)
    hosts = "".join(
        f"{form}{running.site.network}{at}\t{node}\n" for at, node in enumerate(lab.nodes, 1) for form in forms
    )
    Path(lab.path("run", "hosts")).write_text(f"127.0.0.1\tlocalhost\n{hosts}")
    for number, node in enumerate(lab.nodes, 1):
        unshare = ["unshare", "--mount", "--uts", "sleep", "infinity"]
        if number == 1:
            unshare.insert(1, "--net")
        else:
            unshare = ["nsenter", "--target", str(running.holder(1)), "--net", *unshare]
        child = subprocess.Popen(unshare, env={"PATH": os.environ["PATH"], MARK: lab.id}, start_new_session=True)
        _wait(lambda pid=child.pid: processes.name(pid) == "sleep", 10, "a node's namespaces")
        Path(lab.path("run", f"holder.{node}")).write_text(str(child.pid))
        inside(running, number, "hostname", node)
        inside(running, number, "mount", "--bind", lab.path("run", "hosts"), "/etc/hosts")
        inside(running, number, "ip", "link", "set", "lo", "up")
        inside(running, number, "ip", "address", "add", f"{running.site.network}{number}/32", "dev", "lo")
    for mount in running.row.get("mounts", ()):
        for number in mount.get("nodes", range(1, running.nodes + 1)):
            path = os.path.join(lab.path("work"), mount["path"])
            os.makedirs(path, exist_ok=True)
            inside(running, number, "mount", "-t", "tmpfs", "-o", f"mode=1777,{mount['options']}", "tmpfs", path)
    for number, lines in running.row.get("on", {}).items():
        Path(lab.path("run", f"on.{running.node(int(number))}")).write_text(fill(running, lines))
    for step in running.row.get("prepare", ()):
        inside(running, step["node"], *(fill(running, word) for word in step["words"]), wait="background" not in step)


def inside(running: Running, number: int, *words: str, wait: bool = True) -> None:
    """Run a command in the namespaces of a node; one that is not waited for ends with the lab."""
    nsenter = ["nsenter", "--target", str(running.holder(number)), "--mount", "--uts", "--net", *words]
    if wait:
        subprocess.run(nsenter, check=True, stdout=subprocess.DEVNULL, timeout=60)
        return
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    subprocess.Popen(nsenter, env={"PATH": os.environ["PATH"], MARK: running.lab.id}, **quiet)


def write_work(running: Running, seed: int) -> None:
    """The program, its data and settings, in the lab's work folder."""
    row, work = running.row, running.lab.path("work")
    os.makedirs(running.lab.path("run", "started"), mode=0o777)
    shutil.copy(HERE / f"{row['program']}.py", os.path.join(work, running.name))
    for shim in row.get("shims", ()):
        build = ["gcc", "-shared", "-fPIC", "-o", f"{work}/lib{shim}.so", str(HERE / f"{shim}.c"), "-ldl"]
        subprocess.run(build, check=True)
    os.makedirs(os.path.join(work, "data"), exist_ok=True)
    if row["program"] == "lm":
        write_shards(running, os.path.join(work, "data"), seed)
    settings = {
        "hidden": 64, "steps": 80, "step_ms": 30, "log_every": 10, "all_log": False, "sync_every": 1, "pipeline": False,
        "eval_every": 0, "save_every": 0, "save_mb": 1, "out": "ckpt", "groups": False, "wait_all": False,
    }  # fmt: skip
    settings |= row.get("settings", {})
    for number, own in {"": {}, **row.get("settings_on", {})}.items():
        end = f".{running.node(int(number))}" if number else ""
        Path(work, f"config.json{end}").write_text(json.dumps({**settings, **own}))
    for path, text in row.get("files", {}).items():
        target = Path(work, path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(fill(running, text))
    subprocess.run(["chmod", "-R", "a+rwX", work, running.lab.path("run", "started")], check=True)
    for path in row.get("executable", ()):
        os.chmod(os.path.join(work, path), 0o755)


def write_shards(running: Running, folder: str, seed: int) -> None:
    draw = random.Random(seed)
    for rank in range(running.nodes * running.per_node):
        lines = [
            json.dumps({"id": f"{rank}-{number}", "tokens": [draw.randrange(512) for _ in range(24)]})
            for number in range(120)
        ]
        for change in running.row.get("data", ()):
            if rank == change["rank"]:
                lines[change["line"] - 1] = change["text"]
        Path(folder, f"shard-{rank:05d}.jsonl").write_text("\n".join(lines) + "\n")


def fill(running: Running, text: str) -> str:
    """Put this run's names into a text of its row: @WORK@, @NODE3@, @IP3@."""
    known = {"WORK": running.lab.path("work")}
    known |= {f"NODE{number}": node for number, node in enumerate(running.lab.nodes, 1)}
    known |= {f"IP{number}": f"{running.site.network}{number}" for number, _ in enumerate(running.lab.nodes, 1)}
    return re.sub(r"@(\w+)@", lambda match: known[match[1]], text)


def job_script(running: Running) -> str:
    row = running.row
    launch = row.get("launch", "srun")
    per_task = row.get("per_task", "")
    words = {
        "nodes": running.nodes, "per_node": running.per_node,
        "tasks": running.per_node if launch == "srun" else 1,
        "work": running.lab.path("work"), "venv": running.venv, "port": row.get("port", PORT),
        "enter": running.lab.path("run", "enter"), "name": running.name,
        "srun": f"{row.get('srun', '')} {'-o ' + per_task if per_task else ''}", "torchrun": row.get("torchrun", ""),
        "line_up": "", "args": row.get("args", ""), "head": row.get("head", ""), "tail": row.get("tail", ""),
        "sbatch": "\n".join(f"#SBATCH {line}" for line in row.get("sbatch", ())),
    }  # fmt: skip
    if row.get("line_up", True):
        words["line_up"] = f"export LINE_UP={running.lab.path('run', 'started')}"
    words["launch"] = row.get("command", LAUNCHES.get(launch, "")).format(**words)
    return fill(running, SCRIPT.format(**words))


# what breaks it


def act(running: Running, event: dict[str, Any], job: str) -> None:
    what = event["do"]
    if what == "signal":
        number = getattr(signal, f"SIG{event['signal']}")
        for pid in targets(running, event, job):
            os.kill(pid, number)
    elif what in ("scancel", "scontrol"):
        running.lab.run(what, *(word.replace("@JOB@", job) for word in event["words"]), check=True)
    elif what == "submit":
        running.lab.run("sbatch", *event["words"], check=True)
    elif what == "stop_slurmd":
        running.lab.stop_node(running.node(event["node"]))
    elif what == "lose_node":
        lose_node(running, event["node"], job)
    elif what == "inside":
        inside(running, event["node"], *(fill(running, word) for word in event["words"]))
    else:
        raise RunError(f"no such event: {what}")


def targets(running: Running, event: dict[str, Any], job: str) -> list[int]:
    """The processes of a rank; its loader's first worker, or what runs on a node under a name."""
    if "rank" in event:
        own = ranks_of(running, job).get(event["rank"], [])
        found = own[:1] if event.get("which", "rank") == "rank" else own[1:2]
    else:
        found = [pid for pid in on_node(running, event["node"], job) if event["name"] in _command(pid)]
    if not found:
        raise RunError(f"nothing to signal: {event}")
    return found


def ranks_of(running: Running, job: str) -> dict[int, list[int]]:
    """Rank to its pids, the oldest first. torchrun's own processes have no RANK."""
    key = b"SLURM_PROCID=" if running.row.get("launch", "srun") == "srun" else b"RANK="
    found: dict[int, list[int]] = {}
    for pid in job_pids(running, job):
        values = [item.removeprefix(key) for item in processes.environment(pid) if item.startswith(key)]
        if values and running.name in _command(pid) and "python" in _command(pid).split("\0")[0]:
            found.setdefault(int(values[0]), []).append(pid)
    return {rank: sorted(pids, key=lambda pid: processes.start_time(pid) or 0) for rank, pids in found.items()}


def on_node(running: Running, number: int, job: str) -> list[int]:
    node = b"SLURMD_NODENAME=" + running.node(number).encode()
    return [pid for pid in job_pids(running, job) if node in processes.environment(pid)]


def job_pids(running: Running, job: str) -> list[int]:
    wanted = {f"SLURM_CONF={running.lab.conf}".encode(), f"SLURM_JOB_ID={job}".encode()}
    return [pid for pid in processes.all_pids() if wanted <= set(processes.environment(pid))]


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except (OSError, UnicodeDecodeError):
        return ""


def lose_node(running: Running, number: int, job: str) -> None:
    """As when a machine loses its power: its address is gone, nothing on it moves or says good-bye."""
    node = running.node(number)
    inside(running, number, "ip", "address", "del", f"{running.site.network}{number}/32", "dev", "lo")
    log = running.lab.path("log", f"slurmd.{node}.log")
    steps = [pid for pid in processes.all_pids() if processes.name(pid) == "slurmstepd" and _holds(pid, log)]
    for pid in steps + on_node(running, number, job):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
    running.lab.stop_node(node)


def _holds(pid: int, path: str) -> bool:
    try:
        return any(os.readlink(entry.path) == path for entry in os.scandir(f"/proc/{pid}/fd"))
    except OSError:
        return False


# a run


def run(row: dict[str, Any], venv: str, seed: int, out: Path) -> dict[str, Any]:
    """Run the row and write its log; returns its row for the index. Raises RunError or LabError."""
    site = site_of(row, seed)
    conf = f"FirstJobId={site.first_job}\n{row.get('conf', '')}"
    with Lab(new_folder(), nodes=row.get("nodes", 2), prefix=site.prefix, conf=conf, node_options=NODE) as lab:
        running = Running(row, lab, site, venv)
        user = f"--setuid {USER} --setgid {USER}" if row.get("user") else ""
        lab.script("../run/enter", ENTER.format(run=lab.path("run"), user=user))
        start_nodes(running)
        write_work(running, seed)
        fields = run_job(running)
        healthy = row.get("healthy", False)
        if healthy != (fields.get("JobState") == "COMPLETED"):
            raise RunError(f"the job is {fields.get('JobState')}\n{output(running, fields['JobId'])}")
        if not re.search(row.get("sign", ""), output(running, fields["JobId"])):
            raise RunError(f"the output has no {row['sign']!r}\n{output(running, fields['JobId'])}")
        write_case(running, fields["JobId"], out)
    return index_row(running, seed)


def run_job(running: Running) -> dict[str, str]:
    lab, row = running.lab, running.row
    end = time.monotonic() + row.get("seconds", SECONDS)
    script = lab.script("job.sbatch", job_script(running))
    beside = ""
    if row.get("twice"):  # the same job again while the first still runs; the second is the case
        beside = lab.submit(script)
        wait_for_text(running, beside, row["twice"], end)
    job = lab.submit(script)
    for event in row.get("events", ()):
        wait_for_text(running, job, event.get("when", ""), end)
        time.sleep(event.get("after", 0))
        act(running, event, job)
    try:
        fields = lab.wait_for_job(job, *row.get("until", ()), seconds=max(1, end - time.monotonic()))
    except LabError:
        raise RunError(f"not over after its time\n{output(running, job)}") from None
    if beside:
        lab.run("scancel", beside)
    # What srun and the steps say last may be written a moment after the job's end.
    size = -1
    while size != (size := len(output(running, job))) and time.monotonic() < end:
        time.sleep(1.5)
    return fields


def wait_for_text(running: Running, job: str, text: str, end: float) -> None:
    while text not in output(running, job):
        over = running.lab.job(job).get("JobState") not in ("PENDING", "CONFIGURING", "RUNNING")
        if over or time.monotonic() > end:
            raise RunError(f"{text!r} was not said\n{output(running, job)}")
        time.sleep(0.3)


def outputs(running: Running, job: str) -> list[str]:
    """The files that the job wrote, its own first."""
    own = running.lab.path("work", f"slurm-{job}.out")
    per_task = glob.glob(running.lab.path("work", "logs", "*"))
    return [path for path in [own, *sorted(per_task)] if os.path.exists(path)]


def output(running: Running, job: str) -> str:
    return "".join(Path(path).read_text(errors="replace") for path in outputs(running, job))


def write_case(running: Running, job: str, out: Path) -> None:
    replaced = replacements(running)
    paths = outputs(running, job)
    texts = [clean(Path(path).read_bytes().decode(errors="replace"), replaced) for path in paths]
    log = out / f"{running.row['id']}.log"
    if len(paths) == 1:
        log.write_text(texts[0], newline="")
        return
    folder = out / running.row["id"]
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    parts = []
    for path, text in zip(paths, texts, strict=True):
        (folder / os.path.basename(path)).write_text(text, newline="")
        parts.append(f"==> {os.path.relpath(path, running.lab.path('work'))} <==\n{text}")
    log.write_text("\n".join(parts), newline="")


def replacements(running: Running) -> list[tuple[str, str]]:
    base = subprocess.run(
        [f"{running.venv}/bin/python", "-c", "import sys; print(sys.base_prefix, '%d.%d' % sys.version_info[:2])"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    site, lab = running.site, running.lab
    return [
        (lab.path("work"), site.project),
        (lab.path("run", "enter"), f"{site.project}/run.sh"),
        (running.venv, site.venv),
        (os.path.join(base[0], "lib", f"python{base[1]}"), f"/usr/lib/python{base[1]}"),
        (lab.path("spool"), "/var/spool/slurmd"),
        (lab.folder, "/opt/slurm"),
    ]


def clean(text: str, replaced: Sequence[tuple[str, str]]) -> str:
    for old, new in replaced:
        text = text.replace(old, new)
    return text


# the index


def index_row(running: Running, seed: int) -> dict[str, Any]:
    row = running.row
    culprit = dict(row.get("culprit", {}))
    if "node" in culprit:
        culprit["host"] = running.node(culprit.pop("node"))
    kept: dict[str, Any] = {
        "id": row["id"], "file": f"{row['id']}.log",
        "source": f"real run, torch {torch_of(row)}, seed {seed}",
        "kind": row.get("kind", "slurm stdout"), "healthy": row.get("healthy", False), "cause": row["cause"],
    }  # fmt: skip
    kept |= {key: row[key] for key in ("also", "never") if row.get(key)}
    if culprit:
        kept["culprit"] = culprit
    return {**kept, "established": "injected", "truth": fill(running, row["truth"])}


def write_index(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """The rows of this call, and those that were there for other ids."""
    known = toml.loads(path.read_text())["case"] if path.exists() else []
    merged = {row["id"]: row for row in [*known, *rows]}
    text = "# Output of real jobs and what was wrong with them, written by benchmarks/real_failures.py.\n"
    for _, row in sorted(merged.items()):
        text += "\n[[case]]\n" + "".join(f"{key} = {_toml(value)}\n" for key, value in row.items())
    path.write_text(text)


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_toml(item)}" for key, item in value.items()) + "}"
    return json.dumps(value, ensure_ascii=False)


def _wait(there: Callable[[], Any], seconds: float, what: str) -> None:
    end = time.monotonic() + seconds
    while not there():
        if time.monotonic() > end:
            raise RunError(f"waited in vain for {what}")
        time.sleep(0.1)


# the command


def chosen(rows: Sequence[dict[str, Any]], number: int | None, only: str) -> Iterator[dict[str, Any]]:
    for row in rows:
        if number in (None, row["set"]) and re.search(only, f"{row['id']} {row['about']}"):
            yield row


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="folder for the cases")
    parser.add_argument("--list", action="store_true", help="list the runs, start none")
    parser.add_argument("--only", default="", metavar="PATTERN", help="runs with this in their id or description")
    parser.add_argument("--set", type=int, choices=(1, 2), help="runs of one set")
    parser.add_argument("--seed", type=int, default=1, help="for names, job numbers and data")
    parser.add_argument("--torch-dir", default=os.path.join(CHECKOUT, "build", "torch"), metavar="FOLDER")
    given = parser.parse_args()
    rows = list(chosen(toml.loads((HERE / "runs.toml").read_text(encoding="utf-8"))["run"], given.set, given.only))
    if not given.list and not given.out:
        print(f"{len(rows)} runs; --out FOLDER starts them, --list tells which they are")
        return 0
    if given.list:
        for row in rows:
            print(f"{row['id']}  {row['cause']:<26} {row['about']}")
        return 0
    if reason := why_not():
        print(f"skipped: {reason}")
        return 0
    os.makedirs(given.torch_dir, exist_ok=True)
    given.out.mkdir(parents=True, exist_ok=True)
    return run_all(rows, given)


def run_all(rows: Sequence[dict[str, Any]], given: argparse.Namespace) -> int:
    words = sorted({torch_of(row) for row in rows})
    try:
        venvs = {word: environment_of(word, given.torch_dir) for word in words}
    except subprocess.CalledProcessError as error:
        print(f"torch cannot be installed: {error}", file=sys.stderr)
        return 1
    made = missed = 0
    for row in rows:
        began = time.monotonic()
        try:
            if not (venv := venvs[torch_of(row)]):
                raise RunError(f"no Python {TORCH[torch_of(row)][1]} here, which its torch needs")
            write_index(given.out / "index.toml", [run(row, venv, given.seed, given.out)])
            made, text = made + 1, "ok"
        except (RunError, LabError, subprocess.SubprocessError) as error:
            missed, text = missed + 1, f"NO CASE: {error}"
        print(f"{row['id']}  {time.monotonic() - began:4.0f} s  {row['about']}: {text}", flush=True)
    print(f"{made} of {len(rows)} runs became cases in {given.out}")
    return 1 if missed else 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    os.environ.pop("SLURM_CONF", None)
    sys.exit(main())
