"""Events and diagnoses as JSON lines, on stdout and in records, and read back from them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from hpslurm.core.finding import ROLES, Diagnosis, Event
from hpslurm.core.records import suggestion_line
from hpslurm.core.text import clean
from hpslurm.core.values import asdict

SCHEMA = 1
MOST_EVENTS = 2000  # lines of events that are printed or recorded; roots first


def event_line(event: Event) -> dict[str, Any]:
    line: dict[str, Any] = {
        "schema": SCHEMA,
        "type": "event",
        "pattern": event.pattern,
        "role": event.role,
        "cause": event.cause,
    }
    line.update(
        file=event.file,
        line=event.line,
        last_line=event.last_line or event.line,
        count=event.count,
        weight=event.weight,
    )
    line.update(
        time=event.time, rank=event.rank, local_rank=event.local_rank, host=event.host, gpu=event.gpu, pid=event.pid
    )
    line.update(peer=event.peer, text=clean(event.text), facts=dict(event.facts))
    return line


def event_of(line: Mapping[str, Any]) -> Event | None:
    """The event of a record's line; None for a line that is none. A record may come from an older version."""
    if line.get("type") != "event" or line.get("role") not in ROLES:
        return None

    def text(name: str, longest: int = 400) -> str:
        return clean(str(line.get(name) or ""), longest)

    def number(name: str) -> int | None:
        value = line.get(name)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    when = line.get("time")
    facts = line.get("facts")
    return Event(
        text("pattern", 80),
        str(line["role"]),
        text("file"),
        number("line") or 0,
        text("text"),
        float(when) if isinstance(when, (int, float)) else None,
        number("rank"),
        text("host", 260),
        text("cause", 80),
        min(100, max(0, number("weight") or 0)),
        max(1, number("count") or 1),
        number("last_line") or 0,
        number("local_rank"),
        text("gpu", 80),
        number("pid"),
        text("peer", 260),
        tuple((clean(str(name), 40), clean(str(value), 200)) for name, value in facts.items())
        if isinstance(facts, dict)
        else (),
    )


def worth_keeping(events: Iterable[Event]) -> Iterator[Event]:
    """At most MOST_EVENTS, what proves most first."""
    ranked = sorted(events, key=lambda event: (-event.weight, event.file, event.line))
    yield from ranked[:MOST_EVENTS]


def diagnosis_line(diagnosis: Diagnosis) -> dict[str, Any]:
    decisive = diagnosis.decisive
    culprit = asdict(diagnosis.culprit) if diagnosis.culprit is not None else None
    return {
        "schema": SCHEMA,
        "type": "diagnosis",
        "cause": diagnosis.cause,
        "confidence": diagnosis.confidence,
        "culprit": culprit,
        "file": decisive.file if decisive else None,
        "line": decisive.line if decisive else None,
        "text": clean(decisive.text) if decisive else None,
        "pattern": decisive.pattern if decisive else None,
        "why": clean(diagnosis.why),
        "missing": [clean(item) for item in diagnosis.missing],
        "reference": diagnosis.section,
        "victims": [
            {
                "cause": event.cause,
                "pattern": event.pattern,
                "rank": event.rank,
                "host": event.host,
                "count": event.count,
                "file": event.file,
                "line": event.line,
            }
            for event in diagnosis.victims[:50]
        ],
        "suggestions": [suggestion_line(suggestion) for suggestion in diagnosis.suggestions],
    }
