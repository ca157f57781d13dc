"""Slurm and HyperPod read together: what one node's two states mean at the same time.

Each side alone gives wrong advice: a node that does not answer because it is being
replaced needs patience, and a node that Slurm still uses may be failed for HyperPod.
``read`` knows every combination. Most only say how to take the findings that either
side has already; a contradiction that neither side sees alone is a finding of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from hpslurm.cluster import reasons
from hpslurm.cluster.aws.hyperpod import PLAN_OVER, STUCK_MINUTES, WORKING, named, span
from hpslurm.cluster.model import CONTROLLER, LOGIN, Cluster, Gathered, Instance, Member, Members
from hpslurm.cluster.slurm_nodes import is_out
from hpslurm.core import suggest
from hpslurm.core.finding import CONFIGURE, LOOK, P1, P2, Evidence, Finding, Rule, Suggestion
from hpslurm.core.policy import Policy
from hpslurm.core.probe import Skip
from hpslurm.core.values import dataclass, replace
from hpslurm.sources.slurm import NOT_RESPONDING, SlurmNode

SECTION = "operations.md § 6"
WAIT = Rule("join-wait", P2, "Out because HyperPod is working on it", SECTION)
FAILED_IN_USE = Rule("join-failed-in-use", P1, "Slurm uses an instance that HyperPod calls failed", SECTION)
LOST_IN_USE = Rule("join-lost-in-use", P1, "Slurm uses a node that HyperPod is taking away", SECTION)
REGISTERING = Rule("join-registering", P2, "New instance has not registered with Slurm yet", SECTION)
NOT_REGISTERED = Rule("join-not-registered", P1, "Instance runs, and Slurm does not know it", SECTION)
NO_INSTANCE = Rule("join-no-instance", P1, "Slurm's node has no instance", SECTION)
BETWEEN = Rule("join-between-attempts", P2, "Slurm's node waits for an instance", SECTION)
NOT_LISTED = Rule("join-not-listed", P2, "Node answers, and HyperPod lists no such instance", SECTION)

REGISTER_MINUTES = 10  # a new group's nodes appear in slurm.conf minutes after their instances run
LEAVING = ("ShuttingDown", "SystemUpdating", "DetachInProgress")

# what Slurm says, gravest word first
ABSENT = "absent"
ACTION = "action"
MISSPELT = "misspelt"
REBOOTED = "rebooted"
GPU_COUNT = "gpu count"
KILL_TASK = "kill task"
PROLOG = "prolog"
SILENT = "silent"
OUT = "out"
UP = "up"
_BY_REASON = {
    "reason-rebooted": REBOOTED,
    "reason-gpu-count": GPU_COUNT,
    "reason-kill-task": KILL_TASK,
    "reason-prolog-error": PROLOG,
}
# what HyperPod says
RUNNING = "running"
BUSY = "busy"
CHECKED = "deep check"
FAILED = "failed"
GONE = "gone"
STRANGE = "strange"  # a status that no table has: nobody knows what may be done to it


@dataclass(frozen=True)
class Reading:
    """``words`` say what it means and what to do.

    ``hands_off`` takes back every change suggested for the node; ``no_boot`` those that reboot or replace it.
    """

    words: str
    rule: Rule | None = None
    hands_off: bool = False
    no_boot: bool = False


def of_slurm(node: SlurmNode | None) -> str:
    """Slurm's side in one word."""
    if node is None:
        return ABSENT
    if not is_out(node):
        return UP
    reading = reasons.read(node.reason) if node.reason else reasons.Reading(())
    if reading.action:
        return ACTION
    if reading.meant:
        return MISSPELT
    known = [_BY_REASON[part.row.id] for part in reading.hits if part.row and part.row.id in _BY_REASON]
    if known:
        return known[0]
    return SILENT if NOT_RESPONDING in node.flags else OUT


def of_hyperpod(instance: Instance | None) -> str:
    """HyperPod's side in one word."""
    if instance is None or instance.status == "NotFound":
        return GONE
    if instance.status == "DeepHealthCheckInProgress":
        return CHECKED
    if instance.status in WORKING:
        return BUSY
    if instance.status == "Failure":
        return FAILED
    return RUNNING if instance.status == "Running" else STRANGE


