"""The newest record of each node and hook as numbers for Prometheus: few series, and no free text in a label.

What could not be seen never becomes a number that looks fine: a record has a state, a count of zero stands only
for a record that is complete, and of a record that is missing or refused there are no counts at all.
"""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from hpslurm import __version__, hooks
from hpslurm.core import records
from hpslurm.core.finding import PRIORITIES, Finding
from hpslurm.core.policy import Policy
from hpslurm.core.probe import FAIL, PASS, SKIP, UNKNOWN
from hpslurm.core.records import Record
from hpslurm.core.text import clean
from hpslurm.core.values import dataclass, field, replace
from hpslurm.node import job_activity
from hpslurm.show import render

COMPLETE, CUT_OFF, BEFORE_BOOT, UNREADABLE, MISSING = "complete", "cut_off", "before_boot", "unreadable", "missing"
STATES = (COMPLETE, CUT_OFF, BEFORE_BOOT, UNREADABLE, MISSING)
HOOKS = tuple(hooks.HOOKS)
RUNNING = 60.0  # seconds; an unfinished file that is younger may be of a hook that still runs (Slurm kills after 60)
MOST = 200  # series of one kind that a single record may make; there are fewer rules than that on a node
_PART = re.compile(rf"(.+)\.({'|'.join(HOOKS)})\.jsonl\.part")

# name -> what it says, and its labels; all are gauges. The names are public.
FAMILIES: dict[str, tuple[str, tuple[str, ...]]] = {
    "build_info": ("The hpslurm that wrote this; 1.", ("version",)),
    "nodes": ("Nodes that left a record in the results folder, readable or not.", ()),
    "record": ("State of the newest record of a hook: 1 for the one that holds.", ("node", "hook", "state")),
    "record_newest": ("1 for the hook whose record is the newest of the node.", ("node", "hook")),
    "run_info": (
        "The hpslurm, and the checksum of the policy, that made the record; 1.",
        ("node", "hook", "version", "policy"),
    ),
    "run_timestamp_seconds": ("When the hook that made the record began.", ("node", "hook")),
    "run_duration_seconds": ("How long the hook took.", ("node", "hook")),
    "policy_problems": ("What the hook did not take from the site's policy.", ("node", "hook")),
    "probes": ("Probes by outcome; unknown is one that could not look.", ("node", "hook", "outcome")),
    "not_checked": ("A probe that could not look, or only in part; 1.", ("node", "hook", "probe")),
    "findings": ("Findings that the site has not muted.", ("node", "hook", "priority")),
    "findings_muted": ("Findings that the site lives with.", ("node", "hook")),
    "finding": ("What was found; 1.", ("node", "hook", "rule", "priority", "cause", "muted")),
    "gated": ("Findings for which the prolog told Slurm to drain the node.", ("node",)),
    "history_timestamp_seconds": ("When hpslurm history --keep last looked.", ()),
    "node_failures_total": ("Failures that can be the node's, in the weeks that history looked at.", ("node",)),
    "node_suspect": ("1 for a node that fails far more than its share, 0 for one that failed, too.", ("node",)),
    "job_stalled_seconds": (
        "For how long a job stands still on all nodes that tell of it; 0 where one of them works.",
        ("job", "user"),
    ),
    "cut_off_records": ("Records, of those kept on the node, that a hook did not finish.", ("node", "hook")),
    "cut_off_timestamp_seconds": ("When a hook last wrote to a record that it did not finish.", ("node", "hook")),
}


@dataclass(frozen=True)
class Family:
    """One metric: its name, what it says, its labels, and a number for each set of label values."""

    name: str
    help: str
    labels: tuple[str, ...]
    values: dict[tuple[str, ...], float] = field(default_factory=dict)


@dataclass(frozen=True)
class Seen:
    """What a results folder holds.

    ``unreadable`` are node and hook of records that are there and could not be read. ``cut_off`` are the times at
    which unfinished records were last written to, by node and hook; None where they cannot be known.
    """

    records: tuple[Record, ...] = ()
    unreadable: tuple[tuple[str, str], ...] = ()
    cut_off: Mapping[tuple[str, str], Sequence[float]] | None = None


# reading


