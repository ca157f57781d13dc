"""The report of the job, its cause, and where it hangs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from hpslurm.bundle.parts import Parts
from hpslurm.bundle.request import Request
from hpslurm.core import records
from hpslurm.core.policy import Policy
from hpslurm.job import cause, first_screen, logs, report, report_view
from hpslurm.job.hang import facts as hang_facts
from hpslurm.job.hang import gather as hang_gather
from hpslurm.job.hang import told as hang_told
from hpslurm.job.hang import view as hang_view
from hpslurm.job.hang.case import main_step
from hpslurm.job.hang.judge import judge
from hpslurm.scan import joblog
from hpslurm.scan.collect import Collector
from hpslurm.sources.slurm import SlurmJob


def asked(request: Request, rules: Policy, parts: Parts) -> report.JobReport | None:
    """What Slurm and the records say of the job, if one was named."""
    if not request.job:
        return None
    ask = partial(report.gather, rules, request.root, request.job, request.results, ask_slurm=request.slurm)
    return parts.tried("report", ask, None)


def how_it_ended(
    job_report: report.JobReport | None, read: Sequence[logs.Log], collector: Collector, parts: Parts
) -> cause.Cause | None:
    """The cause by the job's records and all logs, where there are any."""
    if not job_report and not read:
        return None
    notes = tuple(log.note for log in read if log.note)
    output = joblog.Found(tuple(collector.result()), notes, tuple(log.path for log in read))
    job, kept, findings = (job_report.job, job_report.records, job_report.counted) if job_report else (None, (), [])
    return parts.tried("cause", lambda: cause.judged(job, output, kept, findings), None)


def add(
    request: Request,
    rules: Policy,
    job_report: report.JobReport | None,
    ended: cause.Cause | None,
    parts: Parts,
) -> bool:
    """The report, and where the job hangs if that was asked for; whether anything is known of the job."""
    if job_report is None:
        return False
    if not (job_report.job or job_report.records):
        why = report.nothing_known(job_report.id, job_report.why, rules, request.results, job_report.troubles)
        parts.miss(f"report-{job_report.id}", why)
        return False
    _add_report(rules, job_report, ended, parts)
    if request.hang:
        _add_hang(job_report.job, parts)
    return True


def _add_report(rules: Policy, job_report: report.JobReport, ended: cause.Cause | None, parts: Parts) -> None:
    name = f"report-{job_report.id}"
    outcome, planned = report_view.results_of(job_report, ended), first_screen.plans(job_report, ended).all
    made = report_view.json_lines(rules, job_report.id, outcome, ended, planned)
    parts.add(f"{name}.jsonl", "\n".join(map(records.encode, made)), f"hpslurm report {job_report.id} --json")
    parts.report(f"{name}.txt", f"hpslurm report {job_report.id}", lambda: report_view.text(job_report, ended))


def _add_hang(job: SlurmJob | None, parts: Parts) -> None:
    """What a job that runs does now: the verdict for people, and the sample to judge it again."""
    nodes = report.nodes_of(job)
    if job is None or job.state != "RUNNING" or not nodes:
        parts.miss("hang.txt", "the job does not run: hpslurm hang looks at one that does")
        return
    sample = parts.tried("hang", lambda: main_step(hang_gather.look(job, nodes)), None)
    if sample is None:
        return
    verdict = judge(sample, hang_told.of(sample, job))
    source = f"hpslurm hang {job.id}"
    parts.report("hang.txt", source, lambda: hang_view.text(sample, verdict, stacks=True, verbose=True))
    parts.add("hang.jsonl", "\n".join(map(records.encode, hang_facts.lines_of(sample))), f"{source} --save")
