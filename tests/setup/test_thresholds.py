"""What doctor says of one and of two, and how deep it looks: at each limit and a step beside it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from hpslurm.core.finding import P0, Rule
from hpslurm.core.policy import Policy
from hpslurm.core.probe import FAIL, PASS, Result
from hpslurm.core.values import asdict, replace
from hpslurm.setup import doctor, doctor_owner, doctor_scripts, doctor_software, hook_lines
from hpslurm.sources.host import Host


@pytest.mark.parametrize("count, words", [(1, "1 thing to put right"), (2, "2 things to put right")])
def test_one_thing_is_no_things(count: int, words: str) -> None:
    rules = [Rule(f"hooks-{number}", P0, f"Title {number}", "operations.md § 7") for number in range(count)]
    findings = tuple(rule.found("detail", subject=f"n{number}") for number, rule in enumerate(rules))
    assert f"hpslurm on n1: {words}" in "\n".join(
        doctor.first_screen([Result("scripts", FAIL, findings=findings)], "n1")
    )


def test_an_installation_is_whole_unless_it_is_said_to_be_lean() -> None:
    facts = doctor_software.Facts("3.12.1")
    said = [doctor._says(Result("software", PASS, facts=asdict(one))) for one in (facts, replace(facts, lean=True))]
    assert [False, True] == ["a lean installation" in words for words in said]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of others")
@pytest.mark.parametrize("uid, who", [(0, ""), (1, "owned by uid 1"), (65534, "owned by uid 65534")])
def test_only_root_owns_what_runs_as_root(uid: int, who: str, tmp_path: Path) -> None:
    (tmp_path / "hooks.py").touch(0o644)
    os.chown(tmp_path / "hooks.py", uid, 0)
    assert who == doctor_owner._who(f"{tmp_path}/hooks.py")


@pytest.mark.parametrize("deep, known", [(4, True), (5, False)])
def test_files_that_include_one_another_are_read_four_deep(
    deep: int, known: bool, host_with: Callable[..., Host]
) -> None:
    files = {f"/etc/{number}.conf": f"include {number + 1}.conf\n" for number in range(deep)}
    host = host_with({**files, f"/etc/{deep}.conf": "Prolog=/a\n"})
    assert known is ("prolog" in (doctor_scripts._lines(host, "/etc/0.conf") or {}))


@pytest.mark.parametrize(
    "ours, ran, told",
    [((), (), ["hooks-not-installed"]), (("prolog",), (), []), (("prolog",), ("epilog",), ["hooks-removed"]),
     (("prolog", "epilog"), (), [])],
)  # fmt: skip
def test_hooks_are_not_installed_where_both_are_missing(
    ours: tuple[str, ...], ran: tuple[str, ...], told: list[str], policy: Policy
) -> None:
    facts = hook_lines.Facts((), (), "Alloc", frozenset(ours), frozenset(ran))
    assert told == [finding.rule.id for finding in hook_lines.judge(facts, policy)]
