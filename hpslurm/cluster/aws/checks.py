"""The AWS half of ``diagnose``: read everything at once, then judge it.

What depends on nothing is read side by side, in at most eight threads. Whatever cannot
be read is reported with what would help, and takes nothing else with it.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, TypeVar

from hpslurm.cluster import check
from hpslurm.cluster.aws import (
    capacity,
    deep_checks,
    events,
    health_agent,
    hyperpod,
    instances,
    lifecycle,
    operations,
    patching,
    security_groups,
    training_logs,
    whom,
    zones,
)
from hpslurm.cluster.aws.hyperpod import INSTANCES
from hpslurm.cluster.aws.view import CLUSTER, DESCRIBED, AwsCheck, Need, Source, View
from hpslurm.cluster.aws.whom import IDENTITY, Options
from hpslurm.cluster.check import Row
from hpslurm.cluster.model import CONTROLLER, LOGIN, WORKER, Cluster, Instance
from hpslurm.core import probe
from hpslurm.core.policy import Policy
from hpslurm.core.probe import SKIP, UNKNOWN, Result, Skip, Unknown
from hpslurm.core.text import clean
from hpslurm.core.values import dataclass, replace
from hpslurm.sources.aws import OPERATIONS, THREADS, Aws
from hpslurm.sources.aws_errors import IAM, Denied, Forbidden, NoAccess, NoAnswer, NotFound, told
from hpslurm.sources.hyperpod import Layout

T = TypeVar("T")
Facts = TypeVar("Facts")
LOG_IN_SECONDS = 20.0  # a little longer than a program that hands out credentials may take


@dataclass(frozen=True)
class AwsRow(Row[View]):
    needs: tuple[Need[Any], ...] = ()


def aws_row(name: str, check: AwsCheck[Facts], figures: Callable[[View], dict[str, Any]] | None = None) -> AwsRow:
    return AwsRow(name, check, figures, check.NEEDS)


def listed(view: View | None) -> tuple[Instance, ...]:
    """For the join; empty where the list could not be read, or nobody asked."""
    return view.maybe(INSTANCES, ((), ""))[0][0] if view else ()


def cluster(view: View | None) -> Cluster | None:
    """The cluster, where AWS was asked and described it."""
    try:
        return view.get(CLUSTER) if view else None
    except Unknown:
        return None


def figures(view: View) -> dict[str, Any]:
    """The cluster in figures, for the report's head; instances that are counted and not listed are among them."""
    here = view.get(CLUSTER)
    states = Counter(instance.status or "no status" for instance in listed(view))
    there = sum(instance.id != instance.logical for instance in listed(view))
    states["counted but not listed"] = max(0, here.counted - there)
    return {
        "cluster": here.name,
        "status": here.status,
        "region": view.region,
        "recovery": here.recovery,
        "instances": {
            state: number for state, number in sorted(states.items(), key=lambda pair: (-pair[1], pair[0])) if number
        },
        "identity": view.identity,
        "calls": dict(sorted(view.requests.items())),
    }


CHECKS = (
    aws_row("hyperpod", hyperpod, figures),
    aws_row("hyperpod_instances", instances),
    aws_row("hyperpod_capacity", capacity),
    aws_row("hyperpod_events", events),
    aws_row("hyperpod_operations", operations),
    aws_row("hyperpod_patching", patching),
    aws_row("security_groups", security_groups),
    aws_row("zones", zones),
    aws_row("health_agent", health_agent),
    aws_row("deep_checks", deep_checks),
    aws_row("lifecycle", lifecycle),
    aws_row("training_logs", training_logs),
)


def collect(options: Options, local: Layout | None = None, now: float | None = None, *, aws: Aws | None = None) -> View:
    """Everything that AWS can tell, within ``options.seconds``. Whatever goes wrong stands in the view.

    ``local`` is what HyperPod's own files on this node say, where it is a HyperPod node.
    """
    now = time.time() if now is None else now
    view = View({}, now, now - options.since, profile=options.profile)
    try:
        view, source = _begun(options, local or Layout(), view, aws)
        answers = read(source, view, [DESCRIBED, IDENTITY, *(need for row in CHECKS for need in row.needs)])
    except Forbidden:
        raise
    except Unknown as why:
        return replace(view, trouble=why)
    except Exception as error:  # one rule: whatever happens here, Slurm's half is told
        return replace(view, trouble=Unknown(f"AWS could not be asked: {told(error)}"))
    view = replace(view, answers=answers, requests=dict(source.aws.requests))
    return replace(view, identity=view.maybe(IDENTITY, "")[0])


def _begun(options: Options, local: Layout, view: View, aws: Aws | None) -> tuple[View, Source]:
    """Whom to ask for which cluster, and what DescribeCluster says, on which most of the rest hangs."""
    region = whom.find_region(options, local)
    view = replace(view, region=region)
    aws = aws or Aws(region, options.profile, seconds=options.seconds)
    in_time(aws.log_in, LOG_IN_SECONDS, "credentials")
    name = in_time(partial(whom.find_cluster, options, local, aws), aws.left, "sagemaker:ListClusters")
    view = replace(view, old=aws.old())
    answer: tuple[dict[str, Any], Cluster] | Unknown
    try:
        described = in_time(partial(hyperpod.describe, aws, name), aws.left, "sagemaker:DescribeCluster")
        answer = described, _with_roles(hyperpod.parse_cluster(described), local)
    except NotFound:
        raise whom.no_cluster(name, options, aws) from None
    except NoAccess:  # wrong for one call is wrong for all
        raise
    except Unknown as why:
        answer = why
    return view, Source(aws, name, answer, view.now, view.since, view.old)


