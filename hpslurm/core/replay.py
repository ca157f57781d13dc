"""Recorded facts judged again, under another policy: what would have been found, gated, spared?

Facts are plain values in a record. ``rebuild`` makes them the probe's own again, and the
probe's own ``judge`` decides, so that nothing here knows a rule. Facts of another version
of hpslurm that do not fit any more are left out, and counted.
"""

from __future__ import annotations

import re
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from hpslurm.core import probe
from hpslurm.core.finding import Finding
from hpslurm.core.policy import Policy
from hpslurm.core.probe import Result
from hpslurm.core.records import Record
from hpslurm.core.text import clean
from hpslurm.core.values import dataclass, fields, is_dataclass, replace

HOUR = 3600.0  # seconds, of gate_per_hour
SITE = "site"
SITE_HOOKS = ("prolog", "health")
_NAME = re.compile(r"[a-z][a-z0-9_]{0,60}")


class Misfit(ValueError):
    """The recorded facts are not those of this version's probe; the text names the field."""


def rebuild(kind: Any, value: Any, where: str = "facts") -> Any:
    """The inverse of ``probe.plain`` for a value of type ``kind``. Raises Misfit."""
    origin, inside = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return value
    if origin in (typing.Union, types.UnionType):
        if value is None and type(None) in inside:
            return None
        for possible in inside:
            try:
                return rebuild(possible, value, where)
            except Misfit:
                continue
        raise Misfit(f"{where} holds {value!r:.40}")
    if is_dataclass(kind):
        return _rebuild_value(kind, value, where)
    if kind is float and value in ("infinity", "unreadable"):
        return float("inf" if value == "infinity" else "nan")
    if origin in (dict, Mapping, typing.get_origin(Mapping[str, str])):
        _must(isinstance(value, dict), where, value)
        return {rebuild_key(inside[0], key): rebuild(inside[1], one, f"{where}.{key}") for key, one in value.items()}
    if origin in (tuple, list, set, frozenset):
        _must(isinstance(value, list), where, value)
        if origin is tuple and inside[-1] is not Ellipsis:
            _must(len(value) == len(inside), where, value)
            return tuple(rebuild(one, item, where) for one, item in zip(inside, value, strict=True))
        return origin(rebuild(inside[0], item, where) for item in value)
    if kind is float:
        _must(isinstance(value, (int, float)) and not isinstance(value, bool), where, value)
        return float(value)
    _must(isinstance(value, kind) and (kind is bool or not isinstance(value, bool)), where, value)
    return value


def rebuild_key(kind: Any, key: str) -> Any:
    """Keys of JSON objects are text."""
    return int(key) if kind is int and re.fullmatch(r"-?\d+", key) else key


def _rebuild_value(kind: Any, value: Any, where: str) -> Any:
    _must(isinstance(value, dict), where, value)
    hints = typing.get_type_hints(kind)
    given: dict[str, Any] = {}
    for item in fields(kind):
        if item.metadata.get("names_only"):  # the values were never written
            given[item.name] = {}
        elif item.name in value:
            given[item.name] = rebuild(hints[item.name], value[item.name], f"{where}.{item.name}")
    try:
        return kind(**given)
    except TypeError as error:
        raise Misfit(f"{where}: {error}") from None


def _must(fits: bool, where: str, value: Any) -> None:
    if not fits:
        raise Misfit(f"{where} holds {value!r:.40}")


def module_of(name: str) -> Any:
    """The probe's module. Raises Misfit for a name that this version does not have."""
    for package in ("node", "job") if _NAME.fullmatch(name) else ():
        full = f"hpslurm.{package}.{name}"
        if find_spec(full):
            module = import_module(full)
            if hasattr(module, "judge") and hasattr(module, "Facts"):
                return module
    raise Misfit(f"no probe {name!r:.60} in this version")


class _Replayed:
    """A probe whose look is already over."""

    def __init__(self, module: Any, facts: Any) -> None:
        self.module = module
        self.facts = facts

    def collect(self, door: Any) -> Any:
        return self.facts

    def judge(self, facts: Any, policy: Policy) -> Iterator[Finding]:
        findings: Iterator[Finding] = self.module.judge(facts, policy)
        return findings


