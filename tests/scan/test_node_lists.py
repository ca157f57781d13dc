"""Lists of nodes: states and reasons that need a person."""

from __future__ import annotations

import pytest

from tests.scan.cases import events_of

SINFO = "PARTITION AVAIL TIMELIMIT NODES STATE NODELIST\n"


@pytest.mark.parametrize("state, cause", [
    ("down", "node_fail"), ("down*", "node_fail"), ("fail", "node_fail"), ("idle*", "node_fail"),
    ("inval", "slurm_node_config"), ("down#", "capacity"), ("drain", ""), ("idle", ""), ("alloc", ""),
])  # fmt: skip
def test_states_that_need_a_person_are_told_from_planned_ones(state: str, cause: str):
    events = events_of(f"{SINFO}dev* up infinite 1 {state} ip-10-1-0-7\n".encode())
    assert [(cause, "ip-10-1-0-7")] * bool(cause) == [
        (event.cause, event.host) for event in events if event.role == "root" and event.pattern.startswith("sinfo")
    ]


def test_a_reason_counts_where_it_speaks_of_a_failure():
    head = "REASON               USER      TIMESTAMP           NODELIST\n"
    texts = ("gpu 3 failed", "waits for the vendor")
    lists = [events_of(f"{head}{text} root 2025-01-01T00:00:00 n{len(text)}\n".encode()) for text in texts]
    assert [["root"], ["noise"]] == [
        [event.role for event in events if event.pattern == "sinfo-reason"] for events in lists
    ]
