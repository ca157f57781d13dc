"""The hardest facts about a job that hangs: a rank stopped or gone, a lost GPU, a file system, a silent node."""

from __future__ import annotations

import os

from hpslurm.core import nodeset
from hpslurm.job.hang import places as hang_places
from hpslurm.job.hang.case import HIGH, LOW, MEDIUM, Case, Suspect, Verdict, count_waiting, mostly
from hpslurm.job.hang.facts import STOPPED, TRACED, ZOMBIE, Node, Rank
from hpslurm.job.hang.gpus import gpu_suspect
from hpslurm.job.hang.places import NOWHERE
from hpslurm.job.hang.words import each, numbers, output_of, suspect_of
from hpslurm.scan.reason import UNDETERMINED


def nobody(case: Case) -> Verdict | None:
    if case.ranks:
        return None
    if case.sample.silent and not case.sample.nodes:
        return Verdict(UNDETERMINED, LOW, "No node of the job answered", settle=("hpslurm hang again; sinfo -R",))
    why = "No process of the job that is a rank was seen on its nodes: it starts, ends, or runs in another way"
    return Verdict(UNDETERMINED, LOW, why, settle=("squeue -s -j JOBID, and what the job script does now",))


def stopped(case: Case) -> Verdict | None:
    found = [rank for rank in case.ranks if rank.state in (STOPPED, TRACED)]
    if not found:
        return None
    words = {STOPPED: "stopped by a signal (state T)", TRACED: "held by a debugger (state t)"}
    suspects = [suspect_of(rank, words[rank.state]) for rank in found]
    why = f"{each(found)} is {words[found[0].state]}; the others wait for what it would do next"
    if len(found) == len(case.ranks):
        why = "All ranks are stopped: the job is suspended (scontrol suspend), or somebody stopped it"
    return Verdict(
        "slow_rank_work", HIGH, why, tuple(suspects), settle=("who sent SIGSTOP: a debugger, a user, gcore",)
    )


def gone(case: Case) -> Verdict | None:
    """Ranks that should be there and are not: they died, or never began."""
    there = {rank.rank for rank in case.ranks if rank.state not in (ZOMBIE, "X")}
    missing = [number for number in range(case.world) if number not in there] if len(there) < case.world else []
    if case.sample.silent:  # they may be where nobody answers
        missing = [number for number in missing if home(case, number)]
    if not missing or len(missing) > case.world // 2:
        return None
    at_start = mostly(case, "rendezvous")
    homes = {number: home(case, number) for number in missing}
    dead = [node for node in case.sample.nodes if node.zombies]
    what = "never came" if at_start else "its process is gone"
    suspects = [Suspect(homes[number], what, number) for number in missing]
    named = f"{numbers(missing)} of {case.world}"
    if at_start:
        why = f"{named.capitalize()} never came to the start, where the others wait"
        return Verdict("rendezvous_unreachable", HIGH, why, tuple(suspects), settle=(output_of(missing),))
    zombie = f"; dead and not yet collected on {nodeset.fold(node.name for node in dead)}" if dead else ""
    why = f"The process of {named} is gone, and the others wait for it{zombie}"
    sure = HIGH if case.has_stacks and count_waiting(case) * 2 > len(case.ranks) else MEDIUM
    return Verdict("peer_exit", sure, why, tuple(suspects), settle=(output_of(missing),))


def home(case: Case, number: int) -> str:
    """The node that a rank belongs to, by what the launcher numbered in a row there; empty where nothing tells."""
    for node in case.sample.nodes:
        bases = {rank.rank - rank.local for rank in node.ranks if rank.rank is not None and rank.local is not None}
        if len(bases) == 1:
            base = bases.pop()
            if base <= number < base + _per_node(case, node):
                return node.name
    empty = [node.name for node in case.sample.nodes if not node.ranks]
    return empty[0] if len(empty) == 1 else ""


def _per_node(case: Case, node: Node) -> int:
    """How many ranks a node should have: as its launcher says, else as many as the fullest one."""
    said = [rank.locals for rank in node.ranks if rank.locals]
    return said[0] if said else max((len(node.ranks) for node in case.sample.nodes), default=0)


def lost_gpu(case: Case) -> Verdict | None:
    found = [(node, gpu) for node in case.sample.nodes for gpu in node.gpus if gpu.lost]
    if not found:
        return None
    suspects = [gpu_suspect(node, gpu, f"is lost: {gpu.lost}") for node, gpu in found]
    first = suspects[0]
    at = f", which is rank {first.rank}'s" if first.rank is not None else ""
    why = f"NVML does not reach GPU {first.gpu} on {first.node}{at}"
    return Verdict("gpu_fell_off_bus", HIGH, why, tuple(suspects), settle=("the node's kernel log: an XID 79 or 119",))


def stuck(case: Case) -> Verdict | None:
    """Ranks, or processes that they started, which a file system does not let go."""
    found = [rank for rank in case.ranks if hang_places.is_stuck(rank) or _stuck_children(rank)]
    if not found:
        return None
    suspects = [suspect_of(rank, _stuck_words(rank)) for rank in found]
    where = {place for rank in found if (place := _stuck_where(rank)).startswith("/")}
    at = f" ({os.path.commonpath(where)})" if where else ""
    if len(found) * 2 > len(case.ranks):
        why = f"{len(found)} of {len(case.ranks)} ranks wait in the kernel for a file{at}: the file system, not a rank"
        return Verdict(
            "storage", HIGH if where else MEDIUM, why, settle=("lfs check servers, or df of it on any node",)
        )
    rather = (
        ", on several nodes, so rather the file system than a rank" if len({rank.node for rank in found}) > 1 else ""
    )
    why = f"{each(found)} is in state D{at}: the kernel waits for a file system{rather}, and the others wait for it"
    return Verdict("storage", HIGH if where else MEDIUM, why, tuple(suspects), settle=("the node's kernel log",))


def _stuck_children(rank: Rank) -> bool:
    return any(child.state == "D" for child in rank.children)


def _stuck_where(rank: Rank) -> str:
    return rank.where or next((child.where for child in rank.children if child.where), "")


def _stuck_words(rank: Rank) -> str:
    who = "" if hang_places.is_stuck(rank) else "a process of it "
    return f"{who}in state D" + (f" at {_stuck_where(rank)}" if _stuck_where(rank) else "")


def silent(case: Case) -> Verdict | None:
    """Nodes that did not answer, where nothing else explains it, and the ranks of the others wait."""
    silent = case.sample.silent
    busy = sum(place.kind is not NOWHERE and not place.kind.waits for place in case.places.values())
    if busy * 2 > len(case.ranks):
        return None
    if not silent or len(silent) * 2 > len(silent) + len(case.sample.nodes):
        return None
    suspects = tuple(Suspect(node, "did not answer") for node in silent)
    why = f"{nodeset.fold(silent)} did not answer within the time, all other nodes did"
    return Verdict("node_fail", MEDIUM, why, suspects, settle=(f"ping, and scontrol show node {nodeset.fold(silent)}",))
