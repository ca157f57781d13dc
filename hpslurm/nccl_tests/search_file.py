"""The file of a search, which a later call can go on from.

Each result is one JSON line, written when its run ends, so a search survives a time limit or a lost node.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from hpslurm.core.values import asdict
from hpslurm.nccl_tests.runs import FAILED, HUNG, OK, WRONG, Options, Result, Run, State, observe
from hpslurm.nccl_tests.search import next_round

MOST = 1000  # of anything that an option counts: --preset full asks for 24


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
    lines = text.removesuffix("\n").split("\n")
    state = _head(lines[0], source)
    rounds = _rounds(lines, state, source)
    for number in range(len(rounds)):
        planned = next_round(state)
        done = {result.run: result for result in rounds.get(number, ())}
        if not set(done) <= set(planned):
            raise ValueError(f"{source}: round {number} is not the one that was planned; start a new search")
        if len(done) < len(planned):
            return state, tuple(done.values())
        state = observe(state, [done[run] for run in planned])
    return state, ()


def _rounds(lines: Sequence[str], state: State, source: str) -> dict[int, list[Result]]:
    """The results by the number of their round. Raises ValueError in words."""
    rounds: dict[int, list[Result]] = {}
    for number, line in enumerate(lines[1:], start=2):
        try:
            place, result = _row(line)
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
            if number == len(lines):
                break
            raise ValueError(f"{source}: line {number} is not a result of a run") from None
        if result.status not in (OK, HUNG, FAILED, WRONG) or not set(result.run.nodes) <= set(state.nodes):
            raise ValueError(f"{source}: line {number} names nodes or a status that the search does not know")
        rounds.setdefault(place, []).append(result)
    return rounds


def _head(line: str, source: str) -> State:
    """The state before the first round. Raises ValueError in words."""
    try:
        head = json.loads(line)
        nodes, blocks, given = head["nodes"], head["blocks"], head["options"]
        texts = [*nodes, *blocks, *blocks.values()]
        if head["type"] != "search" or not all(isinstance(text, str) for text in texts):
            raise ValueError
        if type(nodes) is not list or len(set(nodes)) < max(2, len(nodes)) or type(given) is not dict:
            raise ValueError
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ValueError(f"{source}: line 1 does not begin a search (written by --find-slow)") from None
    usual = asdict(Options())
    if set(given) != set(usual) or any(type(given[name]) is not type(value) for name, value in usual.items()):
        raise ValueError(f"{source}: line 1 was written by another version of hpslurm; start a new search")
    if any(not 0 <= given[name] <= MOST for name in usual if name != "seed"):
        raise ValueError(f"{source}: line 1 asks for more than any search does; start a new search")
    return State(tuple(nodes), Options(**given), dict(blocks))


def _row(line: str) -> tuple[int, Result]:
    """The round, and what a run came to. Raises ValueError, KeyError, TypeError, OverflowError or RecursionError."""
    row = json.loads(line)
    kind, nodes, rail, rate, place = row["kind"], row["nodes"], row["rail"], row["rate"], row["round"]
    whole = all(type(number) is int and number >= 0 for number in (place, 0 if rail is None else rail))
    named = isinstance(nodes, list) and all(isinstance(text, str) for text in (kind, row["status"], *nodes))
    measured = rate is None or (type(rate) in (int, float) and 0 <= rate < float("inf"))
    if not (whole and named and measured):
        raise ValueError
    return place, Result(Run(kind, tuple(nodes), rail), None if rate is None else float(rate), row["status"])
