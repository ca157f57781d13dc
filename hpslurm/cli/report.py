"""``hpslurm report JOBID``: how a job ended, and what its nodes recorded before and after it."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable
from typing import Any

import click

from hpslurm.cli import scan
from hpslurm.core import policy, records
from hpslurm.core.finding import PRIORITIES, Finding
from hpslurm.core.policy import Policy
from hpslurm.core.probe import FAIL, PASS, UNKNOWN, Result, reason, worst
from hpslurm.core.text import clean
from hpslurm.core.values import dataclass
from hpslurm.job import cause, report
from hpslurm.scan import lines as scan_lines
from hpslurm.show import render
from hpslurm.sources import slurm
from hpslurm.sources.host import Host
from hpslurm.sources.slurm import SlurmJob

SECONDS = 25.0  # for Slurm's programs together
ACTIVE = ("PENDING", "RUNNING", "SUSPENDED", "COMPLETING", "CONFIGURING", "REQUEUED", "RESIZING", "STAGE_OUT")


@click.command(
    "report",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 done, 1 neither Slurm nor a record knows the job, 2 wrong command line, "
    "3 found something at or above --fail-on.",
)
@click.argument("job_id", metavar="[JOBID]", default="")
@click.option("--gpu", metavar="UUID", help="Instead of a job: the history of one GPU, on whatever node it was.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON lines, the same as hooks write to disk.")
@click.option(
    "--fail-on",
    type=click.Choice([*PRIORITIES, "never"]),
    default="never",
    show_default=True,
    help="Exit 3 from this priority upwards.",
)
@click.option("--strict", is_flag=True, help="Exit 3 also when something could not be checked.")
@click.option(
    "--output",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, resolve_path=True),
    help="The job's output, where Slurm no longer knows it; may be repeated.",
)
@click.option("--results", metavar="FOLDER", help="Where records are (default: as the policy says).")
@click.option("--policy", "policy_path", default=policy.PATH, show_default=True, help="Thresholds and mutes.")
@click.option("--root", default="/", hidden=True)
def command(
    job_id: str,
    gpu: str | None,
    as_json: bool,
    fail_on: str,
    strict: bool,
    output: tuple[str, ...],
    results: str | None,
    policy_path: str,
    root: str,
) -> int:
    """Say how a job ended, why, and what its nodes recorded before and after it.

    Reads the job's own output with its user's rights, and joins it with the records of all nodes. Run it where
    the shared results folder and the output are mounted: on the controller, as root or as the job's user.

    \b
    Examples:
      hpslurm report 4711
      hpslurm report 4711_3 --json | jq 'select(.type == "finding")'
      hpslurm report --gpu GPU-12345678-1234-1234-1234-123456789abc
    """
    if bool(job_id) == bool(gpu):
        raise click.UsageError("give a job id, or --gpu with a UUID")
    rules = policy.load(policy_path)
    if gpu:
        from hpslurm.cli import gpu_report

        gpu_report.show(gpu, folders(rules, results), as_json)
        return 0
    one = look(rules, root, job_id, results)
    if one.job is None and not one.found:
        raise click.ClickException(nothing_known(job_id, one.why, rules, results, one.troubles))
    ended = None
    if one.over and (output or not well(one.job)):
        ended = cause.find(one.job, output, one.found, one.counted)
    outcome = results_of(one, ended)
    lines = (
        [records.encode(line) for line in json_lines(rules, job_id, outcome, ended)] if as_json else text(one, ended)
    )
    click.echo("\n".join(lines))
    sys.stdout.flush()
    return 3 if worst(outcome, fail_on, strict) else 0


@dataclass(frozen=True)
class Look:
    """A job as Slurm and its nodes' records know it. ``why`` says why Slurm could not be asked, or is empty."""

    id: str
    job: SlurmJob | None
    why: str
    found: tuple[records.Record, ...]
    troubles: tuple[str, ...]
    seen: report.View
    named: tuple[Finding, ...]

    @property
    def over(self) -> bool:
        return self.job is None or self.job.state not in ACTIVE

    @property
    def counted(self) -> list[Finding]:
        return [one for one in self.named if not one.muted]

    @property
    def outcome(self) -> list[Result]:
        outcome = [Result("records", FAIL if self.named else PASS, "", 0.0, None, self.named)]
        outcome += [Result(probe, UNKNOWN, f"{node}: {note}") for probe, note, node in self.seen.not_checked]
        outcome += [
            Result("records", UNKNOWN, f"{one.what}: {render.fold_nodes(one.nodes)}") for one in self.seen.unseen
        ]
        outcome += [Result("records", UNKNOWN, trouble) for trouble in self.troubles]
        return [*outcome, *([Result("slurm", UNKNOWN, self.why)] if self.why else [])]


