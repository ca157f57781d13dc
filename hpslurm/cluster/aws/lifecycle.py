"""Lifecycle scripts: why an instance did not come up.

Each ``Downloading lifecycle scripts`` in an instance's stream begins an attempt, each
``succeeded`` ends one well. Errors before a success are history, and an instance that
runs has finished its scripts: only those that are failed, missing or still coming count.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

from hpslurm.cluster.aws import deep_checks
from hpslurm.cluster.aws.health_agent import LogLine, evidence, known_instances, log_group, log_need
from hpslurm.cluster.aws.hyperpod import INSTANCES, span
from hpslurm.cluster.aws.view import CLUSTER, View
from hpslurm.cluster.model import Cluster, Instance
from hpslurm.core.finding import CONFIGURE, LOOK, P1, Finding, Rule, Suggestion
from hpslurm.core.policy import Policy
from hpslurm.core.probe import Unknown
from hpslurm.core.text import clean
from hpslurm.core.values import dataclass

FAILED = Rule("lifecycle-failed", P1, "Lifecycle scripts failed on an instance", "operations.md § 4")

PREFIX = "LifecycleConfig/"
PATTERN = '?ERROR ?Error ?failed ?Failed ?"[SageMaker]"'
START, SUCCESS = "[SageMaker] Downloading lifecycle scripts", "[SageMaker] The lifecycle scripts succeeded"
# what stands in the log -> what it was
KNOWN = (
    (
        re.compile(r"Connect timeout on endpoint URL"),
        "an AWS endpoint cannot be reached: NAT or a VPC endpoint is missing",
    ),
    (re.compile(r"AccessDenied|not authorized"), "the execution role lacks a permission"),
    (re.compile(r"\$'\\r'|bad interpreter|\^M"), "a script has Windows line ends (CRLF)"),
    (re.compile(r"KeyError"), "an instance group's name in provisioning_parameters.json does not exist"),
    (
        re.compile(r"failed to ping \S+@tcp|Network is down"),
        "the FSx file system cannot be reached (TCP 988, 1018-1023)",
    ),
    (re.compile(r"Could not resolve host|unable to access 'https?://"), "a download from the internet failed"),
    (re.compile(r"No space left on device"), "the root volume is full"),
)
_ERROR = re.compile(r"ERROR|Error|[Ff]ailed")


@dataclass(frozen=True)
class Facts:
    lines: tuple[LogLine, ...]
    cluster: Cluster
    instances: tuple[Instance, ...] | None
    now: float
    trouble: str = ""


LINES = log_need("lifecycle_lines", PREFIX, PATTERN, after=deep_checks.LINES)
NEEDS = (CLUSTER, INSTANCES, LINES)


def collect(view: View) -> Facts:
    cluster = view.get(CLUSTER)
    lines, trouble = view.get(LINES)
    instances, why = known_instances(view)
    return Facts(lines, cluster, instances, view.now, "; ".join(filter(None, (trouble, why))))


def understand(text: str) -> str:
    """What an error line is known to mean; empty where we do not know."""
    return next((meaning for pattern, meaning in KNOWN if pattern.search(text)), "")


def judge(facts: Facts, policy: Policy) -> Iterator[Finding]:
    instances = {instance.id: instance for instance in facts.instances or ()}
    streams: dict[str, list[LogLine]] = {}
    for line in facts.lines:
        if line.instance:
            streams.setdefault(line.instance, []).append(line)
    for identity, lines in streams.items():
        instance = instances.get(identity)
        if not _counts(instance, lines[0].group, facts):
            continue
        errors = last_attempt_errors(lines)
        if not errors:
            continue
        newest = errors[-1]
        meaning = next(filter(None, (understand(line.text) for line in reversed(errors))), "")
        yield FAILED.found(
            f"{span((facts.now - newest.time) / 60)} ago on {identity} of {newest.group}: "
            + (meaning or clean(newest.text, 160)),
            evidence=evidence(reversed(errors)),
            suggest=[
                Suggestion(
                    LOOK,
                    "read the whole stream",
                    f"aws logs tail {shlex.quote(log_group(facts.cluster))} --since 3h "
                    f"--log-stream-names {shlex.quote(newest.stream)}",
                ),
                Suggestion(
                    CONFIGURE, "correct the script or what it needs; HyperPod runs it again on the next attempt"
                ),
            ],
            subject=instance.subject if instance else newest.group,
        )
    if facts.trouble:
        raise Unknown(facts.trouble)


def _counts(instance: Instance | None, group: str, facts: Facts) -> bool:
    """Whether errors in this stream still matter."""
    if instance is not None:
        return instance.status in ("Failure", "Pending", "SystemUpdating")
    home = facts.cluster.group(group)
    # Between two attempts a failing instance is not in the list at all; its group is then short.
    return facts.instances is None or (home is not None and home.short > 0)


def last_attempt_errors(lines: list[LogLine]) -> list[LogLine]:
    """Errors of the newest attempt, oldest first; none where it succeeded."""
    errors: list[LogLine] = []
    for line in sorted(lines, key=lambda line: line.time):
        if START in line.text or SUCCESS in line.text:
            errors = []
        elif _ERROR.search(line.text):
            errors.append(line)
    return errors
