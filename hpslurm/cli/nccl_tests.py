"""``hpslurm nccl-tests``: run nccl-tests in the caller's allocation, judge it, find the slow node.

``judge`` judges saved output on any machine.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click

from hpslurm.cli import options
from hpslurm.cli.options import Command
from hpslurm.core import policy as policies
from hpslurm.core import whole_file
from hpslurm.core.policy import Policy
from hpslurm.core.values import replace
from hpslurm.nccl_tests import accused, baseline, find_slow, html_page, prepare, report, running, runs, steps, view
from hpslurm.nccl_tests.judge import verdict
from hpslurm.nccl_tests.prepare import CannotRun, Request, WrongOption
from hpslurm.nccl_tests.verdict import Facts, Verdict
from hpslurm.scan.nccl_tests import Output, read_nccl_lines, read_text
from hpslurm.show import render
from hpslurm.sources import launch

LARGEST = 256 << 20  # bytes of one file
EXIT_CODES = "Exit codes: 0 judged fine (P1 between warn and fail), 1 could not run or judge, 2 wrong command line, "
EXIT_CODES += "3 below the floor or wrong data, 130 interrupted."


def warn(text: str) -> None:
    click.echo(f"{render.label('WARN')} {text}", err=True)


@contextmanager
def explained() -> Iterator[None]:
    """What cannot be run ends with exit code 1, what was typed wrong with 2."""
    try:
        yield
    except (launch.CannotLaunch, CannotRun) as error:
        raise click.ClickException(str(error)) from None
    except WrongOption as error:
        raise click.BadParameter(str(error), param_hint=error.option or None) from None


def read_file(path: str) -> str:
    """The text of a file or of standard input (``-``). Raises CannotRun, which says what to do."""
    try:
        if path == "-":
            data = sys.stdin.buffer.read(LARGEST + 1)
        else:
            with open(path, "rb") as file:
                data = file.read(LARGEST + 1)
    except OSError as error:
        raise CannotRun(f"{path}: {error.strerror}: give the file that holds what nccl-tests printed") from None
    if len(data) > LARGEST:
        raise CannotRun(f"{path}: more than {LARGEST >> 20} MiB; give nccl-tests its own file, NCCL's lines another")
    return data.decode("utf-8", "replace")


def load_baselines(path: str | None, policy: Policy) -> baseline.Baselines:
    """The file named, or the one in the results folder; what is wrong with it is said on stderr."""
    baselines = baseline.load(path or os.path.join(policy.results, baseline.NAME))
    for trouble in baselines.troubles:
        warn(trouble)
    return baselines


def pick_table(output: Output, number: int | None) -> None:
    """Leave only the table that the user chose, counted from 1."""
    if number is None:
        return
    if not 1 <= number <= len(output.tables):
        raise WrongOption(f"{output.source} holds {len(output.tables)} tables", "--table")
    output.tables[:] = [output.tables[number - 1]]


def write_html(path: str, text: str) -> None:
    try:
        whole_file.write(path, text.encode())
    except OSError as error:
        raise CannotRun(f"could not write {path}: {error.strerror}") from None
    click.echo(f"page written: {path}", err=True)


# options of both commands


def instance_type(otherwise: str) -> Callable[[Command], Command]:
    return click.option("--instance-type", metavar="TYPE", help=f"p5.48xlarge and so on; without it, {otherwise}.")


def baselines(words: str) -> Callable[[Command], Command]:
    return click.option("--baselines", metavar="FILE", help=words)


def html_path(command: Command) -> Command:
    return click.option("--html", "html_path", metavar="FILE", help="Write one page that needs no network.")(command)


# the commands


@click.group("nccl-tests", context_settings=options.HELP, invoke_without_command=True, epilog=EXIT_CODES)
@click.option("--find-slow", is_flag=True, help="Find the node, path or rail that holds the others back.")
@click.option(
    "--preset",
    type=click.Choice(["quick", "full"]),
    default="quick",
    show_default=True,
    help="quick: 1 to 8 GiB, under a minute. full: 1 MiB to 16 GiB; with --find-slow also faults that come and go.",
)
@click.option("--test", default=steps.PROGRAM, show_default=True, help="all_gather_perf, sendrecv_perf and so on.")
@click.option("--program", default="", metavar="PATH", help="The program, or its folder (in a container: there).")
@click.option("--nodes", type=click.IntRange(1), help="Use only the first N nodes of the allocation.")
@click.option("--gpus", type=click.IntRange(1), help="GPUs of a node; without it, as Slurm or the instance table says.")
@instance_type("that of the nodes")
@click.option(
    "--launcher",
    default="srun",
    show_default=True,
    metavar="WORD",
    help="srun, mpirun (Open MPI, for builds that srun's PMI cannot start), or the path of an mpirun.",
)
@click.option("--mpi", default="auto", show_default=True, help="For srun --mpi; auto takes PMIx, else PMI-2.")
@click.option(
    "--per-node", is_flag=True, help="One process a node that drives all its GPUs (no PMI needed for one node)."
)
@click.option("--container-image", metavar="IMAGE", help="Run inside this image (pyxis).")
@click.option("--container-mounts", metavar="LIST", help="Mounts for the image (pyxis).")
@click.option(
    "--srun-option",
    "srun_options",
    multiple=True,
    metavar="WORD",
    help="Handed to srun as it is; may be repeated. With mpirun, to the srun that starts its daemons.",
)
@click.option("--time-limit", type=click.FloatRange(1), metavar="SECONDS", help="For one step; without it, by preset.")
@click.option(
    "--side-by-side",
    type=click.IntRange(1, launch.MOST_SIDE_BY_SIDE),
    default=launch.MOST_SIDE_BY_SIDE,
    show_default=True,
    help="Steps at once.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="For the pairs of --find-slow.")
@click.option(
    "--output",
    default="hpslurm-nccl-tests-%j",
    show_default=True,
    metavar="FOLDER",
    help="For output and NCCL's lines; all nodes must see it. %j is the job.",
)
@click.option("--resume", metavar="FILE", help=f"Go on with a search ({find_slow.FILE} in its folder).")
@click.option("--record", is_flag=True, help="Keep this run as the site's own figure.")
@baselines("The site's own figures.")
@options.policy_path()
@html_path
@options.as_json()
@options.verbose("Print every size, and each finding with its evidence.")
@click.option("--dry-run", is_flag=True, help="Print what would run, and what it may cost at most; start nothing.")
@click.pass_context
def command(ctx: click.Context, /, **chosen: Any) -> int:
    """Run nccl-tests in this allocation, judge each size, find what is slow.

    \b
    In a job script (sbatch), and by hand:
      #SBATCH --nodes=4 --exclusive --gpus-per-node=8 --time=00:20:00
      hpslurm nccl-tests --find-slow
    \b
      salloc -N2 --exclusive --gpus-per-node=8 hpslurm nccl-tests
      hpslurm nccl-tests --launcher /opt/amazon/openmpi/bin/mpirun
    \b
    Saved output, on any machine:
      hpslurm nccl-tests judge slurm-4711.out --instance-type p5.48xlarge
    """
    if ctx.invoked_subcommand is not None:
        return 0
    request = Request(**chosen)
    with explained():
        where = prepare.nodes_of(request, launch.allocation())
        dry = request.dry_run
        name = prepare.known_type(request.instance_type) if dry else prepare.type_of(where, request.instance_type)
        policy = policies.load(request.policy_path, instance=name)
        gpus = prepare.gpus_of(request.gpus, where, name)
        how = prepare.how_to_start(request, where, gpus)
        how = replace(how, logs=prepare.folder_for(request.output, where.job, make=not dry))
        if not dry and (word := prepare.word_for_root(how.logs, os.geteuid())):
            warn(word)
        return (find_slow_node if request.searches else measure)(request, where, how, policy, name)


def measure(request: Request, where: launch.Allocation, how: steps.How, policy: Policy, name: str) -> int:
    """One run over all nodes, judged."""
    step = steps.whole(where.nodes, how)
    if request.dry_run:
        click.echo(shlex.join(launch.command(step, where)))
        click.echo(f"at most {how.preset.seconds:.0f} s on {len(where.nodes)} nodes; output in {how.logs}")
        return 0
    own = load_baselines(request.baselines, policy)  # first: what is wrong with the file costs no run
    ended = next(running.run_steps([step], where, 1, how.logs))
    facts = running.facts_of(ended, name, len(where.nodes), how.gpus, how.logs, warn)
    facts = baseline.with_own(facts, own)
    judged, output = verdict(facts, policy), facts.output
    click.echo("\n".join(shown(judged, output, request.as_json, request.verbose)))
    if request.record:
        try:
            said = baseline.keep(facts, judged, own.path, where.job)
        except OSError as error:
            why = error.strerror or error
            raise CannotRun(f"{own.path}: {why}: name a file that you may write with --baselines") from None
        click.echo(said, err=request.as_json)
    if request.html_path:
        write_html(request.html_path, html_page.of_run(judged, output))
    return judged.exit_code


def shown(judged: Verdict, output: Output, as_json: bool, verbose: bool) -> list[str]:
    """What is printed of one run."""
    if as_json:
        return view.json_lines(judged, output)
    return view.lines(judged, output) if verbose else view.first_screen(judged, output)


def find_slow_node(request: Request, where: launch.Allocation, how: steps.How, policy: Policy, name: str) -> int:
    """Pairs, suspects with good partners, and what else the planner asks for."""
    running_search = prepared_search(request, where, how)
    for line in find_slow.plan_lines(running_search):
        click.echo(line, err=request.as_json)
    if request.dry_run:
        return 0
    running_search.begin()
    for line in running_search.rounds():
        click.echo(line, err=request.as_json)
    state = running_search.state
    judged = accused.verdict(state)
    known = name if os.path.basename(how.program) == steps.PROGRAM else ""  # figures exist for all_reduce only
    nics = find_slow.nics_of_rails(judged, how.logs, warn)
    findings = report.findings(judged, policy, known, how.gpus, how.preset.largest, nics)
    if request.as_json:
        lines = view.finding_lines(findings)
    else:
        lines = (view.search_lines if request.verbose else view.first_screen_of_search)(state, judged, findings)
    click.echo("\n".join(lines))
    if request.html_path:
        write_html(request.html_path, html_page.of_search(state, judged, name, findings))
    return report.exit_code(judged, findings, policy)


def prepared_search(request: Request, where: launch.Allocation, how: steps.How) -> find_slow.Search:
    """A new search, or the one that --resume names."""
    if len(where.nodes) < 2:
        raise CannotRun("--find-slow needs two nodes or more; one node alone: hpslurm nccl-tests")
    thorough = runs.FULL if request.preset == "full" else runs.QUICK
    thorough = replace(thorough, seed=request.seed, rails=how.gpus if how.gpus > 1 else 0)
    state = runs.State(where.nodes, thorough, find_slow.blocks_of(where))
    path = os.path.join(how.logs, find_slow.FILE)
    prepared = find_slow.Search(where, how, state, path, request.side_by_side)
    if request.resume:
        try:
            prepared.resume(request.resume, read_file(request.resume))
        except ValueError as error:
            raise CannotRun(str(error)) from None
    elif os.path.exists(path) and not request.dry_run:
        raise CannotRun(f"{path} is there already: go on with --resume {shlex.quote(path)}, or name another --output")
    return prepared


@command.command("judge", context_settings=options.HELP, epilog=EXIT_CODES)
@click.argument("file")
@instance_type("that of this machine, if the run was on it")
@click.option(
    "--nodes", type=click.IntRange(1), help="How many nodes were meant; without it, those in the device list."
)
@click.option("--gpus", type=click.IntRange(1), help="How many GPUs of each node were meant.")
@click.option("--table", "number", type=click.IntRange(1), metavar="N", help="Judge the Nth table of the file.")
@click.option("--nccl-log", "logs", multiple=True, metavar="FILE", help="NCCL_DEBUG_FILE output; may be repeated.")
@baselines("The site's own figures (see --record).")
@options.policy_path()
@html_path
@options.as_json()
@options.verbose("Print every size, and each finding with its evidence.")
def judge(
    file: str,
    instance_type: str | None,
    nodes: int | None,
    gpus: int | None,
    number: int | None,
    logs: Sequence[str],
    baselines: str | None,
    policy_path: str,
    html_path: str | None,
    as_json: bool,
    verbose: bool,
) -> int:
    """Judge what nccl-tests printed (text or the JSON of -J); - reads standard input.

    \b
    Examples:
      hpslurm nccl-tests judge slurm-4711.out --instance-type p5.48xlarge
      hpslurm nccl-tests judge run.txt --nodes 2 --gpus 8 --nccl-log nccl.ip-10-1-0-1.4242
    """
    with explained():
        output = read_text(read_file(file), file)
        pick_table(output, number)
        for log in logs:
            read_nccl_lines(read_file(log).splitlines(True), output.log)
        name = prepare.type_of_output(output, instance_type)
        policy = policies.load(policy_path, instance=name)
        facts = baseline.with_own(Facts(output, name, nodes, gpus), load_baselines(baselines, policy))
        judged = verdict(facts, policy)
        click.echo("\n".join(shown(judged, output, as_json, verbose)))
        if html_path:
            write_html(html_path, html_page.of_run(judged, output))
    return judged.exit_code
