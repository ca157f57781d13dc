"""``hpslurm diagnose``: the whole cluster as Slurm sees it and as its nodes reported, in one look.

It asks, joins and judges. Every command that it prints is for a person to run.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import click

from hpslurm.cli import options
from hpslurm.cluster import gather, guard, node_records, plans, view
from hpslurm.cluster.aws import checks, ssm, whom
from hpslurm.cluster.model import Members
from hpslurm.cluster.node_rows import node_rows
from hpslurm.core import policy, records
from hpslurm.core.policy import Policy
from hpslurm.core.probe import Result
from hpslurm.core.text import clean
from hpslurm.show import plan, render
from hpslurm.show.progress import Progress
from hpslurm.sources import sessions
from hpslurm.sources.host import Host
from hpslurm.sources.hyperpod import Layout

if TYPE_CHECKING:
    from hpslurm.cluster.aws.view import View


@click.command(
    "diagnose",
    context_settings=options.HELP,
    epilog="Exit codes: 0 done, 1 neither Slurm nor AWS nor a record could be read, or no cluster of that name, "
    "2 wrong command line, 3 found something at or above --fail-on.",
)
@options.aws_cluster
@click.option(
    "--since",
    type=options.Duration(),
    default="2h",
    show_default=True,
    help="How far back to read logs, as in 90m or 1d.",
)
@options.no_aws_no_slurm
@click.option(
    "--node",
    "only",
    multiple=True,
    metavar="NODES",
    help="Only these, as in ip-10-1-0-[1-4] or by instance id; may be repeated.",
)
@options.reports
@options.as_json("Print JSON lines, as hooks write them.")
@options.fail_on("never")
@options.strict()
@options.policy_path()
@click.option(
    "--probe",
    type=click.Choice(["ssm"]),
    help="Start a session on nodes without a fresh record and look at them from there; see operations.md § 3.",
)
@click.option(
    "--sample-nodes",
    type=click.IntRange(1, sessions.MOST),
    default=3,
    show_default=True,
    help="With --probe: how many nodes at most. Records of all nodes are read in any case.",
)
@options.html
@options.verbose("Print every finding with its evidence; on stderr, how many calls to AWS were made.")
@options.root
def command(
    cluster: str,
    region: str,
    profile: str,
    since: float,
    no_aws: bool,
    no_slurm: bool,
    only: Sequence[str],
    reports: Sequence[str],
    as_json: bool,
    fail_on: str,
    strict: bool,
    policy_path: str,
    probe: str | None,
    sample_nodes: int,
    html_file: str | None,
    verbose: bool,
    root: str,
) -> int:
    """Look at the whole cluster: which nodes are out, why, and what to type next.

    \b
    Examples:
      sudo hpslurm diagnose
          on the controller: Slurm, the nodes' records, and AWS as far as its role may
      hpslurm diagnose --cluster demo --region us-west-2 --no-slurm
          from a laptop
      sudo hpslurm diagnose --node 'ip-10-1-0-[1-4]' --fail-on P1
      sudo hpslurm diagnose --json | jq 'select(.type == "finding") | .id'
    """
    rules = policy.load(policy_path)
    host = Host(root, seconds=gather.SECONDS)
    chosen = _chooser(only)
    asked = whom.Options(cluster, region, profile, since)
    ask = None if no_aws or not whom.means_aws(asked, host) else partial(_ask_aws, asked)
    if probe and ask is None:
        raise click.UsageError("--probe ssm needs AWS: pass --cluster and --region, and not --no-aws")
    nodes = partial(_ask_nodes, asked, rules, sample_nodes, bool(only), root) if probe else None
    try:
        places = [*node_records.folders_of(rules, root), *reports]
        with Progress("looking at the cluster") as progress:
            half = gather.diagnose(
                host,
                rules,
                places,
                chosen,
                ask_slurm=not no_slurm,
                ask_aws=ask,
                ask_nodes=nodes,
                say=progress.say,
            )
    finally:
        host.end_all()
    _refuse_unknown(only, half, no_slurm)
    wrong = _wrong_cluster(half)
    if wrong and not half.readable:
        raise click.ClickException(wrong)
    with progress:
        progress.say("judging")
        scene = guard.of_half(half, rules)
        results = guard.guarded(half.results, scene, rules)
        made = plans.plans(half.results, scene, rules)
    if as_json:
        for line in plan.with_plans(records.lines(rules, os.environ, "diagnose", results), made):
            click.echo(records.encode(line))
    else:
        for problem in rules.problems:
            click.echo(f"[WARN] {problem}", err=True)
        if results or half.readable:
            whole = view.text(results, half.members) if verbose else view.first_screen(results, half.members, made)
            click.echo("\n".join(whole))
    sys.stdout.flush()
    if html_file:
        _write_page(html_file, results, half.members, made)
    if verbose and half.view:
        calls = half.view.requests
        counted = ", ".join(f"{name} {number}" for name, number in sorted(calls.items()))
        click.echo("\n".join(render.fitted(f"AWS calls: {sum(calls.values())} ({counted})")), err=True)
    if wrong:
        raise click.ClickException(wrong)
    if not half.readable:
        click.echo("\n".join(_nothing(half, no_slurm, no_aws, places)), err=True)
        return 1
    return 3 if _failed(results, fail_on, strict) else 0


def _wrong_cluster(half: gather.Half) -> str:
    """What to say of a name on the command line that no cluster has; Slurm's half is told all the same."""
    trouble = half.view.trouble if half.view else None
    return str(trouble) if isinstance(trouble, whom.NoCluster) and trouble.named else ""


