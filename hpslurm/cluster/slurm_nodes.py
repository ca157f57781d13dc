"""Nodes as Slurm sees them: which are out, since when, and why?

State flags come first. Some releases (23.11 to 25.11 without accounting) keep an old
reason on a node that was resumed, so a reason alone never makes a node bad. For a node
that is out, every part of its reason is looked up; where no part is known, the state
speaks for itself.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

from hpslurm.cluster import reasons
from hpslurm.cluster.model import Gathered, Member, Members
from hpslurm.core import suggest
from hpslurm.core.finding import CONFIGURE, LOOK, P1, P2, Evidence, Finding, Rule, Suggestion
from hpslurm.core.policy import Policy
from hpslurm.core.probe import Skip
from hpslurm.core.text import clean
from hpslurm.sources.slurm import NOT_RESPONDING, SlurmNode, folded

GUIDE = "debugging-guide.md § 8"
DOWN = Rule("node-down", P1, "Node down", GUIDE)
SILENT = Rule("node-not-responding", P1, "slurmd on the node does not answer", GUIDE)
DRAINED = Rule("node-drained", P1, "Node drained", GUIDE)
FAILING = Rule("node-failing", P1, "Node in state FAIL", GUIDE)
INVALID = Rule("node-invalid", P1, "Node registered with less than slurm.conf says", GUIDE)
UNREGISTERED = Rule("node-unregistered", P1, "Node has not registered since slurmctld started", GUIDE)
UNKNOWN_STATE = Rule("node-state-unknown", P1, "Node in a state that hpslurm does not know", GUIDE)
REBOOTING = Rule("node-rebooting", P2, "Reboot requested or under way", GUIDE)
MAINTENANCE = Rule("node-maintenance", P2, "Node in a maintenance reservation", GUIDE)
POWERED_OFF = Rule("node-powered-off", P2, "Node powered off by Slurm", GUIDE)
ACTIONS = "operations.md § 8"
MISSPELT_REBOOT = Rule("action-reboot-misspelt", P1, "Ignored by HyperPod: Action:Reboot was meant", ACTIONS)
MISSPELT_REPLACE = Rule("action-replace-misspelt", P1, "Ignored by HyperPod: Action:Replace was meant", ACTIONS)
UNDER_WAY = Rule("action-under-way", P2, "HyperPod is handling the node", ACTIONS)
STUCK = Rule("action-stuck", P1, "HyperPod should have acted long ago", ACTIONS)
NO_RECOVERY = Rule("action-no-recovery", P1, "Nothing will happen: node recovery is off", ACTIONS)

STUCK_AFTER = 3600  # seconds; replacements seen took well under an hour once the node was idle
GOOD_BASES = {"IDLE", "MIXED", "ALLOCATED"}
# Flags that take nothing away, or that say what the base says. EXTERNAL (a node without slurmd) is new in Slurm 26.05,
# which also prints UNDRAIN (what an administrator asks for) in its JSON.
HARMLESS = {"CLOUD", "COMPLETING", "PLANNED", "RESERVED", "DYNAMIC_NORM", "DYNAMIC_FUTURE", "BLOCKED", "PERFCTRS"}
HARMLESS |= {"EXTERNAL", "UNDRAIN"}
REBOOT_FLAGS = {"REBOOT_REQUESTED", "REBOOT_ISSUED", "REBOOT_CANCELED"}
POWER_FLAGS = {"POWERED_DOWN", "POWERING_DOWN", "POWER_DOWN", "POWERING_UP", "POWER_UP", "POWER_DRAIN", "POWERED"}
OUT_FLAGS = {"DRAIN", "FAIL", "INVALID_REG", NOT_RESPONDING}
KNOWN_FLAGS = HARMLESS | REBOOT_FLAGS | POWER_FLAGS | OUT_FLAGS | {"MAINTENANCE"}

LOOK_AT_NODE = Suggestion(LOOK, "state, reason, who set it and when", "scontrol show node {nodes}")
LOOK_AT_SLURMD = Suggestion(
    LOOK,
    "does the node answer, and does slurmd run?",
    "clush -w {nodes} 'uptime; systemctl status slurmd --no-pager | head -n 5'",
)
RESUME = Suggestion(
    CONFIGURE,
    "when the cause is fixed: return the node to service",
    "sudo scontrol update nodename={nodes} state=resume",
)
ADVICE: dict[str, tuple[Suggestion, ...]] = {
    DOWN.id: (LOOK_AT_NODE, LOOK_AT_SLURMD, RESUME),
    SILENT.id: (
        LOOK_AT_SLURMD,
        suggest.save_evidence(),
        Suggestion(CONFIGURE, "slurmd is not running: start it", "clush -w {nodes} 'sudo systemctl restart slurmd'"),
        suggest.reboot("when the node does not answer at all"),
        suggest.replace("when a reboot did not bring it back"),
    ),
    DRAINED.id: (LOOK_AT_NODE, RESUME),
    FAILING.id: (LOOK_AT_NODE, RESUME),
    INVALID.id: (
        Suggestion(LOOK, "what slurmd finds on the node, as a line for slurm.conf", "clush -w {nodes} 'slurmd -C'"),
    ),
    UNREGISTERED.id: (
        LOOK_AT_SLURMD,
        Suggestion(CONFIGURE, "slurmd is not running: start it", "clush -w {nodes} 'sudo systemctl restart slurmd'"),
    ),
    UNKNOWN_STATE.id: (LOOK_AT_NODE,),
    REBOOTING.id: (LOOK_AT_NODE,),
    MAINTENANCE.id: (Suggestion(LOOK, "who reserved it, and until when", "scontrol show reservation"),),
    POWERED_OFF.id: (LOOK_AT_NODE,),
}


def is_out(node: SlurmNode) -> bool:
    """May no new job start there? A reboot, a reservation or power saving counts; a reason does not."""
    flags = set(node.flags)
    return node.state not in GOOD_BASES or bool(flags & (OUT_FLAGS | REBOOT_FLAGS)) or bool(flags - KNOWN_FLAGS)


def collect(gathered: Gathered) -> Members:
    if gathered.slurm is None:
        raise Skip("Slurm did not list its nodes")
    return gathered.members


def figures(gathered: Gathered) -> dict[str, Any]:
    """For the report's head: how many nodes are in which state, the most first."""
    words = [member.slurm.words for member in gathered.members.members if member.slurm]
    states = sorted(Counter(words).items(), key=lambda pair: (-pair[1], pair[0]))
    return {"form": gathered.slurm.form if gathered.slurm else "", "nodes": len(words), "states": dict(states)}


