"""The first screen of ``hpslurm report``: what ended the job, who is to blame, which nodes to avoid, what to type."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Sequence

from hpslurm.core.finding import P0, Diagnosis, Finding, Rule
from hpslurm.core.nodeset import fold
from hpslurm.core.text import clean
from hpslurm.core.values import dataclass, replace
from hpslurm.job import cause, resubmit
from hpslurm.job.report import ACTIVE, BEFORE_THE_JOB, JobReport, nodes_of, shown_id, well
from hpslurm.scan import advice, model
from hpslurm.scan.reason import HEALTHY, UNDETERMINED
from hpslurm.show import diagnosis as show
from hpslurm.show import plan, render, screen
from hpslurm.show.plan import OF_PEERS, Plan
from hpslurm.show.screen import Screen
from hpslurm.sources.slurm import SlurmJob

EPILOG_SECONDS = 120  # after a job's end: so long a record that is missing may still come
WENT_ON = "since before the job"


@dataclass(frozen=True)
class Plans:
    """One plan for each node: those that have a part in the job's end, and the others."""

    main: tuple[Plan, ...]
    also: tuple[Plan, ...]

    @property
    def all(self) -> tuple[Plan, ...]:
        return (*self.main, *self.also)


def plans(report: JobReport, ended: cause.Cause | None) -> Plans:
    """What was there before the job and cannot explain its end stands apart, but for nodes that have a part in it."""
    by_cause = _of_cause(report, ended)
    host = by_cause.subject if by_cause else ""
    findings = [*([by_cause] if by_cause else []), *report.counted]
    involved = {one.subject for one in report.counted if _explains(one, ended)} | ({host} if host else set())
    explained = {
        (finding.subject, finding.rule.id): host
        for finding in findings
        if host and finding.rule.id in OF_PEERS and finding.subject != host
    }
    main = [_marked(one) for one in findings if one is by_cause or one.subject in involved]
    also = [one for one in findings if one is not by_cause and one.subject not in involved]
    return Plans(tuple(plan.plans(main, explained=explained)), tuple(plan.plans(also, explained=explained)))


def _explains(finding: Finding, ended: cause.Cause | None) -> bool:
    """Whether the finding may have to do with how the job ended."""
    said = ended.diagnosis.cause if ended else ""
    return said not in ("", HEALTHY) and (not _before(finding) or finding.rule.cause == said)


def _before(finding: Finding) -> bool:
    return any(one.text == BEFORE_THE_JOB for one in finding.evidence)


def _marked(finding: Finding) -> Finding:
    return replace(finding, detail=f"{WENT_ON}: {finding.detail}") if _before(finding) else finding


def _of_cause(report: JobReport, ended: cause.Cause | None) -> Finding | None:
    """The cause as a finding, of the node that is to blame where it is one of the job's."""
    if ended is None or ended.diagnosis.cause in (HEALTHY, UNDETERMINED):
        return None
    told = ended.diagnosis
    row = model.causes().get(told.cause)
    host = culprit_node(report, told)
    if told.decisive and told.decisive.pattern.startswith("finding:") and told.decisive.host:
        return None  # it is among the findings already
    steps = told.suggestions
    if host:
        steps = tuple(cause.with_names(item, report.job, "{nodes}") for item in advice.suggest(told.cause, None))
    steps = tuple(item for item in steps if item.command != f"hpslurm report {report.id}")
    rule = Rule(told.cause, row.priority if row else P0, told.cause.replace("_", " "), told.section, told.cause)
    words = told.decisive.text if told.decisive else told.why
    return rule.found(clean(words), suggest=steps, subject=host)


def culprit_node(report: JobReport, told: Diagnosis) -> str:
    """The culprit's host, if it is a node of the job by Slurm's list or by the records."""
    host = told.culprit.host if told.culprit else ""
    names = {*nodes_of(report.job), *(record.node for record in report.records)}
    return host if host and host in names else ""


def avoided(report: JobReport, told: Diagnosis | None, made: Plans) -> list[str]:
    """Nodes on which the job would fail again: P0 findings of nodes, and the culprit where it is broken hardware."""
    nodes = {node for one in made.all if one.priority == P0 for node in _recorded(one, report)}
    row = model.causes().get(told.cause) if told else None
    if told and row and row.hardware and (host := culprit_node(report, told)):
        nodes.add(host)
    return sorted(nodes)


