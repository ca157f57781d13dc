"""``hpslurm doctor``: is hpslurm installed right on this machine, and does Slurm run it?"""

from __future__ import annotations

import os

import click

from hpslurm import hooks as node_hooks
from hpslurm.cli import options
from hpslurm.core import records
from hpslurm.core.probe import worst
from hpslurm.setup import doctor
from hpslurm.show import plan
from hpslurm.show.progress import Progress
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
@options.root
def command(as_json: bool, fail_on: str, strict: bool, policy_path: str, verbose: bool, root: str) -> int:
    """Say whether hpslurm is installed right here: hooks, scripts, policy, records, packages.

    Run it as root, on the controller and on a node. It changes nothing.

    \b
    Examples:
      sudo hpslurm doctor
      srun -N4 --ntasks-per-node=1 hpslurm doctor --fail-on P1
    """
    node = node_hooks.node_name(os.environ)
    host = Host(root, seconds=SECONDS)
    rules = node_hooks.site_policy(policy_path, node, host)
    with Progress("looking at the installation"):
        results = list(doctor.run(host, rules))
    host.end_all()
    if as_json:
        made = plan.plans(finding for result in results for finding in result.findings)
        for line in plan.with_plans(records.lines(rules, os.environ, "doctor", results), made):
            click.echo(records.encode(line))
    else:
        click.echo("\n".join(doctor.text(results) if verbose else doctor.first_screen(results, node)))
    return 3 if worst(results, fail_on, strict) else 0
