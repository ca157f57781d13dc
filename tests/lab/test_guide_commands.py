"""What the guide, the docs and our suggestions tell a person to type is typed on real Slurm, or a row says why not.

The lab is the cluster: placeholders get its nodes and jobs, paths of a p5 are those of its saved machines,
``sudo`` runs what it is given, ``ssh`` is a step on the node, ``dmesg`` prints what the saved machines' kernels
said, AWS is the local stand-in, and all_reduce_perf the model of it. Nothing here touches the machine itself.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from hpslurm.core import records, toml
from hpslurm.core.values import dataclass
from hpslurm.job.hang import facts as hang_facts
from tests import typed
from tests.aws_server import serve
from tests.fake import hanging, nccl_tests
from tests.lab.fixtures import why_not
from tests.lab.lab import SYSTEM_PATH, Lab, new_folder

CASES = typed.ROOT / "tests/hosts"
GPUS = "--gpus-per-node=8"

# What stands in a text for something of the reader's, and what the lab has for it. "@...@" is known once it runs.
FILL = {
    r"sudo SLURM_CONF=(/path|…)": "sudo SLURM_CONF=$SLURM_CONF",
    r"(?<=nodename=)…": "n3",
    r"\bOTHER-NODE\b": "localhost",
    r"\bMASTER\b": "localhost",
    r"\bNODES\b(?!=)|\$NODES\b": "n[2-3]",
    r"\bNODE\b": "n3",
    r"(?<=--node )'ip-10-1-0-\[1-4\]'": "'n[1-4]'",
    r"(?<=-p )canary\b": "all",
    r"\b(un)?munge(?= -n\b|$| \|)": r"\g<0> --socket @LAB@/run/munge.sock",
    r"(?<=judge )slurm-4711\.out": "run.txt",
    r"> run\.txt": "> made.txt",
    r"(?<=release )JOBID\b|(?<=jobid=)JOBID(?= start)": "@HELD@",
    r"(?<![-\w])(4711|JOBID)\b(?!\.out)": "@JOB@",
    r"\bslurm-JOBID\.out\b": "slurm-4711.out",
    r"(?<![%,])\bPID\b(?!,)": "@PID@",
    r"\bUUID\b": "@GPU@",
    r"(?<!\$)\bUSER\b": "root",
    r"reason=\.\.\. NODE|reason=\.\.\. n3": "reason=tried n4",
    r"\bLOGFOLDER\b": "logs",
    r"(?<=judge )(FILE|OUTPUT)\b": "run.txt",
    r"(?<=chmod 755 )(FILE|/etc/slurm/prolog\.d/hpslurm\.sh)": "logs/a.log",
    r"(?<=-m 755 )FOLDER\b": "@LAB@/work/new",
    r"(?<=-N1 )PROGRAM\b": "all_reduce_perf",
    r"(?<=--reports )(FOLDER|reports)\b": "@LAB@/shared",
    r"(?<=--policy )new(-policy)?\.toml": "new.toml",
    r"/opt/hpslurm/bin/(?=hpslurm|clush)": "",
    r"/fsx\b": "@LAB@/shared",
    r"@LAB@/shared/hpslurm\b": "@LAB@/shared",
    r"/opt/slurm/etc/|/etc/slurm/(?=slurm\.conf)": "@LAB@/etc/",
    r"/etc/slurm/prolog\.d": "@LAB@/etc",
    r"/var/log/slurm/slurmd\.log": "@LAB@/log/slurmd.n3.log",
    r"/var/log/slurm/": "@LAB@/log/",
    r"/var/log/hpslurm\.log": "@LAB@/log/hooks.log",
    r"/var/lib/hpslurm": "@LAB@/results/n3",
    r"(?<![\w@])/(?=(sys/class/infiniband|sys/module/|proc/driver/|proc/self/mountinfo|proc/cmdline|etc/munge/|"
    r"opt/amazon/(?!efa/bin)|sys/devices/virtual/dmi|etc/nccl\.conf|dev/infiniband))": "@LAB@/hosts/n1/",
    "OFI-PLUGIN": "/bin/ls",  # a program with libraries, in the place of the saved machine's dummy
    r"--mpi=pmix": "--mpi=none",
    r"(?<=--again )30\b": "1",
    # ours, with the lab's folders in the place of the defaults, and inside an allocation where it wants to be
    r"\bhpslurm metrics --shared": "hpslurm metrics --results @LAB@/shared",
    r"\bhpslurm metrics\b(?! --results)": "hpslurm metrics --results @LAB@/results/n3",
    r"\bhpslurm history\b": "hpslurm history --no-aws --results @LAB@/shared",
    r"\bhpslurm report\b": "hpslurm report --results @LAB@/shared",
    r"(?<![\w/])hpslurm-check(?=\s|$)": "hpslurm-check --root @LAB@/hosts/n1",
    r"(?<!\S)hpslurm check\b": "in-job hpslurm check --root @LAB@/hosts/{node}",
    r"(?<!\S)(?<!gpus-per-node=8 )hpslurm nccl-tests(?! judge)": "in-job hpslurm nccl-tests --mpi none",
    r"(?<=gpus-per-node=8 hpslurm nccl-tests)": " --mpi none",
}

# What a lab on Debian lacks, who has it, and the program or path that would be there: then the command runs.
ELSEWHERE = {
    r"\bnvidia-smi\b": ("nvidia-smi", "NVIDIA's driver"),
    r"/libnvidia-ml\.so": ("nvidia-smi", "NVIDIA's driver"),
    r"/var/log/nhc\.log": ("/var/log/nhc.log", "NHC"),
    r"\bnv-fabricmanager\b": ("nv-fabricmanager", "NVIDIA's fabric manager"),
    r"\bdcgmi\b": ("dcgmi", "NVIDIA's DCGM"),
    r"\bncclras\b": ("ncclras", "NCCL"),
    r"\bpy-spy\b": ("py-spy", "its own Python package"),
    r"\btorchrun\b": ("torchrun", "PyTorch"),
    r"\blfs\b": ("lfs", "Lustre's client"),
    r"shared-wheels\.txt|hpslurm-wheels\.txt": (
        "/fsx/hpslurm-wheels.txt",
        "a folder of wheels; tests/test_wheel.py makes one",
    ),
    r"/opt/amazon/efa/bin/|\bldd .*libnccl-net": ("/opt/amazon/efa/bin", "EFA's installer"),
    r"\bfi_info\b": ("fi_info", "EFA's installer, or Debian's libfabric-bin"),
    r"\b(ibstat|rdma)\b": ("ibstat", "Debian's infiniband-diags"),
    r"all_reduce_perf -h|\bldd \$\(command -v all_reduce_perf": ("all_reduce_perf", "a build of nccl-tests"),
    r"\bmpirun\b": ("all_reduce_perf", "a build of nccl-tests with MPI"),
    r"(?<!scontrol )\bping\b": ("ping", "Debian's iputils-ping"),
    r"\bnc\b": ("nc", "Debian's netcat-openbsd"),
    r"\b(lsmod|modinfo)\b": ("lsmod", "Debian's kmod"),
    r"\blspci\b": ("lspci", "Debian's pciutils"),
    r"\blsof\b": ("lsof", "Debian's lsof"),
    r"\bjq\b": ("jq", "Debian's jq"),
    r"\bnft\b": ("nft", "Debian's nftables"),
    r"\biptables": ("iptables-save", "Debian's iptables"),
    r"\bdkms\b": ("dkms", "Debian's dkms"),
    r"\bchronyc\b|/etc/chrony\b": ("chronyc", "Debian's chrony, which starts a daemon"),
    r"\bresolvectl\b": ("resolvectl", "Debian's systemd-resolved, which changes the machine's DNS"),
    r"\bsystemctl (status|is-active|show|--failed)|\btimedatectl\b|\bloginctl\b|\bjournalctl\b": (
        "/run/systemd/system",
        "systemd",
    ),
    r"/var/log/provision/": ("/var/log/provision", "HyperPod's lifecycle scripts"),
    r"\bless\b": ("less", "Debian's less"),
    r"/cpufreq/": ("/sys/devices/system/cpu/cpufreq/policy0", "a machine that may choose its clock"),
    r"--container-image": ("/usr/lib64/slurm/spank_pyxis.so", "pyxis"),
    r"^ls /sys/fs/pstore|sudo ls -lt /sys/fs/pstore": ("/var/lib/systemd/pstore", "systemd"),
}
# Typed, and refused here: the words of the refusal, and why.
REFUSED = {
    r"\bsacct(mgr)?\b": ("accounting|slurmdbd", "needs slurmdbd: tests/lab/test_history.py has one"),
    r"^scontrol reboot$": ("Missing node list", "names the command, without a node"),
    r"^scontrol show topology$": (
        "No topology information|^$",
        "a lab has no switches; 24.11 and later then print nothing",
    ),
    r"\bfi_info -p efa": ("-61", "no EFA here: no data, as the guide says"),
    r"^scontrol show nodes --json$": (r"unrecognized option|^$|^\{\s*\"nodes\":", "23.11 and later print it"),
    r"^(hpslurm (scan|what-if)|chown root:root|chmod go-w|pip install)$": (
        "Missing (argument|option)|missing operand|at least one requirement",
        "names a command, without its object",
    ),
    r"--probe ssm": ("ssm|session", "starts sessions through AWS"),
}
# Would change this machine: not typed at all. Each names the verb.
CHANGES = {
    r"\bsystemctl (edit|enable|restart) ": "the machine's services",
    r"-m venv /opt|\bpip (install|wheel) |\bln -sf ": "installs; tests/test_wheel.py does that into a folder",
    r"^git clone |^make ": "the project's own; tests/lab/test_demo.py and tests/test_pyz.py do it",
    r"/run/hpslurm\.off": "the machine's kill switch; tests/test_hooks.py has one of its own",
    r"\bkill 4242 ": "ends processes",
    r"^scancel ": "ends the job that others are typed at",
    r"nvidia-smi (-e|-mig) ": "changes a GPU's mode",
    r"-m compileall": "writes bytecode",
    r"\bdu -xh .* /": "walks the whole disk",
}
# Other exit statuses than 0 that are as good.
STATUSES = {
    r"grep ' D'|grep \" D\"|lsof \+D|grep -n 127|grep -n /dev/shm|(dmesg|lsmod) \| grep|grep -i (pro|epi)log": (0, 1),
    r"nccl\.conf|env \| grep|^ulimit -l 8": (0, 1),
    r"systemctl status|systemctl is-active": (0, 1, 3, 4),
    r"--fail-on P[01]": (0, 3),
    r"\bjudge\b|hang --from": (0, 3),
    r"\bhpslurm history\b": (0, 1, 2),  # as far as jobs have ended and left records: tests/lab/test_history.py
}
# Works without a word.
SILENT = (
    r"^(sudo )?scontrol (update|release|reconfigure|cancel_reboot|reboot)|^(sudo )?(install -d|chmod|mkdir|rm|tail) "
    r"|^(find|export|eval) |^NODES=|^(CUDA|NCCL)_\w+=|^\w+=\S*$|^env \||^python -I$|^bash -p$"
    r"|> [\w.-]+$|\| jq |grep (' D'|\" D\")|grep -i (pro|epi)log|-e edac|conv=nocreat|^ulimit -l 8"
    r"|grep n3 \S+slurmctld\.log"
)


@dataclass(frozen=True)
class Cluster:
    lab: Lab
    env: dict[str, str]
    known: dict[str, str]

    def type(self, command: str) -> subprocess.CompletedProcess[str]:
        for name, value in self.known.items():
            command = command.replace(name, value)
        return self.lab.run("bash", "-c", command, env=self.env, seconds=60)


@cache
def commands() -> dict[str, str]:
    """What is typed, with the lab's things in it, and where it stands; each once."""
    found = [*typed.guide(), *(one for name in typed.DOCS for one in typed.of_file(name, frozenset(typed.SHOWN)))]
    found += [one for one, _ in typed.suggested() if typed.is_command(one.text)]
    return {filled(one.text): one.where for one in found if not re.match(r"aws |.*\| aws ", one.text)}