def _recorded(suggested: Plan, report: JobReport) -> list[str]:
    grave = {finding.subject for finding in report.counted if finding.rule.priority == P0}
    return [node for node in suggested.nodes if node in grave]


def none_failed(why: str) -> list[str]:
    """There is nothing to explain, as far as is known."""
    said = f"no job failed, hung or was cancelled in the last 24 h{f', as far as is known ({why})' if why else ''}"
    return render.labelled("WARN" if why else "PASS", f"{said}; of another one: hpslurm report JOBID")


MOST_JOBS = 9  # beside the one that is explained


def others(jobs: Sequence[SlurmJob], why: str) -> list[str]:
    """The other jobs of the day that did not end well, a line each; ``why`` says why some may be missing."""
    if not jobs:
        return [f"{render.label('WARN')} {screen.cut(f'other jobs: {why}', screen.COLUMNS - 7)}"] if why else []
    rows = ["", f"Also failed or cancelled in the last 24 h ({len(jobs)}):"]
    for job in jobs[:MOST_JOBS]:
        when = time.strftime("%H:%M", time.localtime(job.end_time)) if job.end_time else ""
        name = f"{clean(job.name, 24)} of {clean(job.user, 16)}"
        state = clean(job.state.split()[0], 16)
        rows.append(screen.cut(f"{when:5}  {job.id:<8}  {state:13}  {name:30}  {_where(job)}", screen.COLUMNS))
    return [*rows, *([f"… and {len(jobs) - MOST_JOBS} more"] if len(jobs) > MOST_JOBS else [])]


def lines(
    report: JobReport, ended: cause.Cause | None, now: float | None = None, below: Sequence[str] = ()
) -> list[str]:
    """The answer, on one screen; ``below`` stands under its table."""
    return screen.lines(replace(answer(report, ended, now), below=tuple(below)))


def answer(report: JobReport, ended: cause.Cause | None, now: float | None = None) -> Screen:
    """How the job ended, why, which nodes to avoid, what to type."""
    made = plans(report, ended)
    told = ended.diagnosis if ended else None
    nodes = avoided(report, told, made)
    exclude = screen.exclude(nodes)
    grave = screen.grave(made.main) or screen.grave(made.also)
    failed = report.over and not well(report.job)
    again = resubmit.again(report.job, nodes, os.geteuid()) if failed and not report.partly else ""
    fields = (
        ("Saw", _saw(told)),
        ("Victims", show.consequences(told) if told else ""),
        ("Again", again),
        ("Avoid", "" if report.partly or (again and exclude) else screen.keep_out(nodes)),
        ("Next", screen.next_command(grave) or _one_node(report, grave)),
        ("Missing", "; ".join(told.missing[:2]) if told and told.confidence != "high" else ""),
    )
    return Screen(
        _tag(report, told, bool(grave)),
        headline(report, told, len({node for one in screen.grave(made.also) for node in one.nodes})),
        fields,
        made.main,
        made.also,
        _also_head(report, made),
        notes=tuple(render.NotChecked(probe, note, (node,)) for probe, note, node in report.seen.not_checked),
        warnings=tuple(_warnings(report, ended, time.time() if now is None else now)),
        more=_more(report, told, grave),
    )


def _one_node(report: JobReport, grave: Sequence[Plan]) -> str:
    """Where no command with all its nodes fits a line: the plan of the first of them."""
    first = next((one for one in grave if one.nodes and one.first), None)
    return f"hpslurm report {report.id} --node {shlex.quote(first.nodes[0])}" if first else ""


def _also_head(report: JobReport, made: Plans) -> str:
    nodes = {node for one in made.also for node in one.nodes}
    if all(_before(one) for one in report.counted if one.subject in nodes):
        return "Also seen, there before the job:"
    return "Also seen:" if well(report.job) else "Also seen, not the cause:"


def _tag(report: JobReport, told: Diagnosis | None, grave: bool) -> str:
    if told is None:
        return "PASS" if well(report.job) and not grave else "WARN"
    return {HEALTHY: "PASS", UNDETERMINED: "WARN"}.get(told.cause, "FAIL")


