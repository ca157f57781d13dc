"""What a job does between two health checks: a hang shows, and work of any kind is never called one."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from hpslurm.core.probe import PASS, Result, Skip, plain
from hpslurm.core.records import Record
from hpslurm.node import job_activity
from hpslurm.node.job_activity import DIFFERS, IDLES, UNKNOWN, WAITS, WORKS, Facts, Job, collect, compared
from hpslurm.sources.host import Host

START, MINUTE = 1_800_000_000.0, 60.0
GPU = {"activity": [100, 180_000, 700_000, 60_000, 1980], "nvlink_kib": 1000}
CGROUP = "0::/system.slice/slurmstepd.scope/job_4711/step_0/user/task_0\n"
STAT = "9100 (python3) R 1 1 1 0 -1 0 0 0 0 0 1000 500 0 0 20 0 1 0 48251\n"


def machine(host_with: Callable[..., Host], *gpus: dict[str, Any], cgroup: str = CGROUP, **files: str) -> Host:
    rows = [{**GPU, "processes": [9100], **gpu} for gpu in gpus]
    proc = {
        "/proc/9100/cgroup": cgroup,
        "/proc/9100/stat": STAT,
        "/proc/9100/io": "rchar: 3000\nwchar: 4000\n",
        "/proc/9100/status": "Name:\tpython3\nUid:\t1001\t1001\t1001\t1001\n",
    }
    return host_with({"/gpus.json": json.dumps({"gpus": rows}), **proc, **files}, in_hook=True)


def test_a_job_is_known_by_the_processes_on_its_gpus(host_with: Callable[..., Host]) -> None:
    facts = collect(machine(host_with, {}, {"activity": [0, 70_000, 700_000, 4, 345]}))
    assert {"4711": Job(2, 1, 1, 2, 15.0, 7000, 1001)} == facts.jobs
    assert 2000 * 1024 == facts.moved


def test_without_cgroups_the_environment_tells_the_job(host_with: Callable[..., Host]) -> None:
    host = machine(host_with, {}, cgroup="0::/\n", **{"/proc/9100/environ": "A=1\0SLURM_JOB_ID=4712\0B=2\0"})
    assert ["4712"] == list(collect(host).jobs)


def test_a_gpu_without_a_job_is_nothing_to_look_at(host_with: Callable[..., Host]) -> None:
    with pytest.raises(Skip):
        collect(machine(host_with, {"processes": []}))


def test_it_costs_less_than_5_ms_on_a_node_of_8_gpus_and_32_efa_devices(host_with: Callable[..., Host]) -> None:
    counters = {
        f"/sys/class/infiniband/rdmap{number}/{place}": text
        for number in range(32)
        for place, text in (("ports/1/hw_counters/tx_bytes", "5\n"), ("ports/1/hw_counters/rx_bytes", "6\n"),
                            ("device/vendor", "0x1d0f\n"), ("device/device", "0xefa1\n"))
    }  # fmt: skip
    times = []
    for _ in range(5):
        host = machine(host_with, *[{}] * 8, **counters)
        collect(host)  # the snapshot is another probe's
        began = time.perf_counter()
        collect(host)
        times.append(time.perf_counter() - began)
    assert min(times) < 0.005


# two looks


def looks(*doing: dict[str, float], every: float = MINUTE) -> dict[str, Any]:
    """The job in the last of several looks, each a minute after the one before."""
    record: dict[str, Any] = {}
    for number, changes in enumerate(doing):
        moved = int(changes.pop("moved", 0))
        job = {"gpus": 8, "waiting": 8, "idle": 0, "seen": 8, "cpu": number * every * 8, "bytes": 0, **changes}
        facts = Facts(START + number * every, {"7": Job(**job)}, moved)  # type: ignore[arg-type]
        record = compared(record or None, plain(facts))
    found: dict[str, Any] = record["jobs"]["7"]
    return found


def test_one_look_alone_tells_nothing() -> None:
    assert (UNKNOWN, START) == (looks({})["doing"], looks({})["since"])


def test_gpus_that_wait_in_look_after_look_wait_since_the_first() -> None:
    job = looks({}, {}, {}, {})
    assert (WAITS, START) == (job["doing"], job["since"])


def test_a_moment_of_work_begins_anew() -> None:
    job = looks({}, {}, {"waiting": 7}, {}, {})
    assert (WAITS, START + 2 * MINUTE) == (job["doing"], job["since"])


@pytest.mark.parametrize(
    ("what", "work"),
    [
        ("an evaluation on one GPU at power", [{}, {"waiting": 7}]),
        ("bytes over the network", [{}, {"moved": 64 << 20}]),
        ("a checkpoint that is written", [{}, {"bytes": 64 << 20}]),
        ("one rank that compiles or loads data on its CPU", [{}, {"waiting": 7, "idle": 1}]),
        ("all ranks that start, with many data loaders", [{"waiting": 0, "idle": 8}, {"waiting": 0, "idle": 8}]),
    ],
)
def test_work_of_any_kind_is_work(what: str, work: list[dict[str, float]]) -> None:
    assert WORKS == looks(*work)["doing"], what


def test_a_rank_that_is_blocked_makes_its_node_differ() -> None:
    blocked = {"waiting": 7, "idle": 1}
    assert DIFFERS == looks({**blocked, "cpu": 0}, {**blocked, "cpu": 7 * MINUTE})["doing"]
    assert IDLES == looks({"waiting": 0, "idle": 8, "cpu": 0}, {"waiting": 0, "idle": 8, "cpu": 3})["doing"]


def test_half_a_core_below_one_for_each_gpu_is_the_threshold() -> None:
    blocked = {"waiting": 7, "idle": 1}
    assert WORKS == looks({**blocked, "cpu": 0}, {**blocked, "cpu": 7.5 * MINUTE})["doing"]
    assert DIFFERS == looks({**blocked, "cpu": 0}, {**blocked, "cpu": 7.49 * MINUTE})["doing"]


def test_a_gpu_that_does_not_tell_makes_it_unknown_and_never_stalled() -> None:
    assert UNKNOWN == looks({}, {"seen": 7})["doing"]


def test_two_looks_at_once_keep_what_is_known() -> None:
    job = looks({}, {}, {"waiting": 0}, every=15)
    assert UNKNOWN == job["doing"]


def record(jobs: dict[str, Any], hook: str = "health") -> Record:
    facts = {"time": START + 1200, "jobs": jobs, "moved": 0}
    return Record("n1", hook, {"time": START + 1200}, (Result("job_activity", PASS, facts=facts),))


WAITING = {"gpus": 8, "doing": WAITS, "since": START, "uid": 0}


def test_seconds_of_a_job_are_those_of_the_node_that_stands_still_the_shortest() -> None:
    later = {**WAITING, "since": START + 600}
    told = {"n1": job_activity.activity(record({"7": WAITING})), "n2": job_activity.activity(record({"7": later}))}
    assert {("7", 0): 600.0} == job_activity.stalled(told)  # type: ignore[arg-type]


def test_a_node_that_works_makes_it_none() -> None:
    works = {**WAITING, "doing": WORKS}
    told = {"n1": job_activity.activity(record({"7": WAITING})), "n2": job_activity.activity(record({"7": works}))}
    assert {("7", 0): 0.0} == job_activity.stalled(told)  # type: ignore[arg-type]


def test_only_a_health_check_tells() -> None:
    assert None is job_activity.activity(record({"7": WAITING}, hook="prolog"))


@pytest.mark.parametrize("strange", [{"7": 3}, {"7": {"since": "x"}}, ["7"], None, {"7": {**WAITING, "gpus": None}}])
def test_a_record_of_another_shape_is_passed_over(strange: Any) -> None:
    assert {} == job_activity.stalled({"n1": {"time": START, "jobs": strange}})
