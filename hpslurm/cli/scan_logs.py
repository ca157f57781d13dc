"""What ``hpslurm scan`` does once its command line was understood."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable

import click

from hpslurm.core import policy
from hpslurm.core.finding import NOISE, PRIORITIES, Diagnosis, Event
from hpslurm.core.text import clean
from hpslurm.scan import many, match, model
from hpslurm.scan.collect import Collector, expand
from hpslurm.scan.reason import HEALTHY, UNDETERMINED, reason
from hpslurm.show import diagnosis as show_diagnosis
from hpslurm.show.progress import Progress


def run(paths: tuple[str, ...], as_json: bool, fail_on: str, strict: bool, verbose: bool, show_events: bool) -> int:
    """Read, reason, print; the exit code."""
    collector = Collector()
    progress, read = Progress("reading"), 0

    def add(count: int) -> None:
        nonlocal read
        read += count
        progress.say(f"{read / 1e6:,.0f} MB read")

    with progress:
        many.add(collector, expand(paths, collector.unread), add)
    if hint := match.hint(read):
        click.echo(f"hpslurm scan: {hint}", err=True)
    if not collector.files:
        raise click.ClickException("\n".join(clean(why) for why in collector.unread) or "nothing to read")
    with progress:
        progress.say("reasoning")
        events = collector.result()
        diagnosis = reason(events, (), collector.unread)
    if as_json:
        print_lines(events, diagnosis)
    else:
        if verbose:
            shown = show_diagnosis.text(diagnosis, events)
        else:
            shown = show_diagnosis.first_screen(diagnosis, collector.unread)
        click.echo("\n".join(shown))
        if show_events:
            for event in events:
                if event.role != NOISE or event.pattern == "benign":
                    click.echo(event_text(event))
    sys.stdout.flush()
    return 3 if counts(diagnosis, fail_on, strict) else 0


def event_text(event: Event) -> str:
    """One line for --events: what it was taken for, where it stands, what it says."""
    where = f"{clean(event.file)}:{event.line} ×{event.count}"
    if event.pattern == "benign":
        return f"       normal   {where}  {clean(event.text, 120)}  ({event.fact('why')})"
    return f"       {event.role:8} {event.cause:26} {event.pattern:22} {where}  {clean(event.text, 120)}"


def counts(diagnosis: Diagnosis, fail_on: str, strict: bool) -> bool:
    if diagnosis.cause == HEALTHY:
        return False
    if diagnosis.cause == UNDETERMINED:
        return strict
    if fail_on == "never":
        return strict and diagnosis.confidence == "low"
    return PRIORITIES.index(model.causes()[diagnosis.cause].priority) <= PRIORITIES.index(fail_on)


def print_lines(events: Iterable[Event], diagnosis: Diagnosis) -> None:
    from hpslurm.core import records
    from hpslurm.scan import lines

    rules = policy.load(policy.PATH)
    click.echo(records.encode(records.run_line(rules, os.environ, "scan")))
    kept = list(lines.worth_keeping(event for event in events if event.role != NOISE))
    for event in kept:
        click.echo(records.encode(lines.event_line(event)))
    click.echo(records.encode(lines.diagnosis_line(diagnosis)))
    click.echo(records.encode({"schema": records.SCHEMA, "type": "end", "events": len(kept)}))
