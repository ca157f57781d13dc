"""What to say about a cause: why it was chosen, what is still missing, what a person could type."""

from __future__ import annotations

import re
import shlex

from hpslurm.core import suggest as words
from hpslurm.core.finding import LOOK, Culprit, Event, Suggestion
from hpslurm.scan import model
from hpslurm.scan.patterns import Pattern


def section(cause: str, pattern: Pattern | None) -> int:
    if pattern is not None and pattern.cause == cause and pattern.section:
        return pattern.section
    row = model.causes().get(cause)
    return row.section if row else 1


def why(chosen: Event, pattern: Pattern | None, victims: tuple[Event, ...]) -> str:
    derived = model.derived().get(chosen.pattern)
    meaning = derived.meaning if derived else pattern.meaning if pattern else "the evidence of several lines"
    said = meaning[0].upper() + meaning[1:]
    if chosen.fact("xid"):
        said += f"; number {chosen.fact('xid')}"
    louder = [event for event in victims if event.count >= chosen.count]
    if not louder:
        return said
    causes = sorted({event.cause for event in louder if event.cause and event.cause != chosen.cause})
    lines = sum(event.count for event in louder)
    if chosen.role == "root":
        return f"{said}. The {lines} other lines ({', '.join(causes[:4]) or 'same cause'}) are consequences: the other ranks and the clean-up print them"  # noqa: E501
    return said


def ask(cause: str) -> str:
    """What would make a weak answer a sure one."""
    row = model.causes().get(cause)
    return row.ask if row else model.ASK


def place(culprit: Culprit | None) -> str:
    if culprit is None:
        return ""
    if culprit.rank is not None:
        return f" (rank {culprit.rank})"
    if culprit.local_rank is not None:
        return f" (local rank {culprit.local_rank})"
    return f" ({culprit.peer or culprit.host})" if culprit.peer or culprit.host else ""


# A node name comes from a log, so anybody may have written it: only plain names enter a command, and only one that
# looks. What drains, reboots or replaces gets its name from the person who types it.
_NODE = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,62}(?:\[[0-9,-]{1,60}\])?$")


def suggest(cause: str, culprit: Culprit | None) -> tuple[Suggestion, ...]:
    node = culprit.host if culprit is not None and culprit.host and _NODE.match(culprit.host) else ""
    where = shlex.quote(node) if node else "NODE"
    given: list[Suggestion] = []
    row = model.causes().get(cause)
    for advised in row.suggest if row else ():
        step = Suggestion(advised["step"], advised["why"], advised["command"])
        given.append(Suggestion(step.harm, step.why, step.command.replace("{node}", _where(step, where))))
    if row and row.hardware:
        given.insert(0, words.save_evidence())
        given.append(words.drain(cause.replace("_", "-")))
        given.append(words.reboot("a reset is needed; replace when the same fault is back within a day"))
        given = [Suggestion(s.harm, s.why, s.command.replace("{nodes}", _where(s, where))) for s in given]
    return tuple(given)


def _where(suggestion: Suggestion, node: str) -> str:
    return node if suggestion.harm == LOOK else "NODE"