def judge(members: Members, policy: Policy) -> Iterator[Finding]:
    for member in members.members:
        if member.slurm is not None:
            yield from _of(member, member.slurm, members)


def _of(member: Member, node: SlurmNode, members: Members) -> Iterator[Finding]:
    flags = set(node.flags)
    if "MAINTENANCE" in flags:
        yield _found(MAINTENANCE, node, f"{node.words}")
    if flags & POWER_FLAGS - {"POWERED"}:
        yield _found(POWERED_OFF, node, node.words)
        return
    if not is_out(node) or node.state == "FUTURE":  # planned in slurm.conf, not there yet
        return
    reading = reasons.read(node.reason) if node.reason else reasons.Reading(())
    rebooting = flags & REBOOT_FLAGS - {"REBOOT_CANCELED"}
    if reading.action:
        yield _action(member, node, reading.action, members)
        return
    if reading.meant:
        yield _misspelt(node, reading.meant)
    if rebooting:
        yield _found(REBOOTING, node, _state_of(node, reading))
    elif NOT_RESPONDING in flags:
        yield _found(SILENT, node, _state_of(node, reading))
    hits = {part.row.id: part for part in reading.hits if part.row}
    for part in hits.values():
        assert part.row is not None and part.row.rule is not None
        yield part.row.rule.found(
            f"{part.text}{_quoted(reading)}", evidence=[evidence(node)], suggest=part.row.advice, subject=node.name
        )
    if _is_unknown(node):
        only_base = node.state == "UNKNOWN" and not flags - KNOWN_FLAGS
        yield _found(UNREGISTERED if only_base else UNKNOWN_STATE, node, node.words)
    elif not (hits or reading.meant or rebooting or NOT_RESPONDING in flags):
        yield _found(_by_state(flags), node, _state_of(node, reading))


