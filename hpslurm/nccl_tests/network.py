"""Which network a run used, by NCCL's own lines: EFA or TCP, with how many NICs, with GPUDirect or through the host."""

from __future__ import annotations

import re
from collections.abc import Iterator

from hpslurm.core.finding import CONFIGURE, LOOK, Evidence, Finding, Suggestion
from hpslurm.nccl_tests.expected import limits_of
from hpslurm.nccl_tests.rules import FEW_NICS, NO_GDR, OVER_TCP, UNEVEN_NICS, UNREACHABLE
from hpslurm.nccl_tests.sizes import TCP_RATIO
from hpslurm.nccl_tests.verdict import Facts, Size
from hpslurm.nccl_tests.words import size_name
from hpslurm.node import gpudirect, instance
from hpslurm.scan import nccl_rails
from hpslurm.scan.nccl_tests import NcclLog


def findings(facts: Facts, sizes: tuple[Size, ...], nodes: int | None) -> Iterator[Finding]:
    """What NCCL's lines, or bandwidth as low as that of TCP, say against the network."""
    log = facts.output.log
    if log.unreachable:
        yield UNREACHABLE.found(
            f"the first transfer was refused: {log.unreachable}",
            evidence=[Evidence("NCCL log", log.unreachable)],
            suggest=[
                Suggestion(
                    LOOK,
                    "the security group must name itself, inbound and outbound; 0.0.0.0/0 does not cover EFA",
                    "aws ec2 describe-security-groups --group-ids SG",
                ),
            ],
        )
    if (nodes or 1) < 2 and not log.over_net:
        return
    yield from _tcp(facts, sizes)
    yield from _few_nics(facts, sizes)
    yield from _uneven_nics(log.rails)
    if _over_rdma(log) and log.over_net and not log.over_gdr and _has_gpudirect(facts):
        yield NO_GDR.found(
            f"none of {log.over_net} channels between nodes uses GPUDirect RDMA" + _bandwidth_beside(sizes),
            suggest=[
                Suggestion(
                    LOOK,
                    "see whether a peer-memory module is loaded",
                    "srun -w {nodes} cat /sys/class/infiniband/*/device/p2p",
                )
            ],
        )


# GPUs of the types on which no driver of EFA offers GPUDirect.
_HOST_MEMORY = re.compile(r"\b(?:T4G?|A10G?|L4|L40S|V100|M60|GeForce|RTX|TITAN|Quadro)\b")


def _over_rdma(log: NcclLog) -> bool:
    """Whether the channels go over EFA or InfiniBand."""
    return log.fabric == "efa" or (log.fabric == "other" and any(name.startswith("IB") for name in log.net_names))


def _has_gpudirect(facts: Facts) -> bool:
    """Whether the machine could: by its type, else by the names of its GPUs."""
    if facts.instance:
        return facts.instance.startswith(gpudirect.REQUIRED)
    return not any(_HOST_MEMORY.search(device.name) for table in facts.output.tables for device in table.devices)


def _few_nics(facts: Facts, sizes: tuple[Size, ...]) -> Iterator[Finding]:
    log = facts.output.log
    efa = (instance.table().get(facts.instance) or instance.Expected(None, None)).efa
    few = {host: count for host, count in log.nics.items() if efa is not None and count < efa}
    if few or log.mixed_nics:
        some = ", ".join(f"{host} {count}" for host, count in sorted(few.items())[:8])
        yield FEW_NICS.found(
            (f"the plugin found {some} of {efa} EFA devices" if few else log.mixed_nics) + _bandwidth_beside(sizes),
            evidence=[Evidence("NCCL log", f"{host}: found {count} nics") for host, count in sorted(few.items())]
            or [Evidence("NCCL log", log.mixed_nics)],
            suggest=[Suggestion(LOOK, "count the devices on each node", "srun -w {nodes} hpslurm-check")],
        )


def _uneven_nics(rails: nccl_rails.Rails) -> Iterator[Finding]:
    ranks = list(nccl_rails.uneven(rails))
    if not ranks:
        return
    first = ranks[0]
    gpu = "" if first.gpu is None else f", GPU {first.gpu}"
    more = f" ({len(ranks)} ranks in all)" if len(ranks) > 1 else ""
    yield UNEVEN_NICS.found(
        f"rank {first.rank} on {first.host}{gpu}: {first.count} NICs, where {first.others} use {first.usual}{more}",
        evidence=[
            Evidence("NCCL log", f"{rank.host} rank {rank.rank}: {rank.count} NICs, {rank.usual} on {rank.others}")
            for rank in ranks[:16]
        ],
        suggest=[Suggestion(LOOK, "count the devices on the node", "srun -w {nodes} hpslurm-check")],
        subject=first.host if len({rank.host for rank in ranks}) == 1 else "",
    )


def _bandwidth_beside(sizes: tuple[Size, ...]) -> str:
    if not sizes:
        return ""
    last = sizes[-1]
    share = f", {round(100 * last.ratio)} % of {last.expected:.1f}" if last.ratio else ""
    return f"; {size_name(last.size)} reached {last.busbw:.1f} GB/s{share}"


def _tcp(facts: Facts, sizes: tuple[Size, ...]) -> Iterator[Finding]:
    log = facts.output.log
    about = limits_of(facts.instance)
    if about is not None and not about.get("efa"):
        return  # this type has no EFA: TCP is all it can do
    compared = [(size.busbw, size.expected or size.ceiling) for size in sizes if size.size >= 1 << 26]
    slow = [busbw for busbw, wanted in compared if wanted and busbw <= wanted * TCP_RATIO]
    if log.fabric == "tcp":
        line = next(iter(log.networks or log.net_names or log.providers), "")
        said = f"NCCL says it uses the network {line}" + ("" if about else " (wrong, if this instance type has EFA)")
    elif slow and log.fabric == "" and len(slow) == len(compared):
        said = "no NCCL log says which network, but so little is what TCP gives"
    else:
        return
    yield OVER_TCP.found(
        said + _bandwidth_beside(sizes),
        evidence=[Evidence("NCCL log", text) for text in (*log.networks, log.no_plugin) if text],
        suggest=[
            Suggestion(LOOK, "see whether libfabric finds EFA in a step", "srun -w {nodes} hpslurm-check"),
            Suggestion(
                CONFIGURE, "unset FI_PROVIDER and NCCL_NET, and put the plugin's folder (ofi-nccl) into LD_LIBRARY_PATH"
            ),
        ],
    )
