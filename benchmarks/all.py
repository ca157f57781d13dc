"""All figures in one table, which is also put into benchmarks/RESULTS.md: ``python benchmarks/all.py [--quick]``.

``make bench`` runs it, ``make bench QUICK=1`` the short form: smaller inputs, fewer rounds, the same goals, and
RESULTS.md stays as it is. What stands in RESULTS.md outside of its two marks is kept.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
import time
from datetime import datetime, timezone
from importlib.metadata import version

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from benchmarks import cluster, scan_throughput, start
from benchmarks.figures import REPO, Figure, row
from hpslurm import __version__

RESULTS = REPO / "benchmarks/RESULTS.md"
BEGIN, END = "<!-- make bench: begin -->", "<!-- make bench: end -->"
HEAD = ("| what | came to | goal | |", "| --- | --- | --- | --- |")
PARTS = (start, scan_throughput, cluster)  # each has ``figures(quick)`` and is a program of its own
# Programs whose output is not of one shape: the lines that tell the most.
PROGRAMS: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("benchmarks/prolog.py", (), r"^(?P<what>[^:]+): (?P<value>.+)$"),
    ("benchmarks/hang.py", ("--seeds", "1"), r"^(?P<what>1,000 nodes of 8 ranks|with(?:out)? stacks): (?P<value>.+)$"),
    ("benchmarks/find_slow.py", ("--nodes", "128", "--seeds", "10", "--often", "1.0", "--share", "0.75"),
     r"^\| (?P<what>128 \| \w+ [^.]+\| 0\.75) \| (?P<value>.+) \|$"),
    ("benchmarks/history.py", ("--million",), r"^(?P<what>)(?P<value>[0-9.]+ s, .+ at most)$"),
)  # fmt: skip
LONG = ("benchmarks/history.py",)  # left out of the short form


def machine() -> str:
    """One line: what the figures were made on and with."""
    with open("/proc/cpuinfo") as file:
        model = re.search(r"model name\s*: (.+)", file.read())
    rg = shutil.which("rg")
    tools = {
        "Python": platform.python_version(),
        "Slurm": _first_line("sinfo", "--version").removeprefix("slurm-wlm ").removeprefix("slurm "),
        "ripgrep": _first_line(rg, "--version").removeprefix("ripgrep ") if rg else "",
        "hyperscan": version("hyperscan"),
        "click": version("click"),
    }
    told = ", ".join(f"{name} {value}" for name, value in tools.items() if value)
    load = os.getloadavg()[0]
    return (
        f"{datetime.now(timezone.utc):%Y-%m-%d}, hpslurm {__version__}, {len(os.sched_getaffinity(0))} cores "
        f"({model[1] if model else platform.machine()}), {told}; load before it began {load:.1f}"
    )


def _first_line(*words: str) -> str:
    try:
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()[0].split(" (")[0]
    except (OSError, subprocess.CalledProcessError, IndexError):
        return ""


def of_program(script: str, words: tuple[str, ...], shape: str) -> list[Figure]:
    done = subprocess.run([sys.executable, str(REPO / script), *words], capture_output=True, text=True, check=False)
    if done.returncode:
        return [
            Figure(script, f"failed: {(done.stderr.strip() or 'no word why').splitlines()[-1]}", "exit status 0", False)
        ]
    found = [match for line in done.stdout.splitlines() if (match := re.match(shape, line))]
    return [Figure((match["what"] or script).replace("|", "·"), match["value"].replace("|", "·")) for match in found]


def main(words: list[str]) -> int:
    quick = "--quick" in words
    began = time.monotonic()
    lines = [f"On {machine()}.{' Short form.' if quick else ''}", ""]
    poor: list[str] = []
    print(lines[0], flush=True)

    def tell(command: str, figures: list[Figure]) -> None:
        part = ["", f"`{command}`", "", *HEAD, *map(row, figures)]
        print("\n".join(part), flush=True)
        lines.extend(part)
        poor.extend(figure.what for figure in figures if figure.met is False)

    for module in PARTS:
        name = module.__name__.replace(".", "/")
        tell(f"python {name}.py{' --quick' if quick else ''}", module.figures(quick))
    for script, more, shape in PROGRAMS:
        if not (quick and script in LONG):
            tell(" ".join(("python", script, *more)), of_program(script, more, shape))
    last = f"{time.monotonic() - began:.0f} s in all. " + (
        f"Not met: {'; '.join(poor)}." if poor else "All goals are met."
    )
    print("", last, sep="\n")
    if not quick:
        keep([*lines, "", last])
    return 0


def keep(lines: list[str]) -> None:
    """Between the marks of RESULTS.md, which are put at its end where there are none."""
    text = RESULTS.read_text()
    if BEGIN not in text:
        text = f"{text.rstrip()}\n\n## Speed\n\n{BEGIN}\n{END}\n"
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    RESULTS.write_text(f"{before}{BEGIN}\n\n" + "\n".join(lines) + f"\n\n{END}{after}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
