"""How the needs of AWS's checks are read: each once, in order, and one failure takes nothing else with it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from hpslurm.cluster.aws import checks
from hpslurm.cluster.aws.view import CLUSTER, Need, Source, View
from hpslurm.core.probe import Skip, Unknown
from hpslurm.sources.aws import THREADS, Aws
from hpslurm.sources.aws_errors import Forbidden

NOBODY = Source(Aws("us-west-2"), "demo", Unknown("grant it"), 0, 0)
NOTHING = View({}, 0, 0)


def read(*needs: Need[Any]) -> View:
    return View(checks.read(NOBODY, NOTHING, needs), 0, 0)


def raises(error: Exception) -> Callable[..., int]:
    def work(*_: object) -> int:
        raise error

    return work


def test_what_two_checks_need_is_read_once() -> None:
    reads: list[str] = []
    need = Need("list", lambda *_: reads.append("list"))
    read(need, Need("more", lambda *_: 1, after=need), need)
    assert ["list"] == reads


def test_what_comes_after_another_finds_its_answer_though_no_check_asked_for_that_one() -> None:
    first = Need("first", lambda *_: 20)
    second = Need("second", lambda _, view: view.get(first) + 1, after=first)
    assert 22 == read(Need("third", lambda _, view: view.get(second) + 1, after=second)).answers["third"]


def test_what_refuses_one_refuses_all_behind_it_and_they_are_not_asked() -> None:
    first = Need("first", raises(Unknown("denied")))
    view = read(Need("second", lambda *_: pytest.fail("asked"), after=first), Need("other", lambda *_: 1))
    assert (0, "denied") == view.maybe(Need("second", lambda *_: 0), 0)
    assert 1 == view.answers["other"]


def test_where_there_is_nothing_of_the_first_the_next_is_asked_all_the_same() -> None:
    first = Need("first", raises(Skip("none here")))
    view = read(Need("second", lambda *_: 2, after=first))
    assert ((0, "none here"), 2) == (view.maybe(first, 0), view.answers["second"])


def test_a_surprise_is_unknown_and_a_forbidden_call_is_not_passed_over() -> None:
    broken = Need("broken", raises(KeyError("x")))
    with pytest.raises(Unknown, match="KeyError: 'x'"):
        read(broken).get(broken)
    with pytest.raises(Forbidden):
        read(Need("off-list", raises(Forbidden("off the list"))))


def test_a_cluster_that_may_not_be_described_says_so_to_all_that_need_it() -> None:
    of_cluster = Need("groups", lambda source, _: source.cluster.groups)
    assert ((), "grant it") == read(of_cluster).maybe(of_cluster, ())
    with pytest.raises(Unknown, match="grant it"):
        read(CLUSTER).get(CLUSTER)


def test_more_needs_than_threads_are_all_read_by_no_more_threads() -> None:
    seen: set[int] = set()
    needs = [Need(f"n{at}", lambda *_: seen.add(threading.get_ident())) for at in range(2 * THREADS + 1)]
    assert {need.name for need in needs} == set(read(*needs).answers)
    assert 1 <= len(seen) <= THREADS


def test_what_nobody_declared_was_not_asked_for() -> None:
    with pytest.raises(Unknown, match="cluster was not asked for"):
        read().get(CLUSTER)
