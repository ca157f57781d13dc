"""Judges what nccl-tests measured: each size for itself, and first of all whether it measured what was meant.

A slow collective stretches every training step, and a wrong one corrupts the model. The average that nccl-tests
prints depends on the sizes asked for and is never judged. A size is compared with the site's own median; else
with what others measured on the same instance type, number of nodes and size; else only with what the hardware
cannot exceed. A run that stopped, that ran on other ranks than meant, or that printed no table is never a pass.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise

from hpslurm.core.finding import LOOK, Evidence, Finding, Suggestion
from hpslurm.core.policy import Policy
from hpslurm.core.values import replace
from hpslurm.nccl_tests import network, sizes
from hpslurm.nccl_tests.ranks import Ranks, nodes_of, one_rank, other_ranks, ranks_of, shared_gpu
from hpslurm.nccl_tests.rules import (
    CPU_TIME,
    INCOMPLETE,
    NO_FLOOR,
    NO_HEAD,
    NO_MPI,
    NOT_JUDGED,
    NOTHING,
    NUMBERS,
    REDUCED,
    UNCHECKED,
    WRONG,
)
from hpslurm.nccl_tests.stopped import each_for_itself, of_table, stopped
from hpslurm.nccl_tests.verdict import Facts, Size, Verdict
from hpslurm.nccl_tests.words import count, size_name
from hpslurm.scan.nccl_tests import Table

ROUNDED = 0.01  # GB/s: its last digit


def verdict(facts: Facts, policy: Policy) -> Verdict:
    """Judge one run: what stopped it, what it ran on, each size, and the network it used."""
    tables = () if each_for_itself(facts.output) else facts.output.tables
    table = tables[-1] if tables else None
    findings = list(stopped(facts, table))
    nodes, number = facts.nodes, None
    judged: tuple[Size, ...] = ()
    facts = replace(facts, best=sizes.best_of(tables))
    if table is not None:
        judged, of_table, nodes, number = _of_table(facts, table, policy, findings)
        findings += of_table
        for other in tables[:-1] if not any(finding.rule is NO_MPI for finding in findings) else ():
            findings += _of_earlier(facts, other, policy)
    findings += network.findings(facts, judged, nodes)
    if any(finding.rule is NO_MPI for finding in findings):  # mixed line by line: the rest follows from it
        findings = [finding for finding in findings if finding.rule not in (INCOMPLETE, NUMBERS, NO_HEAD, NOTHING)]
    muted = tuple(policy.mute(finding) for finding in findings)
    return Verdict(judged, muted, nodes, number, facts.instance)


def _of_table(
    facts: Facts, table: Table, policy: Policy, before: list[Finding]
) -> tuple[tuple[Size, ...], list[Finding], int | None, int | None]:
    """Sizes, findings, nodes and ranks of one table. ``before``: why it stopped, if it did."""
    ranks = ranks_of(facts, table)
    nodes, number = nodes_of(facts, ranks), ranks.number or facts.output.log.ranks
    wrong_ranks = other_ranks(facts, table, ranks)
    # Numbers of another run than the one meant are shown, but not compared.
    compare = wrong_ranks is None and not table.cpu_time
    judged = tuple(sizes.sizes_of(facts, table, policy, nodes, number, compare=compare))
    findings = [finding for finding in (wrong_ranks, shared_gpu(table)) if finding is not None]
    findings += [*_numbers(table), *_table_notes(table), *sizes.findings(judged, facts, nodes)]
    findings += _head(facts, table, ranks, nodes)
    if not any(finding.rule in NOT_JUDGED for finding in (*before, *findings)):
        findings += sizes.no_floor(facts, table, judged, nodes, number)
    if number == 1 and table.rows and not wrong_ranks:
        findings.append(one_rank(table))
    return judged, findings, nodes, number


def _of_earlier(facts: Facts, table: Table, policy: Policy) -> Iterator[Finding]:
    """What is wrong with a table before the last one, said of that table."""
    why = list(of_table(facts, table))
    for finding in (*why, *_of_table(facts, table, policy, why)[1]):
        if finding.rule not in (NO_FLOOR, NO_HEAD):
            named = f"table from line {table.first_line}" + (f" ({table.test})" if table.test else "")
            yield replace(finding, detail=f"{named}: {finding.detail}")


def _head(facts: Facts, table: Table, ranks: Ranks, nodes: int | None) -> Iterator[Finding]:
    """What cannot be known, or had to be concluded, for want of lines above the rows."""
    gone = []
    if table.parameters is None:
        gone.append("no line '# nThread ...', so whether all sizes that were asked for ran cannot be said")
    if facts.output.excerpt(table):
        gone.append("no last lines either: an excerpt, and whether the run completed cannot be said")
    if table.begins_later:
        gone.append(f"sizes below {size_name(table.rows[0].size)} left out: the average is that of more rows")
    if table.shortened:
        gone.append(f"dots instead of rows: {count(table.missing, 'size')} left out")
    if table.headless:
        gone.append(f"no header, so the {len(table.header)} columns were taken by their number")
    if not ranks.meant and not ranks.listed and ranks.number and nodes and not facts.nodes:
        gone.append(
            f"no list of devices: busbw / algbw says {count(ranks.number, 'rank')}, taken as {count(nodes, 'node')}"
        )
    if gone and table.rows and (table.average is not None or not table.headless):
        yield NO_HEAD.found("; ".join(gone))


def _numbers(table: Table) -> Iterator[Finding]:
    bad = [*_bad_halves(table), *_bad_sizes(table)]
    if table.average is not None and not (math.isfinite(table.average) and table.average >= 0):
        bad.append(f"the average is {table.average}")
    if bad:
        yield NUMBERS.found(f"{bad[0]} ({len(bad)} in all)", evidence=[Evidence("table", text) for text in bad])


def _bad_halves(table: Table) -> Iterator[str]:
    for row in table.rows:
        for half in row.halves:
            values = (half.time, half.algbw, half.busbw)
            sound = all(math.isfinite(value) and value >= 0 for value in values) and half.time > 0
            if not sound or (half.algbw == 0 and half.busbw > 2 * ROUNDED):  # at 8 bytes 0.00 and 0.01 stand there
                yield f"{size_name(row.size)}: time {half.time}, algbw {half.algbw}, busbw {half.busbw}"
        if not row.halves:
            yield f"{size_name(row.size)}: no numbers"


def _bad_sizes(table: Table) -> Iterator[str]:
    most = table.reduced or (table.parameters.largest if table.parameters else None)
    for sweep in table.sweeps:
        for row, following in pairwise(sweep):
            if following.size <= row.size and (row.size or following.size):  # a share below 16 bytes is printed as 0
                yield f"{size_name(following.size)} after {size_name(row.size)}: sizes must grow"
        if most is not None and sweep[-1].size > most and not table.shortened:  # by hand, with the head of another run
            yield f"{size_name(sweep[-1].size)}, though nothing above {size_name(most)} was to run"


def _table_notes(table: Table) -> Iterator[Finding]:
    wrong = [row for row in table.rows if row.wrong]
    if wrong or table.bounds_ok is False:
        total = max(table.bounds or 0, sum(row.wrong for row in wrong))
        yield WRONG.found(
            count(total, "wrong value")
            + (
                f", first at {size_name(wrong[0].size)} ({wrong[0].wrong} there)"
                if wrong
                else " (the table's last lines say)"
            ),
            evidence=[Evidence(f"row of {size_name(row.size)}", f"{row.wrong} wrong") for row in wrong],
            suggest=[
                Suggestion(
                    LOOK, "find the node: a pair with the bad one shows it again", "hpslurm nccl-tests --find-slow"
                ),
                Suggestion(LOOK, "look for ECC and NVLink errors", "srun -w {nodes} nvidia-smi -q -d ECC,ROW_REMAPPER"),
            ],
        )
    if table.parameters and not table.parameters.checked:
        yield UNCHECKED.found("the run had -c 0: wrong data would not have been seen")
    if table.reduced is not None:
        yield REDUCED.found(
            f"nothing above {size_name(table.reduced)} was run: GPU memory was short (another process on the GPUs?)",
            suggest=[
                Suggestion(
                    LOOK,
                    "see who holds memory",
                    "srun -w {nodes} nvidia-smi --query-compute-apps=pid,used_memory --format=csv",
                )
            ],
        )
    if table.cpu_time:
        yield CPU_TIME.found("the run had -C 1: time is that of the CPU call, and so is the bandwidth")
