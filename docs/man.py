"""Writes man pages from the commands' own help: python docs/man.py FOLDER, then man -l FOLDER/hpslurm-scan.1

For ``man hpslurm`` copy them to /usr/local/share/man/man1.
"""

from __future__ import annotations

import inspect
import os
import sys
from pathlib import Path

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import click

from hpslurm import __version__
from hpslurm.cli import group


def roff(text: str) -> str:
    """Signs that roff would take as its own, escaped."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "\n".join(f"\\&{line}" if line.startswith((".", "'")) else line for line in text.splitlines())


def paragraphs(text: str) -> list[str]:
    """click's help: blank lines part paragraphs; one that begins with a backspace keeps its lines."""
    out = []
    for block in inspect.cleandoc(text).split("\n\n"):
        kept = block.lstrip("\n").startswith("\b")
        body = roff(block.replace("\b\n", "").replace("\b", ""))
        out += [".PP", *([".nf", body, ".fi"] if kept else [body])]
    return out


def records(command: click.Command, ctx: click.Context) -> list[tuple[str, str]]:
    found = [one.get_help_record(ctx) for one in command.get_params(ctx)]
    return [one for one in found if one]


def page(name: str, command: click.Command, parent: click.Context | None = None) -> dict[str, str]:
    """Pages by file name: of this command, and of those below it."""
    ctx = click.Context(command, info_name=name, parent=parent, **command.context_settings)
    title = ctx.command_path.replace(" ", "-")
    usage = " ".join(command.collect_usage_pieces(ctx))
    out = [f'.TH "{title.upper()}" "1" "" "hpslurm {__version__}" "hpslurm"']
    out += [".SH NAME", roff(f"{title} - {command.get_short_help_str(200)}")]
    out += [".SH SYNOPSIS", f".B {roff(ctx.command_path)}", roff(usage)]
    out += [".SH DESCRIPTION", *paragraphs(command.help or "")]
    out += [".SH OPTIONS"]
    for option, words in records(command, ctx):
        out += [".TP", f"\\fB{roff(option)}\\fR", roff(words)]
    below: dict[str, str] = {}
    if isinstance(command, click.Group):
        out += [".SH COMMANDS"]
        for sub in command.list_commands(ctx):
            inner = command.get_command(ctx, sub)
            assert inner is not None
            below |= page(sub, inner, ctx)
            out += [".TP", f"\\fB{roff(sub)}\\fR", roff(inner.get_short_help_str(200))]
    if command.epilog:
        out += [".SH EXIT STATUS", roff(command.epilog.replace("Exit codes: ", ""))]
    return {f"{title}.1": "\n".join(out) + "\n", **below}


def pages() -> dict[str, str]:
    return page("hpslurm", group)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (folder / name).write_text(text, encoding="utf-8")
