"""Who counts as a person whose name is masked."""

from __future__ import annotations

import pwd

import pytest

from hpslurm.bundle.collect import people_of


@pytest.mark.parametrize(
    ("uid", "expected"), [(0, False), (999, False), (1000, True), (59_999, True), (60_000, False), (65_534, False)]
)
def test_a_person_has_a_uid_that_login_defs_gives_to_users(uid: int, expected: bool) -> None:
    entry = pwd.struct_passwd(("ada", "x", uid, uid, "", "/home/ada", "/bin/sh"))
    assert (["ada"] if expected else []) == people_of([entry])
