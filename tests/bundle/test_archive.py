"""A bundle on disk: the same bytes for the same parts, within its limit, whole or not at all."""

from __future__ import annotations

import hashlib
import io
import os
import stat
import tarfile
from pathlib import Path

import pytest

from hpslurm.bundle import archive
from hpslurm.bundle.archive import KEPT, LOGS, RECORDS, SLURM, Part

WHEN = 1764472262


def packed(parts: list[Part]) -> bytes:
    return archive.pack(parts, {"schema": 1, "files": []}, "bundle", WHEN)


PARTS = [Part("logs/b.log", "b\n", "/b"), Part("case.txt", "x\n", "all"), Part("a/ä.txt", "ä\n", "/a")]


def test_the_same_parts_in_any_order_are_the_same_bytes() -> None:
    assert packed(PARTS) == packed(PARTS[::-1])


def test_members_are_plain_files_below_one_folder_with_one_time_and_no_owner() -> None:
    with tarfile.open(fileobj=io.BytesIO(packed(PARTS))) as tar:
        members = tar.getmembers()
    names = [one.name for one in members]
    assert sorted(names) == names
    assert all(one.isreg() and one.name.startswith("bundle/") and ".." not in one.name for one in members)
    assert {(WHEN, 0, 0, "", "", 0o644)} == {
        (one.mtime, one.uid, one.gid, one.uname, one.gname, one.mode) for one in members
    }


def test_the_sums_are_those_of_the_files() -> None:
    with tarfile.open(fileobj=io.BytesIO(packed(PARTS))) as tar:
        text = {one.name.removeprefix("bundle/"): tar.extractfile(one).read() for one in tar.getmembers()}  # type: ignore[union-attr]
    sums = dict(line.split("  ")[::-1] for line in text.pop("SHA256SUMS").decode().splitlines())
    assert {name: hashlib.sha256(data).hexdigest() for name, data in text.items()} == sums
    assert "manifest.json" in sums


def size(parts: list[Part]) -> int:
    return sum(len(one.data) for one in parts)


def many(kind: str, count: int, length: int) -> list[Part]:
    return [Part(f"{kind}/{number}", ("x" * 99 + "\n") * (length // 100), "", kind) for number in range(count)]


def test_at_the_limit_nothing_is_cut_and_one_byte_below_a_log_is() -> None:
    parts = many(LOGS, 2, 50_000)
    assert (parts, []) == archive.fitted(parts, 100_000)
    kept, missing = archive.fitted(parts, 99_999)
    assert [] == missing
    assert size(kept) <= 99_999
    assert [one.name for one in parts] == [one.name for one in kept]
    assert sum(one.left_out for one in kept) > 0


def test_a_cut_log_keeps_whole_lines_of_both_ends_and_says_how_much_is_gone() -> None:
    text = "".join(f"line {number}\n" for number in range(10_000))
    (kept,), _ = archive.fitted([Part("logs/1", text, "", LOGS)], 20_000)
    lines = kept.text.splitlines()
    assert ("line 0", "line 9999") == (lines[0], lines[-1])
    gone = [line for line in lines if not line.startswith("line ")]
    assert [f"[hpslurm bundle: {kept.left_out} bytes are left out here]"] == gone
    assert len(text) == kept.left_out + len(kept.text) - len(gone[0]) - 1


def test_logs_go_first_then_records_then_slurms_lists_and_the_case_never() -> None:
    parts = [*many(LOGS, 1, 50_000), *many(RECORDS, 1, 50_000), *many(SLURM, 1, 50_000), *many(KEPT, 1, 50_000)]

    def left(limit: int) -> list[str]:
        return [one.kind for one in archive.fitted(parts, limit)[0]]

    assert [LOGS, RECORDS, SLURM, KEPT] == left(160_000)
    assert [RECORDS, SLURM, KEPT] == left(150_000)
    assert [SLURM, KEPT] == left(149_999)
    assert [KEPT] == left(99_999)
    assert [KEPT] == left(1)
    assert ["logs/0", "records/0", "slurm/0"] == [name for name, _ in archive.fitted(parts, 1)[1]]


def test_a_log_of_which_less_than_4_kib_would_stay_goes_altogether() -> None:
    log = Part("logs/1", "line\n" * 10_000, "/1", LOGS)
    assert [4096] == [most for most in (4095, 4096) if archive.fitted([log], most)[0]]


def test_what_is_not_cut_leaves_nothing_out() -> None:
    part = Part("case.txt", "x\n", "all", masked={"b": 1, "a": 2})
    told = part.described()
    assert (2, 0, ["a", "b"]) == (told["bytes"], told["left_out"], list(told["masked"]))
    assert ("x\n", 0) == archive.shortened("x\n", 2)
    assert 0 < archive.shortened("x\n" * 200, 200)[1]


def test_small_records_stay_where_a_large_one_does_not_fit() -> None:
    parts = [*many(RECORDS, 3, 1000), Part("records/large", "x" * 90_000, "", RECORDS)]
    kept, missing = archive.fitted(parts, 10_000)
    assert 3 == len(kept)
    assert [("records/large", "87.8 KiB do not fit into 9.7 KiB; pass a larger --max-size")] == missing


def test_files_are_for_us_alone_and_nothing_else_is_left(tmp_path: Path) -> None:
    archive.write({f"{tmp_path}/a": b"1", f"{tmp_path}/b": b"2"})
    assert {"a": b"1", "b": b"2"} == {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert {0o600} == {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}


@pytest.mark.parametrize("there", ["file", "link", "broken link"])
def test_what_is_there_is_not_written_over_and_the_other_file_goes_again(tmp_path: Path, there: str) -> None:
    (tmp_path / "other").write_text("other")
    if there == "file":
        (tmp_path / "b").write_text("old")
    else:
        (tmp_path / "b").symlink_to(tmp_path / ("other" if there == "link" else "nowhere"))
    with pytest.raises(FileExistsError):
        archive.write({f"{tmp_path}/a": b"1", f"{tmp_path}/b": b"2"})
    assert ["b", "other"] == sorted(os.listdir(tmp_path))
    assert "other" == (tmp_path / "other").read_text()


def test_force_writes_over_a_file_and_not_over_or_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("other")
    (tmp_path / "b").symlink_to(tmp_path / "other")
    archive.write({f"{tmp_path}/other": b"new"}, force=True)
    with pytest.raises(OSError, match="not a regular file"):
        archive.write({f"{tmp_path}/b": b"2"}, force=True)
    assert (b"new", True) == ((tmp_path / "other").read_bytes(), (tmp_path / "b").is_symlink())
