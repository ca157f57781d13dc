"""A report as one page that needs nothing else: to mail, to attach to a support case.

Everything on it came from logs, reasons and other people, so the template escapes every
value, and the page forbids itself to load or run anything but its own few lines of script.
"""

from __future__ import annotations

import base64
import hashlib
import os
import time
from collections.abc import Sequence
from typing import Any

from hpslurm import __version__
from hpslurm.core import nodeset
from hpslurm.core.finding import P2, PRIORITIES
from hpslurm.core.probe import PASS, SKIP, Result
from hpslurm.core.text import clean
from hpslurm.core.values import dataclass
from hpslurm.show.render import filled, fold, in_order_of_harm, not_checked, summary

MOST_EVIDENCE = 20  # lines of one finding
MOST_SQUARES = 5000  # nodes in the picture; the table has them all
COLUMNS = 50  # squares in a row of the picture
SQUARE = 14  # pixels, with the gap

GRAVEST = {"P0": "p0", "P1": "p1", "P2": "p2"}
# Filters the table by words, and by nodes that have a finding; report.html#ip-10-1-0-3 begins with those words.
# The page is complete without it.
SCRIPT = """
const words = document.getElementById('words'), only = document.getElementById('only');
const rows = [...document.querySelectorAll('#nodes tbody tr')], shown = document.getElementById('shown');
function filter() {
  const wanted = words.value.toLowerCase().split(/\\s+/).filter(Boolean);
  let count = 0;
  for (const row of rows) {
    const text = row.textContent.toLowerCase();
    row.hidden = !(wanted.every(word => text.includes(word)) && (!only.checked || row.dataset.found === 'yes'));
    count += !row.hidden;
  }
  shown.textContent = count + ' of ' + rows.length + ' nodes';
}
if (words) {
  words.addEventListener('input', filter); only.addEventListener('change', filter);
  words.value = decodeURIComponent(location.hash.slice(1)); filter();
}
"""


@dataclass(frozen=True)
class Row:
    """One node of the table, all of it text."""

    name: str
    role: str
    group: str
    instance: str
    slurm: str
    reason: str
    hyperpod: str
    jobs: str
    record: str
    findings: tuple[tuple[str, str], ...]  # id and class
    grade: str  # p0, p1, p2, ok or unknown


def page(
    results: Sequence[Result],
    rows: Sequence[Row],
    heads: Sequence[str],
    now: float,
    cluster: str = "",
    *,
    title: str = "hpslurm diagnose",
) -> str:
    """The whole page. ``heads`` stand above the findings, as in the text; ``now`` is in seconds since the epoch."""
    import jinja2

    loader = jinja2.FileSystemLoader(os.path.dirname(os.path.abspath(__file__)))
    engine = jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    folded = fold(finding for result in results for finding in result.findings)
    missing = not_checked(results)
    passed = sum(one.outcome == PASS for one in results)
    counts = {level: sum(one.rule.priority == level and not one.muted for one in folded) for level in PRIORITIES}
    digest = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
    return engine.get_template("page.html.jinja").render(
        title=title,
        script=SCRIPT,
        script_hash=f"sha256-{digest}",
        version=__version__,
        made=time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(now)),
        cluster=cluster,
        heads=[clean(line) for line in heads],
        summary=summary(folded, len(missing), passed),
        counts=counts,
        passed=passed,
        findings=[_finding(one) for one in folded],
        not_checked=[(one.what, clean(one.why)) for one in missing],
        skipped=[(one.probe, clean(one.note)) for one in results if one.outcome == SKIP],
        rows=rows,
        picture=picture(rows),
        square=SQUARE,
        width=COLUMNS * SQUARE,
    )


def _finding(one: Any) -> dict[str, Any]:
    nodes = nodeset.fold(one.subjects) if one.subjects else ""
    return {
        "id": one.rule.id,
        "title": one.rule.title,
        "priority": one.rule.priority,
        "tag": "MUTE" if one.muted else "INFO" if one.rule.priority == P2 else "FAIL",
        "grade": "muted" if one.muted else GRAVEST[one.rule.priority],
        "nodes": nodes,
        "details": [(nodeset.fold(filter(None, who)), clean(text)) for text, who in one.details.items()],
        "evidence": [
            (subject if len(one.subjects) > 1 else "", clean(seen.source), clean(seen.text))
            for subject, seen in one.evidence[:MOST_EVIDENCE]
        ],
        "more": max(0, len(one.evidence) - MOST_EVIDENCE),
        "reference": one.rule.reference,
        "muted": clean(one.muted),
        "steps": []
        if one.muted
        else [(item.harm, item.why, filled(item.command, nodes)) for item in in_order_of_harm(one.suggestions)],
    }


def picture(rows: Sequence[Row]) -> list[tuple[int, int, str, str]]:
    """Squares of the cluster: x, y, grade, and what a pointer on it shows."""
    return [
        (
            number % COLUMNS * SQUARE,
            number // COLUMNS * SQUARE,
            row.grade,
            " ".join((row.name, *(one for one, _ in row.findings))),
        )
        for number, row in enumerate(rows[:MOST_SQUARES])
    ]
