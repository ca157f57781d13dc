"""``make demo``: hpslurm's main job on a real Slurm of four nodes, on this machine.

n1 is healthy. n2 is, too, until one of its GPUs falls off the bus in the middle of a job. n3 lost half of its EFA
devices and may lock 64 KiB of memory, and n4 was drained by hand with a reason that HyperPod does not act on. Every
command is printed before its output and is given to bash as printed, so that a reader can type the same.
"""

from __future__ import annotations

import fcntl
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable

sys.path[0] = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from tests.lab import machine  # noqa: E402
from tests.lab.lab import BASE, CHECKOUT, Lab, LabError, base_folder, call_us_localhost  # noqa: E402

FOLDER = sys.argv[1] if len(sys.argv) > 1 else f"{BASE}/demo"
BOLD, DIM, PLAIN = ("\033[1m", "\033[2m", "\033[0m") if sys.stdout.isatty() else ("", "", "")

# Jobs as a user would write them, one task on each node. What fails in them needs no GPU.
TRAIN = """#!/bin/bash
#SBATCH --job-name=train --nodes=1-3 --output={folder}/work/%j.log
srun {checkout}/tests/lab/training.sh
"""
HANGS = "srun python tests/fake/training/train.py data 1"  # rank 1 waits for its data, the others for it
PCI = "0000:b9:00"


class Demo:
    """A person at a shell: ``type`` prints a command, runs it, and keeps its output."""

    def __init__(self) -> None:
        self.env = {key: os.environ[key] for key in ("HOME", "TERM", "LANG") if key in os.environ}
        self.env["PATH"] = os.environ.get("PATH", os.defpath)
        self.prepare: Callable[[], None] | None = None

    def say(self, text: str) -> None:
        print(f"\n{BOLD}# {text}{PLAIN}", flush=True)

    def export(self, name: str, value: str, shown: str = "") -> None:
        print(f"$ export {name}={shown or shlex.quote(value)}", flush=True)
        self.env[name] = value

    def type(self, command: str, expect: tuple[int, ...] = (0,)) -> str:
        """Run a command as printed; raises LabError for an exit status that the demo does not expect."""
        print(f"$ {command}", flush=True)
        done = subprocess.run(
            ["bash", "-c", command],
            env=self.env,
            cwd=CHECKOUT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=90,
            preexec_fn=self.prepare,
        )
        print(done.stdout + done.stderr, end="", flush=True)  # one behind the other, as into two files
        if done.returncode:
            print(f"{DIM}(exit status {done.returncode}){PLAIN}", flush=True)
        if done.returncode not in expect:
            raise LabError(f"exit status {done.returncode} of: {command}")
        return done.stdout


