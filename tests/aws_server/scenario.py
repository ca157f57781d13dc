"""A scenario file (TOML) expanded into what the AWS operations would answer.

    about = "what a reader should know"
    [cluster]                 as DescribeCluster answers, in its own names; plus ``id``
    [[nodes]]                 group, count, first (address), status, message, hours (since launch), version,
                              names (host names, {} counts from 1; by the address where there is none),
                              coming (asked for, without an instance yet), no_dns (without a host name)
    [[events]]                minutes (ago), level, text, group, instance, failure, about (EventMetadata)
    [[operations]]            minutes (ago), type, status
    [[rules]]                 group, egress, protocol, ports, and one of other_group, cidr, prefix
    [[subnets]]               id, zone, cidr, free, vpc
    [[endpoints]]             id, service (its last word), vpc
    [[logs]]                  stream, minutes (ago), text
    [[trouble]]               operation, kind, after, times, seconds; see server.py

Times are relative, so a scenario never grows old.
"""

from __future__ import annotations

import ipaddress
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FOLDER = Path(__file__).parent / "scenarios"
ACCOUNT = "123456789012"


@dataclass
class Scenario:
    cluster: dict[str, Any]
    nodes: list[dict[str, Any]]
    events: list[dict[str, Any]]
    rules: list[dict[str, Any]]
    subnets: list[dict[str, Any]]
    interfaces: list[dict[str, Any]]
    endpoints: list[dict[str, Any]]
    logs: list[dict[str, Any]]
    trouble: list[dict[str, Any]]
    region: str = "us-west-2"
    others: list[str] = field(default_factory=list)  # further clusters of the region, by name
    has_log_group: bool = True
    page: int = 100  # the most that one page of a SageMaker list holds
    log_page: int = 1000
    sessions: bool = False  # whether ssm may be asked for sessions
    operations: list[dict[str, Any]] = field(default_factory=list)
    empty_log_pages: int = 0  # CloudWatch sends empty pages with a token before the ones that hold something

    @property
    def arn(self) -> str:
        return self.cluster["ClusterArn"]

    @property
    def log_group(self) -> str:
        return f"/aws/sagemaker/Clusters/{self.cluster['ClusterName']}/{self.arn.rpartition('/')[2]}"


def load(source: str | dict[str, Any], now: float | None = None) -> Scenario:
    """By the name of a file in ``scenarios/``, by path, or from a dict of the same shape."""
    now = time.time() if now is None else now
    if isinstance(source, str):
        path = FOLDER / f"{source}.toml"
        with open(path if path.exists() else source, "rb") as file:
            raw = tomllib.load(file)
    else:
        raw = source
    region = raw.get("region", "us-west-2")
    cluster = _cluster(dict(raw.get("cluster", {})), region, now)
    nodes: list[dict[str, Any]] = []
    interfaces: list[dict[str, Any]] = []
    for row in raw.get("nodes", []):
        _add_nodes(row, cluster, region, now, nodes, interfaces, raw.get("subnets", []))
    return Scenario(
        cluster,
        nodes,
        [_event(number, row, cluster, now) for number, row in enumerate(raw.get("events", []))],
        [_rule(number, row) for number, row in enumerate(raw.get("rules", []))],
        [_subnet(row) for row in raw.get("subnets", [])],
        interfaces,
        [_endpoint(row, region) for row in raw.get("endpoints", [])],
        sorted((_log(row, now) for row in raw.get("logs", [])), key=lambda line: line["timestamp"]),
        [dict(row) for row in raw.get("trouble", [])],
        region,
        list(raw.get("others", [])),
        raw.get("has_log_group", True),
        raw.get("page", 100),
        raw.get("log_page", 1000),
        raw.get("sessions", False),
        [_operation(number, row, cluster, now) for number, row in enumerate(raw.get("operations", []))],
        raw.get("empty_log_pages", 0),
    )


def _cluster(cluster: dict[str, Any], region: str, now: float) -> dict[str, Any]:
    identity = cluster.pop("id", "abcdefghijkl")
    cluster.setdefault("ClusterName", "demo")
    cluster.setdefault("ClusterArn", f"arn:aws:sagemaker:{region}:{ACCOUNT}:cluster/{identity}")
    cluster.setdefault("ClusterStatus", "InService")
    cluster.setdefault("CreationTime", now - 90 * 86400)
    cluster["InstanceGroups"] = [
        {"Status": "InService", "TargetCount": group.get("CurrentCount", 0), "ThreadsPerCore": 2, **group}
        for group in cluster.get("InstanceGroups", [])
    ]
    return cluster


