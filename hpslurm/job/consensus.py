"""Consensus: which node of a job differs from the others, in versions or in settings?

Pure: from what each node's look recorded to findings that name the odd ones out. The
majority is taken to be right; where there is none, every group is named, because then
nobody can say which node is at fault.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from hpslurm.core.finding import CONFIGURE, LOOK, P1, Evidence, Finding, Rule, Suggestion
from hpslurm.core.probe import Result
from hpslurm.core.text import clean
from hpslurm.core.values import dataclass
from hpslurm.node import versions

SECTION = "debugging-guide.md § 10"
VERSIONS = Rule("versions-differ", P1, "Nodes of one job have different versions", SECTION)
ENVIRONMENT = Rule("environment-differs", P1, "Nodes of one job have different settings", SECTION)
NOT_SET = "not set"
# Settings that are meant to differ between nodes.
OWN = ("NCCL_HOSTID", "NCCL_DEBUG_FILE", "NCCL_TOPO_DUMP_FILE", "NCCL_GRAPH_DUMP_FILE")


@dataclass(frozen=True)
class Split:
    """One thing on which nodes differ: each value with its nodes, the commonest first.

    ``odd`` are the nodes outside the majority: all of them where more than half agree on nothing.
    """

    what: str
    groups: tuple[tuple[str, tuple[str, ...]], ...]
    odd: tuple[str, ...]

    @property
    def wanted(self) -> str:
        """The majority's value, or empty where there is no majority."""
        return self.groups[0][0] if self.has_majority else ""

    @property
    def has_majority(self) -> bool:
        return len(self.odd) < sum(len(nodes) for _, nodes in self.groups)


def splits(tables: Mapping[str, Mapping[str, str]], *, absent: str | None = None) -> list[Split]:
    """Where the nodes' tables of name and value differ.

    With ``absent``, a node that lacks a name counts with that value; without, it is left out,
    because what could not be found out is no difference.
    """
    differing = []
    for what in sorted({name for table in tables.values() for name in table}):
        groups: dict[str, list[str]] = {}
        for node in sorted(tables):
            value = tables[node].get(what) or absent
            if value is not None:
                groups.setdefault(value, []).append(node)
        if len(groups) < 2:
            continue
        ranked = sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
        total = sum(len(nodes) for nodes in groups.values())
        majority = len(ranked[0][1]) * 2 > total
        odd = [node for value, nodes in ranked if not (majority and value == ranked[0][0]) for node in nodes]
        differing.append(Split(what, tuple((value, tuple(nodes)) for value, nodes in ranked), tuple(sorted(odd))))
    return differing


def judge(nodes: Mapping[str, Sequence[Result]]) -> Iterator[Finding]:
    """Findings over the results of all nodes; each odd node is the subject of one finding per rule."""
    known = {node: _versions(results) for node, results in nodes.items()}
    yield from _findings(VERSIONS, splits({node: table for node, table in known.items() if table}))
    settings = {node: table for node, results in nodes.items() if (table := _settings(results)) is not None}
    yield from _findings(ENVIRONMENT, splits(settings, absent=NOT_SET))


def _facts(results: Iterable[Result], probe: str) -> Mapping[str, Any] | None:
    return next((result.facts for result in results if result.probe == probe and result.facts), None)


def _versions(results: Iterable[Result]) -> dict[str, str]:
    facts = _facts(results, "versions") or {}
    return {name: clean(str(facts[name]), 80) for name in versions.COMPARED if facts.get(name)}


def _settings(results: Iterable[Result]) -> dict[str, str] | None:
    facts = _facts(results, "nccl_env")
    settings = facts.get("settings") if facts else None
    if not isinstance(settings, dict):
        return None
    return {clean(str(name), 80): clean(str(value), 160) for name, value in settings.items() if name not in OWN}


def _findings(rule: Rule, differing: list[Split]) -> Iterator[Finding]:
    for node in sorted({node for split in differing for node in split.odd}):
        mine = [split for split in differing if node in split.odd]
        yield rule.found(
            "; ".join(_told(split, node) for split in mine),
            subject=node,
            evidence=[
                Evidence(split.what, ", ".join(f"{value} on {_count(group)}" for value, group in split.groups[:6]))
                for split in mine
            ],
            suggest=[
                Suggestion(LOOK, "look again at all nodes", "hpslurm check --all-nodes"),
                Suggestion(
                    CONFIGURE,
                    "the same image and installer everywhere; pin versions in the lifecycle script, so that a "
                    "replaced node gets them, too"
                    if rule is VERSIONS
                    else "settings that differ come from a node's own nccl.conf, profile or container",
                ),
            ],
        )


def _told(split: Split, node: str) -> str:
    value = next(value for value, group in split.groups if node in group)
    if split.has_majority:
        return f"{split.what} {value}, {split.wanted} on {_count(split.groups[0][1])}"
    return f"{split.what} {value}, and no value that more than half of the nodes have"


def _count(nodes: Sequence[str]) -> str:
    return f"{len(nodes)} node{'s' if len(nodes) != 1 else ''}"
