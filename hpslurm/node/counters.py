"""What counters of devices grew by between two looks. Pure: values in, values out.

Counters run since the driver was loaded, or for the life of a board, so that only a
difference between prolog and epilog belongs to the job.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

Counts = Mapping[str, Mapping[str, int]]  # device to counter to count


def grown(before: Counts, after: Counts) -> dict[str, dict[str, int]]:
    """Device to counter to growth, above zero only.

    A device or counter that one look lacks, or a count that went down (it was reset),
    is left out: there the growth is not known.
    """
    growth: dict[str, dict[str, int]] = {}
    for device, counts in after.items():
        old = before.get(device, {})
        more = {name: count - old[name] for name, count in counts.items() if name in old and count > old[name]}
        if more:
            growth[device] = more
    return growth


def unknown(before: Counts, after: Counts) -> list[str]:
    """Devices whose growth is not known, because one look lacks them or a count went down."""
    return sorted(
        device
        for device in {*before, *after}
        if device not in before
        or device not in after
        or any(after[device].get(name, -1) < count for name, count in before[device].items())
    )


def only(growth: Mapping[str, Mapping[str, int]], names: Iterable[str]) -> dict[str, dict[str, int]]:
    """The growth of these counters, of the devices where one of them grew."""
    wanted = set(names)
    picked = {
        device: {name: more for name, more in counts.items() if name in wanted} for device, counts in growth.items()
    }
    return {device: counts for device, counts in picked.items() if counts}


def in_words(counts: Mapping[str, int]) -> str:
    """``nvlink_replay +3 pcie_replay +1``, for a line of evidence."""
    return " ".join(f"{name} +{more}" for name, more in counts.items())
