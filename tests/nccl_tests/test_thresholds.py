"""Lines of the judge and figures of the search: at each one and a step beside it."""

from __future__ import annotations

import json
import math
from types import SimpleNamespace
from typing import Any

import pytest

from hpslurm.core.values import replace
from hpslurm.nccl_tests import (
    baseline,
    halving,
    html_page,
    judge,
    likelihood,
    rules,
    runs,
    search,
    sizes,
    steps,
    stopped,
    view,
    weigh,
)
from hpslurm.nccl_tests.likelihood import Doubtful, Explanation, Noise
from hpslurm.nccl_tests.runs import Options
from hpslurm.nccl_tests.verdict import Size
from hpslurm.scan import nccl_tests
from hpslurm.scan.nccl_tests import Output

TCP, HALF, NVLS, HOST_MEMORY = "TCP", "a half on a pair", "NVLS", "host memory"


@pytest.mark.parametrize(
    ("nodes", "ratio", "words"),
    [
        (2, 0.02, TCP),
        (2, 0.021, ""),
        (16, 0.02, TCP),
        (1, 0.02, HOST_MEMORY),
        (2, 0.449, ""),
        (2, 0.45, HALF),
        (2, 0.62, HALF),
        (2, 0.621, ""),
        (3, 0.5, ""),
        (1, 0.299, HOST_MEMORY),
        (1, 0.3, ""),
        (1, 0.719, ""),
        (1, 0.72, NVLS),
        (1, 0.86, NVLS),
        (1, 0.861, ""),
        (2, 0.8, ""),
    ],
)
def test_what_a_share_of_the_bandwidth_usually_means(nodes: int, ratio: float, words: str) -> None:
    said = sizes.signature(ratio, nodes, "p5.48xlarge")
    assert words in said if words else not said, said


@pytest.mark.parametrize(
    ("count", "more", "wanted"),
    [
        (1, 0, 8.0),
        (12, 0, 8.0),
        (13, 0, math.log(13) + 5.5),
        (1000, 0, math.log(1000) + 5.5),
        (1000, 2, math.log(1000) + 7.5),
    ],
)
def test_the_price_is_that_of_one_in_so_many_at_odds_of_245_to_1(count: int, more: float, wanted: float) -> None:
    assert pytest.approx(wanted) == likelihood.price(count, more)


def test_no_run_says_more_than_that_one_healthy_run_in_a_thousand_is_slow_by_anything() -> None:
    assert pytest.approx(1000.0) == likelihood.GRAVE
    assert pytest.approx(1000 / -math.log(0.05)) == Noise(100.0, 0.02).ratio(0.0)


@pytest.mark.parametrize(("sigma", "least"), [(0.02, 0.05), (0.0277, 0.05), (0.03, 0.054), (0.05, 0.09)])
def test_what_lacks_less_than_a_twentieth_or_less_than_the_noise_is_fast(sigma: float, least: float) -> None:
    assert pytest.approx(least) == Noise(100.0, sigma).least


def test_faults_that_come_and_go_are_looked_for_at_three_rates() -> None:
    of_all = [
        Explanation([Doubtful(2.0, "a")], lambda key: 0, lambda key: 8.0, at_times).often for at_times in (False, True)
    ]
    assert [(0.999,), (0.999, 0.7, 0.5, 0.3)] == of_all


def explained(*ratios: float, price: float = 8.0) -> Explanation[str]:
    """Each run touches a alone; its partners are others each time."""
    runs = [Doubtful(ratio, ("a", f"b{number}")) for number, ratio in enumerate(ratios)]
    return Explanation(runs, lambda key: 0, lambda key: price, False)


@pytest.mark.parametrize(("gain", "named"), [(4.05, ["a"]), (3.9, [])])
def test_who_gains_more_than_the_price_is_named(gain: float, named: list[str]) -> None:
    assert named == list(explained(math.exp(gain), math.exp(gain)).named)


@pytest.mark.parametrize(("gain", "suspect"), [(1.01, True), (0.99, False)])
def test_who_gains_as_much_as_one_nat_is_looked_at_again(gain: float, suspect: bool) -> None:
    assert suspect == ("b0" in explained(math.exp(gain)).suspects())


def test_what_quick_and_full_mean() -> None:
    quick = {"sweeps": 1, "at_times": False, "retest_rounds": 8, "rails": 0, "rail_passes": 1}
    assert {**quick, "alone": True, "scale": True, "seed": 0} == runs.QUICK.__dict__
    full = {"sweeps": 12, "at_times": True, "retest_rounds": 24, "rail_passes": 10}
    assert replace(runs.QUICK, **full) == runs.FULL


ONLY = Options(retest_rounds=0, alone=False, scale=False)