def look(rules: Policy, root: str, job_id: str, results: str | None, *, ask_slurm: bool = True) -> Look:
    """Everything but the job's own output. Raises UsageError for what is no job id."""
    host = Host(root, seconds=SECONDS)
    job, why = None, "" if ask_slurm else "it was not asked (--no-slurm)"
    try:
        job = slurm.job(host, job_id) if ask_slurm else None
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    except Exception as error:
        why = reason(error)
    finally:
        host.end_all()
    found, troubles = read(rules, results, str(job.id) if job else job_id)
    over = job is None or job.state not in ACTIVE
    seen = report.view(found, nodes_of(job), over=over, all_read=not troubles)
    named = tuple(rules.mute(finding) if not finding.muted else finding for finding in seen.findings)
    return Look(job_id, job, why, tuple(found), tuple(troubles), seen, named)


def results_of(look: Look, ended: cause.Cause | None) -> list[Result]:
    """Everything that was looked at, the job's output too."""
    return [*look.outcome, *(Result("job_output", UNKNOWN, note) for note in (ended.notes if ended else ()))]


def well(job: SlurmJob | None) -> bool:
    return job is not None and job.state == "COMPLETED" and not job.exit_code and not job.derived_code


def json_lines(rules: Policy, job_id: str, outcome: list[Result], why: cause.Cause | None) -> list[dict[str, Any]]:
    *before, end = records.lines(rules, {**os.environ, "SLURM_JOB_ID": job_id}, "report", outcome)
    events = [scan_lines.event_line(one) for one in scan_lines.worth_keeping(why.events)] if why else []
    diagnosis = [scan_lines.diagnosis_line(why.diagnosis)] if why else []
    return [*before, *events, *diagnosis, end]


def read(rules: Policy, results: str | None, job: str) -> tuple[list[records.Record], list[str]]:
    """Records of the job from the shared folder and from this machine's own, the shared one first."""
    found: dict[tuple[str, str], records.Record] = {}
    troubles: list[str] = []
    for folder in folders(rules, results):
        kept, trouble = records.job_records(folder, job.partition("_")[0])
        troubles += trouble
        for one in kept:
            found.setdefault((one.node, one.hook), one)
    return list(found.values()), troubles


def folders(rules: Policy, results: str | None) -> list[str]:
    """The folder named on the command line, or those of the policy."""
    return [results] if results else list(filter(None, dict.fromkeys((rules.results_shared, rules.results))))


def nodes_of(job: SlurmJob | None) -> list[str]:
    """The job's nodes by Slurm's list; empty where it has none."""
    from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet

    if job is None or not job.nodes or job.nodes in ("(null)", "None assigned"):
        return []
    try:
        return list(NodeSet(job.nodes, resolver=RESOLVER_NOGROUP))
    except Exception:
        return []


def nothing_known(job_id: str, why: str, rules: Policy, results: str | None, troubles: Iterable[str]) -> str:
    where = " and ".join(folders(rules, results))
    slurm_says = f"Slurm could not be asked ({why})" if why else "neither the controller nor the accounting knows it"
    lines = [f"job {job_id}: {slurm_says}, and there is no record in {where}", *troubles]
    return "\n".join(
        [*lines, "Records of several nodes need results_shared in the policy; or name a folder: --results"]
    )


def headline(job: SlurmJob | None, job_id: str, why: str = "") -> str:
    """How the job ended, in one line; ``why`` says why Slurm could not be asked."""
    if job is None and why:
        return f"Job {job_id}: state unknown, Slurm could not be asked; its nodes' records are here"
    if job is None:
        return f"Job {job_id}: state unknown, Slurm has forgotten it; its nodes' records remain"
    parts = [f"Job {job_id} ({clean(job.name, 40)}) of {clean(job.user, 40)}: {job.state}"]
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


def text(look: Look, ended: cause.Cause | None) -> list[str]:
    """The report as people see it: one line for a job that went well and left nothing."""
    job, seen, troubles, why = look.job, look.seen, look.troubles, look.why
    folded = render.fold(look.named)
    not_checked = [render.NotChecked(probe, note, (node,)) for probe, note, node in seen.not_checked]
    head = headline(job, look.id, why)
    if well(job) and not folded and not not_checked and not troubles and not why and ended is None:
        return render.fitted(f"{head}; {_recorded(seen, job)}")
    lines = render.fitted(head)
    if ended:
        lines += scan.text(ended.diagnosis)
    lines += [line for one in folded for line in render.finding_lines(one)]
    lines += render.not_checked_lines(not_checked)
    warned = [f"{one.what}: {render.fold_nodes(one.nodes)}" for one in seen.unseen]
    warned += [clean(trouble) for trouble in (*troubles, *filter(None, [why]))]
    lines += [line for one in warned for line in render.labelled("WARN", one)]
    unknown = len(not_checked) + len(seen.unseen) + len(troubles) + bool(why) + len(ended.notes if ended else ())
    return [*lines, *render.fitted(render.summary(folded, unknown, seen.passed))]


def _recorded(seen: report.View, job: SlurmJob | None) -> str:
    missing = [f"{one.what}: {render.fold_nodes(one.nodes)}" for one in seen.unseen]
    if len(missing) == 2 and not seen.passed:
        return "its nodes left no record"
    return "; ".join(["nothing found on its nodes", *missing])