def _nothing(half: gather.Half, no_slurm: bool, no_aws: bool, places: Sequence[str]) -> list[str]:
    """Why there is nothing to judge: what was not asked, and where no record is."""
    sources = "Slurm nor AWS" if half.view else "Slurm"
    left_out = [word for word, yes in (("--no-slurm", no_slurm), ("--no-aws", no_aws)) if yes]
    why = f"; {' and '.join(left_out)} left the rest out" if left_out else ""
    where = ", ".join(clean(place, 120) for place in places)
    line = f"hpslurm diagnose: neither {sources} nor a node's record could be read (records: {where}){why}"
    return render.fitted(line)


def _ask_aws(asked: whom.Options, layout: Layout) -> View:
    return checks.collect(asked, layout)


def _ask_nodes(
    asked: whom.Options, rules: Policy, sample: int, named: bool, root: str, members: Members, view: View
) -> tuple[Members, list[Result]]:
    from hpslurm.sources.aws import Aws

    door = Aws(view.region, asked.profile, seconds=sessions.MOST * sessions.SECONDS, sessions=True)
    return ssm.ask_nodes(members, view, rules, sample, named, lambda targets: sessions.check_nodes(targets, door, root))


def _chooser(only: Sequence[str]) -> Callable[[str], bool] | None:
    return options.node_set(only).__contains__ if only else None


def _refuse_unknown(only: Sequence[str], half: gather.Half, no_slurm: bool) -> None:
    missing = sorted(options.node_set(only) - half.names) if half.names else []
    if missing:
        from difflib import get_close_matches

        close = get_close_matches(missing[0], half.names, n=1)
        where = "HyperPod" if no_slurm else "Slurm"
        raise click.UsageError(
            f"{where} has no node {missing[0]!r}." + (f" Did you mean {close[0]!r}?" if close else "")
        )


def _write_page(path: str, results: Sequence[Result], members: Members, made: Sequence[plan.Plan]) -> None:
    from hpslurm.show import page

    answer, heads = view.answer(results, members, made), view.heads(results, members)
    text = page.page(results, node_rows(results, members), heads, members.now, members.cluster, answer=answer)
    options.write_page(path, text)


def _failed(results: Sequence[Result], fail_on: str, strict: bool) -> bool:
    from hpslurm.core.probe import worst

    return worst(list(results), fail_on, strict)
