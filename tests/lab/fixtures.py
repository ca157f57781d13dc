"""The fixtures ``lab`` and ``make_lab``; a test that asks for one gets the marker ``lab``."""

from __future__ import annotations

import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

from tests.lab import guard
from tests.lab.lab import Lab, missing_programs, new_folder


@cache
def why_not() -> str:
    """Why no Slurm lab can be started here; empty where it can."""
    if os.geteuid() != 0:
        return "needs real Slurm daemons, so root: run `sudo make test`"
    if missing := missing_programs():
        return f"needs real Slurm daemons, not installed: {', '.join(missing)} (`make test` as root installs them)"
    if guard.signs():
        time.sleep(1)  # a test of the guard itself, in another process, shows a foreign daemon for a moment
        if found := guard.signs():
            return guard.refusal(found)
    return ""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    counts: Counter[Path] = Counter()
    waiting: dict[Path, None] = {}
    for item in items:
        counts[item.path] += 1
        if "make_lab" in getattr(item, "fixturenames", ()):
            item.add_marker("lab")
            waiting[item.path] = None
    if hasattr(config, "workerinput"):  # one of several processes, which take file after file
        places = {path: place for place, path in enumerate(spread(list(waiting), counts))}
        items.sort(key=lambda item: places[item.path])


def spread(waiting: list[Path], counts: Mapping[Path, int]) -> list[Path]:
    """Files in the order in which they are best begun: those that wait for daemons between those that compute.

    By itself xdist begins with the files of most tests, so that labs, with few tests that take long, came last: then
    processors were idle, and everybody waited for one file. Here they stand in the first three quarters.
    """
    computing = sorted((path for path in counts if path not in waiting), key=lambda path: -counts[path])
    step = max(1, 3 * len(computing) // (4 * max(1, len(waiting))))
    left = waiting[::-1]
    order: list[Path] = []
    for number, path in enumerate(computing):
        if left and number % step == 0:
            order.append(left.pop())
        order.append(path)
    return [*order, *reversed(left)]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what was left out, and why, in a line for each reason."""
    reasons = [report.longrepr[2].removeprefix("Skipped: ") for report in terminalreporter.stats.get("skipped", ())]
    for reason, count in Counter(reasons).most_common():
        terminalreporter.write_line(f"left out, {count} test{'s' * (count > 1)}: {reason}")


@pytest.fixture
def make_lab(request: pytest.FixtureRequest) -> Iterator[Callable[..., Lab]]:
    """Starts labs with the words of ``Lab``: ``make_lab(nodes=2, memlock={"n2": 65536})``; all end with the test."""
    if reason := why_not():
        pytest.skip(reason)
    made: list[Lab] = []

    def make(**words: object) -> Lab:
        lab = Lab(new_folder(), **words)  # type: ignore[arg-type]
        made.append(lab)
        lab.__enter__()
        return lab

    yield make
    for lab in reversed(made):
        try:
            lab.down()
        finally:
            shutil.rmtree(lab.folder, ignore_errors=True)


@pytest.fixture
def lab(make_lab: Callable[..., Lab]) -> Lab:
    """Four nodes n1 to n4, healthy, without hooks."""
    return make_lab()
