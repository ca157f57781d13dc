"""What goes into a bundle: every part for itself, so that one that fails takes no other along."""

from __future__ import annotations

import json
import os
import pwd
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import click

from hpslurm.bundle import archive, case
from hpslurm.bundle.archive import KEPT, LOGS, RECORDS, SLURM, Part
from hpslurm.bundle.masking import Masker
from hpslurm.cluster import gather, guard, view
from hpslurm.cluster.aws import checks
from hpslurm.cluster.aws.view import View
from hpslurm.cluster.node_rows import node_rows
from hpslurm.core import policy, probe, records
from hpslurm.core.finding import NOISE, P0, P1, ROOT, Finding
from hpslurm.core.policy import Policy
from hpslurm.core.probe import Result, Unknown
from hpslurm.core.records import Record
from hpslurm.core.text import clean
from hpslurm.core.values import asdict, dataclass, replace
from hpslurm.job import cause, logs, report, report_view
from hpslurm.job.nccl_env import SHOWN
from hpslurm.scan import joblog
from hpslurm.scan.collect import Collector
from hpslurm.setup import doctor, versions
from hpslurm.show.diagnosis import who
from hpslurm.show.render import fold_nodes
from hpslurm.sources import hyperpod, slurm
from hpslurm.sources.aws import CLUSTER_ARN
from hpslurm.sources.host import Host
from hpslurm.sources.slurm import SlurmJob

T = TypeVar("T")
HOURS = 2 * 3600  # seconds of the window where nothing says when it happened
SECONDS = 30.0  # for Slurm's programs, beyond those of diagnose
MOST_ERRORS = 500
LONGEST_LINE = 8192  # characters of an error line
PEOPLE = range(1000, 60000)  # uids
# How NCCL says in a log which settings it took, and printenv in a job's output.
_SETTING = re.compile(
    r"\b(?P<name>(?:NCCL|FI|TORCH)_[A-Z0-9_]+)(?: set (?:by environment |by user )?to |=)(?P<value>[^\s;,]+)"
)
SLURM_TEXTS = (
    ("slurm/config.txt", "scontrol_config", "scontrol show config"),
    ("slurm/nodes.txt", "scontrol_nodes", "scontrol show nodes"),
    ("slurm/sinfo.txt", "sinfo", "sinfo"),
    ("slurm/ping.txt", "scontrol_ping", "scontrol ping"),
)
ANSWERS = (
    ("cluster.json", "described", "DescribeCluster"),
    ("instances.json", "instances", "ListClusterNodes"),
    ("events.json", "events", "ListClusterEvents"),
)


class WrongWindow(ValueError):
    """The window of time ends before it begins."""


@dataclass(frozen=True)
class Asked:
    """The command line. ``since`` and ``until`` are seconds since the epoch, or None."""

    job: str = ""
    options: checks.Options = checks.Options()
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


def collect(asked: Asked, say: Callable[[str], None]) -> Bundle:
    """Everything that can be had. Raises WrongWindow."""
    columns = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = "120"  # reports are as wide whatever terminal this was typed on
    try:
        return _collected(asked, say)
    finally:
        if columns is None:
            del os.environ["COLUMNS"]
        else:
            os.environ["COLUMNS"] = columns


