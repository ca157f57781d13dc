"""How well ``hpslurm history`` tells nodes that keep failing from the others, on simulated months.

    .venv/bin/python benchmarks/history.py                        256 nodes, seeds 0 to 19
    .venv/bin/python benchmarks/history.py --nodes 1024 --seeds 10 30
    .venv/bin/python benchmarks/history.py --million              the command on 10^6 jobs: seconds and memory

Published rates (arXiv 2410.21680, its larger cluster): 6.50 failures in 1,000 node-days, 1.2 % of nodes that keep
failing, without which failures of large jobs fell from 14 to 4 %: so ten in fourteen are theirs, 387 in 1,000 of their
node-days, here between 0.4 and 1.6 times that. 7.2 thousand jobs a day on 2,048 nodes, nine in ten smaller than one
node; 83 % of the nodes busy; jobs last seven days at most.

The rest is assumed. A third of all jobs fails by its own fault, each user's at a rate of his own, two in a hundred in
crash loops on the same node. Of a node's failures three in five are put down to it with high confidence (27 of 41 in
runs of real torch with injected faults), one in twenty with less, one in twenty to another node, the rest to nobody; of
the programs' own failures 1 % is put down to a node, 0.3 % with high confidence. Three in five (of hangs none) leave an
XID, which the node's record shows in nine of ten cases. One failure in five is a NODE_FAIL, of
which Slurm keeps an event. Twice a month a file system takes a third of all jobs along, once a leaf those of 20 nodes.

Four kinds of nodes that keep failing, a quarter each: any job; only jobs of 8 nodes or more; only under one of its
GPUs; and those that hang a job instead of ending it, so that Slurm sees it cancelled. Beside our verdict stand plain
counting of failed jobs (mean and three deviations), and the paper's way: signals over 28 days, each cut at the
quantile that leaves 1.2 % of the nodes, two of five needed; its own cuts were set by hand and are not printed.
"""

from __future__ import annotations

import argparse
import heapq
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from hpslurm.cluster.history_jobs import OF_JOB, OF_NOBODY, OF_NODE, Job, Told
from hpslurm.cluster.history_ledger import Book, Ledger
from hpslurm.cluster.history_stats import SUSPECT, WATCH
from hpslurm.sources.host import SACCT_MARK

DAY = 86400
DAYS = 28
ALL = 6.50 / 1000  # failures a node-day
SHARE = 0.012  # of the nodes
THEIRS = 10 / 14  # of all failures
HEALTHY = ALL * (1 - THEIRS) / (1 - SHARE)
LEMON = ALL * THEIRS / SHARE
JOBS_A_DAY = 7200 / 2048  # a node
KINDS = ("often", "large", "one GPU", "hangs")
LARGE = 8  # nodes
OFTENER = {"often": 1.0, "large": 1.4, "one GPU": 1.05, "hangs": 1.0}  # so that each kind fails as often in a month
USERS = 60


