"""Judges what nccl-tests measured: each size for itself, and first of all whether it measured what was meant.

A slow collective stretches every training step, and a wrong one corrupts the model. The average that nccl-tests
prints depends on the sizes asked for and is never judged. A size is compared with the site's own median; else
with what others measured on the same instance type, number of nodes and size; else only with what the hardware
cannot exceed. A run that stopped, that ran on other ranks than meant, or that printed no table is never a pass.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any

from hpslurm.core import toml
from hpslurm.core.finding import CONFIGURE, LOOK, P0, P1, P2, Evidence, Finding, Rule, Suggestion
from hpslurm.core.policy import Policy
from hpslurm.core.values import dataclass, field
from hpslurm.node import instance
from hpslurm.scan import nccl_rails
from hpslurm.scan.nccl_tests import DONE, Output, Row, Table

_RESULTS = "performance-testing.md § 2"
_FLOORS = "performance-testing.md § 3"
_RANKS = "performance-testing.md § 4"
_STOPPED = "performance-testing.md § 5"

FAILED = Rule("busbw-failed", P0, "Bus bandwidth far below what this hardware gives", _FLOORS, "slow_bandwidth")
LOW = Rule("busbw-low", P1, "Bus bandwidth below what this hardware gives", _FLOORS, "slow_bandwidth")
NO_FLOOR = Rule("busbw-no-floor", P2, "No source for a floor of the bandwidth", _FLOORS)
WRONG = Rule("busbw-wrong-data", P0, "Wrong data in a collective", "debugging-guide.md § 5", "data_corruption")
UNCHECKED = Rule("busbw-unchecked", P2, "Data were not checked", _RESULTS)
ABOVE = Rule("busbw-above-ceiling", P1, "Bus bandwidth above what the hardware can do", _RANKS)
ONE_RANK = Rule("busbw-one-rank", P2, "One rank: bus bandwidth is 0 by formula", _RANKS)
RANKS = Rule("busbw-rank-count", P0, "Another number of ranks than meant", _RANKS)
NEVER_LEFT = Rule("busbw-never-left-node", P0, "The run never left its node", _RANKS)
NO_MPI = Rule("busbw-no-mpi", P0, "Every process ran for itself: built without MPI", _RANKS)
OVER_TCP = Rule("busbw-over-tcp", P0, "NCCL used TCP instead of EFA", "debugging-guide.md § 13", "efa_not_used")
FEW_NICS = Rule(
    "busbw-few-nics",
    P0,
    "NCCL found fewer EFA devices than the node has",
    "debugging-guide.md § 6",
    "efa_not_used",
)
UNEVEN_NICS = Rule(
    "busbw-uneven-nics",
    P1,
    "A rank uses fewer NICs than the others",
    "debugging-guide.md § 6",
    "efa_not_used",
)
NO_GDR = Rule(
    "busbw-no-gpudirect", P1, "Network traffic goes through host memory", "debugging-guide.md § 6", "gdr_missing"
)
UNREACHABLE = Rule(
    "busbw-peer-unreachable", P0, "EFA never reached the other node", "debugging-guide.md § 2", "security_group"
)
HANG = Rule("busbw-hang", P0, "The run hung", "debugging-guide.md § 1", "collective_timeout_unknown")
ERROR = Rule("busbw-run-failed", P0, "The run ended with an error", _STOPPED)
INCOMPLETE = Rule("busbw-incomplete", P0, "The output stops before its end", _STOPPED)
NOTHING = Rule("busbw-no-output", P0, "Nothing was printed that could be judged", _STOPPED)
USAGE = Rule("busbw-usage", P0, "nccl-tests printed its usage instead of running", _STOPPED)
SEVERAL = Rule("busbw-several-tables", P0, "Several tables in one file", _RESULTS)
NUMBERS = Rule("busbw-bad-numbers", P0, "Numbers in the table that cannot be", _RESULTS)
REDUCED = Rule("busbw-sizes-cut", P1, "The largest sizes were left out for want of GPU memory", _RESULTS)
CPU_TIME = Rule("busbw-cpu-time", P0, "The table shows CPU time, not bandwidth of the GPUs", _RESULTS)

# After these the numbers do not tell about what was meant to be measured: never a pass.
NOT_JUDGED = (
    RANKS,
    NEVER_LEFT,
    NO_MPI,
    HANG,
    ERROR,
    INCOMPLETE,
    NOTHING,
    USAGE,
    SEVERAL,
    NUMBERS,
    CPU_TIME,
    UNREACHABLE,
)
MEASURED_BAD = (FAILED, WRONG, OVER_TCP, FEW_NICS)
# A run with one of these is no measure for later runs, muted or not.
NO_MEASURE = (*NOT_JUDGED, *MEASURED_BAD, LOW, ABOVE)

# Outcomes of one size.
GOOD, BELOW, FAR_BELOW, TOO_MUCH, NOT_COMPARED = "good", "low", "failed", "above ceiling", "no floor"

# One p5 pair forced to TCP peaks at 2.2 GB/s where EFA gives 480; no EFA fault is known that costs 50 times.
TCP_RATIO = 1 / 50
ABOVE_SLACK = 1.02  # the table prints rounded figures
ROUNDED = 0.01  # GB/s: its last digit


@dataclass(frozen=True)
class Own:
    """The site's own runs of one size: median and extremes of busbw in GB/s, and how many runs."""

    median: float
    low: float
    high: float
    spread: float  # median absolute deviation, scaled to a standard deviation
    runs: int