def read_results(results: str, shared: bool, now: float) -> tuple[Seen, list[str]]:
    """What is there, and what is wrong with it, in words. Raises OSError for a folder that cannot be believed or read.

    A shared folder that is not there may be one that is not mounted. A node's own is made by its first hook.
    """
    nodes = f"{results}/nodes"
    for folder in (results, nodes):
        try:
            records.refuse_foreign(folder)
            os.listdir(folder)
        except FileNotFoundError:
            if shared and folder == results:
                raise
            return Seen(cut_off=None if shared else {}), [f"{folder} does not exist: no hook has left a record there"]
    readable, unreadable = records.read_folder(nodes)
    refused = [(refusal.node, refusal.hook) for refusal in unreadable if refusal.hook in HOOKS]
    troubles = [str(refusal) for refusal in unreadable]
    kept = [record for record in readable if record.hook in HOOKS]
    for record in kept:
        troubles += _strange(nodes, record)
    return Seen(tuple(kept), tuple(refused), None if shared else _left_over(results, now, troubles)), troubles


def _strange(folder: str, record: Record) -> Iterator[str]:
    path = clean(f"{folder}/{record.node}.{record.hook}.jsonl")
    for number in record.strange[:3]:
        yield f"{path} line {number}: no line of a record, passed over"
    if len(record.strange) > 3:
        yield f"{path}: {len(record.strange) - 3} more such lines"
    if not record.end:
        yield f"{path}: cut off, it has no last line"


def _left_over(results: str, now: float, troubles: list[str]) -> Mapping[tuple[str, str], Sequence[float]] | None:
    """Unfinished records: a hook that was killed leaves one in its job's folder."""
    unfinished: dict[tuple[str, str], list[float]] = {}
    folders = [f"{results}/nodes"]
    try:
        folders += [f"{results}/jobs/{job}" for job in os.listdir(f"{results}/jobs")]
    except FileNotFoundError:
        pass
    except OSError as error:
        troubles.append(f"{results}/jobs: {error.strerror}")
        return None
    for folder in folders:
        try:
            with os.scandir(folder) as entries:
                parts = [(match, entry) for entry in entries if (match := _PART.fullmatch(entry.name))]
            for match, entry in parts:
                written = entry.stat(follow_symlinks=False).st_mtime
                if written <= now - RUNNING:
                    unfinished.setdefault((match[1], match[2]), []).append(written)
        except OSError:  # a folder or a file that the epilog has just removed
            continue
    return unfinished


# numbers


NodeFailures = tuple[str, int, bool]  # a node, its failures over some weeks, and whether it is a suspect


def families(
    seen: Seen,
    policy: Policy,
    boot: str,
    expected: str,
    history: tuple[float, Sequence[NodeFailures]] = (0, ()),
) -> list[Family]:
    """All metrics that have a value.

    ``policy.node`` is this machine and ``boot`` its boot: what it recorded before is history. ``expected`` is the
    node that is named even if it left no record; empty where nobody knows which nodes there should be. ``history`` is
    when jobs were last looked at, and of each node that failed the failures and whether it is a suspect.
    """
    made = {name: Family(f"hpslurm_{name}", text, labels) for name, (text, labels) in FAMILIES.items()}

    def put(name: str, number: float, *labels: str) -> None:
        values = made[name].values
        values[labels] = number

    by_node = _by_node(seen)
    put("build_info", 1, __version__)
    put("nodes", len(by_node))
    for node in sorted(by_node) or ([expected] if expected else []):
        kept = by_node.get(node, {})
        newest = max(kept.values(), key=_time, default=None)
        for hook in HOOKS:
            where = (clean(node, 80), hook)
            record = kept.get(hook)
            state = _state(record, (node, hook) in seen.unreadable, boot if node == policy.node else "")
            for possible in STATES:
                put("record", possible == state, *where, possible)
            if seen.cut_off is not None:
                times = seen.cut_off.get((node, hook), ())
                put("cut_off_records", len(times), *where)
                if times:
                    put("cut_off_timestamp_seconds", max(times), *where)
            if record is None:
                continue
            put("record_newest", record is newest, *where)
            for name, number, labels in _of_run(record):
                put(name, number, *where, *labels)
            if state != BEFORE_BOOT:
                for name, number, labels in _of_results(record, policy):
                    put(name, number, *where, *labels)
                if hook == "prolog" and isinstance(record.end.get("gated"), list):
                    put("gated", len(record.end["gated"]), where[0])
    told = {record.node: facts for record in seen.records if (facts := job_activity.activity(record))}
    for (job, uid), seconds in list(job_activity.stalled(told).items())[:MOST]:
        put("job_stalled_seconds", seconds, _word(job), _user(uid))
    when, verdicts = history
    if when:
        put("history_timestamp_seconds", when)
    for node, failures, suspect in verdicts:
        put("node_failures_total", failures, clean(node, 80))
        put("node_suspect", suspect, clean(node, 80))
    return [one for one in made.values() if one.values]