class Month:
    """One cluster for 28 days: its jobs, what is told of them, and who is a lemon."""

    def __init__(self, nodes: int, seed: int, lemons: bool = True) -> None:
        self.random = random.Random(seed)
        self.names = [f"n{number}" for number in range(nodes)]
        count = max(2, round(SHARE * nodes)) if lemons else 0
        chosen = self.random.sample(range(nodes), count)
        self.lemons = {node: KINDS[(at + seed) % len(KINDS)] for at, node in enumerate(chosen)}
        self.rate = {node: LEMON * self.random.uniform(0.4, 1.6) * OFTENER[kind] for node, kind in self.lemons.items()}
        self.gpu = {node: self.random.randrange(8) for node in self.lemons}
        self.own = [min(0.9, self.random.gammavariate(1.2, 0.15)) for _ in range(USERS)]
        self.told: dict[int, Told] = {}
        self.jobs: list[Job] = []
        self.xids: Counter[int] = Counter()
        self.outs: Counter[int] = Counter()
        self.downs: dict[str, list[int]] = {}
        self._run()

    def _size(self) -> tuple[int, int]:
        """Nodes and GPUs of a job: nine in ten are smaller than one node, and large ones take most of the time."""
        most = len(self.names) // 4
        if self.random.random() < 0.9:
            return 1, self.random.choice((1, 1, 1, 2, 4))
        return min(most, 2 ** self.random.choices(range(9), (30, 22, 16, 12, 8, 5, 4, 2, 1))[0]), 8

    def _length(self, size: int) -> int:
        hours = self.random.lognormvariate(-0.3 if size == 1 else 2.3, 1.2)
        return int(min(7 * DAY, max(60, hours * 3600)))

    def _run(self) -> None:
        nodes = len(self.names)
        free = list(range(nodes))
        ends: list[tuple[int, int, list[int]]] = []
        now, number = 0, 0
        outages = self._outages()
        while now < DAYS * DAY:
            now += max(1, int(self.random.expovariate(JOBS_A_DAY * nodes / DAY)))
            while ends and ends[0][0] <= now:
                free += heapq.heappop(ends)[2]
            size, gpus = self._size()
            if len(free) < max(size, 0.17 * nodes):
                continue
            at = self.random.randrange(len(free) - size + 1)
            mine = free[at : at + size]
            free[at : at + size] = []
            user = self.random.randrange(USERS)
            for start, end in self._tries(now, user, size, gpus, mine, outages):
                number += 1
                until = self._try(number, start, end, user, size, gpus, mine, outages)
                last = until
            heapq.heappush(ends, (last + self.random.randrange(5, 300), number, mine))
        self.jobs.sort(key=lambda job: job.end)

    def _outages(self) -> list[tuple[int, frozenset[int]]]:
        everywhere = frozenset(range(len(self.names)))
        first = self.random.randrange(len(self.names) - 20)
        times = sorted(self.random.randrange(DAYS * DAY) for _ in range(3))
        return [(times[0], everywhere), (times[1], frozenset(range(first, first + 20))), (times[2], everywhere)]

    def _tries(
        self, now: int, user: int, size: int, gpus: int, mine: Sequence[int], outages: object
    ) -> Iterator[tuple[int, int]]:
        """One run, or a crash loop on the same nodes: two in a hundred jobs fail again and again within minutes."""
        if self.random.random() < 0.02:
            for _ in range(self.random.randrange(5, 20)):
                yield now, -1
                now += 120
            return
        yield now, now + self._length(size)

    def _try(
        self,
        job: int,
        start: int,
        end: int,
        user: int,
        size: int,
        gpus: int,
        mine: list[int],
        outages: list[tuple[int, frozenset[int]]],
    ) -> int:
        chance = self.random.random
        if end < 0:
            end = start + 60
            self._keep(job, start, end, user, mine, "FAILED", 1 if chance() < 0.6 else 139)
            self._tell_own(job, end, mine)
            return end
        when, culprit = self._breaks(start, end, size, gpus, mine)
        hit = next(
            (
                at
                for at, whom in outages
                if start < at < min(end, when or end)
                and (len(whom) == 20 or chance() < 0.33)
                and not whom.isdisjoint(mine)
            ),
            None,
        )
        if hit is not None:
            end = hit + self.random.randrange(45)
            self._keep(job, start, end, user, mine, "FAILED", 1)
            if chance() < 0.3:
                self.told[job] = Told(job, end, "collective_timeout_unknown", OF_NOBODY, "low")
            return end
        if when is not None:
            self._break(job, start, when, user, mine, culprit)
            return when
        if chance() < self.own[user]:
            end = start + int((end - start) * chance() ** 2)
            self._keep(job, start, end, user, mine, "FAILED", 1 if chance() < 0.8 else 139)
            self._tell_own(job, end, mine)
            return end
        self._keep(job, start, end, user, mine, "COMPLETED" if chance() < 0.9 else "CANCELLED", 0)
        return end

    def _breaks(self, start: int, end: int, size: int, gpus: int, mine: list[int]) -> tuple[int | None, int]:
        """When one of the nodes ends the job, and which."""
        first, who = None, -1
        days = (end - start) / DAY
        if self.random.random() < 1 - (1 - HEALTHY) ** (days * size):
            first, who = start + int(self.random.random() * (end - start)), self.random.choice(mine)
        for node in mine:
            kind = self.lemons.get(node)
            if kind is None or (kind == "large" and size < LARGE):
                continue
            if kind == "one GPU" and gpus < 8 and self.random.random() > gpus / 8:
                continue
            at = start + int(self.random.expovariate(self.rate[node]) * DAY)
            if at < (first or end):
                first, who = at, node
        return first, who

    def _break(self, job: int, start: int, end: int, user: int, mine: list[int], culprit: int) -> None:
        hang = self.lemons.get(culprit) == "hangs"
        luck = self.random.random()
        state = "CANCELLED" if hang else "NODE_FAIL" if self.random.random() < 0.2 else "FAILED"
        if state == "NODE_FAIL":
            self.outs[culprit] += 1
        xid = not hang and self.random.random() < 0.6
        if xid:
            self.xids[culprit] += 1
        self._keep(job, start, end, user, mine, state, 0 if hang else 1)
        name, cause = self.names[culprit], "collective_timeout_unknown" if hang else "gpu_fell_off_bus"
        if state == "NODE_FAIL":  # Slurm has an event of the node that went down
            self.downs.setdefault(name, []).append(end)
        other = self.names[self.random.choice(mine)]
        for share, blame, confidence, host in (
            (0.60, OF_NODE, "high", name), (0.06, OF_NODE, "medium", name), (0.01, OF_NODE, "high", other),
            (0.04, OF_NODE, "medium", other), (0.20, OF_NOBODY, "low", ""),
        ):  # fmt: skip
            if (luck := luck - share) < 0:
                self.told[job] = Told(job, end, cause, blame, confidence, host)
                break
        told = self.told.get(job)
        if xid and (told is None or told.confidence != "high") and self.random.random() < 0.9:
            self.told[job] = Told(job, end, "xid-79", OF_NODE, "high", name)

    def _tell_own(self, job: int, end: int, mine: list[int]) -> None:
        luck = self.random.random()
        if luck < 0.7:
            self.told[job] = Told(job, end, "app_error", OF_JOB, "high")
        elif luck < 0.71:
            self.told[job] = Told(
                job, end, "gpu_ecc", OF_NODE, "high" if luck < 0.703 else "medium", self.names[self.random.choice(mine)]
            )

    def _keep(self, job: int, start: int, end: int, user: int, mine: list[int], state: str, code: int) -> None:
        nodes = tuple(self.names[node] for node in mine)
        self.jobs.append(Job(job, state, nodes, start, max(end, start + 1), f"u{user}", "p5", code))

    # verdicts

    def ours(self) -> Book:
        ledger = Ledger(lambda job: self.told.get(job.id), self.downs)
        for job in self.jobs:
            if job.end < DAYS * DAY:
                ledger.add(job)
        return ledger.close()

    def counting(self) -> set[str]:
        counts: Counter[str] = Counter(dict.fromkeys(self.names, 0))
        for job in self.jobs:
            if job.state in ("FAILED", "NODE_FAIL"):
                counts.update(job.nodes)
        mean, spread = statistics.mean(counts.values()), statistics.pstdev(counts.values())
        return {name for name, count in counts.items() if count > mean + 3 * spread}

    def paper(self) -> set[str]:
        many: Counter[str] = Counter()
        single: Counter[str] = Counter()
        runs: Counter[str] = Counter()
        for job in self.jobs:
            told = self.told.get(job.id)
            if len(job.nodes) == 1:
                runs[job.nodes[0]] += 1
            if told and told.blame == OF_NODE and told.host and job.state != "COMPLETED":
                (many if len(job.nodes) > 1 else single)[told.host] += 1
        by_name = {self.names[node]: count for node, count in self.xids.items()}
        outs = {self.names[node]: count for node, count in self.outs.items()}
        rate = {name: single[name] / max(1, runs[name]) for name in self.names}
        hits: Counter[str] = Counter()
        for signal in (many, single, by_name, outs, rate):
            values = sorted((signal.get(name, 0) for name in self.names), reverse=True)
            cut = values[max(1, round(SHARE * len(self.names))) - 1]
            hits.update(name for name in self.names if signal.get(name, 0) >= cut and signal.get(name, 0) > 0)
        return {name for name, count in hits.items() if count >= 2}