def _collected(asked: Asked, say: Callable[[str], None]) -> Bundle:
    parts = _Parts(say)
    rules = policy.load(asked.policy)
    look = None
    if asked.job:
        ask = partial(report.gather, rules, asked.root, asked.job, asked.results, ask_slurm=asked.slurm)
        look = parts.tried("report", ask, None)
    window = window_of(asked, look)
    half, results = _diagnosed(asked, rules, window, parts)
    job = look.job if look else None
    collector = Collector()
    read = _read_logs(asked, job, collector, parts)
    found = look.found if look else ()
    ended = None
    if look or read:
        notes = tuple(one.note for one in read if one.note)
        output = joblog.Found(tuple(collector.result()), notes, tuple(one.path for one in read))
        findings = look.counted if look else []
        ended = parts.tried("cause", lambda: cause.judged(job, output, found, findings), None)
    known = bool(look and (look.job or look.found))
    if look and known:
        _add_report(rules, look, ended, parts)
    elif look:
        parts.miss(f"report-{look.id}", report.nothing_known(look.id, look.why, rules, asked.results, look.troubles))
    _add_logs(read, asked.limit, parts)
    errors = list(error_lines(ended, read)) if ended else []
    if errors:
        parts.add("errors.txt", "\n".join(errors), "the logs, verbatim")
    elif read or found:
        parts.miss("errors.txt", "no line of trouble in the logs that were read")
    else:
        parts.miss("errors.txt", "no log was read: name the job's output and all ranks' logs (--log)")
    kept = [*found, *_others(half, look)]
    _add_records(asked, rules, kept, look, parts)
    kept += _brought(asked, parts)
    settings = environment(kept, read)
    if settings:
        parts.add("environment.txt", "\n".join(settings), "records, logs and this process")
    else:
        parts.miss(
            "environment.txt", "no record of hpslurm-check and no log says: srun hpslurm-check in the allocation"
        )
    told = _of_this_machine(asked, rules, kept, parts)
    parts.add("window.json", records.encode({"schema": 1, **window.described()}), window.source)
    summary = _case(asked, half, results, look, ended, window, errors, settings, told)
    parts.text("case.txt", "everything here", lambda: case.text(summary, parts.missing))
    masker = Masker(_people(half, job), [one.name for one in half.members.members] if half else ())
    say("masking")
    masked = list(_masked(parts.parts, masker))
    masked.append(Part("README.txt", case.readme(archive.masked(masked), [one.name for one in masked]), "hpslurm"))
    missing = tuple((masker.mask(what), masker.mask(why)) for what, why in parts.missing)
    return Bundle(
        tuple(masked), missing, window, masker, bool((half and half.readable) or known or read), rules.problems
    )


def _masked(parts: Sequence[Part], masker: Masker) -> Iterator[Part]:
    for one in parts:  # a name that one file shows as a user's is hidden in those before it, too
        masker.learn(one.text)
    for one in parts:
        text = masker.mask(one.text)
        counts = {rule: count for rule, count in masker.counts.items() if count}
        yield Part(masker.mask(one.name), text, masker.mask(one.source), one.kind, one.left_out,
                   masker.mask(one.note), counts)  # fmt: skip


# when


def window_of(asked: Asked, look: report.JobReport | None, now: float | None = None) -> Window:
    """The command line's, else the job's by Slurm, else by its nodes' records, else the last two hours."""
    now = time.time() if now is None else now
    since, until, source = now - HOURS, now, "the last 2 hours: nothing says when it happened"
    job = look.job if look else None
    times = [one.run["time"] for one in look.found if one.run.get("time")] if look else []
    if job and job.start_time and job.start_time <= now:
        over = job.end_time and job.start_time <= job.end_time and look and look.over
        since, until, source = (
            float(job.start_time),
            float(job.end_time) if over and job.end_time else now,
            "Slurm's record of the job",
        )
    elif times:
        since, until = min(times), max(times) if len(times) > 1 else now
        source = "the records of the job's nodes"
    if asked.since is not None or asked.until is not None:
        source = (
            "the command line"
            if asked.since is not None and asked.until is not None
            else f"the command line and {source}"
        )
        until = asked.until if asked.until is not None else until
        since = asked.since if asked.since is not None else min(since, until - HOURS)
    if since > until:
        raise WrongWindow(
            f"the window begins at {utc(since)} and ends before, at {utc(until)}; set --since and --until"
        )
    return Window(since, until, source)


# the cluster


def _diagnosed(asked: Asked, rules: Policy, window: Window, parts: _Parts) -> tuple[gather.Half | None, list[Result]]:
    host = Host(asked.root, seconds=gather.SECONDS)
    named = asked.options
    options = checks.Options(named.cluster, named.region, named.profile, max(60.0, time.time() - window.since))
    wanted = asked.aws and checks.means_aws(options, host)
    ask = partial(_ask_aws, options) if wanted else None
    places = [f"{asked.results}/nodes"] if asked.results else gather.record_folders(rules, asked.root)
    places += asked.reports
    try:
        half = parts.tried(
            "findings", lambda: gather.look(host, rules, places, ask_slurm=asked.slurm, ask_aws=ask), None
        )
    finally:
        host.end_all()
    if half is None:
        return None, []
    results = guard.apply(half.results, half.members, rules)
    made = records.lines(rules, os.environ, "diagnose", results)
    parts.add("findings.jsonl", "\n".join(map(records.encode, made)), "hpslurm diagnose --json")
    parts.text("findings.txt", "hpslurm diagnose", lambda: _plain(view.text(results, half.members)))
    if half.members.members:
        parts.text(
            "nodes.tsv", "Slurm, HyperPod and records", lambda: case.nodes_table(node_rows(results, half.members))
        )
    _add_aws(half.view, asked, parts)
    return half, results


