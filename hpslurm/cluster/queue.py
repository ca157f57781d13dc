"""The queue: which jobs wait for something that will not come by itself?

A job that waits for its turn is no finding. One that waits for a node that is out, one
that Slurm put on hold after a failed prolog, and one that does not finish completing are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from hpslurm.cluster.model import Gathered, Member, Members
from hpslurm.cluster.slurm_nodes import is_out
from hpslurm.core import nodeset, suggest
from hpslurm.core.finding import CONFIGURE, LOOK, P1, Evidence, Finding, Rule, Suggestion
from hpslurm.core.policy import Policy
from hpslurm.core.probe import Skip
from hpslurm.core.text import clean
from hpslurm.core.values import dataclass, replace
from hpslurm.sources.slurm import Queued

SICK = Rule("jobs-wait-for-sick-nodes", P1, "Jobs wait for nodes that are out", "operations.md § 7")
HELD = Rule("jobs-held", P1, "Jobs held by Slurm after a failed start", "operations.md § 7")
COMPLETING = Rule("job-stuck-completing", P1, "A job does not finish completing", "operations.md § 7")

_UNAVAILABLE = re.compile(r"UnavailableNodes:(\S+)")
_OUT = re.compile(r"nodes[ _]required[ _]for[ _]job[ _]are[ _]down|ReqNodeNotAvail|NodeDown|Node_down", re.IGNORECASE)
_HELD = re.compile(r"launch[ _]failed[ _]requeued[ _]held|JobHoldMaxRequeue|requeued[ _]in[ _]held", re.IGNORECASE)
LEFT_OVER = (
    Suggestion(
        LOOK,
        "what of the job is left there: processes in state D, or an epilog that hangs",
        "clush -w {nodes} 'ps -eo pid,user,stat,wchan:32,etime,args; sudo tail -n 20 /var/log/slurm/slurmd.log'",
    ),
    suggest.save_evidence(),
    suggest.drain(COMPLETING.id),
    suggest.reboot("a process stuck in the kernel ends in no other way"),
)
MOST_IDS = 100  # job ids in one command


@dataclass(frozen=True)
class Facts:
    """Jobs wait for all nodes, whether these were asked for or not."""

    queue: tuple[Queued, ...]
    members: Members


def collect(gathered: Gathered) -> Facts:
    if gathered.slurm is None:
        raise Skip("Slurm did not list its nodes")
    everyone = tuple(Member(node.name, node) for node in gathered.slurm.nodes)
    return Facts(gathered.queue, replace(gathered.members, members=everyone))


def judge(facts: Facts, policy: Policy) -> Iterator[Finding]:
    yield from _waiting(facts)
    held = [job for job in facts.queue if job.state == "PENDING" and _HELD.search(job.reason)]
    if held:
        yield HELD.found(
            f"jobs requeued and held: {len(held)}; they start only when somebody releases them",
            evidence=[_line(job) for job in held],
            suggest=[
                Suggestion(
                    LOOK,
                    "which node's prolog failed, and why",
                    "sudo grep -i prolog /var/log/slurm/slurmctld.log | tail",
                ),
                Suggestion(CONFIGURE, "when the cause is gone: let them start", f"sudo scontrol release {_ids(held)}"),
            ],
        )
    yield from _completing(facts, policy)


def _waiting(facts: Facts) -> Iterator[Finding]:
    """Only a job whose own words point at a node that is out: an ordinary queue says Resources or Priority."""
    out = {member.name for member in facts.members.members if member.slurm and is_out(member.slurm)}
    waiting: dict[Queued, list[str]] = {}
    for job in facts.queue:
        if job.state != "PENDING" or not _OUT.search(job.reason):
            continue
        named = _UNAVAILABLE.search(job.reason)
        wanted = set(nodeset.names_in(named[1])) if named else _of_partitions(job, facts.members)
        if sick := sorted(wanted & out):
            waiting[job] = sick
    if waiting:
        nodes = sorted({name for sick in waiting.values() for name in sick})
        yield SICK.found(
            f"jobs waiting: {len(waiting)}, for nodes that are out: {nodeset.fold(nodes)}",
            evidence=[_line(job) for job in waiting],
            suggest=[
                Suggestion(LOOK, "the jobs, and what they ask for", f"squeue -j {_ids(waiting, ',')}"),
                Suggestion(LOOK, "why the nodes are out", "sinfo -R"),
            ],
        )


def _of_partitions(job: Queued, members: Members) -> set[str]:
    wanted = set(job.partition.split(","))
    return {member.name for member in members.members if member.slurm and wanted & set(member.slurm.partitions)}


def _completing(facts: Facts, policy: Policy) -> Iterator[Finding]:
    known = {member.name for member in facts.members.members}
    for job in facts.queue:
        since = facts.members.now - job.end_time if job.end_time else 0.0
        if job.state != "COMPLETING" or since <= policy.completing_max:
            continue
        for name in sorted(known.intersection(nodeset.names_in(job.nodes))):
            yield COMPLETING.found(
                f"job {job.id} of {clean(job.user, 40)} ended over {policy.completing_max} s ago, and still completes",
                evidence=[_line(job)],
                suggest=LEFT_OVER,
                subject=name,
            )


def _line(job: Queued) -> Evidence:
    where = f" on {clean(job.nodes, 80)}" if job.nodes else ""
    return Evidence(f"job {job.id}", f"{job.state}{where}, {clean(job.user, 40)}: {clean(job.reason, 160)}")


def _ids(jobs: list[Queued] | dict[Queued, list[str]], mark: str = " ") -> str:
    return mark.join(str(job.id) for job in list(jobs)[:MOST_IDS])
