"""Facts of a look by hand, and the verdict: who holds the job up, and when nobody is accused."""

from __future__ import annotations

import pytest

from hpslurm.core.finding import Culprit, Diagnosis
from hpslurm.core.values import replace
from hpslurm.job.hang import places as hang_places
from hpslurm.job.hang.case import Verdict, compared, main_step
from hpslurm.job.hang.facts import Child, Frame, Gpu, Node, Rank, Sample, Stack
from hpslurm.job.hang.judge import judge
from tests.fake import hanging, hanging_frameworks
from tests.fake.hanging import ALL_REDUCE, BARRIER, INIT, ITEM, RECV, lib, own

LOADS = (lib("_try_get_data", "torch/utils/data/dataloader.py", 1131), own("batches", 120), own("main", 400))
OWN = (own("rebalance", 77), own("main", 400))
SPINS = Gpu(0, 100, 180.0, 700.0)


def rank(number: int, stack: Stack | None = ALL_REDUCE, **more: object) -> Rank:
    words = {"state": "S", "before": "S", "later": stack, **more}
    return Rank(f"n{number // 2 + 1}", 1000 + number, number, number % 2, 8, stack=stack, **words)  # type: ignore[arg-type]


def job(*odd: Rank, without: tuple[int, ...] = (), **node: object) -> Sample:
    """Eight ranks, two a node; all wait in one all_reduce but those that are given."""
    given = {one.rank: one for one in odd}
    ranks = [given.get(number, rank(number)) for number in range(8) if number not in without]
    nodes = [
        Node(f"n{number}", tuple(one for one in ranks if one.node == f"n{number}"), seconds=2.0, **node)  # type: ignore[arg-type]
        for number in range(1, 5)
    ]
    return Sample("4711", tuple(nodes))


def named(verdict: Verdict) -> list[tuple[int | None, str]]:
    return [(suspect.rank, suspect.node) for suspect in verdict.suspects]


def test_a_rank_in_its_data_loader_is_named_while_the_others_wait_in_a_collective() -> None:
    verdict = judge(job(rank(5, LOADS)))
    assert ("slow_rank_work", "high", [(5, "n3")]) == (verdict.cause, verdict.confidence, named(verdict))
    assert (
        "Rank 5 on n3 waits for its data loader at _try_get_data (train.py:120), while 7 ranks wait at all_reduce "
        "(train.py:210)" == verdict.why
    )
    assert Culprit(5, 1, "n3", None, 1005) == verdict.culprit


def test_a_job_in_which_most_ranks_are_in_their_data_loaders_has_nobody_to_blame() -> None:
    verdict = judge(job(*(rank(number, LOADS) for number in range(5))))
    assert [] == named(verdict)


@pytest.mark.parametrize(("state", "words"), [("T", "stopped by a signal"), ("t", "held by a debugger")])
def test_a_stopped_rank_is_named_whatever_its_stack_says(state: str, words: str) -> None:
    verdict = judge(job(rank(3, state=state)))
    assert ("high", [(3, "n2")]) == (verdict.confidence, named(verdict))
    assert words in verdict.why


def test_when_all_are_stopped_the_job_is_suspended() -> None:
    verdict = judge(job(*(rank(number, state="T") for number in range(8))))
    assert "scontrol suspend" in verdict.why


def test_a_rank_that_is_gone_is_named_with_the_node_that_it_belongs_to() -> None:
    verdict = judge(job(without=(6,)))
    assert ("peer_exit", "high", [(6, "n4")]) == (verdict.cause, verdict.confidence, named(verdict))


def test_a_rank_missing_while_the_others_wait_at_the_start_never_came() -> None:
    starts = [rank(number, INIT) for number in range(8)]
    verdict = judge(job(*starts, without=(7,)))
    assert ("rendezvous_unreachable", [(7, "n4")]) == (verdict.cause, named(verdict))


