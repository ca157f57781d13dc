"""Many files side by side, in as many processes as there are cores: the same answer as in one."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable
from functools import cache

from hpslurm.scan.collect import Collector, Taken

WORTH = 64 << 20  # bytes in all from which a second process takes less time than it costs
MOST_PROCESSES = 8  # a login node has other users, too


def add(collector: Collector, paths: Iterable[str], progress: Callable[[int], None]) -> None:
    """Reads all files into the collector, in their order."""
    rest = list(paths)
    processes = min(len(os.sched_getaffinity(0)), MOST_PROCESSES, len(rest))
    if processes > 1 and _worth(rest):
        rest = _side_by_side(collector, rest, processes, progress)
    for path in rest:
        collector.add(path, progress)


def _worth(paths: list[str]) -> bool:
    total = 0
    for path in paths:
        if path == "-":
            return False  # there is one standard input
        try:
            total += os.stat(path).st_size
        except OSError:
            pass  # said when it is read
    return total >= WORTH


def _side_by_side(collector: Collector, paths: list[str], processes: int, progress: Callable[[int], None]) -> list[str]:
    """What is left to read where a process was killed, as for lack of memory."""
    from concurrent.futures.process import BrokenProcessPool, ProcessPoolExecutor  # takes longer than a small file

    done = 0
    pool = ProcessPoolExecutor(processes, initializer=signal.signal, initargs=(signal.SIGINT, signal.SIG_DFL))
    try:
        for taken in pool.map(_taken, paths):
            collector.merge(taken)
            progress(taken.bytes)
            done += 1
    except BrokenProcessPool:
        pass
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    return paths[done:]


@cache
def _collector() -> Collector:
    return Collector()


def _taken(path: str) -> Taken:
    collector = _collector()
    collector.add(path)
    return collector.take()
