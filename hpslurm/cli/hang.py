"""``hpslurm hang JOBID``: which rank of a running job hangs, where, and why."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator

import click

from hpslurm.cli import options
from hpslurm.core import policy, records, whole_file
from hpslurm.core.probe import Unknown
from hpslurm.core.text import clean
from hpslurm.core.values import replace
from hpslurm.hooks import node_name
from hpslurm.job.hang import facts as hang_facts
from hpslurm.job.hang import gather as hang_gather
from hpslurm.job.hang import told as hang_told
from hpslurm.job.hang import view as hang_view
from hpslurm.job.hang.case import Verdict, compared, main_step
from hpslurm.job.hang.facts import Sample
from hpslurm.job.hang.judge import judge
from hpslurm.scan import lines as scan_lines
from hpslurm.scan.reason import UNDETERMINED
from hpslurm.show.progress import Progress
from hpslurm.sources import launch, slurm
from hpslurm.sources.host import Host
from hpslurm.sources.slurm import SlurmJob

SECONDS = 20.0  # for asking Slurm about the job
LARGEST = 256 << 20  # bytes of one saved sample


@click.command(
    "hang",
    context_settings=options.HELP,
    epilog="Exit codes: 0 it does not hang, or nothing tells; 1 the job does not run, or no node answered; 2 wrong "
    "command line; 3 it hangs.",
)
@click.argument("job_id", metavar="[JOBID]", default="")
@click.option("--stacks", is_flag=True, help="Also print the full stacks of one rank of each class.")
@click.option(
    "--again", type=options.Duration(), metavar="TIME", help="Look again after this time, and compare the two looks."
)
@click.option("--save", type=click.Path(dir_okay=False), help="Keep what was seen in FILE, to be judged again.")
@click.option(
    "--from",
    "saved",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False),
    help="Judge what --save kept instead of looking; several files are nodes of one job.",
)
@click.option("--here", is_flag=True, help="Only this node, without a step; as root with Python and kernel stacks.")
@click.option(
    "--log",
    "logs",
    multiple=True,
    type=click.Path(exists=True),
    help="Also read this NCCL RAS report or flight recorder dump.",
)
@options.as_json()
@options.strict("Exit 3 also when nothing tells whether it hangs.")
@click.option("-v", "--verbose", is_flag=True, help="All classes, and counters of each node.")
@click.option("--pieces", is_flag=True, hidden=True)  # what the step on each node runs
@options.root
def command(
    job_id: str,
    stacks: bool,
    again: float | None,
    save: str | None,
    saved: tuple[str, ...],
    here: bool,
    logs: tuple[str, ...],
    as_json: bool,
    strict: bool,
    verbose: bool,
    pieces: bool,
    root: str,
) -> int:
    """Say which rank of a running job hangs, on which node, and why.

    Starts one step of at most 20 seconds over the job's nodes (srun --overlap), which looks at the job's processes
    for two seconds, and pauses, signals and changes none of them. Run it as the job's user, or as root.

    \b
    Examples:
      hpslurm hang 4711
      hpslurm hang 4711 --again 30 --stacks
      hpslurm hang 4711 --save hang.jsonl; hpslurm hang --from hang.jsonl
      sudo hpslurm hang 4711 --here                on one node, with stacks where ptrace_scope is 1
      hpslurm hang 4711 --json | jq 'select(.type == "diagnosis")'
    """
    if bool(job_id) == bool(saved):
        raise click.UsageError("give a job id, or --from with a file that --save wrote")
    if pieces:
        return _pieces(job_id, root)
    job = None
    if saved:
        sample = _read(saved)
    else:
        with Progress(f"asking Slurm for job {job_id}") as progress:
            job = _job(job_id)
            progress.say(f"looking at the processes of job {job.id} on all its nodes")
            sample = _look(job, here, root)
            if again:
                progress.say(f"waiting {again:g} s to look again")
                time.sleep(again)
                progress.say("looking again")
                sample = compared(sample, _look(job, here, root))
    if save:
        _save(save, sample)
    sample = main_step(sample)
    verdict = judge(sample, hang_told.of(sample, job, logs))
    if as_json:
        _print_lines(sample, verdict)
    else:
        click.echo("\n".join(hang_view.text(sample, verdict, stacks=stacks, verbose=verbose)))
    sys.stdout.flush()
    if not sample.nodes:
        return 1
    return 3 if verdict.hangs or (strict and verdict.cause == UNDETERMINED) else 0


def _job(job_id: str) -> SlurmJob:
    host = Host(seconds=SECONDS)
    try:
        job = slurm.job(host, job_id, exact=True)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    except Unknown as why:
        raise click.ClickException(f"Slurm could not be asked: {why}") from None
    finally:
        host.end_all()
    if job is None:
        raise click.ClickException(f"Slurm knows no job {clean(job_id, 40)}")
    if job.state not in ("RUNNING", "SUSPENDED"):
        what = "it has not begun" if job.state in ("PENDING", "CONFIGURING") else f"hpslurm report {job.id}"
        raise click.ClickException(f"job {job.id} is {clean(job.state, 40)} and does not run: {what}")
    if os.geteuid() not in (0, job.uid):
        raise click.ClickException(f"job {job.id} is {clean(job.user, 40)}'s: only its user or root may look into it")
    return job


def _look(job: SlurmJob, here: bool, root: str) -> Sample:
    if here:
        return _sample_here(job, root)
    try:
        return hang_gather.look(job, launch.nodes_in(job.nodes), root)
    except launch.CannotLaunch as why:
        raise click.ClickException(str(why)) from None


def _sample_here(job: SlurmJob, root: str) -> Sample:
    from hpslurm.job.hang import sample as hang_sample

    node = node_name(os.environ)
    return Sample(str(job.id), (hang_sample.take(str(job.id), node, root),), (), time.time(), job.user)


def _pieces(job_id: str, root: str) -> int:
    """The share of one node, in short lines for srun."""
    from hpslurm.job.hang import sample as hang_sample

    node = node_name(os.environ)
    own = os.environ.get("SLURM_STEP_ID", "")
    facts = hang_gather.fitting(hang_sample.take(job_id, node, root.replace("{node}", node), own))
    line = records.encode(hang_facts.line_of(facts), ascii_only=True)
    print("\n".join(records.pieces(node, line)), flush=True)
    os._exit(0)  # a thread that hangs with a process in the kernel must not hold the step


def _read(paths: tuple[str, ...]) -> Sample:
    sample = hang_facts.sample_of(line for path in paths for line in _lines(path))
    if sample is None:
        raise click.ClickException(f"{clean(paths[0], 200)} is no sample that hpslurm hang --save wrote")
    return sample


def _lines(path: str) -> Iterator[dict[str, object]]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            for line in file:
                try:
                    yield json.loads(line[:LARGEST])
                except (ValueError, RecursionError):
                    continue
    except OSError as error:
        raise click.ClickException(f"could not read {clean(path, 200)}: {error.strerror}") from None


def _save(path: str, sample: Sample) -> None:
    text = "".join(records.encode(line) + "\n" for line in hang_facts.lines_of(sample))
    try:
        whole_file.write(path, text.encode(), 0o600)
    except OSError as error:
        raise click.ClickException(f"could not write {clean(path, 200)}: {error.strerror}") from None


def _print_lines(sample: Sample, verdict: Verdict) -> None:
    rules = replace(policy.load(policy.PATH), node=node_name(os.environ))
    click.echo(records.encode(records.run_line(rules, {"SLURM_JOB_ID": sample.job}, "hang")))
    click.echo(records.encode(hang_view.line(sample, verdict)))
    click.echo(records.encode(scan_lines.diagnosis_line(hang_view.diagnosis_of(verdict, sample))))
    click.echo(records.encode({"schema": records.SCHEMA, "type": "end", "suspects": len(verdict.suspects)}))