def filled(command: str) -> str:
    command = re.sub(r"\s+# .*$", "", typed.filled_in(command))
    for pattern, new in FILL.items():
        command = re.sub(pattern, new, command)
    return command


def rows(command: str, table: dict[str, tuple[str, str]]) -> list[tuple[str, str]]:
    return [row for pattern, row in table.items() if re.search(pattern, command)]


def is_there(thing: str) -> bool:
    return os.path.exists(thing) if thing.startswith("/") else bool(shutil.which(thing, path=SYSTEM_PATH))


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    if reason := why_not():
        pytest.skip(reason)
    conf = "RebootProgram=/bin/true\nPrologFlags=Alloc\n"  # a reboot of a node of the lab does nothing
    shared = 'results_shared = "@LAB@/shared"\n'
    words: dict[str, Any] = {"nodes": 6, "gpus": 8, "node_options": "CPUs=8 RealMemory=500"}
    with serve("sick"), Lab(new_folder(), conf=conf, policy=shared, hooks=("prolog", "epilog"), **words) as lab:
        bin = Path(lab.path("work/bin"))
        bin.mkdir()
        (bin / "all_reduce_perf").symlink_to(typed.ROOT / "tests/fake/nccl_tests.py")
        (bin / "python").symlink_to(sys.executable)
        aws = {name: value for name, value in os.environ.items() if name.startswith("AWS")}
        build = Path(lab.path("shared/nccl-tests/build"))
        build.mkdir(parents=True)
        (build / "all_reduce_perf").symlink_to(typed.ROOT / "tests/fake/nccl_tests.py")
        job = lab.submit("-w", "n3", "--wrap", "sleep 3600")
        lab.wait_for_job(job, "RUNNING")
        lab.run("salloc", "-Q", "--no-shell", "--exclusive", "-w", "n[5-6]", GPUS, "-J", "held", check=True)
        held = lab.run("squeue", "-h", "-n", "held", "-o", "%A", check=True).stdout.strip()
        in_job = f"SLURM_JOB_ID={held} SLURM_JOB_NODELIST=n[5-6] SLURM_NNODES=2 SLURM_GPUS_PER_NODE=8"
        for name, script in {
            "sudo": 'exec env "$@"',
            "ssh": 'while [ "${1#-}" != "$1" ]; do case "$1" in -l) shift;; esac; shift; done; host=$1; shift\n'
            'exec srun --overlap -Q -N1 -w "$host" sh -c "$*"',
            "dmesg": f"exec cat {lab.path('work/kernel.log')}",
            "in-job": f'exec env {in_job} "$@"',
        }.items():
            (bin / name).write_text(f"#!/bin/sh\n{script}\n")
            (bin / name).chmod(0o755)
        _files(lab)
        shutil.copytree(lab.path("work/logs"), lab.path(f"shared/logs/{job}"))
        # the records that are wanted are there: hooks end at once from now on
        Path(lab.path("policy.toml")).write_text("partitions = ['other']\n")
        env = {
            **aws,
            "PATH": f"{bin}:{lab.environment()['PATH']}",
            "MASTER_ADDR": "192.0.2.1",
            "MASTER_PORT": "29500",
            "SLURM_JOB_NODELIST": "localhost",
            "USER": "root",
            "HPSLURM_MODEL": lab.path("work/model.json"),
        }
        known = {"@LAB@": lab.folder, "@JOB@": job, "@PID@": str(os.getpid()), "@GPU@": _gpu(lab)}
        yield Cluster(lab, env, known)


