"""Every cause leads to a section that names it, and the quick reference says what the table says."""

from __future__ import annotations

import pytest

from hpslurm.core import references
from hpslurm.core.finding import HARMS, Culprit
from hpslurm.scan import advice, model, quickref
from hpslurm.scan.checks import CHECKS
from hpslurm.scan.patterns import table

CAUSES = list(model.causes())
ROWS = table().patterns


@pytest.mark.parametrize("cause", CAUSES)
def test_the_section_of_a_cause_names_it(cause: str):
    section = references.of_finding(cause)
    assert section is not None
    assert f"debugging-guide.md § {model.causes()[cause].section}" == section.name


def test_no_section_names_a_cause_that_does_not_exist():
    named = {
        one for section in references.sections() for one in section.findings if "-" not in one and not one.endswith("*")
    }
    assert set() == named - set(CAUSES)


def test_every_pattern_has_a_known_cause_section_and_check():
    numbers = {section.number for section in references.sections() if section.file == "debugging-guide.md"}
    for row in ROWS:
        assert row.role == "noise" or row.cause in (*CAUSES, "undetermined"), row.id
        assert row.role == "noise" or row.section in numbers, row.id
        assert not row.check or row.check in CHECKS, row.id


def test_what_a_pattern_beats_exists():
    known = {row.id for row in ROWS} | set(CAUSES)
    assert {} == {row.id: row.beats - known for row in ROWS if row.beats - known}


def test_the_quick_reference_is_current():
    path = references.folder() / "error-patterns-quick-ref.md"
    assert quickref.text() == path.read_text(encoding="utf-8"), (
        "run: python -m hpslurm.scan.quickref > references/error-patterns-quick-ref.md"
    )


@pytest.mark.parametrize("cause", CAUSES)
def test_suggestions_are_known_steps_and_take_no_foreign_host_name_unchecked(cause: str):
    evil = "x; rm -rf /"
    for item in advice.suggest(cause, Culprit(host=evil)):
        assert item.harm in HARMS
        assert evil not in item.command
    for item in advice.suggest(cause, Culprit(host="ip-10-1-0-7")):
        assert "{node" not in item.command