def test_a_rank_that_may_be_on_a_silent_node_is_not_called_gone() -> None:
    seen = job()
    verdict = judge(replace(seen, nodes=seen.nodes[:3], silent=("n4",)))
    assert ("node_fail", [(None, "n4")]) == (verdict.cause, named(verdict))


def test_one_rank_in_state_d_is_storage_with_the_rank_and_the_file() -> None:
    verdict = judge(job(rank(2, None, state="D", before="D", where="/fsx/ckpt/a.pt")))
    assert ("storage", "high", [(2, "n2")]) == (verdict.cause, verdict.confidence, named(verdict))
    assert "/fsx/ckpt/a.pt" in verdict.why


def test_a_process_of_a_rank_in_state_d_counts_as_well() -> None:
    child = Child(77, "pt_data_worker", "D", "rpc_wait_bit_killable", "/fsx/data/1.tar")
    verdict = judge(job(rank(2, LOADS, children=(child,))))
    assert ("storage", [(2, "n2")]) == (verdict.cause, named(verdict))


def test_all_ranks_in_state_d_are_the_file_system_and_no_rank() -> None:
    stuck = [rank(number, None, state="D", before="D", where=f"/fsx/{number}.pt") for number in range(8)]
    verdict = judge(job(*stuck))
    assert ("storage", []) == (verdict.cause, named(verdict))
    assert "(/fsx)" in verdict.why


def test_state_d_at_one_moment_is_a_read_and_no_hang() -> None:
    assert [] == named(judge(job(rank(2, state="D", before="S"))))
    assert [] == named(judge(job(rank(2, state="D", before="D", wakes=0.5))))


def test_state_d_without_waking_is_a_hang_whatever_other_threads_write() -> None:
    assert [(2, "n2")] == named(judge(job(rank(2, state="D", before="D", wakes=0.4, read=4096, busy=1.0))))


def test_a_lost_gpu_is_named_with_the_rank_that_has_it() -> None:
    seen = job()
    sick = replace(seen.nodes[1], gpus=(SPINS, Gpu(1, processes=(1003,), lost="GPU is lost")))
    verdict = judge(replace(seen, nodes=(seen.nodes[0], sick, *seen.nodes[2:])))
    assert ("gpu_fell_off_bus", [(3, "n2")]) == (verdict.cause, named(verdict))


def test_bytes_that_move_say_that_it_does_not_hang_even_if_a_rank_loads_data() -> None:
    verdict = judge(job(rank(5, LOADS), efa=4 << 30))
    assert ("healthy", False) == (verdict.cause, verdict.hangs)
    assert "2.15 GB/s go through 4 of 4 nodes" in verdict.why


@pytest.mark.parametrize(("moved", "cause"), [((1 << 21), "healthy"), ((1 << 21) - 2, "slow_rank_work")])
def test_a_mebibyte_a_second_is_the_threshold(moved: int, cause: str) -> None:
    assert cause == judge(job(rank(5, LOADS), efa=moved)).cause


def test_gpus_at_high_power_compute() -> None:
    verdict = judge(job(rank(5, LOADS), gpus=(Gpu(0, 100, 350.0, 700.0),)))
    assert "healthy" == verdict.cause


def test_gpus_that_are_busy_at_low_power_only_wait() -> None:
    assert "slow_rank_work" == judge(job(rank(5, LOADS), gpus=(SPINS,))).cause


def test_ranks_that_left_a_collective_between_the_looks_show_that_the_job_gets_on() -> None:
    verdict = judge(job(rank(1, later=OWN), rank(5, LOADS)))
    assert "healthy" == verdict.cause


def test_the_suspect_alone_may_move() -> None:
    further = (LOADS[0], own("batches", 121), LOADS[2])
    verdict = judge(job(rank(5, LOADS, later=further)))
    assert [(5, "n3")] == named(verdict)


