"""``hpslurm what-if``: recorded facts through another policy, before it is put in place."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable

import click

from hpslurm.cli import options
from hpslurm.core import nodeset, records, replay
from hpslurm.core import policy as policies
from hpslurm.core.records import Record
from hpslurm.core.replay import Change
from hpslurm.core.text import clean
from hpslurm.setup import gates
from hpslurm.show import render
from hpslurm.show.progress import Progress

TITLES = {
    "gated": "would have been drained",
    "spared": "would not have been drained",
    "found": "would have been found as well",
    "muted": "would have been muted",
    "gone": "would not have been found",
}


def read(folder: str) -> tuple[list[Record], list[records.Unreadable]]:
    """All records below a results folder, each once; and what could not be read."""
    kept, unreadable = records.node_records(folder)
    jobs = f"{folder}/jobs"
    for job in sorted(os.listdir(jobs)) if os.path.isdir(jobs) else ():
        of_job, not_read = records.job_records(folder, job)
        kept += of_job
        unreadable += not_read
    once = {(record.node, record.hook, record.run.get("job"), record.run.get("time")): record for record in kept}
    return list(once.values()), unreadable


@click.command(
    "what-if",
    context_settings=options.HELP,
    epilog="Exit codes: 0 done, 1 no records or a policy that cannot be used, 2 wrong command line.",
)
@click.option(
    "--policy",
    "policy_path",
    required=True,
    type=click.Path(exists=True, dir_okay=False),
    help="The policy to try; owned by you or root, writable by nobody else.",
)
@click.option(
    "--records",
    "folder",
    default=policies.Policy.results,
    show_default=True,
    type=click.Path(exists=True, file_okay=False),
    help="A results folder: of one node, or the shared one.",
)
@options.as_json("Print JSON lines, one for each change.")
def command(policy_path: str, folder: str, as_json: bool) -> int:
    """What would another policy have found, drained and spared? Nothing is changed.

    What counters gained during a job stays as recorded: it was judged over two looks, and only its mutes are tried.

    \b
    Examples:
      hpslurm what-if --policy new-policy.toml --records /fsx/hpslurm
      hpslurm what-if --policy new-policy.toml --json | jq -r .rule | sort | uniq -c
    """
    new = policies.load(policy_path)
    for problem in new.problems:
        _warn("WARN", clean(problem))
    if new.hash == "default":
        return 1
    for word in gates.strange(new.gate):
        _warn("WARN", word)
    for mute in new.expired():
        _warn("INFO", f"the mute of {clean(mute.rule)} ended on {mute.until}")
    with Progress(f"reading all records in {folder}"):
        recorded, unreadable = read(folder)
    for record in unreadable:
        _warn("WARN", str(record))
    if not recorded:
        click.echo(f"{folder} holds no records: folders jobs/ or nodes/ with files *.jsonl are expected", err=True)
        return 1
    outcome = replay.replay(recorded, new)
    for trouble in outcome.troubles:
        _warn("WARN", f"not judged again: {trouble}")
    if as_json:
        for change in outcome.changes:
            if change.what != "kept":
                print(records.encode({"schema": records.SCHEMA, "type": "change", **vars_of(change)}))
    else:
        click.echo("\n".join(part for line in text(outcome) for part in render.fitted(line)))
    sys.stdout.flush()
    return 0


def _warn(tag: str, words: str) -> None:
    click.echo("\n".join(render.labelled(tag, words)), err=True)


def vars_of(change: Change) -> dict[str, object]:
    from hpslurm.core.values import asdict

    plain: dict[str, object] = asdict(change)
    return plain


def text(outcome: replay.Replay) -> list[str]:
    """One line for each rule and kind of change, nodes folded, the first time given."""
    lines = []
    for what, title in TITLES.items():
        changes = [change for change in outcome.changes if change.what == what]
        for rule in sorted({change.rule for change in changes}):
            lines.append(_line(title, rule, [change for change in changes if change.rule == rule]))
    nodes = {change.node for change in outcome.changes if change.what == "gated"}
    kept = sum(change.what == "kept" for change in outcome.changes)
    last = f"{outcome.records} records judged again, {kept} findings as before, {len(nodes)} nodes drained"
    return [*lines, last + ("" if lines else ": nothing changes")]


def _line(title: str, rule: str, changes: Iterable[Change]) -> str:
    changes = list(changes)
    nodes = nodeset.fold(sorted({change.node for change in changes}))
    first = time.strftime("%Y-%m-%d %H:%M", time.localtime(changes[0].time))
    return f"{title}: {rule}  {nodes}  ({len(changes)} times, first {first}: {clean(changes[0].detail, 120)})"
