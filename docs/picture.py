"""Draws what a command printed as docs/diagnose.svg and docs/hang.svg, by rich's export; the text is the command's own.

    hpslurm diagnose 2>&1 | python docs/picture.py "hpslurm diagnose" > docs/diagnose.svg

Colours are kept where the input has them (``script -qc 'hpslurm diagnose' /dev/null``).
"""

from __future__ import annotations

import io
import re
import sys

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

WIDTH = 100  # columns


def svg(printed: str, title: str) -> str:
    console = Console(record=True, width=WIDTH, file=io.StringIO())
    for line in printed.replace("\r", "").splitlines():
        console.print(Text.from_ansi(line), soft_wrap=True)
    drawn = console.export_svg(title=title, theme=MONOKAI, unique_id="hpslurm")
    # rich names fonts on the network; the reader's own monospace font does, and asks nobody
    drawn = re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.S)
    return re.sub(r"\s*<!-- Generated.*?-->", "", drawn)


if __name__ == "__main__":
    sys.stdout.write(svg(sys.stdin.read(), sys.argv[1]))
