"""Who may change what hooks run as root: the installation, the folders above it, the wheels it came from."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from hpslurm.core.policy import Policy
from hpslurm.core.probe import Skip, Unknown
from hpslurm.setup import doctor_owner
from hpslurm.setup.doctor_owner import Facts

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of others")


@pytest.fixture
def install(tmp_path: Path) -> Path:
    """An installation as root leaves it."""
    path = tmp_path / "opt/hpslurm"
    (path / "lib/hpslurm").mkdir(parents=True)
    (path / "lib/hpslurm/hooks.py").write_text("")
    (path / "lib64").symlink_to("lib")
    (tmp_path / "wheels").mkdir()
    (tmp_path / "wheels/hpslurm.whl").write_text("")
    for one in (tmp_path, *tmp_path.rglob("*")):
        if not one.is_symlink():
            one.chmod(0o755)
    return path


def loose(install: Path) -> list[tuple[str, str]]:
    facts = doctor_owner.look(str(install), str(install / "lib/hpslurm"), f"{install.parent.parent}/wheels")
    return [(os.path.relpath(path, install.parent.parent), who) for path, who in facts.loose]


@needs_root
def test_an_installation_of_root_alone_is_fine(install):
    assert [] == loose(install)


@needs_root
@pytest.mark.parametrize(
    "path", ["opt", "opt/hpslurm", "opt/hpslurm/lib/hpslurm/hooks.py", "wheels", "wheels/hpslurm.whl"]
)
def test_whatever_others_may_change_is_named(install, path):
    one = install.parent.parent / path
    one.chmod(0o775)
    assert [(path, "mode 0775")] == loose(install)
    one.chmod(0o4757)
    assert [(path, "mode 4757")] == loose(install)
    one.chmod(0o755)
    os.chown(one, 1234, 0)
    assert [(path, "owned by uid 1234")] == loose(install)


@needs_root
def test_a_folder_above_like_tmp_is_none_that_others_may_rename_in(install):
    install.parent.chmod(0o1777)
    assert [] == loose(install)


@needs_root
def test_a_link_of_another_user_is_named_and_the_mode_of_a_link_means_nothing(install):
    os.chown(install / "lib64", 1234, 0, follow_symlinks=False)
    assert [("opt/hpslurm/lib64", "owned by uid 1234")] == loose(install)


@pytest.mark.skipif(os.geteuid() == 0, reason="root's installation is what is looked at")
def test_a_users_own_installation_runs_in_no_hook(install):
    with pytest.raises(Skip, match="your own installation"):
        loose(install)


@pytest.mark.parametrize(
    ("url", "folder"),
    [
        ("file:///fsx/hpslurm%20wheels/hpslurm-1-py3-none-any.whl", "/fsx/hpslurm wheels"),
        ("file:///home/x/hpslurm", ""),
        ("https://host/hpslurm-1-py3-none-any.whl", ""),
        (None, ""),
        (["x"], ""),
    ],
)
def test_the_folder_of_wheels_is_known_where_pip_was_given_a_file(tmp_path, monkeypatch, url, folder):
    about = tmp_path / "hpslurm-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: hpslurm\nVersion: 1\n")
    (about / "direct_url.json").write_text(json.dumps({"url": url}))
    monkeypatch.syspath_prepend(tmp_path)
    assert folder == doctor_owner.wheel_folder()


def test_six_paths_are_named_and_more_are_counted():
    facts = Facts(tuple((f"/opt/hpslurm/{number}", "mode 0777") for number in range(9)))
    (finding,) = doctor_owner.judge(facts, Policy())
    assert "/opt/hpslurm/5: mode 0777 and 3 more; expected root's" in finding.detail
    assert ("install-owner", "look") == (finding.rule.id, finding.suggestions[0].harm)


def test_nothing_is_found_where_all_is_roots_and_a_look_that_was_cut_off_is_no_pass():
    assert [] == list(doctor_owner.judge(Facts(), Policy()))
    with pytest.raises(Unknown, match="only the first 100,000 files"):
        list(doctor_owner.judge(Facts(cut_off=True), Policy()))
