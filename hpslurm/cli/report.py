"""``hpslurm report JOBID``: how a job ended, and what its nodes recorded before and after it."""

from __future__ import annotations

import os
import sys
import time

import click

from hpslurm.cli import options
from hpslurm.core import policy, records
from hpslurm.core.probe import Unknown, worst
from hpslurm.job import cause, first_screen, report, report_view
from hpslurm.scan import diagnoses
from hpslurm.show.progress import Progress
from hpslurm.sources import slurm
from hpslurm.sources.host import Host


@click.command(
    "report",
    context_settings=options.HELP,
    epilog="Exit codes: 0 done, 1 neither Slurm nor a record knows the job, 2 wrong command line, "
    "3 found something at or above --fail-on.",
)
@click.argument("job_id", metavar="[JOBID]", default="")
@click.option("--gpu", metavar="UUID", help="Instead of a job: the history of one GPU, on whatever node it was.")
@options.as_json("Print JSON lines, the same as hooks write to disk.")
@options.fail_on("never")
@options.strict()
@click.option(
    "--output",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, resolve_path=True),
    help="The job's output, where Slurm no longer knows it; may be repeated.",
)
@click.option("--node", "only", multiple=True, metavar="NODES", help="Only what was found on these nodes.")
@options.verbose()
@options.html
@options.results
@options.policy_path()
@options.root
def command(
    job_id: str,
    gpu: str | None,
    as_json: bool,
    fail_on: str,
    strict: bool,
    output: tuple[str, ...],
    only: tuple[str, ...],
    verbose: bool,
    html_file: str | None,
    results: str | None,
    policy_path: str,
    root: str,
) -> int:
    """Say how a job ended, why, and what its nodes recorded before and after it.

    Reads the job's own output with its user's rights, and joins it with the records of all nodes. Run it where
    the shared results folder and the output are mounted: on the controller, as root or as the job's user.

    Without JOBID it explains your newest job that failed, hung or was cancelled within a day, and lists the others;
    for root, anybody's.

    \b
    Examples:
      hpslurm report
      hpslurm report 4711
      hpslurm report 4711_3 --json | jq 'select(.type == "finding")'
      hpslurm report --gpu GPU-12345678-1234-1234-1234-123456789abc
    """
    if job_id and gpu:
        raise click.UsageError("give a job id, or --gpu with a UUID, not both")
    rules = policy.load(policy_path)
    if gpu:
        from hpslurm.cli import gpu_report

        gpu_report.show(gpu, report.folders(rules, results), as_json)
        return 0
    below: list[str] = []
    progress = Progress()  # one for all: whoever waits has waited since the beginning
    if not job_id:
        with progress:
            progress.say("asking Slurm for the jobs of the last day")
            jobs, why = _failed_jobs(root)
        if not jobs:
            click.echo(records.encode(records.end_line([])) if as_json else "\n".join(first_screen.none_failed(why)))
            return 0
        job_id, below = str(jobs[0].id), first_screen.others(jobs[1:], why)
    try:
        with progress:
            progress.say(f"asking Slurm and reading the records of job {job_id}")
            known = report.gather(rules, root, job_id, results, brief=True)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    if known.job is None and not known.records:
        raise click.ClickException(report.nothing_known(job_id, known.why, rules, results, known.troubles))
    if only:
        known = report.of_nodes(known, options.node_set(only))
    ended = None
    if known.has_output and (output or not report.well(known.job)):
        with progress:
            progress.say(f"reading the output of job {job_id}, and reasoning")
            ended = cause.find(known.job, output, known.records, known.counted)
        if not only:  # of all its nodes
            _keep(known, ended, rules, results)
    outcome = report_view.results_of(known, ended)
    if as_json:
        made = first_screen.plans(known, ended).all
        lines = [records.encode(line) for line in report_view.json_lines(rules, job_id, outcome, ended, made)]
    elif verbose:
        lines = [*report_view.text(known, ended), *below]
    else:
        lines = first_screen.lines(known, ended, below=below)
    click.echo("\n".join(lines))
    sys.stdout.flush()
    if html_file:
        options.write_page(html_file, report_view.page_of(known, ended, outcome, time.time()))
    return 3 if worst(outcome, fail_on, strict) else 0


def _keep(known: report.JobReport, ended: cause.Cause, rules: policy.Policy, results: str | None) -> None:
    """What was found out, for ``history``: only root may, and only of a job that is over."""
    job = known.job
    if os.geteuid() == 0 and job is not None and known.over and job.end_time:
        diagnoses.keep(report.folders(rules, results), job.id, float(job.end_time), ended.diagnosis, job.nodes)


def _failed_jobs(root: str) -> tuple[list[slurm.SlurmJob], str]:
    """The caller's, newest first; for root those of all users."""
    host = Host(root, seconds=report.SECONDS)
    try:
        return slurm.failed_jobs(host, os.geteuid() or None, time.time())
    except Unknown as why:
        raise click.ClickException(f"give a job id; the jobs of the last day are not known: {why}") from None
    finally:
        host.end_all()