def test_a_rank_at_a_place_that_nobody_knows_is_named_while_all_others_wait() -> None:
    verdict = judge(job(rank(4, OWN, state="R", before="R", busy=0.99)))
    assert ("slow_rank_work", "high", [(4, "n3")]) == (verdict.cause, verdict.confidence, named(verdict))
    assert "spins, with 99% of a CPU" in verdict.why


def test_a_rank_in_another_collective_is_named() -> None:
    verdict = judge(job(rank(4, BARRIER)))
    assert ("collective_desync", "medium", [(4, "n3")]) == (verdict.cause, verdict.confidence, named(verdict))


def test_half_and_half_in_two_collectives_accuse_nobody() -> None:
    assert [] == named(judge(job(*(rank(number, BARRIER) for number in range(4)))))


def test_all_in_one_collective_and_nothing_else_to_see_names_nobody_and_says_what_would_settle_it() -> None:
    verdict = judge(job())
    assert ("collective_timeout_unknown", "low", []) == (verdict.cause, verdict.confidence, named(verdict))
    assert any("RAS" in item for item in verdict.settle)


def test_nodes_whose_counters_stand_still_while_the_others_trickle_come_first() -> None:
    seen = job(gpus=(SPINS,), efa=400_000)
    nodes = (replace(seen.nodes[0], efa=0), *seen.nodes[1:])
    verdict = judge(replace(seen, nodes=nodes))
    assert ("network_link", [(None, "n1")]) == (verdict.cause, named(verdict))
    assert any("--find-slow" in item for item in verdict.settle)


def test_when_all_counters_stand_still_no_node_is_accused() -> None:
    verdict = judge(job(gpus=(SPINS,), efa=0))
    assert ("network_link", "low", []) == (verdict.cause, verdict.confidence, named(verdict))


def test_the_one_idle_gpu_tells_the_rank_that_did_not_come_where_there_are_no_stacks() -> None:
    ranks = [rank(number, None, state="R", before="R", busy=0.99) for number in range(8)]
    seen = job(*ranks, gpus=(SPINS, Gpu(1, 100, 170.0, 700.0)))
    odd = replace(seen.nodes[2], gpus=(SPINS, Gpu(1, 0, 90.0, 700.0)))
    verdict = judge(replace(seen, nodes=(*seen.nodes[:2], odd, seen.nodes[3])))
    assert ("slow_rank_work", "medium", [(5, "n3")]) == (verdict.cause, verdict.confidence, named(verdict))


def test_without_stacks_the_wait_channel_tells() -> None:
    waits = [rank(number, None, channel="futex_do_wait") for number in range(8)]
    verdict = judge(job(*waits[:5], rank(5, None, channel="hrtimer_nanosleep"), *waits[6:]))
    assert ("slow_rank_work", "medium", [(5, "n3")]) == (verdict.cause, verdict.confidence, named(verdict))
    assert any("py-spy" in item for item in verdict.settle) or verdict.confidence == "medium"


def test_without_stacks_ranks_that_wake_all_the_time_are_not_called_hung() -> None:
    waits = [rank(number, None, channel="futex_do_wait", wakes=50.0) for number in range(8)]
    verdict = judge(job(*waits[:5], rank(5, None, channel="hrtimer_nanosleep"), *waits[6:]))
    assert "undetermined" == verdict.cause


def test_nothing_seen_is_undetermined_and_never_fine() -> None:
    assert "undetermined" == judge(Sample("1", (), ("n1", "n2"))).cause
    assert "undetermined" == judge(Sample("1", (Node("n1"),))).cause


TOLD = Diagnosis("peer_exit", "high", "NCCL calls it dead", Culprit(rank=3, host="n2"))


def test_nccls_own_report_names_who_stacks_do_not() -> None:
    verdict = judge(job(), TOLD)
    assert ("peer_exit", "high", [(3, "n2")]) == (verdict.cause, verdict.confidence, named(verdict))


