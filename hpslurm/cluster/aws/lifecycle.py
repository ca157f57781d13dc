"""Lifecycle scripts: why an instance did not come up.

Each ``Downloading lifecycle scripts`` in an instance's stream begins an attempt, each
``succeeded`` ends one well. Errors before a success are history, and an instance that
runs has finished its scripts: only those that are failed, missing or still coming count.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator

from hpslurm.cluster.aws import deep_checks, many
from hpslurm.cluster.aws.health_agent import LogLine, evidence, known_instances, log_group, log_need
from hpslurm.cluster.aws.hyperpod import INSTANCES, about_role, ago
from hpslurm.cluster.aws.instances import KNOWN as KNOWN_STATUS
from hpslurm.cluster.aws.view import CLUSTER, Need, Source, View
from hpslurm.cluster.aws.zones import SUBNETS_IN_USE
from hpslurm.cluster.holders import owner_line
from hpslurm.cluster.model import Cluster, Instance
from hpslurm.core import linear
from hpslurm.core.finding import CONFIGURE, LOOK, P1, Finding, Rule, Suggestion
from hpslurm.core.policy import Policy
from hpslurm.core.probe import Unknown
from hpslurm.core.text import clean
from hpslurm.core.values import dataclass

FAILED = Rule("lifecycle-failed", P1, "Lifecycle scripts failed on an instance", "operations.md § 4")

PREFIX = "LifecycleConfig/"
FSX = "the file system cannot be reached (FSx for Lustre: TCP 988, 1018-1023; NFS: 2049)"
DOWNLOAD = "a download from the internet failed"
# CloudWatch compares letter by letter: what programs print in lower case needs a word of its own.
WORDS = (
    *("ERROR", "Error", "error", "failed", "Failed", "FAILED", "failure", "fatal", "Fatal", "FATAL"),
    *("denied", "Denied", "Forbidden", "not authorized", "Unauthorized", "credentials"),
    *("timeout", "Timeout", "timed out", "Timed out", "Unable", "unable", "Cannot", "cannot", "Could not", "could not"),
    *("No space", "bad interpreter", "command not found", "No such file", "resolve", "resolution", "Network is"),
    *("Traceback", "Killed", "exit code", "exit status", "\\r", "^M", "[SageMaker]"),
)
PATTERN = " ".join(f'?"{word}"' for word in WORDS)
START, SUCCESS = "[SageMaker] Downloading lifecycle scripts", "[SageMaker] The lifecycle scripts succeeded"
S3 = "S3 cannot be reached: the subnet needs NAT, or an S3 endpoint (a gateway endpoint in its route table)"
# what stands in the log -> what it was; the first that any line of an attempt matches
KNOWN = tuple(
    (linear.compile(pattern), meaning)
    for pattern, meaning in (
        (r"(?i)no space left on device|disk quota exceeded", "the root volume is full"),
        (
            r"(?i)(?:connect|read) ?timeout on endpoint url: \"?https?://[^\s\"]*\bs3\b"
            r"|could not connect to the endpoint url: \"?https?://[^\s\"]*\bs3\b",
            S3,
        ),
        (
            r"(?i)timeout on endpoint url|could not connect to the endpoint url|connect timeout",
            "an AWS endpoint cannot be reached: NAT or a VPC endpoint is missing",
        ),
        (
            r"(?i)could not resolve host|name resolution|name or service not known|nodename nor servname",
            "a name could not be resolved: DNS of the VPC (enableDnsSupport, enableDnsHostnames, DHCP options)",
        ),
        (
            r"(?i)\(kms|kms:",
            "a key of KMS may not be used: the key's policy must name the execution role",
        ),
        (
            r"(?i)access ?denied|not authorized|unauthorizedoperation|\(403\)|\bforbidden\b",
            "the execution role lacks a permission",
        ),
        (r"(?i)unable to locate credentials", "the execution role's credentials cannot be had: its role, or the agent"),
        (
            r"\$'\\r'|\\r': command not found|bad interpreter|\^M|\r\b.*(?:No such file|not found)",
            "a script has Windows line ends (CRLF)",
        ),
        (r"KeyError", "an instance group's name in provisioning_parameters.json does not exist"),
        (
            r"(?i)nosuchkey|nosuchbucket|\(404\)|does not exist in s3",
            "a file is not where it should be in S3",
        ),
        (r"(?i)failed to ping \S+@tcp|network is (?:down|unreachable)|mount\.(?:lustre|nfs)", FSX),
        (
            r"(?i)could not get lock /var/lib/|dpkg frontend lock",
            "another installation holds dpkg's lock",
        ),
        (r"(?i)unable to access 'https?://|could not fetch|failed to fetch|connection timed out", DOWNLOAD),
        (r"(?i)\bcommand not found\b", "a script calls a program that is not installed"),
        (r"(?i)\bpermission denied\b", "a script may not read or write a file"),
        (r"(?i)timed? ?out", "something took too long: a script hangs, or the network lets it reach nothing"),
    )
)
_ERROR = re.compile(
    r"(?i)error|fail|fatal|denied|forbidden|not authorized|timed? ?out|unable to|cannot|could not|no space"
    r"|bad interpreter|not found|no such file|resolv|resolution|network is|traceback|killed|exit (?:code|status) [1-9]"
    r"|\\r|\^M|credentials"
)
_HARMLESS = re.compile(r"(?i)\b(?:0|no|without) (?:errors?|failures?)\b|errors?[:=] ?0\b|failed=0|if (?:this )?fail")


@dataclass(frozen=True)
class Facts:
    lines: tuple[LogLine, ...]
    cluster: Cluster
    instances: tuple[Instance, ...] | None
    now: float
    trouble: str = ""
    vpcs: frozenset[str] = frozenset()  # those that the cluster's subnets lie in
    s3: dict[str, str] | None = None  # VPC to its S3 endpoint; None where nobody asked, or may ask


LINES = log_need("lifecycle_lines", PREFIX, PATTERN, after=deep_checks.LINES)


def _read_endpoints(source: Source, view: View) -> dict[str, str] | None:
    """S3 endpoints by VPC; asked for only where a script did not reach S3."""
    lines, _ = view.get(LINES)
    if not any(understand(line.text) == S3 for line in lines):
        return None
    region = source.aws.region
    names = [f"com.amazonaws.{region}.s3", f"cn.com.amazonaws.{region}.s3"]
    listing = source.aws.listed(
        "ec2", "DescribeVpcEndpoints", "VpcEndpoints", Filters=[{"Name": "service-name", "Values": names}]
    )
    rows = [row for row in listing.items if str(row.get("ServiceName", "")).endswith(".s3")]
    return {str(row.get("VpcId", "")): str(row.get("VpcEndpointId", "")) for row in rows}


ENDPOINTS = Need("vpc_endpoints", _read_endpoints, after=LINES)
NEEDS = (CLUSTER, INSTANCES, LINES, ENDPOINTS, SUBNETS_IN_USE)


def collect(view: View) -> Facts:
    cluster = view.get(CLUSTER)
    lines, trouble = view.get(LINES)
    instances, why = known_instances(view)
    endpoints, why_not = view.maybe(ENDPOINTS, None)
    (subnets, _), _ = view.maybe(SUBNETS_IN_USE, ((), ""))
    vpcs = frozenset(subnet.vpc for subnet in subnets if subnet.vpc)
    troubles = "; ".join(filter(None, (trouble, why, why_not)))
    return Facts(lines, cluster, instances, view.now, troubles, vpcs, endpoints)


def understand(text: str) -> str:
    """What an error line is known to mean; empty where we do not know."""
    return next((meaning for pattern, meaning in KNOWN if pattern.search(text)), "")


def cause_of(errors: Iterable[LogLine]) -> tuple[str, LogLine | None]:
    """The best known meaning that any of the lines has, and which line; the table is sorted by how much it proves."""
    errors = list(errors)
    for pattern, meaning in KNOWN:
        for line in errors:
            if pattern.search(line.text):
                return meaning, line
    return "", errors[-1] if errors else None


def judge(facts: Facts, policy: Policy) -> Iterator[Finding]:
    instances = {instance.id: instance for instance in facts.instances or ()}
    streams: dict[str, list[LogLine]] = {}
    for line in facts.lines:
        if line.instance:
            streams.setdefault(line.instance, []).append(line)
    told = []
    for identity, lines in streams.items():
        instance = instances.get(identity)
        if _counts(instance, lines[0].group, facts) and (errors := last_attempt_errors(lines)):
            told.append(_told(identity, instance, errors, facts))
    yield from many.folded(told, facts.now)
    if facts.trouble:
        raise Unknown(facts.trouble)


def _told(identity: str, instance: Instance | None, errors: list[LogLine], facts: Facts) -> many.Told:
    meaning, decisive = cause_of(errors)
    newest = errors[-1]
    shown = [*([decisive] if decisive else []), *(line for line in reversed(errors) if line is not decisive)]
    who = about_role(instance.role) if instance else ""
    meaning = _about_s3(facts) if meaning == S3 else meaning
    said = (meaning or clean(newest.text, 160)) + (owner_line(instance) if instance else "")
    more = [_endpoints(facts.cluster)] if "endpoint" in meaning else []
    more.append(
        Suggestion(CONFIGURE, "correct the script or what it needs; HyperPod runs it again on the next attempt")
    )
    finding = FAILED.found(
        f"{who}{ago(facts.now, newest.time)} on {identity} of {newest.group}: {said}",
        evidence=evidence(shown),
        suggest=[
            _tail(facts.cluster, "read the whole stream", f"--log-stream-names {shlex.quote(newest.stream)}"),
            *more,
        ],
        subject=instance.subject if instance else newest.group,
    )
    prefix = f"--log-stream-name-prefix {shlex.quote(f'{PREFIX}{newest.group}/')}"
    common = (_tail(facts.cluster, "read the streams of the group", prefix), *more)
    return many.Told(finding, f"{who}{newest.group}: {said}", newest.time, common)


def _about_s3(facts: Facts) -> str:
    """What is known of the way to S3, and no more than that."""
    if facts.s3 is None or not facts.vpcs:
        return S3
    there = sorted(facts.s3[vpc] for vpc in facts.vpcs if vpc in facts.s3)
    where = " ".join(sorted(facts.vpcs))
    if there:
        return (
            f"S3 cannot be reached, though {where} has the S3 endpoint {' '.join(there)}: is it in the route table of "
            "the subnet, and does its policy allow the bucket?"
        )
    return f"S3 cannot be reached: {where} has no S3 endpoint, and its subnet no other way out"


def _tail(cluster: Cluster, why: str, which: str) -> Suggestion:
    return Suggestion(LOOK, why, f"aws logs tail {shlex.quote(log_group(cluster))} --since 3h {which}")


def _endpoints(cluster: Cluster) -> Suggestion:
    return Suggestion(
        LOOK,
        "see which endpoints there are, and of which VPC: s3 (gateway), logs, sagemaker.api, ssm, ec2 and sts are "
        "needed where no NAT is",
        "aws ec2 describe-vpc-endpoints --query 'VpcEndpoints[].[VpcId,ServiceName,State,RouteTableIds]' --output text",
    )


def _counts(instance: Instance | None, group: str, facts: Facts) -> bool:
    """Whether errors in this stream still matter."""
    if instance is not None:
        return instance.status in ("Failure", "Pending", "SystemUpdating") or instance.status not in KNOWN_STATUS
    home = facts.cluster.group(group)
    # Between two attempts a failing instance is not in the list at all; its group is then short.
    return facts.instances is None or (home is not None and home.short > 0)


def last_attempt_errors(lines: list[LogLine]) -> list[LogLine]:
    """Errors of the newest attempt, oldest first; none where it succeeded."""
    errors: list[LogLine] = []
    for line in sorted(lines, key=lambda line: line.time):
        if START in line.text or SUCCESS in line.text:
            errors = []
        elif _ERROR.search(line.text) and not _HARMLESS.search(line.text):
            errors.append(line)
    return errors
