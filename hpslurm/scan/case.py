"""The events of one scan, put in order: who is who, who was where, what came first, what went on afterwards."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from hpslurm.core.finding import NOISE, ROOT, SYMPTOM, Event
from hpslurm.core.text import whole
from hpslurm.core.values import replace
from hpslurm.scan.model import Numbers
from hpslurm.scan.patterns import Table

LATE = 3.0  # seconds: clocks of different hosts may differ by this much
RECOVERED = 30.0  # seconds after a retry from which another file's work says that it succeeded


class Case:
    """Noise is kept apart by what it tells; roots and symptoms carry world ranks where anything names them."""

    def __init__(self, events: Iterable[Event], patterns: Table, numbers: Numbers) -> None:
        self.patterns = patterns
        self.numbers = numbers
        self.all = sorted(events, key=lambda event: (event.file, event.line, event.pattern))
        self._identity: dict[tuple[str, int | None], int] = {}
        self.hosts: dict[int, str] = {}  # of world ranks
        self.world = 0
        self.kinds = {event.pattern[5:] for event in self.all if event.pattern.startswith("kind:")}
        self._read_identities()
        self.life = self.of("life")
        self.serves = self.of("serves")
        self.restarts = self.of("restart")
        self.began = self.of("life-began")
        self.busy = self.of("busy")
        self.files = {event.rank: event.file for event in self.of("file") if event.rank is not None}
        named = [self._named(event) for event in self.all if event.role != NOISE]
        self.roots = [event for event in named if event.role == ROOT]
        self.symptoms = [event for event in named if event.role == SYMPTOM]

    def of(self, pattern: str) -> list[Event]:
        return [event for event in self.all if event.pattern == pattern]

    def _read_identities(self) -> None:
        hosts: dict[int, set[str]] = defaultdict(set)
        for event in self.all:
            if event.pattern == "identity" and event.rank is not None:
                self._identity[(event.host, event.pid)] = event.rank
            if event.pattern in ("identity", "place") and event.rank is not None and event.host:
                hosts[event.rank].add(event.host)
            if event.pattern in ("identity", "world", "place"):
                self.world = max(self.world, whole(event.fact("world")) or 0)
        for task in self._tasks_that_are_ranks():
            hosts[task.rank or 0].add(task.host)
        self.hosts = {rank: min(names) for rank, names in hosts.items() if len(names) == 1}

    def _tasks_that_are_ranks(self) -> list[Event]:
        """Slurm's tasks, unless each of them started several ranks: then there are more ranks than tasks."""
        tasks = self.of("task")
        last = max((task.rank or 0 for task in tasks), default=-1)
        ranks = max((event.rank for event in self.all if event.rank is not None), default=-1)
        return tasks if max(ranks, self.world - 1) <= last else []

    def _named(self, event: Event) -> Event:
        """With the world rank, where NCCL's set-up told which process it is."""
        if event.rank is None and event.pid is not None:
            rank = self._identity.get((event.host, event.pid))
            if rank is not None:
                return replace(event, rank=rank)
        return event

    def before(self, event: Event, other: Event) -> bool | None:
        """Whether ``event`` came first; None when nothing tells."""
        apart = None
        if event.time is not None and other.time is not None:
            apart = event.time - other.time
        if apart is not None and abs(apart) > (LATE if event.file != other.file else 0):
            return apart < 0
        if self._late(event) != self._late(other):
            return None  # whoever manages the job says afterwards what happened before
        if event.file == other.file and event.line != other.line:
            if (event.line < 0) != (other.line < 0):  # a negative number is counted from the end
                return other.line < 0
            return event.line < other.line
        return None

    def _late(self, event: Event) -> bool:
        row = self.patterns.by_id.get(event.pattern)
        return row is not None and row.late

    def went_on(self, event: Event) -> bool:
        """Whether several steps of work, or jobs of a daemon of Slurm, came after its last line, in the same file."""
        return any(
            (begins := whole(sign.fact("recent"))) is not None
            and sign.file == event.file
            and begins > max(event.line, event.last_line)
            for sign in (*self.life, *self.serves)
        )

    def on_one_node(self) -> bool:
        """All ranks were seen, on one host: what is between nodes plays no part."""
        hosts = {event.host for event in self.of("identity")}
        return len(hosts) == 1 and bool(self.of("one-node"))

    def restarted(self, event: Event) -> bool:
        """The launcher started its workers again afterwards, and their work went on."""
        last = max(event.line, event.last_line)
        return any(restart.file == event.file and last < restart.line for restart in self.restarts)

    def survived(self, event: Event) -> bool:
        """A retry of the start that succeeded: work went on after it, and none before it."""
        for life in self.life:
            if life.file == event.file and life.line > max(event.line, event.last_line):
                return not any(began.file == event.file and began.line < event.line for began in self.began)
            if life.time is not None and event.time is not None and life.time > event.time + RECOVERED:
                return True
        return False