def _add_nodes(
    row: dict[str, Any],
    cluster: dict[str, Any],
    region: str,
    now: float,
    nodes: list[dict[str, Any]],
    interfaces: list[dict[str, Any]],
    subnets: list[dict[str, Any]],
) -> None:
    group = next(item for item in cluster["InstanceGroups"] if item["InstanceGroupName"] == row["group"])
    vpc = group.get("OverrideVpcConfig") or cluster.get("VpcConfig") or {}
    first = ipaddress.ip_address(row.get("first", "10.1.0.1"))
    suffix = "ec2.internal" if region == "us-east-1" else f"{region}.compute.internal"
    for number in range(row.get("count", 1)):
        address = str(first + number)
        node: dict[str, Any] = {
            "InstanceGroupName": row["group"],
            "InstanceId": row.get("id", f"i-0{len(nodes) + 1:016x}"),
            "InstanceType": group.get("InstanceType", "ml.p5.48xlarge"),
            "LaunchTime": now - row.get("hours", 240) * 3600,
            "LastSoftwareUpdateTime": now - row.get("hours", 240) * 3600,
            "InstanceStatus": {"Status": row.get("status", "Running"), "Message": row.get("message", "")},
            "PrivateDnsHostname": f"{row.get('names', 'ip-' + address.replace('.', '-'))}.{suffix}".replace(
                "{}", str(number + 1)
            ),
            "CurrentImageReleaseVersion": row.get("version", "1.4.0"),
            "ImageVersionStatus": row.get("image", "UpToDate"),
        }
        node["NodeLogicalId"] = f"node-{len(nodes) + 1}"
        if row.get("no_dns"):
            del node["PrivateDnsHostname"]
        if row.get("coming"):
            for name in ("InstanceId", "LaunchTime", "PrivateDnsHostname"):
                node.pop(name, None)
        nodes.append(node)
        home = _home(address, subnets)
        if home:
            interfaces.append(
                {
                    "networkInterfaceId": f"eni-0{len(interfaces) + 1:016x}",
                    "subnetId": home["id"],
                    "vpcId": home.get("vpc", "vpc-0123456789abcdef0"),
                    "availabilityZone": row.get("zone", home["zone"]),
                    "privateIpAddress": address,
                    "interfaceType": "efa",
                    "status": "in-use",
                    "groupSet": [
                        {"groupId": item, "groupName": item}
                        for item in row.get("interface_groups", vpc.get("SecurityGroupIds", []))
                    ],
                }
            )


def _home(address: str, subnets: list[dict[str, Any]]) -> dict[str, Any] | None:
    ip = ipaddress.ip_address(address)
    return next((row for row in subnets if ip in ipaddress.ip_network(row["cidr"])), None)


def _event(number: int, row: dict[str, Any], cluster: dict[str, Any], now: float) -> dict[str, Any]:
    event = {
        "EventId": f"{number:08x}-0000-4000-8000-000000000000",
        "ClusterArn": cluster["ClusterArn"],
        "ClusterName": cluster["ClusterName"],
        "ResourceType": "Instance" if "instance" in row else "InstanceGroup" if "group" in row else "Cluster",
        "EventTime": now - row.get("minutes", 10) * 60,
        "Description": row["text"],
        "_failure": row.get("failure", ""),
        "_about": row.get("about", {}),
    }
    for ours, theirs in (("level", "EventLevel"), ("group", "InstanceGroupName"), ("instance", "InstanceId")):
        if ours in row:
            event[theirs] = row[ours]
    return event


def _operation(number: int, row: dict[str, Any], cluster: dict[str, Any], now: float) -> dict[str, Any]:
    return {
        "OperationId": f"{number:08x}-1111-4111-8111-000000000000",
        "ClusterArn": cluster["ClusterArn"],
        "Type": row["type"],
        "Status": row.get("status", "InProgress"),
        "CreationTime": now - row.get("minutes", 10) * 60,
    }


def _rule(number: int, row: dict[str, Any]) -> dict[str, Any]:
    low, high = row.get("ports", (-1, -1))
    rule: dict[str, Any] = {
        "securityGroupRuleId": f"sgr-0{number:016x}",
        "groupId": row["group"],
        "groupOwnerId": ACCOUNT,
        "isEgress": row.get("egress", False),
        "ipProtocol": row.get("protocol", "-1"),
        "fromPort": low,
        "toPort": high,
    }
    if "other_group" in row:
        rule["referencedGroupInfo"] = {"groupId": row["other_group"], "userId": ACCOUNT}
    elif "prefix" in row:
        rule["prefixListId"] = row["prefix"]
    elif ":" in row["cidr"]:
        rule["cidrIpv6"] = row["cidr"]
    else:
        rule["cidrIpv4"] = row["cidr"]
    return rule


def _subnet(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "subnetId": row["id"],
        "state": "available",
        "vpcId": row.get("vpc", "vpc-0123456789abcdef0"),
        "cidrBlock": row["cidr"],
        "availableIpAddressCount": row.get("free", 4000),
        "availabilityZone": row["zone"],
        "availabilityZoneId": row.get("zone_id", "usw2-az1"),
    }


def _endpoint(row: dict[str, Any], region: str) -> dict[str, Any]:
    return {
        "vpcEndpointId": row["id"],
        "vpcId": row.get("vpc", "vpc-0123456789abcdef0"),
        "serviceName": f"com.amazonaws.{region}.{row['service']}",
        "state": "available",
    }


def _log(row: dict[str, Any], now: float) -> dict[str, Any]:
    return {
        "logStreamName": row["stream"],
        "timestamp": int((now - row.get("minutes", 10) * 60) * 1000),
        "message": row["text"],
        "ingestionTime": int(now * 1000),
        "eventId": f"{row['stream']}-{row.get('minutes', 10)}",
    }
