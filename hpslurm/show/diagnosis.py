"""A diagnosis as people see it; foreign text is clean."""

from __future__ import annotations

import textwrap
from collections import defaultdict
from collections.abc import Iterable

from hpslurm.core.finding import Culprit, Diagnosis, Event
from hpslurm.core.text import clean
from hpslurm.scan.gpu_names import pci
from hpslurm.scan.reason import HEALTHY, UNDETERMINED
from hpslurm.show import render, screen


def text(diagnosis: Diagnosis, events: Iterable[Event] = ()) -> list[str]:
    """The diagnosis as people see it; foreign text is clean."""
    width = render.terminal_width()
    tag = {HEALTHY: "PASS", UNDETERMINED: "WARN"}.get(diagnosis.cause, "FAIL")
    head = diagnosis.cause
    if diagnosis.culprit is not None:
        head += f"  {who(diagnosis.culprit)}"
    out = render.fitted(f"{render.label(tag)} {head}  ({diagnosis.confidence} confidence)")
    decisive = diagnosis.decisive
    if decisive is not None:
        out += wrapped("saw: ", clean(decisive.text), width)
        times = f", {decisive.count} times up to line {decisive.last_line}" if decisive.count > 1 else ""
        out += wrapped("at:  ", f"{origin(decisive)}{times}", width)
    out += wrapped("why: ", clean(diagnosis.why), width)
    if diagnosis.cause == UNDETERMINED:
        for event in diagnosis.victims:
            out += wrapped("and: ", f"{clean(event.text)}  [{_where(event)}]", width)
    if diagnosis.cause == HEALTHY:
        for event in diagnosis.victims:
            out += wrapped(
                "normal: ", f"{clean(event.text, 160)}  [{_where(event)}]: {clean(event.fact('why'))}", width
            )
    for line in _victims(event for event in diagnosis.victims if event.cause and event.cause != UNDETERMINED):
        out += wrapped("also: ", line, width)
    for item in diagnosis.missing[:6]:
        out += wrapped("missing: ", clean(item), width)
    if diagnosis.section:
        out += render.pointer(diagnosis.section, diagnosis.cause, width)
    for suggestion in render.in_order_of_harm(diagnosis.suggestions):
        if suggestion.command:
            out += wrapped("", f"Suggested command (run this yourself): {suggestion.why}", width)
            out.append(f"{render.INDENT}  {render.filled(suggestion.command, '')}")
        else:
            out += wrapped("", f"Suggestion: {suggestion.why}", width)
    return out


def consequences(diagnosis: Diagnosis) -> str:
    """In one line: how many lines, of which ranks, were printed because of the cause."""
    events = [event for event in diagnosis.victims if event.cause and event.cause != UNDETERMINED]
    if diagnosis.cause in (HEALTHY, UNDETERMINED) or not events:
        return ""
    count = sum(event.count for event in events)
    causes = list(dict.fromkeys(event.cause for event in sorted(events, key=lambda one: -one.count)))
    ranks = sorted({event.rank for event in events if event.rank is not None})
    of = f" of rank{'' if len(ranks) == 1 else 's'} {fold_numbers(ranks)}" if ranks else ""
    line, follow = ("line", "follows") if count == 1 else ("lines", "follow")
    return f"{count:,} {line}{of} {follow} from it: {', '.join(causes[:3])}"


