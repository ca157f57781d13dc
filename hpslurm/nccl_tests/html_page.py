"""A verdict, or a search, as one page of HTML that needs no network and no script."""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from hpslurm.core import nodeset
from hpslurm.core.finding import Finding
from hpslurm.core.text import clean
from hpslurm.nccl_tests import accused
from hpslurm.nccl_tests.accused import Named
from hpslurm.nccl_tests.runs import State
from hpslurm.nccl_tests.verdict import BELOW, FAR_BELOW, TOO_MUCH, Size, Verdict
from hpslurm.nccl_tests.view import heading, number, pairs_of, ranking
from hpslurm.nccl_tests.words import size_name
from hpslurm.scan.nccl_tests import Output

MOST_RANKED = 64  # rows; the fast ones are of no interest
MOST_CELLS = 64  # nodes in the heat map: the named ones, their partners, and the slowest
PLOT = (640, 280)  # pixels of the curve, inside its margins


def of_run(verdict: Verdict, output: Output) -> str:
    """The size curve against floor and ceiling, the table and the findings."""
    return _render(
        title=heading(verdict, output),
        verdict=verdict.words,
        curve=curve(verdict.sizes),
        sizes=[
            {
                "name": size_name(size.size),
                "busbw": number(size.busbw),
                "expected": number(size.expected),
                "warn": number(size.warn),
                "fail": number(size.fail),
                "ceiling": number(size.ceiling),
                "share": f"{100 * size.ratio:.0f} %" if size.ratio is not None else "-",
                "outcome": size.outcome,
            }
            for size in verdict.sizes
        ],
        sources=list(dict.fromkeys(size.source for size in verdict.sizes if size.source)),
        findings=[_finding(finding) for finding in verdict.findings],
    )


def of_search(state: State, verdict: accused.Verdict, instance: str, findings: Iterable[Finding] = ()) -> str:
    """The heat map of pairs and the ranking of nodes."""
    accused = {node for named in verdict.named for node in named.nodes}
    rows = ranking(state)
    top = max((rate for _, rate, _ in rows), default=1.0) or 1.0
    accusation = ", ".join(_named_words(named) for named in verdict.named) or "no node, path or rail is slow"
    return _render(
        title=f"Search for the slow node: {len(state.nodes)} nodes"
        + (f" of {clean(instance, 40)}" if instance else ""),
        verdict=accusation,
        heat=heat(state, verdict),
        ranks=[
            {
                "name": node,
                "rate": f"{rate:.1f}",
                "runs": runs,
                "width": round(300 * rate / top),
                "named": node in accused,
            }
            for node, rate, runs in rows[:MOST_RANKED]
        ],
        left_out=max(0, len(rows) - MOST_RANKED),
        line=round(300 * verdict.line / top),
        normal=f"{verdict.normal:.1f}",
        slow_below=f"{verdict.line:.1f}",
        findings=[_finding(finding) for finding in findings],
    )


def curve(sizes: Sequence[Size]) -> dict[str, Any] | None:
    """Points of the lines in pixels, and the marks of both axes; None with nothing to draw."""
    if not sizes:
        return None
    wide, high = PLOT
    top = max(value or 0.0 for size in sizes for value in (size.busbw, size.expected, size.ceiling))
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
        "busbw": line([size.busbw for size in sizes]),
        "expected": line([size.expected for size in sizes]),
        "warn": line([size.warn for size in sizes]),
        "fail": line([size.fail for size in sizes]),
        "ceiling": line([size.ceiling for size in sizes]),
        "points": [
            {
                "x": x(place),
                "y": y(size.busbw),
                "name": size_name(size.size),
                "rate": f"{size.busbw:.1f}",
                "bad": size.outcome in (BELOW, FAR_BELOW, TOO_MUCH),
            }
            for place, size in enumerate(sizes)
        ],
        "every": max(1, (len(sizes) + 11) // 12),
        "marks": [{"y": y(step * i), "text": f"{step * i:g}"} for i in range(int(top / step) + 1)],
    }


def _round_step(step: float) -> float:
    """1, 2 or 5 times a power of ten, not below the step."""
    power = 10.0 ** len(str(int(step))) / 10 if step >= 1 else 0.1
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= step)


def heat(state: State, verdict: accused.Verdict) -> dict[str, Any]:
    """Cells of the pair matrix: for each pair the median of its runs, as a share of normal."""
    seen: dict[frozenset[str], list[float]] = {}
    for result in pairs_of(state):
        seen.setdefault(frozenset(result.run.nodes), []).append(result.value)
    accused = [node for named in verdict.named for node in named.nodes]
    partners = [node for pair in seen for node in sorted(pair) if pair & set(accused)]
    slowest = [node for node, _, _ in ranking(state)]
    shown = list(dict.fromkeys([*accused, *partners, *slowest]))[:MOST_CELLS]
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
        "nodes": [{"name": node, "named": node in accused} for node in nodes],
        "cells": cells,
        "size": 18 if len(nodes) <= 32 else 11,
        "left_out": len(state.nodes) - len(nodes),
        "scale": [{"colour": _colour(share / 100), "text": f"{share} %"} for share in (50, 60, 70, 80, 90, 100)],
    }


def _colour(share: float) -> str:
    """From dark red (half of normal and less) through yellow to green (normal)."""
    place = min(1.0, max(0.0, (share - 0.5) / 0.5))
    return f"hsl({round(120 * place)}, 70%, {round(38 + 12 * place)}%)"


def _named_words(named: Named) -> str:
    who = " and ".join(named.blocks) if named.blocks else nodeset.fold(named.nodes)
    rail = f" GPU {named.rail}" if named.rail is not None else ""
    return f"{named.kind} {who}{rail}: {named.how}, {100 * named.share:.0f} % of normal"


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "priority": finding.rule.priority,
        "id": finding.rule.id,
        "title": finding.rule.title,
        "subject": finding.subject,
        "detail": clean(finding.detail),
        "reference": finding.rule.reference,
        "evidence": [f"{clean(item.source)}: {clean(item.text)}" for item in finding.evidence[:20]],
        "muted": clean(finding.muted),
    }


def _render(**values: Any) -> str:
    from jinja2 import Environment

    with open(os.path.join(os.path.dirname(__file__), "page.html"), encoding="utf-8") as file:
        template = file.read()
    # everything is escaped: host names and lines of logs are foreign
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(template).render(**values)
