"""Availability zones: do nodes that run one job lie in one zone, with room in their subnets?

EFA traffic stays inside a zone. Nodes of two zones in one partition can be given to one
job, which then fails or goes over TCP. A subnet that has run out of addresses keeps new
instances from coming: on Slurm a node takes one for each EFA device.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from hpslurm.cluster.aws.hyperpod import INSTANCES
from hpslurm.cluster.aws.security_groups import INTERFACES, Interface
from hpslurm.cluster.aws.view import CLUSTER, Need, View
from hpslurm.cluster.model import Cluster, Instance
from hpslurm.core.finding import CONFIGURE, LOOK, P1, P2, Evidence, Finding, Rule, Suggestion
from hpslurm.core.policy import Policy
from hpslurm.core.probe import Skip, Unknown
from hpslurm.core.values import dataclass
from hpslurm.sources.aws import Aws

SECTION = "debugging-guide.md § 2"
SPLIT = Rule("zone-split", P1, "Nodes of one partition lie in several zones", SECTION)
SUBNETS = Rule("zone-subnets", P2, "Instance group may start nodes in several zones", SECTION)
FULL = Rule("subnet-full", P1, "Subnet has too few free addresses", SECTION)


@dataclass(frozen=True)
class Subnet:
    """``free`` is the number of addresses left."""

    id: str
    zone: str
    cidr: str = ""
    free: int | None = None
    vpc: str = ""


@dataclass(frozen=True)
class Facts:
    """``partitions`` maps a partition to nodes, by their Slurm names."""

    cluster: Cluster
    subnets: tuple[Subnet, ...]
    zones: dict[str, str]  # node to zone, for nodes that train
    partitions: dict[str, tuple[str, ...]]
    trouble: str = ""


def fetch(aws: Aws, cluster: Cluster) -> tuple[tuple[Subnet, ...], str]:
    """The subnets in effect. Raises Skip where the network is not the customer's."""
    ids = sorted({item for group in cluster.groups for item in group.subnets} | set(cluster.subnets))
    if not ids:
        raise Skip("the cluster has no VpcConfig: it runs in a network of HyperPod's own")
    # By id EC2 takes no page size, and answers all of them at once.
    listing = aws.listed("ec2", "DescribeSubnets", "Subnets", SubnetIds=ids)
    return tuple(parse(raw) for raw in listing.items), listing.trouble


def parse(raw: dict[str, Any]) -> Subnet:
    """A subnet as DescribeSubnets lists it.

    >>> parse({"SubnetId": "subnet-1", "AvailabilityZone": "us-west-2a", "AvailableIpAddressCount": 3})
    Subnet(id='subnet-1', zone='us-west-2a', cidr='', free=3, vpc='')
    """
    return Subnet(
        id=str(raw.get("SubnetId", "")),
        zone=str(raw.get("AvailabilityZone", "")),
        cidr=raw.get("CidrBlock") or "",
        free=raw.get("AvailableIpAddressCount"),
        vpc=str(raw.get("VpcId") or ""),
    )


SUBNETS_IN_USE = Need("subnets", lambda source, _: fetch(source.aws, source.cluster))
NEEDS = (CLUSTER, INSTANCES, INTERFACES, SUBNETS_IN_USE)


def collect(view: View) -> Facts:
    cluster = view.get(CLUSTER)
    subnets, trouble = view.get(SUBNETS_IN_USE)
    (instances, _), _ = view.maybe(INSTANCES, ((), ""))
    (interfaces, _), _ = view.maybe(INTERFACES, ((), ""))
    if not any(group.trains for group in cluster.groups):
        raise Skip("no instance group of a type with EFA")
    return Facts(
        cluster,
        subnets,
        zones_of(cluster, instances, subnets, interfaces),
        {**_own_partitions(cluster, instances), **view.partitions},
        trouble,
    )


