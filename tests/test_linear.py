"""No line can make an expression slow: every one of the project on strings made to hold it up."""

from __future__ import annotations

import os
import random
import re
import time

import pytest

from hpslurm.cluster import failures
from hpslurm.cluster.aws import events
from hpslurm.core import linear
from hpslurm.scan import patterns
from tests import pumped
from tests.pumped import Expression


def every() -> list[Expression]:
    union = patterns.boilerplate()
    return [*pumped.expressions(), Expression("patterns, together", union.pattern)]


EFFORT = pumped.THOROUGHLY if os.environ.get("HPSLURM_FUZZ") else pumped.SHORTLY


def test_no_expression_takes_longer_than_its_line_explains() -> None:
    found = every()
    assert len(found) > 800
    assert {} == {f"{one.where} {one.regex!r:.120}": text for one in found if (text := pumped.growing(one, EFFORT))}


def test_a_long_message_of_aws_takes_no_longer_than_its_length_explains() -> None:
    # seen: a word of the pattern again and again, and 64 KiB took seconds
    began = time.process_time()
    for word in ("slurmdbd ", "reservation "):
        text = word * (65536 // len(word))
        assert None is failures.failure_of(text)
        assert not [row.id for row in events.table() if row.pattern.search(text)]
    assert time.process_time() - began < 2


@pytest.mark.parametrize("regex", [r"a\w*[^\n]*b", r"\s*x?\s*y", r"(?:a+)+b"])
def test_growth_is_noticed_where_there_is_some(regex: str) -> None:
    quick = pumped.Effort(small=400, large=1600, noticed=0.002)
    assert "" != pumped.growing(Expression("a test", regex), quick)
    assert "" == pumped.growing(Expression("a test", linear.bounded(r"bind\S*[^\n]*failed")))


@pytest.mark.parametrize(
    ("regex", "text"),
    [
        (r"NVRM: Xid \(PCI:(\S+)\): (\d+)", "NVRM: Xid (PCI:0000:a8:00): 79"),
        (r"[*+]\*{2,}[]+*]+", "+***]]"),
        (r"(?:a|b)+?c\+", "ababc+"),
        (r"rank\w*[^\n]*lost", "ranks 1 to 7 were lost"),
    ],
)
def test_a_bound_changes_no_match_within_it(regex: str, text: str) -> None:
    bounded = linear.compile(regex)
    assert not re.search(r"(?<!\\)[*+](?![^\[]*\])", bounded.pattern)
    expected, found = re.search(regex, text), bounded.search(text)
    assert expected and found and (expected[0], expected.groups()) == (found[0], found.groups())


def test_of_every_row_the_bounded_expression_finds_what_the_row_says() -> None:
    rows = [row for row in patterns.table().patterns if row.example]
    some = random.Random(7).sample(rows, 100)
    for row in some:
        expected, found = re.search(row.regex, row.example), patterns.compiled(row.regex).search(row.example)
        assert (expected and expected[0]) == (found and found[0]), row.id
