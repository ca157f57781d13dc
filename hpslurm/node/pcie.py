"""PCIe: does each GPU have its full link to the host?

Data from the network and from the host goes through it. The generation may drop while a
GPU is idle, to save power; the width may not. A pair that is short on every GPU alike
is how this kind of machine reports itself, and no fault of one GPU.
"""

from __future__ import annotations

from collections.abc import Iterator

from hpslurm.core import suggest
from hpslurm.core.finding import P0, P1, P2, Evidence, Finding, Rule
from hpslurm.core.policy import Policy
from hpslurm.core.probe import Unknown
from hpslurm.core.values import dataclass
from hpslurm.node import gpus
from hpslurm.sources import gpu
from hpslurm.sources.host import Host

SECTION = "debugging-guide.md § 7"
NARROW = Rule("pcie-width", P1, "PCIe link of a GPU narrow", SECTION, gateable=True)
FAR_TOO_NARROW = Rule("pcie-width-half", P0, "PCIe link of a GPU below half its width", SECTION, gateable=True)
ALIKE = Rule("pcie-width-alike", P2, "PCIe links of all GPUs narrow alike", SECTION)
SLOW = Rule("pcie-generation", P2, "PCIe link of a working GPU at a lower generation", SECTION)

IDLE = 0x1  # of the clock reasons


@dataclass(frozen=True)
class Link:
    gpu: str
    generation: int | None
    width: int | None
    most_generation: int | None
    most_width: int | None
    replays: int | None  # since the driver was loaded
    idle: bool


@dataclass(frozen=True)
class Facts:
    links: tuple[Link, ...]
    trouble: str = ""


def start(host: Host) -> None:
    gpu.start(host)


def collect(host: Host) -> Facts:
    answers = gpus.answers(host, "pcie")
    links = []
    for device in answers.gpus:
        if device.pcie is not None:
            generation, width, most_generation, most_width, replays = device.pcie
            idle = not device.processes or bool((device.clocks or 0) & IDLE)
            links.append(Link(str(device), generation, width, most_generation, most_width, replays, idle))
    return Facts(tuple(links), answers.trouble)


def judge(facts: Facts, policy: Policy) -> Iterator[Finding]:
    narrow = [link for link in facts.links if link.width and link.most_width and link.width < link.most_width]
    pairs = {(link.width, link.most_width) for link in facts.links}
    if narrow and len(facts.links) > 1 and len(pairs) == 1:
        yield _width(ALIKE, narrow)
    else:
        half = [link for link in narrow if 2 * (link.width or 0) < (link.most_width or 0)]
        for rule, links in ((FAR_TOO_NARROW, half), (NARROW, [link for link in narrow if link not in half])):
            if links:
                yield _width(rule, links)
    slow = [
        link
        for link in facts.links
        if not link.idle and link.generation and link.most_generation and link.generation < link.most_generation
    ]
    if slow:
        yield SLOW.found(
            "; ".join(
                f"{gpus.names([link.gpu])}: generation {link.generation} of {link.most_generation}" for link in slow
            ),
            evidence=[
                Evidence(link.gpu, f"PCIe generation {link.generation} of {link.most_generation}") for link in slow
            ],
            suggest=[_SEE],
        )
    if facts.trouble:
        raise Unknown(facts.trouble)


_SEE = gpus.see("sudo lspci -vv -d 10de:", "see LnkCap and LnkSta of each GPU")


def _width(rule: Rule, links: list[Link]) -> Finding:
    steps = [_SEE]
    if rule.priority != P2:
        steps += [
            suggest.save_evidence(),
            suggest.drain(rule.id),
            suggest.reboot("links are trained again at boot"),
            suggest.replace("if it is narrow again after the reboot"),
        ]
    return rule.found(
        f"{gpus.names(link.gpu for link in links)}: x{links[0].width}, expected x{links[0].most_width}",
        evidence=[Evidence(link.gpu, f"PCIe width x{link.width} of x{link.most_width}") for link in links],
        suggest=steps,
    )
