"""Many of a kind are told in common words: one cause, one finding, one command, however many machines it hit.

Six hundred failed instances with an id and a command each are a report that nobody reads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from hpslurm.cluster.aws.hyperpod import ago
from hpslurm.core.finding import Finding, Suggestion
from hpslurm.core.values import dataclass, replace

MANY = 3  # more of one kind than this are told in common words


@dataclass(frozen=True)
class Told:
    """A finding; ``gist`` is what it says without ids and times, ``common`` what to suggest where many say the same.

    ``time`` is when it was last seen, in seconds since the epoch.
    """

    finding: Finding
    gist: str
    time: float
    common: tuple[Suggestion, ...]


def folded(told: Iterable[Told], now: float) -> Iterator[Finding]:
    """The findings, those of which there are many in the same words."""
    told = list(told)
    kinds = Counter(_kind(item) for item in told)
    newest: dict[tuple[str, str], float] = {}
    for item in told:
        newest[_kind(item)] = max(item.time, newest.get(_kind(item), item.time))
    for item in told:
        number = kinds[_kind(item)]
        if number <= MANY:
            yield item.finding
            continue
        words = f"{number} of a kind, the last {ago(now, newest[_kind(item)])}: {item.gist}"
        yield replace(item.finding, detail=words, suggestions=item.common)


def _kind(item: Told) -> tuple[str, str]:
    return item.finding.rule.id, item.gist
