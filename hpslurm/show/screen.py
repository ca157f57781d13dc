"""The first screen: at most six lines to act on, a table of nodes, and how to see more.

It fits 40 lines of 100 columns whatever the size of the cluster; ``-v`` prints everything.
"""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Iterable, Iterator, Sequence

from hpslurm.core.finding import P2, PRIORITIES
from hpslurm.core.nodeset import fold
from hpslurm.core.probe import PASS, Result
from hpslurm.core.text import clean
from hpslurm.core.values import dataclass, replace
from hpslurm.show import render
from hpslurm.show.plan import Plan, Trouble, plans
from hpslurm.show.render import NotChecked

LINES, COLUMNS = 40, 100
MOST_VERDICT = 6  # lines
MOST_CHECKS = 3  # checks that one line names
FEW = 12  # rows of a table that leave room for longer notes
MOST_NOTES = 5  # lines of what could not be checked
FIELD = 10  # columns of a field's name
NODES, WORST, DO = 24, 5, 20  # at most so many columns
MOST_NAMES = 75  # columns of a list of nodes in the verdict
OF_ALL = "(all)"


@dataclass(frozen=True)
class Screen:
    """What a command has to say. ``fields`` are names and texts: Cause, Avoid, Next; ``more`` are commands."""

    tag: str
    head: str
    fields: tuple[tuple[str, str], ...] = ()
    plans: tuple[Plan, ...] = ()
    also: tuple[Plan, ...] = ()  # what was there and has no part in it
    also_head: str = "Also seen, not the cause:"
    notes: tuple[NotChecked, ...] = ()
    warnings: tuple[str, ...] = ()  # what else could not be seen, in words
    last: str = ""  # the counts
    more: tuple[str, ...] = ()
    between: tuple[str, ...] = ()  # lines that stand above the table, as they are
    below: tuple[str, ...] = ()  # and below it
    whole: str = OF_ALL  # in the column of nodes: what is of no single node


