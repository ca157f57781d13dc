"""Slurm's half of ``diagnose``: ask everything once, judge, and say what could not be asked."""

from __future__ import annotations

import os
import re
import shlex
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from hpslurm.cluster import accounting, controllers, gpu_again, join, matrix, queue, slurm_conf, slurm_nodes
from hpslurm.cluster.aws import checks
from hpslurm.cluster.model import CONTROLLER, LOGIN, WORKER, Member, Members
from hpslurm.core import nodeset, probe, records
from hpslurm.core.finding import LOOK, P2, Finding, Rule, Suggestion
from hpslurm.core.policy import Policy
from hpslurm.core.probe import FAIL, PASS, SKIP, UNKNOWN, Result, Skip
from hpslurm.core.values import dataclass, replace
from hpslurm.setup import hook_lines
from hpslurm.sources import hyperpod, slurm
from hpslurm.sources.host import Host

if TYPE_CHECKING:
    from hpslurm.cluster.aws.view import View

T = TypeVar("T")
NODE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")
NO_RECORD = Rule("record-missing", P2, "Nodes that were not looked at", "operations.md § 7")
MOST_AT_ONCE = 512  # nodes in one srun line
COLLECT = (
    "mkdir -p reports && srun -w {} --ntasks-per-node=1 --immediate=60 "
    "--output=reports/%j-%n.check.jsonl hpslurm-check --json"
)

SECONDS = 45.0  # for all programs together; each waits about 10 s for a controller that is down


@dataclass(frozen=True)
class Half:
    """What Slurm's side brought. ``readable`` is False when neither Slurm nor any record could be read."""

    results: tuple[Result, ...]
    members: Members
    readable: bool
    names: frozenset[str] = frozenset()  # every node that Slurm lists, else HyperPod; and ids of instances
    view: View | None = None  # what AWS told, where it was asked


def look(
    host: Host,
    policy: Policy,
    folders: Sequence[str],
    only: Callable[[str], bool] | None = None,
    *,
    ask_slurm: bool = True,
    ask_aws: Callable[[hyperpod.Layout], View] | None = None,
    ask_nodes: Callable[[Members, View], tuple[Members, list[Result]]] | None = None,
) -> Half:
    """``folders`` hold node records (``<node>.<hook>.jsonl``); ``only`` chooses nodes by name.

    ``ask_aws`` runs beside Slurm's programs. It may raise NoCluster, which is passed on.
    ``ask_nodes`` may add records that it brought itself.
    """
    if ask_slurm:
        if not slurm.has_pyslurm(host):
            slurm.start(host, "scontrol_nodes_json")
            slurm.start(host, "squeue")
        controllers.start(host)
    results: list[Result] = []

    def asked(name: str, ask: Callable[[], T], otherwise: T) -> T:
        try:
            return ask()
        except Skip:
            return otherwise
        except Exception as error:
            results.append(Result(name, UNKNOWN, probe.reason(error)))
            return otherwise

    nothing: tuple[slurm.Queued, ...] = ()
    layout = asked("hyperpod_files", lambda: hyperpod.layout(host), hyperpod.Layout())
    cloud = checks.in_thread(partial(ask_aws, layout)) if ask_aws else None
    found = asked("slurm_nodes", lambda: slurm.nodes(host), None) if ask_slurm else None
    jobs = asked("jobs", lambda: slurm.queue(host), nothing) if found else nothing
    kept, unreadable, ran = read_folders(folders)
    asides = []  # before AWS is waited for: the time for programs runs out meanwhile
    if found:
        asides.append(probe.run("accounting", accounting, host, policy))
        asides.append(probe.run("slurm_conf", slurm_conf, host, policy))
        asides.append(probe.run("hooks", _Hooks(ran), host, policy))
    if ask_slurm:
        asides.append(probe.run("controllers", controllers, host, policy))
    view = cloud() if cloud else None
    nodes = found.nodes if found else ()
    ids = instance_ids(layout, view)
    only = by_name_or_id(only, ids)
    wanted = [one for one in nodes if only is None or only(one.name)]
    members = join.join(
        wanted,
        time.time(),
        queue=jobs,
        records=kept,
        roles=roles(layout),
        instance_ids=ids,
        **_of_view(view, only),
        cluster=_cluster_name(view) or layout.cluster,
    )
    if not found:
        there = {one.name for one in members.members}
        known = [kept[name] for name in sorted(kept) if name not in there and (only is None or only(name))]
        members = replace(members, members=(*members.members, *(Member(one.node, record=one) for one in known)))
    if view and ask_nodes:
        members, told = ask_nodes(members, view)
        results += told
    if found:
        facts = {"form": found.form, "nodes": len(wanted), "states": states(wanted)}
        if found.note:
            results.append(Result("pyslurm", SKIP, f"{found.note}; used {found.form}"))
        results.append(judged("slurm_nodes", lambda: slurm_nodes.judge(members, policy), policy, facts))
        everyone = replace(members, members=tuple(Member(one.name, one) for one in nodes))
        results.append(judged("jobs", lambda: queue.judge(queue.Facts(jobs, everyone), policy), policy))
    results += asides
    if only is not None:
        results = [replace(one, findings=_about(one.findings, members)) for one in results]
    named = {one.name for one in nodes} | {one.name for one in members.members}
    strangers = sorted(set(kept) - named) if found else []
    if strangers:
        results.append(
            Result("node_records", SKIP, f"{nodeset.fold(strangers)}: a record, but no node of that name in Slurm")
        )
    if view:
        results = beside(results, view, members)
        results += of_aws(view, members, nodes, policy, only)
    results += of_records(members, policy, unreadable)
    if any(gpu_again.faulty(one) for one in members.members):
        results.append(judged("gpu_again", lambda: gpu_again.judge(members, partial(all_of, folders)), policy))
    names = frozenset(one.name for one in nodes) or frozenset(one.subject for one in checks.instances(view))
    names |= frozenset(ids.values())
    readable = bool(found or kept or (view and checks.readable(view)))
    return Half(tuple(results), members, readable, names, view)


