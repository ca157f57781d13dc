"""A verdict on bandwidth as people see it: a table with a curve in the terminal, and one page of HTML."""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterable, Sequence
from typing import Any

import click

from hpslurm.core import nodeset
from hpslurm.core.finding import Finding
from hpslurm.core.text import clean
from hpslurm.nccl_tests import judge, search
from hpslurm.nccl_tests.judge import BELOW, FAR_BELOW, GOOD, Size, Verdict, size_name
from hpslurm.nccl_tests.search import Named, Result, State
from hpslurm.scan import nccl_rails
from hpslurm.scan.nccl_tests import Output
from hpslurm.show import render

BAR, SHORTEST_BAR = 30, 8  # characters for the fastest size; where fewer have room there is no bar
COLOURS = {GOOD: "green", BELOW: "yellow", FAR_BELOW: "red", judge.TOO_MUCH: "yellow"}


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
        drawn = bar(one, top, render.terminal_width() - len(text) - 16)
        word = click.style(f"{one.outcome:<14}" if drawn else one.outcome, fg=COLOURS.get(one.outcome))
        lines.append(f"{text}  {word}{drawn}")
    sources = dict.fromkeys(one.source for one in sizes if one.source)
    lines += [line for source in sources for line in render.fitted(f"expected from: {source}")]
    return lines


def bar(one: Size, top: float, room: int) -> str:
    """The bandwidth as a bar, in at most ``room`` characters; ``|`` is the floor, where there is one."""
    length = min(BAR, room - 1)
    if length < SHORTEST_BAR:
        return ""
    full = round(length * one.busbw / top)
    cells = ["█" if cell < full else " " for cell in range(length + 1)]
    if one.fail is not None:
        cells[min(length, round(length * one.fail / top))] = "|"
    return "".join(cells).rstrip()


MOST_RANKS = 16  # rows of the table of NICs


def nic_lines(rails: nccl_rails.Rails) -> list[str]:
    """NICs by rank, where they are uneven: the ranks of nodes that have fewer, and one other node to compare with."""
    bad = {one.host for one in nccl_rails.uneven(rails)}
    if not bad:
        return []
    hosts = [*sorted(bad), *sorted({host for host, _ in rails.ranks} - bad)[:1]]
    lines = [f"{'node':>16} {'rank':>5} {'GPU':>4} {'NICs':>5}  by NCCL's log"]
    rows = [
        (host, number, rank) for host in hosts for (name, number), rank in sorted(rails.ranks.items()) if name == host
    ]
    for host, number, rank in rows:
        called = [name for device in sorted(rank.devices) for name in nccl_rails.nics(rails.hosts.get(host), device)]
        names = ", ".join(name.partition(" ")[0] for name in called)
        gpu = "" if rank.gpu is None else str(rank.gpu)
        used = nccl_rails.count(rails, host, rank)
        lines.append(f"{clean(host, 40):>16} {number:>5} {gpu:>4} {used:>5}  {names}".rstrip())
    more = len(lines) - 1 - MOST_RANKS
    return lines[: MOST_RANKS + 1] + ([f"... and {more} ranks more"] if more > 0 else [])


def _count(number: int | None, what: str) -> str:
    return "" if number is None else f"{number} {what}" + ("" if number == 1 else "s")


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def last_line(verdict: Verdict) -> str:
    """The verdict in one line."""
    word = {
        "bad": click.style("BAD", fg="red", bold=True),
        "not judged": click.style("NOT JUDGED", fg="red", bold=True),
        "not credible": click.style("NOT CREDIBLE", fg="red", bold=True),
        "low": click.style("LOW", fg="yellow", bold=True),
        "good": click.style("GOOD", fg="green", bold=True),
    }.get(verdict.words, verdict.words.upper())
    compared = sum(one.expected is not None for one in verdict.sizes)
    why = f"{compared} of {len(verdict.sizes)} sizes compared with a floor"
    above = " (see above)" if verdict.counted else ""
    long = len(f"Verdict: {verdict.words}; {why}{above}") > render.terminal_width()
    return f"Verdict: {word};{chr(10) + ' ' * 8 if long else ''} {why}{above}"


# the search


