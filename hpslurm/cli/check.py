"""``hpslurm check``: look at this node, as a job step sees it.

Under ``srun`` the first task of each node looks and the others end at once, so that
it does not matter how many tasks the allocation has.
"""

from __future__ import annotations

import os
import sys

import click

from hpslurm import cli, hooks
from hpslurm.cli import options
from hpslurm.core import policy, records
from hpslurm.core.probe import worst
from hpslurm.core.text import clean
from hpslurm.core.values import replace
from hpslurm.show.progress import Progress
from hpslurm.sources.host import Host

SECONDS = 20.0  # for all programs together


@click.command(
    "check",
    context_settings=options.HELP,
    epilog="Exit codes: 0 nothing at or above --fail-on, 2 wrong command line, 3 found something.",
)
@options.as_json("Print JSON lines, the same as hooks write to disk.")
@options.fail_on("P0")
@options.strict("Count what could not be checked as found.")
@options.policy_path()
@options.verbose()
@options.all_nodes("compare")
@click.option("--root", default="/", help="Look at a saved machine below this folder; {node} becomes the node's name.")
def command(
    as_json: bool,
    fail_on: str,
    strict: bool,
    policy_path: str,
    verbose: bool,
    pieces: bool,
    all_nodes: bool,
    root: str,
) -> int:
    """Look at this node: locked memory, /dev/shm, EFA, and what else can break NCCL.

    \b
    Examples:
      srun -N4 --ntasks-per-node=1 hpslurm-check
          every node of an allocation; a healthy node is one line
      hpslurm check --all-nodes
          the same from inside sbatch or salloc, all healthy nodes in one line, odd ones out named
      srun --kill-on-bad-exit=0 hpslurm-check --strict
          where KillOnBadExit=1 is the site's default: one bad node must not silence the others
      hpslurm-check --json | tail -n 1
      srun -N4 --ntasks-per-node=1 --output=%N.jsonl hpslurm-check --json
          a file for each node, since srun may mix long lines of several nodes
    """
    if os.environ.get("SLURM_LOCALID", "0") != "0":
        return 0
    node = hooks.node_name(os.environ)
    if all_nodes:
        from hpslurm.cli import all_nodes as over_nodes

        words = [*(("--root", root) if root != "/" else ()), "--policy", policy_path]
        answer = over_nodes.command(over_nodes.CHECK, policy.load(policy_path), as_json, words, verbose)
        return 3 if worst(answer, fail_on, strict) else 0
    root = root.replace("{node}", node)
    if not os.path.isdir(root):
        raise click.UsageError(f"--root {clean(root, 200)} is not a directory")
    host = Host(root, seconds=SECONDS)
    rules = hooks.site_policy(policy_path, node, host)
    with Progress("looking at this node", wanted=not pieces):
        results = list(hooks.run_probes("step", host, rules))
    host.end_all()
    if pieces:
        for line in records.lines(rules, os.environ, "check", results):
            print("\n".join(records.pieces(node, records.encode(line, ascii_only=True))))
    elif as_json:
        from hpslurm.show import plan

        named = [replace(item, subject=item.subject or node) for result in results for item in result.findings]
        for line in plan.with_plans(records.lines(rules, os.environ, "check", results), plan.plans(named)):
            print(records.encode(line))
    else:
        from hpslurm.show import render, screen

        for problem in rules.problems:
            click.echo(f"{render.label('WARN')} {problem}", err=True)
        # one write, so that the blocks of several nodes do not mix in srun's output
        click.echo("\n".join((render if verbose else screen).node_lines(node, results)))
    sys.stdout.flush()
    return 3 if worst(results, fail_on, strict) else 0


def main() -> None:
    """Entry point ``hpslurm-check``."""
    cli.run(command, "hpslurm-check")
