"""How much stands on a screen and on a page: at each number and one step beside it."""

from __future__ import annotations

import click
import pytest

from hpslurm.core.finding import LOOK, P0, Rule, Suggestion
from hpslurm.show import explain, page, screen
from hpslurm.show.plan import Plan, Step, Trouble, plans
from hpslurm.show.render import NotChecked, as_wide_as
from hpslurm.show.screen import Screen

LOST = Rule("gpu-lost", P0, "GPU lost", "debugging-guide.md § 7")


def plan(number: int, *steps: Step) -> Plan:
    return Plan((f"n{number}",), (Trouble(LOST, f"GPU {number}"),), steps)


def shown(one: Screen, width: int = 200) -> list[str]:
    with as_wide_as(width):
        return list(map(click.unstyle, screen.lines(one)))


def test_a_screen_has_forty_lines_of_a_hundred_columns_on_the_widest_terminal() -> None:
    lines = shown(Screen("FAIL", "x" * 150, plans=tuple(map(plan, range(100)))))
    assert (40, 100) == (len(lines), max(map(len, lines)))


@pytest.mark.parametrize("fields, kept", [(5, 5), (6, 5)])
def test_the_verdict_has_six_lines(fields: int, kept: int) -> None:
    names = ("Cause", "Saw", "Victims", "Missing", "Seen", "Worst")[:fields]
    assert 1 + kept == len(screen.verdict(Screen("FAIL", "x", tuple((name, "y") for name in names)), 100))


@pytest.mark.parametrize("rows, lines", [(12, 2), (13, 1)])
def test_beside_twelve_rows_a_note_has_two_lines(rows: int, lines: int) -> None:
    one = Screen("WARN", "x", plans=tuple(map(plan, range(rows))), warnings=("word " * 60,))
    assert 1 + lines == len(screen._notes(one, 100))


@pytest.mark.parametrize("notes, lines", [(2, 4), (3, 3), (5, 5), (6, 5)])
def test_two_notes_have_two_lines_each_and_more_have_one(notes: int, lines: int) -> None:
    one = Screen("WARN", "x", warnings=tuple(f"{number} {'word ' * 60}" for number in range(notes)))
    assert 1 + lines == len(screen._notes(one, 100))


@pytest.mark.parametrize("letters, words", [(19, "a" * 19 + "[1-3]"), (20, "3 nodes")])
def test_a_list_of_nodes_in_a_note_has_24_columns(letters: int, words: str) -> None:
    note = NotChecked("efa", "no answer", tuple(f"{'a' * letters}{number}" for number in (1, 2, 3)))
    assert f"efa not checked on {words}: no answer" in " ".join(
        " ".join(shown(Screen("WARN", "x", notes=(note,)))).split()
    )


@pytest.mark.parametrize("sick, steps", [(1, True), (2, False)])
def test_the_steps_of_a_single_plan_are_shown(sick: int, steps: bool) -> None:
    step = Step(LOOK, "see it", "nvidia-smi", ("n0",), ("gpu-lost",))
    lines = shown(Screen("FAIL", "x", plans=tuple(plan(number, step) for number in range(sick))))
    assert steps is any("1. look: see it" in line for line in lines)


@pytest.mark.parametrize("word, like", [("efa", True), ("ef", False)])
def test_a_word_of_three_letters_may_be_part_of_another(word: str, like: bool) -> None:
    assert like is any(one.startswith("efa-") for one in explain.suggestions(f"{word} qqqqqqqqqqqq"))


@pytest.mark.parametrize("asked, shown_", [(4, 4), (5, 4)])
def test_four_reasons_for_one_step_are_told(asked: int, shown_: int) -> None:
    found = [
        Rule(f"gpu-{number}", P0, "t", "x").found("d", subject="n1", suggest=[Suggestion(LOOK, f"why {number}", "see")])
        for number in range(asked)
    ]
    (made,) = plans(found)
    (why,) = [step.why for step in made.steps if step.command == "see"]
    assert shown_ == why.count("why")


@pytest.mark.parametrize("nodes, squares", [(5000, 5000), (5001, 5000)])
def test_five_thousand_nodes_are_in_the_picture(nodes: int, squares: int) -> None:
    row = page.Row(*(["n1"] * 9), findings=(), grade="ok")
    assert squares == len(page.picture([row] * nodes))


@pytest.mark.parametrize("rows, words", [(1, "1 row more, 1 node (1 P0)"), (2, "2 rows more, 2 nodes (2 P0)")])
def test_one_row_is_no_rows(rows: int, words: str) -> None:
    assert f"… and {words}: -v has them" == screen._left_out(list(map(plan, range(rows))))


@pytest.mark.parametrize("length", [75, 76])
def test_a_list_of_nodes_in_the_verdict_has_75_columns(length: int) -> None:
    """With its option, --exclude='n[1-3]'."""
    prefix = "n" * (length - len("--exclude='[1-3]'"))
    told = screen.keep_out([f"{prefix}{number}" for number in (1, 2, 3)])
    assert (f"--exclude='{prefix}[1-3]'" if length == 75 else "3 nodes, those with P0 below") == told