def show(demo: Demo) -> None:
    demo.say("Four nodes of a real Slurm on 127.0.0.1, with hpslurm's prolog and epilog. Each node looks at")
    print("# a saved p5.48xlarge of its own; its slurmd and that slurmd's limits are real.")
    demo.export("PATH", f"{CHECKOUT}/.venv/bin:{demo.env['PATH']}", f"{shlex.quote(f'{CHECKOUT}/.venv/bin')}:$PATH")
    demo.export("LAB", FOLDER)
    demo.type("python tests/lab/lab.py up --dir $LAB --hooks prolog,epilog --shared --efa n3=16 --memlock n3=65536")
    demo.export("SLURM_CONF", f"{FOLDER}/etc/slurm.conf", "$LAB/etc/slurm.conf")
    lab = Lab.open(FOLDER)
    if lab.own_name:
        demo.say("Slurm's commands need a host name that is 127.0.0.1, this machine's is not: a shell that has one.")
        print("$ python tests/lab/lab.py exec --dir $LAB -- bash")
        demo.prepare = call_us_localhost
    demo.type("scontrol update nodename=n4 state=drain reason=action:reboot")
    demo.type("sinfo -N -o '%N %T %E'")

    demo.say("Before training: a user asks about the nodes. --root is there because lab nodes are saved machines;")
    print("# on a cluster it is: srun -N3 --ntasks-per-node=1 hpslurm-check")
    demo.type(f"srun -N3 --ntasks-per-node=1 {CHECK}", expect=(0, 3))

    demo.say("A job that runs. The prolog looked at its nodes first, and was not in its way.")
    lab.script("train.sbatch", TRAIN.format(folder=FOLDER, checkout=CHECKOUT))
    demo.type("cat $LAB/work/train.sbatch")
    job = submitted(demo.type("sbatch $LAB/work/train.sbatch"))
    finished(lab, job)
    demo.type(f"hpslurm report {job} {FROM}")

    demo.say("A job that fails: in the middle of it a GPU of n2 falls off the bus. (The saved kernel log and the saved")
    print("# answer of NVML of n2 change under the running job; the ranks print what PyTorch and NCCL print.)")
    job = submitted(demo.type("STEPS=1000 sbatch $LAB/work/train.sbatch"))
    wait_for_output(lab, job)
    machine.lose_gpu(lab.host("n2"), PCI)
    lab.script("gpu-is-gone", "")
    finished(lab, job)
    demo.type(f"cat $LAB/work/{job}.log")
    again = demo.type(f"hpslurm report {job} {FROM}")
    demo.type(f"hpslurm report {job} --node n2 {FROM}")

    demo.say("Again, without the nodes that the report names: the line that it prints.")
    job = submitted(demo.type(again_of(again)))
    finished(lab, job)
    demo.type(f"hpslurm report {job} {FROM}")

    demo.say("A job that hangs. It is asked whom it waits for, while it hangs, and then cancelled.")
    job = submitted(demo.type(f"sbatch -N3 --output=$LAB/work/%j.log --wrap {shlex.quote(HANGS)}"))
    wait_for_output(lab, job)
    demo.type(f"hpslurm hang {job}", expect=(3,))
    demo.type(f"scancel {job}")
    finished(lab, job)

    demo.say("The whole cluster, as an administrator sees it from the controller.")
    demo.type(f"hpslurm diagnose {FROM}", expect=(0,))

    demo.say(
        "The same with HyperPod's side of it. A small server on 127.0.0.1 stands in for AWS here; on a cluster it is:"
    )
    print("# hpslurm diagnose --cluster demo --region us-west-2")
    demo.type(
        f"python -m tests.aws_server demo -- hpslurm diagnose --cluster demo --region us-west-2 {FROM}", expect=(0,)
    )


CHECK = "bash -c 'hpslurm-check --root $LAB/hosts/$SLURMD_NODENAME'"
FROM = "--policy $LAB/policy.toml"


def again_of(report: str) -> str:
    """The line that submits again, without the nodes on which it would fail."""
    match = re.search(r"^Again +(sbatch --exclude=.*)", report, re.M)
    if not match:
        raise LabError("the report names no node to leave out")
    return match[1]


def finished(lab: Lab, job: str) -> None:
    lab.wait_for_job(job)
    wait_for_epilogs(lab, job)


def submitted(output: str) -> str:
    match = re.search(r"Submitted batch job (\d+)", output)
    if not match:
        raise LabError(f"sbatch said {output!r}")
    return match[1]


def wait_for_output(lab: Lab, job: str) -> None:
    """Wait until each of the three nodes has said its line: then all of the job hangs."""
    path = lab.path("work", f"{job}.log")
    end = time.monotonic() + 30
    while not (os.path.exists(path) and open(path).read().count("loss") == 3) and time.monotonic() < end:
        time.sleep(0.1)


def wait_for_epilogs(lab: Lab, job: str) -> None:
    """Epilogs run after the job; a person would not be as fast as this."""
    end = time.monotonic() + 10
    while "COMPLETING" in lab.run("squeue", "-h", "-o", "%T", "-j", job).stdout and time.monotonic() < end:
        time.sleep(0.1)


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    lock = open(os.path.join(base_folder(), "demo.lock"), "w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print("demo: another make demo of this user is running", file=sys.stderr)
        return 1
    clear()
    began = time.monotonic()
    demo = Demo()
    try:
        show(demo)
    except LabError as error:
        print(f"\ndemo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    finally:
        demo.say("Done: everything stops.")
        if os.path.exists(f"{FOLDER}/lab.json"):
            demo.type("python tests/lab/lab.py down --dir $LAB")
        clear()
    print(f"\ndemo: {time.monotonic() - began:.0f} s, nothing is left running")
    return 0


def clear() -> None:
    """Stop and remove what an earlier demo left, if it was killed."""
    if os.path.exists(f"{FOLDER}/lab.json"):
        Lab.open(FOLDER).down()
    shutil.rmtree(FOLDER, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