@pytest.mark.parametrize(
    ("nodes", "options", "rounds", "waves"),
    [
        (1, ONLY, 0, 0),
        (2, ONLY, 1, 1),
        (3, ONLY, 2, 2),
        (16, replace(ONLY, scale=True), 1 + 1 + 3 * 4, 1 + 1 + 3 * 4),  # all together, then each halving three times
        (4, replace(ONLY, scale=True), 1 + 1 + 3 * 2, 1 + 1 + 3 * 2),
        (3, replace(ONLY, scale=True), 2, 2),
        (16, replace(ONLY, rails=8), 1 + 8 + 6, 1 + 8 + 6),  # each rail once, and twice three rounds to be sure
        (16, replace(ONLY, rails=8, rail_passes=10), 1 + 80 + 6, 1 + 80 + 6),
        (16, replace(ONLY, rails=1), 1, 1),
        (16, replace(ONLY, retest_rounds=8), 9, 9),
    ],
)
def test_a_search_costs_at_most(nodes: int, options: Options, rounds: int, waves: int) -> None:
    bound = search.bound(nodes, options, 64, 60)
    assert (rounds, waves) == (bound.rounds, bound.waves)


def test_eight_accused_and_three_good_nodes_are_looked_into() -> None:
    assert 500 + 11 == search.bound(1000, replace(ONLY, alone=True), 1, 60).waves
    assert 500 + 8 * 14 == search.bound(1000, replace(ONLY, rails=8), 1, 60).waves


@pytest.mark.parametrize(
    ("value", "weight"), [(98.0, 0.0), (95.0, 0.0), (94.9, 0.75), (90.0, 0.75), (89.9, 1.0), (87.0, 1.0), (86.9, 1.5)]
)
def test_how_much_a_comparison_says(value: float, weight: float) -> None:
    assert weight == halving._weight(value, [95.0, 90.0, 87.0])


def test_scatter_is_kept_between_two_and_five_percent() -> None:
    assert Noise(0.0, 0.05) == weigh._noise([])
    alike = weigh._noise([100.0] * 100)
    assert (pytest.approx(0.025), pytest.approx(100 / (1 - 0.319 * 0.025))) == (alike.sigma, alike.normal)
    assert pytest.approx(0.02) == weigh._noise([100.0] * 1000).sigma
    assert pytest.approx(0.05) == weigh._noise([100.0, 50.0, 40.0, 30.0]).sigma


def test_scatter_follows_from_the_way_between_the_fastest_tenth_and_the_middle() -> None:
    rates = [100 - 3.0 * place / 1000 for place in range(1000)]  # a tenth is above 99.7, the middle at 98.503
    scatter = ((99.7 - 98.503) / 0.549 / 99.2515 * 1000 + 0.05 * 100) / 1100
    noise = weigh._noise(rates)
    assert (pytest.approx(scatter), pytest.approx(99.2515 / (1 - 0.319 * scatter))) == (noise.sigma, noise.normal)


def test_the_newest_fifty_runs_count() -> None:
    own = baseline.summary([1.0, *range(2, 52)])
    assert (26.5, 2, 51, 50) == (own.median, own.low, own.high, own.runs)


def test_spread_is_told_from_three_runs_on_as_a_standard_deviation() -> None:
    assert [0.0, pytest.approx(14.826)] == [baseline.summary(rates).spread for rates in ([90, 110], [90, 100, 110])]


def test_sizes_iterations_and_time_limits_of_the_presets() -> None:
    gib = 1 << 30
    wanted = {"quick": (gib, 8 * gib, 2, 20, 180), "full": (1 << 20, 16 * gib, 2, 50, 900)}
    assert wanted == {name: tuple(preset.__dict__.values()) for name, preset in steps.PRESETS.items()}
    assert (4 * gib, 4 * gib, 2, 20, 120) == tuple(steps.SEARCH.__dict__.values())


@pytest.mark.parametrize(("sigma", "lines"), [(0.02, (0.95, 0.9, 0.87)), (0.05, (0.91, 0.83, 0.78))])
def test_comparisons_have_a_weak_a_strong_and_a_sure_line(sigma: float, lines: tuple[float, ...]) -> None:
    state = runs.State(("a", "b"))
    weighed = weigh.Weighed(runs.observe(state, [runs.Result(runs.Run(runs.PAIR, ("a", "b")), 100.0)]))
    weighed.noise = Noise(100.0, sigma)
    assert pytest.approx(lines) == weighed.shares


@pytest.mark.parametrize(("count", "wanted"), [(3, False), (4, True)])
def test_from_four_nodes_on_all_run_together(count: int, wanted: bool) -> None:
    state = runs.State(tuple(f"n{number}" for number in range(count)))
    kinds = set()
    while planned := search.next_round(state):
        kinds |= {run.kind for run in planned}
        state = runs.observe(state, [runs.Result(run, 100.0) for run in planned])
    assert wanted == (runs.GROUP in kinds)


