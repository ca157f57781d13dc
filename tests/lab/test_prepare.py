"""The set-up of make test and make demo: what it changes comes back, what it cannot do it says."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess

import pytest

from tests.lab.lab import CHECKOUT, new_folder
from tests.lab.prepare import PrepareError, get_prometheus, services_kept_from_starting

NO = "#!/bin/sh\nexit 101\n"
SITES = "#!/bin/sh\nexit 104\n"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "policy-rc.d"


def test_no_service_starts_while_packages_are_installed(path):
    with services_kept_from_starting(str(path)):
        assert 101 == subprocess.run([path, "munge", "start"]).returncode
    assert not path.exists()


def test_a_policy_that_was_there_comes_back_as_it_was(path):
    path.write_text(SITES)
    path.chmod(0o750)
    with services_kept_from_starting(str(path)):
        assert NO == path.read_text()
    assert (SITES, 0o750) == (path.read_text(), stat.S_IMODE(path.stat().st_mode))
    assert [path] == list(path.parent.iterdir())


def test_it_comes_back_when_the_installation_fails(path):
    path.write_text(SITES)
    with pytest.raises(ZeroDivisionError), services_kept_from_starting(str(path)):
        raise ZeroDivisionError
    assert SITES == path.read_text()


def test_it_comes_back_after_a_run_that_was_killed(path):
    path.write_text(NO)
    kept = path.with_name("policy-rc.d.before-hpslurm")
    kept.write_text(SITES)
    with services_kept_from_starting(str(path)):
        assert NO == path.read_text()
    assert (SITES, False) == (path.read_text(), kept.exists())


def test_where_apt_is_not_prometheus_is_left_out_in_words(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PrepareError, match="no apt-get and dpkg-deb here; prometheus and promtool can be put"):
        get_prometheus()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_without_root_the_demo_says_what_it_needs_and_changes_nothing():
    folder = new_folder()
    try:
        shutil.copytree(os.path.join(CHECKOUT, "tests", "lab"), f"{folder}/tests/lab")
        script = ["/usr/bin/python3", f"{folder}/tests/lab/prepare.py", "--daemons"]
        done = subprocess.run(script, user=65534, group=65534, extra_groups=(), capture_output=True, text=True)
        assert (1, True) == (done.returncode, done.stderr.startswith("the demo starts real Slurm daemons")), done
        assert "sudo make demo" in done.stderr
        assert ["tests"] == os.listdir(folder)
    finally:
        shutil.rmtree(folder)
