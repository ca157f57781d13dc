"""Numbers, names, dates and whose a file may be: at each limit and one step beside it."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from hpslurm.core import nodeset, notice, policy, records
from hpslurm.core.finding import P0, Rule
from hpslurm.core.probe import PASS, Result
from hpslurm.core.text import clean

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to others")


def test_numbers_from_zero_on_are_one_range() -> None:
    assert ["n[0-1,3]"] == list(nodeset._ranges(["n0", "n1", "n3"]))


@pytest.mark.parametrize("stars, why", [(4, ""), (5, "5 stars, 4 at most")])
def test_a_list_has_four_stars_at_most(stars: int, why: str) -> None:
    assert why == nodeset.trouble("n" + "*" * stars)


@pytest.mark.parametrize("text, date", [("0001-01-01", True), ("0000-01-01", False), ("2024-02-30", False)])
def test_there_was_no_year_0(text: str, date: bool) -> None:
    assert date is policy._is_date(text)


def test_only_control_characters_are_taken_out_of_foreign_text() -> None:
    assert 'a!"#b c' == clean('a!"#b\x1fc')


@needs_root
@pytest.mark.parametrize("uid, refused", [(0, False), (1, True), (65534, True)])
def test_a_file_of_anybody_else_is_refused(uid: int, refused: bool, tmp_path: Path) -> None:
    (tmp_path / "a").touch(0o600)
    os.chown(tmp_path / "a", uid, 0)
    if refused:
        with pytest.raises(PermissionError, match=f"owned by uid {uid}"):
            records.refuse_foreign(f"{tmp_path}/a")
    else:
        records.refuse_foreign(f"{tmp_path}/a")


@needs_root
@pytest.mark.parametrize("gid, given", [(-1, 1234), (0, 0), (1000, 1000)])
def test_a_record_is_given_to_the_jobs_group_even_to_that_of_root(gid: int, given: int, tmp_path: Path) -> None:
    """In a folder whose group every new file gets."""
    (tmp_path / "jobs").mkdir()
    os.chown(tmp_path / "jobs", 0, 1234)
    (tmp_path / "jobs").chmod(0o2755)
    records.Writer(str(tmp_path), "n1", "prolog", "77", gid).close()
    notice.leave(f"{tmp_path}/jobs", "n1", "77", gid, [Rule("efa-missing", P0, "t", "x").found("d")])
    paths = ("jobs/77", "jobs/77/n1.prolog.jsonl", "jobs/n1.told")
    assert [given] * 3 == [(tmp_path / path).stat().st_gid for path in paths]


@pytest.mark.parametrize("seconds, due", [(86_390, False), (86_410, True)])
def test_old_records_are_removed_once_a_day(seconds: float, due: bool, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    mark.touch()
    os.utime(mark, (time.time() - seconds,) * 2)
    assert due is records._is_due(str(mark))


def test_no_link_is_followed_to_note_when_records_were_removed(tmp_path: Path) -> None:
    (tmp_path / "mark").symlink_to(tmp_path / "victim")
    os.utime(tmp_path / "mark", (0, 0), follow_symlinks=False)
    with pytest.raises(OSError, match="symbolic links"):
        records._is_due(f"{tmp_path}/mark")
    assert not (tmp_path / "victim").exists()


def test_what_is_no_folder_is_not_cleaned(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    with pytest.raises(NotADirectoryError):
        records._in_folder(f"{tmp_path}/a", lambda folder: None)


def test_a_record_is_read_with_its_facts_unless_somebody_wants_it_brief() -> None:
    result = Result("memlock", PASS, "", 0.001, {"soft": 3})
    text = "".join(records.encode(line) + "\n" for line in records.lines(policy.Policy(), {}, "prolog", [result]))
    assert [{"soft": 3}] == [one.facts for one in records.parse(text, "n1", "prolog").results]
    assert [None] == [one.facts for one in records.parse(text, "n1", "prolog", brief=True).results]
