"""The book of a month: what each machine did, and which failures can be its own.

Jobs come one at a time, in any order, and are forgotten at once: a million of them are read in little memory.
Only failures that can be a node's are kept. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

from hpslurm.cluster import history_incidents as incidents
from hpslurm.cluster import history_stats as stats
from hpslurm.cluster.history_jobs import Failure, Job, Told, failure_of, lost_at
from hpslurm.core.values import dataclass, replace

# Hours that the start of a job counts for beside its length: else jobs that fail at once would have strained nothing.
START = 0.5
DOWN_WITHIN = 900  # seconds between a NODE_FAIL and Slurm's event of the node that it lost
FAILED = ("FAILED", "NODE_FAIL", "BOOT_FAIL")
# What Slurm says of a hang is that somebody or the clock ended it; only a diagnosis tells it from any other end.
DIAGNOSED = (*FAILED, "CANCELLED", "TIMEOUT", "OUT_OF_MEMORY", "DEADLINE")
_kinds = lru_cache(maxsize=65536)(stats.kinds_of)
Tell = Callable[[Job], "Told | None"]
Machine = Callable[[str, int], str]  # name and time to the machine that was behind the name then


@dataclass(frozen=True)
class Book:
    """What it all came to."""

    verdicts: tuple[stats.Verdict, ...]  # worst first
    failures: tuple[Failure, ...]
    incidents: tuple[incidents.Incident, ...]
    jobs: int
    failed: int

    @property
    def suspects(self) -> list[stats.Verdict]:
        return [one for one in self.verdicts if one.word == stats.SUSPECT]


class Ledger:
    """Takes jobs and says in the end which nodes fail more than their share."""

    def __init__(
        self,
        tell: Tell | None = None,
        downs: Mapping[str, Sequence[int]] | None = None,
        machine: Machine | None = None,
    ) -> None:
        self.tell = tell or (lambda job: None)
        self.downs = downs or {}
        self.machine = machine
        self.hours: dict[str, dict[stats.Kind, float]] = {}
        self.together: dict[str, dict[int, float]] = {}
        self.jobs_of: dict[str, int] = {}
        self.by_day: dict[str, dict[int, float]] = {}
        self.failures: list[Failure] = []
        self.others: list[int] = []  # when jobs failed that can be no node's
        self.count = self.failed = 0

    def add(self, job: Job) -> None:
        """A job that is over. Running ones have shown nothing yet."""
        self.count += 1
        self.failed += job.state in FAILED
        nodes = self._machines(job.nodes, job.end)
        self._work(job, nodes)
        told = self.tell(job) if job.state in DIAGNOSED else None
        failure = failure_of(job, told, lost_at(job, self.downs, DOWN_WITHIN))
        if failure is not None:
            self.failures.append(replace(failure, nodes=self._machines(failure.nodes, job.end)))
        elif job.state in FAILED:
            self.others.append(job.end)

    def _machines(self, names: tuple[str, ...], when: int) -> tuple[str, ...]:
        machine = self.machine
        return names if machine is None else tuple(machine(name, when) for name in names)

    def _work(self, job: Job, nodes: tuple[str, ...]) -> None:
        kinds = _kinds(job.user, job.partition, len(nodes))
        hours, day = job.hours + START, job.end // stats.DAY
        size = kinds[1][2]
        for node in nodes:
            of = self.hours.get(node)
            if of is None:
                of = self.hours[node] = {}
                self.together[node] = {}
                self.jobs_of[node] = 0
                self.by_day[node] = {}
            together = self.together[node]
            together[size] = together.get(size, 0.0) + hours * len(nodes)
            for kind in kinds:
                of[kind] = of.get(kind, 0.0) + hours
            self.jobs_of[node] += 1
            days = self.by_day[node]
            days[day] = days.get(day, 0.0) + hours

    def close(self) -> Book:
        """Judge. Failures of many nodes at once are taken out first."""
        kept, bursts = incidents.split(self.failures, self.others)
        verdicts = stats.judge(stats.Work(self.hours, self.together, self.jobs_of), kept, self._hours_since(kept))
        return Book(tuple(verdicts), tuple(kept), tuple(bursts), self.count, self.failed)

    def _hours_since(self, failures: Sequence[Failure]) -> dict[str, float]:
        """Hours of work on the days after a node's last failure."""
        last: dict[str, int] = {}
        for failure in failures:
            for node in failure.nodes:
                last[node] = max(last.get(node, 0), failure.time // stats.DAY)
        return {
            node: sum(hours for at, hours in self.by_day.get(node, {}).items() if at > day)
            for node, day in last.items()
        }
