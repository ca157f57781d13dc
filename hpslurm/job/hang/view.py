"""A job that hangs as people and programs see it: the verdict, the classes of ranks, then commands to copy."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator
from typing import Any

from hpslurm.core import nodeset
from hpslurm.core.finding import CONFIGURE, LOOK, Diagnosis, Suggestion
from hpslurm.core.text import clean, whole
from hpslurm.core.values import replace
from hpslurm.job.hang.case import HIGH, Group, Suspect, Verdict
from hpslurm.job.hang.facts import Rank, Sample, Stack
from hpslurm.job.hang.words import folded
from hpslurm.scan import advice, model
from hpslurm.scan.reason import HEALTHY, UNDETERMINED
from hpslurm.show import diagnosis as words
from hpslurm.show import render

MOST_GROUPS = 8  # classes on one screen; --json and -v have all
MOST_SUSPECTS = 4
LONGEST = (
    30  # characters of a list of ranks or nodes; of those that only wait, a longer one says nothing (--json has it)
)
GUIDE = "debugging-guide.md § 1"


def diagnosis_of(verdict: Verdict, sample: Sample) -> Diagnosis:
    """In the words of scan and report, for --json and for what a person could do."""
    row = model.causes().get(verdict.cause)
    verdict = replace(verdict, settle=tuple(_with_number(item, sample) for item in verdict.settle))
    return Diagnosis(
        verdict.cause,
        verdict.confidence,
        verdict.why,
        verdict.culprit,
        missing=verdict.settle,
        section=f"debugging-guide.md § {row.section}" if row else GUIDE,
        suggestions=tuple(_suggestions(verdict, sample)),
    )


def _suggestions(verdict: Verdict, sample: Sample) -> Iterator[Suggestion]:
    """Look first, cancel last."""
    job = _with_number("JOBID", sample)
    if verdict.cause == HEALTHY:
        return
    first = verdict.suspects[0] if verdict.suspects else None
    if first and first.pid and _is_node(first.node):
        yield Suggestion(
            LOOK,
            "all threads of that rank, once more",
            f"srun --overlap --jobid={job} -w {shlex.quote(first.node)} py-spy dump --nonblocking --pid {first.pid}",
        )
    if verdict.confidence != HIGH and (pipes := _pipes(sample)):
        yield Suggestion(
            LOOK,
            "have PyTorch write down each rank's collectives (flight recorder; the job goes on), then hang once more",
            f"srun --overlap --jobid={job} --ntasks-per-node=1 sh -c 'for pipe in {pipes}*.pipe; do "
            'test ! -p "$pipe" || echo 1 | dd of="$pipe" oflag=nonblock conv=nocreat status=none; done\'',
        )
    yield Suggestion(
        LOOK, "look twice, half a minute apart: does it still stand there", f"hpslurm hang {job} --again 30"
    )
    if verdict.cause == UNDETERMINED:
        return
    if verdict.cause == "network_link":
        yield Suggestion(LOOK, "once the nodes are free: which node, path or rail", "hpslurm nccl-tests --find-slow")
    for advised in advice.suggest(verdict.cause, verdict.culprit):
        if advised.command and advised.harm in (LOOK, CONFIGURE):
            yield replace(advised, command=_with_number(advised.command, sample))
    yield Suggestion(CONFIGURE, "when you have seen enough: end it", f"scancel {job}")


def _pipes(sample: Sample) -> str:
    """What the pipes begin with that ask PyTorch for a dump, where a shell takes it for one plain word.

    PyTorch makes PREFIX + rank + ".pipe" on the rank's own node, and looks into it once a second (HeartbeatMonitor of
    ProcessGroupNCCL). A pipe without its reader, on a shared file system, must not hold dd: nonblock.
    """
    prefixes = dict.fromkeys(node.pipes for node in sample.nodes)
    return next((prefix for prefix in prefixes if re.fullmatch(r"/[\w./-]+", prefix, re.ASCII)), "")


def _with_number(words: str, sample: Sample) -> str:
    return re.sub(r"\bJOBID\b", sample.job, words) if sample.job.isdigit() else words


def _is_node(name: str) -> bool:
    return re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", name) is not None


# --------------------------------------------------------------------------- for people


def text(sample: Sample, verdict: Verdict, *, stacks: bool = False, verbose: bool = False) -> list[str]:
    told = diagnosis_of(verdict, sample)
    lines = render.fitted(head(sample))
    tag = {HEALTHY: "PASS", UNDETERMINED: "WARN"}.get(verdict.cause, "FAIL")
    cause = "not hung" if verdict.cause == HEALTHY else verdict.cause
    who = f"  {words.who(verdict.culprit)}" if verdict.culprit else ""
    lines += render.labelled(tag, f"{cause}{who}  ({verdict.confidence} confidence)")
    lines += _indented("why: ", verdict.why)
    for suspect in verdict.suspects[1:MOST_SUSPECTS]:
        lines += _indented("and: ", f"{_name(suspect)}: {suspect.what}")
    if len(verdict.suspects) > MOST_SUSPECTS:
        lines += _indented("and: ", f"{len(verdict.suspects) - MOST_SUSPECTS} more (--json has all)")
    lines += _groups(verdict.groups, None if verbose else MOST_GROUPS)
    lines += [line for item in told.missing for line in _indented("would settle it: ", item)]
    lines += [line for note in notes(sample) for line in render.labelled("WARN", note)]
    if verdict.hangs:
        lines += render.pointer(told.section, verdict.cause, render.terminal_width())
    for advised in told.suggestions:
        lines += _indented("", f"Suggested command (run this yourself): {advised.why}")
        lines.append(f"{render.INDENT}  {advised.command}")
    if verbose:
        lines += [line for node in sample.nodes for line in _indented("", _node(node))]
    return [*lines, *(_stacks(verdict.groups) if stacks else ())]


def head(sample: Sample) -> str:
    nodes = nodeset.fold([*(node.name for node in sample.nodes), *sample.silent])
    worlds = {rank.world for rank in sample.ranks if rank.world}
    of = f" of {max(worlds)}" if worlds else ""
    user = f" of {clean(sample.user, 40)}" if sample.user else ""
    count = len(sample.ranks)
    return (
        f"Job {sample.job or '?'}{user}: {count}{of} rank{'s' * (count != 1)} seen on {clean(nodes, 120) or 'no node'}"
    )


def notes(sample: Sample) -> list[str]:
    """What could not be seen, folded over nodes."""
    by: dict[str, list[str]] = {}
    for node in sample.nodes:
        for note in node.notes:
            by.setdefault(note, []).append(node.name)
    silent = [f"no answer from {nodeset.fold(sample.silent)}"] if sample.silent else []
    everywhere = len(sample.nodes)
    found = [note if len(names) == everywhere else f"{nodeset.fold(names)}: {note}" for note, names in by.items()]
    return [_with_number(note, sample) for note in (*silent, *map(clean, sample.notes), *found)]


def _groups(groups: Iterable[Group], most: int | None) -> list[str]:
    groups = sorted(groups, key=lambda group: not group.suspect)
    lines = [line for group in groups[:most] for line in _group(group)]
    if most is not None and len(groups) > most:
        rest = groups[most:]
        count = sum(len(group.ranks) for group in rest)
        lines += _indented("", f"{count} more ranks at {len(rest)} other places (-v shows all)")
    return lines


def _group(group: Group) -> list[str]:
    count = len(group.ranks)
    numbers = folded(rank.rank for rank in group.ranks if rank.rank is not None)
    nodes = nodeset.fold(dict.fromkeys(rank.node for rank in group.ranks))
    mark = "→ " if group.suspect else ""
    most = LONGEST if not group.suspect else 2 * LONGEST
    which = f" ({clean(numbers, most)})" if group.suspect or len(numbers) <= most else ""
    where = f" on {clean(nodes, most)}" if group.suspect or len(nodes) <= most else ""
    said = f"{mark}{count} rank{'s' * (count != 1)}{which}{where}: {group.label}"
    state = _states(group.ranks)
    return _indented("", clean(f"{said}{state}", 400))


def _states(ranks: Iterable[Rank]) -> str:
    found = {(rank.state, rank.where) for rank in ranks if rank.state not in ("S", "R", "I", "")}
    return "".join(f", state {state}{f' on {where}' if where else ''}" for state, where in sorted(found)[:2])


def _name(suspect: Suspect) -> str:
    rank = f"rank {suspect.rank}" if suspect.rank is not None else ""
    node = f"on {suspect.node}" if suspect.node and rank else suspect.node
    return clean(" ".join(filter(None, (rank, node))) or "?", 120)


def _node(node: Any) -> str:
    parts = [f"{node.name}: {len(node.ranks)} ranks"]
    parts += [f"load {node.load:g}"] if node.load is not None else []
    parts += [f"{node.free:.0%} of memory free"] if node.free is not None else []
    for name, value in (("EFA", node.efa), ("NVLink", node.nvlink)):
        parts += [f"{name} {value / max(node.seconds, 0.1) / 1e6:.1f} MB/s"] if value is not None else []
    for gpu in node.gpus:
        shown = [f"{gpu.use} %" if gpu.use is not None else "", f"{gpu.power:.0f} W" if gpu.power is not None else ""]
        parts.append(f"GPU {gpu.index} {gpu.lost or ' '.join(filter(None, shown)) or 'unknown'}")
    return ", ".join(parts)


def _stacks(groups: Iterable[Group]) -> list[str]:
    """Full stacks of one rank of each class."""
    lines = []
    for group in groups:
        rank = next((rank for rank in group.ranks if rank.stack or rank.kernel), group.ranks[0])
        lines += ["", *render.fitted(f"rank {rank.rank} on {rank.node}, pid {rank.pid}, one of {len(group.ranks)}")]
        lines += _frames("main thread", rank.stack or ())
        for name, stack in rank.threads:
            lines += _frames(f"thread {name}", stack)
        if rank.kernel:
            lines += render.fitted(f"  in the kernel: {' < '.join(rank.kernel[:12])}")
        if not rank.stack and not rank.kernel:
            lines += [f"  no stack; {group.label}"]
    return lines


def _frames(name: str, stack: Stack) -> list[str]:
    return [f"  {name}", *(f"    {frame.function} ({frame.file}:{frame.line})" for frame in stack)] if stack else []


def _indented(lead: str, line: str) -> list[str]:
    return words.wrapped(lead, clean(line, 1200), render.terminal_width())


# --------------------------------------------------------------------------- for programs


def line(sample: Sample, verdict: Verdict) -> dict[str, Any]:
    return {
        "schema": 1,
        "type": "hang",
        "job": whole(sample.job),
        "hangs": verdict.hangs,
        "ranks": len(sample.ranks),
        "nodes": [node.name for node in sample.nodes],
        "silent": list(sample.silent),
        "suspects": [
            {"node": one.node, "rank": one.rank, "local_rank": one.local, "pid": one.pid, "what": clean(one.what)}
            for one in verdict.suspects
        ],
        "classes": [_group_line(group) for group in verdict.groups],
        "notes": notes(sample),
    }


def _group_line(group: Group) -> dict[str, Any]:
    return {
        "place": clean(group.label),
        "words": group.words,
        "suspect": group.suspect,
        "ranks": [rank.rank for rank in group.ranks],
        "nodes": list(dict.fromkeys(rank.node for rank in group.ranks)),
        "states": sorted({rank.state for rank in group.ranks}),
    }
