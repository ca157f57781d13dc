"""The join: what Slurm, the nodes' own records and HyperPod say, node by node.

``join`` is a pure function, called once; every judge of the cluster takes the ``Members``
that it makes. What nobody asked for, or could not be asked, is empty or None.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from hpslurm.cluster import holders
from hpslurm.cluster.model import Instance, Member, Members
from hpslurm.core import nodeset
from hpslurm.core.records import Record
from hpslurm.sources.slurm import Queued, SlurmNode


def join(
    nodes: Iterable[SlurmNode],
    now: float,
    *,
    queue: Iterable[Queued] = (),
    records: Mapping[str, Record] | None = None,
    roles: Mapping[str, str] | None = None,
    instance_ids: Mapping[str, str] | None = None,
    instances: Iterable[Instance] = (),
    cluster: str = "",
    recovery: str = "",
    region: str = "",
) -> Members:
    """Put together what belongs to one node. Names are Slurm's; an instance that is no node of Slurm's comes last."""
    on_node = jobs_by_node(queue)
    members = []
    left = {instance.subject: instance for instance in holders.held(instances)}
    # An id of HyperPod's own files may be old: it counts for an instance that has no name of its own only.
    by_id = {instance.id: instance for instance in left.values() if not instance.address and not instance.heir}
    by_address = {instance.address: instance for instance in left.values() if instance.address}
    for node in nodes:
        known_id = (instance_ids or {}).get(node.name) or node.instance_id or ""
        # by host name, else by the id that HyperPod's own files give, else by address
        instance = left.get(node.name) or by_id.get(known_id) or by_address.get(node.address or "")
        if instance:
            left.pop(instance.subject, None)
        instance_id = instance.id if instance else known_id
        record, dropped = _current((records or {}).get(node.name), node, instance_id)
        members.append(
            Member(
                name=node.name,
                slurm=node,
                record=record,
                dropped=dropped,
                jobs=tuple(on_node.get(node.name, ())),
                role=(instance.role if instance else "") or (roles or {}).get(node.name, ""),
                instance_id=instance_id,
                instance=instance,
            )
        )
    for name, instance in left.items():
        record, dropped = _current((records or {}).get(name), SlurmNode(name, ""), instance.id)
        members.append(
            Member(
                name,
                record=record,
                dropped=dropped,
                role=instance.role or (roles or {}).get(name, ""),
                instance_id=instance.id,
                instance=instance,
            )
        )
    return Members(tuple(members), now, cluster, recovery, region)


def jobs_by_node(queue: Iterable[Queued]) -> dict[str, list[Queued]]:
    """Jobs that hold nodes, by node name."""
    jobs: dict[str, list[Queued]] = {}
    for job in queue:
        for name in nodeset.names_in(job.nodes):
            jobs.setdefault(name, []).append(job)
    return jobs


def _current(record: Record | None, node: SlurmNode, instance_id: str) -> tuple[Record | None, str]:
    """The record if this machine made it since its last boot, else why not."""
    if record is None:
        return None, ""
    made_by = str(record.run.get("instance") or "")
    if made_by and instance_id and made_by != instance_id:
        return None, f"its record is of {made_by}, which was replaced by {instance_id}"
    made = record.run.get("time")
    # boot_time is "now minus uptime" and wobbles by a second
    if isinstance(made, (int, float)) and node.boot_time and made < node.boot_time - 2:
        return None, "its record is from before its last boot"
    return record, ""
