"""What nccl-tests should show: what others measured, and what hardware cannot exceed; ``tables/bandwidth.toml``."""

from __future__ import annotations

from functools import cache
from typing import Any

from hpslurm.core import toml
from hpslurm.nccl_tests.words import size_name


@cache
def tables() -> dict[str, list[dict[str, Any]]]:
    """``tables/bandwidth.toml``: lists ``row`` and ``limits``."""
    return toml.whole("bandwidth")


def limits_of(name: str) -> dict[str, Any] | None:
    return next((row for row in tables()["limits"] if row["type"] == name), None)


def expected(name: str, nodes: int, gpus: int, collective: str, size: int) -> tuple[float, str] | None:
    """busbw in GB/s and its source, for exactly this type, number of nodes and size; else None."""
    about = limits_of(name)
    if collective != "all_reduce" or about is None or about["gpus"] != gpus:
        return None
    for row in tables()["row"]:
        if row["type"] == name and row["nodes"] == nodes:
            rate = row["busbw"].get(size_name(size).replace(" ", ""))
            return None if rate is None else (float(rate), f"{row['source']}, confidence {row['confidence']}")
    return None


WHOLE_NODE = 8  # GPUs; the least of any fabric is that of whole nodes
SATURATED = 1 << 30  # bytes


def least(gpu: str, nodes: int, gpus: int, collective: str, size: int) -> float | None:
    """GB/s below which whole nodes with this GPU are far from normal on any fabric; for a machine that nobody named."""
    if collective != "all_reduce" or gpus != WHOLE_NODE or size < SATURATED or "PCIe" in gpu or "NVL" in gpu:
        return None
    row = next((row for row in tables()["floor"] if row["gpu"] in gpu), None)
    return None if row is None else float(row["several" if nodes > 1 else "one"])


def ceiling(name: str, nodes: int, gpus: int, collective: str = "all_reduce") -> float | None:
    """GB/s that all_reduce cannot exceed on this hardware, or None where the table cannot tell.

    One node: the ring over NVLink, or with NVLink SHARP its larger bound. Several nodes: the hierarchical
    bound of the network, and never more than NVLink gives inside the node.
    """
    about = limits_of(name)
    ranks = nodes * gpus
    if about is None or collective != "all_reduce" or ranks < 2:
        return None
    link = float(about.get("nvlink", 0.0))
    joined = ranks if nodes == 1 or ranks <= about.get("domain", 0) else gpus  # domain: NVLink between nodes
    inside = link * (2 * (joined - 1) / (joined + 1) if about.get("nvls") and joined > 3 else 1.0)
    if joined == ranks and link:
        return max(inside, link)
    if nodes == 1 or not about.get("efa"):
        return None
    network = float(about["efa"]) * nodes / (nodes - 1) * (ranks - 1) / ranks
    return min(network, max(inside, link)) if link and gpus > 1 else network
