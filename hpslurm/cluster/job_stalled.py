"""Does a running job stand still? Told by the newest health check of each of its nodes.

Its GPUs are busy at low power, and no byte moves, on all its nodes and for longer than ``stall_minutes``. A node of it
that computes, reads, writes or sends keeps it from being called so: that may be a checkpoint, an evaluation, a compile.
"""

from __future__ import annotations

from collections.abc import Iterator

from hpslurm.cluster.model import Gathered
from hpslurm.core import nodeset
from hpslurm.core.finding import LOOK, P1, Evidence, Finding, Rule, Suggestion
from hpslurm.core.policy import Policy
from hpslurm.core.probe import Skip, Unknown
from hpslurm.core.text import clean
from hpslurm.core.values import dataclass
from hpslurm.node.job_activity import DIFFERS, IDLES, UNKNOWN, WAITS, WORKS, Share, activity, share_of
from hpslurm.sources.slurm import Queued

STALLED = Rule("job-stalled", P1, "A running job stands still", "debugging-guide.md § 1")


@dataclass(frozen=True)
class Facts:
    jobs: tuple[tuple[Queued, tuple[str, ...], tuple[Share, ...]], ...]  # each with its nodes, and what these told
    now: float


def collect(gathered: Gathered) -> Facts:
    running = [job for job in gathered.queue if job.state == "RUNNING"]
    told = {member.name: activity(member.record) for member in gathered.members.members}
    if not any(told.values()):
        raise Skip("no health check has seen a job on a GPU")
    jobs = []
    for job in running:
        nodes = nodeset.names_in(job.nodes)
        shares = [share for node in nodes if (share := share_of(node, told.get(node), str(job.id)))]
        if shares:
            jobs.append((job, tuple(nodes), tuple(shares)))
    return Facts(tuple(jobs), gathered.members.now)


def judge(facts: Facts, policy: Policy) -> Iterator[Finding]:
    untold = []
    for job, nodes, shares in facts.jobs:
        stands = _stands(shares, facts.now, policy)
        if stands is None:
            continue
        if missing := sorted(set(nodes) - {share.node for share in shares}):
            untold.append(f"job {job.id}: no health check of {nodeset.fold(missing)} tells of it")
            continue
        yield _found(job, shares, stands, facts.now)
    if untold:
        raise Unknown("; ".join(untold))


def _stands(shares: tuple[Share, ...], now: float, policy: Policy) -> float | None:
    """Since when it stands still on all of these nodes, for long enough; None where one of them works or is old."""
    limit = policy.stall_minutes * 60
    waiting = sum(share.doing == WAITS for share in shares)
    if any(share.doing in (WORKS, UNKNOWN) or now - share.seen > 2 * limit for share in shares):
        return None
    since = max(share.since for share in shares)
    return since if waiting * 2 > len(shares) and min(share.seen for share in shares) - since >= limit else None


_WORDS = {DIFFERS: "a GPU without a kernel", IDLES: "all its GPUs without a kernel"}


def _found(job: Queued, shares: tuple[Share, ...], since: float, now: float) -> Finding:
    gpus = sum(share.gpus for share in shares)
    minutes = (now - since) / 60
    odd = {share.node: _WORDS[share.doing] for share in shares if share.doing in _WORDS}
    apart = "".join(f"; {node} differs from the rest: {words}" for node, words in list(odd.items())[:4])
    detail = (
        f"job {job.id} of {clean(job.user, 40)}: for {minutes:.0f} min its {gpus} GPUs wait at low power and no byte "
        f"moves, {gpus * minutes / 60:.1f} GPU hours so far{apart}"
    )
    evidence = [
        Evidence(
            f"health check of {share.node}", f"{share.gpus} GPUs, {share.doing} since {_minutes(now - share.since)}"
        )
        for share in sorted(shares, key=lambda share: (share.doing == WAITS, share.node))[:8]
    ]
    look = Suggestion(LOOK, "which rank it waits for, and why", f"hpslurm hang {job.id}")
    return STALLED.found(detail, evidence=evidence, suggest=[look], subject=nodeset.fold(odd) if len(odd) == 1 else "")


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} min"
