"""``hpslurm report JOBID``: how a job ended, and what its nodes recorded before and after it."""

from __future__ import annotations

import os
import sys

import click

from hpslurm.cli import options
from hpslurm.core import policy, records
from hpslurm.core.probe import worst
from hpslurm.job import cause, diagnoses, report, report_view


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

        gpu_report.show(gpu, report.folders(rules, results), as_json)
        return 0
    try:
        known = report.gather(rules, root, job_id, results)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    if known.job is None and not known.found:
        raise click.ClickException(report.nothing_known(job_id, known.why, rules, results, known.troubles))
    ended = None
    if known.has_output and (output or not report.well(known.job)):
        ended = cause.find(known.job, output, known.found, known.counted)
        _keep(known, ended, rules, results)
    outcome = report_view.results_of(known, ended)
    if as_json:
        lines = [records.encode(line) for line in report_view.json_lines(rules, job_id, outcome, ended)]
    else:
        lines = report_view.text(known, ended)
    click.echo("\n".join(lines))
    sys.stdout.flush()
    return 3 if worst(outcome, fail_on, strict) else 0


def _keep(known: report.JobReport, ended: cause.Cause, rules: policy.Policy, results: str | None) -> None:
    """What was found out, for ``history``: only root may, and only of a job that is over."""
    job = known.job
    if os.geteuid() == 0 and job is not None and known.over and job.end_time:
        diagnoses.keep(report.folders(rules, results), job.id, float(job.end_time), ended.diagnosis, job.nodes)
