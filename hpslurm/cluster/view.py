"""``hpslurm diagnose`` as people see it."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Sequence

from hpslurm.cluster.guard import ONE_CAUSE
from hpslurm.cluster.model import Members
from hpslurm.core.finding import P0
from hpslurm.core.probe import PASS, SKIP, Result
from hpslurm.show import render, screen
from hpslurm.show.plan import Plan
from hpslurm.show.screen import Screen


def heads(results: Sequence[Result], members: Members) -> list[str]:
    """Who was asked, and how many there are of what."""
    lines = []
    for result in results:
        if result.probe == "hyperpod" and result.facts:
            figures = result.facts
            counted = ", ".join(f"{number:,} {state}" for state, number in figures["instances"].items())
            who = f" (asked as {figures['identity']})" if figures["identity"] else ""
            where = f"HyperPod cluster {figures['cluster']} in {figures['region']}: {figures['status']}"
            lines.append(f"{where}, instances: {counted or 'none'}{who}")
        if result.probe == "slurm_nodes" and result.facts:
            counted = ", ".join(f"{number:,} {state}" for state, number in result.facts["states"].items())
            name = f" of {members.cluster}" if members.cluster else ""
            lines.append(
                f"Slurm nodes{name}: {result.facts['nodes']:,} ({counted or 'none'}), from {result.facts['form']}"
            )
    return lines


# Slurm and HyperPod know nothing of NCCL: that neither complains is no clean bill of health.
STILL_FAILING = (
    "A job fails all the same? hpslurm report JOB and hpslurm scan LOG look at the job itself; "
    "then operations.md § 10 (hpslurm explain operations.md 10)."
)


def first_screen(results: Sequence[Result], members: Members, plans: Sequence[Plan]) -> list[str]:
    """The answer, on one screen."""
    return screen.lines(answer(results, members, plans))


def answer(results: Sequence[Result], members: Members, plans: Sequence[Plan]) -> Screen:
    """What is wrong, which nodes to keep out, what to type first."""
    grave = screen.grave(plans)
    missing = render.not_checked(results)
    folded = render.fold(finding for result in results for finding in result.findings)
    names = {member.name for member in members.members}
    of_nodes = [plan for plan in grave if names & set(plan.nodes)]
    worst = next(iter([*_acting(of_nodes), *of_nodes, *grave]), None)
    return Screen(
        "FAIL" if grave else "WARN" if missing or not members.members else "PASS",
        _headline(grave, members, bool(missing)),
        (
            ("Cause", next((plan.troubles[0].words for plan in plans if ONE_CAUSE.id in plan.rules), "")),
            ("Worst", f"{screen.names(worst)}: {screen.said(worst.troubles[0])}" if worst else ""),
            ("Keep out", _keep_out(of_nodes)),
            ("Next", screen.next_command(grave) or _one_node(_acting(of_nodes))),
            ("Seen", "; ".join(heads(results, members))),
        ),
        tuple(plans),
        notes=tuple(missing),
        warnings=tuple(f"node_records: {one.note}" for one in _without_records(results)),
        last=render.summary(folded, len(missing), sum(one.outcome == PASS for one in results)),
        more=_more(worst, names),
    )


def _acting(plans: Sequence[Plan]) -> list[Plan]:
    """Those that ask for more than waiting."""
    return [plan for plan in plans if plan.do != "wait"]


def _headline(grave: Sequence[Plan], members: Members, partly: bool) -> str:
    cluster = f"Cluster {members.cluster}" if members.cluster else "Cluster"
    names = {member.name for member in members.members}
    sick = len({node for plan in _acting(grave) for node in plan.nodes} & names)
    waits = len({node for plan in grave for node in plan.nodes} & names) - sick
    rest = sum(not set(plan.nodes) & names for plan in grave)
    if not names:
        return f"{cluster}: no node could be looked at"
    if not grave:
        return f"{cluster}: no trouble {'in what could be checked' if partly else 'found'} on {_count(len(names))}"
    of_all = f" of {_count(len(names))}"
    parts = [f"{sick:,}{of_all} need{'s' if sick == 1 else ''} attention"] if sick else []
    parts += [f"{waits:,}{'' if sick else of_all} wait{'s' if waits == 1 else ''} for HyperPod"] if waits else []
    parts += [f"{rest} trouble{'s' if rest > 1 else ''} of the cluster itself"] if rest else []
    parts += [] if sick or waits else [f"none of its {_count(len(names))}"]
    return f"{cluster}: {', '.join(parts)}"


def _count(number: int) -> str:
    return f"{number:,} node{'' if number == 1 else 's'}"


def _keep_out(grave: Sequence[Plan]) -> str:
    """Nodes on which a job would fail; those that are out already need no word."""
    nodes = [node for plan in grave if plan.priority == P0 and plan.nodes for node in plan.nodes]
    return screen.keep_out(nodes)


def _one_node(of_nodes: Sequence[Plan]) -> str:
    """Where no command with all its nodes fits a line: the plan of the first of them."""
    return f"sudo hpslurm diagnose --node {shlex.quote(of_nodes[0].nodes[0])}" if of_nodes else ""


def _without_records(results: Sequence[Result]) -> list[Result]:
    return [one for one in results if one.outcome == SKIP and one.probe == "node_records"]


def _more(worst: Plan | None, names: Collection[str]) -> tuple[str, ...]:
    if worst is None:
        return ("the same with -v", "A job fails all the same? hpslurm report JOB, hpslurm scan LOG")
    node = [f"with --node {name}" for name in worst.nodes[:1] if name in names and len(names) > 1]
    return ("the same with -v", *node, f"hpslurm explain {worst.rules[0]}")


def text(results: Sequence[Result], members: Members) -> list[str]:
    """All of it: every finding with its evidence and what could be done."""
    lines = [line for head in heads(results, members) for line in render.fitted(head)]
    folded = render.fold(finding for result in results for finding in result.findings)
    lines += [line for finding in folded for line in render.finding_lines(finding)]
    not_checked = render.not_checked(results)
    lines += render.not_checked_lines(not_checked)
    for result in results:
        if result.outcome == SKIP and result.probe == "node_records":
            lines += render.labelled("SKIP", f"{result.probe}: {result.note}")
    passed = sum(result.outcome == PASS for result in results)
    lines += render.fitted(render.summary(folded, len(not_checked), passed))
    if all(finding.muted or finding.rule.priority == "P2" for finding in folded):
        lines += render.wrapped("", STILL_FAILING, render.terminal_width())
    return lines