def _gpu(lab: Lab) -> str:
    """A GPU that the job's prolog saw."""
    for path in Path(lab.path("shared")).rglob("*.prolog.jsonl"):
        if found := re.search(r"GPU-[0-9a-f-]+", path.read_text()):
            return found[0]
    raise AssertionError("no record names a GPU")


def _files(lab: Lab) -> None:
    """What a reader would have lying there: logs, a policy to try, a table of nccl-tests."""
    work = Path(lab.path("work"))
    (work / "logs").mkdir()
    corpus = sorted((typed.ROOT / "tests/scan/corpus").glob("*.log"))
    for name, source in zip(
        ("logs/a.log", "job.out", "slurm-4711.out", "dmesg.txt", "ras.txt", "nccl.n1.1.log"), corpus, strict=False
    ):
        shutil.copy(source, work / name)
    (work / "new.toml").write_text("memlock_min = 1\n")
    (work / ".nccl.conf").write_text("NCCL_DEBUG=INFO\n")
    kernel = [path.read_text(errors="replace") for path in sorted(CASES.glob("*/dev/kmsg"))]
    tables = toml.loads((typed.ROOT / "hpslurm/tables/patterns.toml").read_text())
    kernel += [row["example"] for rows in tables.values() if isinstance(rows, list) for row in rows if "example" in row]
    (work / "kernel.log").write_text("\n".join(kernel))
    made = hanging.made(16, "save", 1, 1, True, 0).sample
    (work / "hang.jsonl").write_text("".join(records.encode(line) + "\n" for line in hang_facts.lines_of(made)))
    (work / "model.json").write_text('{"seconds": 0.01}')
    (work / "run.txt").write_text(nccl_tests.table({1 << 30: 437.0, 2 << 30: 455.0, 4 << 30: 470.0, 8 << 30: 479.3}))


