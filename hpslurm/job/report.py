"""One job: how it ended by Slurm's word, and what its nodes recorded before and after it.

The epilog's look counts; the prolog's tells whether a finding was there before the job.
A node that left no record is named: silence is not health.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable

from hpslurm.core import nodeset, records
from hpslurm.core.finding import Evidence, Finding
from hpslurm.core.policy import Policy
from hpslurm.core.probe import FAIL, PASS, UNKNOWN, Result, reason
from hpslurm.core.records import Record
from hpslurm.core.values import dataclass, replace
from hpslurm.sources import slurm
from hpslurm.sources.host import Host
from hpslurm.sources.slurm import SlurmJob

SECONDS = 25.0  # for Slurm's programs together
NOT_BEGUN = ("PENDING", "CONFIGURING", "REQUEUED")
ACTIVE = ("PENDING", "RUNNING", "SUSPENDED", "COMPLETING", "CONFIGURING", "REQUEUED", "RESIZING", "STAGE_OUT")
BEFORE_THE_JOB = "seen by the prolog already, so it was there before the job"
DURING_THE_JOB = "seen by the epilog only, so it came during the job"
PROLOG, EPILOG = "prolog", "epilog"


@dataclass(frozen=True)
class Unseen:
    """Nodes of which a record is missing, or was cut off."""

    what: str
    nodes: tuple[str, ...]


@dataclass(frozen=True)
class View:
    """What the records of one job come to. ``findings`` have their node as subject."""

    findings: tuple[Finding, ...]
    not_checked: tuple[tuple[str, str, str], ...]  # probe, why, node
    passed: int
    unseen: tuple[Unseen, ...]


def view(kept: Iterable[Record], nodes: Iterable[str], *, over: bool = True, all_read: bool = True) -> View:
    """``nodes`` is Slurm's list of the job's nodes; ``over``: epilogs should have run.

    Without ``all_read`` some records may be there and could not be read: nobody may then be said to have left none.
    """
    by: dict[tuple[str, str], Record] = {(record.node, record.hook): record for record in kept}
    seen = {node for node, _ in by}
    names = list(dict.fromkeys([*nodes, *sorted(seen)]))
    findings: list[Finding] = []
    not_checked: list[tuple[str, str, str]] = []
    passed = 0
    for node in names:
        before, after = by.get((node, PROLOG)), by.get((node, EPILOG))
        last = after or before
        if last is None:
            continue
        findings += [_dated(finding, before, after) for finding in last.findings]
        for result in last.results:
            passed += result.outcome == PASS
            if result.outcome == UNKNOWN:
                not_checked.append((result.probe, result.note, node))
    wanted = (PROLOG, EPILOG) if over else (PROLOG,)
    none = "no record" if all_read else "no readable record"
    unseen = [Unseen(f"{none} of the {hook}", tuple(n for n in names if (n, hook) not in by)) for hook in wanted]
    unseen += [
        Unseen(f"record of the {hook} cut off", tuple(n for n in names if (r := by.get((n, hook))) and not r.complete))
        for hook in wanted
    ]
    return View(tuple(findings), tuple(not_checked), passed, tuple(one for one in unseen if one.nodes))


def _dated(finding: Finding, before: Record | None, after: Record | None) -> Finding:
    """The finding with one more piece of evidence: since when it is there, as far as records tell."""
    if after is None:
        when = "seen by the prolog; the epilog left no record"
    elif before is None or not before.complete:
        when = "seen by the epilog; the prolog left no whole record"
    elif any(one.rule.id == finding.rule.id for one in before.findings):
        when = BEFORE_THE_JOB
    else:
        when = DURING_THE_JOB
    return replace(finding, evidence=(*finding.evidence, Evidence("records", when)))


@dataclass(frozen=True)
class JobReport:
    """A job as Slurm and its nodes' records know it. ``why`` says why Slurm could not be asked, or is empty."""

    id: str
    job: SlurmJob | None
    why: str
    records: tuple[Record, ...]
    troubles: tuple[str, ...]
    seen: View
    named: tuple[Finding, ...]
    partly: bool = False  # some nodes only: the others may be as sick

    @property
    def over(self) -> bool:
        return self.job is None or self.job.state not in ACTIVE

    @property
    def has_output(self) -> bool:
        """Whether the job began, so that there can be output of it."""
        return self.job is None or self.job.state not in NOT_BEGUN

    @property
    def counted(self) -> list[Finding]:
        return [one for one in self.named if not one.muted]

    @property
    def outcome(self) -> list[Result]:
        outcome = [Result("records", FAIL if self.named else PASS, "", 0.0, None, self.named)]
        outcome += [Result(probe, UNKNOWN, f"{node}: {note}") for probe, note, node in self.seen.not_checked]
        outcome += [Result("records", UNKNOWN, f"{one.what}: {nodeset.fold(one.nodes)}") for one in self.seen.unseen]
        outcome += [Result("records", UNKNOWN, trouble) for trouble in self.troubles]
        return [*outcome, *([Result("slurm", UNKNOWN, self.why)] if self.why else [])]