def headline(report: JobReport, told: Diagnosis | None, also: int) -> str:
    """How it ended, why, and on which node: the one line that is read in any case."""
    told_of = _ended(report, told is not None and told.cause not in (HEALTHY, UNDETERMINED))
    if told is None:
        return told_of + (f"; trouble was recorded on {_nodes(also)}" if also else _without_trouble(report))
    if told.cause == UNDETERMINED:
        return f"{told_of}: the cause is not clear from what could be read"
    if told.cause == HEALTHY:
        return f"{told_of}: nothing wrong in its output"
    who = show.who(told.culprit) if told.culprit else ""
    return f"{told_of}: {told.cause}{f' {who}' if who else ''} ({told.confidence} confidence)"


def _nodes(count: int) -> str:
    return f"{count:,} node{'' if count == 1 else 's'}"


def _without_trouble(report: JobReport) -> str:
    if not report.records:
        return "; its nodes left no record"
    return "; nothing found on its nodes" if not screen.grave(plans(report, None).all) else ""


def _ended(report: JobReport, named: bool) -> str:
    """How it ended by Slurm's word; the exit code where no cause says more."""
    job = report.job
    if job is None:
        why = "Slurm could not be asked; its nodes' records are here" if report.why else "Slurm has forgotten it"
        return f"Job {report.id}: state unknown, {why}"
    said = f"Job {shown_id(job, report.id)} ({clean(job.name, 30)}) of {clean(job.user, 30)}: {job.state}"
    said += f" ({job.among})" if job.among else ""
    if job.state in ACTIVE:
        return f"{said} on {_where(job)}"
    code = f", exit code {job.exit_code}" if job.exit_code and not named else ""
    code += f", signal {job.exit_signal}" if job.exit_signal and not named else ""
    return f"{said}{code}{_lasted(job)} on {_where(job)}"


def _where(job: SlurmJob) -> str:
    nodes = job.nodes or "no node"
    return clean(nodes, 60) if len(nodes) <= 40 else _nodes(len(nodes_of(job)))


def _lasted(job: SlurmJob) -> str:
    if not (job.start_time and job.end_time and job.end_time >= job.start_time):
        return ""
    return f" after {duration(job.end_time - job.start_time)}"


def duration(seconds: int) -> str:
    """``2 h 14 min``, ``40 s``."""
    if seconds < 120:
        return f"{seconds} s"
    minutes = seconds // 60
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"


def _saw(told: Diagnosis | None) -> str:
    if told is None or told.cause == HEALTHY:
        return ""
    if told.decisive is None:
        return told.why
    return f"{told.decisive.text}  [{show.origin(told.decisive)}]"


def _warnings(report: JobReport, ended: cause.Cause | None, now: float) -> list[str]:
    late = unfinished(report, now)
    said = [f"the job is {report.job.state}: this is what there is so far"] if not report.over and report.job else []
    if late:
        said = [
            f"the epilog has not finished on {fold(late)}: what these nodes saw at the end is missing; "
            "ask again in some seconds"
        ]
    said += [
        f"{unseen.what}: {fold(unseen.nodes)}"
        for unseen in report.seen.unseen
        if not ("epilog" in unseen.what and set(unseen.nodes) <= set(late))
    ]
    said += [*report.troubles, *filter(None, [report.why])]
    return [*said, *(f"output not read: {note}" for note in (ended.notes if ended else ()))]


def unfinished(report: JobReport, now: float) -> list[str]:
    """Nodes whose epilog is still to come or to end: the job completes, or ended a moment ago."""
    job = report.job
    if job is None or not report.records:
        return []
    just = job.state == "COMPLETING" or (
        report.over and job.end_time is not None and now - job.end_time < EPILOG_SECONDS
    )
    done = {record.node for record in report.records if record.hook == "epilog" and record.complete}
    hooks = {record.hook for record in report.records}
    # where no node has a whole record of an epilog, there may be none; a prolog's says that hooks run at all
    expected = just and (job.state == "COMPLETING" or "epilog" in hooks)
    return [node for node in nodes_of(job) if node not in done] if expected else []


def _more(report: JobReport, told: Diagnosis | None, grave: Sequence[Plan]) -> tuple[str, ...]:
    words = [f"hpslurm report {report.id} -v"]
    worst = next((one for one in grave if one.nodes), None)
    words += [f"hpslurm report {report.id} --node {worst.nodes[0]}"] if worst and len(grave) > 1 else []
    names = [told.cause] if told and told.cause not in (HEALTHY, UNDETERMINED) else [*(grave[0].rules if grave else ())]
    return (*words, *(f"hpslurm explain {name}" for name in names[:1]))
