"""``hpslurm completion SHELL``: the lines that let a shell complete our commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from hpslurm.cli import options

SHELLS = ("bash", "zsh", "fish")
PROGRAMS = ("hpslurm", "hpslurm-check")


@click.command(
    "completion",
    context_settings=options.HELP,
    epilog="Exit codes: 0 printed, 2 wrong command line.",
)
@click.argument("shell", type=click.Choice(SHELLS))
def command(shell: str) -> None:
    """Print the lines that make SHELL complete commands, options and files of hpslurm.

    \b
    Examples:
      eval "$(hpslurm completion bash)"
          in ~/.bashrc; for all users: into /etc/bash_completion.d/hpslurm
      hpslurm completion zsh > "${fpath[1]}/_hpslurm"
      hpslurm completion fish > ~/.config/fish/completions/hpslurm.fish
    """
    kind = get_completion_class(shell)
    if kind is None:
        raise click.ClickException(f"this click has no completion for {shell}")
    from hpslurm.cli import group
    from hpslurm.cli.check import command as check

    for program, cli in zip(PROGRAMS, (group, check), strict=True):
        variable = f"_{program.upper().replace('-', '_')}_COMPLETE"
        click.echo(kind(cli, {}, program, variable).source())