def score(found: set[str], real: set[str], total: Counter[str], name: str) -> None:
    total[f"{name} right"] += len(found & real)
    total[f"{name} wrong"] += len(found - real)
    total[f"{name} real"] += len(real)


def line(total: Counter[str], name: str) -> str:
    right, wrong, real = (total[f"{name} {what}"] for what in ("right", "wrong", "real"))
    precision = right / (right + wrong) if right + wrong else 1.0
    recall = right / real if real else 0.0
    return f"| {name:28} | {precision:9.3f} | {recall:6.3f} | {right:5} | {wrong:5} | {real:5} |"


def million(jobs: int = 1_000_000) -> None:
    """The whole command, with a program that prints a day's jobs as sacct does."""
    with tempfile.TemporaryDirectory() as folder:
        _write_days(Path(folder), jobs)
        words = ["history", "--root", f"{folder}/root", "--results", f"{folder}/results", "--policy", "/nonexistent"]
        code = "from hpslurm.cli import main; main()"
        began = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-c", code, *words, "--no-aws"], capture_output=True, text=True, check=True
        )
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        print(done.stdout.splitlines()[0])
        cpu, peak = used.ru_utime + used.ru_stime, used.ru_maxrss / 1024
        print(f"{time.monotonic() - began:.0f} s, {cpu:.0f} s of a core, {peak:.0f} MiB at most")


