"""``hpslurm check --all-nodes`` and ``hpslurm doctor --all-nodes``: one srun over the caller's allocation, folded into
one answer.

Started by name only. Healthy nodes are one line. After the check nodes are compared with each other, too:
the odd one out in versions and settings is named.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping

import click

from hpslurm.core import nodeset, records
from hpslurm.core.finding import P0
from hpslurm.core.policy import Policy
from hpslurm.core.probe import FAIL, PASS, UNKNOWN, Result
from hpslurm.core.records import Record
from hpslurm.core.text import clean
from hpslurm.core.values import dataclass, replace
from hpslurm.job import consensus
from hpslurm.show import plan, render, screen
from hpslurm.show.progress import Progress
from hpslurm.sources import launch

SECONDS = 90.0  # for the whole step: start, look, and the slowest node


@dataclass(frozen=True)
class Look:
    """What is started on each node: a program beside ours, and its first words. ``compared`` nodes should be alike."""

    name: str
    program: str
    words: tuple[str, ...] = ()
    compared: bool = False


CHECK = Look("check", "hpslurm-check", compared=True)
DOCTOR = Look("doctor", "hpslurm", ("doctor",))


def records_of_all(look: Look, words: list[str]) -> tuple[dict[str, Record], list[str]]:
    """Records of all nodes of the allocation, and what went wrong, in words. Raises CannotLaunch."""
    where = launch.allocation()
    beside = os.path.join(os.path.dirname(os.path.abspath(sys.argv[0])), look.program)
    program = beside if os.access(beside, os.X_OK) else look.program
    words = [program, *look.words, "--pieces", "--fail-on", "never", *words]
    step = launch.Step(look.name, where.nodes, tuple(words), seconds=SECONDS)
    lines: list[str] = []
    errors: list[str] = []
    said: list[str] = []  # by srun; of interest only when something is missing
    with Progress(f"srun over {len(where.nodes)} nodes"):
        for event in launch.run([step], where):
            if isinstance(event, launch.End):
                if not event.ok:
                    errors.append(f"srun: {event.why}")
            elif event.error:
                said.append(clean(event.text))
            else:
                lines.append(event.text)
    texts = records.joined(lines)
    by_node = {node: records.parse(texts[node], node, look.name) for node in where.nodes if node in texts}
    errors += [
        f"{node} gave no whole answer" for node in where.nodes if node not in by_node or not by_node[node].complete
    ]
    return by_node, errors + said[:5] if errors else []


def results(by_node: Mapping[str, Record], policy: Policy, errors: Iterable[str], look: Look = CHECK) -> list[Result]:
    """All that was found, one result for the nodes and one for their comparison."""
    named = [
        replace(item, subject=item.subject or node) for node, record in by_node.items() for item in record.findings
    ]
    answer = [Result("nodes", FAIL if named else PASS, "", 0.0, None, tuple(named))]
    if look.compared:
        found_in = {node: record.results for node, record in by_node.items()}
        unlike = [policy.mute(item) for item in consensus.judge(found_in)]
        answer.append(Result("consensus", FAIL if unlike else PASS, "", 0.0, None, tuple(unlike)))
    for node, record in by_node.items():
        answer += [replace(item, note=f"{node}: {item.note}") for item in record.results if item.outcome == UNKNOWN]
    return answer + [Result("node", UNKNOWN, error) for error in errors]


def first_screen(
    by_node: Mapping[str, Record], answer: list[Result], errors: Iterable[str], look: Look = CHECK
) -> list[str]:
    """Which nodes to keep out of the job, why, and what to type first."""
    errors = list(errors)
    made = plan.plans(finding for result in answer for finding in result.findings)
    grave = screen.grave(made)
    folded = render.fold(finding for result in answer for finding in result.findings)
    sick = {node for worst in grave for node in worst.nodes}
    bad = sorted(node for one in grave if one.priority == P0 for node in one.nodes)
    passed = sum(item.outcome == PASS for record in by_node.values() for item in record.results)
    missing = tuple(
        render.NotChecked(item.probe, item.note, (node,))
        for node, record in by_node.items()
        for item in record.results
        if item.outcome == UNKNOWN
    )
    named = [one for one in grave if one.nodes]
    said = f"{len(sick):,} of {len(by_node):,} nodes need{'s' if len(sick) == 1 else ''} attention"
    if not sick:
        said = f"nothing found on {len(by_node):,} nodes"
    if not sick and grave:
        said = f"the {len(by_node):,} nodes differ where they should not"
    return screen.lines(
        screen.Screen(
            "FAIL" if grave else "WARN" if missing or errors else "PASS",
            said,
            (
                ("Worst", f"{screen.names(grave[0])}: {screen.said(grave[0].troubles[0])}" if grave else ""),
                ("Keep out", screen.keep_out(bad) if look.compared else ""),
                ("Next", screen.next_command(grave)),
            ),
            tuple(made),
            notes=missing,
            warnings=tuple(errors),
            last=render.summary(folded, len(missing) + len(errors), passed),
            more=(
                f"hpslurm {look.name} --all-nodes -v",
                *(f"hpslurm explain {one.rules[0]}" for one in (named or made)[:1]),
            ),
        )
    )


def text(by_node: Mapping[str, Record], answer: list[Result], errors: Iterable[str]) -> list[str]:
    folded = render.fold(finding for result in answer for finding in result.findings)
    sick = {finding.subject for result in answer for finding in result.findings}
    not_checked = [
        render.NotChecked(item.probe, item.note, (node,))
        for node, record in by_node.items()
        for item in record.results
        if item.outcome == UNKNOWN
    ]
    sick |= {node for item in not_checked for node in item.subjects}
    healthy = [node for node in by_node if node not in sick and by_node[node].complete]
    passed = sum(item.outcome == PASS for record in by_node.values() for item in record.results)
    lines = [line for entry in folded for line in render.finding_lines(entry)]
    lines += render.not_checked_lines(not_checked)
    lines += [f"{render.label('WARN')} {error}" for error in errors]
    if healthy:
        lines.append(f"{render.label('PASS')} {nodeset.fold(healthy)}  nothing found on {len(healthy)} nodes")
    return [*lines, *render.fitted(render.summary(folded, len(not_checked) + len(list(errors)), passed))]


def command(look: Look, policy: Policy, as_json: bool, words: list[str], verbose: bool) -> list[Result]:
    """Look, print, and return what was found, for the exit code."""
    try:
        by_node, errors = records_of_all(look, words)
    except launch.CannotLaunch as why:
        raise click.ClickException(str(why)) from None
    if not by_node:
        raise click.ClickException("\n".join(["no node answered", *errors[:5]]))
    answer = results(by_node, policy, errors, look)
    if as_json:
        made = plan.plans(finding for result in answer for finding in result.findings)
        for line in plan.with_plans(records.lines(policy, os.environ, f"{look.name}-all-nodes", answer), made):
            click.echo(records.encode(line))
    else:
        lines = text(by_node, answer, errors) if verbose else first_screen(by_node, answer, errors, look)
        click.echo("\n".join(lines))
    return answer
