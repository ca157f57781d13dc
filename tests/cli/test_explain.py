"""``hpslurm explain``: every word that hpslurm prints can be looked up, and is laid out for a terminal."""

from __future__ import annotations

import re

import pytest
from click.testing import CliRunner

from hpslurm.cli.explain import command, formatted
from hpslurm.core import references
from hpslurm.node import xid_table
from hpslurm.scan import model
from hpslurm.show import explain


def shown(*words: str, code: int = 0, env: dict[str, str] | None = None) -> str:
    done = CliRunner().invoke(command, words, env=env or {"COLUMNS": "100"})
    assert code == done.exit_code, done.output
    return done.output


def test_a_finding_comes_with_its_section_and_without_the_ids_of_all_others():
    text = shown("memlock-low")
    assert text.startswith("memlock-low\n\ndebugging-guide.md § 17  Locked memory and shared memory\n")
    assert "Findings:" not in text


def test_a_finding_that_an_item_of_the_section_is_about_begins_with_it():
    text = explain.explain("busbw-over-tcp")
    assert text.index("`busbw-over-tcp`: a run of nccl-tests") < text.index("## debugging-guide.md § 13")


def test_a_number_is_an_xid():
    text = shown("79")
    assert text.startswith("XID 79: The driver can no longer reach the GPU over PCIe\n")
    assert " • priority: P0\n" in text
    assert "debugging-guide.md § 7  Node hardware" in text
    assert text == shown("xid-79") == shown("XID", "79") == shown("Xid79")


def test_a_number_of_a_section_is_the_section_and_names_the_xid():
    text = shown("13")
    assert text.startswith("As an XID, 13 is something else: hpslurm explain xid-13.\n")
    assert "debugging-guide.md § 13  TCP fallback" in text
    assert shown("xid-13").startswith("XID 13: ")


def test_a_number_of_the_switch_is_an_sxid():
    assert shown("20034").startswith("SXID 20034: ")


def test_a_cause_comes_with_steps_the_lines_that_show_it_and_the_section():
    text = shown("gpu_fell_off_bus")
    order = ["What a person could do", "srun -w NODE lspci -d 10de:", "Lines that show it", "debugging-guide.md § 7"]
    places = [text.index(one) for one in order]
    assert sorted(places) == places


@pytest.mark.parametrize("words", ["§ 17", "17", "debugging-guide.md § 17", "debugging-guide 17"])
def test_a_section_has_several_names(words):
    assert "debugging-guide.md § 17  Locked memory and shared memory" in shown(*words.split())


def test_a_member_of_a_family_has_the_family_s_section():
    assert "§ 7  Node hardware" in shown("xid-unknown")
    assert shown("xid-119").startswith("XID 119: ")


def test_a_word_that_nobody_knows_gets_suggestions():
    assert "Did you mean memlock-low" in shown("memlok-low", code=2)
    assert "fabric-manager-down" in shown("fabric-mangaer", code=2)


def test_a_word_that_is_like_nothing_is_told_how_to_list():
    assert "nothing is known of 'zzzz'. All sections: hpslurm explain" in shown("zzzz", code=2)


def test_a_number_that_no_table_has_gets_no_meaning():
    assert "nothing is known of '9999'" in shown("9999", code=2)


def test_without_a_word_all_sections_are_listed():
    lines = shown().splitlines()
    assert "debugging-guide.md § 1  Timeouts and rendezvous" in lines
    assert 21 <= len(lines)


def test_every_id_cause_and_code_can_be_explained():
    ids = {one.replace("*", "x") for section in references.sections() for one in section.findings}
    codes = [row.id for table in (xid_table.xids(), xid_table.sxids()) for row in table.values()]
    assert [] == [one for one in [*ids, *model.causes(), *codes] if not explain.explain(one)]


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_every_section_fits_its_width(width):
    for section in references.sections():
        if section.file == "operations.md" or section.number is None:
            text = formatted(explain.explain(section.name) or section.text, width, colour=False)
            assert [] == [line for line in text.splitlines() if len(line) > width]


def test_colours_are_for_terminals_that_want_them():
    assert "\x1b[" in formatted("# a\n\n**b**", 80, colour=True)
    assert "\x1b" not in formatted("# a\n\n**b**", 80, colour=False)


def test_markdown_is_the_text_as_written():
    assert re.match(r"# memlock-low\n\n## debugging-guide.md § 17  ", shown("memlock-low", "--markdown"))


@pytest.mark.parametrize("words", ["9" * 5000, "§ " + "9" * 5000, "operations.md § " + "9" * 5000, "-5", "--5"])
def test_a_number_that_nothing_has_is_not_known(words: str):
    assert "nothing is known of" in shown("--", words, code=2)
