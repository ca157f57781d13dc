"""The summary that case.txt is: what AWS Support asks first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hpslurm.bundle import case
from hpslurm.bundle.of_machine import Machine
from hpslurm.bundle.request import Request
from hpslurm.bundle.window import Window, utc
from hpslurm.cluster import gather
from hpslurm.cluster.aws import checks
from hpslurm.core import nodeset
from hpslurm.core.finding import P0, P1, Finding
from hpslurm.core.probe import Result
from hpslurm.core.text import clean
from hpslurm.core.values import dataclass
from hpslurm.job import cause, report, report_view
from hpslurm.show.diagnosis import who
from hpslurm.sources.aws import CLUSTER_ARN


@dataclass(frozen=True)
class Collected:
    """What it is made of: what each source gave, None and empty where it gave nothing."""

    half: gather.Half | None
    results: Sequence[Result]
    job_report: report.JobReport | None
    ended: cause.Cause | None
    window: Window
    errors: Sequence[str]
    settings: Sequence[str]
    machine: Machine


def of(request: Request, collected: Collected) -> case.Case:
    half, job_report, machine, window = collected.half, collected.job_report, collected.machine, collected.window
    view = half.view if half else None
    cluster = checks.cluster(view)
    layout = machine.layout
    arn = cluster.arn if cluster else layout.arn
    named = CLUSTER_ARN.fullmatch(arn)
    counted = [finding for result in collected.results for finding in result.findings if not finding.muted]
    by = {level: len({finding.rule.id for finding in counted if finding.rule.priority == level}) for level in (P0, P1)}
    counts = ", ".join(f"{number} {level}" for level, number in by.items() if number)
    ids = {member.name: member.instance_id for member in half.members.members} if half else {}
    controllers = tuple(
        f"{controller.host}{f' = {ids[controller.host]}' if ids.get(controller.host) else ''}"
        for controller in machine.controllers
    )
    job = job_report.job if job_report else None
    in_versions = f"Slurm {machine.slurm_version}" if machine.slurm_version else "what files of this machine say"
    return case.Case(
        cluster=cluster.name if cluster else layout.cluster,
        arn=arn,
        region=(view.region if view else "") or (named["region"] if named else "") or request.options.region,
        status=f"{cluster.status}{f': {cluster.failure}' if cluster.failure else ''}" if cluster else "",
        slurm=machine.slurm_version,
        controllers=controllers or layout.controllers,
        window=f"{utc(window.since)} to {utc(window.until)}, by {window.source}",
        job=report_view.headline(job, job_report.id, job_report.why).removeprefix("Job ") if job_report else "",
        ran_on=clean(job.nodes, 600) if job and len(job.nodes) > 60 else "",  # the headline cuts it
        nodes=tuple(_involved(collected)),
        cause=_cause(collected.ended),
        errors=tuple(collected.errors),
        settings=len({line.partition("=")[0] for line in collected.settings}),
        findings=f"findings.txt{f' ({counts})' if counts else ' (no P0 or P1 in what could be checked)'}"
        if collected.results
        else "",
        versions=f"versions.txt ({in_versions})",
    )


def _cause(ended: cause.Cause | None) -> str:
    if ended is None:
        return ""
    diagnosis = ended.diagnosis
    culprit = f", {who(diagnosis.culprit)}" if diagnosis.culprit else ""
    return f"{diagnosis.cause}{culprit} ({diagnosis.confidence} confidence)"


def _involved(collected: Collected) -> Iterator[case.Node]:
    """Who is named as the culprit, then nodes of the job (else any) with a finding of P0 or P1."""
    half, job_report, ended = collected.half, collected.job_report, collected.ended
    members = {member.name: member for member in half.members.members} if half else {}
    why: dict[str, list[str]] = {}
    culprit = ended.diagnosis.culprit if ended else None
    if ended and culprit and culprit.host:
        for name in nodeset.names_in(culprit.host.partition(".")[0])[:1000]:
            why.setdefault(name, []).append(f"named by the logs ({ended.diagnosis.cause})")
    own = set(report.nodes_of(job_report.job)) if job_report else set()
    findings: list[Finding] = list(job_report.counted) if job_report else []
    findings += [finding for result in collected.results for finding in result.findings if not finding.muted]
    for finding in findings:
        subject, rule = finding.subject, finding.rule
        if rule.priority in (P0, P1) and (subject in own or (not own and subject in members)):
            known = why.setdefault(subject, [])
            known += [rule.id] if rule.id not in known else []
    for name in sorted(own) if len(own) <= case.MOST_NODES else ():
        why.setdefault(name, ["ran the job"])
    ids = {record.node: str(record.run.get("instance") or "") for record in job_report.records} if job_report else {}
    for name, reasons in why.items():
        member = members.get(name)
        yield case.Node(name, (member.instance_id if member else "") or ids.get(name, ""), ", ".join(reasons))