def zones_of(
    cluster: Cluster, instances: Iterable[Instance], subnets: Iterable[Subnet], interfaces: Iterable[Interface]
) -> dict[str, str]:
    """Node to zone: as its interface says, else by the subnet that holds its address."""
    real = {interface.address: interface.zone for interface in interfaces if interface.zone}
    networks = [(ipaddress.ip_network(subnet.cidr), subnet.zone) for subnet in subnets if subnet.cidr]
    trains = {group.name for group in cluster.groups if group.trains}
    zones = {}
    for instance in instances:
        if instance.group not in trains or not instance.address:
            continue
        zone = real.get(instance.address, "")
        if not zone:
            address = ipaddress.ip_address(instance.address)
            zone = next((zone for network, zone in networks if address in network), "")
        if zone:
            zones[instance.subject] = zone
    return zones


def _own_partitions(cluster: Cluster, instances: Iterable[Instance]) -> dict[str, tuple[str, ...]]:
    """Partitions as HyperPod writes them; an instance group without one stands for itself."""
    names: dict[str, list[str]] = {}
    for instance in instances:
        group = cluster.group(instance.group)
        for partition in (group.partitions if group else ()) or (f"group {instance.group}",):
            names.setdefault(partition, []).append(instance.subject)
    return {name: tuple(nodes) for name, nodes in names.items()}


def judge(facts: Facts, policy: Policy) -> Iterator[Finding]:
    reported: set[str] = set()
    for partition, nodes in _smallest_first(facts.partitions):
        here = {node: facts.zones[node] for node in nodes if node in facts.zones}
        count = Counter(here.values())
        if len(count) < 2:
            continue
        usual = max(count, key=lambda zone: (count[zone], zone))
        odd = [node for node, zone in here.items() if zone != usual]
        if reported.issuperset(odd):  # a partition over all groups repeats what a smaller one said
            continue
        reported.update(odd)
        spread = ", ".join(f"{number} in {zone}" for zone, number in sorted(count.items()))
        for node in odd:
            yield SPLIT.found(
                f"partition {partition} has nodes in {len(count)} zones ({spread}); EFA does not cross zones",
                evidence=[Evidence("DescribeNetworkInterfaces, DescribeSubnets", f"{node} lies in {here[node]}")],
                suggest=[
                    Suggestion(
                        LOOK,
                        "see which nodes a job got, and keep jobs to one zone until this is mended",
                        "sinfo -N -n {nodes} -o '%N %P %T'  # leave these out: srun --exclude={nodes}",
                    ),
                    Suggestion(
                        CONFIGURE, "give each zone an instance group and a partition of its own (OverrideVpcConfig)"
                    ),
                ],
                subject=node,
            )
    yield from _judge_subnets(facts)
    if facts.trouble:
        raise Unknown(facts.trouble)


def _smallest_first(partitions: Mapping[str, tuple[str, ...]]) -> list[tuple[str, tuple[str, ...]]]:
    return sorted(partitions.items(), key=lambda item: (len(item[1]), item[0]))


def _judge_subnets(facts: Facts) -> Iterator[Finding]:
    by_id = {subnet.id: subnet for subnet in facts.subnets}
    for group in facts.cluster.groups:
        if not group.trains:
            continue
        mine = [by_id[item] for item in group.subnets if item in by_id]
        zones = sorted({subnet.zone for subnet in mine})
        if len(zones) > 1:
            yield SUBNETS.found(
                f"its subnets lie in {', '.join(zones)}: a replacement can come up away from the others",
                evidence=[Evidence("DescribeSubnets", f"{subnet.id}: {subnet.zone}") for subnet in mine],
                suggest=[Suggestion(CONFIGURE, "give the group one subnet (OverrideVpcConfig)")],
                subject=group.name,
            )
        free = [subnet.free for subnet in mine if subnet.free is not None]
        needed = group.short * (group.efa or 0)
        if needed and free and sum(free) < needed:
            yield FULL.found(
                f"{sum(free)} free addresses, expected {needed} or more for {group.short} instances with {group.efa} "
                "EFA devices each",
                evidence=[Evidence("DescribeSubnets", f"{subnet.id}: {subnet.free} addresses free") for subnet in mine],
                suggest=[Suggestion(CONFIGURE, "give the group a larger subnet in the same zone")],
                subject=group.name,
            )
