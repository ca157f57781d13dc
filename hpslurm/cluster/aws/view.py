"""What AWS is asked for, and what it told.

A check's module declares its ``NEEDS``. Each is read once, however many checks need it, and
comes out of the view as the type that its ``read`` returns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, Protocol, TypeVar

from hpslurm.cluster.check import Check
from hpslurm.cluster.model import Cluster
from hpslurm.core.probe import Skip, Unknown
from hpslurm.core.values import dataclass, field
from hpslurm.sources.aws import Aws

T = TypeVar("T")
Facts = TypeVar("Facts")


@dataclass(frozen=True)
class Source:
    """What a ``read`` can use; ``name`` is the cluster's name or ARN, also where it may not be described.

    ``now`` and ``since`` are seconds since the epoch. ``old`` is what the installed botocore drops from answers.
    """

    aws: Aws
    name: str
    answer: tuple[dict[str, Any], Cluster] | Unknown  # to DescribeCluster, as it came and as we read it
    now: float
    since: float
    old: str = ""

    @property
    def described(self) -> dict[str, Any]:
        """Raises the Unknown that came instead."""
        return _or_raise(self.answer)[0]

    @property
    def cluster(self) -> Cluster:
        """Raises the Unknown that came instead."""
        return _or_raise(self.answer)[1]


@dataclass(frozen=True)
class Need(Generic[T]):
    """One thing to read. ``read`` may raise Skip and Unknown.

    What depends on nothing is read side by side. What comes ``after`` another is read behind it, in
    the same thread, and finds its answer in the view; where that one is Unknown, this one is, too.
    """

    name: str
    read: Callable[[Source, View], T]
    after: Need[Any] | None = None


DESCRIBED = Need("described", lambda source, _: source.described)
CLUSTER = Need("cluster", lambda source, _: source.cluster)


class AwsCheck(Check["View", Facts], Protocol[Facts]):
    """A check of what AWS tells."""

    @property
    def NEEDS(self) -> tuple[Need[Any], ...]: ...


@dataclass(frozen=True)
class View:
    """``answers`` maps a need's name to its value, or to the Skip or Unknown that came instead.

    ``trouble`` is why AWS could not be asked at all. ``partitions`` (to node names) are Slurm's, where it told them.
    ``now`` and ``since`` are seconds since the epoch, as ``boots``, when Slurm's nodes were booted;
    ``requests`` counts what was sent, ``profile`` is the one that was named.
    """

    answers: Mapping[str, Any]
    now: float
    since: float
    region: str = ""
    identity: str = ""
    requests: Mapping[str, int] = field(default_factory=dict)
    trouble: Unknown | None = None
    old: str = ""
    partitions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    profile: str = ""
    boots: Mapping[str, float] = field(default_factory=dict)

    def get(self, need: Need[T]) -> T:
        """The value; raises the Skip or Unknown that came instead."""
        answer: T | Skip | Unknown = self.answers.get(need.name, Unknown(f"{need.name} was not asked for"))
        return _or_raise(answer)

    def maybe(self, need: Need[T], default: T) -> tuple[T, str]:
        """The value and an empty text, or the default and why."""
        try:
            return self.get(need), ""
        except (Skip, Unknown) as why:
            return default, str(why)


def _or_raise(answer: T | Skip | Unknown) -> T:
    if isinstance(answer, (Skip, Unknown)):
        raise answer
    return answer
