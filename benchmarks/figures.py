"""What every measurement here needs: one run of a program, figures with a goal, and programs without a cold start."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
HPSLURM = (sys.executable, "-c", "from hpslurm.cli import main; main()")


@dataclass(frozen=True)
class Used:
    """What a program took: seconds by the clock, seconds of processors, MiB at most; it and those it waited for."""

    seconds: float
    busy: float
    peak: int
    status: int


@dataclass(frozen=True)
class Figure:
    """A row of the table. ``met`` is None where there is no goal."""

    what: str
    came_to: str
    goal: str = ""
    met: bool | None = None


def environment(**more: str) -> dict[str, str]:
    """Compiled files are kept, as on any cluster, but not in the checkout."""
    env = {key: value for key, value in os.environ.items() if key not in ("PYTHONDONTWRITEBYTECODE", "SLURM_CONF")}
    return {**env, "PYTHONPYCACHEPREFIX": f"{tempfile.gettempdir()}/hpslurm-bench-compiled", **more}


def run(words: Sequence[str], env: Mapping[str, str] | None = None, stdin: int = subprocess.DEVNULL) -> Used:
    """Its output goes nowhere."""
    began = time.perf_counter()
    child = subprocess.Popen(
        words, env=env or environment(), stdin=stdin, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/"
    )
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    busy = usage.ru_utime + usage.ru_stime
    return Used(time.perf_counter() - began, busy, usage.ru_maxrss >> 10, child.returncode)


def best(words: Sequence[str], rounds: int, env: Mapping[str, str] | None = None) -> Used:
    """Of some runs the least of each: what else the machine does only adds. Raises RuntimeError where one fails."""
    runs = [run(words, env) for _ in range(rounds)]
    if bad := [one.status for one in runs if one.status]:
        raise RuntimeError(f"{' '.join(words[-4:])}: exit status {bad[0]}")
    peak = max(one.peak for one in runs)
    return Used(min(one.seconds for one in runs), min(one.busy for one in runs), peak, 0)


def at_most(what: str, value: float, most: float, words: str) -> Figure:
    return Figure(what, words, f"at most {most:g}", value <= most)


def at_least(what: str, value: float, least: float, words: str) -> Figure:
    return Figure(what, words, f"at least {least:g}", value >= least)


def row(figure: Figure) -> str:
    verdict = {True: "met", False: "**not met**", None: ""}[figure.met]
    return f"| {figure.what} | {figure.came_to} | {figure.goal} | {verdict} |"


def show(figures: Sequence[Figure]) -> None:
    for figure in figures:
        print(row(figure), flush=True)
