"""The guard: it comes last, and takes back suggestions that would do more harm than good.

It judges every suggestion by what its command does and to whom. A controller or login node is
changed in no way on our word, nor does a job start there; a node that HyperPod is handling is
left alone; reboots and replacements are for single bad workers: when much of the cluster is in
trouble at once, one cause is likely, which replacing nodes one by one would not cure. What is
left names its nodes, at most 25 a call, the jobs on them, and the caller's region and profile.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Sequence

from hpslurm.cluster import deeds, matrix
from hpslurm.cluster.aws import checks as aws_checks
from hpslurm.cluster.gather import Half
from hpslurm.cluster.model import SPECIAL, Cluster, Member, Members
from hpslurm.cluster.slurm_nodes import NO_RECOVERY, is_out
from hpslurm.core import nodeset, suggest
from hpslurm.core.finding import DRAIN, LOOK, P1, P2, REBOOT, REPLACE, Evidence, Finding, Rule, Suggestion
from hpslurm.core.policy import Policy
from hpslurm.core.probe import Result, unmuted
from hpslurm.core.values import dataclass, field, replace

ONE_CAUSE = Rule("cluster-one-cause", P1, "So much is out that one cause is likely", "operations.md § 8")
MOST_IDS = 25  # of one BatchReboot- or BatchReplaceClusterNodes call; the same for a reason string
FEWEST = 4  # nodes; below that, a share of the cluster says nothing
MOST_JOBS = 10  # named in one suggestion
ACTS = (REBOOT, REPLACE)
SAVE_EVIDENCE = suggest.save_evidence()


# Findings that say by themselves that a node cannot be used, whatever they suggest.
LOST = ("hyperpod-instance-failed", "hyperpod-instance-gone", "join-failed-in-use", "join-lost-in-use")


@dataclass(frozen=True)
class Scene:
    """Who the suggestions are for. ``slurm``: whether Slurm listed its nodes; ``too_many``: one cause is likely.

    ``described`` is HyperPod's cluster; ``cluster`` is the same, but None where not all its instances were listed.
    """

    by_name: dict[str, Member]
    members: Members
    cluster: Cluster | None
    slurm: bool
    described: Cluster | None = None
    profile: str = ""
    targets: frozenset[str] = frozenset()
    workers: int = 1
    too_many: bool = False
    readings: dict[str, matrix.Reading | None] = field(default_factory=dict)  # those that were asked for

    def role(self, subject: str) -> str:
        """Of a node, or of an instance group by its name."""
        member = self.by_name.get(subject)
        group = self.described.group(subject) if self.described and member is None else None
        return member.role if member else group.role if group else ""

    def reading(self, subject: str) -> matrix.Reading | None:
        if subject not in self.readings:
            member = self.by_name.get(subject)
            self.readings[subject] = matrix.read(member, self.cluster, self.members.now) if member else None
        return self.readings[subject]


def of_half(half: Half, policy: Policy) -> Scene:
    """Who the suggestions of a look are for."""
    described, profile = aws_checks.cluster(half.view), half.view.profile if half.view else ""
    return scene_of(half.results, half.members, policy, half.cluster, described, profile)


def scene_of(
    results: Iterable[Result],
    members: Members,
    policy: Policy,
    cluster: Cluster | None = None,
    described: Cluster | None = None,
    profile: str = "",
) -> Scene:
    """``described`` is HyperPod's cluster; ``cluster`` the same, but None where not all its instances were listed."""
    by_name = {member.name: member for member in members.members}
    by_name.update((member.instance_id, member) for member in members.members if member.instance_id)
    slurm = any(member.slurm for member in members.members)
    scene = Scene(by_name, members, cluster, slurm, described, profile)
    targets = frozenset(_in_trouble(unmuted(results), scene))
    workers = sum(member.role not in SPECIAL for member in members.members) or 1
    too_many = len(targets) >= FEWEST and len(targets) > policy.guard_share * workers
    return replace(scene, targets=targets, workers=workers, too_many=too_many)


def apply(results: Sequence[Result], members: Members, policy: Policy) -> list[Result]:
    """Where HyperPod was not asked."""
    return guarded(results, scene_of(results, members, policy), policy)


def guarded(results: Sequence[Result], scene: Scene, policy: Policy) -> list[Result]:
    """The same results, with suggestions withdrawn, pinned to the nodes that they are for, or added to."""
    left = [replace(result, findings=_guarded(result.findings, scene)) for result in results]
    if scene.too_many:
        finding = policy.mute(one_cause(unmuted(results), scene, policy))
        left.append(Result("guard", "fail", findings=(finding,)))
    return [
        replace(result, findings=tuple(_callable(finding, scene) for finding in result.findings)) for result in left
    ]


