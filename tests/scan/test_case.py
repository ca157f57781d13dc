"""What came first, and what went on afterwards."""

from __future__ import annotations

import pytest

from hpslurm.core.finding import NOISE, Event
from tests.scan.cases import case_of, diagnose, known


def life(line: int, file: str = "job.out", time: float | None = None) -> Event:
    return Event("life", NOISE, file, line, "step 7 loss 2.1", time)


@pytest.mark.parametrize("apart, first", [(3.0, None), (3.1, True), (-3.0, None), (-3.1, False)])
def test_clocks_of_two_files_may_differ_by_three_seconds(apart: float, first: bool | None):
    one, other = known("exception", file="a", time=100.0), known("nccl-wrapped", file="b", time=100.0 + apart)
    assert first is case_of().before(one, other)


def test_within_one_file_the_clock_counts_exactly_and_else_the_line():
    case = case_of()
    assert case.before(known("exception", 9, time=100.0), known("nccl-wrapped", 1, time=100.1)) is True
    assert case.before(known("exception", 9), known("nccl-wrapped", 1)) is False
    assert case.before(known("exception", 4), known("nccl-wrapped", 4)) is None


def test_of_one_moment_in_one_file_the_line_tells():
    assert case_of().before(known("exception", 1, time=100.0), known("nccl-wrapped", 9, time=100.0)) is True


def test_a_line_counted_from_the_end_comes_after_one_counted_from_the_beginning():
    case = case_of()
    assert case.before(known("exception", 900), known("nccl-wrapped", -1)) is True
    assert case.before(known("exception", -1), known("nccl-wrapped", 0)) is False
    assert case.before(known("exception", 0), known("nccl-wrapped", -1)) is True
    assert case.before(known("exception", -9), known("nccl-wrapped", -1)) is True


def test_what_the_jobs_manager_says_afterwards_tells_no_order():
    assert case_of().before(known("slurm-oom-kill", 9), known("exception", 1)) is None


@pytest.mark.parametrize("after, survived", [(30.0, False), (30.1, True)])
def test_a_retry_was_survived_where_another_file_goes_on_half_a_minute_later(after: float, survived: bool):
    case = case_of(life(1, "b", 100.0 + after))
    assert survived is case.survived(known("nccl-connect-timeout", file="a", time=100.0))


def test_a_retry_was_survived_where_its_own_file_goes_on_for_the_first_time():
    began = Event("life-began", NOISE, "job.out", 2, "")
    assert case_of(life(9)).survived(known("nccl-connect-timeout", 8))
    assert not case_of(life(8)).survived(known("nccl-connect-timeout", 8))
    assert not case_of(began, life(9)).survived(known("nccl-connect-timeout", 8)), "work went on before it as well"


def test_a_pid_gets_the_rank_that_nccls_set_up_gave_it():
    identity = Event("identity", NOISE, "job.out", 1, "", rank=5, host="n1", pid=77, facts=(("world", "8"),))
    case = case_of(identity, known("exception", 3, host="n1", pid=77), known("exception", 4, host="n2", pid=77))
    assert [5, None] == [event.rank for event in case.roots]
    assert (8, {5: "n1"}) == (case.world, case.hosts)


def test_a_rank_on_two_hosts_has_none():
    places = [Event("place", NOISE, "job.out", 1, "", rank=1, host=host) for host in ("n1", "n2")]
    assert {} == case_of(*places).hosts


