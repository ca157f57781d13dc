"""The first screen: it fits, whatever it is given, and says what was left out."""

from __future__ import annotations

import click
from hypothesis import given, settings
from hypothesis import strategies as st

from hpslurm.core.finding import P0, P1, P2, Rule
from hpslurm.show import screen
from hpslurm.show.plan import Plan, Step, Trouble
from hpslurm.show.render import NotChecked, as_wide_as
from hpslurm.show.screen import COLUMNS, LINES, Screen

WORDS = st.text("abc … é§·-", max_size=300)
NAMES = st.lists(st.integers(0, 10**6).map("ip-10-1-0-{}".format), max_size=30, unique=True).map(tuple)
TROUBLES = st.builds(
    lambda level, words, by: Trouble(Rule(f"rule-{level.lower()}", level, "t", "r"), words, by),
    st.sampled_from([P0, P1, P2]),
    WORDS,
    st.sampled_from(["", "n7"]),
)
STEPS = st.builds(Step, st.sampled_from(["look", "drain", "replace"]), WORDS, WORDS, NAMES, st.just(("rule",)))
PLANS = st.builds(
    Plan, NAMES, st.lists(TROUBLES, min_size=1, max_size=5).map(tuple), st.lists(STEPS, max_size=9).map(tuple), WORDS
)
SCREENS = st.builds(
    Screen,
    st.sampled_from(["FAIL", "WARN", "PASS"]),
    WORDS,
    st.lists(st.tuples(st.sampled_from(["Saw", "Victims", "Again", "Next", "Seen"]), WORDS), max_size=7).map(tuple),
    st.lists(PLANS, max_size=60).map(tuple),
    st.lists(PLANS, max_size=10).map(tuple),
    notes=st.lists(st.builds(NotChecked, WORDS, WORDS, NAMES), max_size=9).map(tuple),
    warnings=st.lists(WORDS, max_size=5).map(tuple),
    last=WORDS,
    more=st.lists(WORDS, max_size=4).map(tuple),
    between=st.lists(st.text("abc ", max_size=COLUMNS), max_size=18).map(tuple),
    below=st.lists(st.text("abc ", max_size=COLUMNS), max_size=12).map(tuple),
)


@settings(max_examples=25, deadline=None)
@given(SCREENS)
def test_any_screen_fits(one: Screen) -> None:
    with as_wide_as(COLUMNS):
        lines = list(map(click.unstyle, screen.lines(one)))
    assert sum(max(1, -(-len(line) // COLUMNS)) for line in lines) <= LINES
    assert [] == [line for line in lines if len(line) > COLUMNS and not line.startswith(" " * 9)]


def plan(number: int, level: str = P0) -> Plan:
    return Plan((f"n{number}",), (Trouble(Rule("gpu-lost", level, "t", "r"), f"GPU {number}"),), ())


def test_rows_that_do_not_fit_are_counted() -> None:
    with as_wide_as(100):
        lines = screen.lines(Screen("FAIL", "x", plans=tuple(map(plan, range(100)))))
    assert len(lines) == LINES
    assert lines[-1] == "… and 64 rows more, 64 nodes (64 P0): -v has them"


def of(words: str, *nodes: str) -> Plan:
    return Plan(nodes, (Trouble(Rule("node-drained", P1, "t", "r"), words),), ())


def test_rows_that_read_the_same_once_they_are_cut_are_one_row_and_others_stay() -> None:
    far = "x " * 200
    pair = of(f"{far} one", "n1", "n2"), of(f"{far} other", "n4")
    with as_wide_as(100):
        same = [line for line in screen.lines(Screen("FAIL", "x", plans=pair)) if " P1 " in line]
        unlike = screen.lines(Screen("FAIL", "x", plans=(*pair, of("y", "n5"), of("z", "n6"))))
    assert ["n[1-2,4]"] == [line.split()[0] for line in same]
    assert ["n[1-2,4]", "n5", "n6"] == [line.split()[0] for line in unlike if " P1 " in line]


def test_the_first_line_uses_the_whole_width() -> None:
    with as_wide_as(100):
        fits, longer = (screen.lines(Screen("FAIL", "x" * count)) for count in (93, 94))
    assert (1, 2) == (len(fits), len(longer))


def test_what_is_wanted_least_is_left_out_of_six_lines() -> None:
    long = "word " * 30
    fields = tuple((name, long) for name in ("Saw", "Victims", "Missing", "Seen"))
    made = screen.verdict(Screen("FAIL", long, (*fields, ("Next", "sudo reboot"))), 100)
    assert len(made) <= screen.MOST_VERDICT
    assert "Next      sudo reboot" in made
    assert not [line for line in made if line.startswith(("Seen", "Missing"))]


def test_a_command_that_is_too_long_for_a_line_is_left_out_and_never_cut() -> None:
    made = screen.verdict(Screen("FAIL", "x", (("Next", "sudo " + "y" * 100),)), 100)
    assert 1 == len(made)


def test_one_reason_for_many_checks_is_one_line() -> None:
    notes = tuple(NotChecked(f"check{number}", "GPU 6 is lost", ("n2",)) for number in range(9))
    with as_wide_as(100):
        lines = screen.lines(Screen("WARN", "x", notes=notes))
    assert "check0, check1, check2 and 6 more not checked on n2: GPU 6 is lost" in lines[-1]


def test_a_list_of_nodes_for_a_command_is_quoted_or_counted() -> None:
    assert "--exclude='n[1-3]'" == screen.keep_out(["n1", "n2", "n3"])
    many = [f"ip-10-{number}-1-{number * 7 % 250}" for number in range(50)]
    assert "50 nodes, those with P0 below" == screen.keep_out(many)
    assert "" == screen.keep_out([])
