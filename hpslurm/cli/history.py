"""``hpslurm history``: nodes that fail more than their share, over all jobs of some weeks."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from functools import partial

import click

from hpslurm.cli import options
from hpslurm.cluster import history, history_view, keeps_failing
from hpslurm.cluster.aws import machines, whom
from hpslurm.cluster.history_machines import name_of
from hpslurm.core import nodeset, policy, records
from hpslurm.core.policy import Policy
from hpslurm.core.probe import FAIL, PASS, Result, Unknown
from hpslurm.job import report
from hpslurm.show.progress import Progress
from hpslurm.sources.host import Host


@click.command(
    "history",
    context_settings=options.HELP,
    epilog="Exit codes: 0 done, suspects or not, 1 neither the accounting nor a record could be read, "
    "2 wrong command line.",
)
@click.option("--since", type=options.Duration(), default="28d", show_default=True, help="How far back to look.")
@click.option("--node", metavar="NODE", default="", help="The story of one node, in order of time.")
@click.option("--partition", metavar="NAME", default="", help="Only jobs of this partition.")
@click.option("--user", metavar="NAME", default="", help="Only jobs of this user.")
@click.option("--exclude", is_flag=True, help="Print only the option that keeps jobs off the suspects, for sbatch.")
@click.option("--keep", is_flag=True, help="Leave the verdicts in the results folder, for diagnose and metrics.")
@options.aws_cluster
@options.no_aws_no_slurm
@options.as_json()
@options.html
@options.verbose("Every node that failed at all, and incidents of many nodes.")
@options.results
@options.policy_path("Folders and mutes.")
@options.root
def command(
    since: float,
    node: str,
    partition: str,
    user: str,
    exclude: bool,
    keep: bool,
    cluster: str,
    region: str,
    profile: str,
    no_aws: bool,
    no_slurm: bool,
    as_json: bool,
    html_file: str | None,
    verbose: bool,
    results: str | None,
    policy_path: str,
    root: str,
) -> int:
    """Find nodes that keep failing: each against all others, by the work that it did.

    Reads Slurm's accounting, what its nodes recorded and what report found out; each may be missing, and is then
    named. It accuses a node only where accident is unlikely, and changes nothing. Run it on the controller, as root.

    \b
    Examples:
      sudo hpslurm history
      sudo hpslurm history --node ip-10-1-0-7
      sbatch $(hpslurm history --exclude) train.sbatch
      sudo hpslurm history --keep                    once a day, for diagnose and metrics
    """
    rules = policy.load(policy_path)
    folders = report.folders(rules, results)
    now = time.time()
    asked = history.Asked(now - since, now, partition, user)
    ask = _asking_aws(whom.Options(cluster, region, profile, since), root) if not no_aws else None
    progress = Progress()
    try:
        seen = history.look(asked, folders, root, ask_slurm=not no_slurm, ask_aws=ask, say=progress.say)
    except Unknown as why:
        where = " and ".join(folders)
        raise click.ClickException(f"nothing to read: {why} (records: {where})") from None
    finally:
        progress.done()
    if node:
        _refuse_unknown(node, seen)
    if keep:
        _keep(folders[0], seen, rules)
    if exclude:
        click.echo(history_view.exclude(seen), nl=bool(seen.suspects))
    elif as_json:
        click.echo("\n".join(_json(rules, seen, node)))
    else:
        click.echo("\n".join(history_view.story_text(seen, node) if node else history_view.text(seen, verbose)))
    sys.stdout.flush()
    if html_file:
        options.write_page(html_file, history_view.page(seen, _results(seen, rules)))
    return 0


def _asking_aws(asked: whom.Options, root: str) -> Callable[[], history.Cloud] | None:
    """None on a machine that is of no HyperPod cluster and where none was named."""
    host = Host(root)
    if not whom.means_aws(asked, host):
        return None
    return partial(machines.cloud, asked, host)


def _refuse_unknown(node: str, seen: history.History) -> None:
    from difflib import get_close_matches

    known = {name_of(one.node) for one in seen.book.verdicts} | set(map(name_of, seen.traces))
    if node not in known:
        close = get_close_matches(node, sorted(known), n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise click.UsageError(f"nothing is known of a node {node!r} in this time.{hint}")


def _keep(folder: str, seen: history.History, rules: Policy) -> None:
    try:
        keeps_failing.keep(folder, seen, rules)
    except OSError as error:
        raise click.ClickException(f"could not keep the verdicts in {folder}: {error.strerror}") from None


def _results(seen: history.History, rules: Policy) -> list[Result]:
    lines = [keeps_failing.line_of(one, seen) for one in seen.suspects]
    findings = tuple(rules.mute(keeps_failing.found(line, seen.asked.now)) for line in lines)
    return [Result("history", FAIL if findings else PASS, findings=findings), *seen.missing]


def _json(rules: Policy, seen: history.History, node: str) -> list[str]:
    outcome = _results(seen, rules)
    head, *middle, end = records.lines(rules, os.environ, "history", outcome)
    verdicts = [one for one in seen.book.verdicts if not node or name_of(one.node) == node]
    lines = [keeps_failing.line_of(one, seen) for one in verdicts]
    incidents = [
        {
            "schema": records.SCHEMA,
            "type": "node_incident",
            "start": incident.start,
            "end": incident.end,
            "jobs": list(incident.jobs),
            "nodes": nodeset.fold(name_of(name) for name in incident.nodes),
            "partitions": list(incident.partitions),
        }
        for incident in seen.book.incidents
    ]
    return [records.encode(line) for line in (head, *middle, *lines, *incidents, end)]