def lines(screen: Screen) -> list[str]:
    """The whole screen."""
    width = min(COLUMNS, render.terminal_width())
    top = verdict(screen, width)
    notes = _notes(screen, width)
    last = [cut(screen.last, width)] if screen.last else []
    more = _more(screen.more, width)
    room = LINES - len(top) - len(screen.between) - len(screen.below) - len(notes) - len(last) - len(more)
    middle = _tables(screen, room, width)
    whole = [*top, *screen.between, *middle, *notes, *screen.below, *last]
    steps = plan_lines(screen.plans[0], width) if len(screen.plans) == 1 and not screen.also else []
    if steps and len(whole) + len(more) + sum(-(-len(line) // COLUMNS) or 1 for line in steps) <= LINES:
        whole += steps
    if len(whole) + len(more) > LINES:
        whole = [*whole[: LINES - len(more) - 1], "… and more: -v has it"]
    return [*whole, *more]


def verdict(screen: Screen, width: int) -> list[str]:
    """What happened, and what to do first; where it is too much, what is wanted least is left out."""
    head = _wrapped(f"{render.label(screen.tag)} " if screen.tag else "", screen.head, width, 2)
    made = {name: _field(name, text, width) for name, text in screen.fields if text}
    for name in LEAST_WANTED:
        if len(head) + sum(map(len, made.values())) > MOST_VERDICT:
            made.pop(name, None)
    return [*head, *(line for field in made.values() for line in field)][:MOST_VERDICT]


COMMANDS = ("Again", "Next")
LEAST_WANTED = ("Looked at", "Seen", "Missing", "Why", "Victims", "Avoid", "Saw", "Worst")


def _field(name: str, text: str, width: int) -> list[str]:
    """A command is never cut: one that is too long for a screen is left out."""
    if name not in COMMANDS:
        return _wrapped(f"{name:{FIELD}}", clean(text), width, 2)
    return [f"{name:{FIELD}}{text}"] if len(text) + FIELD <= COLUMNS else []


def _wrapped(lead: str, text: str, width: int, most: int) -> list[str]:
    """The text behind its lead, on at most so many lines."""
    inside = " " * FIELD
    bare = re.sub(r"\x1b\[[0-9;]*m", "", lead)
    made = textwrap.wrap(text, width, initial_indent=bare, subsequent_indent=inside, break_on_hyphens=False) or [lead]
    if len(made) > most:
        rest = " ".join(line[FIELD:] for line in made[most:])
        made = [*made[: most - 1], cut(f"{made[most - 1]} {rest}", width)]
    return [lead + made[0][len(bare) :], *made[1:]]


def cut(text: str, width: int) -> str:
    """The text, shortened where it is too long."""
    return text if len(text) <= width else text[: max(1, width - 1)].rstrip() + "…"


# tables


def _tables(screen: Screen, room: int, width: int) -> list[str]:
    """In as many lines a trouble as there is room for: two, one, or all troubles of a row in one."""
    for detail in (2, 1):
        rows = _both(screen, 10**6, width, detail)
        if len(rows) <= room:
            return rows
    return _both(screen, room, width, 0)


def _both(screen: Screen, room: int, width: int, detail: int) -> list[str]:
    least = min(len(screen.also), 4) + 2 if screen.also else 0
    rows = ["", *table(screen.plans, room - 2 - least, width, detail, screen.whole)] if screen.plans else []
    if screen.also:
        most = room - len(rows) - 2
        rows += ["", screen.also_head, *table(screen.also, most, width, detail, screen.whole, header=False)]
    return rows


def table(
    plans: Sequence[Plan], most: int, width: int, detail: int, whole: str = OF_ALL, header: bool = True
) -> list[str]:
    """A row for each plan, at most so many, with at most ``detail`` lines for each of its troubles."""
    do = min(DO, max([2, *(len(plan.do) for plan in plans)]))
    plans = _alike(plans, width - _name_columns(plans, width, whole) - WORST - do - 6, detail)
    called = [names(plan, whole) for plan in plans]
    node = _name_columns(plans, width, whole)
    what = width - node - WORST - do - 6
    rows = [f"{'NODE':{node}}  {'WORST':{WORST}}  {'WHAT':{what}}  DO"] if header else []
    shown = plans if len(plans) <= most else plans[: max(0, most - 1)]
    for name, plan in zip(called, shown, strict=False):
        first, *others = _cell(plan, what, detail)
        rows.append(f"{cut(name, node):{node}}  {plan.priority:{WORST}}  {first:{what}}  {plan.do}".rstrip())
        rows += [f"{'':{node}}  {'':{WORST}}  {text}" for text in others]
    if len(shown) < len(plans):
        rows.append(cut(_left_out(plans[len(shown) :]), width))
    return rows


def _name_columns(plans: Sequence[Plan], width: int, whole: str) -> int:
    return min(NODES, width // 4, max([4, *(len(names(plan, whole)) for plan in plans)]))


def _alike(plans: Sequence[Plan], width: int, detail: int) -> list[Plan]:
    """Rows of nodes that would read the same become one: what tells them apart is cut off here, and in -v."""
    groups: dict[tuple[str, ...], Plan] = {}
    for number, plan in enumerate(plans):
        key = (plan.priority, plan.do, *_cell(plan, width, detail)) if plan.nodes else (str(number),)
        before = groups.get(key)
        groups[key] = replace(before, nodes=before.nodes + plan.nodes) if before else plan
    return list(groups.values())


def _cell(plan: Plan, width: int, detail: int) -> list[str]:
    if not detail:
        return [cut(_folded(plan), width)]
    return [line for one in plan.troubles for line in _laid(said(one), width, detail)]


def _laid(text: str, width: int, most: int) -> list[str]:
    parts = textwrap.wrap(text, width, subsequent_indent="  ", break_on_hyphens=False) or [""]
    if len(parts) <= most:
        return parts
    return [cut(text, width)] if most == 1 else [parts[0], cut(f"  {' '.join(map(str.strip, parts[1:]))}", width)]


def _left_out(plans: Sequence[Plan]) -> str:
    nodes = len({node for plan in plans for node in plan.nodes})
    counts = ", ".join(f"{count} {level}" for level in PRIORITIES if (count := _count(plans, level)))
    return f"… and {_number(len(plans), 'row')} more, {_number(nodes, 'node')} ({counts}): -v has them"


def _count(plans: Iterable[Plan], level: str) -> int:
    return sum(plan.priority == level for plan in plans)


def _number(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def names(plan: Plan, whole: str = OF_ALL) -> str:
    """Their names, or where those are too long, the first and how many there are."""
    folded = fold(plan.nodes) if plan.nodes else whole
    return folded if len(folded) <= NODES else f"{cut(plan.nodes[0], 14)} +{len(plan.nodes) - 1:,} more"


def said(trouble: Trouble) -> str:
    because = f"follows from {trouble.explained}: " if trouble.explained else ""
    return f"{because}{trouble.rule.id}: {trouble.words}"


def _folded(plan: Plan) -> str:
    """All troubles on one line: the gravest in words, the others by name, first."""
    first, *others = plan.troubles
    ids = ", ".join(one.rule.id for one in others)
    return f"{first.rule.id}{f' (+ {ids})' if ids else ''}: {first.words}"


# the plan of one row


def plan_lines(plan: Plan, width: int) -> list[str]:
    """All steps of a plan, numbered, each command on a line of its own."""
    if plan.waits:
        said = ["", *_wrapped("Plan      ", f"wait: {plan.waits}", width, 2)]
    else:
        said = ["", f"Plan for {cut(fold(plan.nodes), width - 10)}:" if plan.nodes else "Plan:"] if plan.steps else []
    for number, step in enumerate(plan.steps, start=1):
        said += textwrap.wrap(
            f"{number}. {step.harm}: {clean(step.why)}", width, initial_indent="  ", subsequent_indent="     "
        )
        said += [f"         {step.command}"] if step.command else []
    return said


# what could not be seen, and how to see more


def _notes(screen: Screen, width: int) -> list[str]:
    said = [_not_checked(*words) for words in _by_reason(screen.notes)]
    said += [clean(text) for text in screen.warnings]
    detail = 1 if len(said) > MOST_NOTES // 2 or len(screen.plans) > FEW else 2
    shown = said if len(said) * detail <= MOST_NOTES else said[: MOST_NOTES - 1]
    made = [line for text in shown for line in _wrapped(f"{render.label('WARN')} ", text, width, detail)]
    if len(shown) < len(said):
        made.append(
            f"{render.label('WARN')} … and {len(said) - len(shown)} more that could not be checked: -v has them"
        )
    return ["", *made] if made else []


def _by_reason(notes: Iterable[NotChecked]) -> Iterator[tuple[list[str], str, tuple[str, ...]]]:
    """What one reason kept from being looked at, where: a dead GPU silences many checks."""
    nodes: dict[tuple[str, str], list[str]] = {}
    for item in notes:
        nodes.setdefault((item.what, item.why), []).extend(item.subjects)
    checks: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for (what, why), subjects in nodes.items():
        checks.setdefault((why, tuple(dict.fromkeys(subjects))), []).append(what)
    return ((found, why, subjects) for (why, subjects), found in checks.items())


def _not_checked(checks: Sequence[str], why: str, nodes: Sequence[str]) -> str:
    words = ", ".join(checks).split(", ")
    more = f" and {len(words) - MOST_CHECKS} more" if len(words) > MOST_CHECKS else ""
    return f"{', '.join(words[:MOST_CHECKS])}{more} not checked{f' on {_some(nodes)}' if nodes else ''}: {clean(why)}"


def _some(nodes: Iterable[str]) -> str:
    names = list(dict.fromkeys(nodes))
    folded = fold(names)
    return folded if len(folded) <= NODES else f"{len(names):,} nodes"


def _more(commands: Sequence[str], width: int) -> list[str]:
    if not commands:
        return []
    parts, line = [], "More: "
    for number, command in enumerate(commands):
        piece = command if line in ("More: ", "      ") else f" · {command}"
        if len(line) + len(piece) > width and number:
            parts.append(line)
            line, piece = "      ", command
        line += piece
    return [*parts, line][:2]


def next_command(plans: Iterable[Plan]) -> str:
    """The first command of the gravest plan that has one, if it fits a line."""
    first = next((plan.first for plan in plans if plan.first), "")
    return first if len(first) + FIELD <= COLUMNS else ""


def exclude(nodes: Iterable[str]) -> str:
    """The option that keeps jobs off these nodes; empty for none, and where their list is too long to type."""
    option = f"--exclude={shlex.quote(fold(nodes))}"
    return option if nodes and len(option) <= MOST_NAMES else ""


def keep_out(nodes: Sequence[str]) -> str:
    """The same in words where it is too long."""
    said = f"{_number(len(nodes), 'node')}, those with P0 below" if nodes else ""
    return exclude(nodes) or said


def grave(plans: Iterable[Plan]) -> list[Plan]:
    """Plans of more than information."""
    return [plan for plan in plans if plan.priority != P2]


# one node, as a job step prints it: many of these stand below each other


MOST_FOUND = 12  # lines of findings


def node_lines(node: str, results: Sequence[Result], program: str = "hpslurm-check") -> list[str]:
    """What one node's probes came to: a line for a healthy node, a line for each finding, and what to type first."""
    whole = render.node_lines(node, results)
    named = [replace(one, subject=one.subject or node) for result in results for one in result.findings]
    if len(whole) == 1:
        return whole
    folded = render.fold(named)
    missing = [replace(one, subjects=(node,)) for one in render.not_checked(results)]
    lines = [line for one in folded[:MOST_FOUND] for line in render.head_lines(one)]
    if len(folded) > MOST_FOUND:
        lines.append(f"{render.INDENT}… and {len(folded) - MOST_FOUND} findings more")
    lines += _notes(Screen("", "", notes=tuple(missing)), min(COLUMNS, render.terminal_width()))[1:]
    made = plans(named)
    first = next((plan for plan in made if plan.first), None)
    lines += [f"{render.INDENT}Next: {first.first}"] if first else []
    ids = [one.rule.id for one in folded if not one.muted][:1]
    more = _more((f"{program} -v", *(f"hpslurm explain {name}" for name in ids)), COLUMNS) if folded else []
    lines += [f"{render.INDENT}{line}" for line in more]
    passed = sum(one.outcome == PASS for one in results)
    return [*lines, *render.fitted(f"{node}: {render.summary(folded, len(missing), passed)}")]