def test_a_report_that_agrees_makes_it_sure() -> None:
    verdict = judge(job(rank(3, BARRIER)), TOLD)
    assert ("collective_desync", "high") == (verdict.cause, verdict.confidence)
    assert "NCCL says the same" in verdict.why


def test_a_job_that_works_is_not_called_hung_for_a_report() -> None:
    assert "healthy" == judge(job(efa=4 << 30), TOLD).cause


def test_the_step_with_most_ranks_is_the_training() -> None:
    shell = replace(rank(0, None, step="batch"), pid=7)
    seen = job()
    nodes = (replace(seen.nodes[0], ranks=(shell, *(replace(one, step="0") for one in seen.nodes[0].ranks))),)
    assert [1000, 1001] == [one.pid for one in main_step(replace(seen, nodes=nodes)).ranks]


def test_two_samples_are_compared_rank_by_rank() -> None:
    first, second = job(rank(5, LOADS)), job(rank(1, ITEM), rank(5, LOADS))
    verdict = judge(compared(first, second))
    assert "healthy" == verdict.cause


@pytest.mark.parametrize("kind", [*hanging.KINDS, *hanging.NONE])
@pytest.mark.parametrize("stages", [1, 4])
def test_made_jobs_of_128_ranks_never_have_an_innocent_named(kind: str, stages: int) -> None:
    made = hanging.made(128, kind, 1 if kind in hanging.KINDS else 0, stages, True, 1)
    verdict = judge(made.sample)
    assert made.culprits == {suspect.rank for suspect in verdict.suspects}
    assert not made.causes or verdict.cause in made.causes


# places


def place(*frames: Frame) -> hang_places.Place:
    return hang_places.of_stack(frames)


def test_a_place_is_the_call_into_the_library_and_the_line_of_the_program() -> None:
    assert ("all_reduce (train.py:210)", "collective") == (place(*ALL_REDUCE).label, place(*ALL_REDUCE).kind.kind)


def test_a_wait_inside_of_a_checkpoint_is_a_wait() -> None:
    frames = (
        lib("all_gather_object", hanging.C10D, 2500),
        lib("save", "torch/distributed/checkpoint/x.py", 1),
        own("f", 3),
    )
    assert place(*frames).kind.waits


def test_the_programs_own_functions_count_by_their_names_with_and_without_a_class() -> None:
    assert "save" == place(own("Trainer.save_checkpoint", 88)).kind.kind
    assert "save_checkpoint (train.py:88)" == place(own("Trainer.save_checkpoint", 88)).label


def test_the_first_call_into_a_library_is_shown_and_not_what_it_does_inside() -> None:
    frames = (
        lib("_wait", "subprocess.py", 1),
        lib("communicate", "subprocess.py", 2),
        lib("run", "subprocess.py", 3),
        own("f", 9),
    )
    assert "run (train.py:9)" == place(*frames).label


def test_a_stack_that_fits_no_row_is_unknown_and_never_a_wait() -> None:
    assert (hang_places.UNKNOWN, False) == (place(*OWN).kind.kind, place(*OWN).kind.waits)


def test_receiving_in_a_pipeline_is_a_wait() -> None:
    assert ("p2p", True) == (place(*RECV).kind.kind, place(*RECV).kind.waits)


def test_equal_pids_on_two_nodes_are_two_processes() -> None:
    seen = job(rank(5, LOADS))
    twin = replace(seen.nodes[0], ranks=(seen.nodes[0].ranks[0], replace(seen.nodes[0].ranks[1], pid=1005)))
    verdict = judge(replace(seen, nodes=(twin, *seen.nodes[1:])))
    assert [[5]] == [[one.rank for one in group.ranks] for group in verdict.groups if group.suspect]


def test_a_silent_node_is_no_hang_where_the_other_ranks_get_on_or_are_at_work() -> None:
    seen = job(rank(1, later=OWN))
    verdict = judge(replace(seen, nodes=seen.nodes[:3], silent=("n4",)))
    assert ("healthy", "medium") == (verdict.cause, verdict.confidence)
    busy = job(*(rank(number, LOADS) for number in range(8)))
    assert "undetermined" == judge(replace(busy, nodes=busy.nodes[:3], silent=("n4",))).cause


