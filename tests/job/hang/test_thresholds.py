"""How many are most, few, or busy: each look at a job that hangs, at its threshold and one rank beside it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

import pytest

from hpslurm.core.values import replace
from hpslurm.job.hang import facts, view
from hpslurm.job.hang import few as hang_few
from hpslurm.job.hang import gather as hang_gather
from hpslurm.job.hang import gpus as hang_gpus
from hpslurm.job.hang import hard as hang_hard
from hpslurm.job.hang import moves as hang_moves
from hpslurm.job.hang import places as hang_places
from hpslurm.job.hang import sample as hang_sample
from hpslurm.job.hang.case import Case, Group, Suspect, Verdict, case_of, count_waiting, mostly, sign_of
from hpslurm.job.hang.facts import Frame, Gpu, Node, Rank, Sample, Stack
from hpslurm.job.hang.judge import _nothing, judge
from hpslurm.job.hang.words import folded, numbers, settle
from hpslurm.sources.host import Host
from hpslurm.sources.processes import Process
from hpslurm.sources.slurm import SlurmJob
from tests.fake.hanging import ALL_REDUCE, BARRIER, INIT, RECV, lib, own

GATHER = (lib("all_gather", "torch/distributed/distributed_c10d.py", 3900), own("train_step", 220))
LOADS = (lib("_try_get_data", "torch/utils/data/dataloader.py", 1131), own("batches", 120))
SPIN, IDLE, HOT, USED = (Gpu(0, use, watts, 100.0) for use, watts in ((90, 39.0), (4, 45.0), (100, 50.0), (50, 45.0)))


def own_place(number: int) -> Stack:
    """A place that nobody knows, another one for each number."""
    return (own(f"f{number}", number, f"m{number}.py"),)


def rank(number: int, stack: Stack | None = ALL_REDUCE, node: str = "n1", **more: object) -> Rank:
    words = {"state": "S", "before": "S", "world": 8, **more}
    return Rank(node, 1000 + number, number, number, stack=stack, **words)  # type: ignore[arg-type]


def case(*stacks: Stack | None, **more: object) -> Case:
    return of(rank(number, stack, **more) for number, stack in enumerate(stacks))


def of(ranks: Iterable[Rank], *gpus: Gpu, silent: tuple[str, ...] = ()) -> Case:
    return case_of(Sample("7", (Node("n1", tuple(ranks), gpus, 2.0),), silent))


def waiting(ranks: int, wait: int) -> Case:
    """So many ranks, of which some wait, and each of the others is at a place of its own."""
    return case(*(ALL_REDUCE if number < wait else own_place(number) for number in range(ranks)))


def with_gpus(*gpus: Gpu) -> Case:
    """All ranks wait; each GPU is one rank's."""
    own_gpus = [replace(gpu, index=number) for number, gpu in enumerate(gpus)]
    return of((rank(number, node="n1") for number in range(len(gpus))), *own_gpus)


# nine of ten, and most


@pytest.mark.parametrize("ranks, wait, cause", [(10, 9, "collective_timeout_unknown"), (8, 7, "undetermined")])
def test_nearly_all_wait_where_nine_of_ten_do(ranks: int, wait: int, cause: str) -> None:
    assert cause == _nothing(waiting(ranks, wait)).cause


@pytest.mark.parametrize("stacks, words", [((ALL_REDUCE,) * 2, "in all_reduce"), ((ALL_REDUCE, RECV), "at 2 places")])
def test_one_place_is_named_and_several_are_counted(stacks: tuple[Stack, ...], words: str) -> None:
    assert f"All ranks wait {words}" in _nothing(case(*stacks)).why


@pytest.mark.parametrize("starting, most", [(4, False), (5, True)])
def test_half_are_not_most(starting: int, most: bool) -> None:
    stacks = [INIT if number < starting else own_place(number) for number in range(8)]
    assert most is mostly(case(*stacks), "rendezvous")