def read(member: Member, cluster: Cluster | None, now: float) -> Reading | None:
    """What the two states mean together; None where there is nothing to say.

    Without a cluster AWS did not tell of all instances: then none can be said to be missing.
    """
    node, instance = member.slurm, member.instance
    here, there = of_slurm(node), of_hyperpod(instance)
    if here == ABSENT:
        return _not_in_slurm(member, there, now)
    if here == ACTION:
        return _action(cluster)
    if there == GONE:
        return _no_instance(member, cluster, now) if cluster else None
    assert instance is not None
    if there == STRANGE:
        return Reading(_strange(instance), hands_off=True)
    if here == UP:
        return _in_use(there, instance)
    if there in (BUSY, CHECKED):
        what = WORKING[instance.status]
        return Reading(f"out while its instance is {instance.status} ({what}): wait; no command", WAIT, hands_off=True)
    if there == FAILED:
        words = "HyperPod calls the instance failed too, and may try again: see what it says of the instance"
        return Reading(words, no_boot=cluster is None or cluster.recovery != "None")
    return Reading(_OUT_BUT_RUNNING[here])


def _action(cluster: Cluster | None) -> Reading:
    if cluster and cluster.recovery == "None":
        return Reading("node recovery is off: HyperPod will not act on this reason")
    return Reading("HyperPod handles the node by its reason: leave it alone", hands_off=True)


def _strange(instance: Instance) -> str:
    status = instance.status or "none at all"
    return f"its instance has the status {status}, which hpslurm does not know: look at it before any change"


_OUT_BUT_RUNNING = {
    REBOOTED: "the instance runs: it came back from a boot; look at agent log and Xid first, and resume it if clean",
    SILENT: "the instance runs: slurmd or the network; check slurmd on the node, only then reboot",
    KILL_TASK: "the instance runs: a clean-up problem, not hardware; look for processes in state D, then resume",
    GPU_COUNT: "the instance runs: a GPU is missing (reboot), or gres.conf was edited (restart slurmd)",
    PROLOG: "the instance runs: a hook returned non-zero, maybe ours; read slurmd's log",
    MISSPELT: "the instance runs, and HyperPod does not act on this reason: nothing will happen",
    OUT: "the instance runs: nothing that HyperPod sees explains it; the reason says who took it out",
}


def _not_in_slurm(member: Member, there: str, now: float) -> Reading | None:
    instance = member.instance
    # Controllers never are Slurm nodes; login nodes are on some images and not on others.
    if instance is None or member.role in (CONTROLLER, LOGIN):
        return None
    if there in (BUSY, CHECKED):
        return Reading(f"its instance is {instance.status} ({WORKING[instance.status]}): wait", hands_off=True)
    if there == STRANGE:
        return Reading(_strange(instance), hands_off=True)
    if there != RUNNING or instance.heir:
        return None
    if not instance.node:
        return Reading("HyperPod gives it no host name, so which node of Slurm's it is cannot be told")
    if not member.role:
        return Reading("not in Slurm, and nothing says whether it is a worker")
    age = None if instance.launched is None else (now - instance.launched) / 60
    if age is not None and age < REGISTER_MINUTES:
        return Reading("launched minutes ago, not registered with Slurm yet: wait", REGISTERING)
    return Reading("runs for HyperPod, but Slurm does not know it: slurm.conf or its lifecycle script", NOT_REGISTERED)


def _no_instance(member: Member, cluster: Cluster, now: float) -> Reading | None:
    if member.role in (CONTROLLER, LOGIN) or member.slurm is None:
        return None
    if cluster.nameless:
        words = f"HyperPod lists {cluster.nameless} instances without a host name: one of them may be this node's"
        return Reading(words, no_boot=True)
    if _answers(member.slurm):
        # A list lags behind by minutes while instances come and go.
        return None if cluster.unlisted else Reading(_ANSWERS, NOT_LISTED, no_boot=True)
    return _gone(member.slurm, cluster, now)


_ANSWERS = (
    "slurmd answers, so the machine is there, but HyperPod lists no instance of this name: its list lags behind, or "
    "the instance has another host name; look again in 10 minutes, and do not remove the node"
)


def _answers(node: SlurmNode) -> bool:
    return NOT_RESPONDING not in node.flags and node.state not in ("DOWN", "FUTURE", "UNKNOWN")


def _gone(node: SlurmNode, cluster: Cluster, now: float) -> Reading:
    """A silent node without an instance: is one on its way, or did somebody scale in?"""
    waited = None if not node.reason_time else (now - node.reason_time) / 60
    over = next((group for group in cluster.groups if group.short and group.plan_status in PLAN_OVER), None)
    if over:
        return Reading(
            f"no instance: training plan {over.plan} of {over.name} is {over.plan_status}, and its instances went with "
            "it; they come back with a new plan, and no command on the node helps",
            NO_INSTANCE,
            hands_off=True,
        )
    if cluster.unlisted:
        return Reading(
            f"no instance listed, though the groups count {cluster.unlisted} more than the list has: one is being "
            f"replaced, or the list lags behind; wait {STUCK_MINUTES} minutes",
            BETWEEN,
            hands_off=True,
        )
    short = any(group.short for group in cluster.groups)
    if short and (waited is None or waited < STUCK_MINUTES):
        return Reading(
            f"no instance, and a group is short of one: between two attempts of a replacement; wait {STUCK_MINUTES} "
            "minutes",
            BETWEEN,
            hands_off=True,
        )
    if short:
        words = (
            "no instance for long, and a group is short of one: capacity is missing; the node comes back with the "
            "capacity, and no command on it helps"
        )
        return Reading(words, NO_INSTANCE, hands_off=True)
    words = "no instance, and no group wants one: left over after a scale-in; an admin removes it"
    return Reading(words, NO_INSTANCE, hands_off=True)


