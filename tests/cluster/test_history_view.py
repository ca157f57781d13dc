"""The table of nodes and the story of one: how much of it is shown, and its smallest numbers."""

from __future__ import annotations

import pytest

from hpslurm.cluster import history_view, keeps_failing
from hpslurm.cluster.history import Asked, History, Trace
from hpslurm.cluster.history_jobs import NAMED, SOFT, Failure
from hpslurm.cluster.history_ledger import Book
from hpslurm.cluster.history_machines import Machines
from hpslurm.cluster.history_stats import FEW, SUSPECT, Verdict
from hpslurm.show.render import as_wide_as

NOW = 1_800_000_000


def verdict(node: str = "n1", word: str = FEW, chance: float = 0.5) -> Verdict:
    return Verdict(node, word, 3, 3, 0.5, 4.0, chance, 10, 50.0, NOW - 100)


def history(*verdicts: Verdict, traces: int = 0) -> History:
    seen = {"n1": tuple(Trace(NOW - 1000 + number, "n1", "record", "xid-79: seen") for number in range(traces))}
    return History(Asked(NOW - 86400, NOW), Book(verdicts, (), (), 100, 3), Machines([], {}), seen, ("sacct",), ())


@pytest.mark.parametrize(
    ("chance", "cell", "words"),
    [
        (0.0001, "0.01 %", "0.01 % by chance"),
        (0.000099, "<0.01 %", "less than 0.01 % by chance"),
        (0.034, "3.4 %", "3.4 % by chance"),
    ],
)
def test_a_chance_below_one_in_ten_thousand_is_told_as_less(chance: float, cell: str, words: str) -> None:
    (show,) = [show for name, _, show in history_view.COLUMNS if name == "CHANCE"]
    assert (cell, words) == (show(verdict(chance=chance)), keeps_failing.by_chance(chance))


@pytest.mark.parametrize(("count", "more"), [(20, []), (21, ["… and 1 more: -v has them"])])
def test_twenty_nodes_are_on_the_first_screen(count: int, more: list[str]) -> None:
    with as_wide_as(120):
        lines = history_view.text(history(*(verdict(f"n{number}") for number in range(count))), False)
    assert more == [line for line in lines if line.startswith("…")]


@pytest.mark.parametrize(("count", "more"), [(400, []), (401, ["… 1 earlier ones left out (--json has them)"])])
def test_four_hundred_lines_are_the_story_of_a_node(count: int, more: list[str]) -> None:
    with as_wide_as(120):
        lines = history_view.story_text(history(verdict(), traces=count), "n1")
    assert more == [line for line in lines if line.startswith("…")]


@pytest.mark.parametrize(
    ("kind", "size", "told"),
    [
        (NAMED, 8, "failed: oops, names this node"),
        (SOFT, 8, "failed: oops, one of 8 nodes"),
        (SOFT, 2, "failed: oops, one of 2 nodes"),
        (SOFT, 1, "failed: oops, alone here"),
    ],
)
def test_a_failure_says_whom_it_names(kind: str, size: int, told: str) -> None:
    assert told == history_view._failed(Failure(1, kind, ("n1",), "oops", NOW, size=size), True)


def test_the_evidence_of_a_suspect_is_its_newest_six_traces() -> None:
    line = {**keeps_failing.line_of(verdict(word=SUSPECT), history(verdict(), traces=7)), "gpu": ""}
    assert 1 + 6 == len(keeps_failing.found(line, NOW).evidence)
