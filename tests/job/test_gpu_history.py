"""One GPU across nodes and boots."""

from __future__ import annotations

import pytest

from hpslurm.core.finding import P0, P1, P2, Evidence, Rule
from hpslurm.core.probe import FAIL, Result
from hpslurm.core.records import Record
from hpslurm.job.gpu_history import gpus, history

MINE = "GPU-5e0a0000-0000-4000-8000-000000000005"
OTHER = "GPU-5e0a0000-0000-4000-8000-000000000001"


def record(at: float, boot: str, *faults: tuple[str, str], instance: str = "i-1", about: str = MINE) -> Record:
    findings = tuple(
        Rule(rule, priority, "x", "x").found("x", evidence=[Evidence(f"GPU 5 ({about}, 0000:a8:00)", rule)])
        for rule, priority in faults
    )
    facts = {"uuids": [f"GPU 1 ({OTHER}, 0000:64:00)", f"GPU 5 ({MINE}, 0000:a8:00)"]}
    run = {"time": at, "node": "n1", "instance": instance, "boot": boot, "job": 7, "hook": "epilog"}
    return Record("n1", "epilog", run, (Result("gpu_count", FAIL, facts=facts, findings=findings),))


def test_the_same_fault_after_a_reboot_speaks_for_replacement() -> None:
    here = history([record(200, "b2", ("xid-79", P0)), record(100, "b1", ("xid-79", P0))], MINE)
    assert [100, 200] == [one.time for one in here.sightings]
    assert "xid-79 came back after a reboot, within a day (2 boots): speaks for a replacement" == here.verdict


def test_one_trouble_seen_in_two_ways_is_one_trouble() -> None:
    here = history([record(1, "b1", ("xid-63", P1)), record(90_000, "b2", ("row-remap-pending", P1))], MINE)
    assert "row-remap-pending came back after a reboot (2 boots): speaks for a replacement" == here.verdict


def test_two_troubles_in_two_boots_are_not_the_same_again() -> None:
    here = history([record(1, "b1", ("xid-79", P0)), record(2, "b2", ("nvlink-down", P0))], MINE)
    assert "faults in one boot only: a reboot comes first" == here.verdict


def test_the_same_fault_twice_in_one_boot_is_not_a_return() -> None:
    here = history([record(1, "b1", ("xid-79", P0)), record(2, "b1", ("xid-79", P0))], MINE)
    assert () == here.again


def test_a_gpu_that_came_back_in_another_machine_is_recognised() -> None:
    here = history([record(1, "b1", ("xid-79", P0)), record(2, "b2", ("xid-79", P0), instance="i-2")], MINE)
    assert "on another machine" in here.verdict


def test_information_is_no_fault_and_another_gpus_fault_is_not_this_ones() -> None:
    looks = [record(n, f"b{n}", ("ecc-corrected", P2)) for n in (1, 2)]
    assert () == history(looks, MINE).again
    others = [record(n, f"b{n}", ("xid-79", P0), about=OTHER) for n in (1, 2)]
    assert "no fault of this GPU in the records" == history(others, MINE).verdict
    assert 2 == len(history(others, MINE).sightings)


def test_evidence_that_only_lists_the_gpus_that_are_well_is_not_about_them() -> None:
    gone = Rule("gpu-missing", P0, "x", "x").found("x", evidence=[Evidence("NVML", f"GPU 5 ({MINE}, 0000:a8:00)")])
    seen = record(1, "b1")
    whole = Record(seen.node, seen.hook, seen.run, (*seen.results, Result("gpu_count", FAIL, findings=(gone,))))
    assert () == history([whole], MINE).sightings[0].faults


def test_a_gpu_that_no_record_names_is_said_to_be_so() -> None:
    unseen = MINE.replace("5e0a", "ffff")
    assert "not seen in any record" == history([record(1, "b1")], unseen).verdict
    assert {MINE: 2, OTHER: 2} == gpus([record(1, "b1"), record(2, "b2")])


def test_a_text_that_is_no_uuid_is_refused_with_the_shape_wanted() -> None:
    with pytest.raises(ValueError, match="GPU-12345678-1234"):
        history([], "3")


def test_a_record_of_a_wrong_shape_is_passed_over() -> None:
    odd = Record("n1", "epilog", {"time": "x", "job": "y"}, (Result("gpu_count", FAIL, facts={"uuids": 3}),))
    assert () == history([odd], MINE).sightings
