"""The stand-in NVML library: built once, and a machine whose GPU child finds it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hpslurm.sources.host import Host

SOURCE = Path(__file__).parent.parent / "fake_nvml" / "fake.c"
NAME = "libnvidia-ml.so.1"


def build(folder: Path, *flags: str) -> Path:
    """Compile the library into the folder; skips the test, visibly, where no compiler is."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler here: the stand-in for libnvidia-ml.so.1 cannot be built")
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        [
            compiler,
            "-shared",
            "-fPIC",
            "-O1",
            f"-Wl,-soname,{NAME}",
            *flags,
            "-o",
            str(folder / NAME),
            str(SOURCE),
            "-ldl",
        ],
        check=True,
    )
    return folder


def machine(root: Path, library: Path, scenario: str = "", **how: object) -> Host:
    """A machine that has a GPU driver, this interpreter, and the library with this scenario."""
    (root / "dev").mkdir(parents=True, exist_ok=True)
    (root / "dev/nvidiactl").touch()
    python = root / sys.executable.lstrip("/")
    python.parent.mkdir(parents=True, exist_ok=True)
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    (library / "scenario").write_text(scenario)
    env = {"LD_LIBRARY_PATH": str(library)}
    return Host(str(root), env=env, **how)  # type: ignore[arg-type]