def _user(uid: int) -> str:
    try:
        return _word(pwd.getpwuid(uid).pw_name)
    except (KeyError, OverflowError):
        return str(uid)


def _by_node(seen: Seen) -> dict[str, dict[str, Record]]:
    """Records by node and hook; a node is there also if none of its records could be read."""
    by_node: dict[str, dict[str, Record]] = {}
    for record in seen.records:
        by_node.setdefault(record.node, {})[record.hook] = record
    for node, _ in (*seen.unreadable, *(seen.cut_off or ())):
        by_node.setdefault(node, {})
    return by_node


def _time(record: Record) -> float:
    return float(record.run.get("time") or 0)


def _state(record: Record | None, unreadable: bool, boot: str) -> str:
    if record is None:
        return UNREADABLE if unreadable else MISSING
    made_in = record.run.get("boot")
    if boot and made_in and made_in != boot:
        return BEFORE_BOOT
    return COMPLETE if record.complete else CUT_OFF


Number = tuple[str, float, tuple[str, ...]]  # a metric's name without prefix, its value, labels after node and hook


def _of_run(record: Record) -> Iterator[Number]:
    if record.run:
        yield "run_info", 1, (_word(record.run.get("version")), _word(record.run.get("policy")))
        yield "policy_problems", len(record.run.get("policy_problems", ())), ()
    if _time(record):
        yield "run_timestamp_seconds", _time(record), ()
    seconds = record.end.get("seconds")
    if isinstance(seconds, (int, float)) and not isinstance(seconds, bool) and 0 <= seconds < 1e6:
        yield "run_duration_seconds", seconds, ()


def _of_results(record: Record, policy: Policy) -> Iterator[Number]:
    rules = replace(policy, node=record.node, instance=str(record.run.get("instance") or ""))
    findings = [one if one.muted else rules.mute(replace(one, subject=record.node)) for one in record.findings]
    counted = [one for one in findings if not one.muted]
    numbers: list[Number] = [
        *(("probes", sum(result.outcome == outcome for result in record.results), (outcome,)) for outcome in _OUTCOMES),
        *(("findings", sum(finding.rule.priority == level for finding in counted), (level,)) for level in PRIORITIES),
        ("findings_muted", len(findings) - len(counted), ()),
    ]
    yield from (one for one in numbers if one[1] or record.complete)
    yield from (("not_checked", 1, (probe,)) for probe in _not_checked(record))
    yield from (("finding", 1, labels) for labels in _distinct(findings))


_OUTCOMES = (PASS, FAIL, SKIP, UNKNOWN)


def _not_checked(record: Record) -> list[str]:
    """As people are told: also what found something and could not look at all of it."""
    whole_or_part = [_word(one.probe) for one in record.results if render.not_checked([one])]
    return list(dict.fromkeys(whole_or_part))[:MOST]


def _distinct(findings: Iterable[Finding]) -> list[tuple[str, ...]]:
    labels: Iterator[tuple[str, ...]] = (
        (_word(finding.rule.id), finding.rule.priority, _word(finding.rule.cause), "true" if finding.muted else "false")
        for finding in findings
    )
    return list(dict.fromkeys(labels))[:MOST]


def _word(value: Any) -> str:
    """A value for a label: an id, a version, a checksum; whatever else stands in a record becomes underscores."""
    return re.sub(r"[^A-Za-z0-9._+-]", "_", "" if value is None else str(value)[:80])
