"""``hpslurm doctor``: is hpslurm installed right on this machine, and does Slurm run it?"""

from __future__ import annotations

import os
from collections.abc import Iterator
from types import SimpleNamespace

import click

from hpslurm import hooks as node_hooks
from hpslurm.core import policy, probe, records
from hpslurm.core.finding import PRIORITIES
from hpslurm.core.policy import Policy
from hpslurm.core.probe import PASS, SKIP, Result, worst
from hpslurm.setup import doctor_scripts, doctor_site, doctor_software, hook_lines
from hpslurm.show import render
from hpslurm.sources.host import Host

SECONDS = 20.0  # for all programs together


@click.command(
    "doctor",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 nothing at or above --fail-on, 2 wrong command line, 3 found something.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON lines.")
@click.option(
    "--fail-on",
    type=click.Choice([*PRIORITIES, "never"]),
    default="P0",
    show_default=True,
    help="Exit 3 from this priority upwards.",
)
@click.option("--strict", is_flag=True, help="Count what could not be checked as found.")
@click.option("--policy", "policy_path", default=policy.PATH, show_default=True, help="The site's policy.")
@click.option("--root", default="/", hidden=True)
def command(as_json: bool, fail_on: str, strict: bool, policy_path: str, root: str) -> int:
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
    results = list(look(host, rules))
    host.end_all()
    if as_json:
        for line in records.lines(rules, os.environ, "doctor", results):
            click.echo(records.encode(line))
    else:
        click.echo("\n".join(text(results)))
    return 3 if worst(results, fail_on, strict) else 0


def look(host: Host, rules: Policy) -> Iterator[Result]:
    """One result for each part of the installation."""
    found = records.node_records(rules.results_shared or rules.results)[0]
    ran = frozenset(record.hook for record in found)
    parts = {
        "hook_lines": SimpleNamespace(collect=lambda door: hook_lines.collect(door, ran), judge=hook_lines.judge),
        "hook_scripts": doctor_scripts,
        "site": SimpleNamespace(collect=lambda _: doctor_site.collect(rules), judge=doctor_site.judge),
        "software": doctor_software,
    }
    for name, part in parts.items():
        yield probe.run(name, part, host, rules)  # type: ignore[arg-type]


SAYS = {
    "hook_lines": "Slurm's configuration and our hooks",
    "hook_scripts": "entry scripts, their folders and time limits",
    "site": "policy, records and versions",
    "software": "Python, packages and programs",
}


def text(results: list[Result]) -> list[str]:
    """Every part in a line or more, so that one sees what was looked at."""
    folded = render.fold(finding for one in results for finding in one.findings)
    lines = [line for one in folded for line in render.finding_lines(one)]
    not_checked = render.not_checked(results)
    lines += render.not_checked_lines(not_checked)
    for one in results:
        if one.outcome == SKIP:
            lines += render.labelled("SKIP", f"{SAYS[one.probe]}: {one.note}")
    lines += [f"{render.label('PASS')} {SAYS[one.probe]}" for one in results if one.outcome == PASS]
    passed = sum(one.outcome == PASS for one in results)
    return [*lines, *render.fitted(render.summary(folded, len(not_checked), passed))]
