"""``hpslurm doctor``: is hpslurm installed right on this machine, and does Slurm run it?"""

from __future__ import annotations

import os

import click

from hpslurm import hooks as node_hooks
from hpslurm.cli import options
from hpslurm.core import policy, records
from hpslurm.core.probe import worst
from hpslurm.setup import doctor
from hpslurm.show import plan, render, screen
from hpslurm.show.progress import Progress
from hpslurm.sources import launch
from hpslurm.sources.host import Host

SECONDS = 20.0  # for all programs together


@click.command(
    "doctor",
    context_settings=options.HELP,
    epilog="Exit codes: 0 nothing at or above --fail-on, 2 wrong command line, 3 found something.",
)
@options.as_json()
@options.fail_on("P0")
@options.strict("Count what could not be checked as found.")
@options.policy_path("The site's policy.")
@options.verbose()
@options.all_nodes("fold")
@options.root
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
    """Say whether hpslurm is installed right here: hooks, scripts, policy, records, packages.

    Run it as root, on the controller and on a node. It changes nothing. Under srun the first task of each node looks,
    and its lines name the node.

    \b
    Examples:
      sudo hpslurm doctor
      srun -N4 --ntasks-per-node=1 hpslurm doctor --fail-on P1
      salloc -N512 hpslurm doctor --all-nodes
          one answer for all nodes of an allocation, those alike on one line
    """
    if os.environ.get("SLURM_LOCALID", "0") != "0":
        return 0
    if all_nodes:
        from hpslurm.cli import all_nodes as over_nodes

        words = [*(("--root", root) if root != "/" else ()), "--policy", policy_path]
        answer = over_nodes.command(over_nodes.DOCTOR, policy.load(policy_path), as_json, words, verbose)
        return 3 if worst(answer, fail_on, strict) else 0
    node = node_hooks.node_name(os.environ)
    host = Host(root, seconds=SECONDS)
    rules = node_hooks.site_policy(policy_path, node, host)
    with Progress("looking at the installation", wanted=not pieces):
        results = list(doctor.run(host, rules))
    host.end_all()
    if pieces:
        for line in records.lines(rules, os.environ, "doctor", results):
            click.echo("\n".join(records.pieces(node, records.encode(line, ascii_only=True))))
    elif as_json:
        made = plan.plans(finding for result in results for finding in result.findings)
        for line in plan.with_plans(records.lines(rules, os.environ, "doctor", results), made):
            click.echo(records.encode(line))
    elif launch.inside_step(os.environ):  # beside those of other nodes
        click.echo(
            "\n".join(
                render.node_lines(node, results) if verbose else screen.node_lines(node, results, "hpslurm doctor")
            )
        )
    else:
        click.echo("\n".join(doctor.text(results) if verbose else doctor.first_screen(results, node)))
    return 3 if worst(results, fail_on, strict) else 0
