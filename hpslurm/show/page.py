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
from hpslurm.show.plan import Plan
from hpslurm.show.render import fold, not_checked, summary
from hpslurm.show.screen import COMMANDS, Screen, said

MOST_EVIDENCE = 20  # lines of one finding
MOST_SQUARES = 5000  # nodes in the picture; the table has them all
COLUMNS = 50  # squares in a row of the picture
SQUARE = 14  # pixels, with the gap

GRAVEST = {"P0": "p0", "P1": "p1", "P2": "p2"}
# Filters the table by words, and by nodes that have a finding; report.html#ip-10-1-0-3 begins with those words. Sorts
# it by the column whose head is clicked. Puts a button that copies beside each command: where the page is no secure
# context (plain http), or the browser says no, by way of the selection. The page is complete without.
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
function sort(head) {
  const at = head.cellIndex, down = head.ariaSort === 'ascending' ? -1 : 1;
  const order = new Intl.Collator('en', {numeric: true});
  const key = row => row.cells[at].dataset.key || row.cells[at].textContent;
  const sorted = rows.map(row => [key(row), row]).sort((a, b) => down * order.compare(a[0], b[0]));
  for (const other of head.parentNode.cells) other.ariaSort = 'none';
  head.ariaSort = down > 0 ? 'ascending' : 'descending';
  document.querySelector('#nodes tbody').append(...sorted.map(pair => pair[1]));
}
async function copy(button, text) {
  let done = true;
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    getSelection().selectAllChildren(button.previousSibling);
    done = document.execCommand('copy');
  }
  button.textContent = done ? 'copied' : 'selected: press Ctrl+C';
  setTimeout(() => button.textContent = 'copy', 1500);
}
for (const command of document.querySelectorAll('pre.command')) {
  const button = document.createElement('button');
  button.type = 'button';
  button.textContent = 'copy';
  button.addEventListener('click', () => copy(button, command.textContent));
  command.after(button);
}
for (const head of document.querySelectorAll('#nodes th')) {
  head.tabIndex = 0;
  head.addEventListener('click', () => sort(head));
  head.addEventListener('keydown', event => { if (event.key === 'Enter') sort(head); });
}
if (words) {
  words.addEventListener('input', filter); only.addEventListener('change', filter);
  words.value = decodeURIComponent(location.hash.slice(1)); filter();
}
"""
# Columns of the table; one that is empty for all nodes is left out.
COLUMNS_OF = (
    ("Node", "name"),
    ("Role", "role"),
    ("Group", "group"),
    ("Instance", "instance"),
    ("Slurm", "slurm"),
    ("HyperPod", "hyperpod"),
    ("Jobs", "jobs"),
    ("Record", "record"),
    ("Findings", "findings"),
)
WORST_FIRST = ("p0", "p1", "p2", "unknown", "ok")


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
    answer: Screen,
    whole: Sequence[str] = (),
    passed: int | None = None,
) -> str:
    """The whole page. ``answer`` is the first screen, with its plans; ``heads`` stand below its verdict.

    ``whole`` are lines that are shown as they are; ``now`` is in seconds since the epoch; ``passed`` is how many checks
    passed, where that is not what ``results`` count.
    """
    import jinja2

    loader = jinja2.FileSystemLoader(os.path.dirname(os.path.abspath(__file__)))
    engine = jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    folded = fold(finding for result in results for finding in result.findings)
    missing = not_checked(results)
    passed = sum(result.outcome == PASS for result in results) if passed is None else passed
    counts = {level: sum(entry.rule.priority == level and not entry.muted for entry in folded) for level in PRIORITIES}
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
        tag=answer.tag,
        verdict=clean(answer.head),
        fields=[_field(name, text) for name, text in answer.fields if text and name != "Seen"],
        plans=[("What to do, by node", [_plan(one) for one in answer.plans])] * bool(answer.plans)
        + [(answer.also_head.rstrip(":"), [_plan(one) for one in answer.also])] * bool(answer.also),
        whole=whole,
        findings=[_finding(one) for one in folded],
        not_checked=[(one.what, clean(one.why)) for one in missing],
        skipped=[(one.probe, clean(one.note)) for one in results if one.outcome == SKIP],
        rows=rows,
        columns=[pair for pair in COLUMNS_OF if any(getattr(row, pair[1]) for row in rows)],
        worst=WORST_FIRST.index,
        picture=picture(rows),
        square=SQUARE,
        width=COLUMNS * SQUARE,
    )


def _field(name: str, text: str) -> tuple[str, str, bool]:
    """A command stays as it is: it is copied."""
    return (name, text, True) if name in COMMANDS else (name, clean(text), False)


def _plan(plan: Plan) -> dict[str, Any]:
    return {
        "nodes": nodeset.fold(plan.nodes) if plan.nodes else "the cluster",
        "count": len(plan.nodes),
        "grade": GRAVEST[plan.priority],
        "priority": plan.priority,
        "do": plan.do,
        "waits": clean(plan.waits),
        "troubles": [(GRAVEST[each.rule.priority], said(each), each.rule.id) for each in plan.troubles],
        "steps": [(step.harm, clean(step.why), step.command) for step in plan.steps],
    }


def _finding(folded: Any) -> dict[str, Any]:
    nodes = nodeset.fold(folded.subjects) if folded.subjects else ""
    return {
        "id": folded.rule.id,
        "title": folded.rule.title,
        "priority": folded.rule.priority,
        "tag": "MUTE" if folded.muted else "INFO" if folded.rule.priority == P2 else "FAIL",
        "grade": "muted" if folded.muted else GRAVEST[folded.rule.priority],
        "nodes": nodes,
        "details": [(nodeset.fold(filter(None, who)), clean(text)) for text, who in folded.details.items()],
        "evidence": [
            (subject if len(folded.subjects) > 1 else "", clean(seen.source), clean(seen.text))
            for subject, seen in folded.evidence[:MOST_EVIDENCE]
        ],
        "more": max(0, len(folded.evidence) - MOST_EVIDENCE),
        "reference": folded.rule.reference,
        "muted": clean(folded.muted),
    }


def picture(rows: Sequence[Row]) -> list[tuple[int, int, str, str]]:
    """Squares of the cluster: x, y, grade, and what a pointer on it shows."""
    return [
        (
            number % COLUMNS * SQUARE,
            number // COLUMNS * SQUARE,
            row.grade,
            " ".join((row.name, *(rule_id for rule_id, _ in row.findings))),
        )
        for number, row in enumerate(rows[:MOST_SQUARES])
    ]
