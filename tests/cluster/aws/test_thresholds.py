"""Times and numbers of what HyperPod says: at each one and a step beside it."""

from __future__ import annotations

import pytest

from hpslurm.cluster.aws import events, hyperpod, whom
from hpslurm.cluster.model import Group


@pytest.mark.parametrize("word, stem", [("users", "user"), ("uses", "uses"), ("creation", "creat"), ("node", "node")])
def test_four_letters_of_a_word_stay(word: str, stem: str) -> None:
    assert stem == events._stem(word)


@pytest.mark.parametrize("ahead, words", [(60, "0 minutes ago"), (61, "just now (its clock, or this one, is wrong")])
def test_a_clock_may_be_ahead_by_a_minute(ahead: float, words: str) -> None:
    assert hyperpod.ago(0.0, ahead).startswith(words)


def test_a_patch_waits_a_day_for_idle_nodes_as_the_api_says() -> None:
    told = [hyperpod._patching({"PatchingStrategy": "x", **more}) for more in ({}, {"IdleWaitWindowInSeconds": 60})]
    assert [86400.0, 60.0] == [patching.waits for patching in told if patching]


def test_logs_of_two_hours_are_read() -> None:
    assert 2 * 3600 == whom.Options().since


def test_no_group_is_of_spot_instances_unless_hyperpod_says_so() -> None:
    assert not Group("workers", "p5.48xlarge", "InService", 1, 1).spot
