"""Rows of patterns.toml on their own examples."""

from __future__ import annotations

import pytest

from hpslurm.core.finding import NOISE
from hpslurm.scan import trouble
from hpslurm.scan.patterns import Pattern, benign, compiled, table
from hpslurm.scan.prefix import bare
from tests.scan.cases import events_of

COUNTING = [row for row in table().patterns if row.role != NOISE]
BENIGN = [row for row in table().patterns if row.benign]
# Their checks want to see the lines around, which an example alone has not.
NEED_NEIGHBOURS = {"nccl-net-socket-after-ofi", "fabric-state", "topo-file-other-type"}
by_id = {"ids": lambda row: row.id}


@pytest.mark.parametrize("row", COUNTING, **by_id)
def test_a_row_finds_its_example_and_the_line_counts(row):
    assert compiled(row.regex).search(bare(row.example))
    events = [event for event in events_of(row.example.encode() + b"\n") if event.role != NOISE]
    assert bool(events) is (row.id not in NEED_NEIGHBOURS)


@pytest.mark.parametrize("row", BENIGN, **by_id)
def test_a_benign_row_says_why_its_example_is_normal_where_it_looks_like_trouble(row):
    assert benign(row.example) is not None
    events = [event for event in events_of(row.example.encode() + b"\n") if event.pattern == "benign"]
    assert [True] * trouble.may_be(row.example) == [bool(event.fact("why")) for event in events]


def test_a_row_of_the_table_is_nothing_special_unless_it_says_so():
    plain = Pattern(0, "x", "NCCL", "means", "root", "regex", "example")
    assert not (plain.transient or plain.echo or plain.part or plain.benign or plain.late or plain.teardown)
    assert (0, 0) == (plain.weight, plain.section)
