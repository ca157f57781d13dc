"""The door to what HyperPod leaves on its nodes: which instance and group is behind a node name.

Two files below /opt/ml/config, readable by root only. They cost no call to AWS and need
no permission there; on a worker they can be stale, on the controller they are newest.
"""

from __future__ import annotations

import json
from typing import Any

from hpslurm.core.probe import Skip, Unknown
from hpslurm.core.values import dataclass
from hpslurm.sources.host import Host

RESOURCES = "/opt/ml/config/resource_config.json"
PROVISIONING = "/opt/ml/config/provisioning_parameters.json"


@dataclass(frozen=True)
class Machine:
    """One instance: its Slurm name (``ip-10-1-0-3``), id, group, and address."""

    name: str
    instance_id: str
    group: str
    address: str


@dataclass(frozen=True)
class Layout:
    """The cluster as its files describe it. A group name is empty where no file tells it."""

    cluster: str = ""
    arn: str = ""
    controllers: tuple[str, ...] = ()  # addresses
    controller_group: str = ""
    login_group: str = ""
    machines: tuple[Machine, ...] = ()


def layout(host: Host) -> Layout:
    """Raises Skip where this is no HyperPod node, Unknown where the file may not be read or is broken."""
    named = host.env.get("SAGEMAKER_RESOURCE_CONFIG_PATH", "")
    path = named if named.startswith("/") else RESOURCES
    raw = _json(host, path)
    if raw is None:
        raise Skip(f"no HyperPod node: {path} does not exist")
    try:
        provisioning = _json(host, PROVISIONING) or {}
    except Unknown:
        provisioning = {}  # it only adds the roles of groups
    return layout_of(raw, provisioning)


def layout_of(resources: dict[str, Any], provisioning: dict[str, Any]) -> Layout:
    """What the two files say; whatever has another shape than we know is left out.

    >>> layout = layout_of({"ClusterConfig": {"ClusterName": "demo"}, "InstanceGroups": [{"Name": "workers",
    ...     "Instances": [{"InstanceId": "i-0123456789abcdef0", "CustomerIpAddress": "10.1.0.3"}]}],
    ...     "SlurmConfig": {"PrimaryControllerIp": "10.1.0.2"}}, {"login_group": "login"})
    >>> layout.cluster, layout.controllers, layout.login_group, layout.machines[0].name
    ('demo', ('10.1.0.2',), 'login', 'ip-10-1-0-3')
    """
    about, slurm = _dict(resources.get("ClusterConfig")), _dict(resources.get("SlurmConfig"))
    secondary = slurm.get("SecondaryControllerIps")
    controllers = [slurm.get("PrimaryControllerIp"), *(secondary if isinstance(secondary, list) else [])]
    machines = []
    for group in _list(resources.get("InstanceGroups")):
        for instance in _list(group.get("Instances")):
            address = _text(instance.get("CustomerIpAddress"))
            if address:
                name = "ip-" + address.replace(".", "-")
                machines.append(Machine(name, _text(instance.get("InstanceId")), _text(group.get("Name")), address))
    return Layout(
        cluster=_text(about.get("ClusterName")),
        arn=_text(about.get("ClusterArn")),
        controllers=tuple(_text(address) for address in controllers if address),
        controller_group=_text(provisioning.get("controller_group")),
        login_group=_text(provisioning.get("login_group")),
        machines=tuple(machines),
    )


def _json(host: Host, path: str) -> dict[str, Any] | None:
    try:
        raw = json.loads(host.read(path, 16 << 20))
    except FileNotFoundError:
        return None
    except PermissionError:
        raise Unknown(f"only root may read {path}: use sudo") from None
    except ValueError as error:
        raise Unknown(f"{path} is not valid JSON: {error}") from None
    if not isinstance(raw, dict):
        raise Unknown(f"{path} is not a JSON object")
    return raw


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
