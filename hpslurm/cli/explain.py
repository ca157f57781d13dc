"""``hpslurm explain``: what a finding, a cause or a code means, in the terminal."""

from __future__ import annotations

import io
import os
import re
import sys
from importlib.util import find_spec
from typing import ClassVar

import click

from hpslurm.cli import options
from hpslurm.core import records
from hpslurm.show import explain
from hpslurm.show.render import may_colour, terminal_width


@click.command(
    "explain",
    context_settings=options.HELP,
    epilog="Exit codes: 0 printed, 2 nothing of that name.",
)
@click.argument("words", nargs=-1, metavar="ID|CAUSE|XID|SECTION")
@click.option("--markdown", is_flag=True, help="Print the text as it is written, for another program.")
@options.as_json("Print one line of JSON, with the text as Markdown.")
@click.option("--no-pager", is_flag=True, help="Print at once, also on a terminal.")
def command(words: tuple[str, ...], markdown: bool, as_json: bool, no_pager: bool) -> None:
    """Print what a finding, a cause or a code means, how to confirm it, and what to do.

    Without a word it lists the sections. A number up to 21 is a section of the guide, a larger one
    an XID or SXID; xid-13 is always the XID.

    \b
    Examples:
      hpslurm explain memlock-low
      hpslurm explain 79
      hpslurm explain gpu_fell_off_bus
      hpslurm explain operations.md § 7
    """
    wanted = " ".join(words)
    text = explain.explain(wanted) if words else "\n".join(explain.titles())
    if not text:
        close = explain.suggestions(wanted)
        hint = f" Did you mean {', '.join(close)}?" if close else " All sections: hpslurm explain"
        raise click.UsageError(f"nothing is known of {wanted[:80]!r}.{hint}")
    if as_json:
        click.echo(records.encode({"schema": records.SCHEMA, "type": "explanation", "word": wanted, "text": text}))
        return
    if markdown or not words or not find_spec("rich"):  # a lean installation has none (docs/install.md)
        click.echo(text)
        return
    shown = formatted(text, terminal_width(), colour=sys.stdout.isatty() and may_colour())
    if no_pager or not sys.stdout.isatty():
        click.echo(shown, nl=False)
    else:
        os.environ.setdefault("LESS", "-RFX")  # colours, no waiting for a short text, and it stays on the screen
        click.echo_via_pager(shown)


def formatted(text: str, width: int, *, colour: bool) -> str:
    """Markdown laid out for a terminal of this width."""
    from rich import markdown
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.text import Text

    class Heading(markdown.Heading):
        """At the left: rich centres headings."""

        def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
            yield Text("")
            yield Text(self.text.plain, style="bold underline" if self.tag == "h1" else "bold")

    class Laid(markdown.Markdown):
        elements: ClassVar = {**markdown.Markdown.elements, "heading_open": Heading}

    out = io.StringIO()
    console = Console(
        file=out,
        width=width,
        force_terminal=colour,
        no_color=not colour,
        color_system="standard" if colour else None,
        highlight=False,
        legacy_windows=False,
    )
    console.print(Laid(text, hyperlinks=False))
    laid = "\n".join(line.rstrip() for line in out.getvalue().splitlines())
    return re.sub(r"\n{3,}", "\n\n", laid).strip("\n") + "\n"
