"""What stands in front of a message: one line of each dialect, and clocks of different time zones."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpslurm.scan import prefix
from hpslurm.scan.collect import scan
from hpslurm.scan.reason import reason


@pytest.mark.parametrize("line, fields", [
    (" 3: hello", {"rank": 3}),
    ("12: 13: hello", {"rank": 12, "text": " 13: hello"}),  # one label, the rest is the message
    ("[1,5]<stderr>:hello", {"rank": 5}),
    ("[rank7]: hello", {"rank": 7}),
    ("[default2]:hello", {"local_rank": 2}),
    ("[trainer4|1]:hello", {"rank": 4}),
    ("i.pretrain/0 [default2]:[rank2]: hello", {"rank": 2, "local_rank": 2}),  # TorchX
    (" 0: [rank7]: hello", {"rank": 7}),  # the program's own rank counts more than the launcher's
    ("(RayTrain pid=77, ip=10.1.0.7) hello", {"pid": 77, "host": "10.1.0.7"}),
    ("(worker rank=6 pid=77) hello", {"pid": 77, "rank": 6}),
    ("(worker rank=6 pid=77, ip=10.1.0.7) a [repeated 7x across cluster]",
     {"pid": None, "rank": None, "host": "", "many": True, "text": "a [repeated 7x across cluster]"}),
    ("(worker pid=77) a [repeated 7x]", {"pid": 77, "many": False, "text": "a [repeated 7x]"}),
    ("ip-10-1-0-7:77:78 [5] hello", {"host": "ip-10-1-0-7", "pid": 77, "local_rank": 5}),
    ("ip-10-1-0-7:77:78 [-1] hello", {"host": "ip-10-1-0-7", "pid": 77, "local_rank": None}),
    ("ip-10-1-0-7:77 [5] hello", {"host": "ip-10-1-0-7", "pid": 77, "local_rank": 5}),
    ("[1736523024.123456] [n1:77:0] hello", {"host": "n1", "pid": 77}),
    ("slurmstepd-n7: hello", {"host": "n7", "text": "slurmstepd-n7: hello"}),
    ("10.1.0.7: hello", {"host": "10.1.0.7"}),
    ("ip-10-1-0-7: hello", {"host": "ip-10-1-0-7"}),
    ("slurmd2: hello", {"host": "", "text": "slurmd2: hello"}),
    ("[ 12.345678] hello", {"time": None}),
    ("Jan 10 15:30:24 n3 kernel: hello", {"host": "n3"}),
    ("Jan 10 15:30:24 n3: hello", {"host": "n3"}),
    ("2025-01-10T15:30:24.123456+00:00 n3 kernel: hello", {"host": "n3"}),
    ("srun: error: n3: task 6: hello", {"host": "n3", "rank": 6, "text": "srun: error: n3: task 6: hello"}),
    ("srun: error: n3: tasks 6-7: hello", {"host": "n3", "rank": None, "text": "srun: error: n3: tasks 6-7: hello"}),
    ("[2025-01-10 15:30:24 DP1 TP3] hello", {"rank": 3}),
])  # fmt: skip
def test_a_dialect_is_understood(line: str, fields: dict[str, object]):
    mark = prefix.read(line, 2025)
    assert {"text": "hello", **fields} == {name: getattr(mark, name) for name in ("text", *fields) if name}


AT = 1_736_523_024  # 2025-01-10T15:30:24Z


@pytest.mark.parametrize("line, time", [
    ("2025-01-10T15:30:24Z x", AT),
    ("2025-01-10T17:30:24+02:00 x", AT),
    ("2025-01-10T10:00:24-0530 x", AT),
    ("2025-01-10 15:30:24,500 x", AT + 0.5),
    ("[2025/01/10 15:30:24] x", AT),
    ("01/10/25 15:30:24 x", AT),
    ("E0110 15:30:24.500000 77 x", AT + 0.5),
    ("[Fri Jan 10 15:30:24 2025] x", AT),
    ("Jan 10 15:30:24 n3 kernel: x", AT),
    ("2025-13-10T15:30:24Z x", None),
    ("2025-12-32T15:30:24Z x", None),
    ("2025-12-31T00:00:00Z x", 1_767_139_200),
    ("2024-02-29T00:00:00Z x", 1_709_164_800),
    ("2024-03-01T00:00:00Z x", 1_709_251_200),
])  # fmt: skip
def test_a_clock_is_read(line: str, time: float | None):
    assert time == prefix.read(line, 2025).time


def test_the_node_that_failed_first_is_named_across_time_zones(tmp_path: Path):
    oom = "{} n{} kernel: Out of memory: Killed process 77 (python) total-vm:1kB\n"
    (tmp_path / "n1.log").write_text(oom.format("2025-01-10T15:30:24Z", 1))
    (tmp_path / "n2.log").write_text(oom.format("2025-01-10T17:10:24+02:00", 2))
    diagnosis = reason(scan([str(tmp_path)]).result())
    assert diagnosis.culprit is not None
    assert ("host_oom", "n2") == (diagnosis.cause, diagnosis.culprit.host)


@pytest.mark.parametrize("gap, rank", [(386, 4), (387, None)])
def test_a_message_names_its_own_rank_near_its_beginning(gap: int, rank: int | None):
    assert rank == prefix.read("x" * gap + " Global rank 4").rank


@pytest.mark.parametrize("path, rank, number", [
    ("train.rank3.err", 3, None),
    ("logs/attempt_0/5/stderr.log", 5, None),
    ("out_7.txt", 7, None),
    ("3.log", None, 3),
    ("train-3.out", None, 3),
    ("slurm-4711.out", None, 4711),
    ("rank199999.log", 199_999, None),
    ("rank200000.log", None, None),
    ("job.out", None, None),
])  # fmt: skip
def test_a_files_name_may_tell_a_rank(path: str, rank: int | None, number: int | None):
    assert rank == prefix.rank_of_file(path)
    assert rank is not None or number == prefix.number_of_file(path)


@pytest.mark.parametrize("line, strange", [
    ("Aug 25 19:38:05 n1 sshd[920]: error: kex_exchange: Connection reset by peer", True),
    ("2024-08-25T19:38:05+02:00 n1 wpa_supplicant[920]: Name or service not known", True),
    ("Aug 25 19:38:05 n1 slurmd[920]: error: Connection reset by peer", False),
    ("Aug 25 19:38:05 n1 0f3a2b4c5d6e[920]: Connection reset by peer", False),  # a container
    ("Aug 25 19:38:05 n1 kernel: traps: python[7] general protection fault", False),
    ("train.py[920]: Connection reset by peer", False),
])  # fmt: skip
def test_a_service_that_has_no_part_in_jobs_is_told_from_those_that_have(line: str, strange: bool):
    assert strange is prefix.is_aside(line)
