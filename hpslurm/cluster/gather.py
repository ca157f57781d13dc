"""``diagnose``: ask everything once, join, judge, and say what could not be asked.

What there is to look at stands in two tables of checks: ``checks.py`` and ``aws/checks.py``.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from hpslurm.cluster import checks, join, matrix, node_records
from hpslurm.cluster.aws import checks as aws_checks
from hpslurm.cluster.model import CONTROLLER, LOGIN, WORKER, Cluster, Gathered, Instance, Member, Members
from hpslurm.core import probe
from hpslurm.core.finding import Finding
from hpslurm.core.policy import Policy
from hpslurm.core.probe import SKIP, UNKNOWN, Result, Skip
from hpslurm.core.values import dataclass, replace
from hpslurm.sources import hyperpod, slurm
from hpslurm.sources.host import Host

if TYPE_CHECKING:
    from hpslurm.cluster.aws.view import View

T = TypeVar("T")
Chooser = Callable[[str], bool]
SECONDS = 45.0  # for all programs together; each waits about 10 s for a controller that is down


@dataclass(frozen=True)
class Half:
    """What came of it all. ``readable`` is False when neither Slurm nor AWS nor any record could be read."""

    results: tuple[Result, ...]
    members: Members
    readable: bool
    names: frozenset[str] = frozenset()  # every node that Slurm lists, else HyperPod; and ids of instances
    view: View | None = None  # what AWS told, where it was asked
    cluster: Cluster | None = None  # HyperPod's, where all its instances are known


@dataclass(frozen=True)
class _Answers:
    """What came of asking, before anything is joined; ``failed`` says what did not come."""

    layout: hyperpod.Layout
    listed: slurm.Nodes | None
    queue: tuple[slurm.Queued, ...]
    records: node_records.Kept
    view: View | None
    failed: tuple[Result, ...]
    checked: tuple[Result, ...]  # of the checks that ask something of their own

    @property
    def nodes(self) -> tuple[slurm.SlurmNode, ...]:
        return self.listed.nodes if self.listed else ()


def diagnose(
    host: Host,
    policy: Policy,
    folders: Sequence[str],
    only: Chooser | None = None,
    *,
    ask_slurm: bool,
    ask_aws: Callable[[hyperpod.Layout], View] | None = None,
    ask_nodes: Callable[[Members, View], tuple[Members, list[Result]]] | None = None,
    say: Callable[[str], None] = lambda what: None,
) -> Half:
    """``folders`` hold node records (``<node>.<hook>.jsonl``); ``only`` chooses nodes by name.

    ``ask_aws`` runs beside Slurm's programs; what goes wrong there stands in its view.
    ``ask_nodes`` may add records that it brought itself. ``say`` is told what is going on.
    """
    answers = _ask(host, policy, folders, ask_slurm, ask_aws, say)
    view = answers.view
    ids = instance_ids(answers.layout, view)
    only = by_name_or_id(only, ids)
    members = _join(answers, ids, only)
    results = list(answers.failed)
    if view and ask_nodes:
        say("asking nodes by SSM")
        members, brought = ask_nodes(members, view)
        results += brought
    say(f"judging {len(members.members)} nodes")
    records_of = partial(node_records.all_of, folders)
    cluster = _whole_cluster(view, members)
    kept_in = tuple(os.path.dirname(folder) for folder in folders)
    gathered = Gathered(members, answers.listed, answers.queue, cluster, records_of, kept_in)
    if view:
        answers = replace(answers, view=_as_slurm_calls_them(view, members))
    results += _judge(gathered, answers, policy, only)
    named = frozenset(node.name for node in answers.nodes)
    named = named or frozenset(instance.subject for instance in aws_checks.listed(view))
    readable = bool(answers.listed or answers.records.newest or (view and aws_checks.readable(view)))
    return Half(tuple(results), members, readable, named | frozenset(ids.values()), view, cluster)


# asking


def _ask(
    host: Host,
    policy: Policy,
    folders: Sequence[str],
    ask_slurm: bool,
    ask_aws: Callable[[hyperpod.Layout], View] | None,
    say: Callable[[str], None],
) -> _Answers:
    if ask_slurm:
        say("asking Slurm for its nodes and jobs")
        _start(host)
    failed: list[Result] = []
    layout = _tried("hyperpod_files", partial(hyperpod.layout, host), failed) or hyperpod.Layout()
    cloud = aws_checks.in_thread(partial(ask_aws, layout)) if ask_aws else None
    nodes = _tried("slurm_nodes", partial(slurm.nodes, host), failed) if ask_slurm else None
    queue = _tried("jobs", partial(slurm.queue, host), failed) if nodes else None
    say("reading the nodes' records")
    kept = node_records.read(folders)
    rows = checks.of_controller(kept.hooks) if nodes else checks.OF_DAEMONS if ask_slurm else ()
    checked = checks.asked(rows, host, policy)  # before AWS is waited for: the time for programs runs out meanwhile
    say("waiting for AWS" if cloud else "waiting for Slurm")
    view = cloud(None) if cloud else None
    return _Answers(layout, nodes, queue or (), kept, view, tuple(failed), tuple(checked))


def _start(host: Host) -> None:
    """The programs that are sure to be needed run side by side."""
    for name in () if slurm.has_pyslurm(host) else ("scontrol_nodes_json", "squeue"):
        slurm.start(host, name)
    for name in ("scontrol_ping", "scontrol_config"):
        slurm.start(host, name)


def _tried(name: str, ask: Callable[[], T], failed: list[Result]) -> T | None:
    """The answer; where there is none, None, and a result that says why."""
    try:
        return ask()
    except Skip:
        return None
    except Exception as error:
        failed.append(Result(name, UNKNOWN, probe.reason(error)))
        return None


# joining


def _join(answers: _Answers, ids: Mapping[str, str], only: Chooser | None) -> Members:
    """The nodes that were asked for; where Slurm lists none, those that left records count as nodes."""
    cluster = aws_checks.cluster(answers.view)
    instances = aws_checks.listed(answers.view)
    newest = answers.records.newest
    members = join.join(
        [node for node in answers.nodes if only is None or only(node.name)],
        time.time(),
        queue=answers.queue,
        records=newest,
        roles=roles(answers.layout),
        instance_ids=ids,
        instances=[instance for instance in instances if only is None or only(instance.subject)],
        cluster=cluster.name if cluster else answers.layout.cluster,
        recovery=cluster.recovery if cluster else "",
        region=answers.view.region if answers.view else "",
    )
    if answers.listed:
        return members
    there = {member.name for member in members.members}
    more = [newest[name] for name in sorted(newest) if name not in there and (only is None or only(name))]
    return replace(members, members=(*members.members, *(Member(record.node, record=record) for record in more)))


def instance_ids(layout: hyperpod.Layout, view: View | None) -> dict[str, str]:
    """Node name to instance id. AWS knows better than files, which are old after a replacement."""
    ids = {machine.name: machine.instance_id for machine in layout.machines}
    ids.update((instance.subject, instance.id) for instance in aws_checks.listed(view))
    return ids


def by_name_or_id(only: Chooser | None, ids: Mapping[str, str]) -> Chooser | None:
    """The same choice, which now takes a node by the id of its instance, too."""
    if only is None:
        return None
    chosen = only
    return lambda name: chosen(name) or chosen(ids.get(name, ""))


def roles(layout: hyperpod.Layout) -> dict[str, str]:
    """Which nodes are no workers, by HyperPod's own files; never guessed from a group's name."""
    role_of = {}
    for machine in layout.machines:
        if machine.address in layout.controllers or (machine.group and machine.group == layout.controller_group):
            role_of[machine.name] = CONTROLLER
        elif machine.group and machine.group == layout.login_group:
            role_of[machine.name] = LOGIN
        elif layout.controller_group:
            role_of[machine.name] = WORKER
    return role_of


def _whole_cluster(view: View | None, members: Members) -> Cluster | None:
    """HyperPod's cluster, where all its instances are known: only then can a node be said to have none."""
    cluster = aws_checks.cluster(view) if view and aws_checks.complete(view) else None
    if cluster is None:
        return None
    there = [instance for instance in aws_checks.listed(view) if instance.id != instance.logical]
    joined = {member.instance_id for member in members.members if member.slurm}
    nameless = [item for item in there if _without_name(item) and item.id not in joined]
    return replace(cluster, unlisted=max(0, cluster.counted - len(there)), nameless=len(nameless))


