"""HyperPod's event history: what failed lately, and is not over.

Only clusters with continuous provisioning have one; elsewhere AWS refuses the question,
which is no fault. Events tell of instances, networks and capacity, never of NCCL: an
empty history says nothing about a training job. A failure that a later success of the
same group answers is history; during scaling some warnings mean nothing.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator
from datetime import datetime, timezone
from functools import cache, lru_cache
from typing import Any

from hpslurm.cluster.aws.hyperpod import INSTANCES, named, seconds, span
from hpslurm.cluster.aws.view import CLUSTER, Need, Source, View
from hpslurm.cluster.failures import failure_of
from hpslurm.cluster.model import Cluster, Instance
from hpslurm.core import toml
from hpslurm.core.finding import CONFIGURE, LOOK, Evidence, Finding, Rule, Suggestion
from hpslurm.core.policy import Policy
from hpslurm.core.probe import Skip, Unknown
from hpslurm.core.text import clean
from hpslurm.core.values import dataclass, replace
from hpslurm.sources.aws import Aws, Listing, Unsupported

WINDOW = 24 * 3600  # seconds at least: events are few, and why an instance is missing can be hours old
MOST = 500  # events; HyperPod keeps about as many, for seven days
MOST_DETAILS = 20  # calls for failure messages: each event is one
SAME_SECONDS = 5.0  # the two texts of one failed provisioning come about a second apart
TWO_TEXTS = "event-provision-failed"
_IDS = re.compile(r"\b(?:i|eni|cr|subnet)-[0-9a-f]+\b")
INFO, WARN, ERROR = "Info", "Warn", "Error"


@dataclass(frozen=True)
class Row:
    """A kind of event; ``rule`` is None for one that is no trouble."""

    id: str
    level: str
    pattern: re.Pattern[str]
    example: str
    rule: Rule | None
    ended_by: tuple[str, ...] = ()
    noise_while_scaling: bool = False


@dataclass(frozen=True)
class ClusterEvent:
    """``time`` is seconds since the epoch; ``failure`` is known only for some errors and warnings."""

    id: str
    time: float
    text: str
    level: str = ""
    group: str = ""
    instance: str = ""
    failure: str = ""


@dataclass(frozen=True)
class Facts:
    events: tuple[ClusterEvent, ...]  # newest first
    cluster: Cluster
    instances: tuple[Instance, ...]
    now: float
    trouble: str = ""


@cache
def table() -> tuple[Row, ...]:
    return tuple(
        Row(
            row["id"],
            row["level"],
            re.compile(row["pattern"]),
            row["example"],
            Rule(row["id"], row["priority"], row["title"], row["reference"]) if "priority" in row else None,
            tuple(row.get("ended_by", ())),
            row.get("noise_while_scaling", False),
        )
        for row in toml.table("events")
    )


def table_rules() -> Iterator[Rule]:
    return (row.rule for row in table() if row.rule)


def kind_of(event: ClusterEvent) -> Row | None:
    """The first row that matches; None for a text that we do not know."""
    return _kind(event.text)


@lru_cache(maxsize=4 * MOST)
def _kind(text: str) -> Row | None:
    return next((row for row in table() if row.pattern.search(text)), None)


def level_of(event: ClusterEvent) -> str:
    row = kind_of(event)
    return event.level or (row.level if row else INFO)


# reading


def fetch(aws: Aws, cluster: Cluster, since: float) -> tuple[tuple[ClusterEvent, ...], str]:
    """Events since then, newest first, and why it is not all of them.

    Raises Skip where the cluster keeps no event history.
    """
    if not cluster.continuous:
        raise Skip("this cluster keeps no event history (that needs NodeProvisioningMode Continuous)")
    try:
        listing: Listing = aws.listed(
            "sagemaker",
            "ListClusterEvents",
            "Events",
            ClusterName=cluster.name,
            EventTimeAfter=datetime.fromtimestamp(since, timezone.utc),
            MaxResults=100,
            most=MOST,
        )
    except Unsupported as why:
        raise Skip(f"no event history: {why}") from why
    events = tuple(parse(raw) for raw in listing.items)
    trouble = [listing.trouble]
    messages: dict[str, str] = {}
    wanted = _worth_details(events)
    for event in wanted[:MOST_DETAILS]:
        try:
            messages[event.id] = _failure(
                aws.read("sagemaker", "DescribeClusterEvent", ClusterName=cluster.name, EventId=event.id)
            )
        except Unknown as why:
            trouble.append(f"failure messages not read: {why}")
            break
    events = tuple(replace(event, failure=messages.get(event.id, "")) for event in events)
    return events, "; ".join(filter(None, trouble))


def parse(raw: dict[str, Any]) -> ClusterEvent:
    return ClusterEvent(
        id=str(raw.get("EventId", "")),
        time=seconds(raw.get("EventTime")) or 0.0,
        text=clean(raw.get("Description") or ""),
        level=raw.get("EventLevel") or "",
        group=raw.get("InstanceGroupName") or "",
        instance=raw.get("InstanceId") or "",
    )


def _worth_details(events: Iterable[ClusterEvent]) -> list[ClusterEvent]:
    """The newest of each group and text, of those that mean trouble."""
    chosen: dict[tuple[str, str], ClusterEvent] = {}
    for event in sorted(events, key=lambda event: -event.time):
        row = kind_of(event)
        if level_of(event) in (WARN, ERROR) and row is not None and not row.noise_while_scaling:
            chosen.setdefault((event.group, _template(event.text)), event)
    return list(chosen.values())


def _failure(answer: Any) -> str:
    """The first FailureMessage anywhere in the answer: AWS keeps adding branches that hold one."""
    if isinstance(answer, dict):
        if isinstance(text := answer.get("FailureMessage"), str) and text:
            return clean(text)
        return next(filter(None, map(_failure, answer.values())), "")
    if isinstance(answer, list):
        return next(filter(None, map(_failure, answer)), "")
    return ""


def _read(source: Source) -> tuple[tuple[ClusterEvent, ...], str]:
    if not source.cluster.continuous and source.old:
        raise Unknown(source.old)  # it may well be continuous
    return fetch(source.aws, source.cluster, min(source.since, source.now - WINDOW))


EVENTS = Need("events", lambda source, _: _read(source))
NEEDS = (CLUSTER, INSTANCES, EVENTS)


def collect(view: View) -> Facts:
    cluster = view.get(CLUSTER)
    events, trouble = view.get(EVENTS)
    (instances, _), _ = view.maybe(INSTANCES, ((), ""))
    return Facts(events, cluster, instances, view.now, trouble)


# judging


def judge(facts: Facts, policy: Policy) -> Iterator[Finding]:
    names = {instance.id: instance.subject for instance in facts.instances}
    by_rule: dict[tuple[str, str], list[ClusterEvent]] = {}
    for event in _folded(facts.events):
        row = kind_of(event)
        if row is None or row.rule is None or level_of(event) == INFO:
            continue
        if row.noise_while_scaling and facts.cluster.scaling:
            continue
        if _over(event, row, facts):
            continue
        subject = names.get(event.instance) or event.group or facts.cluster.name
        by_rule.setdefault((row.id, subject), []).append(event)
    by_id = {row.id: row for row in table()}
    for (identity, subject), events in by_rule.items():
        rule = by_id[identity].rule
        assert rule is not None
        yield _finding(rule, subject, sorted(events, key=lambda event: -event.time), facts)
    if facts.trouble:
        raise Unknown(facts.trouble)


def _finding(rule: Rule, subject: str, events: list[ClusterEvent], facts: Facts) -> Finding:
    newest = events[0]
    message = next((event.failure for event in events if event.failure), "")
    failure = failure_of(message) or failure_of(newest.text)
    often = f"{len(events)} times, last " if len(events) > 1 else ""
    suggest = [
        Suggestion(
            LOOK,
            "see the event's details",
            f"aws sagemaker describe-cluster-event {named(facts.cluster)} --event-id {shlex.quote(newest.id)}",
        )
    ]
    if failure:
        suggest.append(Suggestion(CONFIGURE, failure.remedy))
    return rule.found(
        f"{often}{span((facts.now - newest.time) / 60)} ago: {newest.text}"
        + (f"; {failure.meaning}" if failure else ""),
        evidence=[
            Evidence(
                f"event of {datetime.fromtimestamp(event.time, timezone.utc):%Y-%m-%d %H:%M:%S} UTC",
                event.text + (f" ({event.failure})" if event.failure else ""),
            )
            for event in events
        ],
        suggest=suggest,
        subject=subject,
    )


def _folded(events: Iterable[ClusterEvent]) -> list[ClusterEvent]:
    """Without the second text of one failure: same group, within seconds; either may carry the cause."""
    kept: list[ClusterEvent] = []
    last: dict[str, int] = {}  # group to the place of its newest failed provisioning
    for event in sorted(events, key=lambda event: event.time):
        row = kind_of(event)
        if row is not None and row.id == TWO_TEXTS:
            before = kept[last[event.group]] if event.group in last else None
            if before is not None and _one_thing(before, event):
                kept[last[event.group]] = replace(before, failure=before.failure or event.failure)
                continue
            last[event.group] = len(kept)
        kept.append(event)
    return kept


def _one_thing(before: ClusterEvent, event: ClusterEvent) -> bool:
    return (
        _template(before.text) != _template(event.text)
        and event.time - before.time <= SAME_SECONDS
        and (not before.instance or not event.instance or before.instance == event.instance)
    )


def _template(text: str) -> str:
    return _IDS.sub("-", text)


def _over(event: ClusterEvent, row: Row, facts: Facts) -> bool:
    """Whether a later success of the same group answers it, and the group has all its instances."""
    group = facts.cluster.group(event.group)
    if group is not None and group.short:
        return False
    return any(
        other.time > event.time
        and other.group == event.group
        and (kind := kind_of(other)) is not None
        and kind.id in row.ended_by
        for other in facts.events
    )
