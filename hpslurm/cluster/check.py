"""The shape of a check that runs on the controller: one module, and one row in a table.

mypy holds every row to it: ``collect`` must take what the table's checks look at, and
``judge`` must take what ``collect`` returns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Generic, Protocol, TypeVar

from hpslurm.core import probe
from hpslurm.core.finding import Finding
from hpslurm.core.policy import Policy
from hpslurm.core.probe import FAIL, PASS, UNKNOWN, Result
from hpslurm.core.text import clean
from hpslurm.core.values import dataclass

Source = TypeVar("Source")
SourceIn = TypeVar("SourceIn", contravariant=True)
Facts = TypeVar("Facts")


class Check(Protocol[SourceIn, Facts]):
    """A module. ``collect`` raises Skip where there is nothing to look at, and Unknown where it may not look.

    ``judge`` may raise Unknown behind its findings, where they are not all there may be.
    """

    def collect(self, source: SourceIn, /) -> Facts: ...

    def judge(self, facts: Facts, policy: Policy, /) -> Iterator[Finding]: ...


@dataclass(frozen=True)
class Row(Generic[Source]):
    """A check and its name in the report; ``figures`` are what the report's head and its JSON say of the source."""

    name: str
    check: Check[Source, Any]
    figures: Callable[[Source], dict[str, Any]] | None = None


def row(
    name: str, check: Check[Source, Facts], figures: Callable[[Source], dict[str, Any]] | None = None
) -> Row[Source]:
    return Row(name, check, figures)


def run(row: Row[Source], source: Source, policy: Policy) -> Result:
    """As ``probe.run``, without the facts: those of two thousand nodes would fill the report many times over.

    Raises Skip; everything else becomes part of the result.
    """
    findings: list[Finding] = []
    try:
        for finding in row.check.judge(row.check.collect(source), policy):
            findings.append(policy.mute(finding))
    except probe.Skip:
        raise
    except Exception as error:  # what was found before it broke is kept, and said to be half
        note = clean(probe.reason(error))
        return Result(
            row.name, FAIL if findings else UNKNOWN, note, facts=_figures(row, source), findings=tuple(findings)
        )
    return Result(row.name, FAIL if findings else PASS, facts=_figures(row, source), findings=tuple(findings))


def _figures(row: Row[Source], source: Source) -> dict[str, Any] | None:
    """For the report's head, also where not everything could be looked at; None where there is nothing to count."""
    if row.figures is None:
        return None
    try:
        figures: dict[str, Any] = probe.plain(row.figures(source))
    except (probe.Skip, probe.Unknown):
        return None
    return figures
