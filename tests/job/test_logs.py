"""Logs for a bundle: from both ends, unpacked, and with no more rights than their owner has."""

from __future__ import annotations

import gzip
import os
import pickle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpslurm.job import logs
from hpslurm.job.logs import Log
from hpslurm.scan import joblog
from hpslurm.scan.collect import Collector
from hpslurm.sources.userfile import Taken

NOBODY = 65534
OOM = "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB.\n"
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root reads with the rights of others")


def look(*paths: Path, job: joblog.Job | None = None) -> tuple[list[Log], dict[str, str], list[str]]:
    collector = Collector()
    found, missing = logs.look([str(path) for path in paths], job, collector)
    return found, {os.path.basename(path): why for path, why in missing}, [one.cause for one in collector.result()]


def test_a_log_is_read_and_scanned(tmp_path: Path) -> None:
    (tmp_path / "job.out").write_text(f"step 1\n{OOM}")
    found, missing, causes = look(tmp_path / "job.out")
    assert [f"step 1\n{OOM}"] == [one.text for one in found]
    assert {} == missing
    assert "gpu_oom" in causes


def test_a_packed_log_is_unpacked(tmp_path: Path) -> None:
    (tmp_path / "job.out.gz").write_bytes(gzip.compress(OOM.encode()))
    found, _, causes = look(tmp_path / "job.out.gz")
    assert [(OOM, "unpacked")] == [(one.text, one.note) for one in found]
    assert "gpu_oom" in causes


def test_what_cannot_be_read_is_named_with_the_reason_and_takes_nothing_along(tmp_path: Path) -> None:
    (tmp_path / "good").write_text("fine\n")
    (tmp_path / "link").symlink_to(tmp_path / "good")
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "bad.gz").write_bytes(b"\x1f\x8b\x08\x00broken")
    (tmp_path / "core").write_bytes(b"\x7fELF\x02\0\0\0")
    (tmp_path / "dump").write_bytes(pickle.dumps({"not": "a recorder"}))
    found, missing, _ = look(*(tmp_path / name for name in ("gone", "link", "fifo", "bad.gz", "core", "dump", "good")))
    assert ["fine\n"] == [one.text for one in found]
    assert {"gone", "link", "fifo", "bad.gz", "core", "dump"} == set(missing)
    assert "No such file" in missing["gone"]
    assert "a link, which is not followed" == missing["link"]
    assert "not a regular file" in missing["fifo"]
    assert "cannot be masked" in missing["core"]


@needs_root
def test_root_does_not_follow_a_users_folder_to_what_the_user_may_not_read(tmp_path: Path) -> None:
    secret = tmp_path / "root-only"
    secret.mkdir(mode=0o700)
    (secret / "shadow").write_text("root's secret\n")
    home = tmp_path / "alice"
    home.mkdir()
    (home / "logs").symlink_to(secret)
    (home / "own.log").write_text("alice's line\n")
    for path in (home, home / "own.log"):
        os.chown(path, NOBODY, NOBODY)
    os.chmod(home, 0o755)
    for path in (tmp_path, *tmp_path.parents):
        if path.stat().st_uid == 0 and not path.stat().st_mode & 0o001:
            path.chmod(0o711)
    found, missing, _ = look(home / "logs/shadow", home / "own.log")
    assert ["alice's line\n"] == [one.text for one in found]
    assert "Permission denied" in missing["shadow"]


@needs_root
def test_a_jobs_own_output_must_be_its_users(tmp_path: Path) -> None:
    (tmp_path / "job.out").write_text("root's\n")
    for path in (tmp_path, *tmp_path.parents):
        if path.stat().st_uid == 0 and not path.stat().st_mode & 0o001:
            path.chmod(0o711)
    found, missing, _ = look(tmp_path / "job.out", job=joblog.Job("7", "nobody", NOBODY, NOBODY))
    assert [] == found
    assert "not owned by the job's user" in missing["job.out"]


@needs_root
def test_whose_rights_are_taken_is_the_first_on_the_way_who_is_not_root(tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/b/log").write_text("x")
    assert 0 == logs.owner(str(tmp_path / "a/b/log"))
    os.chown(tmp_path / "a/b/log", 1234, 1234)
    assert 1234 == logs.owner(str(tmp_path / "a/b/log"))
    os.chown(tmp_path / "a", NOBODY, NOBODY)
    assert NOBODY == logs.owner(str(tmp_path / "a/b/log"))


def test_folders_are_taken_file_by_file_and_links_to_folders_are_not(tmp_path: Path) -> None:
    (tmp_path / "d/sub").mkdir(parents=True)
    (tmp_path / "d/sub/1.log").write_text("x")
    (tmp_path / "d/0.log").write_text("x")
    (tmp_path / "l").symlink_to(tmp_path / "d")
    assert [f"{tmp_path}/d/0.log", f"{tmp_path}/d/sub/1.log", f"{tmp_path}/l"] == logs.files(
        [str(tmp_path / "d"), str(tmp_path / "d/0.log"), str(tmp_path / "l")]
    )


@pytest.mark.parametrize(("number", "line"), [(1, "a"), (2, "b"), (3, ""), (-1, "z"), (-2, "y"), (-3, "")])
def test_a_line_by_its_number_from_either_end(number: int, line: str) -> None:
    assert line == Log("x", Taken(b"a\nb\n", b"y\nz\n", 100)).line(number)


@given(st.lists(st.integers(0, 10**6), max_size=12), st.integers(0, 10**7))
def test_shares_never_exceed_the_budget_and_small_ones_stay_whole(sizes: list[int], budget: int) -> None:
    given_ = logs.shares(sizes, budget)
    assert sum(given_) <= budget
    assert all(0 <= some <= size for some, size in zip(given_, sizes, strict=True))
    if sum(sizes) <= budget:
        assert sizes == given_
    elif sizes:  # nobody who was cut got less than somebody else has
        assert max(given_) - min(some for some, size in zip(given_, sizes, strict=True) if some < size) <= len(sizes)


@needs_root
def test_anybody_else_reads_what_they_may_read(tmp_path: Path) -> None:
    (tmp_path / "open").write_text("for all\n")
    (tmp_path / "closed").write_text("for root\n")
    (tmp_path / "closed").chmod(0o600)
    for path in (tmp_path, *tmp_path.parents):
        if path.stat().st_uid == 0 and not path.stat().st_mode & 0o001:
            path.chmod(0o711)
    os.seteuid(NOBODY)
    try:
        found, missing, _ = look(tmp_path / "open", tmp_path / "closed")
    finally:
        os.seteuid(0)
    assert ["for all\n"] == [one.text for one in found]
    assert {"closed": "Permission denied"} == missing
