"""What a check makes of a line: the weight of an XID, what is refused, and that every row of the table is used."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from hpslurm.core.finding import ROLES
from hpslurm.scan import model
from hpslurm.scan.checks.gpu import xid_meaning
from hpslurm.scan.reason import reason
from tests.scan.cases import diagnose, events_of, patterns_of

SCAN = Path(model.__file__).parent
SOURCES = [path.read_text(encoding="utf-8") for path in sorted(SCAN.rglob("*.py"))]
CAUSES = set(model.causes())


@pytest.mark.parametrize("number, cause, weight", [
    (48, "gpu_ecc", 90),
    (79, "gpu_fell_off_bus", 96),
    (31, "gpu_app_fault", 62),
    (399, "gpu_app_fault", 50),  # no table has it
])  # fmt: skip
def test_an_xid_proves_what_its_table_says(number: int, cause: str, weight: int):
    (event,) = [one for one in events_of(f"NVRM: Xid (PCI:0000:53:00): {number}, pid=7\n".encode()) if one.cause]
    assert (cause, weight, "0000:53:00") == (event.cause, event.weight, event.gpu)


@pytest.mark.parametrize("number", [0, 401])
def test_a_number_that_no_driver_prints_is_no_xid(number: int):
    assert [] == [one for one in patterns_of(f"NVRM: Xid (PCI:0000:53:00): {number}, pid=7\n") if one == "xid"]


def test_the_drivers_own_words_count_whatever_the_number():
    assert ("gpu_fell_off_bus", 50) == xid_meaning(399, "GPU has fallen off the bus")
    assert ("gpu_ecc", 50) == xid_meaning(399, "uncorrectable error")
    assert ("", 0) == xid_meaning(112), "the table calls it information"


def test_a_non_fatal_error_and_an_echo_prove_less():
    line = "NVRM: Xid (PCI:0000:53:00): 74, pid=7, NVLink: {} error\n"
    fatal, nonfatal = (events_of(line.format(word).encode())[0].weight for word in ("fatal", "non-fatal"))
    assert nonfatal == min(44, fatal) < fatal
    echo = "NVRM: Xid (PCI:0000:53:00): 45, pid=7, caused by previous Xid 48\n"
    assert [("gpu_ecc", 88)] == [(event.cause, event.weight) for event in events_of(echo.encode()) if event.cause]


LINK = "[{}] mlx5_core 0000:05:00.0 eth0: Link down\n"


@pytest.mark.parametrize("uptime, wanted", [("  119.900000", []), ("  120.000000", ["link-down-kernel"])])
def test_links_come_and_go_in_the_first_two_minutes(uptime: str, wanted: list[str]):
    assert wanted == [one for one in patterns_of(LINK.format(uptime)) if one == "link-down-kernel"]


# Every weight, cause and role of a line stands in a table.


def test_no_weight_and_no_cause_stands_in_the_code_of_the_readers():
    checks = [f"checks/{path.stem}" for path in sorted((SCAN / "checks").glob("*.py"))]
    assert len(checks) > 5
    named = ("hit", "kinds", "life", "nccl_rows", "node_lists", "nvidia_smi", "network_choice", "places", "ras",
             "slow_ranks", "small_tools", "flight")  # fmt: skip
    for name in (*checks, *named):
        tree = ast.parse((SCAN / f"{name}.py").read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.keyword) and node.arg in ("weight", "cause"):
                assert not isinstance(node.value, ast.Constant), (name, node.value.lineno)
            if isinstance(node, ast.Assign):
                targets = [ast.unparse(target) for target in node.targets]
                if any(target.endswith((".weight", ".cause", ".role")) for target in targets):
                    assert not isinstance(node.value, ast.Constant), (name, node.lineno)


def test_every_row_is_used_and_every_use_has_its_row():
    text = "\n".join(SOURCES)
    used = set(re.findall(r'\.turn\("([\w-]+)"\)', text)) | set(re.findall(r'turns\(\)\["([\w-]+)"\]', text))
    groups = set(re.findall(r'turn_by\("(\w+)"', text))
    rows = model.turns()
    assert set() == used - set(rows)
    assert {row.check for row in rows.values() if row.check} == groups
    assert {row.id for row in rows.values() if not row.check} == used


def test_a_row_names_known_causes_and_roles_and_changes_something():
    for row in model.turns().values():
        assert row.cause in ("", *CAUSES), row.id
        assert row.role in ("", *ROLES), row.id
        assert row.cause or row.role or row.weight is not None or row.at_most is not None or row.less, row.id
        assert bool(row.check) == bool(row.words), row.id
    for derived in model.derived().values():
        assert (True, True) == (derived.cause in CAUSES, derived.role in ROLES), derived.id
        assert derived.pattern in ("", *model.derived()), derived.id


@pytest.mark.parametrize("check, text, row", [
    ("cudafail", "out of memory", "cuda-failure-oom"),
    ("cudafail", "uncorrectable ECC error encountered", "cuda-failure-ecc"),
    ("mpisignal", "9", "mpi-signal-kill"),
    ("mpisignal", "19", None),
    ("launcher", "-9", "launcher-kill"),
    ("launcher", "-6", "launcher-ended"),
    ("launcher", "1", None),
    ("splat", "efa_poll+0x1/0x2 [efa]", "splat-efa"),
    ("abortreason", "Socket closed", "abort-reason-peer"),
])  # fmt: skip
def test_the_words_of_a_line_pick_the_row(check: str, text: str, row: str | None):
    turn = model.turn_by(check, text)
    assert row == (turn.id if turn else None)


# Words of another trade, and the same words where they count.


@pytest.mark.parametrize("line, kinds", [
    ("the JAX distributed service detected fatal errors", []),  # "service" is no Intel adapter
    ("ice 0000:31:00.0 ens1f0: fatal error", ["link-down-kernel"]),
])  # fmt: skip
def test_a_driver_s_name_is_a_word_of_its_own(line: str, kinds: list[str]):
    assert kinds == [one for one in patterns_of(line) if one == "link-down-kernel"]


LO = "n1:104:104 [0] NCCL INFO Bootstrap : Using lo:127.0.0.1<0>\n"


@pytest.mark.parametrize("ranks, kinds", [(1, []), (2, ["net-loopback"])])
def test_one_process_alone_needs_no_network(ranks: int, kinds: list[str]):
    text = f"{LO}n1:104:104 [0] NCCL INFO comm 0x1 rank 0 nranks {ranks} cudaDev 0 busId 170 - Init COMPLETE\n"
    assert kinds == [one for one in patterns_of(text) if one == "net-loopback"]


SHAPE = "DDP expects same model across all ranks, but Rank 3 has 51 params, while rank 0 has inconsistent {} params."


@pytest.mark.parametrize("before, params, counts", [
    ("Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1)\n", 0, False),  # it was aborted
    ("", 0, True),
    ("Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1)\n", 50, True),
])  # fmt: skip
def test_a_comparison_that_was_aborted_compared_nothing(before: str, params: int, counts: bool):
    assert counts is ("desync-shape" in patterns_of(before + SHAPE.format(params) + "\n"))


def test_the_multicast_slots_that_ran_out_are_no_gpu_memory():
    line = "Failed to bind NVLink SHARP (NVLS) Multicast memory of size 2097152 : CUDA error 2 'out of memory'."
    assert "nvls-bind" in patterns_of(line)


@pytest.mark.parametrize("line, counts", [
    ("step took 2.9 s (median 0.1 s): possible straggler or network hiccup", False),
    ("straggler detected: rank 7 on n3 is 3.1 times slower", True),
])  # fmt: skip
def test_a_guess_about_one_step_names_no_straggler(line: str, counts: bool):
    assert counts is ("straggler-text" in patterns_of(line))


def test_the_task_that_the_coordination_service_lost_stands_on_the_next_line():
    text = "absl::Status: UNAVAILABLE: The following tasks are unhealthy (stopped sending heartbeats):\n{}\n"
    (event,) = [event for event in events_of(text.format("/job:jax_worker/replica:0/task:3").encode())
                if event.pattern == "jax-task-lost"]  # fmt: skip
    assert "3" == event.fact("named_rank")
    (event,) = [event for event in events_of(text.format("none").encode()) if event.pattern == "jax-task-lost"]
    assert "" == event.fact("named_rank")


def test_the_store_s_server_is_named_by_who_lost_it():
    line = ("recvValue failed on SocketImpl(fd=9, addr=[::ffff:10.1.0.9]:38760, remote=[::ffff:10.1.0.7]:42643): "
            "Failed to recv, got 0 bytes. Connection was likely closed.")  # fmt: skip
    (event,) = [event for event in events_of(line.encode()) if event.pattern == "store-server-gone"]
    assert "10.1.0.7" == event.peer


def test_the_node_that_has_no_capacity_is_the_one_whose_reason_was_set():
    line = "update_node: node gpu-dy-2 reason set to: (Code:UnfulfillableCapacity)Failure when resuming nodes"
    (event,) = [event for event in events_of(line.encode()) if event.pattern == "capacity"]
    assert "gpu-dy-2" == event.host


def test_the_rank_that_horovod_misses_may_stand_on_a_line_of_its_own():
    text = "Missing ranks:\n0: [cond_1/then/_10/SGD/DistributedSGD_Allreduce/cond/HorovodAllreduce_grads_0]\n"
    line = (
        "One or more tensors were submitted to be reduced, gathered or broadcasted by subset of ranks and are waiting\n"
    )
    assert "0" in {event.fact("named_rank") for event in events_of((line + text).encode())}


KILLED = "srun: error: n2: task 3: Killed\n"


@pytest.mark.parametrize("before, cause", [
    ("", "host_oom"),
    ("srun: Job step aborted: Waiting up to 5 seconds for job step to finish.\n", "job_cancelled"),
    ("slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2026-12-01T01:54:35 ***\n", "job_cancelled"),
])  # fmt: skip
def test_a_task_that_is_killed_once_the_step_is_being_ended_did_not_start_it(before: str, cause: str):
    (event,) = [event for event in events_of((before + KILLED).encode()) if event.pattern == "srun-killed"]
    assert cause == event.cause


def test_a_node_that_cannot_run_jobs_at_all_is_a_matter_of_its_configuration():
    text = ("slurmctld: Node n1 unexpectedly rebooted boot_time=1 last response=2\n"
            "slurmctld: error: slurmd error running JobId=6 on node(s)=n1: Plugin initialization failed\n")  # fmt: skip
    diagnosis = reason(events_of(text.encode()))
    assert "slurm_node_config" == diagnosis.cause
    assert diagnosis.culprit is not None
    assert "n1" == diagnosis.culprit.host


@pytest.mark.parametrize(
    ("test", "cause"),
    [
        ("GPU Memory", "gpu_ecc"),
        ("memtest", "gpu_ecc"),
        ("Page Retirement", "gpu_ecc"),
        ("Memory Bandwidth", "gpu_ecc"),
        ("NVBandwidth", "gpu_nvlink"),
        ("Diagnostic", "data_corruption"),
        ("PCIe", "slow_bandwidth"),
        ("Targeted Power", "straggler"),
    ],
)
@pytest.mark.parametrize("above", [True, False], ids=["in the line above", "in the same line"])
def test_which_of_dcgms_tests_failed_decides_the_cause(test: str, cause: str, above: bool) -> None:
    rows = [f"| {test:<25} | Pass - GPUs: 1, 2 |", f"| {'':<25} | Fail - GPU: 3 |"]
    text = "\n".join(rows if above else [f"| {test:<25} | Fail - GPU: 3 |"])
    assert [(cause, "3")] == [(event.cause, event.gpu) for event in events_of(text.encode()) if event.cause]


def test_what_dcgms_watches_say_counts_as_well() -> None:
    text = "| GPU ID: 2 | Failure    |\n|           | Memory system: Failure - too many pages retired |\n"
    assert ["gpu_ecc"] == [event.cause for event in events_of(text.encode()) if event.pattern == "dcgm-test"]


@pytest.mark.parametrize("line", [
    "| Persistence Mode          | Fail                                           |",
    "| NVML Library              | Fail                                           |",
    "| Overall Health            | Failure                                        |",
    "| GPU Memory                | Pass - All                                     |",
    "| test_login                | Failing over to the second server              |",
])  # fmt: skip
def test_dcgms_words_on_software_and_other_tables_name_no_gpu(line: str) -> None:
    assert [] == [event for event in events_of(line.encode()) if event.pattern == "dcgm-test"]


def test_megatron_names_rank_gpu_and_node_of_the_loss_that_is_no_number() -> None:
    said = "AssertionError: Rank 13: found NaN in local forward loss calculation. Device: 5, node: ip-10-1-0-7"
    culprit = reason(events_of(f"{said}\n".encode())).culprit
    assert culprit is not None
    assert (13, "5", "ip-10-1-0-7") == (culprit.rank, culprit.gpu, culprit.host)


@pytest.mark.parametrize("driver, cause", [
    ("nvidia 0000:bb:00.0: ", "gpu_fell_off_bus"),
    ("mlx5_core 0000:bb:00.0: ", "network_link"),
    ("nvme nvme2: ", "gpu_fell_off_bus"),  # which card this is, nobody says
    ("nvme 0000:bb:00.0: ", "storage"),
])  # fmt: skip
def test_a_slot_that_lost_its_card_is_about_the_card_whose_driver_speaks(driver: str, cause: str):
    lines = f"[ 812.1] pcieport 0000:b9:01.0: pciehp: Slot(2-4): Link Down\n[ 812.2] {driver}no longer answers\n"
    assert cause == diagnose(lines.encode()).cause


@pytest.mark.parametrize("lost, confident", [(2, False), (3, True)])
def test_a_file_system_that_comes_back_again_and_again_is_no_single_outage(lost: int, confident: bool):
    one = "Lustre: fsx-OST003a-osc: Connection to fsx-OST003a (at 10.28.1.43@tcp) was lost; will wait\n"
    text = one + (one + "Lustre: fsx-OST003a-osc: Connection restored to (at 10.28.1.43@tcp)\n") * lost
    (event,) = (event for event in events_of(text.encode()) if event.pattern == "lustre")
    assert confident is (event.weight == 70)


@pytest.mark.parametrize("before, cause", [
    ("", "app_error"),
    ("[rank0]:[E1218 20:27:21.42 ProcessGroupNCCL.cpp:629] [Rank 0] Watchdog caught collective operation timeout: "
     "WorkNCCL(SeqNum=1, OpType=BROADCAST, Timeout(ms)=600000) ran for 600060 milliseconds before timing out.\n",
     "collective_timeout_unknown"),
])  # fmt: skip
def test_what_a_script_says_after_its_program_failed_did_not_fail_it(before: str, cause: str):
    assert cause == diagnose(f"{before}order_1.sh: line 45: --disable_tqdm: command not found\n".encode()).cause


@pytest.mark.parametrize("after, cause", [
    ("", "prolog_epilog"), ("slurmstepd: error: Setting TMPDIR to /tmp\n", "undetermined"),
])  # fmt: skip
def test_a_folder_of_tmpdir_that_slurm_can_do_without_is_no_cause(after: str, cause: str):
    line = "slurmstepd: error: Unable to create TMPDIR [/tmp/alice/25534]: No such file or directory\n"
    assert cause == diagnose(f"{line}{after}".encode()).cause


def test_a_ucx_line_names_its_host_and_process():
    (event,) = (event for event in events_of(b"[n1:29823:0:29823]  wireup.c:346  Assertion `a < b' failed: lane=3/7\n")
                if event.pattern == "assertion")  # fmt: skip
    assert ("n1", 29823) == (event.host, event.pid)
