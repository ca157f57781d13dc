"""HyperPod's event history: what failed lately, and is not over.

Only clusters with continuous provisioning have one; elsewhere AWS refuses the question,
which is no fault. Events tell of instances, networks and capacity, never of NCCL: an
empty history says nothing about a training job. A failure is history when a later success
of the very same thing answers it; during scaling some warnings mean nothing. A text that no
row knows counts by the level that AWS gave it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator
from datetime import datetime, timezone
from functools import cache, lru_cache, partial
from typing import Any

from hpslurm.cluster.aws import many
from hpslurm.cluster.aws.hyperpod import INSTANCES, about_role, ago, named, seconds
from hpslurm.cluster.aws.view import CLUSTER, Need, Source, View
from hpslurm.cluster.failures import failure_of
from hpslurm.cluster.model import Cluster, Instance
from hpslurm.core import linear, toml
from hpslurm.core.finding import CONFIGURE, LOOK, P1, P2, Evidence, Finding, Rule, Suggestion
from hpslurm.core.policy import Policy
from hpslurm.core.probe import Skip, Unknown
from hpslurm.core.text import clean
from hpslurm.core.values import dataclass, replace
from hpslurm.sources.aws import Aws, Listing
from hpslurm.sources.aws_errors import Denied, Silent, Unsupported

WINDOW = 24 * 3600  # seconds at least: events are few, and why an instance is missing can be hours old
MOST = 500  # events; HyperPod keeps about as many, for seven days
MOST_DETAILS = 20  # calls for failure messages: each event is one
SAME_SECONDS = 5.0  # the two texts of one failed provisioning come about a second apart
TWO_TEXTS = "event-provision-failed"
ANY_DONE = "event-done"  # the success of something; which, its words say
_IDS = re.compile(r"\b(?:i|eni|cr|subnet)-[0-9a-f]+\b")
_WORDS = re.compile(r"[a-z0-9./-]+")
INFO, WARN, ERROR = "Info", "Warn", "Error"
LEVELS = (INFO, WARN, ERROR)
# Fields of an event's details that say what is the matter in a word; their FailureMessage is looked for everywhere.
STATES = ("Component", "Status", "Reason", "RollbackStatus", "Advisory", "LcsExecutionState", "AvailabilityZoneId")
# For texts that no row knows: the level that AWS gave decides.
OTHER_ERROR = Rule("event-other-error", P1, "HyperPod reports an error", "operations.md § 6")
OTHER_WARNING = Rule("event-other-warning", P2, "HyperPod reports a warning", "operations.md § 6")
# How a text says what became of something, which is no part of what it was: failed and done differ in these alone.
_OUTCOME = re.compile(
    r"fail|failed|failure|failing|to|ha[sd]|have|been|is|was|success(?:ful|fully)?|succe(?:ss|eded)|complete[ds]?"
    r"|done|finished|start(?:ed|ing)?|initiated?|currently|in|progress|not|could|be|for|the|an?|of|process|submit|request(?:ed)?|schedule[d]?"
)
_ENDINGS = ("ing", "ion", "ed", "es", "e", "s")
_DONE = re.compile(r"(?i)\bsucce(?:ss|eded)")
_BEGUN = re.compile(r"(?i)\b(?:started|starting|scheduled|initiated|submitted|in progress)\b")
_NOT_BEGUN = re.compile(r"(?i)\bfailed to (?:start|schedule|initiate|submit)\b")


@dataclass(frozen=True)
class Row:
    """A kind of event; ``rule`` is None for one that is no trouble."""

    id: str
    level: str
    pattern: re.Pattern[str]
    example: str
    rule: Rule | None
    ended_by: tuple[str, ...]
    noise_while_scaling: bool


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
    about: str = ""  # what else its details say, as words


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
            linear.compile(row["pattern"]),
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
    """The first row that matches; None for a text that we do not know.

    A row that means no trouble does not speak for an event that AWS calls an error or a warning.
    """
    return _kind(event.text, event.level not in ("", INFO))


@lru_cache(maxsize=4 * MOST)
def _kind(text: str, trouble: bool) -> Row | None:
    return next((row for row in table() if row.pattern.search(text) and (row.rule or not trouble)), None)


def level_of(event: ClusterEvent) -> str:
    row = kind_of(event)
    return event.level or (row.level if row else INFO)


def rule_of(event: ClusterEvent) -> Rule | None:
    """What it counts as; None for one that is no trouble. A level that is new to us counts as an error."""
    row, level = kind_of(event), level_of(event)
    if level == INFO:
        return None
    if row is not None and row.rule is not None:
        return row.rule
    return OTHER_WARNING if level == WARN else OTHER_ERROR


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
    messages: dict[str, tuple[str, str]] = {}
    wanted = _worth_details(events)
    for event in wanted[:MOST_DETAILS]:
        try:
            details = aws.read("sagemaker", "DescribeClusterEvent", ClusterName=cluster.name, EventId=event.id)
            messages[event.id] = _failure(details), _metadata(details)
        except Unknown as why:
            trouble.append(f"failure messages not read: {why}")
            if isinstance(why, (Denied, Silent)):
                break
    if len(wanted) > MOST_DETAILS:
        trouble.append(f"failure messages of {MOST_DETAILS} events read, of {len(wanted)}")
    return tuple(map(partial(_detailed, messages), events)), "; ".join(dict.fromkeys(filter(None, trouble)))


def _detailed(messages: dict[str, tuple[str, str]], event: ClusterEvent) -> ClusterEvent:
    failure, about = messages.get(event.id, ("", ""))
    return replace(event, failure=failure, about=about)


def parse(raw: dict[str, Any]) -> ClusterEvent:
    """An event as ListClusterEvents lists it.

    >>> event = parse({"EventId": "e1", "Description": "Instance is running", "InstanceGroupName": "workers"})
    >>> event.text, event.group, event.level
    ('Instance is running', 'workers', '')
    """
    return ClusterEvent(
        id=str(raw.get("EventId", "")),
        time=seconds(raw.get("EventTime")) or 0.0,
        text=clean(raw.get("Description") or ""),
        level=raw.get("EventLevel") or "",
        group=raw.get("InstanceGroupName") or "",
        instance=raw.get("InstanceId") or "",
    )


def _worth_details(events: Iterable[ClusterEvent]) -> list[ClusterEvent]:
    """The newest of each group and text, of those that mean trouble; errors before warnings."""
    chosen: dict[tuple[str, str], ClusterEvent] = {}
    for event in sorted(events, key=lambda event: -event.time):
        row = kind_of(event)
        if rule_of(event) and not (row and row.noise_while_scaling):
            chosen.setdefault((event.group, _template(event.text)), event)
    return sorted(chosen.values(), key=lambda event: (level_of(event) == WARN, -event.time))


def _failure(answer: Any) -> str:
    """The first FailureMessage anywhere in the answer: AWS keeps adding branches that hold one.

    >>> _failure({"EventDetails": {"Metadata": [{"Instance": {"FailureMessage": "No capacity"}}]}})
    'No capacity'
    """
    if isinstance(answer, dict):
        if isinstance(text := answer.get("FailureMessage"), str) and text:
            return clean(text)
        return next(filter(None, map(_failure, answer.values())), "")
    if isinstance(answer, list):
        return next(filter(None, map(_failure, answer)), "")
    return ""


def _metadata(answer: Any) -> str:
    """The words of the details that name a state, as ``Component Slurmdbd, Reason DbUnreachable``.

    >>> _metadata({"EventDetails": {"EventDetails": {"EventMetadata": {"S": {"Component": "Slurmdbd"}}}}})
    'Component Slurmdbd'
    """
    details = answer.get("EventDetails") or {}
    states = list(_states((details.get("EventDetails") or {}).get("EventMetadata") or {}))
    return clean(", ".join(f"{name} {value}" for name, value in states), 200)


def _states(answer: Any) -> Iterator[tuple[str, str]]:
    for name, value in answer.items() if isinstance(answer, dict) else ():
        if isinstance(value, dict):
            yield from _states(value)
        elif isinstance(value, str) and name in STATES:
            yield name, value


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
    told: dict[tuple[Rule, str, str], list[ClusterEvent]] = {}
    for event in _folded(facts.events):
        row, rule = kind_of(event), rule_of(event)
        if rule is None or (row is not None and row.noise_while_scaling and facts.cluster.scaling):
            continue
        if _over(event, row, facts):
            continue
        subject = names.get(event.instance) or event.group or facts.cluster.name
        told.setdefault((rule, subject, _same_kind(event, rule)), []).append(event)
    newest_first = partial(sorted, key=lambda event: -event.time)
    yield from many.folded(
        (_told(rule, subject, newest_first(events), facts) for (rule, subject, _), events in told.items()), facts.now
    )
    if facts.trouble:
        raise Unknown(facts.trouble)


def _same_kind(event: ClusterEvent, rule: Rule) -> str:
    """What must be equal for "15 times": one rule that catches many texts does not make them one failure."""
    return "" if rule.id == TWO_TEXTS else _template(event.text)


def _told(rule: Rule, subject: str, events: list[ClusterEvent], facts: Facts) -> many.Told:
    newest = events[0]
    message = next((event.failure for event in events if event.failure), "")
    failure = failure_of(message) or failure_of(newest.text)
    often = f"{len(events)} times, last " if len(events) > 1 else ""
    level = f" ({newest.level})" if newest.level not in ("", *LEVELS) else ""
    group = facts.cluster.group(newest.group)
    because = f"; {failure.meaning}" if failure else f": {message or newest.about}" if message or newest.about else ""
    about = about_role(group.role if group else "")
    remedy = [Suggestion(CONFIGURE, failure.remedy)] if failure else []
    finding = rule.found(
        f"{about}{often}{ago(facts.now, newest.time)}{level}: {newest.text}{because}",
        evidence=[evidence(event) for event in events],
        suggest=[_details(newest, facts.cluster), *remedy],
        subject=subject,
    )
    gist = f"{about}{_template(newest.text)}{f'; {failure.meaning}' if failure else ''}"
    return many.Told(finding, gist, newest.time, (_all_events(facts.cluster), *remedy))


def _details(event: ClusterEvent, cluster: Cluster) -> Suggestion:
    return Suggestion(
        LOOK,
        "see the event's details",
        f"aws sagemaker describe-cluster-event {named(cluster)} --event-id {shlex.quote(event.id)}",
    )


def _all_events(cluster: Cluster) -> Suggestion:
    query = shlex.quote("Events[?EventLevel!='Info'].[EventTime,InstanceGroupName,InstanceId,Description]")
    command = f"aws sagemaker list-cluster-events {named(cluster)} --query {query} --output text"
    return Suggestion(LOOK, "see all of them, the newest first", command)


def evidence(event: ClusterEvent) -> Evidence:
    more = "; ".join(filter(None, (event.failure, event.about)))
    return Evidence(
        f"event of {datetime.fromtimestamp(event.time, timezone.utc):%Y-%m-%d %H:%M:%S} UTC",
        event.text + (f" ({more})" if more else ""),
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
    """The text without what names a single thing, so that like events are alike.

    >>> _template("Instance i-0123456789abcdef0 failed to provision")
    'Instance ID failed to provision'
    """
    return _IDS.sub("ID", text)


def _over(event: ClusterEvent, row: Row | None, facts: Facts) -> bool:
    """Whether a later success of the very same thing answers it.

    A failure that names an instance is over by that instance's success, or when the instance is gone and
    its group complete. One that a new instance repairs is not over while the group is short.
    """
    group = facts.cluster.group(event.group)
    complete = group is None or not group.short
    return any(
        other.time > event.time and other.group == event.group and _answers(other, event, row, facts, complete)
        for other in facts.events
    )


def _answers(other: ClusterEvent, event: ClusterEvent, row: Row | None, facts: Facts, complete: bool) -> bool:
    kind = kind_of(other)
    if rule_of(other) is not None:
        return False
    named_ends = tuple(row.ended_by) if row else ()
    if kind is not None and kind.id in named_ends and kind.id != ANY_DONE:
        same = not event.instance or other.instance == event.instance
        gone = event.instance not in {instance.id for instance in facts.instances}
        return complete and (same or gone)
    if kind is None or kind.id == ANY_DONE or not named_ends or ANY_DONE in named_ends:
        return bool(_thing(event)) and _thing(other) == _thing(event) and _succeeded(other, event)
    return False


def _succeeded(other: ClusterEvent, event: ClusterEvent) -> bool:
    """That something began answers only that it could not begin."""
    begun = bool(_BEGUN.search(other.text)) and not _NOT_BEGUN.search(event.text)
    return bool(_DONE.search(other.text)) and not begun


@lru_cache(maxsize=4 * MOST)
def _thing_of(text: str) -> frozenset[str]:
    words = (word.strip(".") for word in _WORDS.findall(text.lower()))
    return frozenset(_stem(word) for word in words if word and not _OUTCOME.fullmatch(word))


def _thing(event: ClusterEvent) -> frozenset[str]:
    """What the event is about, whatever became of it: its words without those that say how it ended."""
    return _thing_of(event.text)


def _stem(word: str) -> str:
    """Create, created and creation are one word here."""
    while end := next((end for end in _ENDINGS if word.endswith(end) and len(word) - len(end) >= 4), ""):
        word = word[: -len(end)]
    return word