@dataclass(frozen=True)
class Facts:
    """One run: its output, and what was meant. None is what nobody said.

    ``status`` is the launcher's exit status, ``seconds`` the limit after which we ended it (0: we did not).
    """

    output: Output
    instance: str = ""  # without ml.
    nodes: int | None = None
    gpus: int | None = None  # per node
    status: int | None = None
    timed_out: float = 0.0
    own: Mapping[int, Own] = field(default_factory=dict)  # by size in bytes


@dataclass(frozen=True)
class Size:
    """The verdict on one size; busbw is the lower half of the row. All in GB/s."""

    size: int
    busbw: float
    outcome: str
    expected: float | None = None
    warn: float | None = None
    fail: float | None = None
    ceiling: float | None = None
    source: str = ""

    @property
    def ratio(self) -> float | None:
        return self.busbw / self.expected if self.expected else None


@dataclass(frozen=True)
class Verdict:
    """All sizes and findings of one run, and how many nodes and ranks it really had."""

    sizes: tuple[Size, ...]
    findings: tuple[Finding, ...]
    nodes: int | None
    ranks: int | None
    instance: str

    @property
    def counted(self) -> list[Finding]:
        return [finding for finding in self.findings if not finding.muted]

    @property
    def failed(self) -> bool:
        return any(finding.rule in MEASURED_BAD for finding in self.counted)

    @property
    def judged(self) -> bool:
        return not any(finding.rule in NOT_JUDGED for finding in self.counted)

    @property
    def credible(self) -> bool:
        """Nothing is above what the hardware can do: that is a measuring error, and no good run."""
        return not any(finding.rule is ABOVE for finding in self.counted)

    @property
    def against(self) -> list[Finding]:
        """Why this run is no measure for later ones; a mute hides a finding and makes no run better."""
        return [finding for finding in self.findings if finding.rule in NO_MEASURE]

    @property
    def exit_code(self) -> int:
        """0 judged fine, 3 bad bandwidth or data, 1 could not be judged."""
        return 3 if self.failed else 0 if self.judged and self.credible else 1

    @property
    def words(self) -> str:
        if self.failed:
            return "bad"
        if not self.judged:
            return "not judged"
        if not self.credible:
            return "not credible"
        if any(one.outcome == BELOW for one in self.sizes):
            return "low"
        return "good" if any(one.outcome == GOOD for one in self.sizes) else "nothing to compare with"


# the table


@cache
def tables() -> dict[str, list[dict[str, Any]]]:
    """``tables/bandwidth.toml``: lists ``row`` and ``limits``."""
    return toml.whole("bandwidth")


def limits_of(name: str) -> dict[str, Any] | None:
    return next((row for row in tables()["limits"] if row["type"] == name), None)


def expected(name: str, nodes: int, gpus: int, collective: str, size: int) -> tuple[float, str] | None:
    """busbw in GB/s and its source, for exactly this type, number of nodes and size; else None."""
    about = limits_of(name)
    if collective != "all_reduce" or about is None or about["gpus"] != gpus:
        return None
    for row in tables()["row"]:
        if row["type"] == name and row["nodes"] == nodes:
            rate = row["busbw"].get(size_name(size).replace(" ", ""))
            return None if rate is None else (float(rate), f"{row['source']}, confidence {row['confidence']}")
    return None


def ceiling(name: str, nodes: int, gpus: int, collective: str = "all_reduce") -> float | None:
    """GB/s that all_reduce cannot exceed on this hardware, or None where the table cannot tell.

    One node: the ring over NVLink, or with NVLink SHARP its larger bound. Several nodes: the hierarchical
    bound of the network, and never more than NVLink gives inside the node.
    """
    about = limits_of(name)
    ranks = nodes * gpus
    if about is None or collective != "all_reduce" or ranks < 2:
        return None
    link = float(about.get("nvlink", 0.0))
    joined = ranks if nodes == 1 or ranks <= about.get("domain", 0) else gpus  # domain: NVLink between nodes
    inside = link * (2 * (joined - 1) / (joined + 1) if about.get("nvls") and joined > 3 else 1.0)
    if joined == ranks and link:
        return max(inside, link)
    if nodes == 1 or not about.get("efa"):
        return None
    network = float(about["efa"]) * nodes / (nodes - 1) * (ranks - 1) / ranks
    return min(network, max(inside, link)) if link and gpus > 1 else network


