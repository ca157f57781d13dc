"""The command line: one file a command, loaded only when it is asked for."""

from __future__ import annotations

import errno
import io
import os
import sys
from contextlib import suppress
from importlib import import_module
from typing import Any

import click

from hpslurm.cli import options
from hpslurm.show import render

# name -> module:function, and the line that --help shows. Looking must not import boto3.
COMMANDS: dict[str, tuple[str, str]] = {
    "bundle": ("bundle:command", "Collect what AWS Support asks for into one file, masked."),
    "check": ("check:command", "Look at this node, as a job step sees it (also: hpslurm-check)."),
    "completion": ("completion:command", "Print the lines that let bash, zsh or fish complete hpslurm."),
    "diagnose": (
        "diagnose:command",
        "Look at the whole cluster: what is wrong, what to type next.",
    ),
    "doctor": ("doctor:command", "Is hpslurm installed right here, and does Slurm run it?"),
    "explain": ("explain:command", "What a finding, a cause, an XID or a section means, and what to do."),
    "history": ("history:command", "Nodes that keep failing, over all jobs of some weeks."),
    "hang": ("hang:command", "Which rank of a running job hangs, on which node, and why."),
    "iam-policy": ("iam_policy:command", "Print the IAM policy that diagnose needs."),
    "install": ("install:command", "Print the exact steps that put the hooks on this cluster; change nothing."),
    "metrics": ("metrics:command", "Print the newest results for Prometheus: node_exporter's textfile collector."),
    "nccl-tests": ("nccl_tests:command", "Run nccl-tests in an allocation, judge the bandwidth, find the slow node."),
    "scan": ("scan:command", "Name the cause of a failure from logs, and who started it."),
    "report": ("report:command", "What a job's nodes recorded, and how the job ended."),
    "what-if": ("what_if:command", "What another policy would have made of recorded facts."),
}
INTERRUPTED = 130


class _Lazy(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, function = COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(import_module(f"hpslurm.cli.{module}"), function)
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from difflib import get_close_matches

            if close := get_close_matches(args[0], COMMANDS, n=1):
                raise click.UsageError(f"{error.message} Did you mean {close[0]!r}?", ctx) from None
            raise

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name][1]) for name in self.list_commands(ctx)])


@click.group(
    cls=_Lazy,
    context_settings=options.HELP,
    epilog="Exit codes: 0 done, 1 could not do it, 2 wrong command line, 3 found something at or above --fail-on.",
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=lambda *given: import_module("hpslurm.cli.version").show(*given),
    help="Print our version and those of Slurm, driver, NCCL, libfabric around it.",
)
def group() -> None:
    """Find out why NCCL training fails on a SageMaker HyperPod Slurm cluster.

    hpslurm looks and judges. It prints commands that a person may run; it runs none of them.

    \b
    Examples:
      srun -N4 --ntasks-per-node=1 hpslurm-check     before training, inside an allocation
      hpslurm report 4711                            after a job failed
      sudo hpslurm diagnose                          on the controller
    """


def main() -> None:
    """Entry point ``hpslurm``."""
    run(group, "hpslurm")


def _refuse_empty(words: list[str]) -> None:
    """No name, folder or file is empty; what comes here empty is a variable of the shell that was never set."""
    for before, word in zip(["", *words], words, strict=False):
        if word.startswith("--") and word.endswith("=") and word.count("=") == 1:
            raise click.UsageError(f"{word[:-1]} is empty; give it a value, or leave it out")
        if not word:
            what = before if before.startswith("-") and len(before) > 1 and before != "--" else "an argument"
            raise click.UsageError(f"{what} is empty; give it a value, or leave it out")


def run(command: click.Command, name: str) -> None:
    """Run a command with our exit codes, and without a traceback for a user's mistake."""
    if asked := os.environ.get(f"_{name.upper().replace('-', '_')}_COMPLETE"):  # the shell, at a press of tab
        from click.shell_completion import shell_complete

        sys.exit(shell_complete(command, {}, name, f"_{name.upper().replace('-', '_')}_COMPLETE", asked))
    sys.stdout, sys.stderr = sys.stdout or _nowhere(1), sys.stderr or _nowhere(2)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # half a letter in a name must not be a traceback
    try:
        code = _ended(command, name)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader had enough, as with | head
        code = 0
        _write_no_more()
    except OSError as error:
        if error.errno not in FULL or error.filename is not None:
            raise
        code = 1
        _write_no_more()
        _say(f"{name}: could not write all of it: {error.strerror}")
    sys.exit(code)


def _nowhere(number: int) -> io.TextIOBase:
    """For a stream that was closed before we came, as with ``>&-``: a file opened later must not get its number."""
    null = os.open(os.devnull, os.O_WRONLY)
    if null != number:
        os.dup2(null, number)
        os.close(null)
    return open(number, "w", encoding="utf-8")


FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)  # what a device that takes no more says of a write


def _ended(command: click.Command, name: str) -> int:
    """The exit code. Not click's own ``main``, which ends with 1 where a reader has had enough."""
    try:
        _refuse_empty(sys.argv[1:])
        colour = None if render.may_colour() else False  # None: click looks whether it is a terminal
        with command.make_context(name, sys.argv[1:], color=colour) as context:
            code = command.invoke(context)
    except (click.exceptions.Abort, KeyboardInterrupt):
        code = INTERRUPTED
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except click.exceptions.Exit as error:
        code = error.exit_code
    except ModuleNotFoundError as error:
        if not error.name or error.name.partition(".")[0] == "hpslurm":
            raise
        _say(
            f"{name}: the package {error.name} is not installed: this may be a lean installation, for nodes that only "
            "run hooks and jobs (docs/install.md); hpslurm doctor says what is missing"
        )
        code = 1
    return code if isinstance(code, int) else 0


def _write_no_more() -> None:
    """What is still in the buffer goes nowhere, or Python would try again at its end, and fail aloud."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)


def _say(words: str) -> None:
    with suppress(OSError):
        click.echo(words, err=True)
