"""Security groups: may EFA traffic pass inside an instance group, and between two?

EFA needs a rule for all protocols that names a security group, outbound at the sender
and inbound at the receiver. An address range does not do it, not even 0.0.0.0/0. Rules
of all groups on an interface add up, so one shared group that names itself is enough,
and an instance group with a network of its own is looked at by that.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from hpslurm.cluster.aws.hyperpod import INSTANCES
from hpslurm.cluster.aws.view import CLUSTER, Need, Source, View
from hpslurm.cluster.model import Cluster, Group, Instance
from hpslurm.core.finding import CONFIGURE, LOOK, P0, P1, P2, Evidence, Finding, Rule, Suggestion
from hpslurm.core.policy import Policy
from hpslurm.core.probe import Skip, Unknown
from hpslurm.core.values import dataclass
from hpslurm.sources.aws import CLUSTER_ARN, Aws, Listing

SECTION = "debugging-guide.md § 2"
NO_INBOUND = Rule("sg-no-inbound", P0, "No inbound rule from the group itself", SECTION)
NO_OUTBOUND = Rule("sg-no-outbound", P0, "No outbound rule to the group itself", SECTION)
APART = Rule("sg-groups-apart", P1, "EFA traffic between two instance groups is not allowed", SECTION)
CLOSED = Rule("sg-no-way-out", P2, "Nothing outside the group can be reached", SECTION)
DIFFERS = Rule("sg-interface-differs", P1, "Interface has other security groups than the configuration", SECTION)

ALL_PROTOCOLS = "-1"
_ID = re.compile(r"sg-[0-9a-f]{8,17}")
MOST_FILTER_VALUES = 200  # EC2's own limit


@dataclass(frozen=True)
class SgRule:
    """One rule; ``other`` is the security group it names, ``range`` an address range or prefix list."""

    group: str
    egress: bool
    protocol: str
    other: str = ""
    range: str = ""
    ports: tuple[int, int] = (-1, -1)

    def __str__(self) -> str:
        what = "all traffic" if self.protocol == ALL_PROTOCOLS else f"{self.protocol} {_span(self.ports)}"
        return f"{what} {'to' if self.egress else 'from'} {self.other or self.range}"


@dataclass(frozen=True)
class Interface:
    """What sits on a node, whatever the configuration says."""

    address: str
    groups: tuple[str, ...]
    zone: str = ""
    subnet: str = ""


@dataclass(frozen=True)
class Facts:
    cluster: Cluster
    rules: tuple[SgRule, ...]
    interfaces: tuple[Interface, ...] = ()
    instances: tuple[Instance, ...] = ()
    trouble: str = ""
    partial: str = ""  # why not all rules are here; then none that is missing can be told


def _span(ports: tuple[int, int]) -> str:
    low, high = ports
    return "all ports" if low < 0 else str(low) if low == high else f"{low}-{high}"


# reading


def fetch_rules(aws: Aws, cluster: Cluster) -> tuple[tuple[SgRule, ...], str]:
    """Every rule of every security group in use, flat. Raises Skip where the network is not the customer's."""
    ids = sorted({item for group in cluster.groups for item in group.security_groups} | set(cluster.security_groups))
    if not ids:
        raise Skip("the cluster has no VpcConfig: it runs in a network of HyperPod's own")
    listing: Listing = aws.listed(
        "ec2",
        "DescribeSecurityGroupRules",
        "SecurityGroupRules",
        Filters=[{"Name": "group-id", "Values": ids[:MOST_FILTER_VALUES]}],
        MaxResults=1000,
    )
    return tuple(parse_rule(raw) for raw in listing.items), listing.trouble


def parse_rule(raw: dict[str, Any]) -> SgRule:
    """A rule as DescribeSecurityGroupRules lists it.

    >>> rule = parse_rule({"GroupId": "sg-1", "IsEgress": True, "IpProtocol": "-1", "CidrIpv4": "0.0.0.0/0"})
    >>> rule.egress, rule.range, rule.ports
    (True, '0.0.0.0/0', (-1, -1))
    """
    return SgRule(
        group=str(raw.get("GroupId", "")),
        egress=bool(raw.get("IsEgress")),
        protocol=str(raw.get("IpProtocol", "")),
        other=(raw.get("ReferencedGroupInfo") or {}).get("GroupId") or "",
        range=raw.get("CidrIpv4") or raw.get("CidrIpv6") or raw.get("PrefixListId") or "",
        ports=(int(raw.get("FromPort", -1)), int(raw.get("ToPort", -1))),
    )


