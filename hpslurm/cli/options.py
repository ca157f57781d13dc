"""Options and parameter types that several commands have. Where commands mean it a little otherwise, each says so."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from hpslurm.core import nodeset, policy
from hpslurm.core.finding import PRIORITIES

HELP = {"help_option_names": ["-h", "--help"]}  # settings of every command
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
Command = TypeVar("Command", bound=Callable[..., Any])


class Duration(click.ParamType):  # type: ignore[type-arg]
    """``90m``, ``2h``, ``1d``, or seconds; becomes seconds."""

    name = "TIME"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        match = re.fullmatch(r"(\d{1,6})([smhd]?)", str(value).strip())
        if not match or not int(match[1]):
            self.fail(f"{value!r} is not a valid duration; write 90m, 2h or 1d", param, ctx)
        return float(int(match[1]) * _UNITS[match[2]])


def node_set(words: Sequence[str]) -> frozenset[str]:
    """All nodes that --node names."""
    names: set[str] = set()
    for word in words:
        try:
            names.update(nodeset.unfold(word))
        except nodeset.NoNodeList as error:
            raise click.UsageError(f"--node {word!r} is not a valid node list: {error}") from None
    return frozenset(names)


def html(command: Command) -> Command:
    """--html: the same as one page."""
    return click.option(
        "--html", "html_file", type=click.Path(dir_okay=False), help="Also write the report as one page to FILE."
    )(command)


def write_page(path: str, text: str) -> None:
    """The whole page or nothing of it."""
    from hpslurm.core import whole_file

    try:
        whole_file.write(path, text.encode())
    except OSError as error:
        raise click.ClickException(f"could not write {path}: {error.strerror}") from None


def _together(command: Command, *options: Callable[[Command], Command]) -> Command:
    """The command with these options; --help shows them in this order."""
    for option in reversed(options):
        command = option(command)
    return command


def as_json(words: str = "Print JSON lines.") -> Callable[[Command], Command]:
    return click.option("--json", "as_json", is_flag=True, help=words)


def fail_on(default: str) -> Callable[[Command], Command]:
    return click.option(
        "--fail-on",
        type=click.Choice([*PRIORITIES, "never"]),
        default=default,
        show_default=True,
        help="Exit 3 from this priority upwards.",
    )


def strict(words: str = "Exit 3 also when something could not be checked.") -> Callable[[Command], Command]:
    return click.option("--strict", is_flag=True, help=words)


def all_nodes(then: str) -> Callable[[Command], Command]:
    """--all-nodes, and --pieces, how it gets its JSON through srun."""
    words = f"Inside an allocation: start one srun over its nodes, and {then} them."
    return lambda command: _together(
        command,
        click.option("--pieces", is_flag=True, hidden=True),
        click.option("--all-nodes", is_flag=True, help=words),
    )


def verbose(
    words: str = "Print everything: each finding with its evidence, and all that was looked at.",
) -> Callable[[Command], Command]:
    """-v: the whole, instead of the first screen."""
    return click.option("-v", "--verbose", is_flag=True, help=words)


def policy_path(words: str = "Thresholds and mutes.") -> Callable[[Command], Command]:
    return click.option("--policy", "policy_path", default=policy.PATH, show_default=True, help=words)


def aws_cluster(command: Command) -> Command:
    """--cluster, --region and --profile: which cluster is asked about, and as whom."""
    return _together(
        command,
        click.option(
            "--cluster", default="", metavar="NAME", help="HyperPod cluster, by name or ARN (default: this node's)."
        ),
        click.option("--region", default="", help="AWS region (default: environment, profile, or this node's)."),
        click.option("--profile", default="", help="AWS profile."),
    )


def no_aws_no_slurm(command: Command) -> Command:
    """--no-aws and --no-slurm."""
    return _together(
        command,
        click.option("--no-aws", is_flag=True, help="Do not ask AWS."),
        click.option("--no-slurm", is_flag=True, help="Do not ask Slurm."),
    )


def results(command: Command) -> Command:
    """--results: records of another place than the policy's."""
    return click.option("--results", metavar="FOLDER", help="Where records are (default: as the policy says).")(command)


def reports(command: Command) -> Command:
    """--reports: folders with more records."""
    return click.option(
        "--reports", multiple=True, type=click.Path(exists=True, file_okay=False), help="Also read records from here."
    )(command)


def root(command: Command) -> Command:
    """--root: look at a saved machine; for tests."""
    return click.option("--root", default="/", hidden=True)(command)
