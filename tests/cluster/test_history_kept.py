"""What history kept is believed for three days."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hpslurm.cluster import keeps_failing
from hpslurm.cluster.history_kept import kept
from hpslurm.cluster.model import Gathered, Members
from hpslurm.core.probe import Skip

NOW = 1_796_000_000.0


def write(folder: Path, when: float) -> str:
    folder.mkdir()
    (folder / "history.jsonl").write_text(json.dumps({"type": "run", "time": when}) + "\n")
    return str(folder)


@pytest.mark.parametrize(("age", "believed"), [(3 * 86400, True), (3 * 86400 + 1, False)])
def test_verdicts_are_believed_for_three_days(tmp_path: Path, age: int, believed: bool) -> None:
    gathered = Gathered(Members((), NOW), results=(write(tmp_path / "a", NOW - age),))
    if believed:
        keeps_failing.collect(gathered)
    else:
        with pytest.raises(Skip, match="3 days old"):
            keeps_failing.collect(gathered)


def test_of_several_folders_the_newest_counts(tmp_path: Path) -> None:
    folders = [write(tmp_path / "a", NOW - 2), write(tmp_path / "b", NOW - 1), write(tmp_path / "c", NOW - 3)]
    newest = kept(folders)
    assert newest is not None
    assert NOW - 1 == newest.time
    assert None is kept([str(tmp_path)])