def _without_name(instance: Instance) -> bool:
    """Whether HyperPod lists it under no name by which a node of Slurm's could be found."""
    return not instance.address and not instance.heir and instance.role not in (CONTROLLER, LOGIN)


def _as_slurm_calls_them(view: View, members: Members) -> View:
    """What AWS told, with Slurm's own names for the machines: HyperPod may know them by another name, or by none."""
    names = {member.instance.id: member.name for member in members.members if member.instance and member.slurm}
    boots = {
        member.name: member.slurm.boot_time for member in members.members if member.slurm and member.slurm.boot_time
    }
    return aws_checks.renamed(view, names, boots)


# judging


def _judge(gathered: Gathered, answers: _Answers, policy: Policy, only: Chooser | None) -> list[Result]:
    members = gathered.members
    results = [*_of_slurm(gathered, policy), *answers.checked]
    if only is not None:
        results = [replace(result, findings=_about(result.findings, members)) for result in results]
    known = {node.name for node in answers.nodes} | {member.name for member in members.members}
    strangers = sorted(set(answers.records.newest) - known) if answers.listed else []
    if strangers:
        results.append(node_records.strangers(strangers))
    if answers.view:
        results += _of_aws(answers.view, answers.nodes, policy, only)
    results += checks.judged(checks.OF_BOTH, gathered, policy)
    results += node_records.results(members, policy, answers.records.unreadable)
    return [*results, *checks.judged(checks.OF_RECORDS, gathered, policy)]


