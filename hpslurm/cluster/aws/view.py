"""What the AWS half brought back: values, and for each thing that did not come, why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hpslurm.core.probe import Skip, Unknown
from hpslurm.core.values import dataclass, field


@dataclass(frozen=True)
class View:
    """``answers`` maps a name to its value, or to the Skip or Unknown that came instead.

    ``now`` and ``since`` are seconds since the epoch; ``requests`` counts what was sent.
    """

    answers: Mapping[str, Any]
    now: float
    since: float
    region: str = ""
    identity: str = ""
    requests: Mapping[str, int] = field(default_factory=dict)

    def get(self, name: str) -> Any:
        """The value; raises the Skip or Unknown that came instead."""
        value = self.answers.get(name, Unknown(f"{name} was not asked for"))
        if isinstance(value, (Skip, Unknown)):
            raise value
        return value

    def maybe(self, name: str, default: Any) -> tuple[Any, str]:
        """The value and an empty text, or the default and why."""
        try:
            return self.get(name), ""
        except (Skip, Unknown) as why:
            return default, str(why)