def _is_unknown(node: SlurmNode) -> bool:
    """A wrong registration leaves the base UNKNOWN: that is not the news."""
    explained = {"INVALID_REG", NOT_RESPONDING} & set(node.flags)
    return bool(set(node.flags) - KNOWN_FLAGS) or (node.state not in GOOD_BASES | {"DOWN"} and not explained)


def _by_state(flags: set[str]) -> Rule:
    if "INVALID_REG" in flags:
        return INVALID
    if "FAIL" in flags:
        return FAILING
    return DRAINED if "DRAIN" in flags else DOWN


def _found(rule: Rule, node: SlurmNode, detail: str) -> Finding:
    return rule.found(detail, evidence=[evidence(node)], suggest=ADVICE[rule.id], subject=node.name)


def _state_of(node: SlurmNode, reading: reasons.Reading) -> str:
    """The reason first, since it tells nodes apart, then the state: a table shows the beginning."""
    return ", ".join(filter(None, (_quoted(reading).removeprefix(", "), node.words)))


def _quoted(reading: reasons.Reading) -> str:
    """What no table knows, in the words of whoever set it."""
    return f", reason {clean(reasons.CHAIN.join(reading.others), 80)!r}" if reading.others else ""


def evidence(node: SlurmNode) -> Evidence:
    """State and reason as Slurm shows them, who set it and since when."""
    text = node.words
    if node.reason:
        text += f", reason {clean(folded(node.reason), 200)!r}"
    if node.reason_user:
        text += f", set by {clean(node.reason_user, 40)}"
    if node.reason_time:
        text += f" on {time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime(node.reason_time))} UTC"
    return Evidence(f"scontrol show node {node.name}", text)


# HyperPod's actions


def _misspelt(node: SlurmNode, meant: str) -> Finding:
    reboot = meant == suggest.ACTION_REBOOT
    rule = MISSPELT_REBOOT if reboot else MISSPELT_REPLACE
    why = f"if that is what was wanted: HyperPod reads exactly {meant}, with state=fail, and nothing else"
    act = suggest.reboot(why) if reboot else suggest.replace(why)
    return rule.found(
        f"reason {clean(repr(node.reason), 80)}, HyperPod acts on {meant!r} only",
        evidence=[evidence(node)],
        suggest=[LOOK_AT_NODE, suggest.save_evidence(), RESUME, act],
        subject=node.name,
    )


def _action(member: Member, node: SlurmNode, action: str, members: Members) -> Finding:
    """A valid action: leave the node alone, unless nothing will come of it."""
    if members.recovery.casefold() == "none":
        return NO_RECOVERY.found(
            f"reason {action}, but NodeRecovery of the cluster is None",
            evidence=[evidence(node)],
            suggest=[
                Suggestion(
                    LOOK, "the setting", f"aws sagemaker describe-cluster --cluster-name {members.cluster or 'NAME'}"
                ),
                Suggestion(
                    CONFIGURE, "turn node recovery on (update-cluster --node-recovery Automatic), or act by hand"
                ),
            ],
            subject=node.name,
        )
    waited = members.now - node.reason_time if node.reason_time else 0.0
    launched = member.instance.launched if member.instance else None
    since = max(node.boot_time or 0, launched or 0)
    booted_since = bool(since and node.reason_time and since > node.reason_time)
    if waited > STUCK_AFTER and not member.jobs and not booted_since:
        return STUCK.found(
            f"{action} was set over {STUCK_AFTER // 60} minutes ago, no job holds the node, and it did not reboot",
            evidence=[evidence(node)],
            suggest=[
                Suggestion(
                    LOOK, "NodeRecovery must be Automatic, the cluster InService, and capacity there", _cluster(members)
                ),
                Suggestion(
                    LOOK, "the lifecycle log of the new instance, then AWS Support; do not change the node's state"
                ),
            ],
            subject=node.name,
        )
    return UNDER_WAY.found(
        f"{action}: leave it alone; do not change its state, do not restart slurmctld",
        evidence=[evidence(node)],
        subject=node.name,
    )


def _cluster(members: Members) -> str:
    return f"aws sagemaker describe-cluster --cluster-name {members.cluster or 'NAME'}"