@pytest.mark.parametrize("awake, most", [(4, False), (5, True)])
@pytest.mark.parametrize("wakes, polls", [(20.0, True), (19.9, False)])
def test_who_wakes_twenty_times_a_second_polls(awake: int, most: bool, wakes: float, polls: bool) -> None:
    ranks = (rank(number, None, wakes=wakes if number < awake else 0.0) for number in range(8))
    assert (most and polls) is hang_few._wake(of(ranks))


@pytest.mark.parametrize("busy, spins", [(0.3, True), (0.29, False)])
def test_three_tenths_of_a_cpu_are_spinning(busy: float, spins: bool) -> None:
    assert spins is sign_of(rank(0, busy=busy))[2]


@pytest.mark.parametrize("busy, words", [(0.5, "state R, CPU busy"), (0.49, "state R")])
def test_half_a_cpu_is_busy(busy: float, words: str) -> None:
    assert words == hang_places.of_rank(rank(0, None, state="R", busy=busy)).label


def test_a_rank_without_a_stack_that_looks_as_those_that_wait_is_taken_to_wait() -> None:
    alike = case(ALL_REDUCE, ALL_REDUCE, None, channel="futex_do_wait")
    assert 3 == count_waiting(alike)
    assert not any(place.by_channel for rank, place in alike.seen if rank.stack)


# the few


A, B, C, D = map(own_place, range(4))


@pytest.mark.parametrize(
    "stacks, stand",
    [((ALL_REDUCE, BARRIER, A, B), False), ((ALL_REDUCE, BARRIER, RECV, A), True),
     ((A, A, B, C), False), ((A, A, A, B), True)],
)  # fmt: skip
def test_most_of_the_others_wait_or_are_together(stacks: tuple[Stack, ...], stand: bool) -> None:
    assert stand is hang_few._waits_somewhere(case(*stacks))


@pytest.mark.parametrize(
    "stacks, stand",
    [((ALL_REDUCE, BARRIER, A, B), False), ((ALL_REDUCE, BARRIER, RECV, A), True),
     ((A, A, A, B), False), ((A, A, A, A, B), True)],
)  # fmt: skip
def test_three_quarters_of_the_others_are_together(stacks: tuple[Stack, ...], stand: bool) -> None:
    assert stand is hang_few._others_stand(case(*stacks), [])


@pytest.mark.parametrize("others, words", [(1, "1 rank waits at all_reduce"), (2, "2 ranks wait at all_reduce")])
def test_one_rank_waits_and_two_wait(others: int, words: str) -> None:
    seen = case(LOADS, *(ALL_REDUCE,) * others)
    assert hang_few._many(seen, seen.seen[:1]).startswith(words)


@pytest.mark.parametrize(
    "ranks, wait, few, stacks, sure",
    [
        (8, 4, 2, True, "high"),
        (8, 3, 2, True, "medium"),  # half of the others wait
        (8, 5, 3, True, "medium"),  # more than a quarter
        (16, 14, 2, False, "medium"),  # an eighth
        (15, 13, 2, False, "low"),
        (4, 3, 1, False, "medium"),  # one alone
    ],
)
def test_how_sure_it_is_whom_the_others_wait_for(ranks: int, wait: int, few: int, stacks: bool, sure: str) -> None:
    seen = waiting(ranks, wait)
    accused = seen.ranks[-few:] if stacks else [replace(one, stack=None) for one in seen.ranks[-few:]]
    assert sure == hang_few._sure(seen, accused)


@pytest.mark.parametrize("ranks, most", [(1, 1), (16, 1), (31, 1), (32, 2), (127, 7), (128, 8), (160, 8)])
def test_a_few_are_one_in_sixteen_and_never_more_than_eight(ranks: int, most: int) -> None:
    seen = Case(Sample("7"), tuple(map(rank, range(ranks))), {}, ranks, {})
    assert most == hang_few._most_few(seen)


@pytest.mark.parametrize(
    "sizes, ranks, odd", [((2, 8), 10, True), ((2, 7), 9, False), ((1, 3), 4, False), ((1, 4), 5, True)]
)
def test_a_class_is_odd_where_the_other_is_four_times_as_large(sizes: tuple[int, ...], ranks: int, odd: bool) -> None:
    assert odd is hang_few._is_odd(waiting(ranks, ranks), sizes)