def prepare(cluster: Cluster, command: str) -> None:
    """What must be so before the command makes sense."""
    lab = cluster.lab
    if "state=resume" in command:
        lab.run("scontrol", "update", "nodename=n3", "state=drain", "reason=tried", check=True)
    if "cancel_reboot" in command:
        lab.run("scontrol", "reboot", "nextstate=RESUME", "reason=tried", "n3", check=True)  # waits for its job
    if "@HELD@" in command:
        cluster.known["@HELD@"] = lab.submit("-H", "-w", "n1", "--wrap", "true")
    if "nccl-tests" in command:
        for folder in Path(lab.path("work")).glob("hpslurm-nccl-tests-*"):
            shutil.rmtree(folder)
    if "sinfo -R" in command:
        lab.run("scontrol", "update", "nodename=n2", "state=drain", "reason=tried", check=True)


def tidy(cluster: Cluster) -> None:
    for name, state in cluster.lab.node_states().items():
        if "DRAIN" in state or "FAIL" in state or "DOWN" in state:
            cluster.lab.run("scontrol", "update", f"nodename={name}", "state=resume")


def left_out(command: str) -> str:
    """Why the command is not typed here; empty where it is."""
    for pattern, why in CHANGES.items():
        if re.search(pattern, command):
            return why
    return ", ".join(who for thing, who in rows(command, ELSEWHERE) if not is_there(thing))


