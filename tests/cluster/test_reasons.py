"""Reasons, taken apart: each table row by its example, chains, and near misses of HyperPod's actions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpslurm.cluster import reasons
from hpslurm.core.finding import HARMS, PRIORITIES, REBOOT, REPLACE
from hpslurm.core.suggest import ACTION_REBOOT, ACTION_REPLACE

ROWS = reasons.table()


def ids(reason):
    return [part.row.id if part.row else None for part in reasons.read(reason).parts]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_a_row_speaks_for_its_example_even_when_slurm_adds_to_it(row):
    assert [row.id] == ids(row.example)
    assert [row.id, "node-not-responding"] == ids(f"{row.example} : Not responding")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_a_row_has_what_a_finding_needs(row):
    if row.rule:
        assert row.rule.priority in PRIORITIES
        assert "-" in row.id
        assert row.advice
        assert all(item.harm in HARMS for item in row.advice)
        assert [item.harm for item in row.advice] == sorted((item.harm for item in row.advice), key=HARMS.index)


def test_evidence_is_saved_before_every_reboot_and_replacement():
    acting = [row for row in ROWS if any(item.harm in (REBOOT, REPLACE) for item in row.advice)]
    assert acting
    for row in acting:
        steps = [("save" if "save the evidence" in item.why else item.harm) for item in row.advice]
        assert steps.index("save") < min(steps.index(step) for step in (REBOOT, REPLACE) if step in steps)


def test_rule_ids_are_used_once():
    names = [rule.id for rule in reasons.table_rules()]
    assert sorted(set(names)) == sorted(names)


@pytest.mark.parametrize(
    ("reason", "wanted"),
    [
        ("Prolog error : Not responding", ["reason-prolog-error", "node-not-responding"]),
        ("Low socket*core*thread count, Low CPUs", ["reason-hardware-low", "reason-hardware-low"]),
        ("Low RealMemory (reported:1 < 100.00% of configured:2), gres/gpu count reported lower than configured (0 < 8)",
         ["reason-hardware-low", "reason-gpu-count"]),
        ("hpslurm: xid-79, gpu 3 : reboot issued", ["reason-hpslurm", "node-rebooting"]),
        ("NHC: check_hw_mem: 5, too low : Kill task failed", ["reason-nhc", "reason-kill-task"]),
        ("see ticket 5, bad dimm", [None]),
        ("EFA missing on rdmap0 : Not responding", [None, "node-not-responding"]),
        ("", []),
    ],
)  # fmt: skip
def test_every_part_of_a_chain_is_named(reason, wanted):
    assert wanted == ids(reason)


def test_what_no_row_knows_is_kept_word_for_word():
    assert ["see ticket 5, bad dimm"] == reasons.read("see ticket 5, bad dimm : Not responding").others


@pytest.mark.parametrize(
    "reason",
    ["Action:Reboot", "Action:Reboot : Not responding", "Action:Reboot : reboot issued : Not responding",
     "Action:Reboot : Node unexpectedly rebooted"],
)  # fmt: skip
def test_an_exact_action_stays_one_when_slurm_writes_behind_it(reason):
    read = reasons.read(reason)
    assert (ACTION_REBOOT, "") == (read.action, read.meant)


@pytest.mark.parametrize(
    "reason",
    [
        "action:reboot", "ACTION:REBOOT", "Action: Reboot", "Action :Reboot", "Action : Reboot", " Action:Reboot",
        "Action:Reboot ", "Action:Reboot.", "Action:Reboot\n", "'Action:Reboot'", "Action:reboot", "Action-Reboot",
        "ActionReboot", "Action：Reboot", "Acton:Reboot", "Action:Rebooot", "Actions:Reboot", "Action:Restart",
        "Action:Reset", "Action:Reboot please", "XID 79, Action:Reboot", "action:reboot : Not responding",
        "Action:Reboot : gpu 3 is bad", "Action:Reboot\u200b",
    ],
)  # fmt: skip
def test_a_near_miss_of_reboot_is_noticed(reason):
    read = reasons.read(reason)
    assert ("", ACTION_REBOOT) == (read.action, read.meant)


@pytest.mark.parametrize(
    "reason",
    ["action:replace", "Action: Replace", "Action:Replace.", "Action:Replaced", "Action:Replacement",
     "Action:Terminate",
     "Action-replace node", "acion:replace"],
)  # fmt: skip
def test_a_near_miss_of_replace_is_noticed(reason):
    read = reasons.read(reason)
    assert ("", ACTION_REPLACE) == (read.action, read.meant)


@pytest.mark.parametrize(
    "reason",
    ["please reboot", "reboot", "replace dimm 3", "waiting for vendor action", "reaction to reboot", "Prolog error",
     "maintenance: action item 5", "action items for the reboot window", "Healthcheck:: Recommended Action:Reboot", ""],
)  # fmt: skip
def test_ordinary_words_are_no_near_miss(reason):
    read = reasons.read(reason)
    assert ("", "") == (read.action, read.meant)


@given(st.text(max_size=200))
def test_no_text_breaks_the_reading_or_passes_for_an_action(text):
    read = reasons.read(text)
    if read.action:
        assert text.startswith(read.action)


def test_three_thousand_characters_are_read_in_no_time_worth_noting():
    assert [None] == ids("x, " * 1000)