@pytest.mark.parametrize("few, named", [(2, 2), (3, 0)])
def test_one_in_eight_at_a_barrier_is_a_few(few: int, named: int) -> None:
    stacks = [BARRIER if number < few else (ALL_REDUCE, GATHER)[number % 2] for number in range(16)]
    verdict = hang_few.desync(case(*stacks))
    assert named == (len(verdict.suspects) if verdict else 0)


# GPUs


@pytest.mark.parametrize("use, share, spins", [(90, 0.39, True), (89, 0.39, False), (90, 0.4, False), (100, 0.1, True)])
def test_a_busy_gpu_below_four_tenths_of_its_power_only_waits(use: int, share: float, spins: bool) -> None:
    seen = with_gpus(Gpu(0, use, 700 * share, 700.0))
    assert spins is seen.spins(seen.ranks[0])


@pytest.mark.parametrize("use, idle", [(4, True), (5, False)])
def test_a_gpu_below_five_percent_is_idle(use: int, idle: bool) -> None:
    seen = with_gpus(Gpu(0, use, 90.0, 700.0))
    assert idle is seen.is_idle(seen.ranks[0])


@pytest.mark.parametrize("spin, most", [(4, False), (5, True)])
def test_half_of_the_gpus_are_not_most(spin: int, most: bool) -> None:
    assert most is hang_few._most_spin(with_gpus(*[SPIN] * spin, *[USED] * (8 - spin)))


@pytest.mark.parametrize(
    "gpus, named",
    [
        ((SPIN,) * 6 + (IDLE,) * 2, (6, 7)),
        ((SPIN,) * 5 + (IDLE,) * 3, ()),  # more than a quarter
        ((SPIN,) * 4 + (IDLE,) * 2 + (USED,) * 2, ()),  # half of them spin
        ((SPIN,) * 7 + (HOT,), (7,)),
        ((SPIN,) * 2 + (HOT,), ()),
        ((), ()),
    ],
)
def test_at_most_a_quarter_of_the_gpus_are_a_few(gpus: tuple[Gpu, ...], named: tuple[int, ...]) -> None:
    verdict = hang_gpus.one_gpu(with_gpus(*gpus))
    assert named == tuple(suspect.rank for suspect in verdict.suspects) if verdict else not named


@pytest.mark.parametrize("idle, more", [(1, "on n1 has"), (2, "on n1 (and 1 more) has")])
def test_the_first_gpu_is_named_and_the_others_are_counted(idle: int, more: str) -> None:
    verdict = hang_gpus.one_gpu(with_gpus(*[SPIN] * (8 - idle), *[IDLE] * idle))
    assert verdict is not None
    assert more in verdict.why


def network(rates: Iterable[int], wait: int = 8, ranks: int = 8, gpus: tuple[Gpu, ...] = ()) -> Verdict | None:
    """All ranks on the first of some nodes, whose counters gained so many bytes a second."""
    seen = waiting(ranks, wait)
    first, *others = (Node(f"n{number}", (), gpus, 2.0, 2 * rate) for number, rate in enumerate(rates, 1))
    return hang_gpus.network(case_of(Sample("7", (replace(first, ranks=seen.ranks), *others))))


TRICKLE = 100_000


@pytest.mark.parametrize(
    "rates, named",
    [
        ((0, TRICKLE, TRICKLE, TRICKLE), ["n1"]),
        ((0, TRICKLE - 1, TRICKLE - 1, TRICKLE - 1), []),
        ((0, TRICKLE, TRICKLE, 1), []),  # half of them move
        ((0, TRICKLE, TRICKLE), []),  # more than a quarter stand still
    ],
)
def test_a_node_stands_still_where_most_others_trickle(rates: tuple[int, ...], named: list[str]) -> None:
    verdict = network(rates)
    assert named == ([suspect.node for suspect in verdict.suspects] if verdict else [])