def judged(result: Result, policy: Policy) -> Result:
    """The result as it would be under this policy. Raises Misfit where its facts cannot be judged again."""
    # Skip and unknown: nothing was seen, whatever the policy. What grew during a job was judged over two
    # records and has no facts of its own: it stays as it was, and only its mutes can change.
    if result.facts is None:
        return replace(result, findings=tuple(policy.mute(replace(one, muted="")) for one in result.findings))
    module = module_of(result.probe)
    again = probe.run(result.probe, _Replayed(module, rebuild(module.Facts, result.facts)), None, policy)
    if not hasattr(module, "changed"):
        return again
    # What grew during a job is judged over two records; here only its mutes can be judged again.
    ids = {one.rule.id for one in again.findings}
    kept = [policy.mute(replace(one, muted="")) for one in result.findings if one.rule.id not in ids]
    return replace(again, findings=(*again.findings, *kept))


@dataclass(frozen=True)
class Change:
    """One finding or gating of one record that the other policy decides differently (or the same)."""

    what: str  # found, muted, gone, kept, gated, spared
    rule: str
    node: str
    hook: str
    job: int | None
    time: float  # seconds since the epoch
    detail: str


@dataclass(frozen=True)
class Replay:
    """What a policy would have made of all records."""

    changes: tuple[Change, ...]
    records: int
    troubles: tuple[str, ...]  # facts that could not be judged again, in words


def replay(records: Iterable[Record], policy: Policy) -> Replay:
    """Judge every record again, in the order of time, and say what changes."""
    changes: list[Change] = []
    troubles: dict[str, int] = {}
    recent: list[tuple[float, str]] = []
    ordered = sorted(records, key=lambda record: _time(record))
    for record in ordered:
        here = replace(policy, node=record.node, instance=str(record.run.get("instance") or ""))
        results = []
        for result in record.results:
            try:
                again = judged(result, here)
                results.append(again)
                if again.note and again.note != result.note:
                    why = f"{result.probe}: {again.note}"
                    troubles[why] = troubles.get(why, 0) + 1
            except Misfit as why:
                troubles[f"{result.probe}: {why}"] = troubles.get(f"{result.probe}: {why}", 0) + 1
                results.append(result)
        if not_there := _not_there(record, here):
            troubles[not_there] = troubles.get(not_there, 0) + 1
        changes += _findings(record, results)
        changes += _gating(record, results, policy, recent)
    told = tuple(f"{why} ({count} times)" if count > 1 else why for why, count in troubles.items())
    return Replay(tuple(changes), len(ordered), told)


def _not_there(record: Record, policy: Policy) -> str:
    """What the policy expects of the node where the record has no look at all: then none was asked for."""
    looked = any(result.probe == SITE and result.facts is not None for result in record.results)
    return "" if looked or record.hook not in SITE_HOOKS or not policy.expected() else f"{SITE}: no look was recorded"


def _time(record: Record) -> float:
    when = record.run.get("time")
    return float(when) if isinstance(when, (int, float)) else 0.0


def _change(what: str, record: Record, rule: str, detail: str) -> Change:
    job = record.run.get("job")
    return Change(what, rule, record.node, record.hook, job if isinstance(job, int) else None, _time(record), detail)


def _findings(record: Record, results: Iterable[Result]) -> Iterator[Change]:
    before = {one.rule.id: one for one in record.findings}
    after = {one.rule.id: one for result in results for one in result.findings}
    for rule, finding in after.items():
        old = before.get(rule)
        if finding.muted:
            yield _change("kept" if old and old.muted else "muted", record, rule, f"muted: {finding.muted}")
        else:
            yield _change("kept" if old and not old.muted else "found", record, rule, finding.detail)
    for rule, finding in before.items():
        if rule not in after:
            yield _change("gone", record, rule, finding.detail)


def _gating(
    record: Record, results: Iterable[Result], policy: Policy, recent: list[tuple[float, str]]
) -> Iterator[Change]:
    """What the prolog's gate would have done, its cap included; ``recent`` holds the gatings so far."""
    if record.hook != "prolog":
        return
    listed = record.end.get("gated")
    before = {clean(str(one), 60) for one in listed} if isinstance(listed, list) else set()
    unmuted = probe.unmuted(results)
    wanted = [finding for finding in unmuted if finding.rule.id in policy.gate and finding.rule.gateable]
    now = _time(record)
    within = {node for time, node in recent if time > now - HOUR}
    capped = bool(policy.results_shared and policy.gate_per_hour) and record.node not in within
    if wanted and capped and len(within) >= policy.gate_per_hour:
        yield _change("spared", record, wanted[0].rule.id, f"{policy.gate_per_hour} nodes were gated within the hour")
        wanted = []
    if wanted:
        recent.append((now, record.node))
        for finding in wanted:
            yield _change("gated", record, finding.rule.id, finding.detail)
    for rule in sorted(before - {finding.rule.id for finding in wanted}):
        yield _change("spared", record, rule, "was gated then")
