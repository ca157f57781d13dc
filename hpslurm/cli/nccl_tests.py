"""``hpslurm nccl-tests``: run nccl-tests in the caller's allocation, judge it, find the slow node.

``judge`` judges saved output on any machine.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import click

from hpslurm import bandwidth_view as view
from hpslurm import policy as policies
from hpslurm import records, render
from hpslurm.job import bandwidth, baseline
from hpslurm.job import nccl_tests_output as reading
from hpslurm.job.bandwidth import Facts, Verdict
from hpslurm.node import instance
from hpslurm.policy import Policy
from hpslurm.probe import Unknown
from hpslurm.sources.host import Host
from hpslurm.text import clean
from hpslurm.values import replace

LARGEST = 256 << 20  # bytes of one file
HELP = {"help_option_names": ["-h", "--help"]}
EXIT_CODES = "Exit codes: 0 judged fine (P1 between warn and fail), 1 could not run or judge, 2 wrong command line, "
EXIT_CODES += "3 below the floor or wrong data, 130 interrupted."


def fail(text: str) -> click.ClickException:
    """An error of ours: exit 1."""
    return click.ClickException(text)


def read_file(path: str) -> str:
    """The text of a file or of standard input (``-``), or an error that says what to do."""
    try:
        if path == "-":
            data = sys.stdin.buffer.read(LARGEST + 1)
        else:
            with open(path, "rb") as file:
                data = file.read(LARGEST + 1)
    except OSError as error:
        raise fail(f"{path}: {error.strerror}: give the file that holds what nccl-tests printed") from None
    if len(data) > LARGEST:
        raise fail(f"{path}: more than {LARGEST >> 20} MiB; give nccl-tests its own file, NCCL's lines another")
    return data.decode("utf-8", "replace")


def type_here() -> str:
    """The instance type of this machine, or empty."""
    try:
        return instance.instance_type(Host())
    except (Unknown, OSError):
        return ""


def known_type(name: str | None) -> str:
    """The type that the user named, checked against the table; of this machine where none is named."""
    if name is None:
        return type_here()
    name = name.removeprefix("ml.")
    if bandwidth.limits_of(name) is None:
        from difflib import get_close_matches

        names = [row["type"] for row in bandwidth.tables()["limits"]]
        close = get_close_matches(name, names, n=3) or names
        raise click.BadParameter(f"{clean(name, 60)!r} is not in the table; known are {', '.join(close)}")
    return name


def with_own(facts: Facts, own: baseline.Baselines | None) -> Facts:
    """The same run, with the site's own figures of its kind."""
    about = bandwidth.shape(facts)
    if own is None or about is None:
        return facts
    collective, nodes, ranks, nccl = about
    return replace(facts, own=own.own(baseline.kind_of(facts.instance, collective, nodes, ranks, nccl)))


def load_baselines(path: str | None, policy: Policy) -> baseline.Baselines:
    """The file named, or the one in the results folder; what is wrong with it is said on stderr."""
    found = baseline.load(path or os.path.join(policy.results, baseline.NAME))
    if found.problem:
        click.echo(f"{render.label('WARN')} baselines not used: {found.problem}", err=True)
    if found.unreadable:
        click.echo(
            f"{render.label('WARN')} {found.path}: {found.unreadable} lines cannot be read, passed over", err=True
        )
    return found


def show(verdict: Verdict, output: reading.Output) -> list[str]:
    """All that a person sees of one run."""
    lines = [view.heading(verdict, output), *view.table_lines(verdict.sizes)]
    for one in render.fold(verdict.findings):
        lines += render.finding_lines(one)
    return [*lines, view.last_line(verdict)]


def json_lines(verdict: Verdict, output: reading.Output) -> list[str]:
    """The same as JSON lines: one ``bandwidth`` line, then findings, then ``end``."""
    table = output.tables[-1] if output.tables else None
    about = {
        "schema": records.SCHEMA,
        "type": "bandwidth",
        "source": clean(output.source),
        "collective": clean(table.collective, 40) if table else "",
        "instance": verdict.instance,
        "nodes": verdict.nodes,
        "ranks": verdict.ranks,
        "nccl": (table.nccl if table else "") or output.log.version,
        "verdict": verdict.words,
        "sizes": [
            {
                "size": one.size,
                "busbw": one.busbw,
                "outcome": one.outcome,
                "expected": one.expected,
                "warn_below": one.warn,
                "fail_below": one.fail,
                "ceiling": one.ceiling,
                "source": one.source,
            }
            for one in verdict.sizes
        ],
    }
    lines = [about, *(records.finding_line(finding) for finding in verdict.findings)]
    lines.append({"schema": records.SCHEMA, "type": "end", "findings": len(verdict.findings)})
    return [records.encode(line) for line in lines]


def pick_table(output: reading.Output, number: int | None) -> None:
    """Leave only the table that the user chose, counted from 1."""
    if number is None:
        return
    if not 1 <= number <= len(output.tables):
        raise click.BadParameter(f"{output.source} holds {len(output.tables)} tables", param_hint="--table")
    output.tables[:] = [output.tables[number - 1]]


@click.group("nccl-tests", context_settings=HELP, invoke_without_command=True, epilog=EXIT_CODES)
@click.pass_context
def command(ctx: click.Context) -> None:
    """Run nccl-tests in this allocation, judge each size, find what is slow.

    \b
    Examples:
      hpslurm nccl-tests judge slurm-4711.out     judge saved output, on any machine
    """
    if ctx.invoked_subcommand is None:
        raise fail("not built yet: use judge")


@command.command("judge", context_settings=HELP, epilog=EXIT_CODES)
@click.argument("file")
@click.option("--instance-type", metavar="TYPE", help="p5.48xlarge and so on; without it, that of this machine.")
@click.option(
    "--nodes", type=click.IntRange(1), help="How many nodes were meant; without it, those in the device list."
)
@click.option("--gpus", type=click.IntRange(1), help="How many GPUs of each node were meant.")
@click.option("--table", "number", type=click.IntRange(1), metavar="N", help="Judge the Nth table of the file.")
@click.option("--nccl-log", "logs", multiple=True, metavar="FILE", help="NCCL_DEBUG_FILE output; may be repeated.")
@click.option("--baselines", metavar="FILE", help="The site's own figures (see --record).")
@click.option("--policy", "policy_path", default=policies.PATH, show_default=True, help="Thresholds and mutes.")
@click.option("--html", "html_path", metavar="FILE", help="Write one page that needs no network.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON lines.")
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
) -> int:
    """Judge what nccl-tests printed (text or the JSON of -J); - reads standard input.

    \b
    Examples:
      hpslurm nccl-tests judge slurm-4711.out --instance-type p5.48xlarge
      hpslurm nccl-tests judge run.txt --nodes 2 --gpus 8 --nccl-log nccl.ip-10-1-0-1.4242
    """
    name = known_type(instance_type)
    policy = policies.load(policy_path, instance=name)
    output = reading.read_text(read_file(file), file)
    pick_table(output, number)
    for log in logs:
        reading.read_nccl_lines(read_file(log).splitlines(), output.log)
    facts = with_own(Facts(output, name, nodes, gpus), load_baselines(baselines, policy))
    verdict = bandwidth.verdict(facts, policy)
    click.echo("\n".join(json_lines(verdict, output) if as_json else show(verdict, output)))
    return verdict.exit_code
