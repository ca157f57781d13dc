"""The AWS half of ``diagnose``: read everything at once, then judge it.

What depends on nothing is read side by side, in at most eight threads. Whatever cannot
be read is reported with what would help, and takes nothing else with it.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import ModuleType
from typing import Any, TypeVar

from hpslurm.cluster.aws import deep_checks, events, health_agent, hyperpod, lifecycle, security_groups, zones
from hpslurm.cluster.aws.view import View
from hpslurm.cluster.model import CONTROLLER, LOGIN, WORKER, Cluster, Instance
from hpslurm.core import probe
from hpslurm.core.policy import Policy
from hpslurm.core.probe import FAIL, PASS, SKIP, UNKNOWN, Result, Skip, Unknown
from hpslurm.core.text import clean
from hpslurm.core.values import dataclass, replace
from hpslurm.sources.aws import CLUSTER_ARN, CLUSTER_NAME, IAM, REGION, THREADS, Aws, Forbidden, NoAccess, NotFound
from hpslurm.sources.host import Host
from hpslurm.sources.hyperpod import RESOURCES, Layout

T = TypeVar("T")
WINDOW = 2 * 3600  # seconds of logs by default
EVENT_WINDOW = 24 * 3600  # events are few, and why an instance is missing can be hours old

CHECKS: tuple[tuple[str, ModuleType], ...] = (
    ("hyperpod", hyperpod),
    ("hyperpod_events", events),
    ("security_groups", security_groups),
    ("zones", zones),
    ("health_agent", health_agent),
    ("deep_checks", deep_checks),
    ("lifecycle", lifecycle),
)
LOG_STREAMS: tuple[tuple[str, ModuleType], ...] = (
    ("agent_lines", health_agent),
    ("deep_check_lines", deep_checks),
    ("lifecycle_lines", lifecycle),
)
# Any of these says that the person means AWS; without, and off HyperPod, it is not asked.
AWS_ENV = ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_ENDPOINT_URL")
# what cannot be asked for without knowing the cluster's groups, network and id
OF_THE_CLUSTER = ("cluster", "events", "rules", "subnets", "interfaces", *(key for key, _ in LOG_STREAMS))


@dataclass(frozen=True)
class Options:
    """As the command line has them; ``since`` is seconds back from now, ``cluster`` a name or an ARN."""

    cluster: str = ""
    region: str = ""
    profile: str = ""
    since: float = WINDOW
    seconds: float = 120.0


def means_aws(options: Options, host: Host) -> bool:
    """Whether there is any sign that this is about HyperPod: a name, the environment, or HyperPod's own file."""
    named = options.cluster or options.region or options.profile or any(os.environ.get(name) for name in AWS_ENV)
    return bool(named) or host.exists(RESOURCES)


class NoCluster(Exception):
    """The named cluster does not exist; the text lists those that do."""


def collect(options: Options, local: Layout | None = None, now: float | None = None, *, aws: Aws | None = None) -> View:
    """Everything that AWS can tell. Raises NoCluster; anything else that fails is in the view.

    ``local`` is what HyperPod's own files on this node say, where it is a HyperPod node.
    """
    now = time.time() if now is None else now
    local = local or Layout()
    try:
        region = find_region(options, local)
        aws = aws or Aws(region, options.profile, seconds=options.seconds)
        identity = _identity(aws)
        name = find_cluster(options, local, aws)
    except Unknown as why:
        return View({"account": why}, now, now - options.since)
    answers: dict[str, Any] = {"account": identity}
    try:
        answers["old"] = aws.old()
        answers["described"] = hyperpod.describe(aws, name)
        cluster = _with_roles(hyperpod.parse_cluster(answers["described"]), local)
        answers["cluster"] = cluster
    except NotFound:
        raise NoCluster(f"no cluster {name!r} in {region}; {_known(aws)}") from None
    except NoAccess as why:  # wrong for one call is wrong for all
        return View({"account": why}, now, now - options.since, region)
    except Unknown as why:
        cluster = None
        answers.update(dict.fromkeys(("described", *OF_THE_CLUSTER), why))
    answers.update(_side_by_side(_tasks(aws, name, cluster, now, options.since)))
    return View(answers, now, now - options.since, region, identity, dict(aws.requests))


