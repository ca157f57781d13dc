"""What counts, what does not, and what is said where no cause is known."""

from __future__ import annotations

import pytest

from hpslurm.core.finding import LOOK, NOISE, P0, P1, P2, ROOT, SYMPTOM, Culprit, Event, Rule
from hpslurm.core.values import replace
from hpslurm.scan import advice, model
from hpslurm.scan.reason import reason
from tests.scan.cases import known


def trouble(line: int, weight: int, text: str = "") -> Event:
    return Event("trouble", SYMPTOM, "job.out", line, text or f"part {chr(96 + line)} is odd", cause="undetermined",
                 weight=weight)  # fmt: skip


def life(line: int) -> Event:
    return Event("life", NOISE, "job.out", line, "step 7 loss 2.1")


def watchdogs(ranks: int) -> list[Event]:
    return [known("watchdog", 10 + rank, rank=rank) for rank in range(ranks)]


def world(size: int) -> Event:
    return Event("world", NOISE, "job.out", 1, "", facts=(("world", str(size)),))


@pytest.mark.parametrize("weight, line, cause", [
    (5, 9, "healthy"),  # little gravity, even at the end
    (6, 9, "undetermined"),
    (6, 1, "healthy"),  # work went on after it
    (11, 1, "healthy"),
    (12, 1, "undetermined"),  # a crash stays one
])  # fmt: skip
def test_a_line_that_nobody_explains_counts_by_its_gravity(weight: int, line: int, cause: str):
    assert cause == reason([life(5), trouble(line, weight)]).cause


def steps(first: int, last: int) -> list[Event]:
    """Work that began at a line, went on, and was last seen at another."""
    return [
        Event("life-began", NOISE, "job.out", first, "step 1 loss 2.2"),
        Event("life", NOISE, "job.out", last, "step 9 loss 2.1", facts=(("recent", str(last - 2)),)),
    ]


def test_a_program_that_says_that_it_came_to_its_end_outlived_even_a_crash_of_something():
    ended = Event("ended-well", NOISE, "job.out", 9, "training finished")
    causes = [reason([*steps(3, 8), trouble(line, 12), ended]).cause for line in (5, 10)]
    assert ["healthy", "undetermined"] == causes


@pytest.mark.parametrize("pattern, line, cause", [
    ("module-missing", 1, "healthy"),  # a script tried without it, and then the work began
    ("module-missing", 4, "app_error"),  # in the midst of the work
    ("io-error", 1, "storage"),  # of what may come back and hit
    ("xid", 1, "gpu_ecc"),
])  # fmt: skip
def test_what_ends_a_program_and_stood_before_the_work_began_did_not_end_it(pattern: str, line: int, cause: str):
    event = known(pattern, line, **({"cause": cause} if pattern == "xid" else {}))
    assert cause == reason([*steps(3, 8), event]).cause


def test_it_counts_where_something_known_failed_after_the_work_began():
    events = [known("port-in-use", 1), known("conn-reset-any", 12)]
    assert "rendezvous_port_in_use" == reason([*steps(3, 8), *events]).cause


@pytest.mark.parametrize("text, cause", [
    ("sysctl: setting key, ignoring: Read-only file system", "healthy"),
    ("setting key failed: Read-only file system", "storage"),
])  # fmt: skip
def test_what_a_program_says_it_can_do_without_is_over_once_work_went_on(text: str, cause: str):
    assert cause == reason([*steps(3, 8), known("io-error", 4, text=text)]).cause


@pytest.mark.parametrize("lines, shown", [(4, 4), (5, 5), (6, 5)])
def test_at_most_five_unknown_lines_are_shown(lines: int, shown: int):
    diagnosis = reason([trouble(line, 9) for line in range(1, lines + 1)])
    assert ("undetermined", shown) == (diagnosis.cause, len([diagnosis.decisive, *diagnosis.victims]))
    assert f"{lines} lines of trouble" in diagnosis.why


def test_the_gravest_unknown_line_comes_first_then_the_rarest():
    alike = [replace(trouble(line, 9, "a part is odd"), rank=line) for line in (1, 2)]
    diagnosis = reason([*alike, trouble(3, 9, "a panel is loose"), trouble(4, 12, "a pipe burst")])
    assert [4, 3, 1] == [event.line for event in (diagnosis.decisive, *diagnosis.victims) if event]


def test_the_file_to_ask_for_is_that_of_the_rank_that_spoke():
    diagnosis = reason([Event("trouble", SYMPTOM, "a", 1, "odd", rank=3, cause="undetermined", weight=9)])
    assert "all output of rank 3" in diagnosis.missing[-1]


@pytest.mark.parametrize("priority, weight", [(P0, 86), (P1, 66), (P2, 30)])
def test_a_nodes_own_finding_counts_by_its_priority(priority: str, weight: int):
    finding = Rule("gpu-odd", priority, "Odd", "debugging-guide.md § 7", cause="gpu_ecc").found("GPU 3", subject="n1")
    diagnosis = reason([], [finding])
    assert diagnosis.decisive is not None
    assert ("gpu_ecc", weight, "n1") == (diagnosis.cause, diagnosis.decisive.weight, diagnosis.decisive.host)