@pytest.mark.parametrize("ranks, wait, told", [(10, 9, True), (8, 7, False)])
def test_the_network_is_suspected_where_nine_of_ten_wait(ranks: int, wait: int, told: bool) -> None:
    assert told is (network((0, TRICKLE, TRICKLE, TRICKLE), wait, ranks) is not None)


LOW_USE, HIGH_POWER = Gpu(0, 89, 39.0, 100.0), Gpu(0, 90, 40.0, 100.0)


@pytest.mark.parametrize(
    "gpus, told",
    [((SPIN, SPIN, SPIN), True), ((SPIN, HIGH_POWER), False), ((SPIN, SPIN, HIGH_POWER), True),
     ((SPIN, LOW_USE), False), ((SPIN, SPIN, LOW_USE), True)],
)  # fmt: skip
def test_where_no_counter_moves_most_gpus_must_spin(gpus: tuple[Gpu, ...], told: bool) -> None:
    assert told is (network((0,), gpus=gpus) is not None)


# the hardest facts


@pytest.mark.parametrize("gone, told", [(4, True), (5, False)])
def test_up_to_half_of_the_ranks_may_be_gone(gone: int, told: bool) -> None:
    assert told is (hang_hard.gone(case(*(ALL_REDUCE,) * (8 - gone))) is not None)


@pytest.mark.parametrize("wait, sure", [(3, "medium"), (4, "high")])
def test_that_a_rank_is_gone_is_sure_where_most_others_wait(wait: int, sure: str) -> None:
    verdict = hang_hard.gone(waiting(6, wait))
    assert verdict is not None
    assert (sure, (6, 7)) == (verdict.confidence, tuple(suspect.rank for suspect in verdict.suspects))


@pytest.mark.parametrize("empty, home", [(("n2",), "n2"), (("n2", "n3"), ""), ((), "")])
def test_a_rank_belongs_to_the_one_node_without_ranks(empty: tuple[str, ...], home: str) -> None:
    nodes = (Node("n1", (rank(0), rank(1))), *map(Node, empty))
    assert home == hang_hard.home(case_of(Sample("7", nodes)), 2)


def stuck(*nodes: str) -> Verdict | None:
    """One rank in state D on each of the nodes, four that wait."""
    ranks = [rank(number, None, node, state="D", before="D") for number, node in enumerate(nodes)]
    return hang_hard.stuck(of([*ranks, *(rank(number) for number in range(4, 8))]))


@pytest.mark.parametrize("many, named", [(4, 4), (5, 0)])
def test_half_of_the_ranks_in_state_d_are_named_and_more_are_the_file_system(many: int, named: int) -> None:
    ranks = [rank(number, None, state="D" if number < many else "S", before="D") for number in range(8)]
    verdict = hang_hard.stuck(of(ranks))
    assert verdict is not None
    assert named == len(verdict.suspects)


@pytest.mark.parametrize("nodes, rather", [(("n1", "n1"), False), (("n1", "n2"), True)])
def test_ranks_stuck_on_two_nodes_are_rather_the_file_system(nodes: tuple[str, ...], rather: bool) -> None:
    verdict = stuck(*nodes)
    assert verdict is not None
    assert rather is ("rather the file system" in verdict.why)


@pytest.mark.parametrize("busy, told", [(4, True), (5, False)])
def test_a_silent_node_is_none_to_blame_while_most_ranks_work(busy: int, told: bool) -> None:
    seen = case(*(LOADS if number < busy else ALL_REDUCE for number in range(8)))
    assert told is (hang_hard.silent(replace(seen, sample=replace(seen.sample, silent=("n2",)))) is not None)


@pytest.mark.parametrize("silent, told", [(("n2",), True), (("n2", "n3"), False)])
def test_up_to_half_of_the_nodes_may_be_silent(silent: tuple[str, ...], told: bool) -> None:
    assert told is (hang_hard.silent(of([rank(0)], silent=silent)) is not None)


# does it move