def _in_trouble(findings: Iterable[Finding], scene: Scene) -> set[str]:
    """Workers that a finding wants out, and that HyperPod is not at work on."""
    wanted = {
        finding.subject
        for finding in findings
        if finding.rule.priority != P2
        and (finding.rule.id in LOST or any(item.harm in (DRAIN, *ACTS) for item in finding.suggestions))
    }
    return {name for name in wanted if not _excused(name, scene)}


def _excused(subject: str, scene: Scene) -> bool:
    member, reading = scene.by_name.get(subject), scene.reading(subject)
    return member is None or scene.role(subject) in SPECIAL or _hands_off(reading)


def _guarded(findings: Iterable[Finding], scene: Scene) -> tuple[Finding, ...]:
    findings = tuple(findings)
    groups: dict[tuple[str, str], list[Finding]] = {}
    for finding in findings:
        groups.setdefault((finding.rule.id, finding.muted), []).append(finding)
    chosen = {
        key: _suggestions(group, scene) if any(finding.subject for finding in group) else None
        for key, group in groups.items()
    }
    guarded = []
    for finding in findings:
        suggestions = chosen[finding.rule.id, finding.muted]
        guarded.append(finding if suggestions is None else finding.with_suggestions(suggestions[finding.subject]))
    return tuple(guarded)


def _suggestions(group: list[Finding], scene: Scene) -> dict[str, tuple[Suggestion, ...]]:
    """What each node of one rule's findings is left with.

    The findings of a rule are shown as one, with all its nodes filled in, so a suggestion
    that is not for all of them names its nodes itself.
    """
    subjects = list(dict.fromkeys(finding.subject for finding in group))
    wanted: dict[Suggestion, dict[str, None]] = {}  # in the order in which they came
    same: dict[int, dict[str, None]] = {}  # thousands of findings share one suggestion: by its place in memory
    for finding in group:
        for item in finding.suggestions:
            if (whom := same.get(id(item))) is None:
                whom = same[id(item)] = wanted.setdefault(item, {})
            whom[finding.subject] = None
    left: dict[str, list[Suggestion]] = {name: [] for name in subjects}
    taken_back: dict[tuple[bool, str], dict[str, None]] = {}
    for item, whom in wanted.items():
        for_whom = []
        for name in whom:
            why = withdrawn(item, name, scene, group[0].rule)
            if not why:
                for_whom.append(name)
            elif item.harm != LOOK:
                taken_back.setdefault((item.harm in ACTS, why), {})[name] = None
        for made, names in put(item, for_whom, scene):
            _give(left, names, made if len(names) == len(subjects) else _pinned(made, names))
    for (boot, why), whom in taken_back.items():
        names = [name for name in whom if not boot or name not in taken_back.get((False, why), {})]
        what = "no reboot or replacement" if boot else "nothing that changes it"
        _give(left, names, Suggestion(LOOK, f"{what} is suggested for {nodeset.fold(names)}: {why}"))
        for name in names:
            if (role := scene.role(name)) in SPECIAL:
                _give(left, [name], Suggestion(LOOK, SPECIAL[role]))
    each_once: dict[tuple[int, ...], tuple[Suggestion, ...]] = {}  # most nodes are left with the same ones
    for items in left.values():
        if (ids := tuple(map(id, items))) not in each_once:
            each_once[ids] = tuple(dict.fromkeys(items))
    return {name: each_once[tuple(map(id, items))] for name, items in left.items()}


def put(item: Suggestion, names: list[str], scene: Scene) -> Iterable[tuple[Suggestion, list[str]]]:
    """The suggestion as it can be done, and for whom: a look through Slurm goes by ssh where no job can start."""
    if not names:
        return
    if item.harm in ACTS and item.command:
        yield from ((made, names) for made in acts(item, names, scene))
        return
    if not deeds.starts_job(item.command) or "{nodes}" not in item.command:
        yield item, names
        return
    yield from _by_way(item, names, scene)


def _by_way(item: Suggestion, names: list[str], scene: Scene) -> Iterable[tuple[Suggestion, list[str]]]:
    through_slurm = [name for name in names if _takes_jobs(name, scene)]
    if through_slurm:
        yield item, through_slurm
    others = [name for name in names if name not in set(through_slurm)]
    command = deeds.without_job(item.command)
    if others and command:
        yield replace(item, command=command), others


def _takes_jobs(subject: str, scene: Scene) -> bool:
    member = scene.by_name.get(subject)
    if member is None or scene.role(subject) in SPECIAL:
        return False
    return not scene.slurm if member.slurm is None else not is_out(member.slurm)


