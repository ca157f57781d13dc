"""Failures that have one cause outside of single nodes, told apart by their time.

When a leaf switch, a file system or a partition goes, jobs on many nodes fail in the same minute: that is one
incident, and no node's. So is one user's crash loop on one node: the same program that fails twenty times in an
hour has failed once, as far as the node is concerned. Pure.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator, Sequence

from hpslurm.cluster.history_jobs import Failure
from hpslurm.cluster.history_stats import poisson_tail
from hpslurm.core.values import dataclass

MINUTE = 60  # seconds within which what fails together ends; Slurm and NCCL need some to notice
FEWEST = 4  # jobs on different nodes; three at once are a coincidence on a busy cluster
CHANCE = 1e-6  # that so many fail within a minute by themselves
AROUND = 12 * 3600  # seconds before and after, from which the usual rate is taken


@dataclass(frozen=True)
class Incident:
    """Jobs that failed together. ``nodes`` are all of theirs."""

    start: int
    end: int
    jobs: tuple[int, ...]
    nodes: tuple[str, ...]
    partitions: tuple[str, ...]


def split(failures: Iterable[Failure], others: Iterable[int] = ()) -> tuple[list[Failure], list[Incident]]:
    """Failures of nodes, and incidents. ``others`` are times at which jobs failed that can be no node's.

    They belong to the usual rate: where a user's jobs fail every second, four in a minute are nothing.
    """
    ordered = sorted(failures, key=lambda one: (one.time, one.job))
    times = sorted([*(one.time for one in ordered), *others])
    kept: list[Failure] = []
    incidents = []
    for group in _bursts(ordered):
        apart = _apart(group)
        if len(apart) >= FEWEST and _chance(group, len(apart), times) < CHANCE:
            incidents.append(_incident(group))
        else:
            kept += group
    return kept, incidents


def _bursts(failures: Sequence[Failure]) -> Iterator[list[Failure]]:
    """Failures with less than a minute from one to the next... as long as the whole lasts five at most."""
    group: list[Failure] = []
    for failure in failures:
        if group and (failure.time - group[-1].time > MINUTE or failure.time - group[0].time > 5 * MINUTE):
            yield group
            group = []
        group.append(failure)
    if group:
        yield group


def _apart(group: Sequence[Failure]) -> list[Failure]:
    """Those that share no node with an earlier one of the group."""
    seen: set[str] = set()
    apart = []
    for failure in group:
        if seen.isdisjoint(failure.nodes):
            apart.append(failure)
        seen.update(failure.nodes)
    return apart


def _chance(group: Sequence[Failure], count: int, times: Sequence[int]) -> float:
    """That so many fail in so short a time, at the rate of the hours around it without the group itself."""
    lasted = group[-1].time - group[0].time + MINUTE
    first, last = group[0].time - AROUND, group[-1].time + AROUND
    around = bisect.bisect_right(times, last) - bisect.bisect_left(times, first) - len(group)
    return poisson_tail(count, (around + 1) * lasted / (last - first))


def _incident(group: Sequence[Failure]) -> Incident:
    return Incident(
        group[0].time,
        group[-1].time,
        tuple(dict.fromkeys(one.job for one in group)),
        tuple(dict.fromkeys(name for one in group for name in one.nodes)),
        tuple(sorted({one.partition for one in group if one.partition})),
    )
