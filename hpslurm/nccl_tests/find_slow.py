"""The search for the slow node as it runs: rounds of steps, each result written down as it comes.

What to run next is decided in ``search.py``; a later call goes on from the file.
"""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hpslurm.core import nodeset, records
from hpslurm.core.text import clean
from hpslurm.nccl_tests import accused, search, search_file, steps
from hpslurm.nccl_tests.prepare import CannotRun
from hpslurm.nccl_tests.running import StepOutput, Warn, read_logs, run_steps, why_no_table
from hpslurm.nccl_tests.runs import FAILED, HUNG, OK, WRONG, Result, Run, State, observe
from hpslurm.scan import nccl_rails
from hpslurm.scan.nccl_tests import NcclLog
from hpslurm.sources import launch

FILE = "find-slow.jsonl"


class Search:
    """One search: plans, runs, writes each result as it comes."""

    def __init__(self, where: launch.Allocation, how: steps.How, state: State, path: str, most: int) -> None:
        self.where, self.how, self.state, self.path, self.most = where, how, state, path, most
        self.done: tuple[Result, ...] = ()  # of the round that was cut off
        self.why_no_table = ""

    def resume(self, path: str, text: str) -> None:
        """Go on from the file of an earlier search. Raises ValueError that names the line."""
        self.state, self.done = search_file.resumed(text, path)
        self.path = path

    def write(self, line: Mapping[str, Any]) -> None:
        """Append one whole line; a line that a killed call left behind without its end is closed first."""
        handle = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        try:
            size = os.fstat(handle).st_size
            torn = size and os.pread(handle, 1, size - 1) != b"\n"
            os.write(handle, (("\n" if torn else "") + records.encode(line) + "\n").encode())
        finally:
            os.close(handle)

    def begin(self) -> None:
        if not os.path.exists(self.path):
            self.write(search_file.head_line(self.state, self.how.program))

    def rounds(self) -> Iterator[str]:
        """Run all rounds; yields a line about each one that is over. Raises CannotRun where the first is in vain."""
        while runs := search.next_round(self.state):
            number = len(self.state.rounds)
            began = time.monotonic()
            known = {result.run: result for result in self.done}
            self.done = ()
            for result in self._round([run for run in runs if run not in known], number):
                known[result.run] = result
                self.write(search_file.result_line(result, number))
            results = [known[run] for run in runs]
            self.state = observe(self.state, results)
            if number == 0 and all(result.status == FAILED for result in results):
                os.unlink(self.path)  # there is nothing in it to go on from
                raise CannotRun(f"not one of {len(results)} runs printed a table. {self.why_no_table}")
            yield _about_round(number, results, time.monotonic() - began)

    def _round(self, runs: Sequence[Run], number: int) -> Iterator[Result]:
        here = set(self.where.nodes)
        lost = [run for run in runs if not set(run.nodes) <= here]
        for run in lost:  # the node is no longer in the allocation: that is what this run came to
            yield Result(run, None, FAILED)
        wanted = {}
        for place, run in enumerate(runs):
            if run not in lost:
                step = steps.of_run(run, self.how, f"{number}.{place}")
                wanted[step.name] = (run, step)
        self.why_no_table = ""
        what = f"round {number + 1}, {runs[0].kind if runs else ''}: "
        for ended in run_steps([step for _, step in wanted.values()], self.where, self.most, "", what):
            self.why_no_table = self.why_no_table or why_no_table(ended)
            yield result_of(wanted[ended.step.name][0], ended)


def _about_round(number: int, results: Sequence[Result], seconds: float) -> str:
    rates = sorted(result.rate for result in results if result.rate is not None)
    bad = [result for result in results if result.status != OK]
    span = f"{rates[0]:.1f} to {rates[-1]:.1f} GB/s" if rates else "no rate"
    more = f", {len(bad)} hung, failed or wrong" if bad else ""
    return f"round {number + 1}: {len(results)} x {results[0].run.kind}, {span}{more}, {seconds:.0f} s"


def result_of(run: Run, ended: StepOutput) -> Result:
    """What a planned run came to. A table that is not complete is a failure, whatever it shows."""
    end, output = ended.end, ended.reader.output
    if end is not None and end.timed_out:
        return Result(run, None, HUNG if end.started else FAILED)
    table = output.tables[-1] if output.tables else None
    if table is not None and (table.bounds_ok is False or any(row.wrong for row in table.rows)):
        return Result(run, None, WRONG)
    if table is None or not table.complete or table.reduced is not None or table.errors:
        return Result(run, None, FAILED)
    if table.announced and not table.concluded:
        return Result(run, None, FAILED)
    if not table.rows or not table.rows[-1].halves or len(output.tables) > 1:
        return Result(run, None, FAILED)
    rate = min(half.busbw for half in table.rows[-1].halves)
    return Result(run, rate) if 0 <= rate < float("inf") else Result(run, None, FAILED)


def blocks_of(where: launch.Allocation) -> dict[str, str]:
    """The leaf switch of each node, where Slurm knows a topology; else nothing."""
    leaves: dict[str, str] = {}
    for line in launch.ask("scontrol", ["show", "topology"], where).splitlines():
        words = dict(word.partition("=")[::2] for word in line.split())
        if words.get("Level") == "0" and words.get("Nodes"):
            leaf = clean(words.get("SwitchName", ""), 80)
            try:
                leaves.update((node, leaf) for node in launch.nodes_in(words["Nodes"]))
            except launch.CannotLaunch:
                continue
    blocks = {node: leaves[node] for node in where.nodes if node in leaves}
    return blocks if len(blocks) == len(where.nodes) and len(set(blocks.values())) > 1 else {}


def plan_lines(running: Search) -> Iterator[str]:
    """What it may cost at most, and the next round."""
    state = running.state
    bound = search.bound(len(state.nodes), state.options, running.most, running.how.preset.seconds)
    yield (
        f"at most {bound.rounds} rounds in {bound.waves} waves of {running.most} steps, {bound.minutes:.0f} minutes, "
        f"{bound.node_minutes:.0f} node-minutes; a healthy cluster needs {healthy_rounds(state)} rounds"
    )
    runs = search.next_round(state)
    if state.rounds:
        yield f"{len(state.rounds)} rounds are done already"
    if runs:
        yield f"next: {len(runs)} x {runs[0].kind}, {' '.join(nodeset.fold(run.nodes) for run in runs[:4])}" + (
            " ..." if len(runs) > 4 else ""
        )
        yield shlex.join(launch.command(steps.of_run(runs[0], running.how, f"{len(state.rounds)}.0"), running.where))


def healthy_rounds(state: State) -> int:
    """Rounds of a cluster on which every run is equally fast: the planner is asked."""
    trial = State(state.nodes, state.options, state.blocks)
    while runs := search.next_round(trial):
        trial = observe(trial, [Result(run, 1.0) for run in runs])
    return len(trial.rounds)


def nics_of_rails(verdict: accused.Verdict, folder: str, warn: Warn) -> dict[tuple[str, int], list[str]]:
    """For each slow rail, by node and GPU, its NICs as NCCL's lines of the rail runs name them."""
    nics: dict[tuple[str, int], list[str]] = {}
    for named in verdict.named:
        if named.rail is not None:
            log = NcclLog()
            read_logs(steps.rail_files(folder, named.rail), log, warn)
            nics[(named.nodes[0], named.rail)] = nccl_rails.of_gpu(log.rails, named.nodes[0], named.rail)
    return nics