def renamed(view: View, names: Mapping[str, str], boots: Mapping[str, float]) -> View:
    """The view with Slurm's names for instances, by their ids, and when Slurm's nodes were booted."""
    (listed, trouble), why = view.maybe(INSTANCES, ((), ""))
    if why:
        return replace(view, boots=boots)
    told = tuple(replace(item, node=names.get(item.id, item.node)) for item in listed)
    return replace(view, answers={**view.answers, INSTANCES.name: (told, trouble)}, boots=boots)


# reading


def read(source: Source, view: View, needs: Iterable[Need[Any]]) -> dict[str, Any]:
    """Each need's answer by its name: the value, or the Skip or Unknown that came instead.

    What has not come when the time is over is Unknown; its thread is left behind.
    """
    chains: dict[Need[Any], dict[Need[Any], None]] = {}  # by the need that comes after nothing; each once, in order
    for path in map(_path, needs):
        chains.setdefault(path[0], {}).update(dict.fromkeys(path))
    shares = [list(chains.values())[start::THREADS] for start in range(THREADS)]
    answers: dict[str, Any] = {}
    waits = [in_thread(partial(_read_chains, source, view, share, answers)) for share in shares if share]
    for wait in waits:
        wait(source.aws.left)
    late = Unknown(f"AWS's answers took longer than {source.aws.seconds:.0f} s; run again in a few minutes")
    return {need.name: answers.get(need.name, late) for chain in chains.values() for need in chain}


def _path(need: Need[Any]) -> list[Need[Any]]:
    """What must be read before it, first to last, and itself."""
    return [*(_path(need.after) if need.after else ()), need]


def _read_chains(source: Source, view: View, chains: Iterable[Iterable[Need[Any]]], answers: dict[str, Any]) -> None:
    for need in itertools.chain.from_iterable(chains):
        before = answers[need.after.name] if need.after else None
        known = replace(view, answers=dict(answers))
        answers[need.name] = before if isinstance(before, Unknown) else _tried(partial(need.read, source, known))


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


def in_thread(work: Callable[[], T]) -> Callable[[float | None], T | None]:
    """Start it; the returned function waits so many seconds, and returns or raises what it did; None: not done yet.

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

    def wait(seconds: float | None = None) -> T | None:
        thread.join(seconds)
        if failed:
            raise failed[0]
        return done[0] if done else None

    return wait


def in_time(work: Callable[[], T], seconds: float, what: str) -> T:
    """What it returns or raises. Raises NoAnswer where that takes longer."""
    done: list[T] = []
    in_thread(lambda: done.append(work()))(seconds)
    if not done:
        raise NoAnswer(f"{what}: nothing came within {seconds:.0f} s")
    return done[0]


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
    results = list(_merged(_result(row, view, policy) for row in CHECKS))
    return [*results, *_permissions(view)]


def _result(row: Row[View], view: View, policy: Policy) -> Result:
    try:
        return check.run(row, view, policy)
    except Skip as why:
        return Result(row.name, SKIP, clean(str(why)))


def _merged(results: Iterator[Result]) -> Iterator[Result]:
    """Checks that one missing permission kept from looking are one result, not seven."""
    together: dict[str, list[Result]] = {}
    for result in results:
        if result.outcome == UNKNOWN and not result.facts:  # the one with figures is the report's head
            together.setdefault(result.note, []).append(result)
        else:
            yield result
    for same in together.values():
        yield replace(same[0], probe=", ".join(result.probe for result in same))


def _permissions(view: View) -> list[Result]:
    """What the role lacks, all of it at once: asked for one a day, nine permissions take more than a week."""
    denied = [str(answer) for answer in view.answers.values() if isinstance(answer, Denied)]
    if not isinstance(view.answers.get(CLUSTER.name), Denied):
        return []
    lacking = sorted({text.split()[1].rstrip(",") for text in denied})
    tried = {*lacking, *view.requests}
    rest = [operation.action for operation in OPERATIONS if not operation.free and operation.action not in tried]
    words = (
        f"the role lacks {', '.join(lacking)}; without it these could not be tried: {', '.join(rest)}. "
        f"hpslurm iam-policy --region {view.region} prints all of it as one policy, {IAM}"
    )
    return [Result("aws_permissions", UNKNOWN, words)]


def complete(view: View) -> bool:
    """Whether every instance was listed: only then can a node be said to have none."""
    (_, trouble), why = view.maybe(INSTANCES, ((), ""))
    return not trouble and not why


def readable(view: View) -> bool:
    """Whether AWS told anything of the cluster."""
    return bool(listed(view)) or cluster(view) is not None
