"""Each size of a run for itself: compared with the site's own median, else with what others measured."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Sequence

from hpslurm.core.finding import LOOK, Evidence, Finding, Rule, Suggestion
from hpslurm.core.policy import Policy
from hpslurm.nccl_tests.expected import ceiling, expected, least, limits_of
from hpslurm.nccl_tests.ranks import collective_of
from hpslurm.nccl_tests.rules import ABOVE, FAILED, LOW, NO_FLOOR
from hpslurm.nccl_tests.verdict import BELOW, FAR_BELOW, GOOD, NOT_COMPARED, TOO_MUCH, Facts, Size
from hpslurm.nccl_tests.words import count, size_name
from hpslurm.scan.nccl_rows import COLLAPSE, FALLEN, SATURATED, SIDE_BY_SIDE
from hpslurm.scan.nccl_tests import Table

# One p5 pair forced to TCP peaks at 2.2 GB/s where EFA gives 480; no EFA fault is known that costs 50 times.
TCP_RATIO = 1 / 50
ABOVE_SLACK = 1.02  # the table prints rounded figures


def sizes_of(
    facts: Facts, table: Table, policy: Policy, nodes: int | None, ranks: int | None, *, compare: bool
) -> Iterator[Size]:
    """The verdict on each row. Without ``compare`` the numbers are those of another run than the one meant."""
    gpus = ranks // nodes if compare and nodes and ranks and not ranks % nodes else None
    before = (0, 0.0)
    for row in table.rows:
        rates = [half.busbw for half in row.halves if math.isfinite(half.busbw) and half.busbw >= 0]
        if not rates or ranks == 1:
            continue
        size = Size(row.size, min(rates), NOT_COMPARED)
        if nodes is not None and gpus is not None:
            size = _compared(facts, table, policy, nodes, gpus, row.size, rates)
        if size.outcome == NOT_COMPARED and row.size > before[0] >= COLLAPSE and max(rates) < FALLEN * before[1]:
            smaller = f"{size_name(before[0])} of the same run"
            size = Size(row.size, min(rates), BELOW, before[1], FALLEN * before[1], 0.0, size.ceiling, smaller)
        best = facts.best.get((table.test, len(table.devices), row.size), 0.0)
        if size.outcome == NOT_COMPARED and max(rates) < SIDE_BY_SIDE * best:
            other = "another table of this file"
            size = Size(row.size, min(rates), BELOW, best, SIDE_BY_SIDE * best, 0.0, size.ceiling, other)
        yield size
        before = (row.size, max(rates))


def best_of(tables: Sequence[Table]) -> dict[tuple[str, int, int], float]:
    """The best busbw of each large size, by test and number of devices, where several tables measured the same."""
    if len(tables) < 2:
        return {}
    best: dict[tuple[str, int, int], float] = {}
    for table in tables:
        for row in table.rows if not table.cpu_time and table.devices else ():
            rates = [half.busbw for half in row.halves if math.isfinite(half.busbw)]
            if row.size >= SATURATED and rates:
                key = (table.test, len(table.devices), row.size)
                best[key] = max(best.get(key, 0.0), *rates)
    return best


def _compared(facts: Facts, table: Table, policy: Policy, nodes: int, gpus: int, size: int, rates: list[float]) -> Size:
    low = min(rates)
    roof = ceiling(facts.instance, nodes, gpus, collective_of(table))
    too_much = roof is not None and max(rates) > roof * ABOVE_SLACK
    own = facts.own.get(size)
    known = expected(facts.instance, nodes, gpus, collective_of(table), size)
    if own is not None:
        wanted, source = own.median, f"own median of {own.runs} runs, {own.low:.1f} to {own.high:.1f}"
        # a site whose own runs scatter by more than the rule allows would be warned of every run
        warn = min(policy.bandwidth_warn_below * own.median, own.median - 4 * own.spread)
    elif known is not None:
        wanted, source = known
        warn = policy.bandwidth_warn_below * wanted
    elif (floor := _least(facts, table, nodes, gpus, size)) and low < floor:
        return Size(size, low, BELOW, floor, floor, 0.0, roof, "the least of whole nodes with this GPU on any fabric")
    else:
        return Size(size, low, TOO_MUCH if too_much else NOT_COMPARED, ceiling=roof)
    fail = policy.bandwidth_fail_below * wanted
    warn = max(warn, fail)
    outcome = TOO_MUCH if too_much else FAR_BELOW if low < fail else BELOW if low < warn else GOOD
    return Size(size, low, outcome, wanted, warn, fail, roof, source)


def _least(facts: Facts, table: Table, nodes: int, gpus: int, size: int) -> float | None:
    if facts.instance or not table.devices or table.elided:
        return None
    return least(table.devices[-1].name, nodes, gpus, collective_of(table), size)


def findings(sizes: tuple[Size, ...], facts: Facts, nodes: int | None) -> Iterator[Finding]:
    """Sizes below what is wanted, and those above what can be."""
    for rule, outcome in ((FAILED, FAR_BELOW), (LOW, BELOW)):
        slow = [size for size in sizes if size.outcome == outcome]
        if slow:
            yield _below(rule, slow, sizes, facts, nodes)
    above = [size for size in sizes if size.outcome == TOO_MUCH]
    if above:
        yield ABOVE.found(
            f"{size_name(above[-1].size)} {above[-1].busbw:.1f} GB/s, but {count(nodes, 'node')} cannot exceed "
            f"{above[-1].ceiling:.1f}: a measuring error, such as another number of ranks or nodes",
        )


def _below(rule: Rule, slow: list[Size], sizes: tuple[Size, ...], facts: Facts, nodes: int | None) -> Finding:
    worst = min(slow, key=lambda size: size.ratio or 1.0)
    limit = worst.fail if rule is FAILED else worst.warn
    likely = signature(worst.ratio or 1.0, nodes or 1, facts.instance, sizes)
    share = round(100 * (worst.ratio or 0.0))
    suggest = [
        Suggestion(LOOK, "find the node, pair or rail that holds the others back", "hpslurm nccl-tests --find-slow")
    ]
    if nodes == 1:
        suggest = [Suggestion(LOOK, "look at the GPUs and links of this node", "srun -w {nodes} hpslurm-check")]
    return rule.found(
        f"{size_name(worst.size)} {worst.busbw:.1f} GB/s, expected at least {limit:.1f}: "
        f"{share} % of {worst.expected:.1f}" + (f". {likely}" if likely else ""),
        evidence=[
            Evidence(size_name(size.size), f"{size.busbw:.1f} GB/s of {size.expected:.1f} ({size.source})")
            for size in slow
        ],
        suggest=suggest,
    )


def signature(ratio: float, nodes: int, name: str, sizes: tuple[Size, ...] = ()) -> str:
    """What a share of the expected bandwidth usually means; empty where nothing is known."""
    about = limits_of(name) or {}
    if nodes > 1 and ratio <= TCP_RATIO:
        return "So little is what TCP gives"
    if nodes == 2 and 0.45 <= ratio <= 0.62:
        return "About a half on a pair is what half of the EFA devices give"
    if nodes == 1 and about.get("nvls") and 0.72 <= ratio <= 0.86:
        return "About three quarters on one node is what NVLS switched off gives (NCCL_NVLS_ENABLE, fabric manager)"
    if nodes == 1 and ratio < 0.3:
        return "A small part on one node is what host memory instead of NVLink gives (NCCL_P2P_DISABLE, NVLink errors)"
    compared = [size for size in sizes if size.ratio is not None]
    if len(compared) > 1 and compared[-1].outcome == GOOD:
        return "Only smaller sizes are slow: a forced protocol (NCCL_PROTO, NCCL_ALGO), or an old network plugin"
    return ""


def no_floor(
    facts: Facts, table: Table, sizes: tuple[Size, ...], nodes: int | None, ranks: int | None
) -> Iterator[Finding]:
    """Where no size could be compared with anything: what is missing for it."""
    bare = [size for size in sizes if size.outcome == NOT_COMPARED]
    if not bare or any(size.expected for size in sizes):
        return
    name = facts.instance or "an unknown instance type"
    last = bare[-1]
    top = f"; below the ceiling of {last.ceiling:.1f}, which is all that can be said" if last.ceiling else ""
    unknown = (
        ". No device list, and not both --nodes and --gpus: the number of ranks could not be checked"
        if ranks is None
        else ""
    )
    what = f"{collective_of(table) or 'this test'} of {size_name(bare[0].size)} to {size_name(last.size)}"
    yield NO_FLOOR.found(
        f"no source for a floor: {what} on {count(nodes, 'node')}, {count(ranks, 'rank')} of {name}; "
        f"{last.busbw:.1f} GB/s at the largest{top}{unknown}",
        suggest=[_what_is_missing(facts, ranks)],
    )


def _what_is_missing(facts: Facts, ranks: int | None) -> Suggestion:
    if not facts.instance:
        return Suggestion(
            LOOK,
            "name the instance type, if it is not known here",
            "hpslurm nccl-tests judge FILE --instance-type p5.48xlarge",
        )
    if ranks is None:
        return Suggestion(
            LOOK,
            "say how many nodes and GPUs were meant",
            f"hpslurm nccl-tests judge {shlex.quote(facts.output.source)} --nodes 2 --gpus 8",
        )
    return Suggestion(
        LOOK, "keep this run as the site's own figure, if the cluster is healthy", "hpslurm nccl-tests --record"
    )
