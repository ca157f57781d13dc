"""Deep health checks: stress and NCCL tests that HyperPod ran, and which instances failed.

They take a node out for one to two hours. Their streams carry an id of their own, so
the instance is named only where the line names it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from hpslurm.cluster.aws import health_agent
from hpslurm.cluster.aws.health_agent import Facts, LogLine, evidence, known_instances, log_need
from hpslurm.cluster.aws.hyperpod import INSTANCES, span
from hpslurm.cluster.aws.view import View
from hpslurm.core import suggest
from hpslurm.core.finding import LOOK, P0, Finding, Rule, Suggestion
from hpslurm.core.policy import Policy
from hpslurm.core.probe import Unknown

FAILED = Rule("deep-check-failed", P0, "HyperPod's deep health check found a faulty instance", "operations.md § 6")

PREFIX = "DeepHealthCheckResults/"
PATTERN = "?FaultyInstance ?ERROR ?replacementRequired"
_FAULTY = re.compile(r"Encountered FaultyInstance\. (?P<advice>[^.]+)\.")
_BANDWIDTH = re.compile(r"Expected minimum threshold: (?P<want>[\d.]+), NCCL Test output Bw: (?P<got>[\d.]+)")
_DCGM = re.compile(r"replacementRequired: (?P<replace>true|false) rebootRequired: (?P<reboot>true|false)")
_INSTANCE = re.compile(r"\bi-[0-9a-f]{8}(?:[0-9a-f]{9})?\b")


LINES = log_need("deep_check_lines", PREFIX, PATTERN, after=health_agent.LINES)
NEEDS = (INSTANCES, LINES)


def collect(view: View) -> Facts:
    lines, trouble = view.get(LINES)
    instances, why = known_instances(view)
    return Facts(lines, instances, view.now, "; ".join(filter(None, (trouble, why))))


def understand(text: str) -> str:
    """What went wrong, in words; empty for a line that reports no failure."""
    if bandwidth := _BANDWIDTH.search(text):
        return f"NCCL test reached {bandwidth['got']}, {bandwidth['want']} wanted (GB/s)"
    if dcgm := _DCGM.search(text):
        wanted = [word for word in ("replace", "reboot") if dcgm[word] == "true"]
        return f"DCGM asks to {wanted[0]} it" if wanted else ""
    if faulty := _FAULTY.search(text):
        return f"faulty instance: {faulty['advice'].lower()}"
    return ""


def judge(facts: Facts, policy: Policy) -> Iterator[Finding]:
    names = {instance.id: instance.subject for instance in facts.instances or ()}
    by_subject: dict[str, list[LogLine]] = {}
    for line in facts.lines:
        if not understand(line.text):
            continue
        named = _INSTANCE.search(f"{line.stream} {line.text}")
        if named and facts.instances is not None and named[0] not in names:
            continue  # that instance is gone, and its fault with it
        by_subject.setdefault(names.get(named[0], named[0]) if named else line.stream, []).append(line)
    for subject, lines in by_subject.items():
        newest = max(lines, key=lambda line: line.time)
        yield FAILED.found(
            f"{span((facts.now - newest.time) / 60)} ago: {understand(newest.text)}",
            evidence=evidence(sorted(lines, key=lambda line: -line.time)),
            suggest=[
                Suggestion(LOOK, "on the node, read /var/log/aws/clusters/sagemaker-deep-health-check.log"),
                suggest.drain(FAILED.id),
            ]
            if not subject.startswith(PREFIX)
            else [Suggestion(LOOK, "find the instance: the whole stream in CloudWatch names it")],
            subject=subject,
        )
    if facts.trouble:
        raise Unknown(facts.trouble)
