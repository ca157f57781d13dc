"""HyperPod's health agent: what it wrote to CloudWatch about instances that still exist.

On Slurm the agent's findings are no cluster events; they stand in a log stream of each
instance. One read with a stream prefix covers a thousand nodes. Which fault leads to a
reboot or a replacement is the agent's business and changes: we read what it wrote.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from datetime import datetime, timezone
from typing import Any

from hpslurm.cluster.aws.hyperpod import INSTANCES, span
from hpslurm.cluster.aws.view import Need, View
from hpslurm.cluster.model import Cluster, Instance
from hpslurm.core import suggest
from hpslurm.core.finding import LOOK, P0, P1, P2, Evidence, Finding, Rule, Suggestion
from hpslurm.core.policy import Policy
from hpslurm.core.probe import Unknown
from hpslurm.core.text import clean
from hpslurm.core.values import dataclass
from hpslurm.sources.aws import LOGS, Aws, NotFound

SECTION = "operations.md § 6"
FAULT = Rule("agent-fault", P0, "HyperPod's health agent reports a fault", SECTION)
VIOLATION = Rule("agent-violation", P1, "HyperPod's health agent saw a GPU outside its limits", SECTION)
PROGRAM = Rule("agent-program", P2, "Health agent saw an error that the program caused", SECTION)

PREFIX = "SagemakerHealthMonitoringAgent/"
PATTERN = "HealthMonitoringAgentDetectionEvent"
MARK = re.compile(r'"HealthMonitoringAgentDetectionEvent":\s*"HealthEvent"')
_STREAM = re.compile(r"(?P<kind>[A-Za-z]+)/(?P<group>[A-Za-z0-9-]+)/(?P<instance>i-[a-f0-9]+)")
_XID = re.compile(r"NVRM: Xid \((?:PCI:)?(?P<pci>[0-9a-fA-F:.]+)\): (?P<xid>\d+)")
# NvidiaErrorReboot, NvidiaErrorTerminate, and what comes for other devices: the last word says what it wants.
_CONDITION = re.compile(r"Node condition (?P<condition>[A-Z][A-Za-z]{1,40}(?P<wants>Reboot|Terminate)) is now: True")
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


def log_group(cluster: Cluster) -> str:
    return f"/aws/sagemaker/Clusters/{cluster.name}/{cluster.id}"


LogLines = tuple[tuple[LogLine, ...], str]  # newest first, and why they are not all


def fetch(aws: Aws, cluster: Cluster, prefix: str, pattern: str, since: float) -> LogLines:
    """Lines of all streams under the prefix, newest first, and why they are not all.

    Raises NotFound with the steps to take where the cluster has no log group.
    """
    group = log_group(cluster)
    try:
        listing = aws.log_lines(group, prefix, pattern, since)
    except NotFound:
        raise NotFound(
            f"log group {group} does not exist: turn CloudWatch logs of the cluster on, or the cluster's creation "
            f"failed in the EFA check, which runs before anything is logged, {LOGS}"
        ) from None
    return tuple(parse(raw) for raw in listing.items), listing.trouble


def parse(raw: dict[str, Any]) -> LogLine:
    stream = str(raw.get("logStreamName", ""))
    match = _STREAM.fullmatch(stream)
    return LogLine(
        time=float(raw.get("timestamp", 0)) / 1000,
        stream=stream,
        text=str(raw.get("message", "")),
        group=match["group"] if match else "",
        instance=match["instance"] if match else "",
    )


def log_need(name: str, prefix: str, pattern: str, after: Need[LogLines] | None) -> Need[LogLines]:
    """Lines of some streams, one such read after another: CloudWatch allows few a second, and refuses all or none."""
    return Need(name, lambda source, _: fetch(source.aws, source.cluster, prefix, pattern, source.since), after)


LINES = log_need("agent_lines", PREFIX, PATTERN, None)
NEEDS = (INSTANCES, LINES)


def collect(view: View) -> Facts:
    lines, trouble = view.get(LINES)
    instances, why = known_instances(view)
    return Facts(lines, instances, view.now, "; ".join(filter(None, (trouble, why))))


def known_instances(view: View) -> tuple[tuple[Instance, ...] | None, str]:
    """All that were listed; None, and why, where none could be: then nobody knows whose lines are history."""
    (instances, _), why = view.maybe(INSTANCES, ((), ""))
    return (None if why else instances), why


@dataclass(frozen=True)
class Report:
    """What one line of the agent says; ``wants`` is its own word for the recovery, if any."""

    rule: Rule
    what: str
    wants: str = ""


def understand(text: str) -> Report | None:
    """One line of the agent; None for a line that reports no health event."""
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
    if match := _CONDITION.search(text):
        reason = _find(raw, "reason")
        return Report(FAULT, " ".join(filter(None, (reason, number))) or match["condition"], _WANTS[match["wants"]])
    if action := _find(raw, "Action"):
        what = " ".join(filter(None, (_find(raw, "Type"), _find(raw, "Reason"), number)))
        return Report(FAULT, what or clean(everything, 120), action)
    if "DCGM Policy Violation found" in text:
        code = _find(raw, "ErrNum")
        return Report(VIOLATION, f"{_find(raw, 'condition') or 'DCGM policy'}{f' {code}' if code else ''}")
    condition = _find(raw, "type")
    if condition and _find(raw, "status").lower() == "false":
        return None
    return Report(
        VIOLATION, " ".join(filter(None, (condition, _find(raw, "reason"), number))) or clean(everything, 120)
    )


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
    names = {instance.id: instance.subject for instance in facts.instances or ()}
    by_rule: dict[tuple[Rule, str], list[tuple[LogLine, Report]]] = {}
    for line in facts.lines:
        report = understand(line.text)
        # An instance that is gone took its fault with it, even where the node's name lives on.
        gone = facts.instances is not None and line.instance not in names
        if report and line.instance and not gone:
            by_rule.setdefault((report.rule, line.instance), []).append((line, report))
    for (rule, instance), lines in by_rule.items():
        yield _finding(
            rule, names.get(instance, instance), instance, sorted(lines, key=lambda pair: -pair[0].time), facts
        )
    if facts.trouble:
        raise Unknown(facts.trouble)


def _finding(rule: Rule, subject: str, instance: str, lines: list[tuple[LogLine, Report]], facts: Facts) -> Finding:
    newest, report = lines[0]
    often = f"{len(lines)} times, last " if len(lines) > 1 else ""
    wants = next((report.wants for _, report in lines if report.wants), "")
    steps = [Suggestion(LOOK, "see the kernel log around that time", "srun -w {nodes} sudo dmesg -T")]
    if rule is FAULT:
        steps += [suggest.save_evidence(), suggest.drain(rule.id)]
    return rule.found(
        f"{often}{span((facts.now - newest.time) / 60)} ago on {instance}: {report.what}"
        + (f"; the agent asks for {wants}" if wants else ""),
        evidence=evidence(line for line, _ in lines),
        suggest=steps,
        subject=subject,
    )


def evidence(lines: Iterable[LogLine]) -> list[Evidence]:
    return [
        Evidence(
            f"{line.stream} {datetime.fromtimestamp(line.time, timezone.utc):%Y-%m-%d %H:%M:%S} UTC", clean(line.text)
        )
        for line in lines
    ]
