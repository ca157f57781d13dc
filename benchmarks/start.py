"""How long commands take to start, as a ratio to ``python -c 'import click'``: ``python benchmarks/start.py``.

A wheel is built and put into a folder, since an installed hpslurm reads its tables as JSON and a checkout does not.
Seconds of the processor, since they hardly depend on what else runs.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from benchmarks.figures import HPSLURM, REPO, Figure, at_most, best, environment, show

ROUNDS = 15
MOST = 1.5  # times the import of click
OOM = "[rank2]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB.\n"


def figures(quick: bool) -> list[Figure]:
    rounds = 5 if quick else ROUNDS
    with tempfile.TemporaryDirectory() as folder:
        installed, log = Path(folder, "installed"), Path(folder, "small.log")
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
        subprocess.run([*pip, "--target", str(installed), str(REPO)], check=True)
        log.write_text(OOM)
        env = environment(PYTHONPATH=str(installed))

        def busy(*words: str) -> float:
            best([sys.executable, *words], 1, env)  # compiled once
            return best([sys.executable, *words], rounds, env).busy

        click = busy("-c", "import click")
        rows = {
            "`hpslurm --help`": busy(*HPSLURM[1:], "--help"),
            "`hpslurm scan --help`": busy(*HPSLURM[1:], "scan", "--help"),
            "`hpslurm scan` of a file of one line": busy(*HPSLURM[1:], "scan", str(log)),
        }
    told = "{:.2f} times, {:.0f} ms against {:.0f} ms"
    return [
        at_most(
            f"start-up: {what} / `import click`",
            value / click,
            MOST,
            told.format(value / click, value * 1e3, click * 1e3),
        )
        for what, value in rows.items()
    ]


if __name__ == "__main__":
    show(figures("--quick" in sys.argv))
