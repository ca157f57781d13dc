"""Which machine is this? Instance type and id, and what a healthy one of the type has.

The type comes from the firmware (DMI), as every EC2 instance since Nitro writes it
there; else from HyperPod's own resource_config.json. No network, no metadata service.
"""

from __future__ import annotations

import re
from functools import cache

from hpslurm.core import toml
from hpslurm.core.probe import Unknown
from hpslurm.core.values import dataclass
from hpslurm.sources.host import Host

DMI = "/sys/devices/virtual/dmi/id"
RESOURCE_CONFIG = "/opt/ml/config/resource_config.json"
_ID = re.compile(r"i-[0-9a-f]{8,17}")
_ROW = re.compile(r'^type = "([^"]+)"$((?:\n(?:gpus|efa) = \d+$)*)', re.M)
_TYPE = re.compile(r"(?:ml\.)?([a-z][a-z0-9-]*\.[a-z0-9-]+)")


@dataclass(frozen=True)
class Expected:
    """What the instance table says of a type; None where no source supports a figure."""

    gpus: int | None
    efa: int | None


def instance_id(host: Host) -> str:
    """``i-...`` from the board's asset tag (readable by all), or empty."""
    try:
        tag = host.word(f"{DMI}/board_asset_tag") or ""
    except OSError:
        return ""
    return tag if _ID.fullmatch(tag) else ""


def instance_type(host: Host) -> str:
    """The type without ``ml.``, such as ``p5.48xlarge``. Raises Unknown, saying what was tried."""
    vendor, product = host.word(f"{DMI}/sys_vendor"), host.word(f"{DMI}/product_name")
    if vendor == "Amazon EC2" and product and (match := _TYPE.fullmatch(product)):
        return match[1]
    return _from_resource_config(host, product)


def _from_resource_config(host: Host, product: str | None) -> str:
    import json

    here = host.env.get("SAGEMAKER_RESOURCE_CONFIG_PATH", "") if not host.in_hook else ""
    path = here if here.startswith("/") else RESOURCE_CONFIG
    tried = f"DMI names {product or 'no product'}"
    try:
        config = json.loads(host.read(path))
    except FileNotFoundError:
        raise Unknown(f"instance type not known: {tried}, {path} does not exist") from None
    except PermissionError:
        raise Unknown(f"instance type not known: {tried}, and only root may read {path}") from None
    except ValueError as error:
        raise Unknown(f"instance type not known: {tried}, {path} is not valid JSON: {error}") from None
    mine = instance_id(host)
    groups = config.get("InstanceGroups") if isinstance(config, dict) else None
    for group in groups if isinstance(groups, list) else ():
        for member in group.get("Instances") or ():
            if mine and member.get("InstanceId") == mine and (match := _TYPE.fullmatch(str(group.get("InstanceType")))):
                return match[1]
    raise Unknown(f"instance type not known: {tried}, {path} does not list {mine or 'this instance'}")


@cache
def table() -> dict[str, Expected]:
    """Instance type (without ``ml.``) to device counts, from ``tables/instances.toml``.

    Every hook reads this table, and importing a TOML reader costs it 5 ms: its rows have one shape
    only, which this pattern knows.

    >>> table()["p5.48xlarge"]
    Expected(gpus=8, efa=32)
    """
    rows = {}
    for match in _ROW.finditer(toml.text("instances.toml")):
        counts = dict(line.split(" = ") for line in match[2].split("\n") if line)
        rows[match[1]] = Expected(*(int(counts[name]) if name in counts else None for name in ("gpus", "efa")))
    return rows


def expected(host: Host) -> tuple[str, Expected]:
    """The type of this machine and its row. Raises Unknown for a type that has none."""
    name = instance_type(host)
    row = table().get(name)
    if row is None:
        raise Unknown(f"no figures for instance type {name} (hpslurm/tables/instances.toml)")
    return name, row
