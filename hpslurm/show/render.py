"""Findings as people see them. JSON lines are made in ``records``, the same as on disk."""

from __future__ import annotations

import os
import shlex
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from hpslurm.core import nodeset
from hpslurm.core.finding import HARMS, P2, PRIORITIES, Evidence, Finding, Rule, Suggestion
from hpslurm.core.probe import FAIL, PASS, SKIP, UNKNOWN, Result
from hpslurm.core.text import clean
from hpslurm.core.values import dataclass, replace

INDENT = " " * 7
MOST_EVIDENCE = 8  # lines; the record has them all
COLOURS = {"FAIL": "red", "WARN": "yellow", "PASS": "green", "INFO": "cyan", "SKIP": None, "MUTE": None}


@dataclass(frozen=True)
class Folded:
    """Findings of one rule over the nodes that have it; ``details`` maps a detail to its nodes."""

    rule: Rule
    subjects: tuple[str, ...]
    details: dict[str, list[str]]
    evidence: tuple[tuple[str, Evidence], ...]
    suggestions: tuple[Suggestion, ...]
    muted: str = ""


@dataclass(frozen=True)
class NotChecked:
    """Something that could not be looked at, on these subjects (none: here), and why."""

    what: str
    why: str
    subjects: tuple[str, ...] = ()


def fold(findings: Iterable[Finding]) -> list[Folded]:
    """One entry per rule (muted ones apart), gravest first."""
    groups: dict[tuple[str, str], list[Finding]] = {}
    for finding in findings:
        groups.setdefault((finding.rule.id, finding.muted), []).append(finding)
    folded = []
    for (_, muted), members in groups.items():
        details: dict[str, list[str]] = {}
        for member in members:
            details.setdefault(member.detail, []).append(member.subject)
        evidence = dict.fromkeys((member.subject, item) for member in members for item in member.evidence)
        suggestions = dict.fromkeys(item for member in members for item in member.suggestions)
        subjects = tuple(dict.fromkeys(member.subject for member in members if member.subject))
        folded.append(Folded(members[0].rule, subjects, details, tuple(evidence), tuple(suggestions), muted))
    return sorted(folded, key=lambda one: (bool(one.muted), PRIORITIES.index(one.rule.priority), one.rule.id))


def in_order_of_harm(suggestions: Iterable[Suggestion]) -> list[Suggestion]:
    return sorted(suggestions, key=lambda one: HARMS.index(one.harm))


def head_lines(folded: Folded, width: int | None = None) -> list[str]:
    """What was found, without the evidence: a line, and one for each detail where nodes differ."""
    width = width or terminal_width()
    nodes = nodeset.fold(folded.subjects) if folded.subjects else ""
    single = len(folded.details) == 1
    head = next(iter(folded.details)) if single else folded.rule.title
    tag = "MUTE" if folded.muted else "INFO" if folded.rule.priority == P2 else "FAIL"
    first = "  ".join(filter(None, (f"{folded.rule.priority} {folded.rule.id}", nodes, clean(head))))
    lines = wrapped(f"{label(tag)} ", first, width)
    if not single:
        for detail, subjects in folded.details.items():
            lines += wrapped(INDENT, f"{nodeset.fold(filter(None, subjects)) or 'here'}: {clean(detail)}", width)
    return lines


def finding_lines(folded: Folded, width: int | None = None) -> list[str]:
    """The block of one folded finding, as lines."""
    width = width or terminal_width()
    nodes = nodeset.fold(folded.subjects) if folded.subjects else ""
    lines = head_lines(folded, width)
    for subject, seen in folded.evidence[:MOST_EVIDENCE]:
        where = f"{subject} " if subject and len(folded.subjects) > 1 else ""
        lines += wrapped(INDENT, f"saw: {where}{clean(seen.source)}: {clean(seen.text)}", width)
    if len(folded.evidence) > MOST_EVIDENCE:
        lines.append(f"{INDENT}     … and {len(folded.evidence) - MOST_EVIDENCE} more (--json has all)")
    lines += pointer(folded.rule.reference, folded.rule.id, width)
    if folded.muted:
        return [*lines, *wrapped(INDENT, f"muted by the site's policy: {clean(folded.muted)}", width)]
    for item in in_order_of_harm(folded.suggestions):
        if item.command:
            lines += wrapped(INDENT, f"Suggested command (run this yourself): {item.why}", width)
            lines.append(f"{INDENT}  {filled(item.command, nodes)}")
        else:
            lines += wrapped(INDENT, f"Suggestion: {item.why}", width)
    return lines


def pointer(section: str, name: str, width: int) -> list[str]:
    """Where it is explained, and how to read that; on two lines where one is too narrow."""
    told, more = f"{INDENT}→ {section}", f"(hpslurm explain {name})"
    return [f"{told}   {more}"] if len(told) + len(more) + 3 <= width else [told, f"{INDENT}  {more}"]


