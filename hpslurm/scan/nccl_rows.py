"""Rows of nccl-tests in a job's output: wrong results, and bandwidth that collapses or is far below the machine's."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from itertools import pairwise

from hpslurm.core import linear, toml
from hpslurm.core.finding import NOISE, Event
from hpslurm.core.values import dataclass, field
from hpslurm.scan import model, nccl_tests
from hpslurm.scan.nccl_line import TYPES

Lines = list[tuple[int, str]]  # line number, text
ANY_GPU = 5.0  # GB/s; a GPU that no row knows
COLLAPSE, FALLEN = 1 << 18, 0.1  # bytes from which a larger size must not fall to a tenth of the bandwidth
SATURATED = 64 << 20  # bytes from which a row says something about bandwidth
LARGE = 1 << 30  # bytes from which it says all of it
SMALLER = 2  # the floor is divided by this where all sizes are smaller
OTHER_TEST = 4  # and by this for a test that is no all-reduce
WHOLE = 8  # GPUs of a node, for which the floor of several nodes holds
SIDE_BY_SIDE = 0.4  # of the best run of the same size: far below
HALF = 0.5  # of what others measured on the type: far below, whatever the run
# Whether a text holds a row at all, before anybody reads it line by line.
ROW = linear.compile(rf"\b\d{{1,18}}[ \t]{{1,40}}\d{{1,18}}[ \t]{{1,40}}(?:{'|'.join(sorted(TYPES))})[ \t]")
_NUMBERED = linear.compile(r"(?:^|[ :])\d{1,4} +$")
ONE_HALF = 10  # words of a row at most, with a label, that has one half only
MOST_LINE = 4096  # characters
_STARTED = linear.compile(
    r"Collective test starting: (\w+)"
    r"|\b(all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|alltoall|sendrecv|broadcast)_perf\b"
)
_MACHINE = linear.compile(r"Running on (p\d\w*(?:-\w+)?\.\d+xlarge)")


@dataclass(frozen=True)
class Row:
    """One size; bandwidth out of place and in place."""

    size: int
    number: int  # of its line
    text: str
    bandwidths: tuple[float, ...]
    wrong: bool

    @property
    def best(self) -> float:
        return max(self.bandwidths)


@dataclass
class Run:
    rows: list[Row] = field(default_factory=list)
    hosts: set[str] = field(default_factory=set)
    ranks: set[int] = field(default_factory=set)
    model: str = ""
    test: str = ""


def events(path: str, lines: Lines) -> Iterator[Event]:
    run = _read(lines)
    for row in run.rows:
        if row.wrong:
            yield model.evidence("tests-wrong", path, row.number, row.text)
    timed = [row for row in run.rows if row.bandwidths]
    if not timed:
        return
    yield Event("life", NOISE, path, timed[-1].number, timed[-1].text)
    large = [row for row in timed if row.size >= SATURATED]
    slow = _fallen(timed) or _slower_than_another(large) or _below_floor(large, run, lines)
    if slow is not None:
        row, bandwidth, expected = slow
        facts = (("busbw", f"{bandwidth}"), ("expected", expected))
        yield model.evidence("tests-slow", path, row.number, row.text, facts=facts)


def _read(lines: Lines) -> Run:
    run, reader = Run(), nccl_tests.Reader("")
    last = next((number for number, line in reversed(lines) if line.strip()), 0)
    for number, line in lines:
        if started := _STARTED.search(line):
            run.test = started[1] or started[2]
        row = reader.feed(_without_number(line))
        if row is None and number == last and ROW.search(line, 0, MOST_LINE) and len(line.split()) > ONE_HALF:
            row = reader.feed(f"{_without_number(line)} N/A")  # cut off before its last column
        if row is not None:
            rates = tuple(half.busbw for half in row.halves if not math.isnan(half.busbw))
            run.rows.append(Row(row.size, number, line.strip()[:300], rates, row.wrong > 0))
    devices = [device for table in reader.output.tables for device in table.devices]
    run.hosts, run.ranks = {device.host for device in devices}, {device.rank for device in devices}
    run.model = devices[-1].name if devices else ""
    return run


def _without_number(line: str) -> str:
    """The line without the number of nodes that somebody put in front of the row of each run."""
    match = ROW.search(line, 0, MOST_LINE)
    return line[match.start() :] if match and _NUMBERED.search(line[: match.start()]) else line


Slow = tuple[Row, float, str]  # the row, its bandwidth, what was expected


def _fallen(rows: list[Row]) -> Slow | None:
    for before, after in pairwise(rows):
        if after.size > before.size >= COLLAPSE and after.best < FALLEN * before.best:
            return after, after.best, f"{before.best}, as at a smaller size"
    return None


def _slower_than_another(large: list[Row]) -> Slow | None:
    """One size again and again: runs that were put side by side."""
    same = [row for row in large if row.size == large[-1].size]
    best = max((row.best for row in same), default=0.0)
    slow = [row for row in same if row.best < SIDE_BY_SIDE * best]
    return (slow[0], min(row.best for row in slow), f"{best} in another run") if slow else None


def _below_floor(large: list[Row], run: Run, lines: Lines) -> Slow | None:
    if not large:
        return None
    best = max(large, key=lambda row: row.best)
    floor, gpus = _floor(run.model, len(run.hosts), "\n".join(line for _, line in lines))
    if len(run.hosts) > 1:
        floor *= _share(run, gpus)
    if run.test and not re.match(r"all_?reduce", run.test):
        floor /= OTHER_TEST
    if best.size < LARGE:
        floor /= SMALLER
    return (large[-1], best.best, f"{floor:g} or more") if 0 < best.best < floor else None


def _share(run: Run, gpus: int) -> float:
    """Of a node's network: a part of its GPUs may have a part of it. A list of devices that was cut says nothing."""
    complete = len(run.ranks) == max(run.ranks, default=-1) + 1
    return min(1.0, len(run.ranks) / (gpus * len(run.hosts))) if complete else 1.0


def _floor(gpu: str, hosts: int, text: str) -> tuple[float, int]:
    """Bus bandwidth of a large all_reduce, GB/s of 10^9 bytes, below which something is wrong (bandwidth.toml).

    And how many GPUs a node has, for all of which it holds.
    """
    tables = toml.whole("bandwidth")
    if (machine := _MACHINE.search(text)) and hosts > 1:
        figures: list[float] = [
            max(row["busbw"].values()) for row in tables["row"] if row["type"] == machine[1] and row["nodes"] > 1
        ]
        if figures:
            return HALF * min(figures), WHOLE
    for row in tables["floor"]:
        if row["gpu"] in gpu:
            return float(row["several"] if hosts > 1 else row["one"]), row.get("gpus", WHOLE)
    return ANY_GPU, WHOLE