def _tasks(
    aws: Aws, name: str, cluster: Cluster | None, now: float, since: float
) -> list[Callable[[], Mapping[str, Any]]]:
    def instances() -> Mapping[str, Any]:
        listing = hyperpod.fetch_instances(aws, cluster.name if cluster else name)
        found = tuple(hyperpod.parse_instance(raw, cluster) for raw in listing.items)
        answers: dict[str, Any] = {"instances": (found, listing.trouble)}
        if cluster:
            answers["interfaces"] = _tried(lambda: security_groups.fetch_interfaces(aws, cluster, found))
        return answers

    if cluster is None:
        return [instances]
    here = cluster

    def logs() -> Mapping[str, Any]:
        # One after another: CloudWatch allows few reads a second, and what refuses one refuses all.
        answers: dict[str, Any] = {}
        refused: Unknown | None = None
        for key, one in LOG_STREAMS:
            answer = refused or _tried(lambda: health_agent.fetch(aws, here, one.PREFIX, one.PATTERN, now - since))  # noqa: B023
            refused = answer if isinstance(answer, Unknown) else None
            answers[key] = answer
        return answers

    return [
        instances,
        logs,
        lambda: {"events": _tried(lambda: _events(aws, here, now - max(since, EVENT_WINDOW)))},
        lambda: {"rules": _tried(lambda: security_groups.fetch_rules(aws, here))},
        lambda: {"subnets": _tried(lambda: zones.fetch(aws, here))},
    ]


def _events(aws: Aws, cluster: Cluster, since: float) -> Any:
    if not cluster.continuous and (old := aws.old()):
        raise Unknown(old)  # it may well be continuous
    return events.fetch(aws, cluster, since)


def _tried(read: Callable[[], Any]) -> Any:
    """The value, or the Skip or Unknown that came instead; a surprise is an Unknown too."""
    try:
        return read()
    except (Skip, Unknown) as why:
        return why
    except Forbidden:
        raise
    except Exception as error:
        return Unknown(probe.reason(error))


def _side_by_side(tasks: list[Callable[[], Mapping[str, Any]]]) -> dict[str, Any]:
    assert len(tasks) <= THREADS
    answers: dict[str, Any] = {}
    for wait in [in_thread(partial(_tried, task)) for task in tasks]:
        answer = wait()
        if isinstance(answer, (Skip, Unknown)):  # only the list of instances fails as a whole
            answer = {"instances": answer, "interfaces": answer}
        answers.update(answer)
    return answers


def in_thread(work: Callable[[], T]) -> Callable[[], T]:
    """Start it; the returned function waits, and returns or raises what it did.

    Threads of a pool are waited for at the end of the program: after Ctrl-C an answer
    that never comes would hold the person for a minute.
    """
    done: list[T] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            done.append(work())
        except BaseException as error:  # handed to whoever waits
            failed.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()

    def wait() -> T:
        thread.join()
        if failed:
            raise failed[0]
        return done[0]

    return wait


# which account, region and cluster


def find_region(options: Options, local: Layout) -> str:
    """--region, the ARN, the environment, the profile, else what this node's own configuration says."""
    import os

    named = CLUSTER_ARN.fullmatch(options.cluster)
    if options.region and not REGION.fullmatch(options.region):
        raise Unknown(f"{clean(options.region, 40)!r} is no region; one looks like us-west-2")
    if named and options.region and named["region"] != options.region:
        raise Unknown(f"the cluster's ARN is of {named['region']}, but --region is {options.region}")
    own = CLUSTER_ARN.fullmatch(local.arn)
    region = (
        options.region
        or (named["region"] if named else "")
        or os.environ.get("AWS_REGION")
        or os.environ.get("AWS_DEFAULT_REGION")
        or _profile_region(options.profile)
        or (own["region"] if own else "")
    )
    if not region:
        raise NoAccess(f"no region: pass --region or set AWS_REGION, {IAM}")
    return region


def _profile_region(profile: str) -> str:
    import boto3
    from botocore.exceptions import BotoCoreError

    try:
        return boto3.Session(profile_name=profile or None).region_name or ""
    except BotoCoreError as error:
        raise NoAccess(f"{error}, {IAM}") from error


def find_cluster(options: Options, local: Layout, aws: Aws) -> str:
    """--cluster, this node's own, or the only one there is. Raises Unknown with a list to choose from."""
    if options.cluster:
        if not CLUSTER_NAME.fullmatch(options.cluster) and not CLUSTER_ARN.fullmatch(options.cluster):
            raise Unknown(f"{clean(options.cluster, 80)!r} is neither a cluster's name nor its ARN")
        return options.cluster
    if CLUSTER_NAME.fullmatch(local.cluster):
        return local.cluster
    names = _clusters(aws)
    if len(names) == 1:
        return names[0]
    raise Unknown(f"pass --cluster; {_listed(names, aws.region)}")