def _ask_aws(options: checks.Options, layout: hyperpod.Layout) -> View:
    try:
        return checks.collect(options, layout)
    except checks.NoCluster as error:  # a typing mistake in a name must not cost the rest
        return View({"account": Unknown(str(error))}, time.time(), time.time() - options.since)


def _add_aws(view: View | None, asked: Asked, parts: _Parts) -> None:
    if view is None:
        parts.miss(
            "cluster.json",
            "AWS was not asked: pass --cluster and --region" if asked.aws else "AWS was not asked (--no-aws)",
        )
        return
    trouble = view.answers.get("account")
    for name, key, source in ANSWERS:
        value, why = view.maybe(key, None)
        if value is None:
            parts.miss(name, str(trouble) if isinstance(trouble, Unknown) else why)
            continue
        if key == "described":
            value = {field: one for field, one in value.items() if field != "ResponseMetadata"}
        else:
            value = {key: [asdict(one) for one in value[0]], "not_all": value[1]}
        parts.add(name, json.dumps(value, indent=1, ensure_ascii=False, default=str), source)


def _plain(lines: Iterable[str]) -> str:
    text: str = click.unstyle("\n".join(lines))
    return text


# the job and its logs


def _add_report(rules: Policy, look: report.JobReport, ended: cause.Cause | None, parts: _Parts) -> None:
    name = f"report-{look.id}"
    made = report_view.json_lines(rules, look.id, report_view.results_of(look, ended), ended)
    parts.add(f"{name}.jsonl", "\n".join(map(records.encode, made)), f"hpslurm report {look.id} --json")
    parts.text(f"{name}.txt", f"hpslurm report {look.id}", lambda: _plain(report_view.text(look, ended)))


def _read_logs(asked: Asked, job: SlurmJob | None, collector: Collector, parts: _Parts) -> list[logs.Log]:
    found: list[logs.Log] = []
    about = cause.about_output(job) if job else None
    own = [path for path in joblog.paths(about) if "%" not in path] if about else []
    named = logs.files(asked.logs)
    for paths, whose in (([one for one in own if one not in named], about), (named, None)):
        if paths:
            nothing: tuple[list[logs.Log], list[tuple[str, str]]] = ([], [])
            some, missing = parts.tried("logs", partial(logs.look, paths, whose, collector), nothing)
            found += some
            for path, why in missing:
                parts.miss(path, why)
    return found


def _add_logs(read: Sequence[logs.Log], limit: int, parts: _Parts) -> None:
    given = logs.shares([len(one.taken.head) + len(one.taken.tail) for one in read], limit)
    for one, most, name in zip(read, given, _names(read).values(), strict=True):
        head, tail = one.taken.head, one.taken.tail
        not_read = max(0, one.taken.size - len(head) - len(tail))
        text, left_out = archive.shortened(one.text, most, not_read)
        if not_read and left_out == not_read:  # it was read from both ends, and all of that fits
            text = archive.joined(head.decode("utf-8", "replace"), tail.decode("utf-8", "replace"), not_read)
        parts.add(name, text, one.path, LOGS, left_out, one.note)


def _names(read: Sequence[logs.Log]) -> dict[str, str]:
    """Path to a name in the bundle: the file's own, with a number where two are alike."""
    given: dict[str, str] = {}
    for one in read:
        name = re.sub(r"[^A-Za-z0-9._\[\]=+-]", "_", os.path.basename(one.path)).lstrip(".-") or "log"
        number, free = 1, name
        while f"logs/{free}" in given.values():
            number += 1
            free = f"{number}-{name}"
        given[one.path] = f"logs/{free}"
    return given


def error_lines(ended: cause.Cause, read: Sequence[logs.Log]) -> Iterator[str]:
    """Lines of trouble, the decisive one first, each as it stands in its file."""
    files, names = {one.path: one for one in read}, _names(read)
    events = [one for one in ended.events if one.role != NOISE and one.line]
    decisive = ended.diagnosis.decisive
    order = sorted(events, key=lambda one: (one != decisive, one.role != ROOT, -one.weight, one.file, one.line))
    seen: set[tuple[str, int]] = set()
    for one in order:
        if (one.file, one.line) in seen or len(seen) >= MOST_ERRORS:
            continue
        seen.add((one.file, one.line))
        log = files.get(one.file)
        line = log.line(one.line) if log else ""
        note = "" if line else " (as the epilog recorded it)" if not log else " (as scan read it)"
        again = f" (the first of {one.count} alike)" if one.count > 1 else ""
        yield f"{names.get(one.file, one.file)}:{one.line}:{note}{again} {(line or one.text)[:LONGEST_LINE]}"