def gather(
    rules: Policy, root: str, job_id: str, results: str | None, *, ask_slurm: bool = True, brief: bool = False
) -> JobReport:
    """Everything but the job's own output. Raises ValueError for what is no job id.

    ``brief``: of the records only what a report tells, as in ``records.parse``.
    """
    host = Host(root, seconds=SECONDS)
    job, why = None, "" if ask_slurm else "it was not asked (--no-slurm)"
    try:
        job = slurm.job(host, job_id) if ask_slurm else None
        job = replace(job, submit_line=slurm.submit_line(host, job)) if job and not well(job) else job
    except ValueError:  # no job id: the caller's mistake, not Slurm's
        raise
    except Exception as error:
        why = reason(error)
    finally:
        host.end_all()
    ids = [str(job.id), *map(str, job.parts)] if job else [job_id]
    read_of = [read(rules, results, one, brief=brief) for one in ids]
    kept = [record for of_one, _ in read_of for record in of_one]
    troubles = [trouble for _, of_one in read_of for trouble in of_one]
    over = job is None or job.state not in ACTIVE
    seen = view(kept, nodes_of(job), over=over, all_read=not troubles)
    named = tuple(rules.mute(finding) if not finding.muted else finding for finding in seen.findings)
    return JobReport(job_id, job, why, tuple(kept), tuple(troubles), seen, named)


def of_nodes(report: JobReport, names: Container[str]) -> JobReport:
    """The same job, with what was found and not seen on these nodes only."""
    seen = replace(
        report.seen,
        not_checked=tuple(one for one in report.seen.not_checked if one[2] in names),
        unseen=tuple(
            replace(unseen, nodes=nodes)
            for unseen in report.seen.unseen
            if (nodes := tuple(node for node in unseen.nodes if node in names))
        ),
    )
    named = tuple(one for one in report.named if one.subject in names)
    return replace(report, seen=seen, named=named, partly=True)


def shown_id(job: SlurmJob, job_id: str) -> str:
    """As it was asked for; of an array, the task that is told of as well."""
    if not job.among or job.parts:
        return job_id
    return f"{job_id} (id {job.id})" if job.array_task is None else f"{job_id}_{job.array_task}"


def well(job: SlurmJob | None) -> bool:
    return job is not None and job.state == "COMPLETED" and not job.exit_code and not job.derived_code


def read(rules: Policy, results: str | None, job: str, *, brief: bool = False) -> tuple[list[Record], list[str]]:
    """Records of the job from the shared folder and from this machine's own, the shared one first."""
    by_hook: dict[tuple[str, str], Record] = {}
    troubles: list[str] = []
    for folder in folders(rules, results):
        kept, unreadable = records.job_records(folder, re.split("[_+]", job)[0], brief=brief)
        troubles += map(str, unreadable)
        for record in kept:
            by_hook.setdefault((record.node, record.hook), record)
    return list(by_hook.values()), troubles


def folders(rules: Policy, results: str | None) -> list[str]:
    """The folder named on the command line, or those of the policy."""
    return [results] if results else list(filter(None, dict.fromkeys((rules.results_shared, rules.results))))


def nodes_of(job: SlurmJob | None) -> list[str]:
    """The job's nodes by Slurm's list; empty where it has none."""
    if job is None or job.nodes in ("(null)", "None assigned"):
        return []
    return nodeset.names_in(job.nodes)


def nothing_known(job_id: str, why: str, rules: Policy, results: str | None, troubles: Iterable[str]) -> str:
    where = " and ".join(folders(rules, results))
    slurm_says = f"Slurm could not be asked ({why})" if why else "neither the controller nor the accounting knows it"
    lines = [f"job {job_id}: {slurm_says}, and there is no record in {where}", *troubles]
    return "\n".join(
        [*lines, "Records of several nodes need results_shared in the policy; or name a folder: --results"]
    )
