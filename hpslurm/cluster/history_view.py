"""``hpslurm history`` as people see it: the worst first, and one node's story in order of time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

from hpslurm.cluster import keeps_failing
from hpslurm.cluster.history import History, Trace, hardware, stamp
from hpslurm.cluster.history_jobs import NAMED, Failure
from hpslurm.cluster.history_machines import name_of
from hpslurm.cluster.history_stats import FEW, LEAST_JOBS, SUSPECT, USUAL, WATCH, Verdict
from hpslurm.core import nodeset
from hpslurm.core.probe import Result
from hpslurm.core.text import clean
from hpslurm.show import page as pages
from hpslurm.show import render
from hpslurm.show.page import Row
from hpslurm.show.plan import plans
from hpslurm.show.screen import Screen

MOST_ROWS = 20  # nodes of the first screen
MOST_TIMES = 400  # lines of one node's story
TAGS = {SUSPECT: "FAIL", WATCH: "WARN", FEW: "INFO", USUAL: "PASS"}


def text(history: History, verbose: bool) -> list[str]:
    """The whole answer: what was looked at, the table, the plan of the worst, what was not seen."""
    told = history.worth_telling if not verbose else [one for one in history.book.verdicts if one.failures]
    first, *others = _heads(history)
    lines = render.fitted(first)
    lines += [line for head in others for line in render.labelled("FAIL" if history.suspects else "INFO", head)]
    rows = told if verbose else told[:MOST_ROWS]
    if rows:
        lines += ["", *table(rows, history)]
        if len(rows) < len(told):
            lines.append(f"… and {len(told) - len(rows)} more: -v has them")
    lines += _plan(history)
    if verbose:
        lines += _incidents(history)
    lines += [
        line
        for result in history.missing
        for line in render.labelled("WARN", f"{result.probe} not checked: {clean(result.note)}")
    ]
    return [*lines, *render.fitted(_last(history))]


def _heads(history: History) -> Iterator[str]:
    book, asked = history.book, history.asked
    days = (asked.now - asked.since) / 86400
    yield (
        f"{book.jobs:,} jobs on {len(book.verdicts):,} nodes in {days:g} days since {stamp(asked.since)} "
        f"(from {', '.join(history.sources)}): {book.failed:,} failed, {len(book.failures):,} of these can be a node's"
    )
    suspects = history.suspects
    if suspects:
        names = nodeset.fold(name_of(one.node) for one in suspects)
        yield f"Suspects: {names} fail far more than their share. Keep jobs off: {exclude(history)}"
    elif book.jobs < LEAST_JOBS:
        yield f"Too few jobs to accuse a node: {book.jobs}, and it takes some {LEAST_JOBS} to know what is usual here."
    else:
        yield "No node fails so much more than its share that it must be looked at."


def exclude(history: History) -> str:
    """For sbatch; empty where nobody is a suspect."""
    names = [name_of(one.node) for one in history.suspects]
    return f"--exclude={nodeset.fold(names)}" if names else ""


def table(verdicts: Sequence[Verdict], history: History) -> list[str]:
    """A row for each node, and under it what speaks against it. A narrow screen loses columns at the right."""
    width = render.terminal_width()
    node = min(max(4, *(len(one.node) for one in verdicts)), width // 2)
    columns = list(COLUMNS)
    while node + sum(size + 2 for _, size, _ in columns) > width:
        columns.pop()
    lines = [f"{'NODE':{node}}" + "".join(f"  {name:>{size}}" for name, size, _ in columns)]
    for verdict in verdicts:
        cells = "".join(f"  {show(verdict):>{size}}" for _, size, show in columns)
        lines.append(f"{clean(verdict.node, node):{node}}{cells}")
        lines += render.wrapped("  ", _why(verdict, history), width)
    return lines


COLUMNS: tuple[tuple[str, int, Callable[[Verdict], str]], ...] = (
    ("VERDICT", 9, lambda one: one.word),
    ("FAILED", 6, lambda one: str(one.failures)),
    ("EXPECTED", 8, lambda one: f"{one.expected:.1f}"),
    ("TIMES", 5, lambda one: f"{one.ratio:.1f}"),
    ("LAST", 11, lambda one: stamp(one.last)[5:]),
    ("JOBS", 6, lambda one: str(one.jobs)),
    ("HOURS", 6, lambda one: f"{one.hours:.0f}"),
    ("CHANCE", 7, lambda one: "<0.01 %" if one.chance < 0.0001 else f"{100 * one.chance:.2g} %"),
)


def _why(verdict: Verdict, history: History) -> str:
    """The evidence in a line: causes, what records and Slurm saw, one GPU, and what speaks for mildness."""
    causes = ", ".join(f"{count} × {clean(why, 40)}" for why, count in hardware(verdict, history).most_common(4))
    parts = [f"{verdict.named} name it" if verdict.named else "none names it", causes]
    seen: dict[str, int] = {}
    for trace in history.traces.get(verdict.node, ()):
        what = trace.text.partition(":")[0].partition(" until")[0] if trace.source != "HyperPod" else "HyperPod events"
        seen[what] = seen.get(what, 0) + 1
    parts += [f"{count} × {clean(what, 40)}" for what, count in sorted(seen.items(), key=lambda pair: -pair[1])[:4]]
    if gpu := history.gpu(verdict.node):
        parts.append(f"always {gpu}")
    if verdict.alike:
        parts.append(f"cannot be told from {nodeset.fold(map(name_of, verdict.alike))}: always in the same jobs")
    if verdict.quiet:
        parts.append("quiet since: at its rate it would have failed again")
    if verdict.word == FEW:
        parts.append("too little work to say more")
    if not history.is_there(verdict.node):
        replaced = history.machines.present(name_of(verdict.node)) != verdict.node
        parts.append("this machine was replaced" if replaced else "Slurm has no such node now")
    return "; ".join(filter(None, parts))


def _plan(history: History) -> list[str]:
    suspects = history.suspects
    if not suspects:
        return []
    node = name_of(suspects[0].node)
    lines = ["", f"What to do about {node}, in order of harm:"]
    for item in keeps_failing.plan(history.gpu(suspects[0].node)):
        lines += render.wrapped(
            render.INDENT, f"Suggested command (run this yourself): {item.why}", render.terminal_width()
        )
        lines.append(f"{render.INDENT}  {render.filled(item.command, node)}")
    return [
        *lines,
        *render.pointer(keeps_failing.KEEPS_FAILING.reference, keeps_failing.KEEPS_FAILING.id, render.terminal_width()),
    ]


def _incidents(history: History) -> list[str]:
    lines = []
    for incident in history.book.incidents:
        where = f" of {', '.join(map(clean, incident.partitions))}" if incident.partitions else ""
        size = f"{len(incident.jobs)} jobs on {len(incident.nodes)} nodes{where}"
        told = f"{stamp(incident.start)}  {size} failed together: no node's"
        lines += render.labelled("INFO", told)
    return ["", *lines] if lines else []


def _last(history: History) -> str:
    verdicts = history.book.verdicts
    counted = {word: sum(verdict.word == word for verdict in verdicts) for word in TAGS}
    parts = [f"suspects: {len(history.suspects)}", f"watched: {counted[WATCH]}", f"few data: {counted[FEW]}"]
    parts += [f"as others: {counted[USUAL]}", f"incidents of many nodes: {len(history.book.incidents)}"]
    return " · ".join([*parts, f"not checked: {len(history.missing)}"])


# one node


def story(history: History, node: str) -> list[Trace]:
    """Everything of one name in order of time: its failures, what was seen of it, and when the machine changed."""
    verdicts = [one for one in history.book.verdicts if name_of(one.node) == node]
    mine = {one.node for one in verdicts} | {machine for machine in history.traces if name_of(machine) == node}
    counted = {job for one in verdicts for job in one.counted}
    told = [
        Trace(failure.time, node, f"job {failure.job}", _failed(failure, failure.job in counted))
        for failure in history.book.failures
        if mine.intersection(failure.nodes)
    ]
    told += [trace for machine in mine for trace in history.traces.get(machine, ())]
    told += [
        Trace(
            incident.start,
            node,
            "incident",
            f"{len(incident.jobs)} jobs on {len(incident.nodes)} nodes failed together",
        )
        for incident in history.book.incidents
        if mine.intersection(incident.nodes)
    ]
    told += [
        Trace(stay.since, node, "records", f"another machine: {stay.instance}")
        for stay in history.machines.replaced(node)
    ]
    return sorted(told, key=lambda one: one.time)


def _failed(failure: Failure, counted: bool) -> str:
    whom = "names this node" if failure.kind == NAMED else f"one of {failure.size} nodes"
    told = f"failed: {clean(failure.why, 60)}, {whom if failure.kind == NAMED or failure.size > 1 else 'alone here'}"
    return told if counted else f"{told} (not counted: another node explains it)"


def story_text(history: History, node: str) -> list[str]:
    """The verdict, then the time line."""
    verdicts = [one for one in history.book.verdicts if name_of(one.node) == node]
    lines = render.fitted(next(_heads(history)))
    for verdict in verdicts:
        line = keeps_failing.line_of(verdict, history)
        lines += render.labelled(
            TAGS[verdict.word], f"{verdict.node}: {verdict.word}; {keeps_failing.words(line)}; {_why(verdict, history)}"
        )
    if not verdicts:
        lines += render.labelled("INFO", f"{node}: no job ended there in this time")
    traces = story(history, node)
    shown = traces[-MOST_TIMES:]
    if len(shown) < len(traces):
        lines.append(f"… {len(traces) - len(shown)} earlier ones left out (--json has them)")
    for trace in shown:
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(trace.time)) if trace.time else "earlier"
        lines += render.wrapped("  ", f"{when}  {trace.source}: {trace.text}", render.terminal_width())
    lines += [
        line
        for result in history.missing
        for line in render.labelled("WARN", f"{result.probe} not checked: {clean(result.note)}")
    ]
    return lines


# one page


def page(history: History, results: Sequence[Result]) -> str:
    """The same for a browser: suspects as findings with their plans, every machine that failed as a row."""
    rows = [
        Row(
            verdict.node, "", "", history.machines.instance(verdict.node), verdict.word, _why(verdict, history), "",
            f"{verdict.failures} of {verdict.jobs} failed, {verdict.expected:.1f} expected",
            f"last {stamp(verdict.last)}",
            ((keeps_failing.KEEPS_FAILING.id, "p1"),) if verdict.word == SUSPECT else (),
            {SUSPECT: "p1", WATCH: "p2"}.get(verdict.word, "ok"),
        )
        for verdict in history.book.verdicts
    ]  # fmt: skip
    first, *others = _heads(history)
    findings = [finding for result in results for finding in result.findings]
    answer = Screen("FAIL" if findings else "INFO", " ".join(others), plans=tuple(plans(findings)))
    return pages.page(results, rows, [first], history.asked.now, title="hpslurm history", answer=answer)
