"""EFA's kernel driver: did a device stop answering it?

The driver sends each command (open a queue, register memory) through one admin queue. When the device lets one go
unanswered for 30 s the driver closes that queue for good: the device stays in sysfs, and every later job on it fails
to start or hangs. Only a reset of the device brings it back. ENA's driver prints the same words, so the name in front
is read, too.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

from hpslurm.core import suggest
from hpslurm.core.finding import LOOK, P0, Evidence, Finding, Rule, Suggestion
from hpslurm.core.policy import Policy
from hpslurm.core.probe import Skip
from hpslurm.core.text import clean
from hpslurm.core.values import dataclass
from hpslurm.node import efa, efa_driver
from hpslurm.node.oom import read
from hpslurm.sources import kmsg
from hpslurm.sources.host import Host

DEAD = Rule("efa-device-dead", P0, "An EFA device stopped answering its driver", efa.SECTION, cause="network_link")
# EFA's driver 3.3 and Linux 6.12: the same words since the first driver. The name stands in front in three forms.
_DEVICE = r"(?:infiniband (?P<name>rdmap\w{1,30}|efa_\d{1,4})|efa (?P<pci>[0-9a-f]{4,8}:[0-9a-f:.]{4,8})(?: \S{1,32})?)"
_WORDS = (
    r"Wait for completion \(polling\) timeout|The device didn't send any completion for admin cmd"
    r"|The device sent a completion but the driver didn't receive any MSI-X interrupt|Admin queue is closed"
    r"|Reset indication didn't turn o(?:n|ff)"
)
LINE = re.compile(rf"{_DEVICE}: (?:{_WORDS})")
_MARKS = (b"completion", b"Admin queue is closed", b"Reset indication")


@dataclass(frozen=True)
class Dead:
    """What the kernel says of one device since boot."""

    device: str
    count: int
    last: float  # seconds since the epoch
    text: str  # of the first line


@dataclass(frozen=True)
class Facts:
    dead: tuple[Dead, ...] = ()


def collect(host: Host) -> Facts:
    if not efa.devices(host) and not efa_driver.cards(host):
        raise Skip("no EFA card")
    lines: dict[str, list[kmsg.Record]] = {}
    for record in read(host).matching(*_MARKS):
        if match := LINE.match(record.text):
            lines.setdefault(match["name"] or match["pci"], []).append(record)
    return Facts(
        tuple(
            Dead(device, len(records), records[-1].time, clean(records[0].text, 200))
            for device, records in sorted(lines.items())
        )
    )


def judge(facts: Facts, policy: Policy) -> Iterator[Finding]:
    if not facts.dead:
        return
    yield DEAD.found(
        f"{' '.join(dead.device for dead in facts.dead)}: {facts.dead[0].text}",
        evidence=[
            Evidence(
                "kernel log",
                f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime(dead.last))} {dead.count} times: {dead.text}",
            )
            for dead in facts.dead
        ],
        suggest=[
            Suggestion(
                LOOK,
                "the device's own counter no_completion_cmds must show it, too",
                "srun -w {nodes} sh -c 'grep -H . /sys/class/infiniband/*/ports/1/hw_counters/*'",
            ),
            suggest.save_evidence(),
            suggest.drain(DEAD.id),
            suggest.reboot("the driver resets the device when it starts"),
            suggest.replace("if it stops answering again"),
        ],
    )
