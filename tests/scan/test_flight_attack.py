"""A dump made to hold its reader up: little memory, little time, and a word why it was not read."""

from __future__ import annotations

import io
import pickle
import time
from pathlib import Path

import pytest

from hpslurm.scan import flight
from hpslurm.scan.collect import Collector


def bomb() -> bytes:
    """Forty lists, each twice in the next: 2**40 when they are written out."""
    inner: list[object] = ["x"]
    for _ in range(40):
        inner = [inner, inner]
    entry = {"collective_seq_id": 1, "pg_id": 0, "state": "started", "profiling_name": "a", "input_sizes": inner}
    return pickle.dumps({"entries": [entry], "rank": 0, "pg_config": {"0": {"ranks": "[0]"}}}, protocol=4)


ASKS_FOR_MEMORY = (
    b"\x80\x04r\xff\xff\xff\x7f.",  # a place in the memory of two thousand million
    b"\x80\x05\x96\xff\xff\xff\x7f\x00\x00\x00\x00a.",  # an array of two gigabytes, of which one byte is there
)


@pytest.mark.parametrize("data", [bomb(), *ASKS_FOR_MEMORY], ids=("lists in lists", "memo", "array"))
def test_a_dump_that_grows_while_it_is_read_is_refused_in_time(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "nccl_trace_rank_0"
    path.write_bytes(data)
    collector, began = Collector(), time.monotonic()
    collector.add(str(path))
    assert time.monotonic() - began < flight.SECONDS + 10
    assert ["nccl_trace_rank_0"] == [line.split(":")[0].rpartition("/")[2] for line in collector.unread]
    assert any(word in collector.unread[0] for word in ("too large to read", "not read within", "damaged"))


def test_an_honest_dump_is_read_as_before() -> None:
    entries = [
        {"collective_seq_id": number, "pg_id": 0, "state": state, "profiling_name": "nccl:all_reduce"}
        for number, state in ((1, "completed"), (2, "started"))
    ]
    data = pickle.dumps({"entries": entries, "rank": 3, "version": "2.4"}, protocol=4)
    dump = flight.load(io.BytesIO(data))
    assert list(flight.events(dump, "x")) == flight.read(io.BytesIO(data), "x")
