"""Signs that work went on."""

from __future__ import annotations

import pytest

from tests.scan.cases import diagnose, events_of


@pytest.mark.parametrize("steps, recent", [(2, ""), (3, "1"), (4, "2")])
def test_the_last_three_steps_show_that_work_went_on(steps: int, recent: str):
    text = "".join(f"step {step} loss 2.{step}\n" for step in range(steps))
    assert [recent] == [event.fact("recent") for event in events_of(text.encode()) if event.pattern == "life"]


def test_the_last_state_of_a_bar_of_preparing_work_is_kept():
    bar = "Map (num_proc=8):  {}%|##   | 1/10 [{}<45:00, 30.1 examples/s]\r"
    text = bar.format(10, "05:00") + bar.format(20, "1:06:01") + "\n"
    (event,) = [event for event in events_of(text.encode()) if event.pattern == "progress"]
    assert ("20", "3961") == (event.fact("percent"), event.fact("elapsed"))


def ends(text: str) -> list[int]:
    return [event.line for event in events_of(text.encode()) if event.pattern == "ended-well"]


@pytest.mark.parametrize("line", [
    "[rank 3] finished",
    "training finished",
    "2026-02-07 12:25:25,082 | INFO | lm_core:main:225 - Training complete.",
    "exit code 0",
    "Benchmark run completed successfully",
    "`Trainer.fit` stopped: `max_epochs=3` reached.",
    "# Avg bus bandwidth    : 2.54225",
    "cn27b3 login:",
    "Installation of the NVIDIA Accelerated Graphics Driver for Linux-x86_64 (version: 550.163.01) is now complete.",
    "Total runtime (sec): 2.06",
])  # fmt: skip
def test_a_program_that_came_to_its_end_says_so(line: str):
    assert [2] == ends(f"step 1 loss 2.1\n{line}\n")


@pytest.mark.parametrize("line", [
    "At least one job did not complete successfully.",
    "FAILED: job done",
    "if the job is done, collect the logs",
    "waiting until all ranks finished",
    "exit code 10",
    "0 of 8 runs completed, errors: 8",
    "[rank 3] finished reading the data",
    "# Avg bus bandwidth    : 0",
    "Finished at: 2024-11-27T15:37:59 EET",  # a script says so whatever became of the program
])  # fmt: skip
def test_the_same_words_about_something_else_are_no_end(line: str):
    assert [] == ends(f"step 1 loss 2.1\n{line}\n")


@pytest.mark.parametrize("later, lines", [(11, [1]), (12, [])], ids=["eleven after", "twelve after"])
def test_only_the_last_twelve_lines_are_last_words(later: int, lines: list[int]):
    assert lines == ends("training finished\n" + "[rank 1] and so on\n" * later)


@pytest.mark.parametrize("line", [
    ':::MLLOG {"namespace": "", "time_ms": 1695894394371, "event_type": "INTERVAL_START", "key": "eval_start"}',
    "[   120/  5000] lr 3e-05",
    "eval: accuracy = 0.8028",
    "throughput 312.4 images per second",
    "INFO:     Application startup complete.",
])  # fmt: skip
def test_what_other_programs_print_while_they_work_shows_that_they_do(line: str):
    assert ["life"] == [event.pattern for event in events_of(f"{line}\n".encode()) if event.pattern == "life"]


@pytest.mark.parametrize("line", [
    "ENDING TIMING RUN AT 2023-10-05 05:14:57 AM",
    ':::MLLOG {"key": "run_stop", "metadata": {"lineno": 109, "status": "success", "epoch_num": 1}}',
])  # fmt: skip
def test_a_benchmark_that_came_to_its_end_says_so(line: str):
    assert [2] == ends(f"step 1 loss 2.1\n{line}\n")


def test_a_benchmark_that_was_broken_off_says_no_such_thing():
    assert [] == ends('step 1 loss 2.1\n:::MLLOG {"key": "run_stop", "metadata": {"status": "aborted"}}\n')


SERVED = "[2026-12-01T17:18:01.253] launch task StepId={}.0 request from UID:0 GID:0 HOST:10.1.0.7 PORT:41234\n"


@pytest.mark.parametrize("line", [
    "[2026-12-01T17:18:00.567] Node configuration differs from hardware: CPUs=2:2(hw) Boards=1:1(hw)\n",
    "[2026-12-01T17:18:00.504] error: slurm_receive_msg [127.0.0.1:32874]: Zero Bytes were transmitted or received\n",
], ids=["configuration", "zero bytes"])  # fmt: skip
@pytest.mark.parametrize("jobs, healthy", [(2, False), (3, True)])
def test_a_daemon_that_went_on_to_serve_jobs_outlived_what_it_remarked_before(line: str, jobs: int, healthy: bool):
    text = line + "".join(map(SERVED.format, range(jobs)))
    assert healthy is (diagnose(text.encode()).cause == "healthy")