def count(number: int | None, what: str) -> str:
    """``2 nodes``, ``1 node``; ``? nodes`` where nobody knows."""
    return f"{'?' if number is None else number} {what}{'' if number == 1 else 's'}"


def size_name(size: int) -> str:
    """``8 GiB``: the largest unit that divides the size."""
    for unit, shift in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if size >= 1 << shift and size % (1 << shift) == 0:
            return f"{size >> shift} {unit}"
    return f"{size} B"


# what was really run


def factor(collective: str, ranks: int) -> float | None:
    """busbw divided by algbw for this many ranks, or None where it tells nothing about them."""
    if collective == "all_reduce":
        return 2 * (ranks - 1) / ranks
    if collective in ("all_gather", "reduce_scatter", "alltoall", "gather", "scatter"):
        return (ranks - 1) / ranks
    return None


def measured_ratio(rows: Iterable[Row]) -> tuple[float, float] | None:
    """busbw / algbw of the fastest row, and by how much rounding may have moved it."""
    halves = [half for row in rows for half in row.halves if half.algbw > 0 and math.isfinite(half.algbw)]
    if not halves:
        return None
    best = max(halves, key=lambda half: half.algbw)
    if not math.isfinite(best.busbw):
        return None
    ratio = best.busbw / best.algbw
    unit = 0.005 if best.algbw < 1000 else 0.5
    return ratio, 0.002 + unit / best.algbw * (1 + ratio)


def collective_of(table: Table) -> str:
    """The name of the test; up to 2.16 the table has none, and only all_reduce shows in its numbers."""
    found = measured_ratio(table.rows)
    ranks = max((device.rank for device in table.devices), default=0) + 1
    if table.collective or found is None or ranks < 3:
        return table.collective
    return "all_reduce" if found[0] > 1 + found[1] else ""


def ranks_from(collective: str, ratio: float, slack: float) -> int | None:
    """The number of ranks that gives this ratio; None for one that cannot be told any more."""
    whole = 2.0 if collective == "all_reduce" else 1.0
    if factor(collective, 2) is None or whole - ratio <= slack:
        return None
    return max(1, round(whole / (whole - ratio)))


@dataclass(frozen=True)
class _Ranks:
    """What each source says about the size of the run."""

    meant: int | None
    listed: int | None
    hosts: int | None
    measured: int | None  # from busbw / algbw, where it can be told
    fits: bool  # whether the ratio fits what was meant or listed


def _ranks(facts: Facts, table: Table) -> _Ranks:
    listed = max((device.rank for device in table.devices), default=-1) + 1 or None
    if table.asked and listed:  # JSON lists one entry a process
        listed = max(
            listed, len(table.devices) * (table.asked.gpus * table.asked.threads if not table.first_line else 1)
        )
    meant = facts.nodes * facts.gpus if facts.nodes and facts.gpus else None
    hosts = len(table.hosts) or None
    wanted = meant or (None if table.cut else listed) or facts.output.log.ranks
    found = measured_ratio(table.rows)
    if found is None or wanted is None:
        return _Ranks(meant, listed, hosts, None, True)
    ratio, slack = found
    should = factor(collective_of(table), wanted)
    if should is None:
        return _Ranks(meant, listed, hosts, None, True)
    return _Ranks(meant, listed, hosts, ranks_from(collective_of(table), ratio, slack), abs(should - ratio) <= slack)


# findings


def judge(facts: Facts, policy: Policy) -> Iterator[Finding]:
    """All findings of one run."""
    yield from verdict(facts, policy).findings


def verdict(facts: Facts, policy: Policy) -> Verdict:
    """Judge one run: what stopped it, what it ran on, each size, and the network it used."""
    output = facts.output
    table = output.tables[-1] if output.tables else None
    found = list(_stopped(facts, table))
    ranks: int | None = None
    nodes: int | None = facts.nodes
    sizes: tuple[Size, ...] = ()
    if table is not None:
        about = _ranks(facts, table)
        wrong_ranks = list(_other_ranks(facts, table, about))
        found += wrong_ranks
        ranks = about.meant or about.listed or about.measured or output.log.ranks
        nodes = facts.nodes or about.hosts
        found += _numbers(table)
        found += _table_notes(table)
        # Numbers of another run than the one meant are shown, but not compared.
        sizes = tuple(_sizes(facts, table, policy, nodes, ranks, compare=not wrong_ranks and not table.cpu_time))
        found += _size_findings(sizes, facts, nodes)
        if not any(one.rule in NOT_JUDGED for one in found):
            found += _no_floor(facts, table, sizes, nodes, ranks)
        if ranks == 1 and table.rows and not wrong_ranks:
            found.append(_one_rank(table))
    found += _network(facts, table, sizes, nodes)
    muted = tuple(policy.mute(finding) for finding in found)
    return Verdict(sizes, muted, nodes, ranks, facts.instance)


