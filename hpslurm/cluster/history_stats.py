"""Does a node fail more than its share? Each node against all others, by the work that it did.

Failures of a node in some work are taken for a Poisson count. What is expected of it comes from the *other* nodes, in
jobs without it, in the same kind of work (indirect standardisation, as in epidemiology): named failures by hours and
partition, others by the size of the job as well, and those that nothing is known of by its user, too, since programs
of one user fail more than those of another. That usual rate is itself known by a few failures only, in a small cluster
by a dozen: the chance of so many or more is the exact conditional one of two Poisson counts (Przyborowski and
Wilenski 1940). Where r - 1 failures were seen in the others' work, and m are expected of the node, it is the tail

    P(X >= k | m, r) = 1 - sum_{i<k} C(r-1+i, i) (r / (r+m))^r (m / (r+m))^i

of a negative binomial, which for a well-known rate is that of Poisson,

    P(X >= k | m) = 1 - sum_{i<k} e^-m m^i / i!

of each kind of failure; the smallest counts, corrected for the number of kinds (Bonferroni) and, over all nodes, by
the method of Benjamini and Hochberg. The worst node is taken first; failures of jobs that it took part in then count
no more against the nodes that were with it (explaining away), and the others are judged again. docs/history.md has the
sources. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from hpslurm.cluster.history_jobs import HARD, NAMED, SOFT, Failure
from hpslurm.core.values import dataclass

SUSPECT, WATCH, FEW, USUAL = "suspect", "watch", "few data", "as others"
# Share of nodes wrongly accused up to which a node is a suspect. Where all are well it is also the chance that anybody
# is accused; with this one, more than five such months of a hundred are unlikely themselves (once in 200 hundreds).
SURE = 0.015
MAYBE = 0.2  # and up to which it is watched
ROUNDS = 2  # the usual rates are taken again without those that the first round accuses
FEWEST = 3  # failures of a suspect; two may be an accident
TIMES = 3.0  # and how many times its share, after shrinkage
FEW_HOURS, FEW_JOBS = 24.0, 10  # of work, below which a node that failed has shown too little
LEAST_JOBS = 30  # on all nodes together, below which nobody knows what is usual here
QUIET = 0.01  # chance of no failure since the last one, at its own rate, below which it seems to be mended
DAY = 86400
# What part of the error each kind may use (a weighted Bonferroni correction): failures that name nobody come in waves
# and in company, of programs and of other nodes, and are trusted the less the less is known of them.
PART = {NAMED: 0.97, HARD: 0.02, SOFT: 0.01}
PRIOR = 1.0  # failures expected and seen that shrink a ratio to 1: of 1 in 1 little is left, of 9 in 40 most
TOGETHER = 600  # seconds in which a node's faults are one, whatever number of jobs they end
Kind = tuple[str, str, int]  # partition or user, kind of failure, size class

Once = tuple[Kind, str, int]  # with the user and the day


@dataclass(frozen=True)
class Work:
    """Hours of each node in each kind of work, and all its jobs.

    ``with_others`` are, by size class, those of all nodes of its jobs together: what it does to a job it does to all
    of them, so that its share is told by jobs without it.
    """

    hours: Mapping[str, Mapping[Kind, float]]
    with_others: Mapping[str, Mapping[int, float]]
    jobs: Mapping[str, int]


@dataclass(frozen=True)
class Verdict:
    """One node. ``chance`` is that of so many failures by accident, over all nodes; ``ratio`` is shrunk."""

    node: str
    word: str
    failures: int
    named: int
    expected: float
    ratio: float
    chance: float
    jobs: int
    hours: float
    last: int  # time of the last failure, 0 for none
    quiet: bool = False
    alike: tuple[str, ...] = ()  # nodes that took part in the same failures: they cannot be told apart
    counted: tuple[int, ...] = ()  # the jobs


def poisson_tail(count: int, mean: float) -> float:
    """P(X >= count). Summed from the side on which few terms are needed, so that small chances stay exact."""
    if count <= 0:
        return 1.0
    if mean <= 0:
        return 0.0
    if count > mean:
        term = math.exp(count * math.log(mean) - mean - math.lgamma(count + 1))
        total, at = 0.0, count
        while term > total * 1e-12:
            total += term
            at += 1
            term *= mean / at
        return min(1.0, total)
    term = total = math.exp(-mean)
    for at in range(1, count):
        term *= mean / at
        total += term
    return max(0.0, 1.0 - total)


def tail(count: int, mean: float, known: float) -> float:
    """P(X >= count) where the mean is told by ``known`` - 1 failures; many of them make it that of Poisson."""
    if count <= 0:
        return 1.0
    if mean <= 0:
        return 0.0
    part, none = mean / (known + mean), -known * math.log1p(mean / known)
    if count > mean:
        ways = math.lgamma(known + count) - math.lgamma(known) - math.lgamma(count + 1)
        term, total, at = math.exp(ways + none + count * math.log(part)), 0.0, count
        while term > total * 1e-12:
            total += term
            term *= (known + at) / (at + 1) * part
            at += 1
        return min(1.0, total)
    term = total = math.exp(none)
    for at in range(count - 1):
        term *= (known + at) / (at + 1) * part
        total += term
    return max(0.0, 1.0 - total)


@dataclass(frozen=True)
class Count:
    """Failures of one kind on one node: seen, and expected as the share of any node, told by ``known`` failures."""

    seen: int = 0
    expected: float = 0.0
    known: float = 1.0

    @property
    def ratio(self) -> float:
        """How many times its share, shrunk towards one where little was expected or seen."""
        return (self.seen + PRIOR) / (self.expected + PRIOR)


def chance(counts: Mapping[str, Count]) -> float:
    """Of as much evidence by accident: the least likely of the kinds, each with its part of the error allowed."""
    tails = (tail(one.seen, one.expected, one.known) / PART[kind] for kind, one in counts.items())
    return min(1.0, *tails)


def size_class(nodes: int) -> int:
    """Jobs of about the same size: 1, 2 to 7, 8 to 31, and so on by powers of four."""
    return max(1, nodes).bit_length() // 2


def kinds_of(user: str, partition: str, size: int) -> tuple[Kind, Kind, Kind]:
    """What a node's hours in such a job count for: each kind of failure has its own usual rate."""
    return (partition, NAMED, 0), (partition, HARD, size_class(size)), (user, SOFT, size_class(size))


