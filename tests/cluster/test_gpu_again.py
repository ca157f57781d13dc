"""The same fault on one GPU after a reboot speaks for a replacement; once does not."""

from __future__ import annotations

import pytest

from hpslurm.cluster.gpu_again import AGAIN, collect, faulty, judge
from hpslurm.cluster.model import Gathered, Member, Members
from hpslurm.core.finding import P0, P2, REPLACE, Evidence, Finding, Rule
from hpslurm.core.policy import Policy
from hpslurm.core.probe import FAIL, Result, Skip
from hpslurm.core.records import Record

UUID = "GPU-5e0a0000-0000-4000-8000-000000000005"
LOST = Rule("gpu-lost", P0, "A GPU is lost", "debugging-guide.md § 7")


def record(when: float, boot: str, rule: Rule | None = LOST, muted: str = "") -> Record:
    found = (Finding(rule, "1 of 8", (Evidence(f"GPU 3 ({UUID})", "lost"),), muted=muted),) if rule else ()
    run = {"time": when, "node": "n1", "boot": boot, "instance": "i-0123456789abcdef0", "hook": "epilog", "job": 7}
    uuids = Result("gpu_count", FAIL if found else "pass", facts={"uuids": [f"GPU 3 ({UUID})"]}, findings=found)
    return Record("n1", "epilog", run, (uuids,))


def members(newest: Record) -> Members:
    return Members((Member("n1", record=newest), Member("n2")), 0.0)


def found(*kept: Record) -> list[Finding]:
    def records_of(node: str) -> list[Record]:
        return list(kept) if node == "n1" else pytest.fail(f"asked for {node}")

    try:
        return list(judge(collect(Gathered(members(kept[-1]), records_of=records_of)), Policy()))
    except Skip:
        return []


def test_the_same_fault_in_two_boots_is_found_with_the_replacement_last() -> None:
    (finding,) = found(record(1, "boot-a"), record(2, "boot-b"))
    assert (AGAIN, "n1") == (finding.rule, finding.subject)
    assert UUID in finding.detail
    assert REPLACE == finding.suggestions[-1].harm
    assert 2 == len(finding.evidence)


def test_a_fault_in_one_boot_only_is_none_of_it() -> None:
    assert [] == found(record(1, "boot-a"), record(2, "boot-a"))


def test_a_gpu_that_is_well_now_is_not_looked_up() -> None:
    assert [] == found(record(1, "boot-a"), record(2, "boot-b", rule=None))


def test_what_is_muted_or_for_information_starts_no_search() -> None:
    assert [] == faulty(Member("n1", record=record(1, "a", muted="known")))
    assert [] == faulty(Member("n1", record=record(1, "a", Rule("gpu-x", P2, "t", "r"))))
    assert [UUID] == faulty(Member("n1", record=record(1, "a")))