@pytest.mark.parametrize(("room", "length"), [(60, 30), (31, 30), (30, 29), (9, 8), (8, 0)])
def test_a_bar_has_thirty_characters_and_below_eight_there_is_none(room: int, length: int) -> None:
    assert length == len(view.bar(100.0, None, 100.0, room))


@pytest.mark.parametrize(
    ("step", "rounded"), [(0.05, 0.1), (0.3, 0.5), (0.7, 1.0), (1.0, 1), (1.2, 2), (3, 5), (9, 10), (10, 10), (21, 50)]
)
def test_marks_of_an_axis_are_one_two_or_five_times_a_power_of_ten(step: float, rounded: float) -> None:
    assert pytest.approx(rounded) == html_page._round_step(step)


@pytest.mark.parametrize(
    ("first", "second", "left", "again"),
    [
        (100.0, 100.0, 8, False),  # no difference at first sight: nothing more can be told
        (80.0, 100.0, 8, True),  # weak or strong, it is tried again
        (100.0, 80.0, 8, True),
    ],
)
def test_one_comparison_of_halves_decides_whether_there_is_another(
    first: float, second: float, left: int, again: bool
) -> None:
    nodes = tuple(f"n{number}" for number in range(8))
    halves = halving._halves(nodes, nodes)
    groups = [
        SimpleNamespace(run=runs.Run(runs.GROUP, tuple(names)), value=value)
        for names, value in ((nodes, 90.0), (halves[0], first), (halves[1], second))
    ]
    weighed: Any = SimpleNamespace(state=SimpleNamespace(nodes=nodes), groups=groups, shares=[0.95, 0.9, 0.87])
    candidates, more = halving.halving(weighed)
    assert (left, again) == (len(candidates), more)


@pytest.mark.parametrize(
    ("status", "average", "wrong", "told"),
    [
        (0, None, 0, False),
        (None, None, 0, False),
        (1, None, 0, True),
        (6, None, 0, True),
        (6, False, 0, False),
        (6, None, 1, False),
        (7, False, 0, False),
        (8, False, 0, True),
        (5, False, 0, True),
    ],
)
def test_exit_codes_6_and_7_stand_for_wrong_data_and_averages(
    status: int | None, average: bool | None, wrong: int, told: bool
) -> None:
    table: Any = SimpleNamespace(average_ok=average, rows=[SimpleNamespace(wrong=wrong)], bounds_ok=None)
    facts: Any = SimpleNamespace(status=status, output=Output("out"))
    assert told == (stopped._bad_status(facts, table) is not None)


@pytest.mark.parametrize(("rate", "kept"), [(0.5, 1), (0.0, 0), (-1.0, 0)])
def test_a_baseline_has_a_rate_above_nothing(rate: float, kept: int) -> None:
    row = {"type": "bandwidth", "instance": "p5.48xlarge", "collective": "all_reduce", "nccl": "2.28.7"}
    known = baseline.Baselines("rows")
    line = json.dumps({**row, "nodes": 2, "ranks": 16, "size": 1 << 30, "busbw": rate}).encode()
    assert bool(kept) is baseline._take(line, known)
    assert kept == len(known.rows)


def rows(*sizes: int, algbw: float = 2.0, busbw: float = 2.0) -> nccl_tests.Table:
    half = nccl_tests.Half(1.0, algbw, busbw, 0)
    return nccl_tests.Table(rows=[nccl_tests.Row(size, size // 4, "float", half) for size in sizes])


@pytest.mark.parametrize(
    ("sizes_", "programs"),
    [((8, 8, 16, 16, 32, 32), 2), ((8, 8, 16, 16), 1), ((8, 8, 16, 16, 32), 1), ((8, 16, 32, 8, 16, 32), 1)],
)
def test_three_sizes_that_come_twice_are_of_two_programs(sizes_: tuple[int, ...], programs: int) -> None:
    assert programs == stopped._alone(rows(*sizes_))


@pytest.mark.parametrize(("algbw", "busbw", "programs"), [(2.0, 0.0, 2), (2.0, 0.5, 1), (1.0, 0.0, 1)])
def test_a_program_without_company_is_fast_and_has_no_bus_bandwidth(algbw: float, busbw: float, programs: int) -> None:
    assert programs == stopped._alone(rows(8, 8, algbw=algbw, busbw=busbw))


@pytest.mark.parametrize(("nodes", "command"), [(1, "hpslurm-check"), (2, "--find-slow"), (None, "--find-slow")])
def test_one_node_has_no_slow_one_to_be_found(nodes: int | None, command: str) -> None:
    slow = Size(1 << 30, 100.0, "fail", 400.0, 360.0, 300.0)
    found = sizes._below(rules.FAILED, [slow], (slow,), judge.Facts(nccl_tests.Output("x")), nodes)
    assert command in (found.suggestions[0].command or "")
