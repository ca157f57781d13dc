"""Nodes that keep failing: what a month of jobs, records and events tells of each, in one look.

Asks every source once, each of which may be missing and is then named: Slurm's accounting and its events of nodes,
the records and diagnoses of the results folder, HyperPod's events and its agent's lines. The book-keeping and the
statistics are in the modules beside it, and are pure.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from hpslurm.cluster.history_jobs import OF_JOB, OF_NODE, SURE, Job, Told
from hpslurm.cluster.history_ledger import Book, Ledger
from hpslurm.cluster.history_machines import Machines, name_of
from hpslurm.cluster.history_stats import USUAL, Verdict
from hpslurm.core import probe, records
from hpslurm.core.finding import P2, Finding
from hpslurm.core.probe import UNKNOWN, Result
from hpslurm.core.records import Record
from hpslurm.core.text import clean, whole
from hpslurm.core.values import dataclass, replace
from hpslurm.job import cause, gpu_history, report
from hpslurm.scan import diagnoses, joblog
from hpslurm.sources import sacct, slurm
from hpslurm.sources.host import Host

HEAD = 4096  # bytes of a record that hold its first line
MOST_RECORDS = 200_000  # epilogs whose first line is read
MOST_JUDGED = 5_000  # failed jobs without a kept diagnosis whose records are read and judged now
SECONDS = 25.0  # for what Slurm is asked of now
DOWN = "DOWN"
# Findings about the hardware of a node beside XIDs: those that follow a GPU, and EFA.
HARDWARE = frozenset(rule for group in gpu_history.SAME for rule in group) | {"efa-missing"}
STARTED = "UNK"  # Slurm's note when slurmctld itself began


@dataclass(frozen=True)
class Asked:
    """What is wanted. Times are seconds since the epoch."""

    since: float
    now: float
    partition: str = ""
    user: str = ""


@dataclass(frozen=True)
class Trace:
    """Something that was seen of a machine."""

    time: float
    node: str  # the machine
    source: str
    text: str
    gpu: str = ""  # a UUID
    rule: str = ""  # of a finding


@dataclass(frozen=True)
class History:
    """What it all came to. ``traces`` are by machine; ``missing`` says what was not seen."""

    asked: Asked
    book: Book
    machines: Machines
    traces: Mapping[str, tuple[Trace, ...]]
    sources: tuple[str, ...]
    missing: tuple[Result, ...]
    listed: frozenset[str] = frozenset()  # nodes that Slurm has now; empty where it did not tell

    @property
    def worth_telling(self) -> list[Verdict]:
        return [one for one in self.book.verdicts if one.word != USUAL]

    @property
    def suspects(self) -> list[Verdict]:
        """Those that are still there: a machine that was replaced or removed is nobody's worry now."""
        return [one for one in self.book.suspects if self.is_there(one.node)]

    def is_there(self, machine: str) -> bool:
        name = name_of(machine)
        return self.machines.present(name) == machine and (not self.listed or name in self.listed)

    def gpu(self, machine: str) -> str:
        """The GPU that most of its traces name, if it is always the same one."""
        named = Counter(trace.gpu for trace in self.traces.get(machine, ()) if trace.gpu)
        most = named.most_common(1)
        return most[0][0] if most and most[0][1] >= 2 and most[0][1] >= 0.8 * sum(named.values()) else ""

    @property
    def followed(self) -> list[Followed]:
        """GPUs that had hardware faults on more than one machine, the one with most first."""
        faults: dict[str, list[Trace]] = {}
        for traces in self.traces.values():
            for trace in traces:
                if trace.gpu and _is_hardware(trace.rule, ""):
                    faults.setdefault(trace.gpu, []).append(trace)
        gpus = [Followed(gpu, tuple(sorted(of, key=lambda one: one.time))) for gpu, of in faults.items()]
        moved = [gpu for gpu in gpus if len(gpu.machines) > 1]
        return sorted(moved, key=lambda one: (-len(one.faults), one.gpu))


@dataclass(frozen=True)
class Followed:
    """Hardware faults of one GPU on several machines: they follow the GPU, whatever it is put into."""

    gpu: str  # its UUID
    faults: tuple[Trace, ...]  # in order of time

    @property
    def machines(self) -> list[str]:
        """In the order of its first fault on each."""
        return list(dict.fromkeys(trace.node for trace in self.faults))

    @property
    def rules(self) -> list[str]:
        return sorted({trace.rule for trace in self.faults})


@dataclass(frozen=True)
class Cloud:
    """What HyperPod told: node to launch time and id of the present instance, and traces by instance id."""

    launched: Mapping[str, tuple[float | None, str]]
    traces: tuple[Trace, ...] = ()
    missing: tuple[Result, ...] = ()