def fetch_interfaces(aws: Aws, cluster: Cluster, instances: Iterable[Instance]) -> tuple[tuple[Interface, ...], str]:
    """The first interface of each node, found by address: a p5 has 32 of them, with one configuration."""
    subnets = sorted({item for group in cluster.groups for item in group.subnets} | set(cluster.subnets))
    if not subnets:
        raise Skip("the cluster has no VpcConfig: it runs in a network of HyperPod's own")
    trains = {group.name for group in cluster.groups if group.trains}
    addresses = [instance.address for instance in instances if instance.address and instance.group in trains]
    interfaces: list[Interface] = []
    for begin in range(0, len(addresses), MOST_FILTER_VALUES):
        listing = aws.listed(
            "ec2",
            "DescribeNetworkInterfaces",
            "NetworkInterfaces",
            Filters=[
                {"Name": "subnet-id", "Values": subnets[:MOST_FILTER_VALUES]},
                {"Name": "private-ip-address", "Values": addresses[begin : begin + MOST_FILTER_VALUES]},
            ],
            MaxResults=1000,
        )
        interfaces += (parse_interface(raw) for raw in listing.items)
        if listing.trouble:
            return tuple(interfaces), listing.trouble
    return tuple(interfaces), ""


def parse_interface(raw: dict[str, Any]) -> Interface:
    """An interface as DescribeNetworkInterfaces lists it.

    >>> parse_interface({"PrivateIpAddress": "10.1.0.3", "Groups": [{"GroupId": "sg-1"}], "SubnetId": "subnet-1"})
    Interface(address='10.1.0.3', groups=('sg-1',), zone='', subnet='subnet-1')
    """
    return Interface(
        address=raw.get("PrivateIpAddress") or "",
        groups=tuple(sorted(group["GroupId"] for group in raw.get("Groups") or () if group.get("GroupId"))),
        zone=raw.get("AvailabilityZone") or "",
        subnet=raw.get("SubnetId") or "",
    )


def _read_interfaces(source: Source, view: View) -> tuple[tuple[Interface, ...], str]:
    instances, _ = view.get(INSTANCES)
    return fetch_interfaces(source.aws, source.cluster, instances)


RULES = Need("rules", lambda source, _: fetch_rules(source.aws, source.cluster))
INTERFACES = Need("interfaces", _read_interfaces, after=INSTANCES)
NEEDS = (CLUSTER, INSTANCES, RULES, INTERFACES)


def collect(view: View) -> Facts:
    cluster = view.get(CLUSTER)
    rules, trouble = view.get(RULES)
    (instances, _), _ = view.maybe(INSTANCES, ((), ""))
    (interfaces, cut), why = view.maybe(INTERFACES, ((), ""))
    if not any(group.trains for group in cluster.groups):
        raise Skip("no instance group of a type with EFA")
    return Facts(cluster, rules, interfaces, instances, "; ".join(filter(None, (cut, why))), trouble)


# judging


def judge(facts: Facts, policy: Policy) -> Iterator[Finding]:
    if facts.partial:
        raise Unknown(facts.partial)
    cluster = facts.cluster
    training = [group for group in cluster.groups if group.trains and (group.current or group.target)]
    by_group: dict[str, list[SgRule]] = {}
    for rule in facts.rules:
        by_group.setdefault(rule.group, []).append(rule)
    attached = {item for interface in facts.interfaces for item in interface.groups}
    # A security group without any rule blocks everything; one that does not exist, or is another account's,
    # looks just the same in the answer. An interface that has it proves that it is there.
    unseen = {
        item for group in training for item in group.security_groups if item not in by_group and item not in attached
    }
    troubles = [facts.trouble]
    if unseen:
        troubles.append(f"no rule of {', '.join(sorted(unseen))} came back: not there, or another account's")
    for group in training:
        if unseen.intersection(group.security_groups) or not group.security_groups:
            continue
        yield from _judge_self(group, by_group, cluster)
    for number, group in enumerate(training):
        for other in training[number + 1 :]:
            if not unseen.intersection((*group.security_groups, *other.security_groups)):
                yield from _judge_pair(group, other, by_group, cluster)
    yield from _judge_interfaces(facts)
    if trouble := "; ".join(filter(None, troubles)):
        raise Unknown(trouble)


def allowed(rules: Mapping[str, Iterable[SgRule]], near: Iterable[str], far: Iterable[str], egress: bool) -> bool:
    """Whether some group of ``near`` has a rule for all traffic that names some group of ``far``."""
    there = set(far)
    return any(
        rule.egress == egress and rule.protocol == ALL_PROTOCOLS and rule.other in there
        for group in near
        for rule in rules.get(group, ())
    )