# frameworks whose loop is one line of the program, and stacks that only some ranks show

TRAINER = own("main", 188, "sft/run_sft.py")
GRADIENTS = (
    lib("all_gather_into_tensor", hanging.C10D, 3947),
    lib("_inner_training_loop", "transformers/trainer.py", 9),
)
COMPILES = (lib("_wait_futures", "torch/_inductor/async_compile.py", 610), lib("_fn", "torch/_dynamo/eval_frame.py", 9))


def test_where_the_whole_loop_is_one_line_of_the_program_the_one_at_work_is_still_named() -> None:
    waits = [rank(number, (*GRADIENTS, TRAINER)) for number in range(8)]
    verdict = judge(job(*waits[:5], rank(5, (*COMPILES, TRAINER)), *waits[6:]))
    assert ("slow_rank_work", "high", [(5, "n3")]) == (verdict.cause, verdict.confidence, named(verdict))
    assert "compiles at _wait_futures" in verdict.why


def test_a_compiled_function_on_the_stack_is_no_compilation() -> None:
    assert place(COMPILES[1], TRAINER).kind.waits
    assert "compile" == place(*COMPILES, TRAINER).kind.kind


def test_a_write_inside_of_a_gather_is_a_write_and_a_barrier_inside_of_a_save_a_wait() -> None:
    write = lib("_write_item", "torch/distributed/checkpoint/filesystem.py", 430)
    gather, saves = lib("all_gather", "torch/distributed/checkpoint/utils.py", 236), own("save_checkpoint", 9)
    assert "save" == place(write, gather, saves).kind.kind
    assert "collective" == place(gather, saves).kind.kind


@pytest.mark.parametrize("state", ["R", "S"])
def test_a_rank_whose_stack_alone_failed_is_not_accused_for_it(state: str) -> None:
    blind = rank(5, None, state=state, channel="futex_do_wait" if state == "S" else "", busy=0.99)
    assert [] == named(judge(job(blind)))
    assert [(3, "n2")] == named(judge(job(blind, rank(3, LOADS))))


def test_how_the_many_wait_in_the_kernel_says_nothing_of_one_at_a_place_that_nobody_knows() -> None:
    sleeping = [rank(number, channel="hrtimer_nanosleep") for number in range(8)]
    ahead = rank(5, OWN, channel="hrtimer_nanosleep")
    assert "sleeps" not in judge(job(*sleeping[:5], ahead, *sleeping[6:])).why


def test_an_engine_without_requests_is_not_called_hung() -> None:
    stack = (lib("dequeue", "vllm/distributed/device_communicators/shm_broadcast.py", 779), own("main", 3))
    verdict = judge(job(*(rank(number, stack) for number in range(8))))
    assert ("undetermined", False) == (verdict.cause, verdict.hangs)


def test_a_few_at_a_barrier_are_named_though_the_others_wait_at_many_places() -> None:
    others = [rank(number, (RECV, ITEM, hanging.SEND)[number % 3]) for number in range(8)]
    verdict = judge(job(*others[:4], rank(4, BARRIER), *others[5:]))
    assert ("collective_desync", [(4, "n3")]) == (verdict.cause, named(verdict))


@pytest.mark.parametrize("kind", [*hanging_frameworks.kinds(), *hanging_frameworks.NONE])
def test_jobs_of_other_frameworks_are_judged_rightly_too(kind: str) -> None:
    made = hanging_frameworks.made(kind, 3)
    verdict = judge(made.sample)
    ranks = {suspect.rank for suspect in verdict.suspects}
    assert bool(made.culprits) == bool(ranks)
    assert ranks <= made.culprits
    assert not made.causes or verdict.cause in made.causes