@pytest.mark.parametrize(
    "moving, nodes, gpus, sure",
    [(1, 2, (), None), (2, 3, (), "medium"), (2, 3, (HOT,), "high"), (1, 2, (HOT,), "medium"),
     (0, 1, (HOT, SPIN), None), (0, 1, (HOT, HOT, SPIN), "medium")],
)  # fmt: skip
def test_a_job_moves_where_most_nodes_or_gpus_do(moving: int, nodes: int, gpus: tuple[Gpu, ...], sure: str) -> None:
    seen = tuple(Node(f"n{number}", (), gpus, 2.0, (2 << 20) * (number < moving)) for number in range(nodes))
    verdict = hang_moves.does_it_move(case_of(Sample("7", seen)))
    assert sure == (verdict.confidence if verdict else None)


@pytest.mark.parametrize("ranks, told", [(10, True), (11, False)])
def test_one_in_ten_ranks_that_move_is_enough(ranks: int, told: bool) -> None:
    seen = of(rank(number, later=LOADS if number == 0 else ALL_REDUCE) for number in range(ranks))
    assert told is bool(hang_moves._stacks_move(seen))


# words, and what is shown


def test_numbers_in_a_row_are_folded() -> None:
    assert "0-2,4,6-7" == folded([7, 6, 4, 2, 1, 0, 0])
    assert ["rank 3", "ranks 3-4"] == [numbers([3]), numbers([3, 4])]


@pytest.mark.parametrize("collectives", [True, False])
def test_reports_of_collectives_settle_what_has_to_do_with_them(collectives: bool) -> None:
    told = settle(waiting(2, 2), "low", collectives=True) if collectives else settle(waiting(2, 2), "low")
    assert collectives is any("RAS" in item for item in told)


NOTHING = Sample("7")


def shown(verdict: Verdict, sample: Sample = NOTHING, **more: bool) -> str:
    return "\n".join(view.text(sample, verdict, **more))


@pytest.mark.parametrize("places, more", [(8, False), (9, True)])
def test_eight_classes_are_shown(places: int, more: bool) -> None:
    groups = tuple(Group(f"place {number}", "", (rank(number),), suspect=False) for number in range(places))
    verdict = Verdict("app_error", "low", "why", groups=groups)
    assert more is ("1 other places (-v shows all)" in shown(verdict))
    assert "other places" not in shown(verdict, verbose=True)


@pytest.mark.parametrize("suspects, more", [(4, False), (5, True)])
def test_four_suspects_are_shown(suspects: int, more: bool) -> None:
    verdict = Verdict("app_error", "low", "why", tuple(Suspect("n1", "is late", number) for number in range(suspects)))
    assert ("rank 3 on n1" in shown(verdict), more) == (True, "1 more (--json has all)" in shown(verdict))


@pytest.mark.parametrize("last, length, told", [(100_000, 30, True), (1_000_000, 31, False)])
def test_of_ranks_that_wait_a_list_of_thirty_characters_is_shown(last: int, length: int, told: bool) -> None:
    ranks = tuple(map(rank, (100, 102, 104, 106, 108, 110, last)))
    numbers = folded(one.rank or 0 for one in ranks)
    assert (length, told) == (len(numbers), numbers in view._group(Group("all_reduce", "", ranks, suspect=False))[0])


def test_one_rank_is_no_ranks() -> None:
    one, two = Sample("7", (Node("n1", (rank(0),)),)), Sample("7", (Node("n1", (rank(0), rank(1))),))
    assert ["1 of 8 rank seen", "2 of 8 ranks seen"] == [view.head(each)[7:].split(" on ")[0] for each in (one, two)]
    groups = [Group("all_reduce", "", ranks, suspect=False) for ranks in (one.nodes[0].ranks, two.nodes[0].ranks)]
    assert ["1 rank (0)", "2 ranks (0-1)"] == [view._group(group)[0].strip().split(" on ")[0] for group in groups]


