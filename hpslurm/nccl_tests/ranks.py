"""On how many ranks a run really was: by what was meant, by the list of devices, and by busbw / algbw of its rows.

Without MPI every process tests its own GPU, and a table that looks fine says nothing about the network.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from hpslurm.core.finding import LOOK, Evidence, Finding, Suggestion
from hpslurm.core.values import dataclass
from hpslurm.nccl_tests.rules import NEVER_LEFT, ONE_RANK, RANKS, SHARED
from hpslurm.nccl_tests.verdict import Facts
from hpslurm.nccl_tests.words import count
from hpslurm.node import instance
from hpslurm.scan.nccl_tests import Row, Table

_LOOK_AT_MPI = (
    Suggestion(LOOK, "a build without MPI never starts a second node", "ldd $(command -v all_reduce_perf) | grep mpi"),
    Suggestion(LOOK, "srun must speak the PMI of that MPI", "srun --mpi=list"),
)


def factor(collective: str, ranks: int) -> float | None:
    """busbw divided by algbw for this many ranks, or None where it tells nothing about them."""
    if collective == "all_reduce":
        return 2 * (ranks - 1) / ranks
    if collective in ("all_gather", "reduce_scatter", "alltoall", "gather", "scatter"):
        return (ranks - 1) / ranks
    return None


def measured_ratio(rows: Iterable[Row]) -> tuple[float, float] | None:
    """busbw / algbw of the fastest row, and by how much rounding may have moved it."""
    halves = [half for row in rows for half in row.halves if half.algbw > 0 and math.isfinite(half.algbw)]
    if not halves:
        return None
    best = max(halves, key=lambda half: half.algbw)
    if not math.isfinite(best.busbw):
        return None
    ratio = best.busbw / best.algbw
    unit = 0.005 if best.algbw < 1000 else 0.5
    return ratio, 0.002 + unit / best.algbw * (1 + ratio)


def collective_of(table: Table) -> str:
    """The name of the test; up to 2.16 the table has none, and only all_reduce shows in its numbers."""
    measured = measured_ratio(table.rows)
    if table.collective or measured is None:
        return table.collective
    ratio, slack = measured
    return "all_reduce" if ratio > 1 + slack else ""


def ranks_from(collective: str, ratio: float, slack: float) -> int | None:
    """The number of ranks that gives this ratio; None for one that cannot be told any more."""
    whole = 2.0 if collective == "all_reduce" else 1.0
    if factor(collective, 2) is None or whole - ratio <= slack:
        return None
    return max(1, round(whole / (whole - ratio)))


@dataclass(frozen=True)
class Ranks:
    """What each source says about the size of the run."""

    meant: int | None
    listed: int | None
    hosts: int | None
    measured: int | None  # from busbw / algbw, where it can be told
    fits: bool  # whether the ratio fits what was meant or listed
    elided: bool  # the list of devices leaves some out

    @property
    def number(self) -> int | None:
        """The best that is known: of a list that leaves some out, only what the ratio says of all."""
        return self.meant or (None if self.elided else self.listed) or self.measured or self.listed


def ranks_of(facts: Facts, table: Table) -> Ranks:
    listed = max((device.rank for device in table.devices), default=-1) + 1 or None
    if table.parameters and listed:  # JSON lists one entry a process
        listed = max(
            listed,
            len(table.devices) * (table.parameters.gpus * table.parameters.threads if not table.first_line else 1),
        )
    meant = facts.nodes * facts.gpus if facts.nodes and facts.gpus else None
    ratio = measured_ratio(table.rows)
    measured = ranks_from(collective_of(table), *ratio) if ratio else None
    # More ranks than are listed is no fault of a run, which can only lose some: whoever copied the list shortened it.
    elided = table.elided or bool(not meant and listed and measured and measured > listed and not _fit(table, listed))
    wanted = meant or (None if elided else listed) or facts.output.log.ranks
    fits = wanted is None or _fit(table, wanted)
    return Ranks(meant, listed, _hosts(facts, table, elided=elided), measured, fits, elided)


def _fit(table: Table, ranks: int) -> bool:
    """Whether busbw / algbw may be that of so many ranks."""
    measured, should = measured_ratio(table.rows), factor(collective_of(table), ranks)
    return measured is None or should is None or abs(should - measured[0]) <= measured[1]


def _hosts(facts: Facts, table: Table, *, elided: bool) -> int | None:
    """Hosts in the list of devices; where that leaves some out, those that spoke in NCCL's log, too.

    A list without its beginning says nothing of how many there were.
    """
    if elided and not facts.output.log.hosts and all(device.rank for device in table.devices):
        return None
    return len({*table.hosts, *facts.output.log.hosts} if elided else table.hosts) or None


def nodes_of(facts: Facts, ranks: Ranks) -> int | None:
    """How many nodes: as meant, as listed, or all GPUs of so many nodes of this type as make the ranks."""
    gpus = (instance.table().get(facts.instance) or instance.Expected(None, None)).gpus
    whole = ranks.number // gpus if gpus and ranks.number and ranks.number % gpus == 0 else None
    if facts.nodes or (ranks.hosts and not ranks.elided):
        return facts.nodes or ranks.hosts
    return max(whole, ranks.hosts or 1) if whole else ranks.hosts


def other_ranks(facts: Facts, table: Table, ranks: Ranks) -> Finding | None:
    """What to say where it ran on others than meant: on one node only, or on another number."""
    meant_nodes = facts.nodes or 1
    measured = f"busbw / algbw says {ranks.measured}" if ranks.measured else "busbw / algbw fits no such number"
    of_one_node = facts.gpus or (ranks.listed // ranks.hosts if ranks.listed and ranks.hosts else None)
    nodes = max(meant_nodes, ranks.hosts or 1)
    one_node_fits = not ranks.fits and nodes > 1 and of_one_node is not None and ranks.measured == of_one_node
    if one_node_fits or (meant_nodes > 1 and ranks.hosts == 1 and not ranks.elided):
        return NEVER_LEFT.found(
            f"{count(nodes, 'node')} were meant, but the ranks of one node talked only to each other ({measured})",
            evidence=_device_list(table, ranks),
            suggest=_LOOK_AT_MPI,
        )
    other_list = bool(ranks.meant and ranks.listed and ranks.meant != ranks.listed)
    other_hosts = bool(facts.nodes and ranks.hosts and facts.nodes != ranks.hosts)
    if ranks.fits and (ranks.elided or not (other_list or other_hosts)):
        return None
    said = measured if not ranks.fits else f"on {count(ranks.hosts, 'host')}"
    wanted = ranks.meant or ranks.listed or facts.output.log.ranks
    return RANKS.found(
        f"{count(wanted, 'rank')} on {count(facts.nodes or ranks.hosts, 'node')} were meant; "
        f"the device list has {ranks.listed or 'none'}, {said}",
        evidence=_device_list(table, ranks),
        suggest=_LOOK_AT_MPI,
    )


def _device_list(table: Table, ranks: Ranks) -> list[Evidence]:
    listed = count(ranks.listed, "rank") if ranks.listed else "no ranks"
    return [Evidence("device list", f"{listed} on {', '.join(table.hosts[:8]) or 'no host'}")]


def shared_gpu(table: Table) -> Finding | None:
    """Ranks on one GPU. Where every GPU of a host with several has as many, hosts of one name are likelier."""
    per_gpu: dict[tuple[str, str], set[int]] = {}
    for device in table.devices:
        if device.pci and "MIG" not in device.name:
            per_gpu.setdefault((device.host, device.pci), set()).add(device.rank)
    shared = {gpu: ranks for gpu, ranks in per_gpu.items() if len(ranks) > 1}
    if not shared or (len(per_gpu) > 1 and len({len(ranks) for ranks in per_gpu.values()}) == 1):
        return None
    (host, pci), ranks = next(iter(shared.items()))
    return SHARED.found(
        f"ranks {', '.join(map(str, sorted(ranks)[:8]))} are all on GPU {pci} of {host}: they take turns, and no "
        "link between GPUs was measured",
        evidence=[
            Evidence("device list", f"{host} {pci}: {len(ranks)} ranks") for (host, pci), ranks in shared.items()
        ],
        suggest=[Suggestion(LOOK, "see what a step gets", "srun -N1 --ntasks-per-node=1 nvidia-smi -L")],
    )


def one_rank(table: Table) -> Finding:
    return ONE_RANK.found(
        f"one rank has nobody to talk to; nccl-tests prints busbw 0 then ({len(table.rows)} sizes ran)",
        suggest=[Suggestion(LOOK, "two GPUs or more are needed", "hpslurm nccl-tests --gpus 8")],
    )


def shape(facts: Facts) -> tuple[str, int, int, str] | None:
    """Collective, nodes, ranks and NCCL version of the run, or None where nodes, ranks or rows are not known."""
    if not facts.output.tables:
        return None
    table = facts.output.tables[-1]
    ranks = ranks_of(facts, table)
    nodes, number = nodes_of(facts, ranks), ranks.meant or (None if ranks.elided else ranks.listed)
    if not nodes or not number or not (collective_of(table) or table.rows):
        return None
    return collective_of(table) or "all_reduce", nodes, number, table.nccl or facts.output.log.version
