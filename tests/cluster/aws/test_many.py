"""Findings of which there are many in the same words are told in common words."""

from __future__ import annotations

import pytest

from hpslurm.cluster.aws.many import Told, folded
from hpslurm.core.finding import LOOK, P1, Rule, Suggestion

FAULT = Rule("agent-fault", P1, "t", "r")
COMMON = (Suggestion(LOOK, "all of them"),)
NOW = 10_000.0


def told(number: int, gist: str = "asks for a reboot") -> Told:
    return Told(FAULT.found(f"i-{number}", subject=f"n{number}"), gist, NOW - 60 * number, COMMON)


@pytest.mark.parametrize(("count", "common"), [(3, False), (4, True)])
def test_up_to_three_are_told_one_by_one(count: int, common: bool) -> None:
    found = list(folded([told(number) for number in range(1, count + 1)], NOW))
    words = f"{count} of a kind, the last 1 minutes ago: asks for a reboot"
    assert [words if common else f"i-{number}" for number in range(1, count + 1)] == [one.detail for one in found]
    assert {COMMON if common else ()} == {one.suggestions for one in found}


def test_others_of_another_kind_do_not_count() -> None:
    found = list(folded([*(told(number) for number in range(3)), told(9, "asks for a replacement")], NOW))
    assert ["i-0", "i-1", "i-2", "i-9"] == [one.detail for one in found]