def _clusters(aws: Aws) -> list[str]:
    rows = aws.listed("sagemaker", "ListClusters", "ClusterSummaries", MaxResults=100)
    return sorted(str(row["ClusterName"]) for row in rows.items)


def _listed(names: list[str], region: str) -> str:
    return f"clusters in {region}: {', '.join(names)}" if names else f"there is no cluster in {region}"


def _known(aws: Aws) -> str:
    try:
        return _listed(_clusters(aws), aws.region)
    except Unknown as why:
        return f"could not list the others: {why}"


def _identity(aws: Aws) -> str:
    """Who we are to AWS, without the account; empty where sts does not answer but others may."""
    try:
        arn = str(aws.read("sts", "GetCallerIdentity").get("Arn", ""))
    except NoAccess:
        raise
    except Unknown:
        return ""
    return arn.rpartition(":")[2]


def _with_roles(cluster: Cluster, local: Layout) -> Cluster:
    """Roles of the groups, from this node's own files where the API names none."""
    if not local.controller_group:
        return cluster
    roles = {local.controller_group: CONTROLLER, local.login_group: LOGIN}
    return replace(
        cluster,
        groups=tuple(replace(group, role=group.role or roles.get(group.name, WORKER)) for group in cluster.groups),
    )


# judging


def judge(view: View, policy: Policy, partitions: Mapping[str, tuple[str, ...]] | None = None) -> list[Result]:
    """One result a check. ``partitions`` (partition to node names) comes from Slurm, where it could be read."""
    trouble = view.answers.get("account")
    if isinstance(trouble, Unknown):
        return [Result("aws", UNKNOWN, clean(str(trouble)))]
    if partitions:
        view = replace(view, answers={**view.answers, "partitions": dict(partitions)})
    return list(_merged(_checked(name, module, view, policy) for name, module in CHECKS))


def _checked(name: str, module: ModuleType, view: View, policy: Policy) -> Result:
    """As ``probe.run``, without the facts: those of two thousand nodes would fill the report seven times."""
    findings = []
    try:
        facts = module.collect(view)
        for finding in module.judge(facts, policy):
            findings.append(policy.mute(finding))
    except Skip as why:
        return Result(name, SKIP, clean(str(why)))
    except Exception as error:  # what was found before it broke is kept, and said to be half
        note = clean(probe.reason(error))
        return Result(name, FAIL if findings else UNKNOWN, note, findings=tuple(findings))
    told = _told(view) if module is hyperpod else None
    return Result(name, FAIL if findings else PASS, facts=told, findings=tuple(findings))


def _told(view: View) -> dict[str, Any]:
    """The cluster in figures, for the report's head."""
    here: Cluster = view.get("cluster")
    states: dict[str, int] = {}
    for one in instances(view):
        states[one.status] = states.get(one.status, 0) + 1
    return {
        "cluster": here.name,
        "status": here.status,
        "region": view.region,
        "recovery": here.recovery,
        "instances": dict(sorted(states.items(), key=lambda pair: (-pair[1], pair[0]))),
        "identity": view.identity,
        "calls": dict(sorted(view.requests.items())),
    }


def _merged(results: Iterator[Result]) -> Iterator[Result]:
    """Checks that one missing permission kept from looking are one result, not seven."""
    together: dict[str, list[Result]] = {}
    for result in results:
        if result.outcome == UNKNOWN:
            together.setdefault(result.note, []).append(result)
        else:
            yield result
    for same in together.values():
        yield replace(same[0], probe=", ".join(one.probe for one in same))


def instances(view: View | None) -> tuple[Instance, ...]:
    """For the join; empty where the list could not be read, or nobody asked."""
    if view is None:
        return ()
    (found, _), _ = view.maybe("instances", ((), ""))
    return tuple(found)


def complete(view: View) -> bool:
    """Whether every instance was listed: only then can a node be said to have none."""
    (_, trouble), why = view.maybe("instances", ((), ""))
    return not trouble and not why


def readable(view: View) -> bool:
    """Whether AWS told anything of the cluster."""
    return bool(instances(view)) or cluster(view) is not None


def cluster(view: View | None) -> Cluster | None:
    if view is None:
        return None
    found, _ = view.maybe("cluster", None)
    return found if isinstance(found, Cluster) else None
