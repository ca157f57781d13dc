"""Which machine was behind a node's name, and when: an instance that was replaced is another machine.

HyperPod puts a new instance behind the old name. Records say which instance left them, and HyperPod says when the
present one was launched; what was before that is another machine's. Pure.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Mapping

from hpslurm.core.values import dataclass


@dataclass(frozen=True)
class Stay:
    """An instance behind a name from a time on, until the next."""

    since: float
    instance: str


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
        for node, when, instance in sorted(seen):
            stays = self.stays.setdefault(node, [])
            if instance and (not stays or stays[-1].instance != instance):
                stays.append(Stay(when, instance))
        for node, (began, instance) in launched.items():
            if instance:
                _launched(self.stays.setdefault(node, []), began, instance, since)
        self.starts = {node: [stay.since for stay in stays] for node, stays in self.stays.items() if len(stays) > 1}

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

    def replaced(self, node: str) -> list[Stay]:
        """When another instance came, after the first."""
        return self.stays.get(node, [])[1:]


def _launched(stays: list[Stay], when: float | None, instance: str, since: float) -> None:
    if not stays or stays[-1].instance != instance:
        stays.append(Stay(when or (stays[-1].since + 1 if stays else 0.0), instance))
    if when and when > since and len(stays) == 1:
        stays[:] = [Stay(0.0, ""), Stay(when, instance)]  # whoever was there before it was launched


def called(node: str, instance: str) -> str:
    return f"{node} ({instance or 'before'})"


def name_of(machine: str) -> str:
    """The Slurm name."""
    return machine.partition(" (")[0]