def _in_use(there: str, instance: Instance) -> Reading | None:
    if there == FAILED:
        words = "Slurm would start jobs there, HyperPod calls the instance failed: drain it"
        return Reading(words, FAILED_IN_USE, no_boot=True)
    if instance.status in LEAVING:
        words = f"Slurm would start jobs there, its instance is {instance.status}: they will die"
        return Reading(words, LOST_IN_USE, no_boot=True)
    if there == CHECKED:
        return Reading("a deep health check holds it in its own reservation: wait", hands_off=True)
    return Reading("coming: wait", hands_off=True) if there == BUSY else None


@dataclass(frozen=True)
class Facts:
    members: Members
    cluster: Cluster


def collect(gathered: Gathered) -> Facts:
    """Findings need both sides, and both in full."""
    if gathered.slurm is None or not gathered.slurm.nodes or gathered.hyperpod is None:
        raise Skip("not both sides were read in full")
    return Facts(gathered.members, gathered.hyperpod)


def judge(facts: Facts, policy: Policy) -> Iterator[Finding]:
    members, cluster = facts.members, facts.cluster
    for member in members.members:
        reading = read(member, cluster, members.now)
        if reading is None or reading.rule is None:
            continue
        yield reading.rule.found(
            reading.words + _message(member.instance),
            evidence=both(member, members.now),
            suggest=_suggestions(reading.rule, cluster),
            subject=member.name,
        )


def beside(findings: Iterable[Finding], members: Members, cluster: Cluster) -> tuple[Finding, ...]:
    """Slurm's findings with HyperPod's side as evidence, and what the two mean together."""
    together = []
    for finding in findings:
        member = members.named(finding.subject)
        reading = read(member, cluster, members.now) if member else None
        if member is None or reading is None:
            together.append(finding)
            continue
        seen = (Evidence("HyperPod", instance_line(member.instance, members.now)), Evidence("together", reading.words))
        # The first line says whether to wait: a node that does not answer looks alike, whatever the cause.
        detail = f"{finding.detail}; {reading.words}" if reading.hands_off or reading.no_boot else finding.detail
        together.append(replace(finding, detail=detail, evidence=(*finding.evidence, *seen)))
    return tuple(together)


def both(member: Member, now: float) -> list[Evidence]:
    """The two states side by side."""
    node, instance = member.slurm, member.instance
    slurm = f"{node.words}{f', reason {node.reason!r}' if node.reason else ''}" if node else "no such node"
    return [Evidence("Slurm", slurm), Evidence("HyperPod", instance_line(instance, now))]


def instance_line(instance: Instance | None, now: float) -> str:
    """One line about an instance, for evidence."""
    if instance is None:
        return "no such instance"
    age = "" if instance.launched is None else f", launched {span(max(0.0, now - instance.launched) / 60)} ago"
    return f"{instance.id} of {instance.group}: {instance.status}{age}"


def _message(instance: Instance | None) -> str:
    if instance is None or instance.status != "Failure" or not instance.message:
        return ""
    return f" ({instance.message})"


def _suggestions(rule: Rule, cluster: Cluster) -> list[Suggestion]:
    if rule in (FAILED_IN_USE, LOST_IN_USE):
        return [Suggestion(LOOK, "which jobs are there", "squeue -w {nodes}"), suggest.drain(rule.id)]
    if rule == NOT_REGISTERED:
        return [
            Suggestion(
                LOOK,
                "is the node in slurm.conf, and does slurmd run there?",
                "clush -w {nodes} systemctl is-active slurmd; grep NodeName= /opt/slurm/etc/slurm.conf",
            ),
            Suggestion(LOOK, "the LifecycleConfig stream of the instance says how far its scripts came"),
            Suggestion(
                CONFIGURE,
                "when the line is there and slurmd is not: start it",
                "clush -w {nodes} sudo systemctl restart slurmd",
            ),
        ]
    if rule == NO_INSTANCE:
        short = ", ".join(f"{group.name} {group.current}/{group.target}" for group in cluster.groups if group.short)
        return [
            Suggestion(
                LOOK,
                f"what HyperPod has{f' (short: {short})' if short else ''}",
                f"aws sagemaker list-cluster-nodes {named(cluster)}",
            )
        ]
    return []
