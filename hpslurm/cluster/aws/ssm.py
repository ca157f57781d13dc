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


def ask_nodes(
    members: Members, view: View, policy: Policy, sample: int, named: bool, ask: Ask
) -> tuple[Members, list[Result]]:
    """Members with the records that came, and one result for each kind of trouble.

    ``named`` means that a person chose these members by name: then all of them are looked at.
    """
    cluster = checks.cluster(view)
    if cluster is None:
        return members, [Result("ssm", UNKNOWN, "needs the cluster's id and instances from AWS")]
    chosen = choose(members, policy, sample, named)
    targets = [
        target(member.name, cluster.id, member.instance.group, member.instance.id)
        for member in chosen
        if member.instance
    ]
    try:
        answers = ask(targets) if targets else []
    except Unknown as why:
        return members, [Result("ssm", UNKNOWN, str(why))]
    records = {answer.node: answer.record for answer in answers if answer.record}
    together = tuple(
        replace(member, record=records[member.name], dropped="") if member.name in records else member
        for member in members.members
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
    running = [member for member in members.members if member.instance and member.instance.status == "Running"]
    if named:
        return running
    workers = [member for member in running if member.role not in (CONTROLLER, LOGIN)]
    silent = [member for member in workers if not _fresh(member, members, policy)]
    return sorted(silent, key=lambda member: member.slurm is not None and not is_out(member.slurm))[:sample]


def _fresh(member: Member, members: Members, policy: Policy) -> bool:
    made = member.record.run.get("time") if member.record else None
    return isinstance(made, (int, float)) and members.now - made <= policy.report_fresh
