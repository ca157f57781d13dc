"""Limits of a process, as ``/proc/<pid>/limits`` shows them. No probe itself."""

from __future__ import annotations

from hpslurm.core.text import whole


def soft_limit(text: str, name: str) -> float | None:
    """The soft limit of that name, infinity for ``unlimited``; None where the text lists none.

    >>> text = '''
    ... Limit                     Soft Limit           Hard Limit           Units
    ... Max stack size            8388608              unlimited            bytes
    ... Max locked memory         unlimited            unlimited            bytes
    ... '''
    >>> soft_limit(text, "Max stack size"), soft_limit(text, "Max locked memory"), soft_limit(text, "Max open files")
    (8388608, inf, None)
    """
    for line in text.splitlines():
        if line.startswith(name):
            words = line[len(name) :].split()
            number = float("inf") if words[:1] == ["unlimited"] else whole("".join(words[:1]))
            if number is not None:
                return number
    return None