def _others(half: gather.Half | None, look: report.JobReport | None) -> list[Record]:
    """The newest record of each node that is not among the job's."""
    have = {(one.node, one.hook) for one in look.found} if look else set()
    newest = [one.record for one in half.members.members if one.record] if half else []
    return [one for one in newest if (one.node, one.hook) not in have]


def _brought(asked: Asked, parts: _Parts) -> list[Record]:
    """Records of folders that were named, as hpslurm-check --json leaves them."""
    kept: list[Record] = []
    for folder in asked.reports:
        some, troubles = records.read_folder(folder)
        kept += (replace(one, node=gather.node_of(one)) for one in some)
        for trouble in troubles:
            parts.miss(f"records/{os.path.basename(folder)}", trouble)
        for one in some:
            file = next(name for name in sorted(os.listdir(folder)) if name.startswith(f"{one.node}.{one.hook}.jsonl"))
            path = f"{folder}/{file}"
            parts.text(f"records/reports/{file}", path, partial(records.read_text, path), RECORDS)
    return kept


def _add_records(
    asked: Asked, rules: Policy, kept: Sequence[Record], look: report.JobReport | None, parts: _Parts
) -> None:
    own = {id(one) for one in look.found} if look else set()
    for one in kept:
        below = f"jobs/{look.job.id if look.job else look.id.partition('_')[0]}" if look and id(one) in own else "nodes"
        if below == "nodes" and look and not one.findings:
            continue  # another node, and all is well with it
        file = f"{below}/{one.node}.{one.hook}.jsonl"
        for folder in report.folders(rules, asked.results):
            path = f"{folder}/{file}"
            if os.path.lexists(path):
                parts.text(f"records/{file}", path, partial(records.read_text, path), RECORDS)
                break


def environment(kept: Iterable[Record], read: Iterable[logs.Log]) -> list[str]:
    """``NCCL_*``, ``FI_*`` and ``TORCH_*``, by where they were seen."""
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
        where.setdefault(pair, []).append(f"records of {fold_nodes(some)}")
    return [
        f"{name}={clean(value)}    # {', '.join(files[:4])}{' …' if len(files) > 4 else ''}"
        for (name, value), files in sorted(where.items())
        if name.startswith(SHOWN)
    ]


# this machine


def _of_this_machine(asked: Asked, rules: Policy, kept: Sequence[Record], parts: _Parts) -> Mapping[str, Any]:
    host = Host(asked.root, seconds=SECONDS)
    told: dict[str, Any] = {"layout": hyperpod.Layout(), "controllers": (), "slurm": ""}
    if asked.slurm:
        told["slurm"] = parts.tried("Slurm's version", lambda: versions.slurm_version(host), "")
        nobody: tuple[slurm.Controller, ...] = ()
        told["controllers"] = parts.tried("slurm/", lambda: slurm.controllers(host), nobody)
        job = asked.job
        texts = [*SLURM_TEXTS, *([("slurm/job.txt", "scontrol_job", f"scontrol show job {job}")] if job else [])]
        for name, program, source in texts if told["controllers"] else ():
            words = (job,) if program == "scontrol_job" else ()
            parts.text(name, source, partial(_program, host, program, source, *words), SLURM)
    try:
        told["layout"] = hyperpod.layout(host)
    except (probe.Skip, Unknown):
        pass  # findings.txt says so
    parts.text("versions.txt", "files and programs here, and records", lambda: _versions(host, kept))
    parts.text("doctor.txt", "hpslurm doctor", lambda: _plain(doctor.text(list(doctor.run(host, rules)))))
    host.end_all()
    return told


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
            f"  {name + ':':16} {clean(value, 80)}  on {fold_nodes(nodes)}"
            for (name, value), nodes in sorted(seen.items())
        ]
    return "\n".join(lines)


