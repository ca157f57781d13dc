"""Which cause explains the scan best. A pure function of the events; its numbers stand in tables/reasoning.toml.

A hypothesis is a cause and the line that shows it best. For it speaks how directly that line proves it and what it
explains of the other causes' lines (tables/causes.toml says what follows from what); against it, what it leaves
unexplained, and an earlier cause of which it is a consequence itself.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

from hpslurm.core.finding import ROOT, Event
from hpslurm.core.values import dataclass
from hpslurm.scan import model
from hpslurm.scan.case import LATE, Case
from hpslurm.scan.model import Numbers

MOST_UNKNOWN = 5
MOST_SUPPORT = 3


@dataclass(frozen=True)
class Hypothesis:
    """``first`` is the earliest line that speaks for the cause, ``support`` how many kinds of lines do."""

    cause: str
    decisive: Event
    first: Event
    score: float
    support: int
    rival: float = 0.0  # weight of the best other hypothesis that this one does not explain


def ranked(case: Case, events: Sequence[Event]) -> list[Hypothesis]:
    """All causes that have evidence, the best first."""
    groups: dict[str, list[Event]] = {}
    for event in events:
        groups.setdefault(event.cause, []).append(event)
    summaries = {cause: _summary(case, cause, members) for cause, members in groups.items()}
    found = [
        _weighed(case, one, [other for other in summaries.values() if other is not one]) for one in summaries.values()
    ]
    return sorted(found, key=lambda one: (-one.score, one.decisive.file, one.decisive.line, one.cause))


def _summary(case: Case, cause: str, members: list[Event]) -> Hypothesis:
    decisive = _decisive(case, members)
    weighty = [event for event in members if event.weight >= decisive.weight / 2]
    first = decisive
    for event in weighty:
        if case.before(event, first) is True:
            first = event
    return Hypothesis(cause, decisive, first, 0.0, len({event.pattern for event in members}))


def _weighed(case: Case, one: Hypothesis, others: Sequence[Hypothesis]) -> Hypothesis:
    numbers = case.numbers
    score, rival = float(one.decisive.weight), 0.0
    for other in others:
        weight = other.decisive.weight
        if other.decisive.role != ROOT and one.decisive.role == ROOT:
            continue  # a symptom is what roots are there to explain
        earlier = case.before(one.first, other.first)
        if model.explains(one.cause, other.cause) and earlier is not False:
            score += numbers.explained * weight
        else:
            score -= numbers.unexplained * weight
            rival = max(rival, weight)
        if model.explains(other.cause, one.cause) and earlier is not True and weight >= numbers.proven:
            score -= numbers.consequence * weight * (1.0 if earlier is False else 0.5)
    return Hypothesis(one.cause, one.decisive, one.first, score, one.support, rival)


def _decisive(case: Case, members: list[Event]) -> Event:
    """Among lines that prove about as much: the odd one out, else the earliest, else the weightiest."""
    top = max(event.weight for event in members)
    near = [event for event in members if event.weight >= top - case.numbers.near]
    if all(event.time is not None for event in near):
        first = min(near, key=lambda event: (event.time or 0.0, -event.weight, event.file, event.line))
        near = [event for event in near if (event.time or 0.0) - (first.time or 0.0) <= LATE]
        return odd_one_out(near) or first
    near = [event for event in near if event.weight == top]
    near.sort(key=lambda event: (event.time is None, event.time or 0.0, event.file, event.line < 0, event.line))
    return odd_one_out(near) or near[0]


def odd_one_out(rivals: Sequence[Event]) -> Event | None:
    """Among the same cause on several ranks, the one whose text differs from what all others print."""
    if len(rivals) < 3:
        return None
    texts = Counter(map(shape, rivals))
    if len(texts) == 2:
        (_, many), (rare, once) = texts.most_common(2)
        if once == 1 and many >= 2:
            return next(event for event in rivals if shape(event) == rare)
    return None


def shape(event: Event) -> str:
    """A line without its numbers and its speaker."""
    code = event.fact("code")
    return code + re.sub(r"\d+", "#", event.text.split("]", 1)[-1])[:120]


def features(best: Hypothesis, unknown: int) -> tuple[float, ...]:
    """What confidence depends on; each has its factor in the table, in this order."""
    return (
        best.decisive.weight / 100,
        best.rival / 100,
        float(min(unknown, MOST_UNKNOWN)),
        float(min(best.support - 1, MOST_SUPPORT)),
        float(best.decisive.role != ROOT),
    )


def probability(best: Hypothesis, unknown: int, numbers: Numbers) -> float:
    """How likely the best hypothesis is right, as measured on cases that were left out of the fit."""
    factors = (numbers.by_weight, numbers.by_rival, numbers.by_unknown, numbers.by_support, numbers.by_symptom)
    value = numbers.bias + sum(
        factor * feature for factor, feature in zip(factors, features(best, unknown), strict=True)
    )
    return 1 / (1 + math.exp(-value))


def confidence(chance: float, numbers: Numbers) -> str:
    return "high" if chance >= numbers.high else "medium" if chance >= numbers.medium else "low"
