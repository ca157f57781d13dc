"""The nodes' own records: what they found, what they could not look at, and who left none."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from hpslurm.cluster import slurm_nodes
from hpslurm.cluster.model import CONTROLLER, LOGIN, Member, Members
from hpslurm.core import nodeset, records
from hpslurm.core.finding import LOOK, P2, Finding, Rule, Suggestion
from hpslurm.core.policy import Policy
from hpslurm.core.probe import FAIL, PASS, SKIP, UNKNOWN, Result
from hpslurm.core.records import Record, Unreadable
from hpslurm.core.values import dataclass, replace

T = TypeVar("T")
NO_RECORD = Rule("record-missing", P2, "Nodes that were not looked at", "operations.md § 7")
NAME = "node_records"  # of the results
MOST_AT_ONCE = 512  # nodes in one srun line
COLLECT = (
    "mkdir -p reports && srun -w {} --ntasks-per-node=1 --immediate=60 "
    "--output=reports/%j-%n.check.jsonl hpslurm-check --json"
)
_NODE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")


@dataclass(frozen=True)
class Kept:
    """What the folders hold: the newest record of each node, and which hooks left any."""

    newest: dict[str, Record]
    unreadable: tuple[Unreadable, ...]
    hooks: frozenset[str]


# reading


def folders_of(policy: Policy, root: str) -> list[str]:
    """Where records are: the shared folder if the site names one, and this machine's own."""
    base = root.rstrip("/")
    return [f"{base}{path}/nodes" for path in dict.fromkeys((policy.results_shared, policy.results)) if path]


def read(folders: Iterable[str]) -> Kept:
    kept: list[Record] = []
    unreadable: list[Unreadable] = []
    for folder in folders:
        of_folder, not_read = records.read_folder(folder, named=False)
        kept += (replace(record, node=node_of(record)) for record in of_folder)
        unreadable += not_read
    return Kept(records.newest(kept), tuple(unreadable), frozenset(record.hook for record in kept))


def node_of(record: Record) -> str:
    """The node that a record says it is of: srun cannot put Slurm's node name into a file name."""
    named = record.run.get("node")
    return named if isinstance(named, str) and _NODE_NAME.fullmatch(named) else record.node


def all_of(folders: Iterable[str], node: str) -> list[Record]:
    """Every record of a node that is kept, of the jobs beside the folders of node records too."""
    return [record for folder in folders for record in records.all_records(folder.removesuffix("/nodes"), node)[0]]


# judging


def results(members: Members, policy: Policy, unreadable: Sequence[Unreadable]) -> list[Result]:
    """What the nodes said of themselves: findings, what they could not look at, and who said nothing."""
    # no job step ever runs on a controller or login node that Slurm does not list
    nodes = [member for member in members.members if member.slurm or member.role not in (CONTROLLER, LOGIN)]
    fresh = {member.name for member in nodes if _is_fresh(member, members, policy)}
    hidden = {record.node for record in unreadable}  # those left a record, and it is we who cannot read it
    silent = [member.name for member in nodes if member.name not in fresh | hidden]
    findings = tuple(finding if finding.muted else policy.mute(finding) for finding in _findings(nodes))
    made = []
    if findings or fresh:
        made.append(Result(NAME, FAIL if findings else PASS, facts={"fresh": len(fresh)}, findings=findings))
    made += (Result(name, UNKNOWN, note) for name, note in _not_checked(nodes))
    dropped = _names_by((member.dropped, member.name) for member in nodes if member.dropped)
    made += (Result(NAME, SKIP, f"{nodeset.fold(names)}: {why}") for why, names in dropped.items())
    made += (Result(NAME, UNKNOWN, line) for line in _not_read(unreadable))
    if silent:
        made.append(_without_record(silent, members, policy))
    return made


def strangers(names: Iterable[str]) -> Result:
    return Result(NAME, SKIP, f"{nodeset.fold(names)}: a record, but no node of that name in Slurm")


def _is_fresh(member: Member, members: Members, policy: Policy) -> bool:
    record = member.record
    return record is not None and members.now - (record.run.get("time") or 0) <= policy.report_fresh


def _findings(nodes: Iterable[Member]) -> Iterator[Finding]:
    """By the name that Slurm lists: the record's own word for its node may differ."""
    for member in nodes:
        for finding in member.record.findings if member.record else ():
            yield replace(finding, subject=member.name)


def _not_checked(nodes: Iterable[Member]) -> Iterator[tuple[str, str]]:
    """Probe and note, for each kind of thing that some nodes could not look at."""
    unknown = _names_by((what, member.name) for member in nodes if member.record for what in _unknown(member.record))
    for (name, note), names in unknown.items():
        yield name, f"{nodeset.fold(names)}: {note}"


def _unknown(record: Record) -> Iterator[tuple[str, str]]:
    for result in record.results:
        if result.outcome == UNKNOWN:
            yield result.probe, result.note
    if not record.complete:
        yield "the rest of the record", "the hook was cut off"


def _not_read(unreadable: Sequence[Unreadable]) -> Iterator[str]:
    """A line for each folder and reason with its nodes, then one for each folder that could not be read at all."""
    refused = [record for record in unreadable if record.node]
    nodes = _names_by((f"{os.path.dirname(record.path)}: {record.why}", record.node) for record in refused)
    for where, names in nodes.items():
        yield f"records of {nodeset.fold(names)} in {where}"
    yield from (str(record) for record in unreadable if not record.node)


def _names_by(pairs: Iterable[tuple[T, str]]) -> dict[T, list[str]]:
    grouped: dict[T, list[str]] = {}
    for key, name in pairs:
        grouped.setdefault(key, []).append(name)
    return grouped


def _without_record(silent: list[str], members: Members, policy: Policy) -> Result:
    """Who has no fresh record, and the line that makes them: a person runs it, and diagnose reads what it brought."""
    nodes = {member.name: member.slurm for member in members.members}
    up = [name for name in silent if (node := nodes[name]) and not slurm_nodes.is_out(node)]
    looks = [
        Suggestion(
            LOOK,
            f"look at {len(up[at : at + MOST_AT_ONCE])} of them now",
            COLLECT.format(shlex.quote(nodeset.fold(up[at : at + MOST_AT_ONCE]))),
        )
        for at in range(0, len(up), MOST_AT_ONCE)
    ]
    if looks:
        looks.append(Suggestion(LOOK, "then read what came", "hpslurm diagnose --reports reports"))
    finding = NO_RECORD.found(
        f"{len(silent):,} of {len(nodes):,} nodes left no record in the last {policy.report_fresh / 3600:g} h: "
        f"{nodeset.fold(silent)}",
        suggest=looks,
    )
    # without Slurm's word nobody knows where a job can start
    nowhere = not up and any(nodes[name] for name in silent)
    note = f"no fresh record of {nodeset.fold(silent)}" + ("; no job can start there now" if nowhere else "")
    return Result(NAME, UNKNOWN, note, findings=(policy.mute(finding),))
