"""``hpslurm report JOBID``: how a job ended, and what its nodes recorded before and after it."""

from __future__ import annotations

import sys

import click

from hpslurm.core import policy, records
from hpslurm.core.finding import PRIORITIES
from hpslurm.core.probe import worst
from hpslurm.job import cause, report, report_view


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
    outcome = report_view.results_of(known, ended)
    if as_json:
        lines = [records.encode(line) for line in report_view.json_lines(rules, job_id, outcome, ended)]
    else:
        lines = report_view.text(known, ended)
    click.echo("\n".join(lines))
    sys.stdout.flush()
    return 3 if worst(outcome, fail_on, strict) else 0
