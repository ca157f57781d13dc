"""``hpslurm --version``."""

from __future__ import annotations

import click

from hpslurm.setup import versions
from hpslurm.sources.host import Host

SECONDS = 5.0  # for Slurm's programs


def show(ctx: click.Context) -> None:
    """For the callback of the option: prints, and ends the program with 0."""
    if not ctx.resilient_parsing:
        click.echo("\n".join(versions.lines(Host("/", seconds=SECONDS))))
        ctx.exit()
