"""HyperPod's health agent: what it wrote to CloudWatch about instances that still exist.

On Slurm the agent's findings are no cluster events; they stand in a log stream of each
instance. One read with a stream prefix covers a thousand nodes. Which fault leads to a
reboot or a replacement is the agent's business and changes: we read what it wrote. A condition
that it took back is history, and so is a fault from before the node's last boot; the fault of an
instance whose name another one has now is told of the instance, not of the node.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timezone
from typing import Any

from hpslurm.cluster.aws import many
from hpslurm.cluster.aws.hyperpod import INSTANCES, about_role, ago
from hpslurm.cluster.aws.view import Need, Source, View
from hpslurm.cluster.holders import owner_line
from hpslurm.cluster.model import SPECIAL, Cluster, Instance
from hpslurm.core import suggest
from hpslurm.core.finding import LOOK, P0, P1, P2, Evidence, Finding, Rule, Suggestion
from hpslurm.core.policy import Policy
from hpslurm.core.probe import Unknown
from hpslurm.core.text import clean
from hpslurm.core.values import dataclass, field
from hpslurm.sources.aws import LOG_ALIKE, LOGS, Aws
from hpslurm.sources.aws_errors import NotFound

SECTION = "operations.md § 6"
FAULT = Rule("agent-fault", P0, "HyperPod's health agent reports a fault", SECTION)
VIOLATION = Rule("agent-violation", P1, "HyperPod's health agent saw something outside its limits", SECTION)
BEFORE = Rule("agent-fault-before-boot", P2, "Health agent reported a fault before the node's last boot", SECTION)
PROGRAM = Rule("agent-program", P2, "Health agent saw an error that the program caused", SECTION)

PREFIX = "SagemakerHealthMonitoringAgent/"
EVENT = "HealthMonitoringAgentDetectionEvent"
BY_PROGRAM = "XidUserAppError"  # a job that fails in a loop writes thousands of these
MARK = re.compile(r'"HealthMonitoringAgentDetectionEvent":\s*"HealthEvent"')
_STREAM = re.compile(r"(?P<kind>[A-Za-z]+)/(?P<group>[A-Za-z0-9-]+)/(?P<instance>[A-Za-z0-9-]+)")
_XID = re.compile(r"NVRM: Xid \((?:PCI:)?(?P<pci>[0-9a-fA-F:.]+)\): (?P<xid>\d+)")
_CONDITION = re.compile(r"Node condition (?P<condition>\w+) is now: (?P<state>True|False|Unknown)")
# Most conditions name a trouble, and True is bad; those that name a good state are bad when they are False.
_GOOD = re.compile(r"(?i)(?:health|healthy|ready)$")
_DEVICE = re.compile(r" on [0-9a-fA-F:.]+$")  # of an Xid: which GPU of its machine
# NvidiaErrorReboot, NvidiaErrorTerminate, and what comes for other devices: the last word says what it wants.
_RECOVERY = re.compile(r"(?P<wants>Reboot|Terminate)$")
_WANTS = {"Reboot": "a reboot", "Terminate": "a replacement"}


@dataclass(frozen=True)
class LogLine:
    """``time`` is seconds since the epoch; ``instance`` is empty where the stream names none."""

    time: float
    stream: str
    text: str
    group: str = ""
    instance: str = ""


@dataclass(frozen=True)
class Facts:
    lines: tuple[LogLine, ...]
    instances: tuple[Instance, ...] | None  # None where the list could not be read
    now: float
    trouble: str = ""
    boots: Mapping[str, float] = field(default_factory=dict)


def log_group(cluster: Cluster) -> str:
    return f"/aws/sagemaker/Clusters/{cluster.name}/{cluster.id}"


LogLines = tuple[tuple[LogLine, ...], str]  # newest first, and why they are not all


def fetch(
    aws: Aws,
    cluster: Cluster,
    prefix: str,
    pattern: str,
    since: float,
    most: int = 2000,
    pages: int = 40,
    without: tuple[str, ...] = (),
) -> LogLines:
    """Lines of all streams under the prefix, newest first, and why they are not all.

    Raises NotFound with the steps to take where the cluster has no log group.
    """
    group = log_group(cluster)
    try:
        listing = aws.log_lines(group, prefix, pattern, since, most=most, pages=pages, without=without)
    except NotFound:
        raise NotFound(
            f"log group {group} does not exist: turn CloudWatch logs of the cluster on, or the cluster's creation "
            f"failed in the EFA check, which runs before anything is logged, {LOGS}"
        ) from None
    return tuple(parse(raw) for raw in listing.items), listing.trouble


def parse(raw: dict[str, Any]) -> LogLine:
    """A line as FilterLogEvents lists it; the stream names group and instance.

    >>> line = parse({"timestamp": 1796119200000, "logStreamName": "x", "message": "text"})
    >>> line.time, line.instance, line.text
    (1796119200.0, '', 'text')
    """
    stream = str(raw.get("logStreamName", ""))
    match = _STREAM.fullmatch(stream)
    return LogLine(
        time=float(raw.get("timestamp", 0)) / 1000,
        stream=stream,
        text=str(raw.get("message", "")),
        group=match["group"] if match else "",
        instance=match["instance"] if match else "",
    )


def log_need(
    name: str,
    prefix: str,
    pattern: str,
    after: Need[LogLines] | None,
    most: int = 2000,
    pages: int = 40,
    without: tuple[str, ...] = (),
) -> Need[LogLines]:
    """Lines of some streams, one such read after another: CloudWatch allows few a second, and refuses all or none."""

    def read(source: Source, _: View) -> LogLines:
        return fetch(source.aws, source.cluster, prefix, pattern, source.since, most, pages, without)

    return Need(name, read, after)


# What is not wanted stands first: servers that know no minus then answer with everything, and not with nothing.
LINES = log_need("agent_lines", PREFIX, f"-{BY_PROGRAM} {EVENT}", None)
# Apart, so that a program's errors do not use up what may be read of faults.
PROGRAM_LINES = log_need("agent_program_lines", PREFIX, f"{EVENT} {BY_PROGRAM}", LINES, most=500, pages=2)
NEEDS = (INSTANCES, LINES, PROGRAM_LINES)


def collect(view: View) -> Facts:
    lines, trouble = view.get(LINES)
    (more, cut), why_not = view.maybe(PROGRAM_LINES, ((), ""))
    instances, why = known_instances(view)
    troubles = dict.fromkeys(filter(None, (trouble, cut, why_not, why)))
    return Facts(tuple(dict.fromkeys((*lines, *more))), instances, view.now, "; ".join(troubles), view.boots)


def known_instances(view: View) -> tuple[tuple[Instance, ...] | None, str]:
    """All that were listed; None, and why, where none could be: then nobody knows whose lines are history."""
    (instances, _), why = view.maybe(INSTANCES, ((), ""))
    return (None if why else instances), why


@dataclass(frozen=True)
class Report:
    """What one line of the agent says; ``wants`` is its own word for the recovery, if any."""

    rule: Rule | None  # None (CLEARED) where it takes a condition back
    what: str
    wants: str = ""
    condition: str = ""


CLEARED = None


def understand(text: str) -> Report | None:
    """One line of the agent; None for a line that reports no health event.

    >>> understand('{"level": "info", "msg": "healthy"}') is None
    True
    """
    if not MARK.search(text):
        return None
    try:
        raw = _normal(json.loads(text))
    except ValueError:
        raw = {}
    everything = json.dumps(raw, ensure_ascii=False) if raw else text
    xid = _XID.search(text)
    number = f"Xid {xid['xid']} on {xid['pci']}" if xid else ""
    if "XidUserAppError" in text:
        return Report(PROGRAM, number or "XidUserAppError")
    if match := _CONDITION.search(everything):
        return _of_condition(match["condition"], match["state"], _find(raw, "reason"), number)
    if action := _find(raw, "Action"):
        what = " ".join(filter(None, (_find(raw, "Type"), _find(raw, "Reason"), number)))
        return Report(FAULT, what or clean(everything, 120), action)
    if "DCGM Policy Violation found" in text:
        code = _find(raw, "ErrNum")
        return Report(VIOLATION, f"{_find(raw, 'condition') or 'DCGM policy'}{f' {code}' if code else ''}")
    condition, state = _find(raw, "type"), _find(raw, "status").capitalize()
    if condition and state in ("True", "False", "Unknown"):
        return _of_condition(condition, state, _find(raw, "reason"), number)
    return Report(
        VIOLATION, " ".join(filter(None, (condition, _find(raw, "reason"), number))) or clean(everything, 120)
    )


def _of_condition(condition: str, state: str, reason: str, number: str) -> Report:
    """A condition that came or went. One that went answers the lines before it that named it."""
    bad = state != "Unknown" and (state == "True") != bool(_GOOD.search(condition))
    what = " ".join(filter(None, (reason, number))) or condition
    if not bad:
        return Report(CLEARED, f"{condition} {state}", condition=condition)
    if match := _RECOVERY.search(condition):
        return Report(FAULT, what, _WANTS[match["wants"]], condition)
    return Report(VIOLATION, f"{condition} {what}" if what != condition else condition, condition=condition)


def _normal(value: Any) -> Any:
    """Without the colon and blank that some of the agent's keys end in."""
    if isinstance(value, dict):
        return {str(key).rstrip(": "): _normal(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_normal(item) for item in value]
    return value


def _find(raw: Any, name: str) -> str:
    """The first value of that name, at any depth, as clean text."""
    if isinstance(raw, dict):
        if name in raw and not isinstance(raw[name], (dict, list)):
            return clean(str(raw[name]), 80)
        return next(filter(None, (_find(item, name) for item in raw.values())), "")
    if isinstance(raw, list):
        return next(filter(None, (_find(item, name) for item in raw)), "")
    return ""


def judge(facts: Facts, policy: Policy) -> Iterator[Finding]:
    listed = {instance.id: instance for instance in facts.instances or ()}
    by_rule: dict[tuple[Rule, str], list[tuple[LogLine, Report]]] = {}
    for line, report in _in_force(facts.lines):
        # An instance that is gone took its fault with it, even where the node's name lives on.
        gone = facts.instances is not None and line.instance not in listed
        if gone or report.rule is None:
            continue
        instance = listed.get(line.instance)
        rule = BEFORE if report.rule is FAULT and _rebooted(line, report, instance, facts) else report.rule
        by_rule.setdefault((rule, line.instance), []).append((line, report))
    told = []
    for (rule, identity), lines in by_rule.items():
        newest_first = sorted(lines, key=lambda pair: -pair[0].time)
        told.append(_told(rule, identity, listed.get(identity), newest_first, facts))
    yield from many.folded(told, facts.now)
    if facts.trouble:
        raise Unknown(facts.trouble)


def _in_force(lines: Iterable[LogLine]) -> list[tuple[LogLine, Report]]:
    """What the agent said and did not take back: a condition that went takes its earlier lines with it."""
    kept: list[tuple[LogLine, Report]] = []
    cleared: set[tuple[str, str]] = set()
    for line in sorted(lines, key=lambda line: -line.time):
        report = understand(line.text)
        if report is None or not line.instance or (line.instance, report.condition) in cleared:
            continue
        if report.rule is CLEARED:
            cleared.add((line.instance, report.condition))
        else:
            kept.append((line, report))
    return kept


def _rebooted(line: LogLine, report: Report, instance: Instance | None, facts: Facts) -> bool:
    """Whether the reboot that the agent asked for has come since. A replacement is not done by a boot."""
    boot = facts.boots.get(instance.subject) if instance else None
    return boot is not None and line.time < boot and "replace" not in report.wants.lower()


def _told(
    rule: Rule, identity: str, instance: Instance | None, lines: list[tuple[LogLine, Report]], facts: Facts
) -> many.Told:
    newest, report = lines[0]
    least = "at least " if len(lines) >= LOG_ALIKE else ""
    often = f"{least}{len(lines)} times, last " if len(lines) > 1 else ""
    wants = next((report.wants for _, report in lines if report.wants), "")
    asks = f"; the agent {'asked' if rule is BEFORE else 'asks'} for {wants}" if wants else ""
    since = "; the node was booted since: look whether it came again" if rule is BEFORE else ""
    who = about_role(instance.role) if instance else ""
    owner = owner_line(instance) if instance else ""
    finding = rule.found(
        f"{who}{often}{ago(facts.now, newest.time)} on {identity}: {report.what}{asks}{since}{owner}",
        evidence=evidence(line for line, _ in lines),
        suggest=_steps(rule, instance),
        subject=instance.subject if instance else identity,
    )
    gist = f"{who}{_DEVICE.sub('', report.what)}{asks}{since}{owner}"
    return many.Told(finding, gist, newest.time, finding.suggestions)


def _steps(rule: Rule, instance: Instance | None) -> list[Suggestion]:
    """Nothing for a machine that no longer has its name: a command by the name would hit its successor."""
    if instance is None or instance.heir:
        return []
    steps = [Suggestion(LOOK, "see the kernel log around that time", "clush -w {nodes} sudo dmesg -T")]
    if rule is FAULT:
        steps += [suggest.save_evidence(), suggest.drain(rule.id)]
    if instance.role in SPECIAL:
        steps.append(Suggestion(LOOK, SPECIAL[instance.role]))
    return steps


def evidence(lines: Iterable[LogLine]) -> list[Evidence]:
    return [
        Evidence(
            f"{line.stream} {datetime.fromtimestamp(line.time, timezone.utc):%Y-%m-%d %H:%M:%S} UTC", clean(line.text)
        )
        for line in lines
    ]
