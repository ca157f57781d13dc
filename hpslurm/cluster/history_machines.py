"""Which machine was behind a node's name, and when: an instance that was replaced is another machine.

HyperPod puts a new instance behind the old name. Records say which instance left them, and HyperPod says when the
present one was launched; what was before that is another machine's. Pure.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Mapping

from hpslurm.core.values import dataclass

# Seconds before its first record in which a job that ended was the machine's own: the epilog writes after the end.
BEFORE = 900.0


@dataclass(frozen=True)
class Stay:
    """An instance behind a name from a time on, until the next. ``since`` is when it was seen first, or launched."""

    since: float
    instance: str
    begins: float = 0.0  # from when on jobs that ended there are its own


class Machines:
    """Names to machines. One that was never seen to change is called by its node's name alone."""

    def __init__(
        self,
        seen: Iterable[tuple[str, float, str]],
        launched: Mapping[str, tuple[float | None, str]],
        since: float = 0.0,
    ) -> None:
        """``seen`` are node, time and instance; ``launched`` is node to launch time and id of the present instance.

        What happened before ``since`` is not looked at, so that an instance launched before it had no predecessor.
        """
        self.stays: dict[str, list[Stay]] = {}
        last: dict[str, float] = {}  # record of the instance before
        for node, when, instance in sorted(seen):
            stays = self.stays.setdefault(node, [])
            if instance and (not stays or stays[-1].instance != instance):
                stays.append(Stay(when, instance, max(last.get(node, 0.0) + 1, when - BEFORE)))
            last[node] = when
        for node, (began, instance) in launched.items():
            if instance:
                _launched(self.stays.setdefault(node, []), began, instance, since)
        self.starts = {node: [stay.begins for stay in stays] for node, stays in self.stays.items() if len(stays) > 1}

    def machine(self, node: str, when: int) -> str:
        """``n3`` where one machine was behind the name all the time, else ``n3 (i-0abc)``."""
        starts = self.starts.get(node)
        if not starts:
            return node
        at = max(0, bisect.bisect_right(starts, when) - 1)
        return called(node, self.stays[node][at].instance)

    def present(self, node: str) -> str:
        """The machine behind the name now."""
        stays = self.stays.get(node, ())
        return called(node, stays[-1].instance) if len(stays) > 1 else node

    def instance(self, machine: str) -> str:
        """Its id, where it is known."""
        node, _, rest = machine.partition(" (")
        stays = self.stays.get(node, ())
        return rest.rstrip(")") if rest else stays[-1].instance if stays else ""

    def of_instance(self, instance: str) -> str:
        """The machine with this id, present or gone; empty for one that was never behind a name."""
        for node, stays in self.stays.items():
            if any(stay.instance == instance for stay in stays):
                return called(node, instance) if len(stays) > 1 else node
        return ""

    def replaced(self, node: str) -> list[Stay]:
        """When another instance came, after the first."""
        return self.stays.get(node, [])[1:]


def _launched(stays: list[Stay], when: float | None, instance: str, since: float) -> None:
    """HyperPod's word on the present instance: it says when it came, to the second."""
    if not stays or stays[-1].instance != instance:
        came = when or (stays[-1].since + 1 if stays else 0.0)
        stays.append(Stay(came, instance, came))
    elif when and (len(stays) == 1 or when > stays[-2].since):
        stays[-1] = Stay(when, instance, when)
    if when and when > since and len(stays) == 1:
        stays[:] = [Stay(0.0, ""), Stay(when, instance, when)]  # whoever was there before it was launched


def called(node: str, instance: str) -> str:
    return f"{node} ({instance or 'before'})"


def name_of(machine: str) -> str:
    """The Slurm name."""
    return machine.partition(" (")[0]