def instance_ids(layout: hyperpod.Layout, view: View | None) -> dict[str, str]:
    """Node name to instance id. AWS knows better than files, which are old after a replacement."""
    ids = {one.name: one.instance_id for one in layout.machines}
    ids.update((one.subject, one.id) for one in checks.instances(view))
    return ids


def by_name_or_id(only: Callable[[str], bool] | None, ids: Mapping[str, str]) -> Callable[[str], bool] | None:
    """The same choice, which now takes a node by the id of its instance, too."""
    if only is None:
        return None
    chosen = only
    return lambda name: chosen(name) or chosen(ids.get(name, ""))


def beside(results: list[Result], view: View, members: Members) -> list[Result]:
    """Slurm's findings, with HyperPod's word on the same node beside them."""
    cluster = checks.cluster(view)
    if cluster is None or not checks.complete(view):
        return results
    return [
        replace(one, findings=matrix.beside(one.findings, members, cluster)) if one.probe == "slurm_nodes" else one
        for one in results
    ]


def of_aws(
    view: View,
    members: Members,
    nodes: Sequence[slurm.SlurmNode],
    policy: Policy,
    only: Callable[[str], bool] | None,
) -> list[Result]:
    """HyperPod's half, and what only both together can tell."""
    partitions: dict[str, list[str]] = {}
    for node in nodes:
        for partition in node.partitions:
            partitions.setdefault(partition, []).append(node.name)
    results = checks.judge(view, policy, {name: tuple(some) for name, some in partitions.items()})
    if only is not None:
        others = {one.subject for one in checks.instances(view) if not only(one.subject)}
        results = [
            replace(one, findings=tuple(item for item in one.findings if item.subject not in others)) for one in results
        ]
    cluster = checks.cluster(view)
    if nodes and cluster and checks.complete(view):
        results.append(judged("slurm_and_hyperpod", lambda: matrix.judge(members, cluster, policy), policy))
    return results


def _of_view(view: View | None, only: Callable[[str], bool] | None) -> Mapping[str, Any]:
    cluster = checks.cluster(view)
    instances = [one for one in checks.instances(view) if only is None or only(one.subject)]
    return {
        "instances": instances,
        "recovery": cluster.recovery if cluster else "",
        "region": view.region if view else "",
    }


def _cluster_name(view: View | None) -> str:
    cluster = checks.cluster(view)
    return cluster.name if cluster else ""


def _about(findings: Iterable[Finding], members: Members) -> tuple[Finding, ...]:
    """Findings of the whole cluster, or of a node that was chosen."""
    chosen = {one.name for one in members.members}
    return tuple(one for one in findings if not one.subject or one.subject in chosen)


class _Hooks:
    """The hooks check, with what the records know of them."""

    __name__ = hook_lines.__name__

    def __init__(self, ran: frozenset[str]) -> None:
        self.ran = ran

    def collect(self, host: Host) -> hook_lines.Facts:
        return hook_lines.collect(host, self.ran)

    judge = staticmethod(hook_lines.judge)


def judged(name: str, judge: Callable[[], Iterable[Finding]], policy: Policy, facts: object = None) -> Result:
    findings = tuple(policy.mute(finding) for finding in judge())
    return Result(name, FAIL if findings else PASS, facts=probe.plain(facts), findings=findings)


def all_of(folders: Sequence[str], node: str) -> list[records.Record]:
    """Every record of a node that is kept, of the jobs beside the folders of node records too."""
    return [one for folder in folders for one in records.all_records(folder.removesuffix("/nodes"), node)[0]]


