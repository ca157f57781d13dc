"""Whose name is it now? While an instance is being replaced, the old and the new one share a host name.

What the old one's logs and states say is then no news of the node: its healthy successor
must not be drained for it.
"""

from __future__ import annotations

from collections.abc import Iterable

from hpslurm.cluster.model import Instance
from hpslurm.core.values import replace

# The more of these, the likelier it is the one that answers to the name.
_AT_WORK = ("Running", "DeepHealthCheckInProgress")
_ENDING = ("Failure", "ShuttingDown", "NotFound")


def held(instances: Iterable[Instance]) -> tuple[Instance, ...]:
    """The same instances; each name is left to the one that has it now."""
    instances = tuple(instances)
    owners: dict[str, Instance] = {}
    for instance in sorted(instances, key=_likelihood):
        if instance.node:
            owners[instance.node] = instance
    return tuple(_told(instance, owners) for instance in instances)


def _likelihood(instance: Instance) -> tuple[int, float]:
    """One that runs before one that comes, that before one that goes, and of equals the newer one."""
    state = 2 if instance.status in _AT_WORK else 0 if instance.status in _ENDING else 1
    return state, instance.launched or 0.0


def _told(instance: Instance, owners: dict[str, Instance]) -> Instance:
    owner = owners.get(instance.node)
    if owner is None or owner.id == instance.id:
        return instance
    return replace(instance, node="", address="", once=instance.node, heir=owner.id)


def owner_line(instance: Instance) -> str:
    """Said beside whatever is told of an instance that lost its name."""
    if not instance.heir:
        return ""
    return f"; {instance.once} is another instance of the same name now ({instance.heir}), which is not meant"
