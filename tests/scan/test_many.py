"""Many files in several processes: the answer of one, also where a process is killed."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import psutil
import pytest

from hpslurm.scan import many
from hpslurm.scan.collect import Collector, scan
from tests.scan.cases import healthy_lines

OOM = "[rank2]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB.\n"
FILES = 8


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """As many bytes as are worth a second process, and a file that tells the cause."""
    lines = healthy_lines(1000)
    (tmp_path / "rank0.log").write_text(lines * (many.WORTH // FILES // len(lines.encode()) + 1))
    for number in range(1, FILES):
        os.link(tmp_path / "rank0.log", tmp_path / f"rank{number}.log")
    (tmp_path / "rank9.log").write_text(OOM)
    return tmp_path


def read(paths: list[str]) -> tuple[Collector, set[int]]:
    """What came of it, and the processes that took part."""
    collector = Collector()
    before = {child.pid for child in psutil.Process().children()}
    helpers: set[int] = set()
    seen = lambda _: helpers.update(child.pid for child in psutil.Process().children())  # noqa: E731
    many.add(collector, paths, seen)
    return collector, helpers - before


def paths_of(folder: Path) -> list[str]:
    return [str(path) for path in sorted(folder.iterdir())]


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core: nothing is side by side")
def test_several_processes_give_the_answer_of_one(folder: Path):
    together, helpers = read([*paths_of(folder), str(folder / "missing")])
    alone = scan([str(folder), str(folder / "missing")])
    assert len(helpers) > 1
    assert alone.result() == together.result()
    assert (FILES + 1, alone.bytes, alone.unread) == (together.files, together.bytes, together.unread)
    assert "cuda-oom" in [event.pattern for event in together.result()]


def test_few_bytes_and_standard_input_are_read_by_one_process(folder: Path):
    assert set() == read([str(folder / "rank9.log")] * 2)[1]
    assert not many._worth([*paths_of(folder), "-"])
    assert many._worth(paths_of(folder))


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core: nothing is side by side")
def test_what_a_killed_process_leaves_is_read_by_the_first(folder: Path):
    before = {child.pid for child in psutil.Process().children()}
    over, killed = threading.Event(), []

    def kill() -> None:
        while not over.wait(0.001):
            for child in psutil.Process().children():
                if child.pid not in before:
                    child.kill()
                    killed.append(child.pid)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        together, _ = read(paths_of(folder))
    finally:
        over.set()
        killer.join()
    assert killed
    assert (FILES + 1, []) == (together.files, together.unread)
    assert scan([str(folder)]).result() == together.result()