def _stopped(facts: Facts, table: Table | None) -> Iterator[Finding]:
    output = facts.output
    where = output.phase()
    if output.bad_json:
        yield NOTHING.found(f"{output.source}: {output.bad_json}")
        return
    if output.usage and not (table and table.rows):
        yield USAGE.found(
            f"it printed {output.usage!r} and no table; nccl-tests then still exits with 0",
            evidence=[Evidence(output.source, output.usage)],
            suggest=[
                Suggestion(
                    LOOK,
                    "this build is older than one of the options; ask it for those it knows, then leave out the others",
                    "all_reduce_perf -h",
                )
            ],
        )
        return
    if (trouble := start_trouble(output, table)) is not None:
        yield trouble
        return
    if facts.timed_out or output.timeout or "TIME LIMIT" in output.cancelled:
        yield _hang(facts, where)
    elif output.too_few_gpus:
        yield ERROR.found(
            f"{output.too_few_gpus}: more processes on a node than it has GPUs",
            suggest=[Suggestion(LOOK, "see what a step gets", "srun -N1 --ntasks-per-node=1 nvidia-smi -L")],
        )
    elif output.failures:
        yield ERROR.found(
            f"{output.failures[0]}; it stopped {where}",
            evidence=[Evidence(output.source, line) for line in [*output.failures, *output.log.warnings]],
            suggest=[Suggestion(LOOK, "let the log scan name the cause", f"hpslurm scan {_quoted(output.source)}")],
        )
    elif table is None:
        yield _no_table(facts)
    elif table.errors:
        ended = "though it came to its end" if table.phase() == DONE else f"it stopped {where}"
        yield ERROR.found(
            f"it printed the error {table.errors[0]!r}; {ended}",
            evidence=[Evidence(output.source, line) for line in [*table.errors, *output.log.warnings]],
            suggest=[Suggestion(LOOK, "let the log scan name the cause", f"hpslurm scan {_quoted(output.source)}")],
        )
    elif not table.complete and table.phase() != DONE:
        yield _incomplete(facts, table, where)
    elif table.missing:
        yield INCOMPLETE.found(
            f"{table.missing} of {count(table.wanted, 'size')} that were asked for have no readable row, "
            "though it came to its end",
            evidence=_rows(output, table),
        )
    elif table.announced and not table.concluded:
        end = "the time of its end is" if table.header[:1] == ("json",) else "the line that it ends with is"
        yield INCOMPLETE.found(
            f"all sizes ran, but {end} missing: it was ended, or hung, in its last moments",
            evidence=_launcher(output),
        )
    elif table.ended_as and table.ended_as != table.test:
        yield INCOMPLETE.found(
            f"it began as {table.test} and ended as {table.ended_as}: two runs, or lines are missing"
        )
    elif not table.rows or table.asked is None or table.bounds is None or table.average is None:
        gone = (
            "its rows" if not table.rows else "the line of its parameters" if table.asked is None else "its last lines"
        )
        yield INCOMPLETE.found(f"the table came to its end, but {gone} cannot be read: keep the whole output")
    elif facts.status not in (None, 0, 6, 7) or (facts.status in (6, 7) and not _explained(table)):
        yield ERROR.found(
            f"the table is complete, but the launcher ended with {facts.status}", evidence=_launcher(output)
        )
    if table is not None:
        yield from _several(facts, table)


def start_trouble(output: Output, table: Table | None = None) -> Finding | None:
    """Why nothing ran, where the launcher or the loader said so."""
    if output.bad_argument:
        return ERROR.found(f"an argument was refused: {output.bad_argument}")
    if output.library:
        return ERROR.found(
            f"it did not start: {output.library}",
            suggest=[
                Suggestion(
                    CONFIGURE,
                    "put the folder of libnccl.so.2 into LD_LIBRARY_PATH of the job",
                    "ldd $(command -v all_reduce_perf)",
                )
            ],
        )
    if output.no_pyxis:
        return ERROR.found(
            f"pyxis is not installed on this cluster, so srun knows no containers: {output.no_pyxis}",
            suggest=[
                Suggestion(LOOK, "see what srun knows", "srun --help | grep container"),
                Suggestion(
                    CONFIGURE,
                    "run a program outside of containers, on a file system that all nodes see; or add pyxis to "
                    "plugstack.conf on every node",
                    "hpslurm nccl-tests --program /fsx/nccl-tests/build",
                ),
            ],
        )
    if output.pmi and table is None:
        return ERROR.found(
            f"srun and the MPI of this build do not find each other: {output.pmi}",
            suggest=[
                Suggestion(LOOK, "see which kinds of PMI srun has, then name one with --mpi", "srun --mpi=list"),
                Suggestion(LOOK, "let Open MPI start the ranks", "hpslurm nccl-tests --launcher mpirun"),
            ],
        )
    return None


