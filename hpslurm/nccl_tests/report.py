"""What a search for the slow node came to: findings, and lines that a later call can go on from.

Each result is one JSON line, written when its run ends, so a search survives a time limit or a lost node.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hpslurm.core import nodeset, suggest
from hpslurm.core.finding import LOOK, P0, P1, P2, Evidence, Finding, Rule, Suggestion
from hpslurm.core.policy import Policy
from hpslurm.core.text import clean
from hpslurm.core.values import asdict
from hpslurm.nccl_tests import search
from hpslurm.nccl_tests.judge import WRONG as WRONG_DATA
from hpslurm.nccl_tests.judge import expected, size_name
from hpslurm.nccl_tests.search import FAILED, HUNG, OK, WRONG, Named, Options, Result, Run, State, Verdict

_SEARCH = "performance-testing.md § 6"
_READING = "performance-testing.md § 7"

SLOW_NODE = Rule("busbw-slow-node", P1, "A node slows every collective it takes part in", _READING, "straggler")
BAD_NODE = Rule("busbw-bad-node", P0, "A node hangs, fails or computes wrong data with every partner", _READING)
SLOW_RAIL = Rule("busbw-slow-rail", P1, "One GPU position of a node, and so its NICs, is slow", _READING, "straggler")
SLOW_PATH = Rule("busbw-slow-path", P1, "Slow between nodes that are fast with others", _READING, "network_link")
SLOW_GROUP = Rule("busbw-slow-group", P1, "Slow only with many nodes, and with these among them", _READING)
ALL_SLOW = Rule("busbw-all-pairs-slow", P1, "All pairs are slow: it is not one node", _READING, "slow_bandwidth")
ONCE = Rule("busbw-slow-once", P2, "Slow or failed once, and not again", _READING)
ALL_BAD = Rule("busbw-all-pairs-bad", P0, "Not one pair is usable: it is not one node", _READING, "slow_bandwidth")
WHOLE_BAD = Rule("busbw-whole-bad", P0, "All nodes together hang or fail, and pairs of them do not", _READING)
WHOLE_SLOW = Rule("busbw-whole-slow", P1, "All nodes together are slow, and pairs of them are not", _READING)
UNDECIDED = Rule("busbw-undecided", P2, "Nodes that the search could not decide about", _SEARCH)


WHOLE_SHARE = 0.5  # of the pairs' rate, for so many nodes that nobody has published a figure
Nics = Mapping[tuple[str, int], Sequence[str]]
NOT_NAMED: Nics = {}


def findings(
    verdict: Verdict, policy: Policy, instance: str, gpus: int, size: int, nics: Nics = NOT_NAMED
) -> list[Finding]:
    """All that the search found; ``size`` in bytes is the one that was measured. ``nics`` by node and GPU."""
    how = (verdict, policy, instance, gpus, size)
    found = [*_named(verdict, nics), *_wrong(verdict), *(list(_all_slow(*how)) or _whole(*how)), *_open(verdict)]
    return [policy.mute(finding) for finding in found]


def exit_code(verdict: Verdict, found: Sequence[Finding], policy: Policy) -> int:
    """3 for wrong data, what hangs or fails, and rates below ``fail_below``; 1 when nothing was measured; else 0."""
    counted = {finding.rule for finding in found if not finding.muted}
    if not verdict.tested:
        return 3 if WRONG_DATA in counted else 1
    named = SLOW_NODE in counted or SLOW_RAIL in counted or SLOW_PATH in counted or SLOW_GROUP in counted
    grave = any(one.share < policy.bandwidth_fail_below for one in verdict.named)
    return 3 if any(rule.priority == P0 for rule in counted) or (named and grave) else 0


def _named(verdict: Verdict, nics: Nics) -> Iterator[Finding]:
    for one in verdict.named:
        if one.kind == "rail":
            yield _rail(one, verdict, nics.get((one.nodes[0], one.rail or 0), ()))
        else:
            yield {"node": _node, "path": _path, "group": _group}[one.kind](one, verdict)


def _percent(one: Named) -> str:
    return f"{100 * one.share:.0f} % of {{normal:.1f}} GB/s, {one.slow} of {one.runs} runs slow"


def _words(one: Named, verdict: Verdict) -> str:
    return _percent(one).format(normal=verdict.normal)


def _node(one: Named, verdict: Verdict) -> Finding:
    (node,) = one.nodes
    if one.how in (HUNG, FAILED, WRONG):
        return BAD_NODE.found(
            f"{one.how} in {one.slow} of {one.runs} runs, with partners that were fine with others",
            suggest=[
                suggest.drain(BAD_NODE.id),
                Suggestion(LOOK, "look at the node", "srun -w {nodes} hpslurm-check"),
                suggest.save_evidence(),
            ],
            subject=node,
        )
    where = {
        True: "; slow alone, too: its GPUs, NVLink or PCIe",
        False: "; fine alone: its network",
        None: "",
    }[one.inside]
    return SLOW_NODE.found(
        f"{one.how}: {_words(one, verdict)}{where}",
        suggest=[
            Suggestion(LOOK, "look at the node", "srun -w {nodes} hpslurm-check"),
            suggest.drain(SLOW_NODE.id),
            suggest.save_evidence(),
        ],
        subject=node,
    )


def _rail(one: Named, verdict: Verdict, nics: Sequence[str]) -> Finding:
    short = ", ".join(clean(name.partition(" ")[0], 64) if name.endswith(")") else clean(name, 64) for name in nics)
    said = f"its NICs {short}" if len(nics) > 1 else f"its NIC {short}" if nics else "its NICs"
    evidence = [Evidence("NCCL log of the rail runs", f"GPU {one.rail}: {clean(name, 100)}") for name in nics]
    return SLOW_RAIL.found(
        f"GPU {one.rail} and {said}: {_words(one, verdict)} with all GPUs; the other positions are fine",
        evidence=evidence or [Evidence("NCCL log of the rail runs", "NCCL's log does not name its NICs")],
        suggest=[
            Suggestion(LOOK, "errors of the NICs of that GPU", "srun -w {nodes} hpslurm-check"),
            suggest.drain(SLOW_RAIL.id),
        ],
        subject=one.nodes[0],
    )


def _path(one: Named, verdict: Verdict) -> Finding:
    between = " and ".join(one.blocks) if one.blocks else " and ".join(one.nodes)
    return SLOW_PATH.found(
        f"between {clean(between)}: {_words(one, verdict)}; each is fast with others",
        evidence=[Evidence("nodes", nodeset.fold(one.nodes))],
        suggest=[Suggestion(LOOK, "see where the nodes are in the network", "scontrol show topology")],
    )


def _group(one: Named, verdict: Verdict) -> Finding:
    return SLOW_GROUP.found(
        f"pairs are fast, but groups with {nodeset.fold(one.nodes)} reach {100 * one.share:.0f} % of groups without",
        suggest=[
            Suggestion(
                LOOK, "look at these nodes first", f"srun -w {shlex.quote(nodeset.fold(one.nodes))} hpslurm-check"
            )
        ],
    )


def _wrong(verdict: Verdict) -> Iterator[Finding]:
    """Once is enough: what was computed cannot be trusted, whoever it was."""
    if verdict.wrong:
        nodes = sorted({node for one in verdict.wrong for node in one})
        yield WRONG_DATA.found(
            f"{len(verdict.wrong)} runs computed wrong data, and no node explains them",
            evidence=[Evidence("nodes of the run", nodeset.fold(one)) for one in verdict.wrong[:10]],
            suggest=[
                Suggestion(LOOK, "look at these nodes", f"srun -w {shlex.quote(nodeset.fold(nodes))} hpslurm-check"),
                Suggestion(LOOK, "search more thoroughly", "hpslurm nccl-tests --find-slow --preset full"),
            ],
        )


def _all_slow(verdict: Verdict, policy: Policy, instance: str, gpus: int, size: int) -> Iterator[Finding]:
    look = [Suggestion(LOOK, "judge one pair with NCCL's log", "hpslurm nccl-tests --nodes 2")]
    if verdict.bad:
        yield ALL_BAD.found(f"not one pair was fast; they ended: {', '.join(verdict.bad)}", suggest=look)
        return
    wanted = expected(instance, 2, gpus, "all_reduce", size)
    if wanted and verdict.normal and verdict.normal < policy.bandwidth_warn_below * wanted[0]:
        rule = ALL_BAD if verdict.normal < policy.bandwidth_fail_below * wanted[0] else ALL_SLOW
        yield rule.found(
            f"the faster pairs reach {verdict.normal:.1f} GB/s at {size_name(size)}, {wanted[0]:.1f} expected",
            evidence=[Evidence("expected", wanted[1])],
            suggest=look,
        )


def _whole(verdict: Verdict, policy: Policy, instance: str, gpus: int, size: int) -> Iterator[Finding]:
    """The run of all nodes, where pairs were fine and halving named nobody."""
    look = [Suggestion(LOOK, "judge all nodes with NCCL's log", "hpslurm nccl-tests")]
    if verdict.whole is None or any(one.kind == "group" for one in verdict.named):
        return
    if verdict.whole_status == WRONG:
        return  # said already
    if verdict.whole_status in (HUNG, FAILED):
        yield WHOLE_BAD.found(f"pairs are fast, but all nodes together: {verdict.whole_status}", suggest=look)
        return
    wanted = expected(instance, verdict.nodes, gpus, "all_reduce", size)
    if wanted and verdict.whole < policy.bandwidth_warn_below * wanted[0]:
        said, source = f"{wanted[0]:.1f} expected", wanted[1]
    elif not wanted and verdict.whole < WHOLE_SHARE * verdict.normal:
        said, source = f"{verdict.normal:.1f} in pairs", "less than half of the pairs; no figure has a source here"
    else:
        return
    yield WHOLE_SLOW.found(
        f"all nodes together reach {verdict.whole:.1f} GB/s at {size_name(size)}, {said}",
        evidence=[Evidence("compared with", source)],
        suggest=look,
    )


def _open(verdict: Verdict) -> Iterator[Finding]:
    if verdict.undecided:
        yield UNDECIDED.found(
            f"not decided: {nodeset.fold(verdict.undecided)} (no good partner left, or too few rounds)",
            suggest=[Suggestion(LOOK, "search more thoroughly", "hpslurm nccl-tests --find-slow --preset full")],
        )
    if verdict.once:
        yield ONCE.found(
            "; ".join(f"{nodeset.fold(pair)}" for pair in verdict.once[:10]) + ": a fault that comes and goes looks so",
            suggest=[Suggestion(LOOK, "search more thoroughly", "hpslurm nccl-tests --find-slow --preset full")],
        )


# lines that a later call goes on from


def head_line(state: State, program: str) -> dict[str, Any]:
    """The first line of a search: all that the planner needs besides results."""
    return {
        "schema": 1,
        "type": "search",
        "program": program,
        "nodes": list(state.nodes),
        "blocks": dict(state.blocks),
        "options": asdict(state.options),
    }


def result_line(result: Result, number: int) -> dict[str, Any]:
    """One run of round ``number``, counted from 0."""
    run = result.run
    return {
        "schema": 1,
        "type": "run",
        "round": number,
        "kind": run.kind,
        "nodes": list(run.nodes),
        "rail": run.rail,
        "rate": result.rate,
        "status": result.status,
    }


def resumed(text: str, source: str) -> tuple[State, tuple[Result, ...]]:
    """The state after the last complete round, and the results of the one that was cut off.

    Raises ValueError that names file and line; a last line that was cut off is passed over.
    """
    lines = text.splitlines()
    state = _head(lines[0] if lines else "", source)
    rounds: dict[int, list[Result]] = {}
    for number, line in enumerate(lines[1:], start=2):
        try:
            place, result = _row(line)
        except (ValueError, KeyError, TypeError, RecursionError):
            if number == len(lines):
                break
            raise ValueError(f"{source}: line {number} is no result of a run") from None
        if result.status not in (OK, HUNG, FAILED, WRONG) or not set(result.run.nodes) <= set(state.nodes):
            raise ValueError(f"{source}: line {number} names nodes or a status that the search does not know")
        rounds.setdefault(place, []).append(result)
    for number in range(len(rounds)):
        planned = search.next_round(state)
        done = {one.run: one for one in rounds.get(number, ())}
        if not set(done) <= set(planned):
            raise ValueError(f"{source}: round {number} is not the one that was planned; start a new search")
        if len(done) < len(planned):
            return state, tuple(done.values())
        state = search.observe(state, [done[run] for run in planned])
    return state, ()


def _head(line: str, source: str) -> State:
    """The state before the first round. Raises ValueError in words."""
    try:
        head = json.loads(line)
        nodes, blocks, given = head["nodes"], head["blocks"], head["options"]
        texts = [*nodes, *blocks, *blocks.values()]
        if head["type"] != "search" or not all(isinstance(one, str) for one in texts) or len(set(nodes)) < len(nodes):
            raise ValueError
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ValueError(f"{source}: line 1 is no head of a search (written by --find-slow)") from None
    usual = asdict(Options())
    if set(given) != set(usual) or any(type(given[name]) is not type(value) for name, value in usual.items()):
        raise ValueError(f"{source}: line 1 was written by another version of hpslurm; start a new search")
    return State(tuple(nodes), Options(**given), dict(blocks))


def _row(line: str) -> tuple[int, Result]:
    """The round, and what a run came to. Raises ValueError, KeyError, TypeError or RecursionError."""
    row = json.loads(line)
    kind, nodes, rail, rate, place = row["kind"], row["nodes"], row["rail"], row["rate"], row["round"]
    whole = all(type(one) is int and one >= 0 for one in (place, rail or 0))
    named = isinstance(nodes, list) and all(isinstance(one, str) for one in (kind, row["status"], *nodes))
    measured = rate is None or (type(rate) in (int, float) and 0 <= rate < float("inf"))
    if not (whole and named and measured):
        raise ValueError
    return place, Result(Run(kind, tuple(nodes), rail), None if rate is None else float(rate), row["status"])