# the table


class Table:
    """Counts by node, which change while the worst nodes are taken out one after the other."""

    def __init__(self, work: Work, failures: Iterable[Failure], bad: frozenset[str] = frozenset()) -> None:
        """``bad`` are nodes whose failed jobs belong to no usual rate."""
        self.work = work
        self.bad = bad
        self.of_job: dict[int, Failure] = {}
        self.struck: dict[str, int] = {}  # when a node was last named
        # node -> what counts once -> jobs that failed so
        self.failed: dict[str, dict[Once, list[int]]] = {}  # lists: a set of one takes four times as much
        self.usual: dict[str, dict[Kind, int]] = {}  # failures by kind, of which the usual rates are made
        self.seen_with: dict[str, dict[Kind, int]] = {}  # the same for all nodes of its jobs together
        for failure in sorted(failures, key=lambda one: one.time):
            self._put(failure)
        self.all_hours = _sums(work.hours.values())
        self.all_seen = _sums(self.usual.values())
        self.class_hours = _by_class(self.all_hours)
        self.class_seen = _by_class(self.all_seen)
        self.shares: dict[str, dict[str, tuple[float, float]]] = {}  # of a node, once asked for

    def _put(self, failure: Failure) -> None:
        """What one user's jobs met on a day counts once: a program in a crash loop is misread again and again."""
        self.of_job[failure.job] = failure
        kinds = kinds_of(failure.user, failure.partition, failure.size)
        kind = dict(zip((NAMED, HARD, SOFT), kinds, strict=True))[failure.kind]
        once = (kind, failure.user, failure.time // DAY)
        for node in failure.nodes:
            if failure.kind == NAMED and failure.time - self.struck.get(node, -TOGETHER) < TOGETHER:
                continue  # the same fault ended several jobs
            if failure.kind == NAMED:
                self.struck[node] = failure.time
            jobs = self.failed.setdefault(node, {}).setdefault(once, [])
            if not jobs and self.bad.isdisjoint(failure.nodes):
                of, company = self.usual.setdefault(node, {}), self.seen_with.setdefault(node, {})
                of[kind] = of.get(kind, 0) + 1
                company[kind] = company.get(kind, 0) + len(failure.nodes)
            jobs.append(failure.job)

    def evidence(self, node: str) -> dict[str, Count]:
        """What was seen, and what would be its share, by kind of failure."""
        counted = self.now(node)
        if node not in self.shares:
            self.shares[node] = self._shares(node)
        return {kind: Count(counted.get(kind, 0), *share) for kind, share in self.shares[node].items()}

    def _shares(self, node: str) -> dict[str, tuple[float, float]]:
        """What is expected of it by kind of failure, and by how many failures that is known."""
        shares, spread = dict.fromkeys(PART, 0.0), dict.fromkeys(PART, 0.0)
        seen, own = self.seen_with.get(node, {}), _by_class(self.work.hours[node])
        seen_by_class = _by_class(seen)
        for kind, hours in self.work.hours[node].items():
            group = kind[1:]
            company = self._company(node, group, own[group])
            left = self.class_hours[group] - own[group] * company
            if left <= 0:  # nobody did such work without it: there is nothing to compare with
                shares[kind[1]] += sum(once[0] == kind for once in self.failed.get(node, ()))
                continue
            others = max(0.0, self.all_hours[kind] - hours * company)
            failed = max(0.0, self.all_seen.get(kind, 0.0) - seen.get(kind, 0.0))
            rest = max(0.0, self.class_seen.get(group, 0.0) - seen_by_class.get(group, 0.0) - failed)
            # a kind with few failures leans on the rest of its size: one failure at the rate of that is added to it
            share = hours * (failed + 1.0) / (others + max(0.0, left - others) / (rest + 1.0))
            shares[kind[1]] += share
            spread[kind[1]] += share * share / (failed + 1.0)
        return {kind: (share, share * share / spread[kind] if spread[kind] else 1.0) for kind, share in shares.items()}

    def _company(self, node: str, group: tuple[str, int], own: float) -> float:
        """How many nodes its jobs of this size had; a failure that names it is no other's."""
        return 1.0 if group[0] == NAMED else self.work.with_others[node][group[1]] / own

    def now(self, node: str) -> dict[str, int]:
        """Failures of each kind that still count against it."""
        counts: dict[str, int] = {}
        for once, jobs in self.failed.get(node, {}).items():
            if jobs:
                counts[once[0][1]] = counts.get(once[0][1], 0) + 1
        return counts

    def chance(self, node: str) -> float:
        return chance(self.evidence(node)) if node in self.failed else 1.0

    def explain_away(self, node: str) -> set[str]:
        """Jobs in which this node failed count no more against the others; which nodes that touches."""
        touched: set[str] = set()
        for once, jobs in self.failed.get(node, {}).items():
            for job in jobs:
                for other in self.of_job[job].nodes:
                    if other != node and job in self.failed[other].get(once, ()):
                        self.failed[other][once].remove(job)
                        touched.add(other)
        return touched

    def jobs_of(self, node: str) -> set[int]:
        return set[int]().union(*self.failed.get(node, {}).values())

    def last_of(self, node: str) -> int:
        return max((self.of_job[job].time for job in self.jobs_of(node)), default=0)


def _sums(tables: Iterable[Mapping[Kind, float]]) -> dict[Kind, float]:
    total: dict[Kind, float] = {}
    for table in tables:
        for kind, number in table.items():
            total[kind] = total.get(kind, 0.0) + number
    return total


def _by_class(table: Mapping[Kind, float]) -> dict[tuple[str, int], float]:
    total: dict[tuple[str, int], float] = {}
    for kind, number in table.items():
        total[kind[1:]] = total.get(kind[1:], 0.0) + number
    return total


# judging


def judge(work: Work, failures: Iterable[Failure], hours_since: Mapping[str, float] | None = None) -> list[Verdict]:
    """Every node that did some work, worst first. ``hours_since``: of work after its last failure, where known."""
    failures = list(failures)
    bad: frozenset[str] = frozenset()
    table = Table(work, failures)
    taken, alike = _taken(table)
    for _ in range(1, ROUNDS):
        accused = frozenset(node for node, share in taken.items() if share <= SURE)
        if accused == bad:
            break
        bad = accused
        del table  # before the next takes as much
        table = Table(work, failures, bad)
        taken, alike = _taken(table)
    enough = sum(work.jobs.values()) >= LEAST_JOBS
    since = hours_since or {}
    made = [
        _verdict(table, node, taken.get(node, 1.0), alike.get(node, ()), since.get(node), enough) for node in work.hours
    ]
    return sorted(made, key=_order)


def _taken(table: Table) -> tuple[dict[str, float], dict[str, tuple[str, ...]]]:
    """The worst nodes one after the other, each with its corrected chance; and those that cannot be told from them."""
    left = {node: table.chance(node) for node in table.work.hours}
    alike: dict[str, tuple[str, ...]] = {}
    taken: list[tuple[str, float]] = []
    while left:
        worst = min(left, key=lambda node: (left[node], node))
        own = left.pop(worst)
        if own > MAYBE:
            break
        alike[worst] = tuple(_alike(table, worst, [other for other in left if left[other] <= MAYBE]))
        taken.append((worst, own))
        for other in table.explain_away(worst) & left.keys():
            left[other] = table.chance(other)
    return _corrected(taken, len(table.work.hours)), alike


def _corrected(taken: Sequence[tuple[str, float]], nodes: int) -> dict[str, float]:
    """By the method of Benjamini and Hochberg: of all that are accused up to a node, at most this share is well."""
    corrected: dict[str, float] = {}
    least = 1.0
    for place, (node, own) in sorted(enumerate(taken, start=1), reverse=True):
        least = min(least, own * nodes / place)
        corrected[node] = least
    return corrected


def _order(verdict: Verdict) -> tuple[int, float, float, str]:
    return (SUSPECT, WATCH, FEW, USUAL).index(verdict.word), verdict.chance, -verdict.ratio, verdict.node


def _alike(table: Table, node: str, others: Sequence[str]) -> Iterable[str]:
    """Nodes that shared nine in ten of its failures, and none of both is named in any."""
    mine = table.jobs_of(node)
    for other in others:
        theirs = table.jobs_of(other)
        if other != node and len(theirs & mine) >= 0.9 * len(mine | theirs):
            yield other


def _verdict(
    table: Table, node: str, chance: float, alike: tuple[str, ...], since: float | None, enough: bool
) -> Verdict:
    counts = table.evidence(node)
    seen, named = sum(one.seen for one in counts.values()), counts[NAMED].seen
    expected = sum(one.expected for one in counts.values())
    # of the kind that accuses it: a node with broken hardware is not made better by programs that do well on it
    ratio = max(one.ratio for one in counts.values())
    hours = sum(hours for kind, hours in table.work.hours[node].items() if kind[1] == NAMED)
    quiet = since is not None and seen > 0 and hours > 0 and math.exp(-seen * since / hours) < QUIET
    few = hours < FEW_HOURS and table.work.jobs.get(node, 0) < FEW_JOBS
    word = _word(seen, ratio, chance, few, quiet or bool(alike))
    return Verdict(
        node,
        word if enough or word == USUAL else FEW,
        seen,
        named,
        expected,
        ratio,
        chance,
        table.work.jobs.get(node, 0),
        hours,
        table.last_of(node),
        quiet,
        alike,
        tuple(sorted(table.jobs_of(node))),
    )


def _word(seen: int, ratio: float, chance: float, few: bool, milder: bool) -> str:
    if chance <= SURE and seen >= FEWEST and ratio >= TIMES:
        return WATCH if milder else SUSPECT
    if chance <= MAYBE and seen >= 2:
        return WATCH
    return FEW if seen and few else USUAL
