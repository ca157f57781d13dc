"""diagnose, metrics and report of large clusters: ``python benchmarks/cluster.py [--quick]``, as root.

diagnose: 10,000 nodes in a real slurmctld, four of them with a slurmd. The others never registered, which makes every
one a finding: that is "all sick". For "500 sick" a wrapper around scontrol tells them as idle, and 500 are down or
drained. Yardsticks are what prints all nodes: ``scontrol show nodes`` and ``sinfo --json`` (``scontrol show nodes
--json`` where there is that). Records are those of a real prolog and epilog of a saved p5.48xlarge, once for each node
(27 KB each). AWS is the local stand-in.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from benchmarks.figures import HPSLURM, Figure, Used, at_most, best, environment, run, show
from tests.aws_server import serve
from tests.aws_server.scenario import FOLDER
from tests.lab import machine
from tests.lab.fixtures import why_not
from tests.lab.lab import Lab, new_folder

NODES, SICK = 10_000, 500
INSTANCES, CALLS = 2_000, 42
SIZES = (512, 2_048, 10_000)  # nodes of a job, for metrics and report
MOST_OF_TEXT, MOST_OF_JSON, MEMORY = 5, 0.4, 60  # times scontrol's text, times its JSON, MiB
GROWTH = 1.3  # times linear that still counts as linear
PREFIX = "ip-10-1-0-"
JOB = "4711"
WRAPPER = r"""#!/bin/sh
[ "$*" = "show nodes" ] || [ "$*" = "--json show nodes" ] || exec /usr/bin/scontrol "$@"
/usr/bin/scontrol "$@" > "$0.$$"; status=$?
sed -e 's/^   State=UNKNOWN /   State=IDLE /' -e 's/"state": "unknown"/"state": "idle"/' "$0.$$"; rm "$0.$$"
exit $status
"""


def figures(quick: bool) -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        made_of = _one_node(base)
        made = _aws(base)
        made += _sizes(base, made_of, SIZES[:2] if quick else SIZES)
        if reason := why_not():
            return [*made, Figure("diagnose of many nodes", f"left out: {reason.splitlines()[0]}")]
        return [*_diagnose(base, made_of, 2 if quick else 3), *made]


def _one_node(base: Path) -> Path:
    """Results of a real prolog and epilog, of a node whose name is replaced later."""
    machine.write(str(base / "machine"), name="NODENAME")
    env = environment(SLURM_JOB_ID=JOB, SLURMD_NODENAME="NODENAME", SLURM_JOB_UID="0", SLURM_JOB_GID="0")
    for hook in ("prolog", "epilog"):
        words = [
            sys.executable,
            "-I",
            "-m",
            "hpslurm.hooks",
            hook,
            "--root",
            f"{base}/machine",
            "--results",
            f"{base}/one",
        ]
        subprocess.run(words, env=env, check=True, stdout=subprocess.DEVNULL)
    return base / "one"


def _spread(made_of: Path, results: Path, nodes: int, folders: tuple[str, ...], hooks: tuple[str, ...]) -> None:
    for folder in folders:
        (results / folder).mkdir(parents=True)
        for hook in hooks:
            text = (made_of / folder / f"NODENAME.{hook}.jsonl").read_text()
            for number in range(1, nodes + 1):
                name = f"{PREFIX}{number}"
                (results / folder / f"{name}.{hook}.jsonl").write_text(text.replace("NODENAME", name))


def _diagnose(base: Path, made_of: Path, rounds: int) -> list[Figure]:
    with Lab(new_folder(), nodes=NODES, start=4, prefix=PREFIX, conf="SlurmdTimeout=0") as lab:
        down, drained = (
            f"{PREFIX}[{NODES - SICK + 1}-{NODES - SICK // 2}]",
            f"{PREFIX}[{NODES - SICK // 2 + 1}-{NODES}]",
        )
        lab.run("scontrol", "update", f"NodeName={down}", "State=DOWN", "Reason=GPU fell off the bus", check=True)
        lab.run("scontrol", "update", f"NodeName={drained}", "State=DRAIN", "Reason=bad cable", check=True)
        env = {**environment(), "SLURM_CONF": lab.conf}
        as_json = ["scontrol", "show", "nodes", "--json"]
        as_json = as_json if run(as_json, env).status == 0 else ["sinfo", "--json"]
        text, json = best(["scontrol", "show", "nodes"], rounds, env), best(as_json, rounds, env)
        root = base / "root"
        (root / "usr/bin").mkdir(parents=True)
        for program in ("squeue", "sacct", "sinfo", "sdiag", "sacctmgr"):
            (root / "usr/bin" / program).symlink_to(f"/usr/bin/{program}")
        (root / "usr/bin/scontrol").write_text(WRAPPER)
        (root / "usr/bin/scontrol").chmod(0o755)
        words = [*HPSLURM, "diagnose", "--no-aws"]
        few = best([*words, "--root", str(root)], rounds, env)
        every = best(words, rounds, env)
        _spread(made_of, root / "var/lib/hpslurm", NODES, ("nodes",), ("prolog",))
        cold = run([*words, "--root", str(root)], env)
        recorded = best([*words, "--root", str(root)], rounds, env)
        shutil.rmtree(root / "var")
    name = " ".join(as_json)
    what = f"diagnose, {NODES:,} nodes"
    return [
        Figure(f"the yardsticks: `scontrol show nodes`, `{name}`", f"{text.seconds:.2f} s, {json.seconds:.2f} s"),
        *_against(f"{what}, {SICK} sick", few, text, json, name),
        *_against(f"{what}, all sick", every, text, json, name),
        *_against(f"{what}, {SICK} sick, {NODES:,} fresh records", recorded, text, json, name),
        Figure(f"{what}, the first look after the records were written", f"{cold.seconds:.2f} s"),
    ]


def _against(what: str, ours: Used, text: Used, json: Used, name: str) -> list[Figure]:
    of_text, of_json = ours.seconds / text.seconds, ours.seconds / json.seconds
    told = f"{ours.seconds:.2f} s ({ours.busy:.2f} s of the processor)"
    return [
        at_most(f"{what} / `scontrol show nodes`", of_text, MOST_OF_TEXT, f"{of_text:.1f} times, {told}"),
        at_most(f"{what} / `{name}`", of_json, MOST_OF_JSON, f"{of_json:.2f} times"),
        at_most(f"{what}, memory", ours.peak, MEMORY, f"{ours.peak} MiB"),
    ]


def _aws(base: Path) -> list[Figure]:
    text = (FOLDER / "healthy.toml").read_text()
    many = base / "many.toml"
    many.write_text(
        text.replace("CurrentCount = 4", f"CurrentCount = {INSTANCES}").replace("count = 4", f"count = {INSTANCES}")
    )
    words = [*HPSLURM, "diagnose", "--cluster", "demo", "--no-slurm", "--verbose", "--root", str(base / "nothing")]
    (base / "nothing").mkdir()
    with serve(str(many)) as server:
        env = environment(**server.environ)
        used = best(words, 2, env)
        done = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
    counted = re.search(r"AWS calls: (\d+)", done.stderr)
    calls = int(counted[1]) if counted else 0
    told = f"{calls} calls, {used.seconds:.2f} s ({used.busy:.2f} s of the processor), {used.peak} MiB"
    return [at_most(f"diagnose, {INSTANCES:,} instances of AWS alone: calls", calls, CALLS, told)]


def _sizes(base: Path, made_of: Path, sizes: tuple[int, ...]) -> list[Figure]:
    made = []
    took: dict[str, list[tuple[int, float]]] = {}
    for nodes in sizes:
        results = base / "results"
        _spread(made_of, results, nodes, ("nodes", f"jobs/{JOB}"), ("prolog", "epilog"))
        commands = {
            "metrics": ("metrics", "--shared", "--results", str(results)),
            "report": ("report", JOB, "--results", str(results), "--root", f"{base}/machine"),
        }
        for name, words in commands.items():
            used = best([*HPSLURM, *words], 1 if nodes > 5000 else 2)
            took.setdefault(name, []).append((nodes, used.busy))
            told = f"{used.seconds:.2f} s ({used.busy:.2f} s of the processor), {used.peak} MiB"
            made.append(Figure(f"{name}, {nodes:,} nodes, two records each", told))
        shutil.rmtree(results)
    for name, points in took.items():
        (few, short), (most, long) = points[0], points[-1]
        growth = long / short / (most / few)
        told = f"{growth:.2f} times as much a node"
        made.append(at_most(f"{name}: from {few:,} to {most:,} nodes", growth, GROWTH, told))
    return made


if __name__ == "__main__":
    show(figures("--quick" in sys.argv))
