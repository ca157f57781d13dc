"""The short form of ``make fuzz``: a hundred inputs for each reader. And what the long form found."""

from __future__ import annotations

import json

import pytest

from hpslurm.sources.host import SACCT_MARK
from tests import fuzz
from tests.readers import READERS, lines

_LONG = "9" * 5000  # int() refuses as many digits
_JOB = "JobId={} JobName=x\n   UserId=a(1) GroupId=a({})\n"
_DAY = "2026-12-01T10:00:00"
_TIME = "2026-13-01T10:00:00"


@pytest.mark.parametrize("reader", sorted(READERS))
def test_no_reader_breaks_on_what_it_may_be_given(reader: str) -> None:
    outcome = fuzz.run(reader, 7, range(100))
    assert [] == outcome.wrong
    assert outcome.read >= 3, "nearly everything was refused at the door"


@pytest.mark.parametrize("reader", sorted(READERS))
def test_a_reader_reads_what_it_is_for(reader: str) -> None:
    kind = READERS[reader]
    for text in kind.texts():
        kind.read(text if isinstance(text, str) else kind.written(text))


def test_an_input_can_be_made_again_by_its_number() -> None:
    for reader in ("scan", "dump"):
        (again,) = fuzz.inputs(reader, 7, [41])
        assert again in list(fuzz.inputs(reader, 7, range(42)))


@pytest.mark.parametrize(
    ("reader", "text"),
    [
        ("slurm", f"1|RUNNING|a|1|p|1|{_TIME}|N/A|n1|None"),
        ("slurm", SACCT_MARK.join((_LONG, "FAILED", "1:0", _DAY, _DAY, "a", "p", "n1"))),
        ("slurm", f"demo|n1|{_TIME}|Unknown|DOWN|slurm(500)|x"),
        ("slurm-jobs", _JOB.format("", 1)),
        ("slurm-jobs", _JOB.format(_LONG, 1)),
        ("slurm-jobs", _JOB.format(1, _LONG)),
        ("slurm-json", '{"nodes": [{"name": "n1", "state": [5]}]}'),
        ("slurm-json", '{"nodes": [{"state": ["IDLE"]}]}'),
        ("slurm-json", '{"jobs": [{"job_id": 1, "user_id": "a"}]}'),
        ("nodes", "n" + "[1-999999999999999999]" * 300),
        ("history", lines([{"type": "run", "time": 10**400}])),
        ("hang-saved", json.dumps({"type": "hang_sample", "job": "²"})),
        ("hang-saved", json.dumps({"type": "hang_node", "name": "n1", "ras": "\ud800"})),
        ("programs", ": DROP\n:INPUT DROP\n-A INPUT -j x\n"),
    ],
)
def test_what_was_found_is_read_or_refused_in_words(reader: str, text: str) -> None:
    try:
        READERS[reader].read(text)
    except READERS[reader].refusals as error:
        assert str(error)
