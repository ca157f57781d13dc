"""NVLink: is every link of every GPU up, at the speed of its neighbours?

Inside a node NCCL moves data over NVLink, many times faster than over PCIe. With a link
down it is slower for all ranks of the job, or a collective hangs. The number of links
is asked from each GPU; it is not the maximum that a header file names.
"""

from __future__ import annotations

from collections.abc import Iterator

from hpslurm.core import suggest
from hpslurm.core.finding import P0, P1, Evidence, Finding, Rule
from hpslurm.core.policy import Policy
from hpslurm.core.probe import Skip, Unknown
from hpslurm.core.values import dataclass, field
from hpslurm.node import gpus
from hpslurm.sources import gpu
from hpslurm.sources.host import Host

SECTION = "debugging-guide.md § 19"
DOWN = Rule("nvlink-down", P0, "NVLink down", SECTION, cause="gpu_nvlink", gateable=True)
SLOW = Rule("nvlink-slow", P1, "NVLink slower than on the other GPUs", SECTION, cause="gpu_nvlink", gateable=True)


@dataclass(frozen=True)
class Links:
    gpu: str
    up: int
    down: tuple[int, ...] = ()  # numbers of the links
    speed: int | None = None  # MB/s of each link
    errors: dict[str, int] = field(
        default_factory=dict
    )  # counter to its sum over the links, since the driver was loaded


@dataclass(frozen=True)
class Facts:
    links: tuple[Links, ...]
    trouble: str = ""


def start(host: Host) -> None:
    gpu.start(host)


def collect(host: Host) -> Facts:
    answers = gpus.answers(host, "links", "link_speed")
    links = []
    for device in answers.gpus:
        if device.links is not None:
            down = tuple(number for number, state in enumerate(device.links) if state == 0)
            errors = {name: sum(values) for name, values in device.link_errors.items() if any(values)}
            links.append(Links(str(device), sum(state == 1 for state in device.links), down, device.link_speed, errors))
    # One GPU of the node alone, as in a p5.4xlarge, has NVLink ports but no peer behind them.
    if len(answers.gpus) == 1 and links and not links[0].up:
        raise Skip("one GPU: its NVLink ports have no peer")
    return Facts(tuple(links), answers.trouble)


def judge(facts: Facts, policy: Policy) -> Iterator[Finding]:
    see = gpus.see("nvidia-smi nvlink --status", "see each link")
    down = [link for link in facts.links if link.down]
    if down:
        yield DOWN.found(
            "; ".join(f"{gpus.names([link.gpu])}: {link.up} of {link.up + len(link.down)} links up" for link in down),
            evidence=[Evidence(link.gpu, f"down: link {', '.join(map(str, link.down))}") for link in down],
            suggest=[
                see,
                suggest.save_evidence(),
                suggest.drain(DOWN.id),
                suggest.reboot("links are trained again at boot"),
                suggest.replace("if one is down after the reboot; a cloud user cannot reseat a cable"),
            ],
        )
    speeds = [link.speed for link in facts.links if link.speed]
    slow = [link for link in facts.links if link.speed and link.speed < max(speeds)]
    if slow:
        yield SLOW.found(
            "; ".join(f"{gpus.names([link.gpu])}: {link.speed} MB/s a link" for link in slow)
            + f", expected {max(speeds)} MB/s as on the others",
            evidence=[Evidence(link.gpu, f"common link speed {link.speed} MB/s") for link in slow],
            suggest=[see, suggest.save_evidence(), suggest.reboot("links are trained again at boot")],
        )
    if facts.trouble:
        raise Unknown(facts.trouble)