def _write_days(folder: Path, jobs: int) -> None:
    """28 days of 2,048 nodes and 150 users, at the times that the command will ask for."""
    (folder / "root/usr/bin").mkdir(parents=True)
    (folder / "results").mkdir()
    chance, number = random.Random(1), 0
    today = int(time.time()) // DAY * DAY
    for day in range(today - (DAYS - 1) * DAY, today + DAY, DAY):
        rows = []
        for _ in range(jobs // DAYS):
            number += 1
            size = 1 if chance.random() < 0.9 else 2 ** chance.randrange(1, 7)
            first = chance.randrange(2048 - size)
            nodes = f"ip-10-1-0-{first}" if size == 1 else f"ip-10-1-0-[{first}-{first + size - 1}]"
            state = chance.choice(("COMPLETED",) * 13 + ("FAILED",) * 4 + ("CANCELLED by 1000", "TIMEOUT"))
            end = min(day + chance.randrange(DAY), int(time.time()) - 1)
            times = [time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(when)) for when in (end - 7200, end)]
            rows.append(SACCT_MARK.join((str(number), state, "0:0", *times, f"u{chance.randrange(150)}", "p5", nodes)))
        (folder / time.strftime("%Y-%m-%d", time.gmtime(day))).write_text("\n".join(rows) + "\n")
    find = "for word; do case $word in --starttime=*) day=${word#*=};; esac; done"
    script = folder / "root/usr/bin/sacct"
    script.write_text(f'#!/bin/sh\n{find}\ntest -e "{folder}/${{day%T*}}" || exit 0\nexec cat "{folder}/${{day%T*}}"\n')
    script.chmod(0o755)


def main(words: Sequence[str]) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--million", action="store_true")
    parser.add_argument("--nodes", type=int, default=256)
    parser.add_argument("--seeds", type=int, nargs=2, default=(0, 20))
    asked = parser.parse_args(words)
    if asked.million:
        million()
        return
    total: Counter[str] = Counter()
    clean = jobs = 0
    began, spent = time.monotonic(), 0.0
    for seed in range(*asked.seeds):
        month = Month(asked.nodes, seed)
        jobs += len(month.jobs)
        real = {month.names[node] for node in month.lemons}
        start = time.monotonic()
        book = month.ours()
        spent += time.monotonic() - start
        suspects = {one.node for one in book.verdicts if one.word == SUSPECT}
        score(suspects, real, total, "history: suspects")
        score({one.node for one in book.verdicts if one.word in (SUSPECT, WATCH)}, real, total, "history: and watched")
        for kind in KINDS:
            these = {month.names[node] for node, one in month.lemons.items() if one == kind}
            score(suspects & these, these, total, kind)
        score(month.counting(), real, total, "failed jobs counted")
        score(month.paper(), real, total, "signals of the paper")
        clean += not Month(asked.nodes, seed + 1000, lemons=False).ours().suspects
    seeds = len(range(*asked.seeds))
    print(
        f"{asked.nodes} nodes, {DAYS} days, seeds {asked.seeds[0]} to {asked.seeds[1] - 1}, "
        f"{jobs // seeds:,} jobs a month, judged in {spent / seeds:.1f} s each, {time.monotonic() - began:.0f} s in all"
    )
    print("|                              | precision | recall | right | wrong |    of |")
    for name in ("history: suspects", "history: and watched", "failed jobs counted", "signals of the paper"):
        print(line(total, name))
    for kind in KINDS:
        print(f"    of those that fail {kind:8} found: {total[f'{kind} right']} of {total[f'{kind} real']}")
    print(f"without such nodes: nobody accused in {clean} of {seeds} months")


if __name__ == "__main__":
    main(sys.argv[1:])
