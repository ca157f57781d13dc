"""The finding on nodes that keep failing, and what to do about them in order of harm.

``hpslurm history --keep`` leaves its verdicts in the results folder: reading a month of accounting takes a minute,
and ``diagnose`` and ``metrics`` are asked every few minutes. They say how old the verdicts are, and take none that
are older than three days.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from hpslurm.cluster.history import History, hardware, stamp
from hpslurm.cluster.history_kept import FILE, FRESH, kept
from hpslurm.cluster.history_machines import name_of
from hpslurm.cluster.history_stats import SUSPECT, Verdict
from hpslurm.cluster.model import Gathered
from hpslurm.cluster.slurm_nodes import is_out
from hpslurm.core import records, suggest, whole_file
from hpslurm.core.finding import LOOK, P1, Evidence, Finding, Rule, Suggestion
from hpslurm.core.policy import Policy
from hpslurm.core.probe import Skip
from hpslurm.core.text import clean
from hpslurm.core.values import dataclass, replace

KEEPS_FAILING = Rule("node-keeps-failing", P1, "A node fails far more jobs than the others", "debugging-guide.md § 7")
MOST_TRACES = 6


@dataclass(frozen=True)
class Facts:
    now: float
    time: float
    suspects: tuple[Mapping[str, Any], ...]  # those of nodes that Slurm may give to a job


# lines


def line_of(verdict: Verdict, history: History) -> dict[str, Any]:
    """One machine as a line of JSON."""
    traces = history.traces.get(verdict.node, ())
    return {
        "schema": records.SCHEMA,
        "type": "node_history",
        "node": name_of(verdict.node),
        "instance": history.machines.instance(verdict.node),
        "present": history.is_there(verdict.node),
        "verdict": verdict.word,
        "jobs": verdict.jobs,
        "node_hours": round(verdict.hours, 1),
        "failures": verdict.failures,
        "named": verdict.named,
        "expected": round(verdict.expected, 2),
        "ratio": round(verdict.ratio, 1),
        "chance": verdict.chance,
        "last_failure": verdict.last or None,
        "quiet": verdict.quiet,
        "alike": sorted({name_of(node) for node in verdict.alike}),
        "gpu": history.gpu(verdict.node),
        "causes": dict(hardware(verdict, history).most_common()),
        "evidence": [{"time": one.time, "source": one.source, "text": one.text} for one in traces[-50:]],
        "job_ids": list(verdict.counted[-200:]),
        "suggestions": [
            records.suggestion_line(suggestion)
            for suggestion in _filled(name_of(verdict.node), history.gpu(verdict.node))
        ],
    }


def plan(gpu: str = "") -> list[Suggestion]:
    """In order of harm."""
    looks = [
        Suggestion(LOOK, "what happened to it, in order of time", "hpslurm history --node {nodes}"),
        Suggestion(LOOK, "measure it against others (in an allocation with it)", "hpslurm nccl-tests --find-slow"),
    ]
    if gpu:
        looks.append(Suggestion(LOOK, "one GPU is named again and again", f"hpslurm report --gpu {shlex.quote(gpu)}"))
    return [
        *looks,
        suggest.save_evidence(),
        suggest.drain(KEEPS_FAILING.id),
        suggest.replace("it fails far more than its share, and a reboot did not change that"),
    ]


def _filled(node: str, gpu: str) -> list[Suggestion]:
    """The plan with the node's name in its commands: the line of one node stands by itself."""
    return [replace(one, command=one.command.replace("{nodes}", shlex.quote(node))) for one in plan(gpu)]


def words(line: Mapping[str, Any]) -> str:
    """``12 failures in 134 jobs and 410 h, 1.3 expected (7.2 times its share, 0.01 % by chance)``"""
    return (
        f"{line['failures']} failures in {line['jobs']} jobs and {line['node_hours']:.0f} h of work, "
        f"{line['expected']:.1f} expected: {line['ratio']:.1f} times its share, {by_chance(line['chance'])}"
    )


def by_chance(chance: float) -> str:
    return "less than 0.01 % by chance" if chance < 0.0001 else f"{100 * chance:.2g} % by chance"


# keeping


def keep(folder: str, history: History, policy: Policy) -> None:
    """Replace what was kept before. Raises OSError."""
    records.refuse_foreign(folder)
    lines: list[dict[str, Any]] = [line_of(one, history) for one in history.worth_telling]
    head = {**records.run_line(policy, {}, "history"), "time": history.asked.now}
    text = "".join(records.encode(line) + "\n" for line in (head, *lines))
    whole_file.write(os.path.join(folder, FILE), text.encode("utf-8", "replace"), 0o644)


# the check of diagnose


def collect(gathered: Gathered) -> Facts:
    """Suspects that could be handed out: Slurm's state says idle, mixed or allocated."""
    now = gathered.members.now
    verdicts = kept(gathered.results)
    if verdicts is None:
        raise Skip("no history was kept: sudo hpslurm history --keep, once a day")
    if now - verdicts.time > FRESH:
        raise Skip(f"the history that was kept is {(now - verdicts.time) / 86400:.0f} days old")
    usable = {one.name: one for one in gathered.members.members if one.slurm and not is_out(one.slurm)}
    suspects = [
        line
        for line in verdicts.lines
        if line["verdict"] == SUSPECT
        and (member := usable.get(line["node"]))
        and line["instance"] in ("", member.instance_id or line["instance"])
        and line.get("present", True)
    ]
    return Facts(now, verdicts.time, tuple(suspects))


def judge(facts: Facts, policy: Policy) -> Iterator[Finding]:
    for line in facts.suspects:
        yield found(line, facts.time)


def found(line: Mapping[str, Any], when: float) -> Finding:
    seen = [Evidence(f"hpslurm history of {stamp(when)}", words(line))]
    for trace in line["evidence"][-MOST_TRACES:]:
        if isinstance(trace, dict):
            at = trace.get("time")
            told = f"{stamp(at)} " if isinstance(at, (int, float)) else ""
            seen.append(Evidence(clean(str(trace.get("source"))), f"{told}{clean(str(trace.get('text')))}"))
    return KEEPS_FAILING.found(
        words(line),
        evidence=seen,
        suggest=plan(clean(str(line["gpu"]), 80)),
        subject=str(line["node"]),
    )
