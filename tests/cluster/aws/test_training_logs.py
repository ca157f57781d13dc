"""What jobs printed, where a site's agent ships it to CloudWatch: one cause, of the machine whose line decided it."""

from __future__ import annotations

import pytest

from hpslurm.sources import aws
from tests.cluster.aws.looking import World, identity, look

HANG = (
    "[rank8]:[E1201 10:00:00.1 ProcessGroupNCCL.cpp:683] [Rank 8] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=812, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600012 milliseconds"
)
ECC = "[rank17]: RuntimeError: CUDA error: uncorrectable ECC error encountered"


@pytest.fixture(autouse=True)
def no_pause(monkeypatch):
    monkeypatch.setattr(aws, "LOG_PAUSE", 0.0)


def shipped(number: int, minutes: float, text: str, world: World | None = None) -> World:
    return (world or World()).log(f"{identity(number)}/training", minutes, text)


def test_the_cause_is_told_of_the_node_whose_line_decided_it_and_not_of_those_that_waited(tmp_path):
    world = shipped(3, 21, ECC, shipped(2, 20, HANG, shipped(4, 20, HANG)))
    seen = look(tmp_path, world)
    finding = seen.one("training-log", "ip-10-1-0-3")
    assert "21 minutes ago: gpu_ecc (high confidence)" in finding.detail
    assert "3 of the streams" in finding.detail
    assert [ECC] == [item.text for item in finding.evidence]
    assert f"--log-stream-names {identity(3)}/training" in finding.suggestions[0].command
    assert "hpslurm explain gpu_ecc" in finding.suggestions[1].command
    assert [] == seen.changes()


def test_a_stream_that_is_named_by_its_host_leads_to_its_node(tmp_path):
    seen = look(tmp_path, World().log("ip-10-1-0-5.us-west-2.compute.internal/nccl", 9, ECC))
    assert "gpu_ecc" in seen.one("training-log", "ip-10-1-0-5").detail


def test_a_stream_that_names_no_machine_is_told_of_the_cluster(tmp_path):
    assert (
        "by a line of train.out" in look(tmp_path, World().log("train.out", 9, ECC)).one("training-log", "demo").detail
    )


def told(seen):
    return [finding for finding in seen.findings if finding.rule.id == "training-log"]


OOM = "[rank25]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU 1 has 139.81 GiB in all"


def test_what_does_not_follow_from_the_first_cause_is_told_of_its_own_node(tmp_path):
    world = shipped(3, 21, ECC, shipped(2, 20, HANG, shipped(4, 25, OOM)))
    seen = look(tmp_path, world)
    assert "gpu_ecc" in seen.one("training-log", "ip-10-1-0-3").detail
    assert "25 minutes ago: gpu_oom" in seen.one("training-log", "ip-10-1-0-4").detail
    assert 2 == len(told(seen))


def test_the_same_fault_of_another_machine_is_another_finding(tmp_path):
    seen = look(tmp_path, shipped(3, 21, ECC, shipped(5, 30, ECC)))
    assert {"gpu_ecc"} == {
        word
        for node in ("ip-10-1-0-3", "ip-10-1-0-5")
        for word in seen.one("training-log", node).detail.split()
        if word.startswith("gpu_")
    }


def test_a_mistake_that_every_rank_prints_is_told_once(tmp_path):
    error = "[rank{}]: ValueError: unknown optimizer 'adamm'"
    world = World()
    for number in (2, 3, 4, 5):
        shipped(number, 12, "[rank0]: Traceback (most recent call last):", world)
        shipped(number, 12, error.format(number), world)
    assert ["app_error"] == [finding.detail.split(": ")[1].split()[0] for finding in told(look(tmp_path, world))]


def outcome(seen) -> tuple[str, str]:
    (result,) = [result for result in seen.results if result.probe == "training_logs"]
    return result.outcome, result.note


def test_hyperpods_own_streams_are_none_of_jobs(tmp_path):
    state, note = outcome(look(tmp_path, World().script(3, f"ERROR {ECC}")))
    assert ("skip", True) == (state, "only where a site's agent ships it" in note)


def test_what_an_instance_that_is_gone_printed_is_history(tmp_path):
    assert "skip" == outcome(look(tmp_path, World().log("i-0fffffffffffffff0/training", 9, ECC)))[0]


def test_lines_that_say_nothing_of_a_cause_are_no_finding(tmp_path):
    seen = look(tmp_path, shipped(3, 9, "INFO: 0 tests were Killed today, says the scheduler of the game"))
    assert "training-log" not in seen.ids()


def test_older_lines_than_the_look_reaches_back_are_not_read(tmp_path):
    assert "training-log" not in look(tmp_path, shipped(3, 60 * 24 * 3, ECC)).ids()
