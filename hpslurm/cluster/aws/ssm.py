"""Nodes that Slurm cannot reach, looked at through SSM: which ones, and what they said.

Only for ``--probe ssm``. Nodes that are out for Slurm come first, because a job step can
look at all others; controllers and login nodes only by name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hpslurm.cluster.aws import checks
from hpslurm.cluster.aws.view import View
from hpslurm.cluster.model import CONTROLLER, LOGIN, Member, Members
from hpslurm.cluster.slurm_nodes import is_out
from hpslurm.core import nodeset
from hpslurm.core.policy import Policy
from hpslurm.core.probe import PASS, UNKNOWN, Result, Unknown
from hpslurm.core.values import replace
from hpslurm.sources.sessions import Answer, Target, target

Ask = Callable[[Sequence[Target]], list[Answer]]


def look(
    members: Members, view: View, policy: Policy, sample: int, named: bool, ask: Ask
) -> tuple[Members, list[Result]]:
    """Members with the records that came, and one result for each kind of trouble.

    ``named`` means that a person chose these members by name: then all of them are looked at.
    """
    cluster = checks.cluster(view)
    if cluster is None:
        return members, [Result("ssm", UNKNOWN, "needs the cluster's id and instances from AWS")]
    chosen = choose(members, policy, sample, named)
    targets = [target(one.name, cluster.id, one.instance.group, one.instance.id) for one in chosen if one.instance]
    try:
        answers = ask(targets) if targets else []
    except Unknown as why:
        return members, [Result("ssm", UNKNOWN, str(why))]
    records = {one.node: one.record for one in answers if one.record}
    together = tuple(
        replace(one, record=records[one.name], dropped="") if one.name in records else one for one in members.members
    )
    troubles: dict[str, list[str]] = {}
    for answer in answers:
        if answer.trouble:
            troubles.setdefault(answer.trouble, []).append(answer.node)
    results = [Result("ssm", UNKNOWN, f"{nodeset.fold(nodes)}: {why}") for why, nodes in troubles.items()]
    if records:
        results.append(Result("ssm", PASS, facts={"looked_at": sorted(records), "chosen": len(targets)}))
    return replace(members, members=together), results


def choose(members: Members, policy: Policy, sample: int, named: bool) -> list[Member]:
    """Running instances without a fresh record, those that Slurm cannot use first."""
    there = [one for one in members.members if one.instance is not None and one.instance.status == "Running"]
    if named:
        return there
    silent = [one for one in there if one.role not in (CONTROLLER, LOGIN) and not _fresh(one, members, policy)]
    return sorted(silent, key=lambda one: one.slurm is not None and not is_out(one.slurm))[:sample]


def _fresh(member: Member, members: Members, policy: Policy) -> bool:
    made = member.record.run.get("time") if member.record else None
    return isinstance(made, (int, float)) and members.now - made <= policy.report_fresh
