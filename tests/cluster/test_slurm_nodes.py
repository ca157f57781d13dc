"""Node states and reasons to findings: on the states of four real releases, and one by one."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpslurm.cluster import slurm_nodes as nodes
from hpslurm.cluster.model import Member, Members
from hpslurm.core.finding import HARMS, Rule
from hpslurm.core.policy import Policy
from hpslurm.sources.slurm import Queued, SlurmNode, nodes_of_json, nodes_of_text

SAMPLES = Path(__file__).parents[1] / "sources" / "slurm"
NOW = 1_800_000_000.0


def judged(node, *, jobs=(), recovery=""):
    member = Member(node.name, node, jobs=jobs)
    return list(nodes.judge(Members((member,), NOW, "ml-cluster", recovery), Policy()))


def found(state, reason="", **more):
    base, *flags = state.split("+")
    return judged(SlurmNode("n1", base, tuple(sorted(flags)), reason), **more)


def ids(findings):
    return [finding.rule.id for finding in findings]


# The states of the recorded nodes ip-10-1-0-1 to -16 (tests/sources/slurm), the same on all releases but for
# 24.11.5, whose slurmctld had lost touch with the nodes by then.
EXPECTED = {
    1: [], 2: ["reason-hpslurm"], 3: ["action-stuck"], 4: ["node-drained"], 5: ["action-stuck"],
    6: ["node-not-responding"], 7: ["reason-prolog-error"], 8: ["reason-epilog-error"],
    9: ["node-rebooting", "reason-hpslurm"], 10: ["node-down"], 11: ["node-drained"], 12: [], 13: ["node-maintenance"],
    14: ["node-drained"], 15: ["node-not-responding"], 16: ["node-rebooting"],
}  # fmt: skip


@pytest.mark.parametrize("release", ["22.05.8", "24.11.5", "25.11.7", "26.05.5"])
@pytest.mark.parametrize(("form", "read"), [("nodes.txt", nodes_of_text), ("nodes.json", nodes_of_json)])
def test_recorded_states_lead_to_the_same_findings_in_every_form(release, form, read):
    seen = {
        int(node.name.rpartition("-")[2]): ids(judged(node)) for node in read((SAMPLES / release / form).read_text())
    }
    assert EXPECTED == seen


def test_an_old_reason_on_a_node_that_was_resumed_is_no_finding():
    assert [] == found("IDLE", "Prolog error")
    assert [] == found("MIXED+CLOUD+PLANNED", "Action:Replace")


@pytest.mark.parametrize(
    ("state", "reason", "wanted"),
    [
        ("DOWN", "", ["node-down"]),
        ("IDLE+NOT_RESPONDING", "", ["node-not-responding"]),
        ("DOWN+NOT_RESPONDING", "Not responding", ["node-not-responding"]),
        ("DOWN+NOT_RESPONDING", "Prolog error : Not responding", ["node-not-responding", "reason-prolog-error"]),
        ("MIXED+DRAIN", "", ["node-drained"]),
        ("IDLE+FAIL", "looks odd", ["node-failing"]),
        ("UNKNOWN+DRAIN+INVALID_REG", "gres/gpu count reported lower than configured (0 < 8)",
         ["reason-gpu-count"]),
        ("UNKNOWN+NOT_RESPONDING", "", ["node-not-responding"]),
        ("FUTURE", "", []),
        ("UNKNOWN", "", ["node-unregistered"]),
        ("UNKNOWN+SHINY_NEW_FLAG", "", ["node-state-unknown"]),
        ("IDLE+DRAIN+INVALID_REG", "something new", ["node-invalid"]),
        ("IDLE+SHINY_NEW_FLAG", "", ["node-state-unknown"]),
        ("ERROR", "", ["node-state-unknown"]),
        ("IDLE+REBOOT_REQUESTED", "", ["node-rebooting"]),
        ("DOWN+CLOUD+POWERED_DOWN", "", ["node-powered-off"]),
        ("IDLE+MAINTENANCE+RESERVED", "", ["node-maintenance"]),
        ("IDLE+CLOUD+RESERVED+COMPLETING", "", []),
        ("IDLE+EXTERNAL", "", []),
        ("IDLE+EXTERNAL+UNDRAIN", "", []),
        ("DOWN+DRAIN", "Bad core count", ["reason-core-count"]),
        ("IDLE+DRAIN", "Set in slurm.conf", ["reason-slurm-conf"]),
        ("DOWN", "NO NETWORK ADDRESS FOUND", ["reason-no-address"]),
        ("IDLE+DRAIN", "action:reboot", ["action-reboot-misspelt"]),
        ("IDLE+FAIL", "Action: Replace", ["action-replace-misspelt"]),
        ("DOWN+NOT_RESPONDING", "action:replace : Not responding", ["action-replace-misspelt", "node-not-responding"]),
        ("IDLE+DRAIN", "Low CPUs, Low TmpDisk", ["reason-hardware-low"]),
    ],
)  # fmt: skip
def test_state_first_then_reason(state, reason, wanted):
    assert wanted == ids(found(state, reason))


def action(minutes, *, booted=None, reason="Action:Replace", **more):
    set_at = int(NOW) - minutes * 60
    node = SlurmNode("n1", "DOWN", ("FAIL", "NOT_RESPONDING"), reason, "root", set_at, boot_time=booted)
    return judged(node, **more)


JOB = Queued(7, "RUNNING", "alice", 1001, "all", 1, None, None, "n1", "None")


def test_a_valid_action_is_left_alone():
    (one,) = action(60)
    assert "action-under-way" == one.rule.id
    assert "leave it alone" in one.detail
    assert () == one.suggestions


def test_an_action_is_stuck_after_an_hour_without_a_job_or_a_boot():
    assert ["action-stuck"] == ids(action(61))
    assert ["action-under-way"] == ids(action(61, jobs=(JOB,)))
    assert ["action-under-way"] == ids(action(61, booted=int(NOW) - 60))
    assert ["action-stuck"] == ids(action(61, booted=int(NOW) - 7200))


def test_without_node_recovery_nothing_will_happen():
    assert ["action-no-recovery"] == ids(action(1, recovery="None"))
    assert ["action-under-way"] == ids(action(1, recovery="Automatic"))


def test_a_near_miss_shows_the_reason_to_the_letter_and_the_exact_command():
    (one,) = found("IDLE+DRAIN", "Action:Reboot ")
    assert "reason 'Action:Reboot ', HyperPod acts on 'Action:Reboot' only" == one.detail
    assert "sudo scontrol update nodename={nodes} state=fail reason='Action:Reboot'" == one.suggestions[-1].command


def test_evidence_names_who_set_the_reason_and_when():
    node = SlurmNode("n1", "IDLE", ("DRAIN",), "two\nlines\x1b[31m", "alice", 1_796_001_576)
    (one,) = judged(node)
    assert "IDLE+DRAIN, reason 'two lines [31m', set by alice on 2026-11-30 01:19:36 UTC" == one.evidence[0].text
    assert "n1" == one.subject


def test_suggestions_come_in_order_of_harm():
    for advice in nodes.ADVICE.values():
        assert [item.harm for item in advice] == sorted((item.harm for item in advice), key=HARMS.index)


def test_every_state_rule_has_advice_or_is_an_action():
    rules = {value.id for value in vars(nodes).values() if isinstance(value, Rule)}
    assert set(nodes.ADVICE) == {name for name in rules if name.startswith("node-")}
