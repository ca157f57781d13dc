"""Files that the user named are written whole or not at all."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from hpslurm.core import whole_file


def test_the_old_content_is_replaced_in_one_step_with_the_mode_that_was_asked_for(tmp_path):
    path = tmp_path / "page.html"
    path.write_text("old")
    whole_file.write(str(path), b"new", 0o600)
    assert ("new", 0o600, ["page.html"]) == (path.read_text(), path.stat().st_mode & 0o777, os.listdir(tmp_path))


@pytest.mark.parametrize("kind", ["link", "pipe", "folder", "dangling link"])
def test_what_is_no_regular_file_is_left_as_it_is(kind, tmp_path):
    victim, path = tmp_path / "victim", tmp_path / "page.html"
    victim.write_text("mine")
    make = {
        "link": lambda: path.symlink_to(victim),
        "pipe": lambda: os.mkfifo(path),
        "folder": path.mkdir,
        "dangling link": lambda: path.symlink_to(tmp_path / "nothing"),
    }
    make[kind]()
    with pytest.raises(OSError, match="not a regular file, left as it is"):
        whole_file.write(str(path), b"page")
    assert ("mine", ["page.html", "victim"]) == (victim.read_text(), sorted(os.listdir(tmp_path)))


def test_a_full_disk_keeps_the_old_file_and_leaves_no_other(tmp_path):
    path = tmp_path / "page.html"
    path.write_text("old")
    limited = f"""
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
from hpslurm.core import whole_file
whole_file.write({str(path)!r}, b"x" * 200)
"""
    done = subprocess.run([sys.executable, "-c", limited], capture_output=True, text=True)
    assert "OSError" in done.stderr
    assert ("old", ["page.html"]) == (path.read_text(), os.listdir(tmp_path))


def test_others_may_read_the_file_unless_another_mode_was_asked_for(tmp_path):
    path = tmp_path / "page.html"
    whole_file.write(str(path), b"page")
    assert 0o644 == path.stat().st_mode & 0o777