@pytest.mark.parametrize("channel, rank", [
    ("n2:77:90 [0] NCCL INFO Channel 00/0 : 5[0] -> 6[1] [send] via NET/OFI/0", 5),
    ("n2:77:90 [0] NCCL INFO Channel 00/0 : 4[7] -> 5[0] [receive] via NET/OFI/0/GDRDMA", 5),
    ("n2:77:90 [0] NCCL INFO Channel 00 : 5[0] -> 6[1] via P2P/IPC", 5),
    ("n2:78:90 [0] NCCL INFO Channel 00 : 5[0] -> 6[1] via P2P/IPC", None),  # another process
    ("n2:77:90 [0] NCCL INFO comm 0x7f rank 9 nranks 16 cudaDev 0 busId 10\n"
     "n2:77:90 [0] NCCL INFO Channel 00 : 5[0] -> 6[1] via P2P/IPC", 9),  # what it says outright counts
])  # fmt: skip
def test_a_process_is_the_rank_whose_side_of_a_channel_it_prints(channel: str, rank: int | None):
    failed = "n2:77:99 [0] misc/cudawrap.cc:36 NCCL WARN Cuda failure 700 'an illegal memory access was encountered'\n"
    diagnosis = diagnose(f"{channel}\n{failed}".encode())
    assert diagnosis.culprit is not None and rank == diagnosis.culprit.rank


@pytest.mark.parametrize("family, cause", [(33022, "nccl_version_mismatch"), (59936, "iface_wrong")])
def test_an_address_of_another_layout_is_told_from_one_that_is_not_there(family: int, cause: str):
    line = f"n2:77:99 [0] NCCL WARN ncclSocketInit: connecting to address  with family {family} is neither AF_INET(2)"
    assert cause == diagnose(f"{line} nor AF_INET6(10)\n".encode()).cause


FAILED = "RuntimeError: NCCL error: unhandled system error, NCCL version 2.4.8\n"
RESTART = "[INFO] api: [default] Worker group FAILED. 3/3 attempts left; will restart worker group\n"
STEP = "Epoch: [1][{}/782] Loss 4.2\n"


@pytest.mark.parametrize("after, healthy", [(2, True), (1, False)])
def test_what_a_restart_healed_is_no_trouble(after: int, healthy: bool):
    log = STEP.format(1) + FAILED + RESTART + "".join(STEP.format(2 + step) for step in range(after))
    assert healthy == (diagnose(log.encode()).cause == "healthy")
    assert "healthy" != diagnose((log + FAILED).encode()).cause  # it failed again


RANK = "n1:77:78 [{0}] NCCL INFO comm 0x55{0} rank {0} nranks 2 cudaDev {0} busId 17000\n"
STAGED = "n1:77:78 [0] NCCL INFO NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0'\n"


@pytest.mark.parametrize("ranks, staged", [((0, 1), False), ((0,), True)])
def test_gpudirect_plays_no_part_where_all_ranks_are_on_one_node(ranks: tuple[int, ...], staged: bool):
    log = "".join(map(RANK.format, ranks)) + STAGED
    assert staged == (diagnose(log.encode()).cause == "gdr_missing")


@pytest.mark.parametrize("uptime, cause", [(119.0, "healthy"), (121.0, "iface_wrong")])
def test_what_a_booting_kernel_does_not_find_is_no_trouble(uptime: float, cause: str):
    assert (
        cause
        == diagnose(f"[ {uptime}45545] mei_me 0000:00:16.0: Device doesn't have valid ME Interface\n".encode()).cause
    )


@pytest.mark.parametrize(
    ("line", "time", "other_line", "other_time", "first"),
    [
        (9, 1.0, 5, 1.5, True),  # in one file the clock decides, however near
        (5, 1.5, 9, 1.0, False),
        (5, 1.0, 9, 1.0, True),
        (9, 1.0, 5, 1.0, False),
        (-5, None, -9, None, False),  # counted from the end
        (9, None, -9, None, True),
        (-9, None, 9, None, False),
        (0, None, -1, None, True),
    ],
)
def test_of_two_lines_of_a_file_the_clock_tells_which_came_first_and_then_their_place(
    line: int, time: float | None, other_line: int, other_time: float | None, first: bool
) -> None:
    event, other = known("cuda-oom", line, time=time), known("cuda-oom", other_line, time=other_time)
    assert first == case_of(event, other).before(event, other)
