"""What the cluster is made of: HyperPod's groups and instances, Slurm's nodes, and the two as members."""

from __future__ import annotations

import re
from collections.abc import Callable

from hpslurm.core.records import Record
from hpslurm.core.values import dataclass
from hpslurm.node import instance as types
from hpslurm.sources.slurm import Nodes, Queued, SlurmNode

CONTROLLER = "controller"
LOGIN = "login"
WORKER = "worker"
# What a person must know before anything is done to such a machine
SPECIAL = {
    CONTROLLER: "this is the controller: slurmctld and its state live there; running jobs go on without it, none "
    "starts; save StateSaveLocation, and never replace it by hand: that is for AWS Support",
    LOGIN: "this is a login node: no job runs there, people's sessions do; tell them before anything is changed",
}
# HyperPod's own words for a group, and for a software update, that is under way
CHANGING = ("Creating", "Updating", "SystemUpdating")
UPDATING = ("Pending", "InProgress", "RollbackInProgress")
_NO_GPU = re.compile(r"[cimrt]\d")  # families of instance types


@dataclass(frozen=True)
class Patching:
    """Automatic patching of a group. ``begins`` is seconds since the epoch, None where no patch is planned.

    ``waits`` is for how many seconds at most its instances are kept from new jobs before they are given back unpatched.
    """

    strategy: str
    begins: float | None
    waits: float

    def holds(self, now: float) -> bool:
        """Whether nodes may be kept from new jobs at this time, in seconds since the epoch."""
        return self.begins is not None and self.begins <= now <= self.begins + self.waits


@dataclass(frozen=True)
class Group:
    """An instance group. ``role`` is controller, login, worker, or empty where nothing says.

    ``security_groups`` and ``subnets`` are the ones in effect: the group's own where it
    has some, else the cluster's. ``updated`` counts the instances that a software update
    has reached; ``plan`` is a training plan's name.
    """

    name: str
    type: str  # without ml.
    status: str
    current: int | None
    target: int | None
    role: str = ""
    partitions: tuple[str, ...] = ()
    security_groups: tuple[str, ...] = ()
    subnets: tuple[str, ...] = ()
    scaling: bool = False
    image_status: str = ""
    update: str = ""
    updated: int | None = None
    plan: str = ""
    plan_status: str = ""
    spot: bool = False
    patching: Patching | None = None

    @property
    def changing(self) -> bool:
        """Whether HyperPod is at work on it, so that its instances may differ for a while."""
        return self.status in CHANGING or self.update in UPDATING

    @property
    def short(self) -> int:
        """How many instances are missing."""
        return max(0, (self.target or 0) - (self.current or 0))

    @property
    def efa(self) -> int | None:
        """EFA devices of the type; None where no source gives a figure."""
        row = types.table().get(self.type)
        return row.efa if row else 0 if _NO_GPU.match(self.type) else None

    @property
    def trains(self) -> bool:
        """Whether NCCL traffic runs between its nodes."""
        return self.efa != 0 and self.role in (WORKER, "")


@dataclass(frozen=True)
class Cluster:
    """``recovery`` is Automatic, None (the word) or empty; ``continuous`` has an event history.

    ``unlisted`` is how many instances its groups count that the list of instances lacks;
    ``nameless`` how many are listed that no node of Slurm could be found for, for want of a name.
    """

    arn: str
    id: str
    name: str
    status: str
    groups: tuple[Group, ...]
    failure: str = ""
    recovery: str = ""
    continuous: bool = False
    orchestrator: str = "slurm"
    security_groups: tuple[str, ...] = ()
    subnets: tuple[str, ...] = ()
    unlisted: int = 0
    nameless: int = 0

    def group(self, name: str) -> Group | None:
        return next((group for group in self.groups if group.name == name), None)

    @property
    def scaling(self) -> bool:
        return any(group.current != group.target for group in self.groups)

    @property
    def counted(self) -> int:
        """How many instances its groups have, by their own counts."""
        return sum(group.current or 0 for group in self.groups)


@dataclass(frozen=True)
class Instance:
    """One instance as ListClusterNodes shows it; ``node`` is the name Slurm would give it.

    ``launched`` is seconds since the epoch. After a replacement the node name stays and
    the id changes, so neither may be kept from an earlier run. Where two instances have one
    name, ``node`` is left to the one that answers to it; the other has ``once``, the name that it
    had, and ``heir``, who has it now. ``logical`` is the id of one that is not there yet.
    """

    id: str
    group: str
    status: str
    node: str = ""
    address: str = ""
    type: str = ""  # without ml.
    message: str = ""
    launched: float | None = None
    image: str = ""
    image_status: str = ""
    role: str = ""
    zone: str = ""
    logical: str = ""
    once: str = ""
    heir: str = ""

    @property
    def subject(self) -> str:
        return self.node or self.id


@dataclass(frozen=True)
class Member:
    """One node, by its Slurm name (or HyperPod's, where Slurm knows no such node).

    ``record`` is the newest that was made by this very instance since its last boot;
    ``dropped`` says why an older one was not taken. ``role`` is empty where nobody knows it.
    """

    name: str
    slurm: SlurmNode | None = None
    record: Record | None = None
    dropped: str = ""
    jobs: tuple[Queued, ...] = ()
    role: str = ""
    instance_id: str = ""
    instance: Instance | None = None  # what HyperPod says of the instance, where AWS was asked


@dataclass(frozen=True)
class Members:
    """The cluster. ``now`` is seconds since the epoch; ``recovery`` is HyperPod's NodeRecovery, if known."""

    members: tuple[Member, ...]
    now: float
    cluster: str = ""
    recovery: str = ""
    region: str = ""

    def named(self, name: str) -> Member | None:
        return next((member for member in self.members if member.name == name), None)


@dataclass(frozen=True)
class Gathered:
    """All that one look brought, for the checks to judge.

    ``members`` are the nodes that were asked for; ``slurm`` are all of Slurm's, None where it told of none.
    ``hyperpod`` is None where AWS did not describe the cluster, or not list all its instances.
    """

    members: Members
    slurm: Nodes | None = None
    queue: tuple[Queued, ...] = ()
    hyperpod: Cluster | None = None
    records_of: Callable[[str], list[Record]] = lambda node: []  # every record of a node that is kept
    results: tuple[str, ...] = ()  # folders of results, in which verdicts over many jobs may be kept
