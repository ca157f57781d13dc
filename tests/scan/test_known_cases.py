"""Every case of field and unseen: public reports and real runs, with the truth as it was labelled before a scan.

What is known to be missed is listed with the reason; a line that is no longer true fails, too.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from benchmarks.scan_score import Score, cases, score
from hpslurm.scan.reason import HEALTHY, UNDETERMINED

HERE = Path(__file__).parent
FOLDERS = (HERE / "field", *sorted(path.parent for path in (HERE / "unseen").glob("*/index.toml")))
CASES = {case["id"]: (folder, case) for folder in FOLDERS for case in cases(folder)}

WRONG_CAUSE = {
    "c608": "MVAPICH names locked memory only inside an error stack of one line that ends with an abort",
    "e709": "Open MPI's warning about an unusual libfabric call; the program's own last lines show that it went on",
    "e714": "Omni-Path has no free context for a 25th process: no cause here has a name for that",
    "g905": "Chef's fatal lines come before the mount that failed",
    "g1007": "Open MPI lost a daemon, and the Python program around it says so once more",
    "g1008": "another scheduler, whose agent could not make a spool folder",
    "g1015": "ibstatus finds no port; its word is that of any program that ends",
    "f1101": "two ranks wait in another group's collective: only the others' counters of work show it",
    "f1104": "a loss that is no number and the rank that left the collective because of it",
    "g1110": "the beginning of a run alone",
    "f1309": "two lines of a lost peer; only the thread knows the security group",
    "f1311": "a proxy's connect that fails without a word of the network",
    "k1826": "a job that was cancelled while Cray's launcher started it: its lines say that a reservation is gone",
    "b509": "a daemon that finds no folder to work in: its set-up, and the truth knows no word for it",
    "k1727": "the test framework's OK stands thirteen lines before the end, and the clean-up complains after it",
    "g1311": "JAX falls back to the CPU in words of its own",
    "n2004": "a benchmark of another make that is slow and says no word of it",
    "n2022": "a server that can no longer reach another one, and whose clients go away before",
    "n2026": "openib's help text tells which connection failed; what srun says later is louder",
}
# Known not to name, or to name another.
WRONG_CULPRIT = {
    "q2215": "the card's address stands beside other lines of its driver",
    "n2010": "the time limit ended the job on its only node",
    "n2014": "the machine's name stands in a shell's prompt",
    "n2016": "Ray names the node of the worker by its address, the truth by its name",
    "n2022": "its cause is another",
    "n2023": "the node is named where it is drained, lines after the driver",
    "p2112": "the disk's address stands on the line that enables it again",
    "p2114": "dmesg names no host; the journal beside it does",
    "m1903": "a step that a person ended by hand, on the only node that it had",
    "m1907": "the card's address stands in a list of all cards only",
    "h065": "the list names the node in full, the truth only its beginning",
    "h081": "the ranks that got stuck later print first",
    "r059": "the node is named and the rank is not: only torchrun's block has it, under another local rank",
    "c406": "the host of the lost daemon is another process than the one with the exit code",
    "d706": "a single process without a rank",
    "d802": "ranks accuse each other once each",
    "e702": "the prompt names the head node",
    "e703": "the prompt is the only name",
    "e810": "the host is glued to a process number",
    "f902": "the address is a full name",
    "g904": "the node stands in a list two lines on",
    "g912": "the row of nvidia-smi is no line that counts",
    "g1001": "JSON over many lines",
    "g1005": "only the label names the rank, and the trace has no cause",
    "g1007": "the cause is missed as well",
    "g1008": "the cause is missed as well",
    "g1009": "node names of another tool's log",
    "g1015": "the cause is missed as well",
    "f1104": "the cause is missed as well",
    "f1401": "the rank stands only in torchrun's block, under another name of its host",
}


@cache
def scored(case_id: str) -> Score:
    return score(*CASES[case_id])


def test_all_sets_are_there():
    assert 144 + 540 <= len(CASES)


@pytest.mark.parametrize("case_id", [case_id for case_id in CASES if case_id not in WRONG_CAUSE])
def test_the_cause_is_named_and_none_that_must_not_be(case_id: str):
    result = scored(case_id)
    assert (True, False) == (result.right, result.forbidden), (result.diagnosis.cause, result.diagnosis.decisive)


@pytest.mark.parametrize("case_id", WRONG_CAUSE)
def test_a_missed_cause_is_said_without_confidence_and_never_healthy(case_id: str):
    result = scored(case_id)
    assert not result.right, "it is right now: take it from the list"
    assert not result.high
    assert HEALTHY != result.diagnosis.cause


@pytest.mark.parametrize("case_id", [
    case_id for case_id, (_, case) in CASES.items() if "culprit" in case and case_id not in WRONG_CULPRIT
])  # fmt: skip
def test_the_culprit_is_named(case_id: str):
    result = scored(case_id)
    assert result.culprit, (result.case["culprit"], result.diagnosis.culprit)


@pytest.mark.parametrize("case_id", WRONG_CULPRIT)
def test_a_missed_culprit_is_still_missed(case_id: str):
    assert scored(case_id).culprit is False, "it is named now: take it from the list"


@pytest.mark.parametrize("case_id", [
    case_id for case_id, (_, case) in CASES.items() if case["healthy"] and case_id not in WRONG_CAUSE
])  # fmt: skip
def test_a_healthy_log_is_never_accused(case_id: str):
    case: dict[str, Any] = CASES[case_id][1]
    assert scored(case_id).diagnosis.cause in {UNDETERMINED, case["cause"], *case.get("also", ())}
