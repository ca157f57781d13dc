"""What the mutation run changes, and which tests it asks."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import mutants

BOUNDS = "tests/cluster/test_thresholds.py"
TEXT = """\
import os
import sys

LIMIT = 8 << 20
RULE = Rule("a", gateable=True)
TYPE_CHECKING = False

class Policy:
    share: float = 0.8

def read(path, most: int = 9):
    rows = line[3].split()[:7]
    if sys.version_info >= (3, 11) and len(rows) > 2:
        os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, 0o640)
    "é"; assert rows[0] == -1
"""


def told(text: str) -> list[tuple[int, str, str]]:
    return [(change.line, change.old, change.new) for change in mutants.changes("hpslurm/x.py", text)]


def test_constants_defaults_comparisons_masks_and_flags_are_changed_and_nothing_else() -> None:
    assert [
        (4, "8", "9"),
        (4, "20", "22"),
        (5, "True", "False"),
        (9, "0.8", "0.88"),
        (11, "9", "10"),
        (13, "2", "3"),
        (14, "os.O_NOFOLLOW", "0"),
        (14, "0o640", "0o240"),
        (14, "0o640", "0o600"),
        (15, "1", "2"),
    ] == told(TEXT)


def test_a_change_is_made_at_its_place_though_the_line_holds_letters_of_several_bytes() -> None:
    (change,) = mutants.changes("x.py", 'é = ("é", 5)\n')
    assert 'é = ("é", 6)\n' == mutants.changed('é = ("é", 5)\n'.encode(), change).decode()


def test_a_module_is_tried_with_the_tests_of_its_name_and_the_machines_of_its_findings() -> None:
    assert "tests/core/test_records.py" == mutants.tests_of("hpslurm/core/records.py")[0]
    chosen = mutants.tests_of("hpslurm/node/mtu.py")
    assert {"tests/node/test_thresholds.py", f"{mutants.SHOWS}[p5-healthy]", f"{mutants.SHOWS}[p5-mtu-small]"} <= set(
        chosen
    )
    assert f"{mutants.SHOWS}[p5-shm-small]" not in chosen


def test_every_module_of_the_package_has_tests() -> None:
    modules = [path.relative_to(mutants.CHECKOUT) for path in Path(mutants.CHECKOUT, "hpslurm").glob("*/**/*.py")]
    without = [str(path) for path in modules if not mutants.tests_of(path.as_posix())]
    assert [] == [path for path in without if mutants.changes(path, Path(mutants.CHECKOUT, path).read_text("utf-8"))]


def test_a_module_that_no_test_imports_is_tried_through_those_that_need_it() -> None:
    assert "tests/core/test_policy.py" in mutants.tests_of("hpslurm/core/expected.py")
    assert "tests/bundle/test_collect.py" in mutants.tests_of("hpslurm/bundle/of_machine.py")


def test_the_tests_of_a_longer_name_are_another_modules() -> None:
    tests = mutants.tests_of("hpslurm/cluster/history.py")
    assert {"tests/cluster/test_history.py", BOUNDS} <= set(tests)
    assert {"tests/cluster/test_history_jobs.py", "tests/cluster/test_history_view.py"}.isdisjoint(tests)


def test_what_a_modules_own_tests_do_not_notice_the_others_of_the_folder_and_its_users_tests_may() -> None:
    others = mutants.others_of("hpslurm/job/report.py")
    assert {"tests/job/test_cause.py", "tests/cli/test_first_screen.py"} <= set(others)
    assert set(others).isdisjoint(mutants.tests_of("hpslurm/job/report.py"))


def test_what_no_test_can_see_stands_where_it_is_said_to_and_is_little(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {path: Path(mutants.CHECKOUT, path).read_text("utf-8") for path in mutants.SAME}
    with_it = {path: len(mutants.changes(path, text)) for path, text in texts.items()}
    listed = {path: sorted(pieces) for path, pieces in mutants.SAME.items()}
    assert listed == {path: [piece for piece in pieces if piece in texts[path]] for path, pieces in listed.items()}
    monkeypatch.setattr(mutants, "SAME", {})
    without = {path: len(mutants.changes(path, text)) for path, text in texts.items()}
    assert [] == [path for path in texts if without[path] - with_it[path] < len(listed[path])]
    assert sum(without.values()) - sum(with_it.values()) <= 80  # of some 1,500
