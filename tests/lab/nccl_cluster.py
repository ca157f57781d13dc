"""A lab with the model of nccl-tests in it: started by real srun or mpirun, slow where a test says so."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import struct
import subprocess
import termios
import time
from pathlib import Path

import pytest

from tests.lab.lab import Lab, call_us_localhost

FAKE = Path(__file__).parent.parent / "fake"
GPUS = 2
RUN = ["hpslurm", "nccl-tests", "--gpus", str(GPUS), "--instance-type", "p5.48xlarge"]
# Real libraries, and the flag with which mpi_perf.c uses them.
LIBRARIES = {"mpi": ("WITH_MPI", "libmpi.so.40", "openmpi-bin"), "pmi2": ("WITH_PMI2", "libpmi2.so.0", "libpmi2-0")}


class Cluster:
    """A lab with the model program in it, and what is wrong with its nodes."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.bin = Path(lab.path("work", "bin"))
        self.bin.mkdir()
        self.program = self.bin / "all_reduce_perf"
        self.program.symlink_to(FAKE / "nccl_tests.py")
        self.model = Path(lab.path("work", "model.json"))
        self.faults()

    def faults(self, **faults: object) -> None:
        self.model.write_text(json.dumps({"busbw": 440, "seconds": 0.01, **faults}))

    @property
    def env(self) -> dict[str, str]:
        """Open MPI takes nodes on one machine apart by name, and its shared memory not at all.

        Open MPI 5 looks for a way from its own address to the same in the table of routes, and finds none.
        """
        env = {"HPSLURM_MODEL": str(self.model), "HPSLURM_PROGRAM": str(self.program)}
        return {**env, "OMPI_MCA_btl": "tcp,self", "OMPI_MCA_reachable": "weighted"}

    def run(
        self, *words: str, nodes: int = 4, program: str = "", job: tuple[str, ...] = ("--exclusive",), **how: object
    ) -> tuple[int, str, str]:
        """The command in an allocation of its own, got with the options ``job``."""
        words = words if "--mpi" in words or "--launcher" in words else ("--mpi", "none", *words)
        command = ["salloc", f"-wn[1-{nodes}]", *job, *RUN, "--program", program or str(self.program), *words]
        done = self.lab.run(*command, env=self.env, **how)  # type: ignore[arg-type]
        return done.returncode, done.stdout, done.stderr

    def steps_left(self, seconds: float = 10) -> str:
        """What squeue lists of steps; one that was just ended may stand there for a moment."""
        end = time.monotonic() + seconds
        while (left := self.lab.run("squeue", "--steps", "--noheader").stdout) and time.monotonic() < end:
            time.sleep(0.2)
        return left

    def on_terminal(self, columns: int, *words: str, seconds: float = 60) -> list[str]:
        """What the command writes to a terminal of this width, in an allocation: lines, also those written over."""

        def before_exec() -> None:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # salloc looks whether it is in the foreground
            if self.lab.own_name:
                call_us_localhost()

        ours, theirs = os.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        command = ["salloc", "-Q", "-wn[1-4]", "--exclusive", *RUN, "--mpi", "none", "--program", str(self.program)]
        child = subprocess.Popen(
            [*command, *words],
            env={**self.lab.environment(), **self.env, "TERM": "xterm"},
            cwd=self.lab.path("work"),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            preexec_fn=before_exec,
        )
        os.close(theirs)
        said = b""
        try:
            while part := os.read(ours, 1 << 16):
                said += part
        except OSError:  # how the end of a terminal shows
            pass
        os.close(ours)
        child.wait(seconds)
        return [piece.rstrip() for piece in re.split(r"[\r\n]+", said.decode()) if piece.strip()]

    def built(self, kind: str) -> str:
        """The program that learns its ranks by a real library: ``mpi``, ``pmi2``, or ``none``. Skips without it."""
        folder = Path(self.lab.path("work", f"with-{kind}"))
        program = folder / "all_reduce_perf"
        if program.exists():
            return str(program)
        need_compiler()
        words = ["gcc", "-O1", str(FAKE / "mpi_perf.c"), "-o", str(program)]
        if kind in LIBRARIES:
            flag, library, package = LIBRARIES[kind]
            if not any(Path("/usr/lib").glob(f"*/{library}")):
                pytest.skip(f"needs {library}: apt-get install {package}")
            # Open MPI 6 keeps its symbols in a library behind that one.
            words += [f"-D{flag}", "-Wl,--copy-dt-needed-entries", f"-l:{library}"]
        folder.mkdir(exist_ok=True)
        subprocess.run(words, check=True)
        return str(program)


def need_compiler() -> None:
    if not shutil.which("gcc"):
        pytest.skip("needs a C compiler: apt-get install gcc libc6-dev")


def need_mpirun() -> None:
    if not shutil.which("mpirun") or not os.path.exists("/usr/bin/orted"):
        pytest.skip("needs the launcher of Open MPI 4 and its orted, which Open MPI 5 and 6 do not have (openmpi-bin)")


def need_pmix() -> None:
    """Slurm's PMIx plugin opens libpmix.so, a link that Debian has in its -dev package."""
    if not any(Path("/usr/lib").glob("*/pmix2/lib/libpmix.so")):
        pytest.skip("needs PMIx as Slurm opens it: apt-get install libpmix-dev")
    if not any(Path("/usr/lib").glob("*/slurm*/mpi_pmix*.so")):
        pytest.skip("this Slurm is built without its PMIx plugin (Debian's 26.05 is)")