def ranking(state: State) -> list[tuple[str, float, int]]:
    """Nodes by their best rate with a partner, slowest first: name, GB/s, runs."""
    rates: dict[str, list[float]] = {node: [] for node in state.nodes}
    for one in pairs_of(state):
        for node in one.run.nodes:
            rates[node].append(one.value)
    return sorted(((node, max(found), len(found)) for node, found in rates.items() if found), key=lambda row: row[1])


def pairs_of(state: State) -> list[Result]:
    kinds = (search.PAIR, search.RETEST, search.PATH)
    return [one for results in state.rounds for one in results if one.run.kind in kinds]


def ranking_lines(state: State, verdict: search.Verdict, most: int = 10) -> list[str]:
    """The slowest nodes by their best run, with a bar; the mark is the line below which a run is slow."""
    rows = ranking(state)
    if not rows or not verdict.normal:
        return []
    top = max(rate for _, rate, _ in rows) or 1.0
    width = max(len(node) for node, _, _ in rows[:most])
    lines = [f"slowest nodes by their best run (normal {verdict.normal:.1f} GB/s, slow below {verdict.line:.1f}):"]
    for node, rate, runs in rows[:most]:
        one = Size(0, rate, GOOD, fail=verdict.line)
        text = f"  {clean(node):<{width}} {rate:8.1f}  {runs:2} run{'s' if runs > 1 else ' '}  "
        lines.append((text + bar(one, top, render.terminal_width() - len(text))).rstrip())
    return lines


# one page of HTML


def page(verdict: Verdict, output: Output) -> str:
    """The size curve against floor and ceiling, the table and the findings."""
    findings = [_finding(one) for one in verdict.findings]
    return _render(
        title=heading(verdict, output),
        verdict=verdict.words,
        curve=curve(verdict.sizes),
        sizes=[
            {
                "name": size_name(one.size),
                "busbw": _number(one.busbw),
                "expected": _number(one.expected),
                "warn": _number(one.warn),
                "fail": _number(one.fail),
                "ceiling": _number(one.ceiling),
                "share": f"{100 * one.ratio:.0f} %" if one.ratio is not None else "-",
                "outcome": one.outcome,
            }
            for one in verdict.sizes
        ],
        sources=list(dict.fromkeys(one.source for one in verdict.sizes if one.source)),
        findings=findings,
    )


def search_page(state: State, verdict: search.Verdict, instance: str, findings: Iterable[Finding] = ()) -> str:
    """The heat map of pairs and the ranking of nodes."""
    named = {node: one for one in verdict.named for node in one.nodes}
    rows = ranking(state)
    top = max((rate for _, rate, _ in rows), default=1.0) or 1.0
    kinds = ", ".join(_named_words(one) for one in verdict.named) or "no node, path or rail is slow"
    return _render(
        title=f"Search for the slow node: {len(state.nodes)} nodes"
        + (f" of {clean(instance, 40)}" if instance else ""),
        verdict=kinds,
        heat=heat(state, verdict),
        ranks=[
            {
                "name": node,
                "rate": f"{rate:.1f}",
                "runs": runs,
                "width": round(300 * rate / top),
                "named": node in named,
            }
            for node, rate, runs in rows[:MOST_RANKED]
        ],
        left_out=max(0, len(rows) - MOST_RANKED),
        line=round(300 * verdict.line / top),
        normal=f"{verdict.normal:.1f}",
        slow_below=f"{verdict.line:.1f}",
        findings=[_finding(one) for one in findings],
    )


MOST_RANKED = 64  # rows; the fast ones are of no interest
MOST_CELLS = 64  # nodes in the heat map: the named ones, their partners, and the slowest
PLOT = (640, 280)  # pixels of the curve, inside its margins