@pytest.mark.lab
@pytest.mark.parametrize("command", [one for one in commands() if not left_out(one)])
def test_a_command_of_ours_works_as_printed(cluster: Cluster, command: str) -> None:
    prepare(cluster, command)
    try:
        done = cluster.type(command)
    finally:
        if "scontrol" in command or "sinfo -R" in command:
            tidy(cluster)
    said = f"{commands()[command]}: {command}\n{done.stdout[-800:]}{done.stderr[-800:]}"
    refusals = rows(command, REFUSED)
    if refusals:
        assert re.search(refusals[0][0], done.stderr + done.stdout, re.I), said
        return
    statuses = next((good for pattern, good in STATUSES.items() if re.search(pattern, command)), (0,))
    assert done.returncode in statuses, said
    assert done.stdout.strip() or done.returncode or re.search(SILENT, command), said
    assert "not found" not in done.stderr, said


@pytest.mark.parametrize(
    "table", [ELSEWHERE, REFUSED, CHANGES, STATUSES], ids=["elsewhere", "refused", "changes", "statuses"]
)
def test_every_row_speaks_of_a_command(table: dict[str, object]) -> None:
    assert [] == [pattern for pattern in table if not any(re.search(pattern, one) for one in commands())]


def test_every_placeholder_stands_in_a_command() -> None:
    texts = "\n".join(
        typed.filled_in(one.text)
        for one in [*typed.guide(), *(x for name in typed.DOCS for x in typed.of_file(name, frozenset(typed.SHOWN)))]
        + [one for one, _ in typed.suggested()]
    )
    later = [pattern for pattern in FILL if not re.search(pattern, texts)]
    assert [] == [one for one in later if "@LAB@" not in one and "n3" not in one]


HARM = re.compile(
    r"systemctl (edit|enable|restart)|pip (install|wheel)|\bmake |git clone|(touch|rm) /run/|sudo kill|nvidia-smi -[em]"
    r"|compileall|\bdu -xh|^scancel "
)


def test_a_row_of_what_changes_the_machine_names_a_verb_that_does() -> None:
    for pattern in CHANGES:
        kept = [one for one in commands() if re.search(pattern, one)]
        assert [] == [one for one in kept if not HARM.search(one) and "venv /opt" not in one and "ln -sf" not in one]


def test_most_commands_are_typed() -> None:
    typed_here = [one for one in commands() if not left_out(one)]
    assert 140 < len(typed_here), len(typed_here)