def withdrawn(item: Suggestion, subject: str, scene: Scene, rule: Rule) -> str:
    """Why this must not be done to this node or group, or empty."""
    if scene.described and scene.described.orchestrator == "eks" and deeds.of_slurm(item.command):
        return "the cluster runs on EKS, where Slurm's programs do nothing"
    if deeds.whole_cluster(item.command):
        return "it would change the controller, too"
    if item.command == SAVE_EVIDENCE.command and item == SAVE_EVIDENCE and _is_gone(subject, scene):
        return "there is no machine"
    if item.harm == LOOK and not deeds.changes(item.command):
        return ""
    if not item.command:  # words for a person, who knows what else there is
        return ""
    role = scene.role(subject)
    if role in SPECIAL:
        return SPECIAL[role].partition(":")[0]
    member, reading = scene.by_name.get(subject), scene.reading(subject)
    boots = item.harm in ACTS
    if deeds.resumes(item.command) and _patched_now(member, scene):
        return "HyperPod may be patching its group, and gives it back by itself"
    if reading and (reading.hands_off or (boots and reading.no_boot)) and rule.id != NO_RECOVERY.id:
        return reading.words
    if "{nodes}" in item.command and deeds.of_slurm(item.command) and not _of_slurm(member, scene):
        return "not a node that Slurm lists"
    if boots and scene.too_many:
        return "this looks like one cause, do not act node by node"
    return ""


def _patched_now(member: Member | None, scene: Scene) -> bool:
    group = scene.described.group(member.instance.group) if member and member.instance and scene.described else None
    return group is not None and group.patching is not None and group.patching.holds(scene.members.now)


def _is_gone(subject: str, scene: Scene) -> bool:
    """Whether HyperPod, whose instances are all known, has none for this node."""
    member = scene.by_name.get(subject)
    gone = member is not None and matrix.of_hyperpod(member.instance) == matrix.GONE
    return scene.cluster is not None and gone and _hands_off(scene.reading(subject))


def _hands_off(reading: matrix.Reading | None) -> bool:
    return reading is not None and reading.hands_off


def _of_slurm(member: Member | None, scene: Scene) -> bool:
    return member is not None and (member.slurm is not None or not scene.slurm)


def _callable(finding: Finding, scene: Scene) -> Finding:
    if not any("aws " in item.command for item in finding.suggestions):
        return finding
    return replace(finding, suggestions=tuple(for_caller(item, scene) for item in finding.suggestions))


def for_caller(item: Suggestion, scene: Scene) -> Suggestion:
    """Every AWS command with what the caller needs to run it."""
    command = deeds.for_caller(item.command, scene.members.region, scene.profile)
    return item if command == item.command else replace(item, command=command)


def _give(left: dict[str, list[Suggestion]], names: Iterable[str], item: Suggestion) -> None:
    for name in names:
        left[name].append(item)


def _pinned(item: Suggestion, names: Sequence[str]) -> Suggestion:
    return replace(item, command=item.command.replace("{nodes}", shlex.quote(nodeset.fold(names))))


def acts(item: Suggestion, names: Sequence[str], scene: Scene) -> Iterable[Suggestion]:
    """The reason string, then the same through the API where the ids are known; 25 nodes each."""
    by_name, members = scene.by_name, scene.members
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


def one_cause(findings: Iterable[Finding], scene: Scene, policy: Policy) -> Finding:
    """What to say instead of many plans."""
    targets, workers = scene.targets, scene.workers
    counts: dict[str, set[str]] = {}
    for finding in findings:
        if finding.subject in targets and finding.rule.priority != P2:
            counts.setdefault(finding.rule.id, set()).add(finding.subject)
    most = sorted(counts.items(), key=lambda pair: (-len(pair[1]), pair[0]))[:5]
    shared = _shared([scene.by_name[name] for name in sorted(targets)])
    return ONE_CAUSE.found(
        f"{len(targets):,} of {workers:,} nodes are in trouble at once, {policy.guard_share:.0%} is the site's limit: "
        f"this looks like one cause, do not act node by node{f'; {shared}' if shared else ''}",
        evidence=[Evidence(rule, f"{len(names)} nodes: {nodeset.fold(names)}") for rule, names in most],
        suggest=[
            Suggestion(LOOK, "what they share: a switch, a subnet, a mount, an image, a change of configuration"),
            Suggestion(LOOK, "what changed, and when", "sudo tail -n 100 /var/log/slurm/slurmctld.log"),
            Suggestion(
                LOOK,
                "where HyperPod calls instances failed it tries again by itself: wait 90 minutes, then open one case "
                "with AWS Support for all of them",
                "sudo hpslurm bundle",
            ),
        ],
    )


def _shared(members: Sequence[Member]) -> str:
    """What nearly all of them have in common, as far as HyperPod tells."""
    instances = [member.instance for member in members if member.instance]
    told = []
    for what, values in (
        ("status", [instance.status for instance in instances]),
        ("message", [instance.message for instance in instances if instance.status != "Running"]),
        ("group", [instance.group for instance in instances]),
        ("image", [instance.image for instance in instances]),
    ):
        common = Counter(value for value in values if value).most_common(1)
        if common and common[0][1] >= 0.8 * len(members):
            told.append(f"{common[0][1]} of them with {what} {common[0][0]!r}")
    return ", ".join(told)
