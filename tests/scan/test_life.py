"""Signs that work went on."""

from __future__ import annotations

import pytest

from tests.scan.cases import events_of


@pytest.mark.parametrize("steps, recent", [(2, ""), (3, "1"), (4, "2")])
def test_the_last_three_steps_show_that_work_went_on(steps: int, recent: str):
    text = "".join(f"step {step} loss 2.{step}\n" for step in range(steps))
    assert [recent] == [event.fact("recent") for event in events_of(text.encode()) if event.pattern == "life"]


def test_the_last_state_of_a_bar_of_preparing_work_is_kept():
    bar = "Map (num_proc=8):  {}%|##   | 1/10 [{}<45:00, 30.1 examples/s]\r"
    text = bar.format(10, "05:00") + bar.format(20, "1:06:01") + "\n"
    (event,) = [event for event in events_of(text.encode()) if event.pattern == "progress"]
    assert ("20", "3961") == (event.fact("percent"), event.fact("elapsed"))