@pytest.mark.parametrize("look_alike, strong, counts", [
    (90, 79, True),  # what proves this much is beaten only by what proves more
    (90, 80, False),
    (89, 79, False),
])  # fmt: skip
def test_a_row_beats_its_look_alikes_unless_they_prove_more(look_alike: int, strong: int, counts: bool):
    diagnosis = reason([known("torch-cpu-alloc", 5, weight=strong), known("exception", 9, weight=look_alike)])
    assert "host_oom" == diagnosis.cause
    assert counts is any(victim.pattern == "exception" for victim in diagnosis.victims)


@pytest.mark.parametrize("weight, cause", [(30, "app_error"), (29, "job_cancelled")])
def test_another_cause_of_some_weight_speaks_against_a_mere_time_limit(weight: int, cause: str):
    limit = known("cancel-reason", 9, facts=(("why", "TIME LIMIT"),))
    assert cause == reason([known("fatal-word", 5, weight=weight), limit]).cause


@pytest.mark.parametrize("weight, cause", [(24, "collective_timeout_unknown"), (23, "job_cancelled")])
def test_a_hang_of_some_weight_speaks_against_a_mere_time_limit(weight: int, cause: str):
    limit = known("cancel-reason", 9, facts=(("why", "TIME LIMIT"),))
    assert cause == reason([known("watchdog", 5, rank=1, weight=weight), limit]).cause


@pytest.mark.parametrize("loud, named", [(6, True), (5, False)])
def test_the_ranks_that_do_not_complain_are_asked_for_where_they_are_few(loud: int, named: bool):
    diagnosis = reason([world(8), *watchdogs(loud)])
    assert "collective_timeout_unknown" == diagnosis.cause
    assert named is any("logs of ranks 6, 7" in missing for missing in diagnosis.missing)


def test_the_one_rank_that_is_silent_in_its_own_file_is_the_straggler():
    files = [Event("file", NOISE, f"{rank}.log", 1, "", rank=rank) for rank in range(4)]
    waiting = [known("watchdog", 9, rank=rank, file=f"{rank}.log") for rank in range(3)]
    diagnosis = reason([*files, *waiting, Event("life", NOISE, "3.log", 4, "step 7 loss 2.1", rank=3)])
    assert diagnosis.culprit is not None
    assert ("straggler", 3) == (diagnosis.cause, diagnosis.culprit.rank)


def test_an_echo_counts_only_without_a_proven_root_beside_it():
    echo = known("fatal-word", 9)
    assert "gpu_oom" == reason([known("cuda-oom", 9, weight=50), echo]).cause
    assert "app_error" == reason([echo]).cause


def test_work_that_went_on_outlives_a_guess_and_nothing_that_is_known():
    worked = Event("life", NOISE, "job.out", 30, "step 9 loss 2.1", facts=(("recent", "28"),))
    guess = Event("trouble:storage", ROOT, "job.out", 5, "cannot mount /fsx", cause="storage", weight=36)
    assert "healthy" == reason([guess, worked]).cause
    assert "storage" == reason([guess]).cause
    assert "storage" == reason([replace(guess, line=28, last_line=28), worked]).cause
    assert "app_error" == reason([known("exception", 5), worked]).cause


def ended(line: int, file: str = "job.out") -> Event:
    return Event("ended-well", NOISE, file, line, "training finished")


def test_what_ends_a_program_is_not_what_a_program_had_that_came_to_its_end():
    crash = known("module-missing", 5)
    assert ["app_error", "healthy"] == [reason([crash]).cause, reason([crash, ended(6)]).cause]
    assert "app_error" == reason([known("module-missing", 7), ended(6)]).cause, "it came after"
    assert "app_error" == reason([crash, ended(6, "other.out")]).cause, "another program's words"
    assert "app_error" == reason([crash, ended(6), known("launcher-child", 8)]).cause, "srun says otherwise"


def test_a_fault_of_the_machine_stays_one_whatever_the_program_says():
    assert "storage" == reason([known("disk-full", 5), ended(6)]).cause
    assert "gpu_nvlink" == reason([known("xid", 5, cause="gpu_nvlink", weight=80), ended(6)]).cause


def test_nothing_at_all_is_undetermined_and_asks_for_all_ranks():
    diagnosis = reason([])
    assert ("undetermined", "low") == (diagnosis.cause, diagnosis.confidence)
    assert "the output of all ranks" in diagnosis.missing[-1]


def test_a_name_from_a_log_enters_no_command_that_drains_reboots_or_replaces() -> None:
    for cause in model.causes():
        for step in advice.suggest(cause, Culprit(host="victim-7")):
            assert (step.harm == LOOK) or "victim-7" not in step.command, (cause, step)
