"""Deep health checks: stress and NCCL tests that HyperPod ran, and which instances failed.

They take a node out for one to two hours. Their streams carry an id of their own, so
the instance is named only where the line names it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from hpslurm.cluster.aws import health_agent
from hpslurm.cluster.aws.health_agent import Facts, LogLine, evidence, known_instances, log_need
from hpslurm.cluster.aws.hyperpod import INSTANCES, about_role, ago
from hpslurm.cluster.aws.view import View
from hpslurm.cluster.holders import owner_line
from hpslurm.cluster.model import Instance
from hpslurm.core import suggest
from hpslurm.core.finding import LOOK, P0, Finding, Rule, Suggestion
from hpslurm.core.policy import Policy
from hpslurm.core.probe import Unknown

FAILED = Rule("deep-check-failed", P0, "HyperPod's deep health check found a faulty instance", "operations.md § 6")

PREFIX = "DeepHealthCheckResults/"
PATTERN = "?FaultyInstance ?ERROR ?replacementRequired"
_FAULTY = re.compile(r"Encountered FaultyInstance\. (?P<advice>[^.]+)\.")
_BANDWIDTH = re.compile(r"Expected minimum threshold ?: ?(?P<want>[\d.]+), ?NCCL Test output Bw ?: ?(?P<got>[\d.]+)")
_DCGM = re.compile(r"replacementRequired: (?P<replace>true|false) rebootRequired: (?P<reboot>true|false)")
_INSTANCE = re.compile(r"\bi-[0-9a-f]{8}(?:[0-9a-f]{9})?\b")


LINES = log_need("deep_check_lines", PREFIX, PATTERN, after=health_agent.PROGRAM_LINES)
NEEDS = (INSTANCES, LINES)


def collect(view: View) -> Facts:
    lines, trouble = view.get(LINES)
    instances, why = known_instances(view)
    return Facts(lines, instances, view.now, "; ".join(filter(None, (trouble, why))))


def understand(text: str) -> str:
    """What went wrong, in words; empty for a line that reports no failure.

    >>> understand("Encountered FaultyInstance. Replace the Instance. Region: us-west-2")
    'faulty instance: replace the instance'
    """
    if bandwidth := _BANDWIDTH.search(text):
        return f"NCCL test reached {bandwidth['got']}, expected {bandwidth['want']} (GB/s)"
    if dcgm := _DCGM.search(text):
        wanted = [word for word in ("replace", "reboot") if dcgm[word] == "true"]
        return f"DCGM asks to {wanted[0]} it" if wanted else ""
    if faulty := _FAULTY.search(text):
        return f"faulty instance: {faulty['advice'].lower()}"
    return ""


def judge(facts: Facts, policy: Policy) -> Iterator[Finding]:
    listed = {instance.id: instance for instance in facts.instances or ()}
    by_machine: dict[str, list[LogLine]] = {}
    for line in facts.lines:
        if not understand(line.text):
            continue
        named = _INSTANCE.search(f"{line.stream} {line.text}")
        if named and facts.instances is not None and named[0] not in listed and not line.stream.endswith(named[0]):
            continue  # that instance is gone, and its fault with it
        known = named is not None and (facts.instances is None or named[0] in listed)
        by_machine.setdefault(named[0] if named and known else line.stream, []).append(line)
    for machine, lines in by_machine.items():
        newest_first = sorted(lines, key=lambda line: -line.time)
        yield _finding(machine, listed.get(machine), newest_first, facts)
    if facts.trouble:
        raise Unknown(facts.trouble)


def _finding(machine: str, instance: Instance | None, lines: list[LogLine], facts: Facts) -> Finding:
    steps = [Suggestion(LOOK, "on the node, read /var/log/aws/clusters/sagemaker-deep-health-check.log")]
    if machine.startswith(PREFIX):
        steps = [Suggestion(LOOK, "find the instance: the whole stream in CloudWatch names it")]
    elif instance is None or not instance.heir:
        steps.append(suggest.drain(FAILED.id))
    return FAILED.found(
        f"{about_role(instance.role) if instance else ''}{ago(facts.now, lines[0].time)}: {understand(lines[0].text)}"
        f"{owner_line(instance) if instance else ''}",
        evidence=evidence(lines),
        suggest=steps,
        subject=instance.subject if instance else machine,
    )
