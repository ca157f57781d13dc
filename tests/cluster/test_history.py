"""Which node the records of a failed job name, and which GPU the traces of a machine name."""

from __future__ import annotations

import pytest

from hpslurm.cluster.history import Asked, History, Trace, _hardware_of_one
from hpslurm.cluster.history_jobs import OF_NODE, Job
from hpslurm.cluster.history_ledger import Book
from hpslurm.cluster.history_machines import Machines
from hpslurm.core.finding import P1, P2, Evidence, Finding, Rule
from hpslurm.core.probe import FAIL, Result
from hpslurm.core.records import Record

UUID = "GPU-12345678-1234-1234-1234-123456789abc"
JOB = Job(7, "FAILED", ("n1", "n2"), 0, 3600)
LOST = Rule("xid-79", P1, "GPU fell off the bus", "xid-reference.md", "gpu_fell_off_bus")


def record(node: str, hook: str, *rules: Rule) -> Record:
    findings = tuple(Finding(rule, "seen", (Evidence(UUID, "x"),), (), node) for rule in rules)
    return Record(node, hook, {"time": 1.0}, (Result("xid", FAIL, findings=findings),), (), {}, True)


def named(*records: Record) -> str | None:
    told = _hardware_of_one(records, JOB)
    return told.host if told else None


def test_the_one_node_with_a_new_fault_of_hardware_is_named_with_its_gpu() -> None:
    before = record("n1", "prolog"), record("n2", "prolog")
    told = _hardware_of_one((*before, record("n1", "epilog"), record("n2", "epilog", LOST)), JOB)
    assert told is not None
    assert ("n2", UUID, OF_NODE, "high", "xid-79") == (told.host, told.gpu, told.blame, told.confidence, told.cause)


def test_what_was_there_before_or_on_several_nodes_names_none() -> None:
    assert None is named(record("n2", "prolog", LOST), record("n2", "epilog", LOST))
    before = record("n1", "prolog", LOST), record("n2", "prolog")
    assert "n2" == named(*before, record("n1", "epilog", LOST), record("n2", "epilog", LOST))
    assert None is named(record("n1", "prolog"), record("n2", "epilog", LOST))  # whether it came then, nobody knows
    before = record("n1", "prolog"), record("n2", "prolog")
    assert None is named(*before, record("n1", "epilog", LOST), record("n2", "epilog", LOST))
    assert None is named(*before, record("n1", "epilog"), record("n2", "epilog"))


@pytest.mark.parametrize(
    "rule",
    [
        Rule("xid-63", P2, "t", "r"),
        Rule("memlock-low", P1, "t", "r"),
        Rule("xid-31", P1, "t", "r", "gpu_app_fault"),
    ],
)
def test_information_settings_and_what_a_program_did_are_no_fault_of_hardware(rule: Rule) -> None:
    assert None is named(record("n2", "prolog"), record("n2", "epilog", rule))


@pytest.mark.parametrize(
    ("gpus", "expected"),
    [
        (["a"], ""),
        (["a", "a"], "a"),
        (["a", "a", ""], "a"),
        (["a"] * 4 + ["b"], "a"),  # 80 %
        (["a"] * 7 + ["b"] * 2, ""),  # 78 %
        ([], ""),
    ],
)
def test_a_gpu_is_named_by_two_traces_and_four_in_five(gpus: list[str], expected: str) -> None:
    traces = tuple(Trace(1.0, "n1", "record", "x", gpu) for gpu in gpus)
    history = History(Asked(0, 1), Book((), (), (), 0, 0), Machines([], {}), {"n1": traces}, (), ())
    assert expected == history.gpu("n1")