def _of_slurm(gathered: Gathered, policy: Policy) -> list[Result]:
    """Slurm's findings on nodes have HyperPod's word on the same node beside them."""
    results = list(checks.judged(checks.OF_SLURM, gathered, policy))
    if gathered.slurm and gathered.slurm.note:
        results.insert(0, Result("pyslurm", SKIP, f"{gathered.slurm.note}; used {gathered.slurm.form}"))
    cluster = gathered.hyperpod
    if cluster is None:
        return results
    return [
        replace(result, findings=matrix.beside(result.findings, gathered.members, cluster))
        if result.probe == "slurm_nodes"
        else result
        for result in results
    ]


def _about(findings: Iterable[Finding], members: Members) -> tuple[Finding, ...]:
    """Findings of the whole cluster, or of a node that was chosen."""
    chosen = {member.name for member in members.members}
    return tuple(finding for finding in findings if not finding.subject or finding.subject in chosen)


def _of_aws(view: View, nodes: Iterable[slurm.SlurmNode], policy: Policy, only: Chooser | None) -> list[Result]:
    """HyperPod's half: findings of chosen nodes, of groups and of the cluster."""
    partitions: dict[str, list[str]] = {}
    for node in nodes:
        for partition in node.partitions:
            partitions.setdefault(partition, []).append(node.name)
    results = aws_checks.judge(view, policy, {name: tuple(names) for name, names in partitions.items()})
    if only is None:
        return results
    others = {instance.subject for instance in aws_checks.listed(view) if not only(instance.subject)}
    return [
        replace(result, findings=tuple(finding for finding in result.findings if finding.subject not in others))
        for result in results
    ]
