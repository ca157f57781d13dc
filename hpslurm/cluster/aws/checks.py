"""The AWS half of ``diagnose``: read everything at once, then judge it.

What depends on nothing is read side by side, in at most eight threads. Whatever cannot
be read is reported with what would help, and takes nothing else with it.
"""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, TypeVar

from hpslurm.cluster import check
from hpslurm.cluster.aws import deep_checks, events, health_agent, hyperpod, lifecycle, security_groups, zones
from hpslurm.cluster.aws.hyperpod import INSTANCES
from hpslurm.cluster.aws.view import CLUSTER, DESCRIBED, AwsCheck, Need, Source, View
from hpslurm.cluster.check import Row
from hpslurm.cluster.model import CONTROLLER, LOGIN, WORKER, Cluster, Instance
from hpslurm.core import probe
from hpslurm.core.policy import Policy
from hpslurm.core.probe import SKIP, UNKNOWN, Result, Skip, Unknown
from hpslurm.core.text import clean
from hpslurm.core.values import dataclass, replace
from hpslurm.sources.aws import CLUSTER_ARN, CLUSTER_NAME, IAM, REGION, THREADS, Aws, Forbidden, NoAccess, NotFound
from hpslurm.sources.host import Host
from hpslurm.sources.hyperpod import RESOURCES, Layout

T = TypeVar("T")
Facts = TypeVar("Facts")
WINDOW = 2 * 3600  # seconds of logs by default


@dataclass(frozen=True)
class AwsRow(Row[View]):
    needs: tuple[Need[Any], ...] = ()


def aws_row(name: str, check: AwsCheck[Facts], figures: Callable[[View], dict[str, Any]] | None = None) -> AwsRow:
    return AwsRow(name, check, figures, check.NEEDS)


def instances(view: View | None) -> tuple[Instance, ...]:
    """For the join; empty where the list could not be read, or nobody asked."""
    return view.maybe(INSTANCES, ((), ""))[0][0] if view else ()


def cluster(view: View | None) -> Cluster | None:
    """The cluster, where AWS was asked and described it."""
    try:
        return view.get(CLUSTER) if view else None
    except Unknown:
        return None


def figures(view: View) -> dict[str, Any]:
    """The cluster in figures, for the report's head."""
    here = view.get(CLUSTER)
    states = Counter(instance.status for instance in instances(view))
    return {
        "cluster": here.name,
        "status": here.status,
        "region": view.region,
        "recovery": here.recovery,
        "instances": dict(sorted(states.items(), key=lambda pair: (-pair[1], pair[0]))),
        "identity": view.identity,
        "calls": dict(sorted(view.requests.items())),
    }


CHECKS = (
    aws_row("hyperpod", hyperpod, figures),
    aws_row("hyperpod_events", events),
    aws_row("security_groups", security_groups),
    aws_row("zones", zones),
    aws_row("health_agent", health_agent),
    aws_row("deep_checks", deep_checks),
    aws_row("lifecycle", lifecycle),
)
# Any of these says that the person means AWS; without, and off HyperPod, it is not asked.
AWS_ENV = ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_ENDPOINT_URL")


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
    empty = View({}, now, now - options.since)
    try:
        region = find_region(options, local)
        aws = aws or Aws(region, options.profile, seconds=options.seconds)
        identity = _identity(aws)
        name = find_cluster(options, local, aws)
    except Unknown as why:
        return replace(empty, trouble=why)
    view = replace(empty, region=region, identity=identity)
    answer: tuple[dict[str, Any], Cluster] | Unknown
    try:
        view = replace(view, old=aws.old())
        described = hyperpod.describe(aws, name)
        answer = described, _with_roles(hyperpod.parse_cluster(described), local)
    except NotFound:
        raise NoCluster(f"no cluster {name!r} in {region}; {_known(aws)}") from None
    except NoAccess as why:  # wrong for one call is wrong for all
        return replace(empty, trouble=why, region=region)
    except Unknown as why:
        answer = why
    source = Source(aws, name, answer, now, view.since, view.old)
    answers = read(source, view, [DESCRIBED, *(need for row in CHECKS for need in row.needs)])
    return replace(view, answers=answers, requests=dict(aws.requests))


# reading


def read(source: Source, view: View, needs: Iterable[Need[Any]]) -> dict[str, Any]:
    """Each need's answer by its name: the value, or the Skip or Unknown that came instead."""
    chains: dict[Need[Any], dict[Need[Any], None]] = {}  # by the need that comes after nothing; each once, in order
    for path in map(_path, needs):
        chains.setdefault(path[0], {}).update(dict.fromkeys(path))
    shares = [list(chains.values())[start::THREADS] for start in range(THREADS)]
    waits = [in_thread(partial(_read_chains, source, view, share)) for share in shares if share]
    return {name: answer for wait in waits for name, answer in wait().items()}


def _path(need: Need[Any]) -> list[Need[Any]]:
    """What must be read before it, first to last, and itself."""
    return [*(_path(need.after) if need.after else ()), need]


def _read_chains(source: Source, view: View, chains: Iterable[Iterable[Need[Any]]]) -> dict[str, Any]:
    answers: dict[str, Any] = {}
    for need in itertools.chain.from_iterable(chains):
        before = answers[need.after.name] if need.after else None
        known = replace(view, answers=answers)
        answers[need.name] = before if isinstance(before, Unknown) else _tried(partial(need.read, source, known))
    return answers


def _tried(work: Callable[[], T]) -> T | Skip | Unknown:
    """The value, or the Skip or Unknown that came instead; a surprise is an Unknown too."""
    try:
        return work()
    except (Skip, Unknown) as why:
        return why
    except Forbidden:
        raise
    except Exception as error:
        return Unknown(probe.reason(error))


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
    if view.trouble:
        return [Result("aws", UNKNOWN, clean(str(view.trouble)))]
    view = replace(view, partitions=partitions or {})
    return list(_merged(_result(row, view, policy) for row in CHECKS))


def _result(row: Row[View], view: View, policy: Policy) -> Result:
    try:
        return check.run(row, view, policy)
    except Skip as why:
        return Result(row.name, SKIP, clean(str(why)))


def _merged(results: Iterator[Result]) -> Iterator[Result]:
    """Checks that one missing permission kept from looking are one result, not seven."""
    together: dict[str, list[Result]] = {}
    for result in results:
        if result.outcome == UNKNOWN:
            together.setdefault(result.note, []).append(result)
        else:
            yield result
    for same in together.values():
        yield replace(same[0], probe=", ".join(result.probe for result in same))


def complete(view: View) -> bool:
    """Whether every instance was listed: only then can a node be said to have none."""
    (_, trouble), why = view.maybe(INSTANCES, ((), ""))
    return not trouble and not why


def readable(view: View) -> bool:
    """Whether AWS told anything of the cluster."""
    return bool(instances(view)) or cluster(view) is not None
