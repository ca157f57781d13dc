"""Which faults explain slow runs best, on results made by hand. Runs are pairs; a fault touches runs with its name."""

from __future__ import annotations

import itertools
import math

import pytest

from hpslurm.nccl_tests import likelihood
from hpslurm.nccl_tests.likelihood import ALWAYS, Doubtful, Explanation, Noise, price

SURE = 1000.0  # as slow as only a fault is, or a hiccup


def explain(slow, fast=(), at_times=False, nodes=16, ratio=SURE):
    """``slow`` and ``fast`` are pairs of nodes, each of one letter; the pair itself may be at fault, too."""
    runs = [Doubtful(ratio, (*pair, pair)) for pair in slow]
    count = {key: sum(key in (*pair, pair) for pair in fast) for pair in (*slow, *fast) for key in (*pair, pair)}
    return Explanation(
        runs, count.__getitem__, lambda key: price(nodes if len(key) == 1 else nodes * nodes, 0), at_times
    )


def test_nobody_is_named_for_a_single_slow_run():
    assert {} == explain(["ab"]).named
    assert {"a", "b", "ab"} == set(explain(["ab"]).suspects())


def test_who_is_slow_with_two_partners_is_named_and_they_are_not():
    found = explain(["ab", "ac"], fast=["bd", "cd"])
    assert {"a": ALWAYS} == found.named
    assert set() == found.open
    assert [] == found.suspects()


def test_two_who_are_only_ever_seen_together_stay_open():
    found = explain(["ab", "ab"])
    assert {"a", "b"} & found.open
    assert {"a", "b"} <= set(found.suspects())


def test_a_pair_whose_members_are_fast_with_others_is_named_instead_of_them():
    slow, fast = ["ab"] * 3, ["ac", "ad", "bc", "bd"]
    assert {"ab": ALWAYS} == explain(slow, fast).named


def test_one_fast_run_clears_who_would_always_be_slow():
    assert {} == explain(["ab", "ac"], fast=["ad", "bd", "cd"]).named


def test_one_that_is_slow_in_half_of_its_runs_is_named_where_that_is_looked_for():
    slow, fast = ["ab", "ac", "ad"], ["ae", "af", "ag", "bc", "cd", "bd"]
    assert {} == explain(slow, fast).named
    (often,) = explain(slow, fast, at_times=True).named.values()
    assert 0.3 <= often < ALWAYS


def test_a_slow_run_of_a_named_one_says_nothing_about_the_partner():
    found = explain(["ab", "ac", "ad", "ae", "bf"], fast=["cd", "ef"])
    assert ["a"] == list(found.named)
    assert found.gain("b") < 8  # one run of its own, "bf"


def test_an_exchange_finds_the_one_that_explains_what_two_others_seemed_to():
    """a and b look best at first sight, but e and its partners explain all with less."""
    slow = ["ea", "ea", "eb", "eb", "ec", "ed"]
    assert ["e"] == list(explain(slow, fast=["ac", "bd", "cd"]).named)


def test_runs_that_are_hardly_slow_need_to_be_many():
    few, many = ["ab", "ac"], ["ab", "ac", "ad", "ae", "af"]
    fast = ["bc", "cd", "de", "ef"]
    assert [0, 1] == [len(explain(slow, fast, ratio=8.0).named) for slow in (few, many)]


@pytest.mark.parametrize("nodes", [2, 16, 1024])
def test_the_price_grows_with_the_number_of_those_it_could_have_been(nodes):
    assert price(nodes) >= likelihood.LEAST_PRICE > math.log(1 / likelihood.HICCUP)
    assert price(nodes) <= price(nodes * 2)


def test_the_slower_a_run_the_more_it_says_up_to_a_hiccup():
    noise = Noise(478.0, 0.05)
    ratios = [noise.ratio(478.0 * share) for share in (0.9, 0.85, 0.8, 0.75)]
    assert sorted(ratios) == ratios
    assert ratios[0] < 5


@pytest.mark.parametrize("sigma", [0.02, 0.05])
def test_no_run_says_enough_to_name_somebody_by_itself(sigma):
    ratios = [Noise(478.0, sigma).ratio(478.0 * share / 100) for share in range(96)]
    assert max(math.log(ratio) for ratio in ratios) < likelihood.LEAST_PRICE


def test_a_rate_above_normal_is_no_reason_to_divide_by_zero():
    assert math.isfinite(Noise(478.0, 0.05).ratio(500.0))


def test_the_search_for_the_best_set_ends_whatever_the_results_are():
    names = "abcdef"
    pairs = ["".join(pair) for pair in itertools.combinations(names, 2)]
    for seed in range(64):
        slow = [pair for place, pair in enumerate(pairs) if seed >> (place % 6) & 1]
        fast = [pair for place, pair in enumerate(pairs) if seed >> (5 - place % 6) & 1]
        found = explain(slow, fast, at_times=bool(seed % 2))
        assert found.open <= set(found.named)