def states(nodes: Iterable[slurm.SlurmNode]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for node in nodes:
        counts[node.words] = counts.get(node.words, 0) + 1
    return dict(sorted(counts.items(), key=lambda pair: (-pair[1], pair[0])))


def roles(layout: hyperpod.Layout) -> dict[str, str]:
    """Which nodes are no workers, by HyperPod's own files; never guessed from a group's name."""
    found = {}
    for one in layout.machines:
        if one.address in layout.controllers or (one.group and one.group == layout.controller_group):
            found[one.name] = CONTROLLER
        elif one.group and one.group == layout.login_group:
            found[one.name] = LOGIN
        elif layout.controller_group:
            found[one.name] = WORKER
    return found


# records


def read_folders(folders: Sequence[str]) -> tuple[dict[str, records.Record], list[records.Unreadable], frozenset[str]]:
    """The newest record of each node over all folders, what could not be read, and which hooks left any."""
    found: list[records.Record] = []
    unreadable: list[records.Unreadable] = []
    for folder in folders:
        of_folder, not_read = records.read_folder(folder)
        found += (replace(record, node=node_of(record)) for record in of_folder)
        unreadable += not_read
    return records.newest(found), unreadable, frozenset(one.hook for one in found)


def node_of(record: records.Record) -> str:
    """The node that a record says it is of: srun cannot put Slurm's node name into a file name."""
    named = record.run.get("node")
    return named if isinstance(named, str) and NODE_NAME.fullmatch(named) else record.node


def of_records(members: Members, policy: Policy, unreadable: Sequence[records.Unreadable]) -> list[Result]:
    """What the nodes said of themselves: findings, what they could not look at, and who said nothing."""
    results = []
    findings: list[Finding] = []
    unknown: dict[tuple[str, str], list[str]] = {}
    fresh = 0
    silent: list[str] = []
    dropped: dict[str, list[str]] = {}
    hidden = {record.node for record in unreadable}
    for member in members.members:
        if member.slurm is None and member.role in (CONTROLLER, LOGIN):
            continue  # no job step ever runs there
        record = member.record
        if member.dropped:
            dropped.setdefault(member.dropped, []).append(member.name)
        if record is None or members.now - (record.run.get("time") or 0) > policy.report_fresh:
            if member.name not in hidden:  # those left a record, and it is we who cannot read it
                silent.append(member.name)
            if record is None:
                continue
        else:
            fresh += 1
        for result in record.results:
            if result.outcome == UNKNOWN:
                unknown.setdefault((result.probe, result.note), []).append(member.name)
            # the record's own word for its node may differ from the name that Slurm lists
            findings += (replace(one, subject=member.name) for one in result.findings)
        if not record.complete:
            unknown.setdefault(("the rest of the record", "the hook was cut off"), []).append(member.name)
    muted = tuple(one if one.muted else policy.mute(one) for one in findings)
    if muted or fresh:
        results.append(Result("node_records", FAIL if muted else PASS, facts={"fresh": fresh}, findings=muted))
    for (name, note), nodes in unknown.items():
        results.append(Result(name, UNKNOWN, f"{nodeset.fold(nodes)}: {note}"))
    for why, nodes in dropped.items():
        results.append(Result("node_records", SKIP, f"{nodeset.fold(nodes)}: {why}"))
    results += (Result("node_records", UNKNOWN, line) for line in not_read(unreadable))
    if silent:
        results.append(never_looked_at(silent, members, policy))
    return results


def not_read(unreadable: Sequence[records.Unreadable]) -> Iterator[str]:
    """A line for each folder and reason with its nodes, then one for each folder that could not be read at all."""
    nodes: dict[str, list[str]] = {}
    for record in unreadable:
        if record.node:
            nodes.setdefault(f"{os.path.dirname(record.path)}: {record.why}", []).append(record.node)
    for where, names in nodes.items():
        yield f"records of {nodeset.fold(names)} in {where}"
    yield from (str(folder) for folder in unreadable if not folder.node)


def never_looked_at(silent: list[str], members: Members, policy: Policy) -> Result:
    """Who has no fresh record, and the line that makes them: a person runs it, and diagnose reads what it brought."""
    nodes = {one.name: one.slurm for one in members.members}
    up = [name for name in silent if (node := nodes[name]) and not slurm_nodes.is_out(node)]
    look = [
        Suggestion(
            LOOK,
            f"look at {len(up[at : at + MOST_AT_ONCE])} of them now",
            COLLECT.format(shlex.quote(nodeset.fold(up[at : at + MOST_AT_ONCE]))),
        )
        for at in range(0, len(up), MOST_AT_ONCE)
    ]
    if look:
        look.append(Suggestion(LOOK, "then read what came", "hpslurm diagnose --reports reports"))
    found = NO_RECORD.found(
        f"{len(silent)} of {len(nodes)} nodes left no record in the last {policy.report_fresh / 3600:g} h: "
        f"{nodeset.fold(silent)}",
        suggest=look,
    )
    asked = any(nodes[name] for name in silent)  # without Slurm's word nobody knows where a job can start
    note = f"no fresh record of {nodeset.fold(silent)}" + ("" if up or not asked else "; no job can start there now")
    return Result("node_records", UNKNOWN, note, findings=(policy.mute(found),))


def record_folders(rules: Policy, root: str) -> list[str]:
    """Where records are: the shared folder if the site names one, and this machine's own."""
    base = root.rstrip("/")
    return [f"{base}{path}/nodes" for path in dict.fromkeys((rules.results_shared, rules.results)) if path]
