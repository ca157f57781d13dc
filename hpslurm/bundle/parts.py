"""What goes into a bundle: every part for itself, so that one that fails takes no other along."""

from __future__ import annotations

import json
import os
import pwd
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

import click

from hpslurm.bundle import archive, case
from hpslurm.bundle.archive import KEPT, LOGS, RECORDS, SLURM, Part
from hpslurm.bundle.masking import Masker
from hpslurm.cluster import gather, guard, node_records, plans, view
from hpslurm.cluster.aws import checks, whom
from hpslurm.cluster.aws.events import EVENTS
from hpslurm.cluster.aws.hyperpod import INSTANCES
from hpslurm.cluster.aws.view import DESCRIBED, Need, View
from hpslurm.cluster.node_rows import node_rows
from hpslurm.core import nodeset, policy, probe, records
from hpslurm.core.finding import NOISE, P0, P1, ROOT, Finding
from hpslurm.core.policy import Policy
from hpslurm.core.probe import Result, Unknown
from hpslurm.core.records import Record
from hpslurm.core.text import clean
from hpslurm.core.values import asdict, dataclass, replace
from hpslurm.job import (
    cause,
    first_screen,
    hang,
    hang_facts,
    hang_gather,
    hang_told,
    hang_view,
    logs,
    report,
    report_view,
)
from hpslurm.job.hang_case import main_step
from hpslurm.job.nccl_env import SHOWN
from hpslurm.scan import joblog
from hpslurm.scan.collect import Collector
from hpslurm.setup import doctor, versions
from hpslurm.show import plan
from hpslurm.show.diagnosis import who
from hpslurm.show.render import as_wide_as
from hpslurm.sources import hyperpod, slurm
from hpslurm.sources.aws import CLUSTER_ARN
from hpslurm.sources.host import Host
from hpslurm.sources.slurm import SlurmJob

T = TypeVar("T")
HOURS = 2 * 3600  # seconds of the window where nothing says when it happened
SECONDS = 30.0  # for Slurm's programs, beyond those of diagnose
MOST_ERRORS = 500
WIDTH = 120  # columns of the reports
LONGEST_LINE = 8192  # characters of an error line
PEOPLE = range(1000, 60000)  # uids
# How NCCL says in a log which settings it took, and printenv in a job's output.
_SETTING = re.compile(
    r"\b(?P<name>(?:NCCL|OFI_NCCL|FI|TORCH)_[A-Z0-9_]+)(?: set (?:by environment |by user )?to |=)(?P<value>[^\s;,]+)"
)
SLURM_TEXTS = (
    ("slurm/config.txt", "scontrol_config", "scontrol show config"),
    ("slurm/nodes.txt", "scontrol_nodes", "scontrol show nodes"),
    ("slurm/sinfo.txt", "sinfo", "sinfo"),
    ("slurm/ping.txt", "scontrol_ping", "scontrol ping"),
)
ANSWERS: tuple[tuple[str, Need[Any], str], ...] = (
    ("cluster.json", DESCRIBED, "DescribeCluster"),
    ("instances.json", INSTANCES, "ListClusterNodes"),
    ("events.json", EVENTS, "ListClusterEvents"),
)


class WrongWindow(ValueError):
    """The window of time ends before it begins."""


@dataclass(frozen=True)
class Request:
    """The command line. ``since`` and ``until`` are seconds since the epoch, or None."""

    job: str = ""
    options: whom.Options = whom.Options()
    since: float | None = None
    until: float | None = None
    logs: tuple[str, ...] = ()
    results: str | None = None
    reports: tuple[str, ...] = ()
    policy: str = policy.PATH
    aws: bool = True
    slurm: bool = True
    root: str = "/"
    limit: int = 50 << 20
    hang: bool = False  # look at the running job, by a step on its nodes


@dataclass(frozen=True)
class Window:
    """When it happened, in seconds since the epoch; ``source`` says who told."""

    since: float
    until: float
    source: str

    def described(self) -> dict[str, Any]:
        return {"since": utc(self.since), "until": utc(self.until), "source": self.source}


