"""``hpslurm explain``: the reference section of a finding, in the terminal."""

from __future__ import annotations

from difflib import get_close_matches

import click

from hpslurm import references


@click.command(
    "explain",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 printed, 2 nothing of that name.",
)
@click.argument("words", nargs=-1, required=True, metavar="ID|SECTION")
def command(words: tuple[str, ...]) -> None:
    """Print what a finding means, how to confirm it, and what to do.

    \b
    Examples:
      hpslurm explain memlock-low
      hpslurm explain § 17
      hpslurm explain operations.md § 7
    """
    wanted = " ".join(words)
    section = references.of_finding(wanted) or references.by_name(wanted)
    if section is None:
        known = sorted({one for section in references.sections() for one in section.findings})
        close = get_close_matches(wanted, known, n=3)
        hint = f" Did you mean {', '.join(close)}?" if close else " Known findings: " + ", ".join(known)
        raise click.UsageError(f"nothing is known of {wanted!r}.{hint}")
    click.echo_via_pager(f"{section.name}  {section.title}\n\n{section.text}\n")