def _judge_self(group: Group, rules: Mapping[str, list[SgRule]], cluster: Cluster) -> Iterator[Finding]:
    mine = group.security_groups
    for rule, egress in ((NO_INBOUND, False), (NO_OUTBOUND, True)):
        if allowed(rules, mine, mine, egress):
            continue
        way, direction = ("to", "outbound") if egress else ("from", "inbound")
        have = [item for name in mine for item in rules.get(name, ()) if item.egress == egress]
        open_to_all = any(item.range in ("0.0.0.0/0", "::/0") for item in have)
        yield rule.found(
            f"no {direction} rule for all traffic {way} one of {' '.join(mine)}"
            + ("; the open address range that is there does not count for EFA" if open_to_all else ""),
            evidence=_found_instead(mine, have, direction),
            suggest=[_look(mine, cluster), _authorize(mine[0], mine[0], egress, cluster)],
            subject=group.name,
        )
    outbound = [item for name in mine for item in rules.get(name, ()) if item.egress]
    if outbound and all(item.other in mine for item in outbound):
        yield CLOSED.found(
            "outbound traffic goes to the group itself only: AWS and file systems are reached through endpoints in "
            "this group, or not at all",
            evidence=_found_instead(mine, outbound, "outbound"),
            suggest=[_look(mine, cluster)],
            subject=group.name,
        )


def _judge_pair(first: Group, other: Group, rules: Mapping[str, list[SgRule]], cluster: Cluster) -> Iterator[Finding]:
    missing, suggest = [], [_look((*first.security_groups, *other.security_groups), cluster)]
    for sender, receiver in ((first, other), (other, first)):
        out, into = sender.security_groups, receiver.security_groups
        if not out or not into:
            return
        if not allowed(rules, out, into, True):
            missing.append(f"{sender.name} has no outbound rule to {receiver.name}")
            suggest.append(_authorize(out[0], into[0], True, cluster))
        if not allowed(rules, into, out, False):
            missing.append(f"{receiver.name} has no inbound rule from {sender.name}")
            suggest.append(_authorize(into[0], out[0], False, cluster))
    # Where a group cannot even talk to itself, that is the finding, and mending it may mend this.
    if missing and set(first.security_groups) != set(other.security_groups):
        yield APART.found(
            f"a job over {first.name} and {other.name} cannot use EFA: {'; '.join(missing)}",
            evidence=[
                Evidence(group.name, "security groups " + " ".join(group.security_groups)) for group in (first, other)
            ],
            suggest=suggest,
            subject=first.name,
        )


def _judge_interfaces(facts: Facts) -> Iterator[Finding]:
    nodes = {instance.address: instance for instance in facts.instances if instance.address}
    for interface in facts.interfaces:
        instance = nodes.get(interface.address)
        group = facts.cluster.group(instance.group) if instance else None
        if instance is None or group is None or not group.security_groups:
            continue
        wanted = sorted(group.security_groups)
        if sorted(interface.groups) != wanted:
            yield DIFFERS.found(
                f"interface has {' '.join(interface.groups) or 'none'}, {group.name} is configured with "
                f"{' '.join(wanted)}",
                evidence=[Evidence("DescribeNetworkInterfaces", f"{interface.address}: {' '.join(interface.groups)}")],
                suggest=[
                    Suggestion(
                        LOOK,
                        "see the interface",
                        "aws ec2 describe-network-interfaces --filters "
                        f"Name=private-ip-address,Values={interface.address}{_region(facts.cluster)}",
                    ),
                    Suggestion(CONFIGURE, "somebody edited the interface: give it the configured groups again"),
                ],
                subject=instance.subject,
            )


def _found_instead(groups: Iterable[str], have: Iterable[SgRule], direction: str) -> list[Evidence]:
    evidence = [Evidence(f"{direction} rule of {rule.group}", str(rule)) for rule in have]
    return evidence or [Evidence("DescribeSecurityGroupRules", f"{' '.join(groups)}: no {direction} rule at all")]


def _region(cluster: Cluster) -> str:
    match = CLUSTER_ARN.fullmatch(cluster.arn)
    return f" --region {match['region']}" if match else ""


def _look(groups: Iterable[str], cluster: Cluster) -> Suggestion:
    ids = ",".join(dict.fromkeys(group for group in groups if _ID.fullmatch(group)))
    return Suggestion(
        LOOK,
        "see all rules",
        f"aws ec2 describe-security-group-rules --filters Name=group-id,Values={ids}{_region(cluster)} --output table",
    )


def _authorize(group: str, other: str, egress: bool, cluster: Cluster) -> Suggestion:
    way = "egress" if egress else "ingress"
    permission = f'[{{"IpProtocol":"-1","UserIdGroupPairs":[{{"GroupId":"{other}"}}]}}]'
    safe = _ID.fullmatch(group) and _ID.fullmatch(other)
    return Suggestion(
        CONFIGURE,
        f"add the {'outbound' if egress else 'inbound'} rule",
        f"aws ec2 authorize-security-group-{way} --group-id {group} --ip-permissions {shlex.quote(permission)}"
        f"{_region(cluster)}"
        if safe
        else "",
    )