@dataclass(frozen=True)
class Bundle:
    """``collected``: something of the cluster, the job or a log is in it, not only of this machine."""

    parts: tuple[Part, ...]
    missing: tuple[tuple[str, str], ...]
    window: Window
    masker: Masker
    collected: bool
    problems: tuple[str, ...] = ()  # of the policy


@dataclass(frozen=True)
class Machine:
    """What the machine where the bundle is made says about Slurm and HyperPod."""

    slurm_version: str = ""
    controllers: tuple[slurm.Controller, ...] = ()
    layout: hyperpod.Layout = hyperpod.Layout()


def utc(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


class _Parts:
    """Collects parts, and why others are missing."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.say = say
        self.parts: list[Part] = []
        self.missing: list[tuple[str, str]] = []

    def add(self, name: str, text: str, source: str, kind: str = KEPT, left_out: int = 0, note: str = "") -> None:
        self.parts.append(Part(name, text if text.endswith("\n") else text + "\n", source, kind, left_out, note))

    def miss(self, what: str, why: str) -> None:
        self.missing.append((what, clean(why)))

    def tried(self, what: str, make: Callable[[], T], otherwise: T) -> T:
        """What it makes; where it fails, why is kept and the bundle goes on."""
        self.say(what)
        try:
            return make()
        except Exception as error:
            self.miss(what, probe.reason(error))
            return otherwise

    def text(self, name: str, source: str, make: Callable[[], str], kind: str = KEPT) -> None:
        if text := self.tried(name, make, ""):
            self.add(name, text, source, kind)

    def report(self, name: str, source: str, make: Callable[[], Iterable[str]]) -> None:
        """Lines that people see, without colours, and as wide whatever terminal this was typed on."""

        def plain() -> str:
            with as_wide_as(WIDTH):
                return click.unstyle("\n".join(make()))

        self.text(name, source, plain)


def collect(request: Request, say: Callable[[str], None]) -> Bundle:
    """Everything that can be had. Raises WrongWindow."""
    parts = _Parts(say)
    rules = policy.load(request.policy)
    job_report = None
    if request.job:
        ask = partial(report.gather, rules, request.root, request.job, request.results, ask_slurm=request.slurm)
        job_report = parts.tried("report", ask, None)
    window = window_of(request, job_report)
    half, results = _diagnosed(request, rules, window, parts)
    job = job_report.job if job_report else None
    collector = Collector()
    read = _read_logs(request, job, collector, parts)
    ended = _how_it_ended(job_report, read, collector, parts)
    known = bool(job_report and (job_report.job or job_report.records))
    if job_report and known:
        _add_report(rules, job_report, ended, parts)
        if request.hang:
            _add_hang(job_report.job, parts)
    elif job_report:
        parts.miss(
            f"report-{job_report.id}",
            report.nothing_known(job_report.id, job_report.why, rules, request.results, job_report.troubles),
        )
    _add_logs(read, request.limit, parts)
    records_of_job = job_report.records if job_report else ()
    errors = list(error_lines(ended, read)) if ended else []
    if errors:
        parts.add("errors.txt", "\n".join(errors), "the logs, verbatim")
    elif read or records_of_job:
        parts.miss("errors.txt", "no line of trouble in the logs that were read")
    else:
        parts.miss("errors.txt", "no log was read: name the job's output and all ranks' logs (--log)")
    kept = [*records_of_job, *_others(half, job_report)]
    _add_records(request, rules, kept, job_report, parts)
    kept += _brought(request, parts)
    settings = environment(kept, read)
    if settings:
        parts.add("environment.txt", "\n".join(settings), "records, logs and this process")
    else:
        parts.miss(
            "environment.txt", "no record of hpslurm-check and no log says: srun hpslurm-check in the allocation"
        )
    machine = _of_this_machine(request, rules, kept, parts)
    parts.add("window.json", records.encode({"schema": 1, **window.described()}), window.source)
    summary = _case(request, half, results, job_report, ended, window, errors, settings, machine)
    parts.text("case.txt", "everything here", lambda: case.text(summary, parts.missing))
    masker = Masker(_people(half, job), [member.name for member in half.members.members] if half else ())
    say("masking")
    masked = list(_masked(parts.parts, masker))
    masked.append(Part("README.txt", case.readme(archive.masked(masked), [part.name for part in masked]), "hpslurm"))
    missing = tuple((masker.mask(what), masker.mask(why)) for what, why in parts.missing)
    return Bundle(
        tuple(masked), missing, window, masker, bool((half and half.readable) or known or read), rules.problems
    )


def _masked(parts: Sequence[Part], masker: Masker) -> Iterator[Part]:
    for part in parts:  # a name that one file shows as a user's is hidden in those before it, too
        masker.learn(part.text)
    for part in parts:
        text = masker.mask(part.text)
        counts = {rule: count for rule, count in masker.counts.items() if count}
        yield Part(masker.mask(part.name), text, masker.mask(part.source), part.kind, part.left_out,
                   masker.mask(part.note), counts)  # fmt: skip


# when


def window_of(request: Request, job_report: report.JobReport | None, now: float | None = None) -> Window:
    """The command line's, else the job's by Slurm, else by its nodes' records, else the last two hours."""
    now = time.time() if now is None else now
    since, until, source = now - HOURS, now, "the last 2 hours: nothing says when it happened"
    job = job_report.job if job_report else None
    times = [record.run["time"] for record in job_report.records if record.run.get("time")] if job_report else []
    if job and job.start_time and job.start_time <= now:
        over = job.end_time and job.start_time <= job.end_time and job_report and job_report.over
        since, until, source = (
            float(job.start_time),
            float(job.end_time) if over and job.end_time else now,
            "Slurm's record of the job",
        )
    elif times:
        since, until = min(times), max(times) if len(times) > 1 else now
        source = "the records of the job's nodes"
    if request.since is not None or request.until is not None:
        source = (
            "the command line"
            if request.since is not None and request.until is not None
            else f"the command line and {source}"
        )
        until = request.until if request.until is not None else until
        since = request.since if request.since is not None else min(since, until - HOURS)
    if since > until:
        raise WrongWindow(
            f"the window begins at {utc(since)} and ends before, at {utc(until)}; set --since and --until"
        )
    return Window(since, until, source)


# the cluster


def _diagnosed(
    request: Request, rules: Policy, window: Window, parts: _Parts
) -> tuple[gather.Half | None, list[Result]]:
    host = Host(request.root, seconds=gather.SECONDS)
    named = request.options
    options = whom.Options(named.cluster, named.region, named.profile, max(60.0, time.time() - window.since))
    wanted = request.aws and whom.means_aws(options, host)
    ask = partial(_ask_aws, options) if wanted else None
    places = [f"{request.results}/nodes"] if request.results else node_records.folders_of(rules, request.root)
    places += request.reports
    try:
        half = parts.tried(
            "findings", lambda: gather.diagnose(host, rules, places, ask_slurm=request.slurm, ask_aws=ask), None
        )
    finally:
        host.end_all()
    if half is None:
        return None, []
    scene = guard.of_half(half, rules)
    results = guard.guarded(half.results, scene, rules)
    planned = plans.plans(half.results, scene, rules)
    made = plan.with_plans(records.lines(rules, os.environ, "diagnose", results), planned)
    parts.add("findings.jsonl", "\n".join(map(records.encode, made)), "hpslurm diagnose --json")
    parts.report("findings.txt", "hpslurm diagnose", lambda: view.text(results, half.members))
    if half.members.members:
        parts.text(
            "nodes.tsv", "Slurm, HyperPod and records", lambda: case.nodes_table(node_rows(results, half.members))
        )
    _add_aws(half.view, request, parts)
    return half, results


def _ask_aws(options: whom.Options, layout: hyperpod.Layout) -> View:
    return checks.collect(options, layout)


def _add_aws(view: View | None, request: Request, parts: _Parts) -> None:
    if view is None:
        parts.miss(
            "cluster.json",
            "AWS was not asked: pass --cluster and --region" if request.aws else "AWS was not asked (--no-aws)",
        )
        return
    for name, need, source in ANSWERS:
        value, why = view.maybe(need, None)
        if value is None:
            parts.miss(name, str(view.trouble or why))
            continue
        if need is DESCRIBED:
            value = {field: answer for field, answer in value.items() if field != "ResponseMetadata"}
        else:
            value = {need.name: [asdict(item) for item in value[0]], "not_all": value[1]}
        parts.add(name, json.dumps(value, indent=1, ensure_ascii=False, default=str), source)


# the job and its logs


def _add_hang(job: SlurmJob | None, parts: _Parts) -> None:
    """What a job that runs does now: the verdict for people, and the sample to judge it again."""
    nodes = report.nodes_of(job)
    if job is None or job.state != "RUNNING" or not nodes:
        parts.miss("hang.txt", "the job does not run: hpslurm hang looks at one that does")
        return
    sample = parts.tried("hang", lambda: main_step(hang_gather.look(job, nodes)), None)
    if sample is None:
        return
    verdict = hang.judge(sample, hang_told.of(sample, job))
    source = f"hpslurm hang {job.id}"
    parts.report("hang.txt", source, lambda: hang_view.text(sample, verdict, stacks=True, verbose=True))
    parts.add("hang.jsonl", "\n".join(map(records.encode, hang_facts.lines_of(sample))), f"{source} --save")


def _add_report(rules: Policy, job_report: report.JobReport, ended: cause.Cause | None, parts: _Parts) -> None:
    name = f"report-{job_report.id}"
    outcome, planned = report_view.results_of(job_report, ended), first_screen.plans(job_report, ended).all
    made = report_view.json_lines(rules, job_report.id, outcome, ended, planned)
    parts.add(f"{name}.jsonl", "\n".join(map(records.encode, made)), f"hpslurm report {job_report.id} --json")
    parts.report(f"{name}.txt", f"hpslurm report {job_report.id}", lambda: report_view.text(job_report, ended))


def _read_logs(request: Request, job: SlurmJob | None, collector: Collector, parts: _Parts) -> list[logs.Log]:
    read: list[logs.Log] = []
    about = cause.about_output(job) if job else None
    own = [path for path in joblog.paths(about) if "%" not in path] if about else []
    named = logs.files(request.logs)
    for paths, whose in (([path for path in own if path not in named], about), (named, None)):
        if paths:
            nothing: tuple[list[logs.Log], list[tuple[str, str]]] = ([], [])
            some, missing = parts.tried("logs", partial(logs.look, paths, whose, collector), nothing)
            read += some
            for path, why in missing:
                parts.miss(path, why)
    return read


def _how_it_ended(
    job_report: report.JobReport | None, read: Sequence[logs.Log], collector: Collector, parts: _Parts
) -> cause.Cause | None:
    """The cause by the job's records and all logs, where there are any."""
    if not job_report and not read:
        return None
    notes = tuple(log.note for log in read if log.note)
    output = joblog.Found(tuple(collector.result()), notes, tuple(log.path for log in read))
    job, kept, findings = (job_report.job, job_report.records, job_report.counted) if job_report else (None, (), [])
    return parts.tried("cause", lambda: cause.judged(job, output, kept, findings), None)


def _add_logs(read: Sequence[logs.Log], limit: int, parts: _Parts) -> None:
    given = logs.shares([len(log.taken.head) + len(log.taken.tail) for log in read], limit)
    for log, most, name in zip(read, given, _names(read).values(), strict=True):
        head, tail = log.taken.head, log.taken.tail
        not_read = max(0, log.taken.size - len(head) - len(tail))
        text, left_out = archive.shortened(log.text, most, not_read)
        if not_read and left_out == not_read:  # it was read from both ends, and all of that fits
            text = archive.joined(head.decode("utf-8", "replace"), tail.decode("utf-8", "replace"), not_read)
        parts.add(name, text, log.path, LOGS, left_out, log.note)


def _names(read: Sequence[logs.Log]) -> dict[str, str]:
    """Path to a name in the bundle: the file's own, with a number where two are alike."""
    given: dict[str, str] = {}
    for log in read:
        name = re.sub(r"[^A-Za-z0-9._\[\]=+-]", "_", os.path.basename(log.path)).lstrip(".-") or "log"
        number, free = 1, name
        while f"logs/{free}" in given.values():
            number += 1
            free = f"{number}-{name}"
        given[log.path] = f"logs/{free}"
    return given


def error_lines(ended: cause.Cause, read: Sequence[logs.Log]) -> Iterator[str]:
    """Lines of trouble, the decisive event first, each as it stands in its file."""
    files, names = {log.path: log for log in read}, _names(read)
    events = [event for event in ended.events if event.role != NOISE and event.line]
    decisive = ended.diagnosis.decisive
    order = sorted(
        events, key=lambda event: (event != decisive, event.role != ROOT, -event.weight, event.file, event.line)
    )
    seen: set[tuple[str, int]] = set()
    for event in order:
        if (event.file, event.line) in seen or len(seen) >= MOST_ERRORS:
            continue
        seen.add((event.file, event.line))
        log = files.get(event.file)
        line = log.line(event.line) if log else ""
        note = "" if line else " (as the epilog recorded it)" if not log else " (as scan read it)"
        again = f" (the first of {event.count} alike)" if event.count > 1 else ""
        yield f"{names.get(event.file, event.file)}:{event.line}:{note}{again} {(line or event.text)[:LONGEST_LINE]}"


def _others(half: gather.Half | None, job_report: report.JobReport | None) -> list[Record]:
    """The newest record of each node that is not among the job's."""
    have = {(record.node, record.hook) for record in job_report.records} if job_report else set()
    newest = [member.record for member in half.members.members if member.record] if half else []
    return [record for record in newest if (record.node, record.hook) not in have]


def _brought(request: Request, parts: _Parts) -> list[Record]:
    """Records of folders that were named, as hpslurm-check --json leaves them."""
    kept: list[Record] = []
    for folder in request.reports:
        some, unreadable = records.read_folder(folder, named=False)
        kept += (replace(record, node=node_records.node_of(record)) for record in some)
        for refused in unreadable:
            parts.miss(f"records/{os.path.basename(folder)}", str(refused))
        for record in some:
            file = next(
                name for name in sorted(os.listdir(folder)) if name.startswith(f"{record.node}.{record.hook}.jsonl")
            )
            path = f"{folder}/{file}"
            parts.text(f"records/reports/{file}", path, partial(records.read_text, path), RECORDS)
    return kept


def _add_records(
    request: Request, rules: Policy, kept: Sequence[Record], job_report: report.JobReport | None, parts: _Parts
) -> None:
    own = {id(record) for record in job_report.records} if job_report else set()
    for record in kept:
        below = (
            f"jobs/{record.run.get('job') or re.split('[_+]', job_report.id)[0]}"
            if job_report and id(record) in own
            else "nodes"
        )
        if below == "nodes" and job_report and not record.findings:
            continue  # another node, and all is well with it
        file = f"{below}/{record.node}.{record.hook}.jsonl"
        for folder in report.folders(rules, request.results):
            path = f"{folder}/{file}"
            if os.path.lexists(path):
                parts.text(f"records/{file}", path, partial(records.read_text, path), RECORDS)
                break


def environment(kept: Iterable[Record], read: Iterable[logs.Log]) -> list[str]:
    """``NCCL_*``, ``OFI_NCCL_*``, ``FI_*`` and ``TORCH_*``, by where they were seen."""
    where: dict[tuple[str, str], list[str]] = {}
    nodes: dict[tuple[str, str], list[str]] = {}
    for record in kept:
        for result in record.results:
            settings = (result.facts or {}).get("settings") if result.probe == "nccl_env" else None
            for name, value in settings.items() if isinstance(settings, dict) else ():
                nodes.setdefault((str(name), str(value)), []).append(record.node)
    for log in read:
        for match in _SETTING.finditer(log.text):
            value = match["value"].rstrip(".")
            files = where.setdefault((match["name"], value), [])
            files += [os.path.basename(log.path)] if os.path.basename(log.path) not in files else []
    for name, value in os.environ.items():
        if name.startswith(SHOWN):
            where.setdefault((name, value), []).append("the environment of hpslurm bundle")
    for pair, some in nodes.items():
        where.setdefault(pair, []).append(f"records of {nodeset.fold(some)}")
    return [
        f"{name}={clean(value)}    # {', '.join(files[:4])}{' …' if len(files) > 4 else ''}"
        for (name, value), files in sorted(where.items())
        if name.startswith(SHOWN)
    ]


# this machine


def _of_this_machine(request: Request, rules: Policy, kept: Sequence[Record], parts: _Parts) -> Machine:
    host = Host(request.root, seconds=SECONDS)
    version, layout = "", hyperpod.Layout()
    controllers: tuple[slurm.Controller, ...] = ()
    if request.slurm:
        version = parts.tried("Slurm's version", lambda: versions.slurm_version(host), "")
        controllers = parts.tried("slurm/", lambda: slurm.controllers(host), controllers)
        job = request.job
        texts = [*SLURM_TEXTS, *([("slurm/job.txt", "scontrol_job", f"scontrol show job {job}")] if job else [])]
        for name, program, source in texts if controllers else ():
            words = (job,) if program == "scontrol_job" else ()
            parts.text(name, source, partial(_program, host, program, source, *words), SLURM)
    try:
        layout = hyperpod.layout(host)
    except (probe.Skip, Unknown):
        pass  # findings.txt says so
    parts.text("versions.txt", "files and programs here, and records", lambda: _versions(host, kept))
    parts.report("doctor.txt", "hpslurm doctor", lambda: doctor.text(list(doctor.run(host, rules))))
    host.end_all()
    return Machine(version, controllers, layout)


def _program(host: Host, name: str, source: str, *words: str) -> str:
    output = host.run(name, *words)
    if output.status != 0 and not (name == "scontrol_ping" and output.out):
        raise Unknown(slurm.trouble(source, output))
    return output.out


def _versions(host: Host, kept: Iterable[Record]) -> str:
    lines = ["Here, where the bundle was made:", *versions.lines(host)]
    seen: dict[tuple[str, str], list[str]] = {}
    for record in kept:
        for result in record.results:
            if result.probe == "versions":
                for name, value in (result.facts or {}).items():
                    if value and not name.endswith("_file"):
                        seen.setdefault((name, str(value)), []).append(record.node)
    if seen:
        lines += ["", "On the nodes, by their records:"]
        lines += [
            f"  {name + ':':16} {clean(value, 80)}  on {nodeset.fold(nodes)}"
            for (name, value), nodes in sorted(seen.items())
        ]
    return "\n".join(lines)


def _people(half: gather.Half | None, job: SlurmJob | None) -> list[str]:
    """Who may be named anywhere: people of this machine, of the queue, of the job."""
    names = [entry.pw_name for entry in pwd.getpwall() if entry.pw_uid in PEOPLE]
    names += [queued.user for member in (half.members.members if half else ()) for queued in member.jobs]
    names += [job.user] if job else []
    names += [os.environ.get(name, "") for name in ("SUDO_USER", "USER")]
    return [name for name in dict.fromkeys(names) if name]


# the summary


def _case(
    request: Request,
    half: gather.Half | None,
    results: Sequence[Result],
    job_report: report.JobReport | None,
    ended: cause.Cause | None,
    window: Window,
    errors: Sequence[str],
    settings: Sequence[str],
    machine: Machine,
) -> case.Case:
    view = half.view if half else None
    cluster = checks.cluster(view)
    layout = machine.layout
    arn = cluster.arn if cluster else layout.arn
    named = CLUSTER_ARN.fullmatch(arn)
    counted = [finding for result in results for finding in result.findings if not finding.muted]
    by = {level: len({finding.rule.id for finding in counted if finding.rule.priority == level}) for level in (P0, P1)}
    counts = ", ".join(f"{number} {level}" for level, number in by.items() if number)
    ids = {member.name: member.instance_id for member in half.members.members} if half else {}
    controllers = tuple(
        f"{controller.host}{f' = {ids[controller.host]}' if ids.get(controller.host) else ''}"
        for controller in machine.controllers
    )
    job = job_report.job if job_report else None
    in_versions = f"Slurm {machine.slurm_version}" if machine.slurm_version else "what files of this machine say"
    return case.Case(
        cluster=cluster.name if cluster else layout.cluster,
        arn=arn,
        region=(view.region if view else "") or (named["region"] if named else "") or request.options.region,
        status=f"{cluster.status}{f': {cluster.failure}' if cluster.failure else ''}" if cluster else "",
        slurm=machine.slurm_version,
        controllers=controllers or layout.controllers,
        window=f"{utc(window.since)} to {utc(window.until)}, by {window.source}",
        job=report_view.headline(job, job_report.id, job_report.why).removeprefix("Job ") if job_report else "",
        ran_on=clean(job.nodes, 600) if job and len(job.nodes) > 60 else "",  # the headline cuts it
        nodes=tuple(_involved(half, results, job_report, ended)),
        cause=_cause(ended),
        errors=tuple(errors),
        settings=len({line.partition("=")[0] for line in settings}),
        findings=f"findings.txt{f' ({counts})' if counts else ' (no P0 or P1 in what could be checked)'}"
        if results
        else "",
        versions=f"versions.txt ({in_versions})",
    )


def _cause(ended: cause.Cause | None) -> str:
    if ended is None:
        return ""
    diagnosis = ended.diagnosis
    culprit = f", {who(diagnosis.culprit)}" if diagnosis.culprit else ""
    return f"{diagnosis.cause}{culprit} ({diagnosis.confidence} confidence)"


def _involved(
    half: gather.Half | None, results: Sequence[Result], job_report: report.JobReport | None, ended: cause.Cause | None
) -> Iterator[case.Node]:
    """Who is named as the culprit, then nodes of the job (else any) with a finding of P0 or P1."""
    members = {member.name: member for member in half.members.members} if half else {}
    why: dict[str, list[str]] = {}
    culprit = ended.diagnosis.culprit if ended else None
    if ended and culprit and culprit.host:
        for name in nodeset.names_in(culprit.host.partition(".")[0])[:1000]:
            why.setdefault(name, []).append(f"named by the logs ({ended.diagnosis.cause})")
    own = set(report.nodes_of(job_report.job)) if job_report else set()
    findings: list[Finding] = list(job_report.counted) if job_report else []
    findings += [finding for result in results for finding in result.findings if not finding.muted]
    for finding in findings:
        subject, rule = finding.subject, finding.rule
        if rule.priority in (P0, P1) and (subject in own or (not own and subject in members)):
            known = why.setdefault(subject, [])
            known += [rule.id] if rule.id not in known else []
    for name in sorted(own) if len(own) <= case.MOST_NODES else ():
        why.setdefault(name, ["ran the job"])
    ids = {record.node: str(record.run.get("instance") or "") for record in job_report.records} if job_report else {}
    for name, reasons in why.items():
        member = members.get(name)
        yield case.Node(name, (member.instance_id if member else "") or ids.get(name, ""), ", ".join(reasons))
