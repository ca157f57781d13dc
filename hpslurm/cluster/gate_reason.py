"""Drained by our own gate: Slurm says "Prolog error" whatever the prolog found, the node's record says what it was.

Whoever reads ``sinfo -R`` next should read that, too, so the command that writes it there is suggested.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

from hpslurm.cluster import reasons, slurm_nodes
from hpslurm.cluster.model import Gathered
from hpslurm.core.finding import CONFIGURE, P2, Evidence, Finding, Rule, Suggestion
from hpslurm.core.policy import Policy
from hpslurm.core.probe import Skip
from hpslurm.core.records import Record
from hpslurm.core.text import clean
from hpslurm.sources.slurm import SlurmNode

GATED = Rule("node-gated", P2, "Drained by the gate: its record has the reason", "debugging-guide.md § 8")
PROLOG_ERROR = "reason-prolog-error"
NEAR = 600.0  # seconds between a prolog and the drain that it caused: its time limit, and clocks that differ
_RULE_ID = re.compile(r"[a-z][a-z0-9-]{0,60}")

Facts = tuple[tuple[SlurmNode, Record], ...]  # nodes drained with a prolog's error, each with the record of that prolog


def collect(gathered: Gathered) -> Facts:
    drained = [member.slurm for member in gathered.members.members if member.slurm and _by_prolog(member.slurm)]
    if not drained:
        raise Skip("no node was drained by a prolog")
    pairs = ((node, _of_drain(gathered.records_of(node.name), node)) for node in drained)
    return tuple((node, record) for node, record in pairs if record)


def _by_prolog(node: SlurmNode) -> bool:
    if not slurm_nodes.is_out(node) or not node.reason:
        return False
    reading = reasons.read(node.reason)
    if reading.action or reading.meant or reading.others:  # another's words, which stay
        return False
    return any(part.row and part.row.id == PROLOG_ERROR for part in reading.hits)


def _of_drain(kept: list[Record], node: SlurmNode) -> Record | None:
    """The newest prolog's record, unless it is too far from the drain to be its cause."""
    newest = max((record for record in kept if record.hook == "prolog"), key=_time, default=None)
    if newest is None or (node.reason_time and abs(_time(newest) - node.reason_time) > NEAR):
        return None
    return newest


def _time(record: Record) -> float:
    time = record.run.get("time")
    return float(time) if isinstance(time, (int, float)) else 0.0


def judge(facts: Facts, policy: Policy) -> Iterator[Finding]:
    for node, record in facts:
        listed = record.end.get("gated")
        of_record = listed if isinstance(listed, list) else ()
        ids = [one for one in of_record if isinstance(one, str) and _RULE_ID.fullmatch(one)]
        if ids:
            yield _found(node, record, ids)


def _found(node: SlurmNode, record: Record, ids: list[str]) -> Finding:
    said = [f"{one.rule.id}: {clean(one.detail)}" for one in record.findings if one.rule.id in ids]
    all_ids = ", ".join(ids)
    return GATED.found(
        said[0] if len(said) == 1 else all_ids,
        evidence=[
            slurm_nodes.evidence(node),
            *(Evidence(f"record of {node.name} (prolog)", f"gated {words}") for words in said or ids),
        ],
        suggest=[
            Suggestion(
                CONFIGURE,
                "tell whoever reads sinfo -R why it is drained; its state stays as it is",
                f"sudo scontrol update nodename={shlex.quote(node.name)} reason='hpslurm: {all_ids}'",
            )
        ],
        subject=node.name,
    )
