"""Three weeks of a small cluster as programs that print what sacct and sacctmgr would, and the diagnoses beside it."""

from __future__ import annotations

import time
from pathlib import Path

from hpslurm.core.finding import Culprit, Diagnosis
from hpslurm.scan import diagnoses
from hpslurm.sources.host import SACCT_MARK

DAY = 86400
NODES = [f"ip-10-1-0-{number}" for number in range(1, 13)]
SICK = NODES[6]
FIRST = 100  # job ids are above this
LOST = Diagnosis("gpu_fell_off_bus", "high", "its GPU fell off the bus", Culprit(host=SICK))


def stamp(when: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(when))


def row(job: int, end: float, node: str, state: str = "COMPLETED", user: str = "alice", code: str = "0:0") -> str:
    words = (str(job), state, code, stamp(end - 5 * 3600), stamp(end), user, "p5", node)
    return SACCT_MARK.join(words) + "\n"


def month(folder: Path, now: float) -> tuple[Path, Path]:
    """A root folder with the programs, and a results folder. One node is named five times; once six fail together.

    tests/lab/test_accounting.py loads the same rows into a real slurmdbd, and gets the same answers.
    """
    root, results = folder / "root", folder / "results"
    results.mkdir(parents=True, exist_ok=True)
    rows, job = [], FIRST
    for day in range(1, 21):
        for node in NODES:
            job += 1
            sick = node == SICK and day % 4 == 0
            rows.append(row(job, now - day * DAY, node, "FAILED" if sick else "COMPLETED", f"u{day}"))
            if sick:
                diagnoses.keep([str(results)], job, now - day * DAY, LOST, node)
    rows += [row(1000 + at, now - 9.5 * DAY + at, node, "FAILED", f"v{at}", "0:7") for at, node in enumerate(NODES[:6])]
    event = f"lab|{SICK}|{stamp(now - 3 * DAY)}|{stamp(now - 2 * DAY)}|DRAIN|root(0)|looks | bad"
    program(root, "sacct", "".join(rows))
    program(root, "sacctmgr", event + "\n")
    return root, results


def program(root: Path, name: str, prints: str) -> None:
    """Whatever it is asked, it prints this."""
    path = root / "usr/bin" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    (path.parent / f"{name}.txt").write_text(prints)
    path.write_text(f"#!/bin/sh\ncat {path.parent}/{name}.txt\n")
    path.chmod(0o755)