NO_CLOUD = Cloud({})


def look(
    asked: Asked,
    folders: Sequence[str],
    root: str = "/",
    *,
    ask_slurm: bool,
    ask_aws: Callable[[], Cloud] | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> History:
    """Raises Unknown where nothing at all could be read."""
    missing: list[Result] = []
    cloud = ask_aws() if ask_aws else NO_CLOUD
    missing += cloud.missing
    say("reading the records of the results folder")
    kept = _Kept(folders, asked)
    missing += [Result("records", UNKNOWN, clean(trouble)) for trouble in kept.troubles]
    machines = Machines(kept.seen(), cloud.launched, asked.since)
    cluster, listed = _slurm_now(root) if ask_slurm else ("", frozenset[str]())
    events = _events(root, asked, cluster, missing) if ask_slurm else []
    downs: dict[str, list[int]] = {}
    for event in events:
        if event.state.startswith(DOWN):
            downs.setdefault(event.node, []).append(event.start)
    ledger = Ledger(kept.tell, downs, machines.machine)
    source = _fill(ledger, asked, kept, root, ask_slurm, missing, say)
    if not source:
        raise probe.Unknown(
            "; ".join(result.note for result in missing) or "no accounting was asked, and no record is there"
        )
    say(f"judging {ledger.count:,} jobs")
    book = ledger.close()
    traces = _by_machine([*_of_events(events, machines), *kept.traces(machines), *_of_cloud(cloud, machines)])
    sources = tuple(filter(None, (source, "sacctmgr" if events else "", kept.said, "HyperPod" if cloud.traces else "")))
    return History(asked, book, machines, traces, sources, tuple(missing), listed)


def _fill(
    ledger: Ledger,
    asked: Asked,
    kept: _Kept,
    root: str,
    ask_slurm: bool,
    missing: list[Result],
    say: Callable[[str], None],
) -> str:
    """Put every job into the ledger; which source they came from."""
    if ask_slurm:
        try:
            for job in sacct.ended_jobs(root, asked.since, asked.now, say):
                if asked.partition in ("", job.partition) and asked.user in ("", job.user):
                    ledger.add(
                        Job(
                            job.id,
                            job.state,
                            job.nodes,
                            job.start,
                            job.end,
                            job.user,
                            job.partition,
                            job.code,
                            job.signal,
                        )
                    )
            return "sacct"
        except Exception as error:
            missing.append(Result("sacct", UNKNOWN, probe.reason(error)))
            if ledger.count:
                return "part of sacct"
    count = 0
    for recorded in kept.jobs():
        ledger.add(recorded)
        count += 1
    return "the epilogs' records" if count else ""


def _slurm_now(root: str) -> tuple[str, frozenset[str]]:
    """The cluster's name, since slurmdbd may keep several, and its nodes; empty where Slurm does not tell."""
    host = Host(root, seconds=SECONDS)
    try:
        name = slurm.config(host).get("clustername", ("",))[0]
        return name, frozenset(node.name for node in slurm.nodes(host).nodes)
    except Exception:  # then nothing is filtered by it
        return "", frozenset()
    finally:
        host.end_all()


def _events(root: str, asked: Asked, cluster: str, missing: list[Result]) -> list[sacct.Event]:
    try:
        return sacct.events(root, asked.since, cluster)
    except Exception as error:
        missing.append(Result("sacctmgr", UNKNOWN, probe.reason(error)))
        return []


# records and diagnoses


class _Kept:
    """The results folders: who ran where, and what is known of each job that failed."""

    def __init__(self, folders: Sequence[str], asked: Asked) -> None:
        self.folders = folders
        self.asked = asked
        self.index, self.troubles = diagnoses.read(folders, asked.since)
        self.runs: dict[int, dict[str, dict[str, object]]] = {}
        self.places: dict[int, list[str]] = {}
        self.read: dict[int, list[Record]] = {}
        for folder in folders:
            self._list(folder)

    @property
    def said(self) -> str:
        return f"{len(self.runs):,} jobs' records" if self.runs else ""

    def _list(self, folder: str) -> None:
        """The first line of each epilog of a job folder that is new enough."""
        try:
            with os.scandir(f"{folder}/jobs") as entries:
                jobs = [
                    (entry.stat(follow_symlinks=False).st_mtime, entry.name)
                    for entry in entries
                    if entry.name.isdecimal()
                ]
        except FileNotFoundError:
            return
        except OSError as error:
            self.troubles.append(f"{folder}/jobs: {error.strerror}")
            return
        count = 0
        for changed, name in sorted(jobs, reverse=True):
            if changed < self.asked.since:
                break
            if count > MOST_RECORDS:
                self.troubles.append(f"{folder}/jobs: only the newest {MOST_RECORDS:,} records were read")
                break
            self.places.setdefault(int(name), []).append(f"{folder}/jobs/{name}")
            count += self._runs(int(name), f"{folder}/jobs/{name}")

    def _runs(self, job: int, folder: str) -> int:
        count = 0
        try:
            files = sorted(name for name in os.listdir(folder) if name.endswith(".epilog.jsonl"))
        except OSError as error:
            self.troubles.append(f"{folder}: {error.strerror}")
            return 0
        for name in files:
            node = name.removesuffix(".epilog.jsonl")
            try:
                run = records.read(f"{folder}/{name}", node, report.EPILOG, HEAD).run
            except (OSError, ValueError) as error:
                self.troubles.append(f"{folder}/{name}: {probe.reason(error)}")
                continue
            if self.asked.since <= float(run.get("time") or 0) <= self.asked.now:
                self.runs.setdefault(job, {}).setdefault(node, run)
                count += 1
        return count

    def seen(self) -> Iterator[tuple[str, float, str]]:
        for runs in self.runs.values():
            for node, run in runs.items():
                yield node, float(str(run["time"])), str(run.get("instance") or "")
        for line in self._of_epilogs():
            yield line.node, line.time, line.instance

    def _of_epilogs(self) -> Iterator[diagnoses.Kept]:
        """Lines of the index that name the node which wrote them."""
        return (line for of_job in self.index.values() for line in of_job if line.node)

    def jobs(self) -> Iterator[Job]:
        """Where no accounting is: jobs as their epilogs saw them end. Cancelled ones and time-outs look well there."""
        if self.asked.partition or self.asked.user:  # a record names neither
            return
        for number, runs in self.runs.items():
            times = [float(str(run["time"])) for run in runs.values()]
            codes = [str(run.get("exit_code") or "0:0") for run in runs.values()]
            worst = max(codes, key=lambda code: code != "0:0")
            code, _, signal = worst.partition(":")
            state = "COMPLETED" if worst == "0:0" else "FAILED"
            began = self._began(number)
            yield Job(
                number, state, tuple(sorted(runs)), int(began or min(times)), int(max(times)), "", "",
                whole(code) or 0, whole(signal) or 0,
            )  # fmt: skip

    def _began(self, job: int) -> float:
        for place in self.places.get(job, ()):
            try:
                for name in os.listdir(place):
                    if name.endswith(".prolog.jsonl"):
                        node = name.removesuffix(".prolog.jsonl")
                        run = records.read(f"{place}/{name}", node, report.PROLOG, HEAD).run
                        return float(run.get("time") or 0)
            except (OSError, ValueError):
                continue
        return 0.0

    def tell(self, job: Job) -> Told | None:
        """What is known of a job that failed: as it was kept, else from its records."""
        if kept := diagnoses.of_run(self.index.get(job.id, ()), job.end):
            return _told_of(kept, job)
        if job.id not in self.runs or len(self.read) >= MOST_JUDGED:
            return None
        of_job = self.records_of(job.id)
        if not of_job:
            return None
        seen = report.view(of_job, job.nodes)
        if named_by := _hardware_of_one(of_job, job):
            return named_by
        # what a node had before is no proof of what ended the job: else it would answer for each that is cancelled
        new = [finding for finding in seen.findings if not finding.muted and _came_during(finding)]
        told = cause.judged(None, joblog.Found(), of_job, new).diagnosis
        named = told.culprit
        return _told(
            diagnoses.Kept(
                job.id, job.end, told.cause, told.confidence, (named and named.host) or "", (named and named.gpu) or ""
            )
        )

    def records_of(self, job: int) -> list[Record]:
        if job not in self.read:
            self.read[job] = [record for place in self.places.get(job, ()) for record in records.read_folder(place)[0]]
        return self.read[job]

    def traces(self, machines: Machines) -> Iterator[Trace]:
        """What epilogs and records of failed jobs show of hardware, and reboots between any two records."""
        for line in self._of_epilogs():
            machine = machines.machine(line.node, int(line.time))
            for seen in line.seen:
                yield Trace(line.time, machine, "epilog", f"{seen.rule}: {seen.detail}", seen.gpu, seen.rule)
        for of_job in self.read.values():
            for record in of_job:
                when = float(record.run.get("time") or 0)
                if record.hook == report.EPILOG:
                    for finding in record.findings:
                        yield from _of_finding(finding, machines.machine(record.node, int(when)), when)
        boots: dict[str, dict[str, float]] = {}
        for runs in self.runs.values():
            for node, run in runs.items():
                if run.get("boot"):
                    when = float(str(run["time"]))
                    first = boots.setdefault(node, {})
                    first[str(run["boot"])] = min(when, first.get(str(run["boot"]), when))
        for node, first in boots.items():
            for when in sorted(first.values())[1:]:
                yield Trace(when, machines.machine(node, int(when)), "records", "rebooted since the job before")


def _told_of(kept: Sequence[diagnoses.Kept], job: Job) -> Told | None:
    """What the index holds of one run: hardware that one node alone lost during it, else the best diagnosis."""
    new = [(line.node, seen) for line in kept for seen in line.seen if _is_hardware(seen.rule, seen.cause)]
    return _named_by(new, job) or next(filter(None, map(_told, kept)), None)


def _came_during(finding: Finding) -> bool:
    return any(evidence.text == report.DURING_THE_JOB for evidence in finding.evidence)


def _hardware_of_one(of_job: Sequence[Record], job: Job) -> Told | None:
    """The same of the records. Without the record of its prolog nobody knows whether a fault came during the job."""
    before = {record.node: record for record in of_job if record.hook == report.PROLOG and record.complete}
    known = {(node, finding.rule.id) for node, record in before.items() for finding in record.findings}
    new = [
        (record.node, diagnoses.seen_of(finding))
        for record in of_job
        if record.hook == report.EPILOG and record.node in before
        for finding in record.findings
        if finding.rule.priority != P2 and not finding.muted and (record.node, finding.rule.id) not in known
    ]
    return _named_by([(node, seen) for node, seen in new if _is_hardware(seen.rule, seen.cause)], job)


def _named_by(new: Sequence[tuple[str, diagnoses.Seen]], job: Job) -> Told | None:
    """Where one node alone has a hardware fault that its prolog had not seen, that is the one."""
    if len({node for node, _ in new}) != 1:
        return None
    node, seen = new[0]
    return Told(job.id, job.end, seen.rule, OF_NODE, SURE, node, seen.gpu)


def _is_hardware(rule: str, cause: str) -> bool:
    known = rule in HARDWARE or rule.startswith(("xid-", "sxid-"))
    return known and not (cause and diagnoses.blame(cause) == OF_JOB)  # XID 31 is the program's fault


def _of_finding(finding: Finding, machine: str, when: float) -> Iterator[Trace]:
    if finding.rule.priority == P2 or finding.muted:
        return
    text = f"{finding.rule.id}: {clean(finding.detail, 200)}"
    yield Trace(when, machine, "record", text, diagnoses.gpu_of(finding), finding.rule.id)


def _told(kept: diagnoses.Kept) -> Told | None:
    """None where nothing was found out: then the job counts as one that nobody looked at."""
    if kept.cause in diagnoses.NOTHING:
        return None
    return Told(kept.job, kept.time, kept.cause, diagnoses.blame(kept.cause), kept.confidence, kept.host, kept.gpu)


# traces


def _of_events(events: Iterable[sacct.Event], machines: Machines) -> Iterator[Trace]:
    for event in events:
        if event.state == STARTED:
            continue
        reason = f": {clean(event.reason, 200)}" if event.reason else ""
        until = f" until {stamp(event.end)}" if event.end else ""
        yield Trace(
            event.start,
            machines.machine(event.node, event.start),
            "sacctmgr",
            f"{clean(event.state, 40)}{until}{reason}",
        )


def _of_cloud(cloud: Cloud, machines: Machines) -> Iterator[Trace]:
    """By instance id, which HyperPod knows, to our word for the machine: those that are gone, too."""
    for trace in cloud.traces:
        if machine := machines.of_instance(trace.node):
            yield replace(trace, node=machine)


def _by_machine(traces: Iterable[Trace]) -> dict[str, tuple[Trace, ...]]:
    by_machine: dict[str, list[Trace]] = {}
    for trace in traces:
        by_machine.setdefault(trace.node, []).append(trace)
    return {node: tuple(sorted(of, key=lambda one: one.time)) for node, of in by_machine.items()}


def stamp(when: float | None) -> str:
    return time.strftime("%Y-%m-%dT%H:%M", time.localtime(when)) if when else "-"


def hardware(verdict: Verdict, history: History) -> Counter[str]:
    """The causes that its failures were put down to, with how often."""
    mine = set(verdict.counted)
    return Counter(one.why for one in history.book.failures if one.job in mine and verdict.node in one.nodes)
