"""A node that our gate drained has its reason in its record, and the command that writes it into Slurm."""

from __future__ import annotations

import pytest

from hpslurm.cluster.gate_reason import GATED, collect, judge
from hpslurm.cluster.model import Gathered, Member, Members
from hpslurm.core.finding import P0, Finding, Rule
from hpslurm.core.policy import Policy
from hpslurm.core.probe import FAIL, Result, Skip
from hpslurm.core.records import Record
from hpslurm.sources.slurm import SlurmNode

MISSING = Rule("efa-missing", P0, "EFA devices missing", "debugging-guide.md § 6")
DRAINED = 10_000.0


def record(when: float = DRAINED, gated: object = ("efa-missing",), hook: str = "prolog") -> Record:
    found = (Finding(MISSING, "16 of 32 EFA devices"),)
    run = {"time": when, "node": "n2", "hook": hook, "job": 7}
    listed = list(gated) if isinstance(gated, tuple) else gated
    return Record("n2", hook, run, (Result("efa", FAIL, findings=found),), end={"gated": listed})


def found(
    *kept: Record, reason: str = "Prolog error", flags: tuple[str, ...] = ("DRAIN",), when: float | None = DRAINED
) -> list[Finding]:
    node = SlurmNode("n2", "IDLE", flags, reason, reason_time=when)
    members = Members((Member("n1", SlurmNode("n1", "IDLE")), Member("n2", node)), DRAINED)
    try:
        return list(judge(collect(Gathered(members, records_of=lambda name: list(kept))), Policy()))
    except Skip:
        return []


@pytest.mark.parametrize("when", [DRAINED, None])
@pytest.mark.parametrize("reason", ["Prolog error", "Prolog error : Not responding"])
def test_what_the_gate_had_found_is_told_with_the_command_that_says_so_to_slurm(
    reason: str, when: float | None
) -> None:
    (finding,) = found(record(9_999.0), record(10_700.0, hook="health"), reason=reason, when=when)
    assert (GATED, "n2", "efa-missing: 16 of 32 EFA devices") == (finding.rule, finding.subject, finding.detail)
    (step,) = finding.suggestions
    assert "sudo scontrol update nodename=n2 reason='hpslurm: efa-missing'" == step.command


@pytest.mark.parametrize(("seconds", "told"), [(-601, 0), (-600, 1), (600, 1), (601, 0)])
def test_a_prolog_within_ten_minutes_of_the_drain_is_its_cause(seconds: float, told: int) -> None:
    assert told == len(found(record(DRAINED + seconds)))


def test_several_rules_stand_in_one_reason() -> None:
    (finding,) = found(record(gated=("efa-missing", "site-mount-hung")))
    assert finding.suggestions[0].command.endswith("reason='hpslurm: efa-missing, site-mount-hung'")


@pytest.mark.parametrize(
    "given",
    [
        pytest.param({"reason": "ticket 4711"}, id="drained by a person"),
        pytest.param({"flags": ()}, id="resumed, with an old reason"),
        pytest.param({"reason": "hpslurm: efa-missing"}, id="the reason is told already"),
        pytest.param({"reason": "Action:Reboot : Prolog error"}, id="HyperPod is to act on it"),
        pytest.param({"reason": "ticket 4711 : Prolog error"}, id="a person's words come first"),
    ],
)
def test_a_reason_that_is_not_the_prologs_alone_stays_as_it_is(given: dict[str, object]) -> None:
    assert [] == found(record(), **given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "kept",
    [
        pytest.param((), id="no record"),
        pytest.param((record(hook="epilog"),), id="no prolog's record"),
        pytest.param((record(DRAINED - 601),), id="long before the drain"),
        pytest.param((record(9_000.0), record(DRAINED, gated=())), id="the newest prolog gated nothing"),
        pytest.param((record(gated=("'; reboot; '",)),), id="no rule's id"),
        pytest.param((record(gated="efa-missing"),), id="no list"),
        pytest.param((record(gated=7),), id="a number"),
    ],
)
def test_without_our_record_of_that_prolog_nothing_is_told(kept: tuple[Record, ...]) -> None:
    assert [] == found(*kept)
