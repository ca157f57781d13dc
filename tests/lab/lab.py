#!/usr/bin/env python3
"""A real Slurm cluster on this machine: munged, slurmctld, and a slurmd for each node, on 127.0.0.1.

    python tests/lab/lab.py up --dir /tmp/lab --nodes 4
    python tests/lab/lab.py exec --dir /tmp/lab -- srun -N4 hostname
    python tests/lab/lab.py down --dir /tmp/lab

Everything lies below the lab's folder: configuration, key, sockets, logs, and for each node a
saved machine (``hosts/<node>``) that hpslurm gets by ``--root``. Only what the lab started is ever
signalled: each process is recorded in ``lab.json`` with pid and start time, and goes with its
descendants, its slurmstepds, and the job processes that carry the lab's mark in their environment.

Needs root (slurmd starts jobs for others), Debian's slurmd (built to run several on a host), and
one network interface beside ``lo`` (Slurm resolves no name without). Standard library only.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import fcntl
import json
import os
import re
import resource
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

if __package__ in (None, ""):  # run as a script
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from tests.lab import accounting, machine, processes

CHECKOUT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# Short, because the path of a unix socket ends at 107 characters; the one folder outside the checkout.
BASE = f"/tmp/hpslurm-{os.geteuid()}"
MARK = "HPSLURM_LAB"
PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sinfo", "scontrol")
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
UNLIMITED = -1
HOOKS = {"prolog": "Prolog", "epilog": "Epilog", "taskprolog": "TaskProlog", "healthcheck": "HealthCheckProgram"}
SHARED = 'results_shared = "@LAB@/shared"\n'
HOOK_KEYS = set(HOOKS.values())
CLONE_NEWUTS = 0x04000000


class LabError(Exception):
    """The lab could not do it; the text says why, and ends with the daemon's own words."""


def missing_programs() -> list[str]:
    return [name for name in PROGRAMS if not shutil.which(name, path=SYSTEM_PATH)]


def base_folder() -> str:
    """Make sure of the folder for all labs. Raises LabError where it belongs to another user."""
    os.makedirs(BASE, mode=0o755, exist_ok=True)
    about = os.lstat(BASE)
    if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.geteuid() or about.st_mode & 0o022:
        raise LabError(f"{BASE} is no folder that only this user may write: move it away")
    return BASE


def new_folder() -> str:
    """An empty folder for one lab, with a short path. Raises LabError as ``base_folder`` does."""
    folder = tempfile.mkdtemp(prefix="", dir=base_folder())
    os.chmod(folder, 0o755)  # jobs of other users run below it
    return folder


