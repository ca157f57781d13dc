"""Runs probes, and turns whatever happens in one into a Result.

A probe is a module with ``Facts``, ``collect(door)`` and ``judge(facts, policy)``.
A broken probe is a result like any other: ``unknown``, with the reason.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator

from hpslurm.core.finding import PRIORITIES, Finding
from hpslurm.core.policy import Policy
from hpslurm.core.text import clean
from hpslurm.core.values import dataclass, fields, is_dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing costs a hook as much as several probes
    from typing import Any, Protocol

PASS = "pass"
FAIL = "fail"
SKIP = "skip"
UNKNOWN = "unknown"


class Skip(Exception):
    """There is nothing of the kind here."""


class Unknown(Exception):
    """There is something, and we may not or cannot look; says what would help."""


@dataclass(frozen=True)
class Result:
    """What one probe came to. ``seconds`` is wall time; ``facts`` are plain JSON values."""

    probe: str
    outcome: str
    note: str = ""
    seconds: float = 0.0
    facts: dict[str, Any] | None = None
    findings: tuple[Finding, ...] = ()


if TYPE_CHECKING:

    class Probe(Protocol):
        """The shape of a probe module; ``start(door)`` may exist too, for a slow door."""

        def collect(self, door: Any) -> Any: ...

        def judge(self, facts: Any, policy: Policy) -> Iterator[Finding]: ...


def plain(value: Any) -> Any:
    """Facts as JSON values: dataclasses as objects, infinity as the word, sets as sorted lists.

    Of a field marked ``names_only`` (values that may be secret) the keys remain.
    """
    if is_dataclass(value):
        return {
            item.name: sorted(getattr(value, item.name))
            if item.metadata.get("names_only")
            else plain(getattr(value, item.name))
            for item in fields(value)
        }
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (set, frozenset)):
        return sorted(plain(item) for item in value)
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, float) and not -1e308 < value < 1e308:
        return "infinity" if value > 0 else "unreadable"
    return value


def run(name: str, probe: Probe, door: Any, policy: Policy, clock: Callable[[], float] = time.monotonic) -> Result:
    """Collect and judge once. Never raises: an exception becomes ``unknown`` with its reason."""
    began = clock()

    def result(outcome: str, note: str = "", facts: Any = None, findings: Iterable[Finding] = ()) -> Result:
        return Result(name, outcome, clean(note), round(clock() - began, 4), plain(facts), tuple(findings))

    try:
        facts = probe.collect(door)
    except Skip as why:
        return result(SKIP, str(why))
    except Exception as error:
        return result(UNKNOWN, reason(error))
    findings: list[Finding] = []
    try:
        findings.extend(policy.mute(finding) for finding in probe.judge(facts, policy))
    except Exception as error:  # a half-finished judgement keeps what it found, and says it is half
        return result(FAIL if findings else UNKNOWN, reason(error), facts, findings)
    return result(FAIL if findings else PASS, "", facts, findings)


def run_all(probes: Iterable[tuple[str, Probe]], door: Any, policy: Policy) -> Iterator[Result]:
    """Start every slow door first, run the quick probes, wait for the slow ones, then look at what users fill."""
    slow: list[tuple[str, Probe]] = []
    quick: list[tuple[str, Probe]] = []
    last: list[tuple[str, Probe]] = []  # what users can make long comes after all that may gate
    for name, probe in probes:
        starter = getattr(probe, "start", None)
        (last if getattr(probe, "USERS_FILL_IT", False) else slow if starter else quick).append((name, probe))
        if starter:
            try:
                starter(door)
            except Exception:  # collect meets the same trouble, and reports it as its result
                continue
    for name, probe in quick + slow + last:
        yield run(name, probe, door, policy)


def reason(error: BaseException) -> str:
    """One line that a person can act on."""
    if isinstance(error, (Skip, Unknown)):
        return str(error)
    if isinstance(error, PermissionError):
        return f"may not read {error.filename}: permission denied (root may)"
    if isinstance(error, FileNotFoundError):
        return f"{error.filename} does not exist"
    return f"{type(error).__name__}: {error}"


def unmuted(results: Iterable[Result]) -> list[Finding]:
    """Findings that count for an exit code."""
    return [finding for result in results for finding in result.findings if not finding.muted]


def worst(results: Iterable[Result], fail_on: str, strict: bool) -> bool:
    """True when something at or above ``fail_on`` was found, or with ``strict`` not looked at."""
    results = list(results)
    level = PRIORITIES.index(fail_on) if fail_on in PRIORITIES else -1
    bad = any(PRIORITIES.index(finding.rule.priority) <= level for finding in unmuted(results))
    return bad or (strict and any(one.outcome == UNKNOWN or (one.findings and one.note) for one in results))