def _people(half: gather.Half | None, job: SlurmJob | None) -> list[str]:
    """Who may be named anywhere: people of this machine, of the queue, of the job."""
    found = [one.pw_name for one in pwd.getpwall() if one.pw_uid in PEOPLE]
    found += [queued.user for member in (half.members.members if half else ()) for queued in member.jobs]
    found += [job.user] if job else []
    found += [os.environ.get(name, "") for name in ("SUDO_USER", "USER")]
    return [one for one in dict.fromkeys(found) if one]


# the summary


def _case(
    asked: Asked,
    half: gather.Half | None,
    results: Sequence[Result],
    look: report.JobReport | None,
    ended: cause.Cause | None,
    window: Window,
    errors: Sequence[str],
    settings: Sequence[str],
    told: Mapping[str, Any],
) -> case.Case:
    view = half.view if half else None
    cluster = checks.cluster(view)
    layout: hyperpod.Layout = told["layout"]
    arn = cluster.arn if cluster else layout.arn
    named = CLUSTER_ARN.fullmatch(arn)
    folded = [one for result in results for one in result.findings if not one.muted]
    by = {level: len({one.rule.id for one in folded if one.rule.priority == level}) for level in (P0, P1)}
    counts = ", ".join(f"{number} {level}" for level, number in by.items() if number)
    ids = {one.name: one.instance_id for one in half.members.members} if half else {}
    controllers = tuple(
        f"{one.host}{f' = {ids[one.host]}' if ids.get(one.host) else ''}" for one in told["controllers"]
    )
    job = look.job if look else None
    return case.Case(
        cluster=cluster.name if cluster else layout.cluster,
        arn=arn,
        region=(view.region if view else "") or (named["region"] if named else "") or asked.options.region,
        status=f"{cluster.status}{f': {cluster.failure}' if cluster.failure else ''}" if cluster else "",
        slurm=told["slurm"],
        controllers=controllers or layout.controllers,
        window=f"{utc(window.since)} to {utc(window.until)}, by {window.source}",
        job=report_view.headline(job, look.id, look.why).removeprefix("Job ") if look else "",
        ran_on=clean(job.nodes, 600) if job and len(job.nodes) > 60 else "",  # the headline cuts it
        nodes=tuple(_involved(half, results, look, ended)),
        cause=_cause(ended),
        errors=tuple(errors),
        settings=len({line.partition("=")[0] for line in settings}),
        findings=f"findings.txt{f' ({counts})' if counts else ' (no P0 or P1 in what could be checked)'}"
        if results
        else "",
        versions=f"versions.txt ({version_line(told)})",
    )


def version_line(told: Mapping[str, Any]) -> str:
    return f"Slurm {told['slurm']}" if told["slurm"] else "what files of this machine say"


def _cause(ended: cause.Cause | None) -> str:
    if ended is None:
        return ""
    found = ended.diagnosis
    culprit = f", {who(found.culprit)}" if found.culprit else ""
    return f"{found.cause}{culprit} ({found.confidence} confidence)"


def _involved(
    half: gather.Half | None, results: Sequence[Result], look: report.JobReport | None, ended: cause.Cause | None
) -> Iterator[case.Node]:
    """Who is named as the culprit, then nodes of the job (else any) with a finding of P0 or P1."""
    members = {one.name: one for one in half.members.members} if half else {}
    why: dict[str, list[str]] = {}
    culprit = ended.diagnosis.culprit if ended else None
    if ended and culprit and culprit.host:
        for name in _unfolded(culprit.host):
            why.setdefault(name, []).append(f"named by the logs ({ended.diagnosis.cause})")
    own = set(report.nodes_of(look.job)) if look else set()
    findings: list[Finding] = list(look.counted) if look else []
    findings += [one for result in results for one in result.findings if not one.muted]
    for one in findings:
        if one.rule.priority in (P0, P1) and (one.subject in own or (not own and one.subject in members)):
            known = why.setdefault(one.subject, [])
            known += [one.rule.id] if one.rule.id not in known else []
    for name in sorted(own) if len(own) <= case.MOST_NODES else ():
        why.setdefault(name, ["ran the job"])
    ids = {one.node: str(one.run.get("instance") or "") for one in look.found} if look else {}
    for name, reasons in why.items():
        member = members.get(name)
        yield case.Node(name, (member.instance_id if member else "") or ids.get(name, ""), ", ".join(reasons))


def _unfolded(host: str) -> list[str]:
    from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet

    try:
        return list(NodeSet(host.partition(".")[0], resolver=RESOLVER_NOGROUP))[:1000]
    except Exception:
        return []