def test_stacks_and_nodes_are_shown_where_somebody_asks() -> None:
    sample = Sample("7", (Node("n1", (rank(0),), load=2.5),))
    verdict = replace(judge(sample), cause="app_error")
    assert ["main thread" in shown(verdict, sample, stacks=asked) for asked in (True, False)] == [True, False]
    assert ["load 2.5" in shown(verdict, sample, verbose=asked) for asked in (True, False)] == [True, False]
    assert "main thread" not in shown(verdict, sample)
    assert "load 2.5" not in shown(verdict, sample)


# samples as lines


def read(**more: object) -> Node:
    node = facts.Reader().node({"type": "hang_node", "name": "n1", **more})
    assert node is not None
    return node


def test_what_a_line_does_not_say_is_what_nobody_said() -> None:
    assert Node("n1", (Rank("n1", 3),)) == read(ranks=[{"pid": 3}])
    assert Sample("", (Node("n1"),)) == facts.sample_of([{"type": "hang_node", "name": "n1"}])


@pytest.mark.parametrize("given, kept", [(60, 60), (61, 60)])
def test_sixty_frames_of_a_stack_are_read(given: int, kept: int) -> None:
    (first,) = read(ranks=[{"pid": 3, "stack": [["f", "a.py", line, True] for line in range(given)]}]).ranks
    assert kept == len(first.stack or ())


@pytest.mark.parametrize("given, kept", [(1024, 1024), (1025, 1024)])
def test_a_thousand_ranks_of_a_node_are_read(given: int, kept: int) -> None:
    assert kept == len(read(ranks=[{"pid": 3}] * given).ranks)


def test_threads_are_pairs_of_a_name_and_a_stack() -> None:
    frame = ["f", "a.py", 3, False]
    (first,) = read(ranks=[{"pid": 3, "threads": [["main"], ["loader", [frame]], ["x", [frame], 1]]}]).ranks
    assert (("loader", (Frame("f", "a.py", 3, False),)),) == first.threads


@pytest.mark.parametrize("value, kept", [((1 << 63) - 1, True), (1 << 63, False), (-(1 << 63), False)])
def test_a_number_has_at_most_63_bits(value: int, kept: bool) -> None:
    assert (value if kept else None) == read(efa=value).efa


@pytest.mark.parametrize("value, kept", [(9.9e17, True), (1e18, False)])
def test_a_fraction_has_at_most_18_digits(value: float, kept: bool) -> None:
    assert (value if kept else None) == read(load=value).load


# one node's share


def test_of_a_process_six_threads_and_eight_frames_of_each_are_kept() -> None:
    frames = [{"name": f"f{number}", "filename": "/a/b.py", "line": number} for number in range(9)]
    others = [{"os_thread_id": 8 + number, "thread_name": f"t{number}", "frames": frames} for number in range(7)]
    kept = hang_sample._threads([{"os_thread_id": 7, "frames": frames}, *others], 7)
    assert [(f"t{number}", 8) for number in range(6)] == [(name, len(stack)) for name, stack in kept]


def test_a_program_that_has_library_code_only_stands_at_its_outermost_call() -> None:
    stack = (lib("_wait", "subprocess.py", 1), lib("run", "subprocess.py", 3))
    assert "run (subprocess.py:3)" == hang_places.of_stack(stack).label


@pytest.mark.skipif(os.geteuid() != 0, reason="only root asks as somebody else")
def test_root_asks_as_the_jobs_user() -> None:
    jobs = [SlurmJob(7, "train", "me", uid, 1000, "RUNNING") for uid in (1000, 0)]
    assert [1000, None] == list(map(hang_gather._user, jobs))


@pytest.mark.parametrize("status, seen", [(0, True), (1, False)])
def test_stacks_of_a_reader_that_failed_are_none(status: int, seen: bool, host_with: Callable[..., Host]) -> None:
    threads = '[{"os_thread_id": 11, "frames": [{"name": "f", "filename": "/a/b.py", "line": 3}]}]'
    host = host_with({"/commands/py_spy.txt": threads, "/commands/py_spy.status": str(status)})
    notes: list[str] = []
    found = hang_sample._stacks([Process(11, 1, "python3", "S", 0.0, 1.0)], host, notes)
    assert (seen, not seen) == (11 in found, bool(notes))
