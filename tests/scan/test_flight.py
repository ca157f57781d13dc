"""Flight recorder dumps and RAS reports: who did not join, and that a dump never runs code."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path
from typing import Any

import pytest

from hpslurm.scan import flight
from hpslurm.scan.collect import Collector, scan
from hpslurm.scan.reason import reason


def entry(seq: int, state: str, op: str = "nccl:all_reduce", sizes: Any = ((1024,),)) -> dict[str, Any]:
    return {
        "collective_seq_id": seq,
        "process_group": ("0", "default_pg"),
        "profiling_name": op,
        "input_sizes": sizes,
        "state": state,
        "is_p2p": False,
    }


def dump(entries: list[dict[str, Any]], ranks: int = 4) -> dict[str, Any]:
    return {
        "version": "2.9",
        "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": json.dumps(list(range(ranks)))}},
        "entries": entries,
    }


def waiting(seq: int, **how: Any) -> dict[str, Any]:
    return dump([entry(seq - 1, "completed"), entry(seq, "started", **how)])


def diagnose(folder: Path, dumps: dict[int, Any], form: str):
    for rank, one in dumps.items():
        path = folder / f"nccl_trace_rank_{rank}"
        path.write_bytes(pickle.dumps(one) if form == "pickle" else json.dumps(one).encode())
    return reason(scan([str(folder)]).result())


@pytest.mark.parametrize("form", ["pickle", "json"])
def test_the_rank_that_did_not_join_is_named(tmp_path: Path, form: str):
    dumps = {0: waiting(41), 1: waiting(41), 2: dump([entry(40, "completed")]), 3: waiting(41)}
    diagnosis = diagnose(tmp_path, dumps, form)
    assert ("straggler", 2) == (diagnosis.cause, diagnosis.culprit.rank)


@pytest.mark.parametrize("form", ["pickle", "json"])
def test_the_rank_that_joined_with_another_shape_is_named(tmp_path: Path, form: str):
    dumps = {0: waiting(41), 1: waiting(41, sizes=((77,),)), 2: waiting(41), 3: waiting(41)}
    diagnosis = diagnose(tmp_path, dumps, form)
    assert ("collective_desync", 1) == (diagnosis.cause, diagnosis.culprit.rank)


def test_the_rank_that_joined_with_another_operation_is_named(tmp_path: Path):
    dumps = {0: waiting(41), 1: waiting(41), 2: waiting(41), 3: waiting(41, op="nccl:broadcast")}
    diagnosis = diagnose(tmp_path, dumps, "pickle")
    assert ("collective_desync", 3) == (diagnosis.cause, diagnosis.culprit.rank)


def test_a_rank_without_a_dump_is_asked_for(tmp_path: Path):
    diagnosis = diagnose(tmp_path, {0: waiting(41), 1: waiting(41), 3: waiting(41)}, "pickle")
    assert ("collective_timeout_unknown", 2) == (diagnosis.cause, diagnosis.culprit.rank)


def test_dumps_of_a_run_that_completed_accuse_nobody(tmp_path: Path):
    diagnosis = diagnose(tmp_path, {rank: dump([entry(40, "completed")]) for rank in range(4)}, "pickle")
    assert "healthy" == diagnosis.cause


@pytest.mark.parametrize("waits, cause", [((1,), "collective_desync"), ((1, 2), None)])
def test_the_few_that_still_wait_in_what_the_others_completed_are_out_of_step(tmp_path: Path, waits: Any, cause: Any):
    dumps = {rank: waiting(41) if rank in waits else dump([entry(41, "completed")]) for rank in range(4)}
    diagnosis = diagnose(tmp_path, dumps, "json")
    assert cause == (diagnosis.cause if diagnosis.decisive else None)


@pytest.mark.parametrize("seq, fits", [(0, True), ((1 << 63) - 1, True), (1 << 63, False), (-1, False)])
def test_a_number_that_no_collective_can_have_is_none(seq: int, fits: bool):
    events = list(flight.events({**waiting(41), "rank": 0, "entries": [entry(seq, "started")]}, "dump"))
    assert [str(seq)] * fits == [event.fact("at") for event in events if event.fact("at")]


def test_of_a_group_so_many_members_count():
    events = list(flight.events({**dump([entry(1, "started")], 65_537), "rank": 0}, "dump"))
    assert 65_536 == len(events[-1].fact("members").split(","))


class _Runs:
    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (os.mkdir, (self.path,))


def test_a_pickle_that_would_run_code_is_refused_and_named(tmp_path: Path):
    target = tmp_path / "ran"
    path = tmp_path / "nccl_trace_rank_0"
    path.write_bytes(pickle.dumps({"entries": [_Runs(str(target))]}))
    collector = Collector()
    collector.add(str(path))
    assert not target.exists()
    assert "mkdir" in collector.unread[0]


def test_a_cut_off_pickle_is_named(tmp_path: Path):
    path = tmp_path / "nccl_trace_rank_0"
    path.write_bytes(pickle.dumps(waiting(4))[:-20])
    collector = Collector()
    collector.add(str(path))
    assert "damaged or cut off" in collector.unread[0]


RAS = """
NCCL version 2.27.3 compiled with CUDA 12.9

Job summary
===========

Communicators... (0.01s)
=============

Errors
======

DEAD
  1 process is considered dead (unreachable via the RAS network)
  Process 88112 on node 10.1.0.3 managing GPU 3

#0-0 (cf264af53edbe986) INCOMPLETE
  Missing communicator data from 1 rank
  Rank 11 -- GPU 3 managed by process 88112 on node 10.1.0.3

Warnings
========
"""


def test_the_dead_process_of_a_ras_report_is_named(tmp_path: Path):
    path = tmp_path / "ras.txt"
    path.write_text(RAS)
    diagnosis = reason(scan([str(path)]).result())
    assert ("peer_exit", "10.1.0.3", 88112) == (diagnosis.cause, diagnosis.culprit.host, diagnosis.culprit.pid)


def test_ranks_behind_in_a_ras_report_as_json_are_named(tmp_path: Path):
    ranks = [
        {
            "rank": rank,
            "host": "ip-10-1-0-2",
            "pid": 70 + rank,
            "collective_counts": {"AllReduce": 99 if rank == 3 else 100},
        }
        for rank in range(8)
    ]
    path = tmp_path / "ras.json"
    path.write_text(
        json.dumps(
            {
                "nccl_version": "2.28.3",
                "communicators_count": 1,
                "communicators": [{"ranks": ranks, "missing_ranks": []}],
            }
        )
    )
    diagnosis = reason(scan([str(path)]).result())
    assert ("straggler", 3) == (diagnosis.cause, diagnosis.culprit.rank)