def _hang(facts: Facts, where: str) -> Finding:
    output = facts.output
    limit = f"after {facts.timed_out:.0f} s it was ended by its time limit" if facts.timed_out else ""
    text = limit or output.timeout or output.cancelled
    last = output.tables[-1].rows[-1] if output.tables and output.tables[-1].rows else None
    after = f"; the last size done was {size_name(last.size)}" if last else ""
    return HANG.found(
        f"it hung {where}{after} ({text})",
        evidence=[Evidence(output.source, line) for line in [*output.log.warnings[:5], *output.launcher[:5]]],
        suggest=[
            Suggestion(LOOK, "find the node that holds the others", "hpslurm nccl-tests --find-slow"),
            Suggestion(
                LOOK,
                "see where the ranks wait, while one hangs",
                "srun --overlap --jobid=$SLURM_JOB_ID -w {nodes} py-spy dump --pid PID",
            ),
        ],
    )


def _no_table(facts: Facts) -> Finding:
    output = facts.output
    status = f"; exit status {facts.status}" if facts.status is not None else ""
    if output.cancelled:
        return NOTHING.found(f"the job was ended before it printed a table: {output.cancelled}")
    if output.orphans:
        return NOTHING.found(f"{output.orphans} rows without the header above them: keep the whole output")
    text = f"{output.lines} lines, but none of nccl-tests" if output.lines else "no output at all"
    return NOTHING.found(
        f"{output.source}: {text}{status}",
        evidence=_launcher(output),
        suggest=[Suggestion(LOOK, "see whether the program starts at all", "srun -N1 -n1 all_reduce_perf -h")],
    )


def _rows(output: Output, table: Table) -> list[Evidence]:
    there = f"{size_name(table.rows[0].size)} to {size_name(table.rows[-1].size)}" if table.rows else "none"
    return [
        Evidence(output.source, f"{count(len(table.rows), 'row')} that can be read: {there}"),
        Evidence(output.source, "NCCL lines in the same stream may have cut them: use NCCL_DEBUG_FILE"),
    ]


def _incomplete(facts: Facts, table: Table, where: str) -> Finding:
    output = facts.output
    why = output.cancelled or (output.launcher[0] if output.launcher else "no reason given")
    wanted = table.wanted
    done = f"{len(table.rows)} sizes" if wanted is None else f"{wanted - table.missing} of {count(wanted, 'size')}"
    return INCOMPLETE.found(
        f"it stopped {where}, with {done} done: {why}",
        evidence=_launcher(output),
        suggest=[Suggestion(LOOK, "let the log scan name the cause", f"hpslurm scan {_quoted(output.source)}")],
    )


def _launcher(output: Output) -> list[Evidence]:
    lines = [*output.launcher, *output.log.warnings]
    return [Evidence(output.source, line) for line in lines]


def _explained(table: Table) -> bool:
    """Exit codes 6 and 7 also stand for wrong data and for an average below a minimum, which is not judged."""
    return table.average_ok is False or any(row.wrong for row in table.rows) or table.bounds_ok is False


def _several(facts: Facts, table: Table) -> Iterator[Finding]:
    tables = facts.output.tables
    speakers = {one.label for one in tables if one.asked or one.rows}
    copies = max(table.copies, len(speakers) if len(tables) > 1 else 1, _zeros(table))
    if copies > 1 or (len(tables) > 1 and max(one.copies for one in tables) > 1):
        yield NO_MPI.found(
            f"{max(copies, 2)} programs announced themselves, each as rank 0: every process tested its own GPUs",
            evidence=[Evidence(facts.output.source, f"line {one.first_line}: a head of its own") for one in tables[:4]],
            suggest=[
                Suggestion(LOOK, "a build with MPI names libmpi here", "ldd $(command -v all_reduce_perf) | grep mpi"),
                Suggestion(LOOK, "srun must speak the same PMI as that MPI", "srun --mpi=list"),
                Suggestion(LOOK, "or let Open MPI start the ranks", "hpslurm nccl-tests --launcher mpirun"),
            ],
        )
    elif len(tables) > 1:
        lines = ", ".join(str(one.first_line) for one in tables)
        yield SEVERAL.found(
            f"{len(tables)} tables (from lines {lines}); below stands the last one only",
            suggest=[
                Suggestion(
                    LOOK, "judge one of them", f"hpslurm nccl-tests judge {_quoted(facts.output.source)} --table 1"
                )
            ],
        )


