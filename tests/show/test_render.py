"""Findings as lines: how many, how wide, and what is left out."""

from __future__ import annotations

import click
import pytest

from hpslurm.core.finding import P1, Evidence, Finding, Rule
from hpslurm.show import render

BAD = Rule("gpu-bad", P1, "GPU bad", "debugging-guide.md § 7")
POINTER = ("       → debugging-guide.md § 7", "(hpslurm explain gpu-bad)")


def block(*findings: Finding) -> list[str]:
    (folded,) = render.fold(findings)
    return [click.unstyle(line) for line in render.finding_lines(folded, 100)]


@pytest.mark.parametrize(("width", "lines"), [(3 + sum(map(len, POINTER)), 1), (2 + sum(map(len, POINTER)), 2)])
def test_where_it_is_explained_stands_on_one_line_where_that_is_wide_enough(width: int, lines: int) -> None:
    assert lines == len(render.pointer(BAD.reference, BAD.id, width))


@pytest.mark.parametrize(("count", "more"), [(8, []), (9, ["… and 1 more (--json has all)"])])
def test_eight_pieces_of_evidence_are_shown(count: int, more: list[str]) -> None:
    lines = block(BAD.found("bad", evidence=[Evidence(f"GPU {number}", "x") for number in range(count)]))
    assert 8 == sum(line.strip().startswith("saw:") for line in lines)
    assert more == [line.strip() for line in lines if line.strip().startswith("…")]


def test_nodes_that_differ_are_told_apart_and_one_alone_is_not() -> None:
    first, second = (
        BAD.found(f"{count} GPUs", evidence=[Evidence("NVML", "x")], subject=f"n{count}") for count in (1, 2)
    )
    assert "P1 gpu-bad  n1  1 GPUs" in block(first)[0]
    assert not any("n1 NVML" in line for line in block(first))
    both = block(first, second)
    assert "P1 gpu-bad  n[1-2]  GPU bad" in both[0]
    assert ["n1: 1 GPUs", "n2: 2 GPUs"] == [line.strip() for line in both[1:3]]
    assert ["saw: n1 NVML: x", "saw: n2 NVML: x"] == [line.strip() for line in both[3:5]]
