"""A verdict on bandwidth as people see it in the terminal, and as JSON lines."""

from __future__ import annotations

from collections.abc import Sequence

import click

from hpslurm.core import nodeset, records
from hpslurm.core.finding import P0, Finding
from hpslurm.core.text import clean
from hpslurm.nccl_tests import accused
from hpslurm.nccl_tests.runs import PAIR, PATH, RETEST, Result, State
from hpslurm.nccl_tests.verdict import BELOW, FAR_BELOW, GOOD, TOO_MUCH, Size, Verdict
from hpslurm.nccl_tests.words import size_name
from hpslurm.scan import nccl_rails
from hpslurm.scan.nccl_tests import Output
from hpslurm.show import plan, render, screen

BAR, SHORTEST_BAR = 30, 8  # characters for the fastest size; where fewer have room there is no bar
MOST_RANKS = 16  # rows of the table of NICs
COLOURS = {GOOD: "green", BELOW: "yellow", FAR_BELOW: "red", TOO_MUCH: "yellow"}


def lines(verdict: Verdict, output: Output) -> list[str]:
    """All that a person sees of one run."""
    above = [*render.fitted(heading(verdict, output)), *table_lines(verdict.sizes), *nic_lines(output.log.rails)]
    findings = [line for folded in render.fold(verdict.findings) for line in render.finding_lines(folded)]
    return [*above, *findings, *render.fitted(last_line(verdict))]


TAGS = {"good": "PASS", "low": "WARN", "nothing to compare with": "INFO"}
MOST_SIZES = 16  # rows of the table on the first screen


def first_screen(verdict: Verdict, output: Output) -> list[str]:
    """Is the bandwidth as it should be, which sizes are not, what to type first."""
    made = plan.plans(verdict.findings)
    slow = [size for size in verdict.sizes if size.outcome in (BELOW, FAR_BELOW, TOO_MUCH)]
    rows = verdict.sizes if len(verdict.sizes) <= MOST_SIZES else slow[:MOST_SIZES] or verdict.sizes[-1:]
    return screen.lines(
        screen.Screen(
            TAGS.get(verdict.words, "FAIL"),
            f"Verdict: {verdict.words.upper()}; {_compared(verdict)}",
            (
                ("Worst", screen.said(made[0].troubles[0]) if made else ""),
                ("Next", screen.next_command(made)),
            ),
            tuple(made),
            between=("", heading(verdict, output), *table_lines(rows)),
            more=("the same with -v", *(f"hpslurm explain {one.rules[0]}" for one in made[:1])),
        )
    )


def _compared(verdict: Verdict) -> str:
    compared = sum(size.expected is not None for size in verdict.sizes)
    return f"{compared} of {len(verdict.sizes)} sizes compared with a floor"


def json_lines(verdict: Verdict, output: Output) -> list[str]:
    """The same as JSON lines: one ``bandwidth`` line, then findings, then ``end``."""
    table = output.tables[-1] if output.tables else None
    rails = output.log.rails
    about = {
        "schema": records.SCHEMA,
        "type": "bandwidth",
        "source": clean(output.source),
        "collective": clean(table.collective, 40) if table else "",
        "instance": verdict.instance,
        "nodes": verdict.nodes,
        "ranks": verdict.ranks,
        "nccl": (table.nccl if table else "") or output.log.version,
        "verdict": verdict.words,
        "sizes": [_size_line(size) for size in verdict.sizes],
        "nics": [
            {"host": clean(host, 80), "rank": number, "gpu": rank.gpu, "count": nccl_rails.count(rails, host, rank)}
            for (host, number), rank in sorted(rails.ranks.items())
        ],
    }
    return [records.encode(about), *finding_lines(verdict.findings)]


def _size_line(size: Size) -> dict[str, object]:
    return {
        "size": size.size,
        "busbw": size.busbw,
        "outcome": size.outcome,
        "expected": size.expected,
        "warn_below": size.warn,
        "fail_below": size.fail,
        "ceiling": size.ceiling,
        "source": size.source,
    }


def finding_lines(findings: Sequence[Finding]) -> list[str]:
    """Findings as JSON lines, and the line that ends them."""
    lines = [records.encode(records.finding_line(finding)) for finding in findings]
    return [*lines, records.encode({"schema": records.SCHEMA, "type": "end", "findings": len(findings)})]


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
    top = max([size.busbw for size in sizes] + [size.fail or 0.0 for size in sizes]) or 1.0
    compared = any(size.expected for size in sizes)
    head = (
        f"{'size':>10} {'GB/s':>8}" + (f" {'expected':>9} {'floor':>8} {'share':>6}" if compared else "") + "  verdict"
    )
    lines = [head]
    for size in sizes:
        text = f"{size_name(size.size):>10} {size.busbw:8.1f}"
        if compared:
            share = f"{100 * size.ratio:5.0f}%" if size.ratio is not None else ""
            text += f" {number(size.expected):>9} {number(size.fail):>8} {share:>6}"
        drawn = bar(size.busbw, size.fail, top, render.terminal_width() - len(text) - 16)
        word = click.style(f"{size.outcome:<14}" if drawn else size.outcome, fg=COLOURS.get(size.outcome))
        lines.append(f"{text}  {word}{drawn}")
    sources = dict.fromkeys(size.source for size in sizes if size.source)
    lines += [line for source in sources for line in render.fitted(f"expected from: {source}")]
    return lines