def curve(sizes: Sequence[Size]) -> dict[str, Any] | None:
    """Points of the lines in pixels, and the marks of both axes; None with nothing to draw."""
    if not sizes:
        return None
    wide, high = PLOT
    top = max([one.busbw for one in sizes] + [value for one in sizes for value in (one.expected, one.ceiling) if value])
    top = top * 1.05 or 1.0

    def x(place: int) -> float:
        return round(wide * (place + 0.5) / len(sizes), 1)

    def y(rate: float) -> float:
        return round(high * (1 - rate / top), 1)

    def line(values: list[float | None]) -> str:
        return " ".join(f"{x(place)},{y(value)}" for place, value in enumerate(values) if value is not None)

    step = _round_step(top / 5)
    return {
        "wide": wide,
        "high": high,
        "busbw": line([one.busbw for one in sizes]),
        "expected": line([one.expected for one in sizes]),
        "warn": line([one.warn for one in sizes]),
        "fail": line([one.fail for one in sizes]),
        "ceiling": line([one.ceiling for one in sizes]),
        "points": [
            {
                "x": x(i),
                "y": y(one.busbw),
                "name": size_name(one.size),
                "rate": f"{one.busbw:.1f}",
                "bad": one.outcome in (BELOW, FAR_BELOW, judge.TOO_MUCH),
            }
            for i, one in enumerate(sizes)
        ],
        "every": max(1, (len(sizes) + 11) // 12),
        "marks": [{"y": y(step * i), "text": f"{step * i:g}"} for i in range(int(top / step) + 1)],
    }


def _round_step(step: float) -> float:
    """1, 2 or 5 times a power of ten, not below the step."""
    power = 10.0 ** len(str(int(step))) / 10 if step >= 1 else 0.1
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= step)


def heat(state: State, verdict: search.Verdict) -> dict[str, Any]:
    """Cells of the pair matrix: for each pair the median of its runs, as a share of normal."""
    seen: dict[frozenset[str], list[float]] = {}
    for one in pairs_of(state):
        seen.setdefault(frozenset(one.run.nodes), []).append(one.value)
    named = [node for one in verdict.named for node in one.nodes]
    partners = [node for pair in seen for node in sorted(pair) if pair & set(named)]
    slowest = [node for node, _, _ in ranking(state)]
    shown = list(dict.fromkeys([*named, *partners, *slowest]))[:MOST_CELLS]
    nodes = [node for node in state.nodes if node in set(shown)]
    place = {node: i for i, node in enumerate(nodes)}
    cells = []
    for pair, rates in seen.items():
        if not all(node in place for node in pair):
            continue
        first, second = sorted(pair, key=lambda node: place[node])
        share = statistics.median(rates) / verdict.normal if verdict.normal else 0.0
        text = f"{first} and {second}: {statistics.median(rates):.1f} GB/s, {100 * share:.0f} %, {len(rates)} runs"
        for row, column in ((place[first], place[second]), (place[second], place[first])):
            cells.append({"row": row, "column": column, "colour": _colour(share), "text": text})
    return {
        "nodes": [{"name": node, "named": node in named} for node in nodes],
        "cells": cells,
        "size": 18 if len(nodes) <= 32 else 11,
        "left_out": len(state.nodes) - len(nodes),
        "scale": [{"colour": _colour(share / 100), "text": f"{share} %"} for share in (50, 60, 70, 80, 90, 100)],
    }


def _colour(share: float) -> str:
    """From dark red (half of normal and less) through yellow to green (normal)."""
    place = min(1.0, max(0.0, (share - 0.5) / 0.5))
    return f"hsl({round(120 * place)}, 70%, {round(38 + 12 * place)}%)"


def _named_words(one: Named) -> str:
    who = " and ".join(one.blocks) if one.blocks else nodeset.fold(one.nodes)
    rail = f" GPU {one.rail}" if one.rail is not None else ""
    return f"{one.kind} {who}{rail}: {one.how}, {100 * one.share:.0f} % of normal"


def _finding(one: Finding) -> dict[str, Any]:
    return {
        "priority": one.rule.priority,
        "id": one.rule.id,
        "title": one.rule.title,
        "subject": one.subject,
        "detail": clean(one.detail),
        "reference": one.rule.reference,
        "evidence": [f"{clean(item.source)}: {clean(item.text)}" for item in one.evidence[:20]],
        "muted": clean(one.muted),
    }


def _render(**values: Any) -> str:
    from jinja2 import Environment

    with open(os.path.join(os.path.dirname(__file__), "page.html"), encoding="utf-8") as file:
        template = file.read()
    # everything is escaped: host names and lines of logs are foreign
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(template).render(**values)