def filled(command: str, nodes: str) -> str:
    """The command with real node names, quoted for a shell; ``NODE`` where there is none to fill in."""
    return command.replace("{nodes}", shlex.quote(nodes) if nodes else "NODE")


def label(tag: str) -> str:
    try:
        import click
    except ImportError:  # the one-file check inside a container
        return f"[{tag}]"
    return click.style(f"[{tag}]", fg=COLOURS[tag], bold=tag == "FAIL")


def may_colour() -> bool:
    """Whether colours are wanted on a terminal: not with NO_COLOR, nor on one that knows none."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


_WIDTH: ContextVar[int | None] = ContextVar("width", default=None)


@contextmanager
def as_wide_as(columns: int) -> Iterator[None]:
    """For texts that are not for this terminal: within it they are laid out for so many columns."""
    before = _WIDTH.set(columns)
    try:
        yield
    finally:
        _WIDTH.reset(before)


def terminal_width() -> int:
    if not (columns := _WIDTH.get()):
        from shutil import get_terminal_size  # with it come modules for archives

        columns = get_terminal_size((120, 24)).columns
    return max(60, min(200, columns))


def wrapped(lead: str, text: str, width: int) -> list[str]:
    parts = textwrap.wrap(text, max(40, width - len(INDENT)), break_long_words=False, break_on_hyphens=False) or [""]
    return [lead + parts[0], *(INDENT + part for part in parts[1:])]


def labelled(tag: str, text: str) -> list[str]:
    """A line of our own behind its label, broken at blanks where the terminal ends."""
    return wrapped(f"{label(tag)} ", text, terminal_width())


def fitted(text: str) -> list[str]:
    """A line of our own, broken at blanks where the terminal ends; what follows is indented."""
    parts = textwrap.wrap(
        text, terminal_width(), subsequent_indent=INDENT, break_long_words=False, break_on_hyphens=False,
        replace_whitespace=False, drop_whitespace=True,
    )  # fmt: skip
    return parts if len(text) > terminal_width() else [text]


def not_checked(results: Iterable[Result]) -> list[NotChecked]:
    """Checks that could not look, and those that found something but could not look at all of it."""
    results = list(results)
    whole = [NotChecked(one.probe, one.note) for one in results if one.outcome == UNKNOWN]
    in_part = [one for one in results if one.findings and one.note and one.outcome != UNKNOWN]
    return [*whole, *(NotChecked(f"{one.probe}, in part,", one.note) for one in in_part)]


def not_checked_lines(items: Iterable[NotChecked], width: int | None = None) -> list[str]:
    """One line for each thing that could not be looked at, folded over nodes."""
    groups: dict[tuple[str, str], list[str]] = {}
    for item in items:
        groups.setdefault((item.what, item.why), []).extend(item.subjects)
    lines = []
    for (what, why), subjects in groups.items():
        nodes = f"  {nodeset.fold(dict.fromkeys(subjects))}" if subjects else ""
        lines += wrapped(f"{label('WARN')} ", f"{what} not checked{nodes}: {clean(why)}", width or terminal_width())
    return lines


def summary(folded: Sequence[Folded], unknown: int, passed: int) -> str:
    """The last line: what was found, what could not be looked at, what is fine."""
    counted = [one for one in folded if not one.muted]
    by = [f"{sum(entry.rule.priority == level for entry in counted)} {level}" for level in PRIORITIES]
    parts = [
        f"Issues found: {len(counted)}" + (f" ({', '.join(text for text in by if text[0] != '0')})" if counted else "")
    ]
    if not counted and unknown:
        parts[0] += ", no issue in what could be checked"
    muted = len(folded) - len(counted)
    parts += [f"muted: {muted}"] if muted else []
    return " · ".join([*parts, f"not checked: {unknown}", f"passed: {passed}"])


def node_lines(node: str, results: Sequence[Result]) -> list[str]:
    """What one node's probes came to: a healthy node is one line."""
    count = {outcome: sum(result.outcome == outcome for result in results) for outcome in (PASS, FAIL, SKIP, UNKNOWN)}
    named = [replace(item, subject=item.subject or node) for one in results for item in one.findings]
    folded = fold(named)
    not_checked = [NotChecked(one.probe, one.note, (node,)) for one in results if one.outcome == UNKNOWN]
    not_checked += [
        NotChecked(f"{result.probe}, in part,", result.note, (node,))
        for result in results
        if result.findings and result.note
    ]
    if not folded and not not_checked:
        skipped = f", {count[SKIP]} skipped (not present here)" if count[SKIP] else ""
        return labelled("PASS", f"{node}  {count[PASS]} checks passed{skipped}")
    lines = [line for one in folded for line in finding_lines(one)]
    lines += not_checked_lines(not_checked)
    return [*lines, *fitted(f"{node}: {summary(folded, len(not_checked), count[PASS])}")]