def fold_numbers(numbers: Iterable[int]) -> str:
    """``0-2,5``."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    said = [str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in parts]
    return ",".join(said[:8]) + (",…" if len(said) > 8 else "")


def first_screen(diagnosis: Diagnosis, unread: Iterable[str] = ()) -> list[str]:
    """The answer: the cause and who started it, the line that shows it, what to type first."""
    named = diagnosis.cause not in (HEALTHY, UNDETERMINED)
    culprit = f" {who(diagnosis.culprit)}" if diagnosis.culprit else ""
    said = {HEALTHY: "nothing is wrong in these logs", UNDETERMINED: "the cause is not clear from these logs"}
    decisive = diagnosis.decisive
    saw = f"{clean(decisive.text)}  [{_where(decisive)}]" if decisive else ""
    weak = diagnosis.confidence != "high" or not named
    steps = render.in_order_of_harm(diagnosis.suggestions)
    return screen.lines(
        screen.Screen(
            {HEALTHY: "PASS", UNDETERMINED: "WARN"}.get(diagnosis.cause, "FAIL"),
            f"{said.get(diagnosis.cause, '') or diagnosis.cause + culprit}  ({diagnosis.confidence} confidence)",
            (
                ("Saw", saw),
                ("Why", diagnosis.why if weak or not decisive else ""),
                ("Victims", consequences(diagnosis)),
                ("Next", next((render.filled(one.command, "") for one in steps if one.command), "")),
                ("Missing", "; ".join(diagnosis.missing[:2]) if weak else ""),
            ),
            between=tuple(_unexplained(diagnosis)),
            warnings=tuple(f"not read: {why}" for why in unread),
            more=(
                "the same with -v, --events",
                *([f"hpslurm explain {diagnosis.cause}"] if diagnosis.section and named else []),
            ),
        )
    )


def _unexplained(diagnosis: Diagnosis) -> list[str]:
    """Where no cause is named: lines that nobody can explain, or that look like trouble and are normal."""
    lead = {UNDETERMINED: "and:", HEALTHY: "normal:"}.get(diagnosis.cause, "")
    width = min(screen.COLUMNS, render.terminal_width())
    events = diagnosis.victims[:MOST_UNEXPLAINED] if lead else ()
    return [screen.cut(f"{lead:{screen.FIELD}}{clean(event.text)}  [{_where(event)}]", width) for event in events]


MOST_UNEXPLAINED = 8  # lines


def _where(event: Event) -> str:
    """File and line, and who printed it."""
    said = [origin(event)]
    said += [f"rank {event.rank}"] if event.rank is not None else []
    said += [clean(event.host, 80)] if event.host else []
    return ", ".join(said)


def origin(event: Event) -> str:
    """Where it stands: a file and line, or in words where it is no line of a file."""
    if event.pattern.startswith("finding:"):
        return f"found by hpslurm on {clean(event.host, 80)}" if event.host else "found by hpslurm"
    if event.pattern == "job-state":
        return f"Slurm's state of {clean(event.file)}"
    if not event.line:
        return clean(event.file)
    return f"{clean(event.file)}:{place(event.line)}"


def place(line: int) -> str:
    """A line's number; negative ones are counted from the end."""
    return str(line) if line >= 0 else f" line {-line} from the end"


def who(culprit: Culprit) -> str:
    parts = []
    if culprit.rank is not None:
        parts.append(f"rank {culprit.rank}")
    if culprit.local_rank is not None:
        parts.append(f"local rank {culprit.local_rank}")
    if culprit.gpu:
        parts.append(f"GPU {culprit.gpu}")
    if culprit.host:
        parts.append(f"on {culprit.host}")
    if culprit.pid is not None:
        parts.append(f"pid {culprit.pid}")
    if culprit.peer:
        parts.append(f"{'network card' if pci(culprit.peer) else 'peer'} {culprit.peer}")
    return clean(", ".join(parts), 200)


def _victims(victims: Iterable[Event]) -> list[str]:
    groups: dict[str, list[Event]] = defaultdict(list)
    for event in victims:
        groups[event.cause].append(event)
    out = []
    for cause, members in sorted(groups.items(), key=lambda item: -sum(event.count for event in item[1]))[:5]:
        ranks = sorted({event.rank for event in members if event.rank is not None})
        many = "" if len(ranks) == 1 else "s"
        where = f" of rank{many} {', '.join(map(str, ranks[:8]))}{' …' if len(ranks) > 8 else ''}" if ranks else ""
        count = sum(event.count for event in members)
        first = members[0]
        out.append(f"{count} line{'s' if count != 1 else ''} like {cause}{where}, first {origin(first)}")
    return out


def wrapped(lead: str, line: str, width: int) -> list[str]:
    inside = render.INDENT + lead
    return textwrap.wrap(
        line,
        width,
        initial_indent=inside,
        subsequent_indent=" " * len(inside),
        break_long_words=False,
        break_on_hyphens=False,
    ) or [inside]
