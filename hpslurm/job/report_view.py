"""``hpslurm report`` as people and programs see it."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any

from hpslurm.core import nodeset, records
from hpslurm.core.policy import Policy
from hpslurm.core.probe import UNKNOWN, Result
from hpslurm.core.text import clean
from hpslurm.job import cause, first_screen
from hpslurm.job.report import ACTIVE, JobReport, View, nodes_of, shown_id, well
from hpslurm.scan import lines as scan_lines
from hpslurm.scan.reason import HEALTHY, UNDETERMINED
from hpslurm.show import diagnosis, page, plan, render
from hpslurm.show.page import GRAVEST, WORST_FIRST, Row
from hpslurm.show.plan import Plan
from hpslurm.sources.slurm import SlurmJob


def results_of(report: JobReport, ended: cause.Cause | None) -> list[Result]:
    """Everything that was looked at, the job's output too."""
    return [*report.outcome, *(Result("job_output", UNKNOWN, note) for note in (ended.notes if ended else ()))]


def json_lines(
    rules: Policy, job_id: str, outcome: list[Result], why: cause.Cause | None, plans: Sequence[Plan]
) -> list[dict[str, Any]]:
    *before, end = records.lines(rules, {**os.environ, "SLURM_JOB_ID": job_id}, "report", outcome)
    events = [scan_lines.event_line(one) for one in scan_lines.worth_keeping(why.events)] if why else []
    diagnosis = [scan_lines.diagnosis_line(why.diagnosis)] if why else []
    return plan.with_plans([*before, *events, *diagnosis, end], plans)


def headline(job: SlurmJob | None, job_id: str, why: str = "") -> str:
    """How the job ended, in one line; ``why`` says why Slurm could not be asked."""
    if job is None and why:
        return f"Job {job_id}: state unknown, Slurm could not be asked; its nodes' records are here"
    if job is None:
        return f"Job {job_id}: state unknown, Slurm has forgotten it; its nodes' records remain"
    parts = [f"Job {shown_id(job, job_id)} ({clean(job.name, 40)}) of {clean(job.user, 40)}: {job.state}"]
    if job.among:
        parts.append(job.among)
    if job.reason and job.reason != "None":
        parts.append(f"reason {clean(job.reason, 60)}")
    if job.exit_code is not None and job.state not in ACTIVE:
        parts.append(f"exit code {job.exit_code}:{job.exit_signal or 0}")
    if job.derived_code or job.derived_signal:
        parts.append(f"worst step {job.derived_code or 0}:{job.derived_signal or 0}")
    if job.nodes:
        parts.append(f"on {clean(job.nodes, 60)}")
    if job.start_time and job.end_time and job.end_time >= job.start_time and job.state not in ACTIVE:
        began = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(job.start_time))
        parts.append(f"{job.end_time - job.start_time} s from {began}")
    if job.restarts:
        parts.append(f"restarted {job.restarts} times")
    return ", ".join(parts) + (f"  [{job.source}]" if job.source else "")


def text(report: JobReport, ended: cause.Cause | None) -> list[str]:
    """The report as people see it: one line for a job that went well and left nothing."""
    job, seen, troubles, why = report.job, report.seen, report.troubles, report.why
    folded = render.fold(report.named)
    not_checked = [render.NotChecked(probe, note, (node,)) for probe, note, node in seen.not_checked]
    head = headline(job, report.id, why)
    if well(job) and not folded and not not_checked and not troubles and not why and ended is None:
        return render.fitted(f"{head}; {_recorded(seen, job)}")
    lines = render.fitted(head)
    if not report.over:
        lines += render.labelled(
            "WARN", f"the job is {job.state if job else 'not over'}: what follows is what there is so far"
        )
    if ended:
        lines += diagnosis.text(ended.diagnosis)
    lines += [line for one in folded for line in render.finding_lines(one)]
    lines += render.not_checked_lines(not_checked)
    warned = [f"{one.what}: {nodeset.fold(one.nodes)}" for one in seen.unseen]
    warned += [clean(trouble) for trouble in (*troubles, *filter(None, [why]))]
    lines += [line for one in warned for line in render.labelled("WARN", one)]
    unknown = len(not_checked) + len(seen.unseen) + len(troubles) + bool(why) + len(ended.notes if ended else ())
    last = render.summary(folded, unknown, seen.passed)
    if ended and ended.diagnosis.cause not in (HEALTHY, UNDETERMINED):
        last = f"Cause found: {ended.diagnosis.cause} · {last.replace('Issues found', 'issues recorded on its nodes')}"
    return [*lines, *render.fitted(last)]


def _recorded(seen: View, job: SlurmJob | None) -> str:
    missing = [f"{one.what}: {nodeset.fold(one.nodes)}" for one in seen.unseen]
    if len(missing) == 2 and not seen.passed:
        return "its nodes left no record"
    return "; ".join(["nothing found on its nodes", *missing])


def page_of(report: JobReport, ended: cause.Cause | None, outcome: Sequence[Result], now: float) -> str:
    """The report as one page."""
    import click

    with render.as_wide_as(100):
        whole = [click.unstyle(line) for line in diagnosis.text(ended.diagnosis)] if ended else []
    return page.page(
        outcome,
        _rows(report, now),
        [headline(report.job, report.id, report.why)],
        now,
        f"job {report.id}",
        title="hpslurm report",
        answer=first_screen.answer(report, ended, now),
        whole=whole,
        passed=report.seen.passed,
    )


def _rows(report: JobReport, now: float) -> list[Row]:
    """The job's nodes, the gravest first, with the hooks that left a record."""
    ids: dict[str, dict[str, str]] = {}
    for finding in report.counted:
        ids.setdefault(finding.subject, {})[finding.rule.id] = GRAVEST[finding.rule.priority]
    hooks: dict[str, list[str]] = {}
    for record in report.records:
        hooks.setdefault(record.node, []).append(record.hook if record.complete else f"{record.hook} (cut off)")
    names = dict.fromkeys([*nodes_of(report.job), *hooks])
    rows = [
        Row(
            name=name,
            role="",
            group="",
            instance="",
            slurm="",
            reason="",
            hyperpod="",
            jobs="",
            record=", ".join(sorted(hooks.get(name, []), reverse=True)),
            findings=tuple(sorted(ids.get(name, {}).items(), key=lambda pair: (pair[1], pair[0]))),
            grade=min(ids[name].values()) if name in ids else "ok" if name in hooks else "unknown",
        )
        for name in names
    ]
    return sorted(rows, key=lambda row: WORST_FIRST.index(row.grade))
