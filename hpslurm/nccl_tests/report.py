"""What a search for the slow node came to: findings, and the exit code."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence

from hpslurm.core import nodeset, suggest
from hpslurm.core.finding import LOOK, P0, P1, P2, Evidence, Finding, Rule, Suggestion
from hpslurm.core.policy import Policy
from hpslurm.core.text import clean
from hpslurm.nccl_tests.accused import Named, Verdict
from hpslurm.nccl_tests.expected import expected
from hpslurm.nccl_tests.rules import WRONG as WRONG_DATA
from hpslurm.nccl_tests.runs import FAILED, HUNG, WRONG
from hpslurm.nccl_tests.words import size_name

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
    about = (verdict, policy, instance, gpus, size)
    together = list(_all_slow(*about)) or _whole(*about)
    every = [*_named(verdict, nics), *_wrong(verdict), *together, *_open(verdict)]
    return [policy.mute(finding) for finding in every]


def exit_code(verdict: Verdict, findings: Sequence[Finding], policy: Policy) -> int:
    """3 for wrong data, what hangs or fails, and rates below ``fail_below``; 1 when nothing was measured; else 0."""
    counted = {finding.rule for finding in findings if not finding.muted}
    if not verdict.tested:
        return 3 if WRONG_DATA in counted else 1
    named = SLOW_NODE in counted or SLOW_RAIL in counted or SLOW_PATH in counted or SLOW_GROUP in counted
    grave = any(each.share < policy.bandwidth_fail_below for each in verdict.named)
    return 3 if any(rule.priority == P0 for rule in counted) or (named and grave) else 0


def _named(verdict: Verdict, nics: Nics) -> Iterator[Finding]:
    for named in verdict.named:
        if named.kind == "rail":
            yield _rail(named, verdict, nics.get((named.nodes[0], named.rail or 0), ()))
        else:
            yield {"node": _node, "path": _path, "group": _group}[named.kind](named, verdict)


def _how_slow(named: Named, verdict: Verdict) -> str:
    return f"{100 * named.share:.0f} % of {verdict.normal:.1f} GB/s, {named.slow} of {named.runs} runs slow"


def _node(named: Named, verdict: Verdict) -> Finding:
    (node,) = named.nodes
    if named.how in (HUNG, FAILED, WRONG):
        return BAD_NODE.found(
            f"{named.how} in {named.slow} of {named.runs} runs, with partners that were fine with others",
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
    }[named.inside]
    return SLOW_NODE.found(
        f"{named.how}: {_how_slow(named, verdict)}{where}",
        suggest=[
            Suggestion(LOOK, "look at the node", "srun -w {nodes} hpslurm-check"),
            suggest.drain(SLOW_NODE.id),
            suggest.save_evidence(),
        ],
        subject=node,
    )


def _rail(named: Named, verdict: Verdict, nics: Sequence[str]) -> Finding:
    short = ", ".join(clean(name.partition(" ")[0], 64) if name.endswith(")") else clean(name, 64) for name in nics)
    said = f"its NICs {short}" if len(nics) > 1 else f"its NIC {short}" if nics else "its NICs"
    evidence = [Evidence("NCCL log of the rail runs", f"GPU {named.rail}: {clean(name, 100)}") for name in nics]
    return SLOW_RAIL.found(
        f"GPU {named.rail} and {said}: {_how_slow(named, verdict)} with all GPUs; the other positions are fine",
        evidence=evidence or [Evidence("NCCL log of the rail runs", "NCCL's log does not name its NICs")],
        suggest=[
            Suggestion(LOOK, "errors of the NICs of that GPU", "srun -w {nodes} hpslurm-check"),
            suggest.drain(SLOW_RAIL.id),
        ],
        subject=named.nodes[0],
    )


def _path(named: Named, verdict: Verdict) -> Finding:
    between = " and ".join(named.blocks) if named.blocks else " and ".join(named.nodes)
    return SLOW_PATH.found(
        f"between {clean(between)}: {_how_slow(named, verdict)}; each is fast with others",
        evidence=[Evidence("nodes", nodeset.fold(named.nodes))],
        suggest=[Suggestion(LOOK, "see where the nodes are in the network", "scontrol show topology")],
    )


def _group(named: Named, verdict: Verdict) -> Finding:
    return SLOW_GROUP.found(
        f"pairs are fast, but groups with {nodeset.fold(named.nodes)} reach {100 * named.share:.0f} % of groups "
        "without",
        suggest=[
            Suggestion(
                LOOK, "look at these nodes first", f"srun -w {shlex.quote(nodeset.fold(named.nodes))} hpslurm-check"
            )
        ],
    )


def _wrong(verdict: Verdict) -> Iterator[Finding]:
    """Once is enough: what was computed cannot be trusted, whoever it was."""
    if verdict.wrong:
        nodes = sorted({node for run in verdict.wrong for node in run})
        yield WRONG_DATA.found(
            f"{len(verdict.wrong)} runs computed wrong data, and no node explains them",
            evidence=[Evidence("nodes of the run", nodeset.fold(run)) for run in verdict.wrong[:10]],
            suggest=[
                Suggestion(LOOK, "look at these nodes", f"srun -w {shlex.quote(nodeset.fold(nodes))} hpslurm-check"),
                Suggestion(LOOK, "search more thoroughly", "hpslurm nccl-tests --find-slow --preset full"),
            ],
        )


def _all_slow(verdict: Verdict, policy: Policy, instance: str, gpus: int, size: int) -> Iterator[Finding]:
    steps = [Suggestion(LOOK, "judge one pair with NCCL's log", "hpslurm nccl-tests --nodes 2")]
    if verdict.bad:
        yield ALL_BAD.found(f"not one pair was fast; they ended: {', '.join(verdict.bad)}", suggest=steps)
        return
    wanted = expected(instance, 2, gpus, "all_reduce", size)
    if wanted and verdict.normal and verdict.normal < policy.bandwidth_warn_below * wanted[0]:
        rule = ALL_BAD if verdict.normal < policy.bandwidth_fail_below * wanted[0] else ALL_SLOW
        yield rule.found(
            f"the faster pairs reach {verdict.normal:.1f} GB/s at {size_name(size)}, {wanted[0]:.1f} expected",
            evidence=[Evidence("expected", wanted[1])],
            suggest=steps,
        )


def _whole(verdict: Verdict, policy: Policy, instance: str, gpus: int, size: int) -> Iterator[Finding]:
    """The run of all nodes, where pairs were fine and halving named nobody."""
    steps = [Suggestion(LOOK, "judge all nodes with NCCL's log", "hpslurm nccl-tests")]
    if verdict.whole is None or any(named.kind == "group" for named in verdict.named):
        return
    if verdict.whole_status == WRONG:
        return  # said already
    if verdict.whole_status in (HUNG, FAILED):
        yield WHOLE_BAD.found(f"pairs are fast, but all nodes together: {verdict.whole_status}", suggest=steps)
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
        suggest=steps,
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
