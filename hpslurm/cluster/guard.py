"""The guard: it comes last, and takes back suggestions that would do more harm than good.

Reboots and replacements are for single bad workers. A controller or login node is never
rebooted or replaced on our word; a node that HyperPod is handling is left alone; and when
much of the cluster is out at once, one cause is likely, which replacing nodes one by one
would not cure. What is left names its nodes, at most 25 a call, and the jobs on them.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence

from hpslurm.cluster import matrix, reasons
from hpslurm.cluster.model import CONTROLLER, LOGIN, Member, Members
from hpslurm.cluster.slurm_nodes import NO_RECOVERY, is_out
from hpslurm.core import nodeset, suggest
from hpslurm.core.finding import LOOK, P1, REBOOT, REPLACE, Evidence, Finding, Rule, Suggestion
from hpslurm.core.policy import Policy
from hpslurm.core.probe import Result
from hpslurm.core.values import replace

ONE_CAUSE = Rule("cluster-one-cause", P1, "So much is out that one cause is likely", "operations.md § 8")
MOST_IDS = 25  # of one BatchReboot- or BatchReplaceClusterNodes call; the same for a reason string
FEWEST = 4  # nodes; below that, a share of the cluster says nothing
MOST_JOBS = 10  # named in one suggestion
ACTS = (REBOOT, REPLACE)


def apply(results: Sequence[Result], members: Members, policy: Policy) -> list[Result]:
    """The same results, with suggestions withdrawn, pinned to the nodes that they are for, or added to."""
    by_name = {member.name: member for member in members.members}
    findings = [finding for result in results for finding in result.findings if not finding.muted]
    targets, workers = wanted(findings, members), workers_of(members)
    too_many = beyond(targets, workers, policy)
    guarded = [replace(result, findings=_guarded(result.findings, by_name, members, too_many)) for result in results]
    if too_many:
        finding = policy.mute(one_cause(targets, workers, findings, policy))
        guarded.append(Result("guard", "fail", findings=(finding,)))
    return guarded


def wanted(findings: Iterable[Finding], members: Members) -> set[str]:
    """Nodes for which a reboot or a replacement is asked, and could be suggested."""
    by_name = {member.name: member for member in members.members}
    return {
        finding.subject
        for finding in findings
        if any(item.harm in ACTS for item in finding.suggestions) and not _spared(by_name.get(finding.subject))
    }


def workers_of(members: Members) -> int:
    """Nodes that are neither controller nor login node; never 0."""
    return sum(member.role not in (CONTROLLER, LOGIN) for member in members.members) or 1


def beyond(targets: set[str], workers: int, policy: Policy) -> bool:
    """Whether so many nodes ask for it that one cause is likely."""
    return len(targets) >= FEWEST and len(targets) > policy.guard_share * workers


def _spared(member: Member | None) -> str:
    """Why this node is not to be rebooted or replaced, or empty."""
    if member is None:
        return "not a node that Slurm lists"
    if member.role in (CONTROLLER, LOGIN):
        return f"{member.role} node"
    return "HyperPod is handling it" if handled(member) or at_work(member) else ""


def handled(member: Member) -> bool:
    """Whether the node is out, and HyperPod is handling it or was asked to."""
    node = member.slurm
    out = node is None or is_out(node)
    return out and (at_work(member) or (node is not None and bool(reasons.action_of(node.reason))))


def at_work(member: Member) -> bool:
    """Whether HyperPod changes or tests the instance right now."""
    return member.instance is not None and matrix.of_hyperpod(member.instance) in (matrix.BUSY, matrix.CHECKED)


def _guarded(
    findings: Iterable[Finding], by_name: dict[str, Member], members: Members, too_many: bool
) -> tuple[Finding, ...]:
    findings = tuple(findings)
    groups: dict[tuple[str, str], list[Finding]] = {}
    for finding in findings:
        groups.setdefault((finding.rule.id, finding.muted), []).append(finding)
    chosen = {
        key: _suggestions(group, by_name, members, too_many) if any(finding.subject for finding in group) else None
        for key, group in groups.items()
    }
    guarded = []
    for finding in findings:
        suggestions = chosen[finding.rule.id, finding.muted]
        guarded.append(finding if suggestions is None else replace(finding, suggestions=suggestions[finding.subject]))
    return tuple(guarded)


def _suggestions(
    group: list[Finding], by_name: dict[str, Member], members: Members, too_many: bool
) -> dict[str, tuple[Suggestion, ...]]:
    """What each node of one rule's findings is left with.

    The findings of a rule are shown as one, with all its nodes filled in, so a suggestion
    that is not for all of them names its nodes itself.
    """
    subjects = list(dict.fromkeys(finding.subject for finding in group))
    wanted: dict[Suggestion, dict[str, None]] = {}  # in the order in which they came
    for finding in group:
        for item in finding.suggestions:
            wanted.setdefault(item, {})[finding.subject] = None
    left: dict[str, list[Suggestion]] = {name: [] for name in subjects}
    taken_back: dict[str, list[str]] = {}
    for item, whom in wanted.items():
        names = list(whom)
        for_whom = []
        for name in names:
            why = withdrawn(item, by_name.get(name), too_many, group[0].rule)
            if not why:
                for_whom.append(name)
            elif item.harm in ACTS:
                taken_back.setdefault(why, []).append(name)
        if item.harm in ACTS and item.command:
            for put in acts(item, for_whom, by_name, members):
                _give(left, for_whom, put)
        else:
            _give(left, for_whom, item if len(for_whom) == len(subjects) else _pinned(item, for_whom))
    for why, names in taken_back.items():
        note = Suggestion(LOOK, f"no reboot or replacement is suggested for {nodeset.fold(names)}: {why}")
        _give(left, names, note)
    return {name: tuple(dict.fromkeys(items)) for name, items in left.items()}


def withdrawn(item: Suggestion, member: Member | None, too_many: bool, rule: Rule) -> str:
    """Why this is not suggested for the node, or empty."""
    if member is not None and handled(member) and item.harm != LOOK and rule.id != NO_RECOVERY.id:
        return "HyperPod is handling it"
    if item.harm not in ACTS:
        return ""
    return _spared(member) or ("this looks like one cause, do not act node by node" if too_many else "")


def _give(left: dict[str, list[Suggestion]], names: Iterable[str], item: Suggestion) -> None:
    for name in names:
        left[name].append(item)


def _pinned(item: Suggestion, names: Sequence[str]) -> Suggestion:
    return replace(item, command=item.command.replace("{nodes}", shlex.quote(nodeset.fold(names))))


def acts(item: Suggestion, names: Sequence[str], by_name: dict[str, Member], members: Members) -> Iterable[Suggestion]:
    """The reason string, then the same through the API where the ids are known; 25 nodes each."""
    for start in range(0, len(names), MOST_IDS):
        part = names[start : start + MOST_IDS]
        yield replace(_pinned(item, part), why=f"{item.why}{_jobs(part, by_name)}")
        ids = [by_name[name].instance_id for name in part]
        if (
            members.cluster
            and all(ids)
            and (suggest.ACTION_REBOOT in item.command or suggest.ACTION_REPLACE in item.command)
        ):
            region = f"--region {shlex.quote(members.region)} " if members.region else ""
            verb = "replace" if item.harm == REPLACE else "reboot"
            yield Suggestion(
                item.harm,
                "the same through the API, which does not wait for jobs",
                f"aws sagemaker batch-{verb}-cluster-nodes --cluster-name {shlex.quote(members.cluster)} {region}"
                f"--node-ids {' '.join(map(shlex.quote, ids))}",
            )


def _jobs(names: Sequence[str], by_name: dict[str, Member]) -> str:
    """The jobs that would end with these nodes; Slurm's state FAIL waits for them."""
    jobs = {job.id: job for name in names for job in by_name[name].jobs}
    if not jobs:
        return ""
    named = ", ".join(f"{job.id} of {job.user}" for job in list(jobs.values())[:MOST_JOBS])
    more = f" and {len(jobs) - MOST_JOBS} more" if len(jobs) > MOST_JOBS else ""
    return f"; jobs there: {named}{more} (state=fail waits until they end)"


def one_cause(targets: set[str], workers: int, findings: Iterable[Finding], policy: Policy) -> Finding:
    counts: dict[str, set[str]] = {}
    for finding in findings:
        if finding.subject in targets:
            counts.setdefault(finding.rule.id, set()).add(finding.subject)
    most = sorted(counts.items(), key=lambda pair: (-len(pair[1]), pair[0]))[:5]
    return ONE_CAUSE.found(
        f"{len(targets)} of {workers} nodes ask for a reboot or a replacement, {policy.guard_share:.0%} is the site's "
        "limit: this looks like one cause, do not act node by node",
        evidence=[Evidence(rule, f"{len(names)} nodes: {nodeset.fold(names)}") for rule, names in most],
        suggest=[
            Suggestion(LOOK, "what they share: a switch, a subnet, a mount, an image, a change of configuration"),
            Suggestion(LOOK, "what changed, and when", "sudo tail -n 100 /var/log/slurm/slurmctld.log"),
        ],
    )