def _zeros(table: Table) -> int:
    return sum(device.rank == 0 for device in table.devices)


def _other_ranks(facts: Facts, table: Table, about: _Ranks) -> Iterator[Finding]:
    meant_nodes = facts.nodes or 1
    measured = f"busbw / algbw says {about.measured}" if about.measured else "busbw / algbw fits no such number"
    alone = facts.gpus or (about.listed // about.hosts if about.listed and about.hosts else None)
    many_hosts = max(meant_nodes, about.hosts or 1)
    listed = count(about.listed, "rank") if about.listed else "no ranks"
    evidence = [Evidence("device list", f"{listed} on {', '.join(table.hosts[:8]) or 'no host'}")]
    suggest = [
        Suggestion(
            LOOK, "a build without MPI never starts a second node", "ldd $(command -v all_reduce_perf) | grep mpi"
        ),
        Suggestion(LOOK, "srun must speak the PMI of that MPI", "srun --mpi=list"),
    ]
    left_not = not about.fits and many_hosts > 1 and alone is not None and about.measured == alone
    if left_not or (meant_nodes > 1 and about.hosts == 1 and not table.cut):
        yield NEVER_LEFT.found(
            f"{count(many_hosts, 'node')} were meant, but the ranks of one node talked only to each other ({measured})",
            evidence=evidence,
            suggest=suggest,
        )
        return
    other_list = bool(about.meant and about.listed and about.meant != about.listed)
    other_hosts = bool(facts.nodes and about.hosts and facts.nodes != about.hosts)
    if not about.fits or ((other_list or other_hosts) and not table.cut):
        said = measured if not about.fits else f"on {count(about.hosts, 'host')}"
        wanted = about.meant or about.listed or facts.output.log.ranks
        yield RANKS.found(
            f"{count(wanted, 'rank')} on {count(facts.nodes or about.hosts, 'node')} were meant; "
            f"the device list has {about.listed or 'none'}, {said}",
            evidence=evidence,
            suggest=suggest,
        )


def _numbers(table: Table) -> Iterator[Finding]:
    bad = []
    for row in table.rows:
        for half in row.halves:
            values = (half.time, half.algbw, half.busbw)
            sound = all(math.isfinite(value) and value >= 0 for value in values) and half.time > 0
            if not sound or (half.algbw == 0 and half.busbw > 2 * ROUNDED):  # at 8 bytes 0.00 and 0.01 stand there
                bad.append(f"{size_name(row.size)}: time {half.time}, algbw {half.algbw}, busbw {half.busbw}")
        if not row.halves:
            bad.append(f"{size_name(row.size)}: no numbers")
    for one, following in zip(table.rows, table.rows[1:], strict=False):
        if following.size <= one.size and (one.size or following.size):  # a share below 16 bytes is printed as 0
            bad.append(f"{size_name(following.size)} after {size_name(one.size)}: sizes must grow")
    most = table.reduced or (table.asked.largest if table.asked else None)
    if most is not None and table.rows and table.rows[-1].size > most:
        bad.append(f"{size_name(table.rows[-1].size)}, though nothing above {size_name(most)} was to run")
    if table.average is not None and not (math.isfinite(table.average) and table.average >= 0):
        bad.append(f"the average is {table.average}")
    if bad:
        yield NUMBERS.found(f"{bad[0]} ({len(bad)} in all)", evidence=[Evidence("table", text) for text in bad])


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
    if table.asked and not table.asked.checked:
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


def _one_rank(table: Table) -> Finding:
    return ONE_RANK.found(
        f"one rank has nobody to talk to; nccl-tests prints busbw 0 then ({len(table.rows)} sizes ran)",
        suggest=[Suggestion(LOOK, "two GPUs or more are needed", "hpslurm nccl-tests --gpus 8")],
    )


# sizes


def _sizes(
    facts: Facts, table: Table, policy: Policy, nodes: int | None, ranks: int | None, *, compare: bool
) -> Iterator[Size]:
    for row in table.rows:
        rates = [half.busbw for half in row.halves if math.isfinite(half.busbw) and half.busbw >= 0]
        if not rates or ranks == 1:
            continue
        low, top = min(rates), max(rates)
        if not compare or nodes is None or ranks is None or ranks % nodes:
            yield Size(row.size, low, NOT_COMPARED)
            continue
        gpus = ranks // nodes
        roof = ceiling(facts.instance, nodes, gpus, collective_of(table))
        own = facts.own.get(row.size)
        known = expected(facts.instance, nodes, gpus, collective_of(table), row.size)
        if own is not None:
            # a site whose own runs scatter by more than the rule allows would be warned of every run
            warn = min(policy.bandwidth_warn_below * own.median, own.median - 4 * own.spread)
            wanted, source = own.median, f"own median of {own.runs} runs, {own.low:.1f} to {own.high:.1f}"
        elif known is not None:
            wanted, source = known
            warn = policy.bandwidth_warn_below * wanted
        else:
            above = roof is not None and top > roof * ABOVE_SLACK
            yield Size(row.size, low, TOO_MUCH if above else NOT_COMPARED, ceiling=roof)
            continue
        fail = policy.bandwidth_fail_below * wanted
        warn = max(warn, fail)
        outcome = FAR_BELOW if low < fail else BELOW if low < warn else GOOD
        if roof is not None and top > roof * ABOVE_SLACK:
            outcome = TOO_MUCH
        yield Size(row.size, low, outcome, wanted, warn, fail, roof, source)


def _size_findings(sizes: tuple[Size, ...], facts: Facts, nodes: int | None) -> Iterator[Finding]:
    for rule, outcome in ((FAILED, FAR_BELOW), (LOW, BELOW)):
        found = [one for one in sizes if one.outcome == outcome]
        if found:
            yield _below(rule, found, sizes, facts, nodes)
    above = [one for one in sizes if one.outcome == TOO_MUCH]
    if above:
        yield ABOVE.found(
            f"{size_name(above[-1].size)} {above[-1].busbw:.1f} GB/s, but {count(nodes, 'node')} cannot exceed "
            f"{above[-1].ceiling:.1f}: a measuring error, such as another number of ranks or nodes",
        )


def _below(rule: Rule, found: list[Size], sizes: tuple[Size, ...], facts: Facts, nodes: int | None) -> Finding:
    worst = min(found, key=lambda one: one.ratio or 1.0)
    limit = worst.fail if rule is FAILED else worst.warn
    likely = signature(worst.ratio or 1.0, nodes or 1, facts.instance, sizes)
    share = round(100 * (worst.ratio or 0.0))
    suggest = [
        Suggestion(LOOK, "find the node, pair or rail that holds the others back", "hpslurm nccl-tests --find-slow")
    ]
    if nodes == 1:
        suggest = [Suggestion(LOOK, "look at the GPUs and links of this node", "srun -w {nodes} hpslurm-check")]
    return rule.found(
        f"{size_name(worst.size)} {worst.busbw:.1f} GB/s, at least {limit:.1f} wanted: "
        f"{share} % of {worst.expected:.1f}" + (f". {likely}" if likely else ""),
        evidence=[
            Evidence(size_name(one.size), f"{one.busbw:.1f} GB/s of {one.expected:.1f} ({one.source})") for one in found
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
    compared = [one for one in sizes if one.ratio is not None]
    if len(compared) > 1 and compared[-1].outcome == GOOD:
        return "Only smaller sizes are slow: a forced protocol (NCCL_PROTO, NCCL_ALGO), or an old network plugin"
    return ""


def _no_floor(
    facts: Facts, table: Table, sizes: tuple[Size, ...], nodes: int | None, ranks: int | None
) -> Iterator[Finding]:
    bare = [one for one in sizes if one.outcome == NOT_COMPARED]
    if not bare or any(one.expected for one in sizes):
        return
    name = facts.instance or "an unknown instance type"
    roof = bare[-1].ceiling
    top = f"; below the ceiling of {roof:.1f}, which is all that can be said" if roof else ""
    unknown = (
        ". No device list, and not both --nodes and --gpus: the number of ranks could not be checked"
        if ranks is None
        else ""
    )
    what = f"{collective_of(table) or 'this test'} of {size_name(bare[0].size)} to {size_name(bare[-1].size)}"
    yield NO_FLOOR.found(
        f"no source for a floor: {what} on {count(nodes, 'node')}, {count(ranks, 'rank')} of {name}; "
        f"{bare[-1].busbw:.1f} GB/s at the largest{top}{unknown}",
        suggest=[
            Suggestion(
                LOOK,
                "name the instance type, if it is not known here",
                "hpslurm nccl-tests judge FILE --instance-type p5.48xlarge",
            )
            if not facts.instance
            else Suggestion(
                LOOK,
                "say how many nodes and GPUs were meant",
                f"hpslurm nccl-tests judge {_quoted(facts.output.source)} --nodes 2 --gpus 8",
            )
            if ranks is None
            else Suggestion(
                LOOK, "keep this run as the site's own figure, if the cluster is healthy", "hpslurm nccl-tests --record"
            ),
        ],
    )


# the network


def _network(facts: Facts, table: Table | None, sizes: tuple[Size, ...], nodes: int | None) -> Iterator[Finding]:
    log = facts.output.log
    if log.unreachable:
        yield UNREACHABLE.found(
            f"the first transfer was refused: {log.unreachable}",
            evidence=[Evidence("NCCL log", log.unreachable)],
            suggest=[
                Suggestion(
                    LOOK,
                    "the security group must name itself, inbound and outbound; 0.0.0.0/0 does not cover EFA",
                    "aws ec2 describe-security-groups --group-ids SG",
                ),
            ],
        )
    if (nodes or 1) < 2:
        return
    yield from _tcp(facts, sizes)
    efa = (instance.table().get(facts.instance) or instance.Expected(None, None)).efa
    few = {host: count for host, count in log.nics.items() if efa is not None and count < efa}
    if few or log.mixed_nics:
        some = ", ".join(f"{host} {count}" for host, count in sorted(few.items())[:8])
        yield FEW_NICS.found(
            (f"the plugin found {some} of {efa} EFA devices" if few else log.mixed_nics) + _bandwidth_beside(sizes),
            evidence=[Evidence("NCCL log", f"{host}: found {count} nics") for host, count in sorted(few.items())]
            or [Evidence("NCCL log", log.mixed_nics)],
            suggest=[Suggestion(LOOK, "count the devices on each node", "srun -w {nodes} hpslurm-check")],
        )
    yield from _uneven_nics(log.rails)
    if log.fabric == "efa" and log.over_net and not log.over_gdr:
        yield NO_GDR.found(
            f"none of {log.over_net} channels between nodes uses GPUDirect RDMA" + _bandwidth_beside(sizes),
            suggest=[
                Suggestion(
                    LOOK,
                    "see whether a peer-memory module is loaded",
                    "srun -w {nodes} cat /sys/class/infiniband/*/device/p2p",
                )
            ],
        )


def _uneven_nics(rails: nccl_rails.Rails) -> Iterator[Finding]:
    found = list(nccl_rails.uneven(rails))
    if not found:
        return
    one = found[0]
    gpu = "" if one.gpu is None else f", GPU {one.gpu}"
    more = f" ({len(found)} ranks in all)" if len(found) > 1 else ""
    yield UNEVEN_NICS.found(
        f"rank {one.rank} on {one.host}{gpu}: {one.count} NICs, where {one.others} use {one.usual}{more}",
        evidence=[
            Evidence("NCCL log", f"{each.host} rank {each.rank}: {each.count} NICs, {each.usual} on {each.others}")
            for each in found[:16]
        ],
        suggest=[Suggestion(LOOK, "count the devices on the node", "srun -w {nodes} hpslurm-check")],
        subject=one.host if len({each.host for each in found}) == 1 else "",
    )


def _bandwidth_beside(sizes: tuple[Size, ...]) -> str:
    if not sizes:
        return ""
    last = sizes[-1]
    share = f", {round(100 * last.ratio)} % of {last.expected:.1f}" if last.ratio else ""
    return f"; {size_name(last.size)} reached {last.busbw:.1f} GB/s{share}"


def _tcp(facts: Facts, sizes: tuple[Size, ...]) -> Iterator[Finding]:
    log = facts.output.log
    about = limits_of(facts.instance)
    if about is not None and not about.get("efa"):
        return  # this type has no EFA: TCP is all it can do
    compared = [(one, one.expected or one.ceiling) for one in sizes if one.size >= 1 << 26]
    slow = [one for one, wanted in compared if wanted and one.busbw <= wanted * TCP_RATIO]
    if log.fabric == "tcp":
        line = next(iter(log.networks or log.net_names or log.providers), "")
        said = f"NCCL says it uses the network {line}" + ("" if about else " (wrong, if this instance type has EFA)")
    elif slow and log.fabric == "" and len(slow) == len(compared):
        said = "no NCCL log says which network, but so little is what TCP gives"
    else:
        return
    yield OVER_TCP.found(
        said + _bandwidth_beside(sizes),
        evidence=[Evidence("NCCL log", text) for text in (*log.networks, log.no_plugin) if text],
        suggest=[
            Suggestion(LOOK, "see whether libfabric finds EFA in a step", "srun -w {nodes} hpslurm-check"),
            Suggestion(
                CONFIGURE, "unset FI_PROVIDER and NCCL_NET, and put the plugin's folder (ofi-nccl) into LD_LIBRARY_PATH"
            ),
        ],
    )


def _quoted(source: str) -> str:
    import shlex

    return shlex.quote(source)


def shape(facts: Facts) -> tuple[str, int, int, str] | None:
    """Collective, nodes, ranks and NCCL version of the run, or None where one is not known."""
    if not facts.output.tables:
        return None
    table = facts.output.tables[-1]
    about = _ranks(facts, table)
    nodes, ranks = facts.nodes or about.hosts, about.meant or about.listed
    if not nodes or not ranks or not (collective_of(table) or table.rows):
        return None
    return collective_of(table) or "all_reduce", nodes, ranks, table.nccl or facts.output.log.version
