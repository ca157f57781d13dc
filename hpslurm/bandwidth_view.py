"""A verdict on bandwidth as people see it: a table with a curve in the terminal, and one page of HTML."""

from __future__ import annotations

from collections.abc import Sequence

import click

from hpslurm.job import bandwidth
from hpslurm.job.bandwidth import ABOVE, BELOW, FAR_BELOW, GOOD, Size, Verdict, size_name
from hpslurm.job.nccl_tests_output import Output
from hpslurm.text import clean

BAR = 30  # characters for the fastest size
COLOURS = {GOOD: "green", BELOW: "yellow", FAR_BELOW: "red", bandwidth.TOO_MUCH: "yellow"}


def heading(verdict: Verdict, output: Output) -> str:
    """``all_reduce on 2 nodes, 16 ranks, p5.48xlarge, NCCL 2.27.7``."""
    table = output.tables[-1] if output.tables else None
    parts = [_count(verdict.nodes, "node"), _count(verdict.ranks, "rank")]
    parts += [verdict.instance or "instance type not known"]
    version = (table.nccl if table else "") or output.log.version
    parts += [f"NCCL {version}" if version else ""]
    name = (table.collective if table else "") or "nccl-tests"
    return f"{clean(name, 40)} on " + ", ".join(clean(part, 60) for part in parts if part)


def table_lines(sizes: Sequence[Size]) -> list[str]:
    """One line a size; the bar is drawn to the fastest size, with a mark where the floor stands."""
    if not sizes:
        return []
    top = max([one.busbw for one in sizes] + [one.fail or 0.0 for one in sizes]) or 1.0
    compared = any(one.expected for one in sizes)
    head = (
        f"{'size':>10} {'GB/s':>8}" + (f" {'expected':>9} {'floor':>8} {'share':>6}" if compared else "") + "  verdict"
    )
    lines = [head]
    for one in sizes:
        text = f"{size_name(one.size):>10} {one.busbw:8.1f}"
        if compared:
            share = f"{100 * one.ratio:5.0f}%" if one.ratio is not None else ""
            text += f" {_number(one.expected):>9} {_number(one.fail):>8} {share:>6}"
        word = click.style(f"{one.outcome:<14}", fg=COLOURS.get(one.outcome))
        lines.append(f"{text}  {word}{bar(one, top)}")
    sources = dict.fromkeys(one.source for one in sizes if one.source)
    lines += [f"expected from: {source}" for source in sources]
    return lines


def bar(one: Size, top: float) -> str:
    """The bandwidth as a bar; ``|`` is the floor, where there is one."""
    full = round(BAR * one.busbw / top)
    cells = ["█" if cell < full else " " for cell in range(BAR + 1)]
    if one.fail is not None:
        cells[min(BAR, round(BAR * one.fail / top))] = "|"
    return "".join(cells).rstrip()


def _count(number: int | None, what: str) -> str:
    return "" if number is None else f"{number} {what}" + ("" if number == 1 else "s")


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def last_line(verdict: Verdict) -> str:
    """The verdict in one line."""
    word = {
        "bad": click.style("BAD", fg="red", bold=True),
        "not judged": click.style("NOT JUDGED", fg="red", bold=True),
        "low": click.style("LOW", fg="yellow", bold=True),
        "good": click.style("GOOD", fg="green", bold=True),
    }.get(verdict.words, verdict.words.upper())
    compared = sum(one.expected is not None for one in verdict.sizes)
    why = f"{compared} of {len(verdict.sizes)} sizes compared with a floor"
    above = " (see above)" if verdict.counted and ABOVE not in {one.rule for one in verdict.counted} else ""
    return f"Verdict: {word}; {why}{above}"
