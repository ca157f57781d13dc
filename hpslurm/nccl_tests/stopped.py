"""Why a run has no numbers, not all of them, or those of several programs."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator

from hpslurm.core.finding import CONFIGURE, LOOK, Evidence, Finding, Suggestion
from hpslurm.nccl_tests.rules import ERROR, HANG, INCOMPLETE, NO_MPI, NOTHING, SEVERAL, USAGE
from hpslurm.nccl_tests.verdict import Facts
from hpslurm.nccl_tests.words import count, size_name
from hpslurm.scan.nccl_tests import DONE, Output, Table

_HELD = re.compile(r"busy or unavailable|cudaErrorDevicesUnavailable|exclusive-(?:thread|process)|all CUDA-capable")
_WHO_HOLDS = [
    Suggestion(
        LOOK,
        "see the compute mode and who is on the GPUs; Exclusive_Process lets in one process for each, and MPI builds "
        "start several where ranks share a GPU",
        "srun -w {nodes} nvidia-smi --query-gpu=index,compute_mode --format=csv",
    ),
    Suggestion(
        CONFIGURE,
        "set the default mode again, in the lifecycle script as well",
        "clush -w {nodes} 'sudo nvidia-smi -c 0'",
    ),
]


def each_for_itself(output: Output) -> bool:
    """Whether Open MPI 5 found no PMIx and started every rank as a job of its own, so that no table is of the run."""
    return "No PMIx server was reachable" in output.pmi


def stopped(facts: Facts, table: Table | None) -> Iterator[Finding]:
    """The first reason that fits, and whether there are more tables than one. ``table`` is the last one."""
    output = facts.output
    nothing_ran = _unreadable(output) or _only_usage(output, table) or start_trouble(output, table)
    if nothing_ran is not None:
        yield nothing_ran
        return
    reason = _hang(facts) or _too_few_gpus(output) or _failure(output)
    if table is None:
        yield reason or _no_table(facts)
        return
    if reason is not None:
        yield reason
    else:
        yield from of_table(facts, table)
    yield from _several(facts, table)


def of_table(facts: Facts, table: Table) -> Iterator[Finding]:
    """The first reason that fits why one table has not all of its numbers."""
    reasons = (reason_of(facts, table) for reason_of in _OF_A_TABLE)
    yield from [reason for reason in reasons if reason is not None][:1]


def _unreadable(output: Output) -> Finding | None:
    return NOTHING.found(f"{output.source}: {output.bad_json}") if output.bad_json else None


def _only_usage(output: Output, table: Table | None) -> Finding | None:
    if not output.usage or (table and table.rows):
        return None
    return USAGE.found(
        f"it printed {output.usage!r} and no table; nccl-tests then still exits with 0",
        evidence=[Evidence(output.source, output.usage)],
        suggest=[
            Suggestion(
                LOOK,
                "this build is older than one of the options; ask it for those it knows, then leave out the others",
                "all_reduce_perf -h",
            )
        ],
    )


def start_trouble(output: Output, table: Table | None = None) -> Finding | None:
    """Why nothing ran, where the launcher or the loader said so."""
    if output.bad_argument:
        return ERROR.found(f"an argument was refused: {output.bad_argument}")
    if output.library:
        return ERROR.found(
            f"it did not start: {output.library}",
            suggest=[
                Suggestion(
                    CONFIGURE,
                    "put the folder of libnccl.so.2 into LD_LIBRARY_PATH of the job",
                    "ldd $(command -v all_reduce_perf)",
                )
            ],
        )
    if output.no_pyxis:
        return ERROR.found(
            f"pyxis is not installed on this cluster, so srun knows no containers: {output.no_pyxis}",
            suggest=[
                Suggestion(LOOK, "see what srun knows", "srun --help | grep container"),
                Suggestion(
                    CONFIGURE,
                    "run a program outside of containers, on a file system that all nodes see; or add pyxis to "
                    "plugstack.conf on every node",
                    "hpslurm nccl-tests --program /fsx/nccl-tests/build",
                ),
            ],
        )
    if output.pmi and table is None:
        return ERROR.found(
            f"srun and the MPI of this build do not find each other: {output.pmi}",
            suggest=[
                Suggestion(LOOK, "see which kinds of PMI srun has, then name one with --mpi", "srun --mpi=list"),
                Suggestion(LOOK, "let Open MPI start the ranks", "hpslurm nccl-tests --launcher mpirun"),
            ],
        )
    return None


def _hang(facts: Facts) -> Finding | None:
    output = facts.output
    if not (facts.timed_out or output.timeout or "TIME LIMIT" in output.cancelled):
        return None
    limit = f"after {facts.timed_out:.0f} s it was ended by its time limit" if facts.timed_out else ""
    text = limit or output.timeout or output.cancelled
    last = output.tables[-1].rows[-1] if output.tables and output.tables[-1].rows else None
    after = f"; the last size done was {size_name(last.size)}" if last else ""
    return HANG.found(
        f"it hung {output.phase()}{after} ({text})",
        evidence=_lines(output, [*output.log.warnings[:5], *output.launcher[:5]]),
        suggest=[
            Suggestion(LOOK, "find the node that holds the others", "hpslurm nccl-tests --find-slow"),
            Suggestion(
                LOOK,
                "see where the ranks wait, while one hangs",
                "srun --overlap --jobid=$SLURM_JOB_ID -w {nodes} py-spy dump --pid PID",
            ),
        ],
    )


def _too_few_gpus(output: Output) -> Finding | None:
    if not output.too_few_gpus:
        return None
    return ERROR.found(
        f"{output.too_few_gpus}: more processes on a node than it has GPUs",
        suggest=[Suggestion(LOOK, "see what a step gets", "srun -N1 --ntasks-per-node=1 nvidia-smi -L")],
    )


def _failure(output: Output) -> Finding | None:
    if not output.failures:
        return None
    lines = [*output.failures, *output.log.warnings]
    if any(_HELD.search(line) for line in lines):
        return ERROR.found(
            f"{output.failures[0]}: another process holds the GPU, or its compute mode lets only one in",
            evidence=_lines(output, lines),
            suggest=_WHO_HOLDS,
        )
    return ERROR.found(
        f"{output.failures[0]}; it stopped {output.phase()}", evidence=_lines(output, lines), suggest=_ask_scan(output)
    )


def _no_table(facts: Facts) -> Finding:
    output = facts.output
    status = f"; exit status {facts.status}" if facts.status is not None else ""
    if output.cancelled:
        return NOTHING.found(f"the job was ended before it printed a table: {output.cancelled}")
    if output.orphans:
        return NOTHING.found(f"{output.orphans} rows without the header above them: keep the whole output")
    text = f"{output.lines} lines, but none of nccl-tests" if output.lines else "no output at all"
    return NOTHING.found(
        f"{output.source}: {text}{status}",
        evidence=_by_launcher_or_nccl(output),
        suggest=[Suggestion(LOOK, "see whether the program starts at all", "srun -N1 -n1 all_reduce_perf -h")],
    )


def _no_header(facts: Facts, table: Table) -> Finding | None:
    if not table.headless or table.average is not None:
        return None
    return NOTHING.found(f"{len(table.rows)} rows without the header above them: keep the whole output")


def _printed_error(facts: Facts, table: Table) -> Finding | None:
    output = facts.output
    if not table.errors:
        return None
    ended = "although it completed" if table.phase() == DONE else f"it stopped {output.phase()}"
    return ERROR.found(
        f"it printed the error {table.errors[0]!r}; {ended}",
        evidence=_lines(output, [*table.errors, *output.log.warnings]),
        suggest=_ask_scan(output),
    )


def _cut_off(facts: Facts, table: Table) -> Finding | None:
    output = facts.output
    if table.complete or table.phase() == DONE or output.excerpt(table):
        return None
    why = output.cancelled or (output.launcher[0] if output.launcher else "no reason given")
    wanted = table.wanted
    done = f"{len(table.rows)} sizes" if wanted is None else f"{wanted - table.missing} of {count(wanted, 'size')}"
    return INCOMPLETE.found(
        f"it stopped {output.phase()}, with {done} done: {why}",
        evidence=_by_launcher_or_nccl(output),
        suggest=_ask_scan(output),
    )


def _rows_missing(facts: Facts, table: Table) -> Finding | None:
    output = facts.output
    if not table.missing and table.torn:
        return INCOMPLETE.found(
            f"{count(table.torn, 'line')} of it can be read in part only: other lines in the same stream cut a row",
            evidence=[Evidence(output.source, "use NCCL_DEBUG_FILE, which keeps NCCL's lines out of the table")],
        )
    if not table.missing or table.shortened:
        return None
    there = f"{size_name(table.rows[0].size)} to {size_name(table.rows[-1].size)}" if table.rows else "none"
    return INCOMPLETE.found(
        f"{table.missing} of {count(table.wanted, 'size')} that were asked for have no readable row, "
        "although it completed",
        evidence=[
            Evidence(output.source, f"{count(len(table.rows), 'row')} that can be read: {there}"),
            Evidence(output.source, "NCCL lines in the same stream may have cut them: use NCCL_DEBUG_FILE"),
        ],
    )


def _end_missing(facts: Facts, table: Table) -> Finding | None:
    if not table.announced or table.concluded:
        return None
    end = "the time of its end is" if table.header[:1] == ("json",) else "the line that it ends with is"
    return INCOMPLETE.found(
        f"all sizes ran, but {end} missing: it was ended, or hung, in its last moments",
        evidence=_by_launcher_or_nccl(facts.output),
    )


def _ended_as_another(facts: Facts, table: Table) -> Finding | None:
    if not table.ended_as or table.ended_as == table.test:
        return None
    return INCOMPLETE.found(f"it began as {table.test} and ended as {table.ended_as}: two runs, or lines are missing")


def _part_missing(facts: Facts, table: Table) -> Finding | None:
    if facts.output.excerpt(table):
        return None
    if not table.rows:
        gone = "its rows"
    elif not table.footed:
        gone = "its last lines"
    else:
        return None
    return INCOMPLETE.found(f"the table is complete, but {gone} cannot be read: keep the whole output")


def _bad_status(facts: Facts, table: Table) -> Finding | None:
    """Exit codes 6 and 7 also stand for wrong data and for an average below a minimum, which is not judged."""
    explained = table.average_ok is False or any(row.wrong for row in table.rows) or table.bounds_ok is False
    if facts.status in (None, 0) or (facts.status in (6, 7) and explained):
        return None
    return ERROR.found(
        f"the table is complete, but the launcher ended with {facts.status}",
        evidence=_by_launcher_or_nccl(facts.output),
    )


# In the order in which they count.
_OF_A_TABLE = (
    _no_header,
    _printed_error,
    _cut_off,
    _rows_missing,
    _end_missing,
    _ended_as_another,
    _part_missing,
    _bad_status,
)


def _lines(output: Output, lines: Iterable[str]) -> list[Evidence]:
    return [Evidence(output.source, line) for line in lines]


def _by_launcher_or_nccl(output: Output) -> list[Evidence]:
    return _lines(output, [*output.launcher, *output.log.warnings])


def _ask_scan(output: Output) -> list[Suggestion]:
    return [Suggestion(LOOK, "let the log scan name the cause", f"hpslurm scan {shlex.quote(output.source)}")]


def _several(facts: Facts, table: Table) -> Iterator[Finding]:
    tables = facts.output.tables
    speakers = {other.label for other in tables if other.parameters or other.rows}
    copies = max(
        table.copies, len(speakers) if len(tables) > 1 else 1, sum(device.rank == 0 for device in table.devices)
    )
    copies = max(copies, _alone(table))
    if copies > 1 or (len(tables) > 1 and max(other.copies for other in tables) > 1):
        yield NO_MPI.found(
            f"{max(copies, 2)} programs ran side by side, each as rank 0: every process tested its own GPUs",
            evidence=_lines(facts.output, (f"line {head.first_line}: a head of its own" for head in tables[:4])),
            suggest=[
                Suggestion(LOOK, "a build with MPI names libmpi here", "ldd $(command -v all_reduce_perf) | grep mpi"),
                Suggestion(LOOK, "srun must speak the same PMI as that MPI", "srun --mpi=list"),
                Suggestion(LOOK, "or let Open MPI start the ranks", "hpslurm nccl-tests --launcher mpirun"),
            ],
        )
    elif len(tables) > 1:
        lines = ", ".join(str(other.first_line) for other in tables)
        yield SEVERAL.found(
            f"{len(tables)} tables (from lines {lines}): each is judged, and the sizes shown are those of the last one",
            suggest=[
                Suggestion(
                    LOOK,
                    "see the sizes of another",
                    f"hpslurm nccl-tests judge {shlex.quote(facts.output.source)} --table 1",
                )
            ],
        )


def _alone(table: Table) -> int:
    """How many programs each printed the same sizes: side by side, or with nobody to talk to, so that busbw stays 0."""
    sizes = [row.size for row in table.rows if row.size]
    often = Counter(sizes)
    if len(often) >= 3 and sizes == sorted(sizes) and min(often.values()) > 1:
        return min(often.values())
    fast = [row for row in table.rows if row.halves and max(half.algbw for half in row.halves) > 1]
    if not fast or any(half.busbw > 0 for row in fast for half in row.halves):
        return 1
    return max(Counter(row.size for row in fast).values())