def bar(busbw: float, floor: float | None, top: float, room: int) -> str:
    """The bandwidth as a bar, in at most ``room`` characters; ``|`` is the floor, where there is one."""
    length = min(BAR, room - 1)
    if length < SHORTEST_BAR:
        return ""
    full = round(length * busbw / top)
    cells = ["█" if cell < full else " " for cell in range(length + 1)]
    if floor is not None:
        cells[min(length, round(length * floor / top))] = "|"
    return "".join(cells).rstrip()


def nic_lines(rails: nccl_rails.Rails) -> list[str]:
    """NICs by rank, where they are uneven: the ranks of nodes that have fewer, and one other node to compare with."""
    bad = {rank.host for rank in nccl_rails.uneven(rails)}
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


def number(value: float | None) -> str:
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
    why = _compared(verdict)
    above = " (see above)" if verdict.counted else ""
    long = len(f"Verdict: {verdict.words}; {why}{above}") > render.terminal_width()
    return f"Verdict: {word};{chr(10) + ' ' * 8 if long else ''} {why}{above}"


# the search


def search_lines(state: State, verdict: accused.Verdict, findings: Sequence[Finding]) -> list[str]:
    """The verdict of a search as lines."""
    above = [line for folded in render.fold(findings) for line in render.finding_lines(folded)]
    return [*above, *ranking_lines(state, verdict), _who_is_named(state, verdict, findings)]


def first_screen_of_search(state: State, verdict: accused.Verdict, findings: Sequence[Finding]) -> list[str]:
    """Which node is slow, what to type first, and the slowest nodes."""
    made = plan.plans(findings)
    named = sorted({node for one in verdict.named for node in one.nodes})
    return screen.lines(
        screen.Screen(
            "FAIL" if screen.grave(made) else "PASS" if verdict.tested == len(state.nodes) else "WARN",
            _who_is_named(state, verdict, findings),
            (
                ("Worst", screen.said(made[0].troubles[0]) if made else ""),
                ("Keep out", screen.keep_out(named)),
                ("Next", screen.next_command(made)),
            ),
            tuple(made),
            between=("", *ranking_lines(state, verdict)),
            more=("the same with -v", *(f"hpslurm explain {one.rules[0]}" for one in made[:1])),
        )
    )


def _who_is_named(state: State, verdict: accused.Verdict, findings: Sequence[Finding]) -> str:
    nodes = len(state.nodes)
    accused = sorted({node for named in verdict.named for node in named.nodes})
    if accused:
        return f"Named: {nodeset.fold(accused)}"
    if verdict.tested == nodes and not any(finding.rule.priority == P0 for finding in findings):
        return f"No slow node: all {nodes} were fast with a partner ({verdict.normal:.1f} GB/s is normal)"
    never = nodes - verdict.tested
    return f"No node named; {f'{never} of {nodes} were never fast, ' if never else ''}see above"


def ranking(state: State) -> list[tuple[str, float, int]]:
    """Nodes by their best rate with a partner, slowest first: name, GB/s, runs."""
    rates: dict[str, list[float]] = {node: [] for node in state.nodes}
    for result in pairs_of(state):
        for node in result.run.nodes:
            rates[node].append(result.value)
    return sorted(((node, max(own), len(own)) for node, own in rates.items() if own), key=lambda row: row[1])


def pairs_of(state: State) -> list[Result]:
    return [result for results in state.rounds for result in results if result.run.kind in (PAIR, RETEST, PATH)]


def ranking_lines(state: State, verdict: accused.Verdict, most: int = 10) -> list[str]:
    """The slowest nodes by their best run, with a bar; the mark is the line below which a run is slow."""
    rows = ranking(state)
    if not rows or not verdict.normal:
        return []
    top = max(rate for _, rate, _ in rows) or 1.0
    width = max(len(node) for node, _, _ in rows[:most])
    lines = [f"slowest nodes by their best run (normal {verdict.normal:.1f} GB/s, slow below {verdict.line:.1f}):"]
    for node, rate, times in rows[:most]:
        text = f"  {clean(node):<{width}} {rate:8.1f}  {times:2} run{'s' if times > 1 else ' '}  "
        lines.append((text + bar(rate, verdict.line, top, render.terminal_width() - len(text))).rstrip())
    return lines
