"""A check that breaks is a result like any other, and the tables know every check once."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from hpslurm.cluster import checks
from hpslurm.cluster.aws import checks as aws_checks
from hpslurm.cluster.check import row, run
from hpslurm.cluster.model import Gathered, Members
from hpslurm.core.finding import P1, Finding, Rule
from hpslurm.core.policy import Policy
from hpslurm.core.probe import Skip, Unknown
from hpslurm.sources.slurm import Nodes, SlurmNode

RULE = Rule("some-thing", P1, "Something", "operations.md § 7")


def ran(*, collect=lambda source: source, judge, figures=None):
    return run(row("some", SimpleNamespace(collect=collect, judge=judge), figures), 5, Policy())


def found(number: int, policy: Policy) -> Iterator[Finding]:
    yield RULE.found(f"{number}")


def test_what_it_finds_makes_it_fail_and_finding_nothing_makes_it_pass() -> None:
    result = ran(judge=found, figures=lambda source: {"source": source})
    assert ("some", "fail", "5", {"source": 5}) == (
        result.probe,
        result.outcome,
        result.findings[0].detail,
        result.facts,
    )
    assert "pass" == ran(judge=lambda facts, policy: iter(())).outcome


def test_half_a_judgement_keeps_what_it_found_and_says_that_it_is_half() -> None:
    def judge(number: int, policy: Policy) -> Iterator[Finding]:
        yield from found(number, policy)
        raise Unknown("the rest was denied")

    result = ran(judge=judge)
    assert ("fail", "the rest was denied", 1) == (result.outcome, result.note, len(result.findings))


def test_a_check_that_breaks_is_unknown_with_its_reason() -> None:
    result = ran(collect=lambda source: 1 // 0, judge=found)
    assert ("unknown", "ZeroDivisionError: integer division or modulo by zero") == (result.outcome, result.note)


def test_a_check_with_nothing_to_look_at_is_the_callers_to_word() -> None:
    def collect(source: int) -> int:
        raise Skip("none")

    with pytest.raises(Skip):
        ran(collect=collect, judge=found)


def test_without_slurms_nodes_nothing_of_slurm_is_judged() -> None:
    tables = (*checks.OF_SLURM, *checks.OF_BOTH, *checks.OF_RECORDS)
    assert [] == list(checks.judged(tables, Gathered(Members((), 0.0)), Policy()))
    known = Gathered(Members((), 0.0), Nodes("scontrol text", (SlurmNode("n1", "IDLE"),)))
    assert ["slurm_nodes", "jobs"] == [result.probe for result in checks.judged(tables, known, Policy())]


def test_every_check_has_a_name_of_its_own() -> None:
    rows = [*checks.OF_SLURM, *checks.OF_BOTH, *checks.OF_RECORDS, *checks.of_controller(frozenset())]
    names = [one.name for one in [*rows, *aws_checks.CHECKS]]
    assert sorted(set(names)) == sorted(names)