class Lab:
    """One cluster. ``memlock`` is bytes by node, ``machines`` the words of ``machine.write`` by node.

    ``conf`` is lines of slurm.conf: a key there replaces ours, and may be given several times.
    ``start`` starts only the first so many nodes: 10,000 configured nodes cost little.
    ``hooks`` installs the project's own scripts, such as ``("prolog", "epilog")``, with
    ``settings`` put in place of the assignments at their top. ``policy`` is the text of the
    policy file that they get. In all these texts ``@LAB@`` is the lab's folder. ``keeps_accounts``
    starts slurmdbd and its database.
    """

    def __init__(
        self,
        folder: str,
        *,
        nodes: int = 4,
        prefix: str = "n",
        start: int | None = None,
        conf: str = "",
        node_options: str = "CPUs=4 RealMemory=500",
        gpus: int = 0,
        gpu_type: str = "h100",
        memlock: Mapping[str, int] | None = None,
        machines: Mapping[str, Mapping[str, Any]] | None = None,
        hooks: Sequence[str] = (),
        settings: Mapping[str, str] | None = None,
        policy: str = "",
        keeps_accounts: bool = False,
    ) -> None:
        self.folder = os.path.realpath(folder)
        if len(self.folder) > 60:
            raise LabError(f"{self.folder} is too long for the sockets in it: at most 60 characters")
        self.nodes = [f"{prefix}{number}" for number in range(1, nodes + 1)]
        self.started = self.nodes[:start]
        self.prefix = prefix
        self.conf_lines = conf
        self.node_options = node_options
        self.gpus, self.gpu_type = gpus, gpu_type
        self.memlock = dict(memlock or {})
        self.machines = {name: dict(words) for name, words in (machines or {}).items()}
        self.hooks, self.settings = tuple(hooks), dict(settings or {})
        self.policy = policy
        self.keeps_accounts = keeps_accounts
        self.id = uuid.uuid4().hex
        self.port = 0
        self.own_name = False  # run under the host name "localhost"
        self.owner: processes.Process | None = None
        self.running: dict[str, processes.Process] = {}

    # where things are

    def path(self, *parts: str) -> str:
        return os.path.join(self.folder, *parts)

    @property
    def conf(self) -> str:
        return self.path("etc", "slurm.conf")

    def host(self, node: str) -> str:
        """The saved machine of a node."""
        return self.path("hosts", node)

    def results(self, node: str) -> str:
        """Where the hooks of a node leave their records."""
        return self.path("results", node)

    def put(self, node: str, path: str, text: str, mode: int = 0o644) -> str:
        """Write a file of the node's saved machine, such as ``commands/df.txt``; returns its full path."""
        machine.put(self.host(node), path.lstrip("/"), text)
        full = os.path.join(self.host(node), path.lstrip("/"))
        os.chmod(full, mode)
        return full

    def log(self, name: str) -> str:
        """The log so far of ``slurmctld``, ``munged``, a node (slurmd's), or a file below log/."""
        known = {"slurmctld": "slurmctld.log", "munged": "munged.log"}
        file = known.get(name, f"slurmd.{name}.log" if name in self.nodes else name)
        return _text(self.path("log", file))

    # up and down

    def __enter__(self) -> Lab:
        self.owner = (os.getpid(), processes.start_time(os.getpid()) or 0)
        self.up()
        return self

    def __exit__(self, *_: object) -> None:
        self.down()
        shutil.rmtree(self.folder, ignore_errors=True)

    def up(self, seconds: float = 60) -> None:
        """Start everything, and wait until the nodes have registered. Leaves nothing behind when it raises."""
        if os.geteuid() != 0:
            raise LabError("a Slurm lab needs root: slurmd starts jobs for other users")
        if missing := missing_programs():
            raise LabError(f"not installed: {', '.join(missing)} (make demo installs them)")
        if os.path.isdir(self.folder) and os.listdir(self.folder):
            raise LabError(f"{self.folder} is not empty: take another folder, or stop the lab in it (down)")
        for name in ("etc", "run", "log", "spool", "state", "dev", "hosts", "results", "shared", "work"):
            os.makedirs(self.path(name), mode=0o755, exist_ok=True)
        os.chmod(self.folder, 0o755)
        os.chmod(self.path("work"), 0o1777)
        self.own_name = not _name_is_loopback()
        try:
            with _one_at_a_time():  # until the ports are bound, another lab could pick the same
                self.port = _free_ports(len(self.started) + 2)
                self.save()
                self._write_files()
                self._start_munged()
                if self.keeps_accounts:
                    accounting.start(self, seconds)
                self._start("slurmctld", "-D", "-c", "-f", self.conf)
                self._wait(lambda: _answers(self.port), "slurmctld", seconds, "slurmctld opens its port")
                for node in self.started:
                    self._start_slurmd(node)
                self.save()
                self._wait(self._all_registered, "slurmctld", seconds, "all nodes register")
        except BaseException:
            self._stop_all(grace=1)
            raise

    def down(self) -> None:
        """Stop all that is ours. Raises LabError when a process will not go."""
        if left := self._stop_all(grace=1.5):
            raise LabError(f"still running: {', '.join(str(pid) for pid, _ in left)}")
        self.running = {}
        self.save()

    def _stop_all(self, grace: float) -> list[processes.Process]:
        for _ in range(3):  # a slurmstepd may fork while we look
            mine = self.processes()
            if not mine:
                break
            processes.stop(mine, grace)
            for pid, _ in mine:
                _reap(pid)
            grace = 1
        for pid, _ in self.running.values():  # one that a test killed is a zombie of ours
            _reap(pid)
        return [one for one in self.processes() if processes.alive(one)]

    def processes(self) -> list[processes.Process]:
        """Everything that runs for this lab: recorded, marked, or below one of these."""
        mark = f"{MARK}={self.id}".encode()
        conf = f"SLURM_CONF={self.conf}".encode()
        found = [one[0] for one in self.running.values() if processes.alive(one)]
        for pid in processes.all_pids():
            env = processes.environment(pid)
            job = conf in env and any(item.startswith(b"SLURM_JOB_ID=") for item in env)
            # slurmstepd leaves slurmd's process tree, and from 24.11 on writes its title over its environment.
            step = processes.name(pid) == "slurmstepd" and processes.has_open(pid, self.path("log"))
            if mark in env or job or step:
                found.append(pid)
        return processes.with_descendants(found)

    def stop_node(self, node: str) -> None:
        """End its slurmd, as a crash of the node would; jobs there go on until Slurm ends them."""
        one = self.running.get(f"slurmd.{node}")
        if one:
            processes.stop([one], 4)
            _reap(one[0])

    def start_node(self, node: str, memlock: int | None = None) -> None:
        """Start its slurmd (again), with another limit on locked memory if one is given."""
        if node not in self.started:
            raise LabError(f"no node {node} to start (known: {', '.join(self.started)})")
        if memlock is not None:
            self.memlock[node] = memlock
        one = self.running.get(f"slurmd.{node}")
        if not one or not processes.alive(one):
            self._start_slurmd(node)
        self.save()

    # use

    def environment(self) -> dict[str, str]:
        """A user's environment on this cluster, with nothing of ours in it."""
        venv = os.path.dirname(sys.executable)
        home = self.path("work")
        return {"PATH": f"{venv}:{SYSTEM_PATH}", "LANG": "C.UTF-8", "HOME": home, "SLURM_CONF": self.conf}

    def run(
        self,
        *argv: str,
        seconds: float = 60,
        env: Mapping[str, str] | None = None,
        user: int | None = None,
        check: bool = False,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command against this cluster, as user id ``user`` if given; ``check`` raises LabError."""

        def before_exec() -> None:  # subprocess's own ``user`` comes before it: then the host name is out of reach
            if self.own_name:
                call_us_localhost()
            if user is not None:
                os.setgroups(())
                os.setgid(user)
                os.setuid(user)

        done = subprocess.run(
            argv,
            env={**self.environment(), **(env or {})},
            cwd=self.path("work"),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
            preexec_fn=before_exec if self.own_name or user is not None else None,
        )
        if check and done.returncode:
            raise LabError(f"{' '.join(argv)}: exit status {done.returncode}\n{done.stderr}{done.stdout}")
        return done

    def submit(self, *argv: str, user: int | None = None) -> str:
        """sbatch with these words; returns the job id. A script goes in as ``--wrap``."""
        return self.run("sbatch", "--parsable", *argv, user=user, check=True).stdout.strip().split(";")[0]

    def node_states(self) -> dict[str, str]:
        """Node name to the state in scontrol's words, such as ``IDLE+DRAIN``."""
        return {name: fields["State"] for name, fields in self.node_fields().items()}

    def node_fields(self) -> dict[str, dict[str, str]]:
        """Node name to the fields of ``scontrol -o show nodes``."""
        text = self.run("scontrol", "-o", "show", "nodes").stdout
        return {fields["NodeName"]: fields for fields in map(_fields, text.splitlines()) if "NodeName" in fields}

    def job(self, job: str) -> dict[str, str]:
        """The fields of ``scontrol show job``; empty once Slurm has forgotten it."""
        return _fields(self.run("scontrol", "-o", "show", "job", job).stdout)

    def wait_for_job(self, job: str, *states: str, seconds: float = 60) -> dict[str, str]:
        """Wait for one of the states, by default for the end; returns the job's fields."""
        over = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL", "DEADLINE")

        def there() -> dict[str, str]:
            fields = self.job(job)
            return fields if fields.get("JobState") in (states or over) else {}

        return wait_until(there, lambda: f"job {job} is {' or '.join(states or over)}; it is {self.job(job)}", seconds)

    def wait_for_node(self, node: str, *states: str, seconds: float = 60) -> dict[str, str]:
        """Wait until the node's state is one of these (scontrol's words); returns the node's fields."""

        def there() -> dict[str, str]:
            fields = self.node_fields()[node]
            return fields if fields["State"] in states else {}

        return wait_until(there, lambda: f"{node} is {' or '.join(states)}; it is {self.node_states()[node]}", seconds)

    def wait_for_file(self, path: str, seconds: float = 60) -> None:
        """Wait for a file that a job writes; by then all prologs of its own node are over."""
        wait_until(lambda: os.path.exists(path), f"{path} is there", seconds)

    def script(self, name: str, text: str) -> str:
        """An executable file in the lab's work folder; returns its path."""
        return self._write(self.path("work", name), text, 0o755)

    # the record

    def save(self) -> None:
        kept = {name: getattr(self, name) for name in _KEPT}
        kept["procs"] = {name: {"pid": pid, "start": start} for name, (pid, start) in self.running.items()}
        new = self.path("lab.json.new")
        with open(new, "w") as file:
            json.dump(kept, file)
        os.replace(new, self.path("lab.json"))

    @classmethod
    def open(cls, folder: str) -> Lab:
        """The lab that was started in a folder. Raises LabError where there is none."""
        lab = cls(folder)
        try:
            with open(lab.path("lab.json")) as file:
                kept = json.load(file)
        except (OSError, ValueError) as error:
            raise LabError(f"no lab in {folder}: {error}") from None
        for name in _KEPT:
            setattr(lab, name, kept[name])
        lab.running = {name: (one["pid"], one["start"]) for name, one in kept["procs"].items()}
        return lab

    # files

    def _write(self, path: str, text: str, mode: int = 0o644) -> str:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write(text)
        os.chmod(path, mode)
        return path

    def _filled(self, text: str) -> str:
        return text.replace("@LAB@", self.folder)

    def _write_files(self) -> None:
        self._write(self.conf, self._slurm_conf(self._hook_lines() if self.hooks else []))
        # Without these files the daemons would take the machine's own plugin stack and look for cgroups.
        # Old releases cannot say "disabled"; with v1 named they do not search for a usable v2.
        plugin = "disabled" if slurm_version() >= (23, 11) else "cgroup/v1"
        self._write(self.path("etc", "cgroup.conf"), f"CgroupPlugin={plugin}\n")
        self._write(self.path("etc", "plugstack.conf"), "# none\n")
        self._write(self.path("policy.toml"), self._filled(self.policy))
        self._write_gpus()
        for number, node in enumerate(self.started):
            words = {"name": node, "instance_id": f"i-0123456789abc{number:04x}", **self.machines.get(node, {})}
            machine.write(self.host(node), **words)

    def _slurm_conf(self, hook_lines: list[str]) -> str:
        host = "localhost" if self.own_name else socket.gethostname().split(".")[0]
        ours = {
            "ClusterName": "lab",
            "SlurmctldHost": f"{host}(127.0.0.1)",
            "SlurmctldPort": str(self.port),
            "CommunicationParameters": "NoInAddrAny,NoCtldInAddrAny",  # 127.0.0.1 and nothing else
            "SlurmUser": "root",
            "SlurmdUser": "root",
            "AuthType": "auth/munge",
            "AuthInfo": f"socket={self.path('run', 'munge.sock')}",
            "StateSaveLocation": self.path("state"),
            "SlurmdSpoolDir": self.path("spool", "%n"),
            "SlurmctldPidFile": self.path("run", "slurmctld.pid"),
            "SlurmdPidFile": self.path("run", "slurmd.%n.pid"),
            "SlurmctldLogFile": self.path("log", "slurmctld.log"),
            "SlurmdLogFile": self.path("log", "slurmd.%n.log"),
            "SlurmctldDebug": "verbose",
            "SlurmdDebug": "verbose",
            "ProctrackType": "proctrack/linuxproc",  # no cgroups, no systemd
            "TaskPlugin": "task/none",
            "JobAcctGatherType": "jobacct_gather/none",
            "SelectType": "select/cons_tres",
            "SelectTypeParameters": "CR_CPU",
            "MpiDefault": "none",
            "ReturnToService": "1",
            "SlurmdTimeout": "60",
            "KillWait": "3",
            "SlurmdParameters": "config_overrides",  # any number of CPUs
            "SchedulerParameters": "sched_interval=1,batch_sched_delay=0,bf_interval=1",  # a test waits for each job
            "MailProg": "/bin/true",
        }
        if self.gpus:
            ours["GresTypes"] = "gpu"
        if self.keeps_accounts:
            ours |= accounting.conf_lines(self)
        extra = [*hook_lines, *self._filled(self.conf_lines).splitlines()]
        taken = {line.partition("=")[0].strip().lower() for line in extra if "=" in line}
        lines = [f"{key}={value}" for key, value in ours.items() if key.lower() not in taken] + extra
        if "nodename" not in taken:
            lines += self._node_lines(host)
        if "partitionname" not in taken:
            lines.append("PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP")
        return "\n".join(lines) + "\n"

    def _node_lines(self, host: str) -> Iterator[str]:
        gres = f" Gres=gpu:{self.gpu_type}:{self.gpus}" if self.gpus else ""
        count, total = len(self.started), len(self.nodes)
        parts = [(1, count, f"[{self.port + 1}-{self.port + count}]" if count > 1 else str(self.port + 1))]
        if total > count:  # at port 1 nobody answers: a node that was never started must not reach a stranger
            parts.append((count + 1, total, "1"))
        for first, last, ports in parts:
            if last >= first:
                names = f"{self.prefix}[{first}-{last}]" if last > first else f"{self.prefix}{first}"
                where = f"NodeHostname={host} NodeAddr=127.0.0.1 Port={ports}"
                yield f"NodeName={names} {where} {self.node_options}{gres} State=UNKNOWN"

    def _write_gpus(self) -> None:
        """Character devices, each a second /dev/null: only for such does Slurm set CUDA_VISIBLE_DEVICES."""
        if not self.gpus:
            return
        for number in range(self.gpus):
            os.mknod(self.path("dev", f"nvidia{number}"), 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        devices = self.path("dev", f"nvidia[0-{self.gpus - 1}]" if self.gpus > 1 else "nvidia0")
        self._write(self.path("etc", "gres.conf"), f"AutoDetect=off\nName=gpu Type={self.gpu_type} File={devices}\n")

    def _hook_lines(self) -> list[str]:
        """What slurm.conf.example says, with the lab's copies of the scripts."""
        example = _text(os.path.join(CHECKOUT, "slurm.conf.example")).splitlines()
        rest = [
            line for line in example if "=" in line and line[0] not in "# " and line.partition("=")[0] not in HOOK_KEYS
        ]
        return rest + [self._install_hook(name) for name in self.hooks]

    def _install_hook(self, name: str) -> str:
        """Copy a hook script as an admin would, with the assignments at its top edited; returns its slurm.conf line."""
        settings = {
            "PYTHON": sys.executable,
            "LOG": self.path("log", "hooks.log"),
            "STUCK": f'"{self.folder}/run/stuck.$SLURMD_NODENAME"',
            "LOCK": f'"{self.folder}/run/health.$SLURMD_NODENAME.lock"',
            "ARGS": f'(--root "{self.folder}/hosts/$SLURMD_NODENAME" --results "{self.folder}/results/$SLURMD_NODENAME"'
            f' --policy "{self.folder}/policy.toml")',
            **self.settings,
        }
        text = _text(os.path.join(CHECKOUT, f"{name}.d", "hpslurm.sh"))
        for key, value in settings.items():
            line = f"{key}={self._filled(value)}"
            text = re.sub(rf"^{key}=.*$", lambda _, line=line: line, text, flags=re.M)
        path = self._write(self.path("etc", f"{name}.d", "hpslurm.sh"), text, 0o755)
        return f"{HOOKS[name]}={path}"

    # daemons

    def daemon(self, program: str, *words: str, env: Mapping[str, str] | None = None) -> None:
        """Start one that belongs to the lab, and record it before anything else can fail."""
        self._start(program, *words, env=env)
        self.save()

    def wait_for_socket(self, where: int | str, daemon: str, seconds: float) -> None:
        self._wait(lambda: _answers(where), daemon, seconds, f"{daemon} opens its socket")

    def _start(
        self,
        program: str,
        *words: str,
        key: str = "",
        prepare: Callable[[], None] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> int:
        def before_exec() -> None:
            if self.own_name:
                call_us_localhost()
            if prepare:
                prepare()

        key = key or program
        file = shutil.which(program, path=SYSTEM_PATH) or program
        # Not every daemon has its lab's folder among its words: then its own name tells whose it is.
        own = file if any(self.folder in word for word in words) else self.path("run", os.path.basename(file))
        argv = [own, *words]
        with open(self.path("log", f"{key}.out"), "ab") as out:
            child = subprocess.Popen(
                argv,
                executable=file,
                # A short, known environment, as a systemd unit gives; the mark goes on to slurmstepd.
                env={"PATH": SYSTEM_PATH, "LANG": "C.UTF-8", "SLURM_CONF": self.conf, MARK: self.id, **(env or {})},
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
                preexec_fn=before_exec,
            )
        child.returncode = 0  # it outlives us; no warning about that
        self.running[key] = (child.pid, processes.start_time(child.pid) or 0)
        return child.pid

    def _start_munged(self) -> None:
        run = self.path("run")
        key = self.path("etc", "munge.key")
        with open(os.open(key, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o400), "wb") as file:
            file.write(os.urandom(1024))
        self._start(
            "munged",
            "--foreground",
            "--force",  # a folder below /tmp is one that munged warns about
            f"--key-file={key}",
            f"--socket={run}/munge.sock",
            f"--pid-file={run}/munged.pid",
            f"--seed-file={run}/munged.seed",
            f"--log-file={self.path('log', 'munged.log')}",
        )
        self.save()
        self._wait(lambda: _answers(f"{run}/munge.sock"), "munged", 15, "munged opens its socket")

    def _start_slurmd(self, node: str) -> None:
        limit = self.memlock.get(node, UNLIMITED)
        os.makedirs(self.path("spool", node), exist_ok=True)

        def lower() -> None:
            wanted = resource.RLIM_INFINITY if limit < 0 else limit
            with contextlib.suppress(ValueError, OSError):  # some containers do not let root raise it
                resource.setrlimit(resource.RLIMIT_MEMLOCK, (wanted, wanted))

        pid = self._start("slurmd", "-D", "-N", node, "-f", self.conf, key=f"slurmd.{node}", prepare=lower)
        if os.path.isdir(self.host(node)):
            machine.show_slurmd(self.host(node), pid, limit)

    def _all_registered(self) -> bool:
        text = self.run("sinfo", "-h", "-N", "-n", ",".join(self.started), "-o", "%N %T").stdout
        states = dict(line.split(None, 1) for line in text.splitlines() if " " in line)
        return len(states) == len(self.started) and not any(
            "*" in state or state.startswith(("unknown", "down")) for state in states.values()
        )

    def _wait(self, there: Callable[[], Any], daemon: str, seconds: float, what: str) -> None:
        def checked() -> Any:
            for key, one in self.running.items():
                if not processes.alive(one):
                    _reap(one[0])
                    raise LabError(f"{key} ended:\n{_tail(self.path('log', f'{key}.out'))}")
            return there()

        wait_until(checked, lambda: f"{what}; its log ends:\n{_tail(self.path('log', f'{daemon}.log'))}", seconds)


_KEPT = (
    "id", "nodes", "started", "prefix", "port", "own_name", "memlock", "machines", "gpus", "owner",
)  # fmt: skip


def stop_abandoned(base: str = BASE) -> list[str]:
    """Stop the labs below ``base`` whose owner was killed before it could; returns their folders."""
    stopped = []
    for name in sorted(os.listdir(base)) if os.path.isdir(base) else ():
        folder = os.path.join(base, name)
        if not os.path.exists(os.path.join(folder, "lab.json")):
            continue
        lab = Lab.open(folder)
        if lab.owner and not processes.alive((lab.owner[0], lab.owner[1])):
            lab.down()
            shutil.rmtree(folder, ignore_errors=True)
            stopped.append(folder)
    return stopped


def slurm_version() -> tuple[int, int]:
    text = subprocess.run(["/usr/sbin/slurmctld", "-V"], capture_output=True, text=True, timeout=20).stdout
    found = re.search(r"(\d+)\.(\d+)", text)
    if not found:
        raise LabError(f"slurmctld -V says {text!r}, a version was expected")
    return int(found[1]), int(found[2])


def _fields(record: str) -> dict[str, str]:
    """One line of ``scontrol -o``; values may hold blanks, so a field ends where the next begins."""
    return {match[1]: match[2].strip() for match in re.finditer(r"(\w+)=(.*?)(?=\s+\w+=|$)", record.strip(), re.S)}


def _text(path: str) -> str:
    with open(path, errors="replace") as file:
        return file.read()


def _tail(path: str, lines: int = 15) -> str:
    try:
        return "\n".join(_text(path).splitlines()[-lines:])
    except OSError as error:
        return str(error)


def _reap(pid: int) -> None:
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def wait_until(there: Callable[[], Any], what: str | Callable[[], str], seconds: float = 60) -> Any:
    """Wait for it, and return it. ``what`` says what it is, where it does not come. Raises LabError."""
    end = time.monotonic() + seconds
    pause = 0.01
    while not (found := there()):
        if time.monotonic() > end:
            raise LabError(f"waited {seconds:.0f} s until {what if isinstance(what, str) else what()}")
        time.sleep(pause)
        pause = min(pause * 1.5, 0.2)
    return found


def _name_is_loopback() -> bool:
    """Slurm binds to the address of the host's own name; Debian's installer makes that 127.0.1.1."""
    try:
        return socket.gethostbyname(socket.gethostname()) == "127.0.0.1"
    except OSError:
        return False


def call_us_localhost() -> None:
    """Give this process, and what it starts, a host name of its own."""
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWUTS):
        raise OSError(ctypes.get_errno(), "no host name of its own for the lab (unshare)")
    socket.sethostname("localhost")


def _answers(where: int | str) -> bool:
    kind = socket.AF_INET if isinstance(where, int) else socket.AF_UNIX
    with socket.socket(kind) as one:
        one.settimeout(1)
        return one.connect_ex(("127.0.0.1", where) if isinstance(where, int) else where) == 0


def _free_ports(count: int) -> int:
    """The first of ``count`` free ports in a row, below those the kernel hands out."""
    base = 11000 + os.getpid() * 131 % 9000
    while base + count < 32000:
        taken = [port for port in range(base, base + count) if not _is_free(port)]
        if not taken:
            return base
        base = taken[-1] + 1
    raise LabError(f"no {count} free ports in a row")


def _is_free(port: int) -> bool:
    with socket.socket() as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            one.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


@contextlib.contextmanager
def _one_at_a_time() -> Iterator[None]:
    with open(os.path.join(base_folder(), "up.lock"), "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


# the command


def main(argv: Sequence[str] | None = None) -> int:
    top = argparse.ArgumentParser(description="A real Slurm cluster on this machine.")
    commands = top.add_subparsers(dest="command", required=True)
    up = commands.add_parser("up", help="start a cluster in an empty folder")
    up.add_argument("--nodes", type=int, default=4)
    up.add_argument("--prefix", default="n", help="node names are this and a number")
    up.add_argument("--start", type=int, help="start only the first so many nodes")
    up.add_argument("--conf", action="append", default=[], metavar="KEY=VALUE", help="a line of slurm.conf")
    up.add_argument("--gpus", type=int, default=0, help="fake GPUs of each node")
    up.add_argument("--efa", action="append", default=[], metavar="NODE=COUNT", help="EFA devices that came up")
    up.add_argument("--memlock", action="append", default=[], metavar="NODE=BYTES", help="slurmd's limit there")
    up.add_argument(
        "--hooks", default="", metavar="prolog,epilog,...", help="install these hook scripts of the project"
    )
    up.add_argument("--shared", action="store_true", help="hooks copy their records to a shared folder")
    down = commands.add_parser("down", help="stop it and remove its folder")
    status = commands.add_parser("status", help="what runs, and the states of the nodes")
    execute = commands.add_parser("exec", help="run a command against it")
    execute.add_argument("words", nargs=argparse.REMAINDER)
    stop = commands.add_parser("stop-node", help="end the slurmd of nodes")
    again = commands.add_parser("start-node", help="start the slurmd of nodes again")
    for one in (stop, again):
        one.add_argument("node", nargs="+")
    for one in (up, down, status, execute, stop, again):
        one.add_argument("--dir", required=True, help="the lab's folder")
    given = top.parse_args(argv)
    try:
        return _do(given)
    except (LabError, OSError, subprocess.SubprocessError) as error:
        print(f"lab: {error}", file=sys.stderr)
        return 1


def _do(given: argparse.Namespace) -> int:
    if given.command == "up":
        began = time.monotonic()
        lab = Lab(
            given.dir,
            nodes=given.nodes,
            prefix=given.prefix,
            start=given.start,
            conf="\n".join(given.conf),
            gpus=given.gpus,
            memlock=_numbers(given.memlock),
            machines={node: {"efa": count} for node, count in _numbers(given.efa).items()},
            hooks=[name for name in given.hooks.split(",") if name],
            policy=SHARED if given.shared else "",
        )
        lab.up()
        print(f"{len(lab.started)} nodes up in {time.monotonic() - began:.1f} s; SLURM_CONF={lab.conf}")
        if lab.own_name:
            print("this machine's name is not 127.0.0.1: run srun and salloc by `lab.py exec`")
        return 0
    lab = Lab.open(given.dir)
    if given.command == "down":
        lab.down()
        shutil.rmtree(lab.folder)
    elif given.command == "exec":
        words = given.words[1:] if given.words[:1] == ["--"] else given.words
        if lab.own_name:
            call_us_localhost()
        os.execvpe(words[0], words, {**os.environ, **lab.environment()})
    elif given.command == "status":
        for name, one in lab.running.items():
            print(f"{name:<20} {one[0]:>8} {'runs' if processes.alive(one) else 'ended'}")
        for name, state in lab.node_states().items():
            print(f"{name:<20} {state}")
    else:
        for node in given.node:
            (lab.stop_node if given.command == "stop-node" else lab.start_node)(node)
    return 0


def _numbers(pairs: Sequence[str]) -> dict[str, int]:
    try:
        return {name: int(value) for name, value in (pair.split("=", 1) for pair in pairs)}
    except ValueError:
        raise LabError(f"NODE=NUMBER expected, got {' '.join(pairs)}") from None


if __name__ == "__main__":
    sys.exit(main())
