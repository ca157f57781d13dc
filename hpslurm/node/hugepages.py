"""Huge pages: are any left for libfabric's bounce buffers?

EFA's installer reserves 2 MiB pages. libfabric goes on without, but when they are used
up a data loader that forks can end with "cannot allocate memory" while memory is free.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from hpslurm.core.finding import CONFIGURE, LOOK, P2, Evidence, Finding, Rule, Suggestion
from hpslurm.core.policy import Policy
from hpslurm.core.probe import Skip, Unknown
from hpslurm.core.text import size
from hpslurm.core.values import dataclass
from hpslurm.node import efa
from hpslurm.sources.host import Host

SECTION = "debugging-guide.md § 6"
NONE = Rule("hugepages-none", P2, "No huge pages reserved", SECTION)
USED = Rule("hugepages-used-up", P2, "Huge pages used up", SECTION)


@dataclass(frozen=True)
class Facts:
    total: int
    free: int
    size: int  # bytes of one


def collect(host: Host) -> Facts:
    if not efa.devices(host):
        raise Skip("no EFA device")
    facts = huge_pages(host.read("/proc/meminfo"))
    if facts is None:
        raise Unknown("/proc/meminfo does not list huge pages")
    return facts


def huge_pages(meminfo: str) -> Facts | None:
    """The huge pages of ``/proc/meminfo``, or None where it lists none.

    >>> huge_pages('''
    ... MemTotal:       2097152000 kB
    ... HugePages_Total:    5128
    ... HugePages_Free:     5000
    ... Hugepagesize:       2048 kB
    ... ''')
    Facts(total=5128, free=5000, size=2097152)
    """
    lines = re.findall(r"^(HugePages_Total|HugePages_Free|Hugepagesize):\s+(\d{1,20})(?: kB)?$", meminfo, re.M)
    numbers = {name: int(number) for name, number in lines}
    if len(numbers) != 3:
        return None
    return Facts(numbers["HugePages_Total"], numbers["HugePages_Free"], numbers["Hugepagesize"] << 10)


def judge(facts: Facts, policy: Policy) -> Iterator[Finding]:
    see = Suggestion(LOOK, "see them", "srun -w {nodes} grep -i huge /proc/meminfo")
    said = [Evidence("/proc/meminfo", f"HugePages_Total {facts.total} HugePages_Free {facts.free}")]
    if not facts.total:
        yield NONE.found(
            "0 huge pages reserved; EFA's installer reserves some",
            evidence=said,
            suggest=[see, Suggestion(CONFIGURE, "vm.nr_hugepages in /etc/sysctl.d, in the lifecycle script as well")],
        )
    elif not facts.free:
        yield USED.found(
            f"all {facts.total} huge pages of {size(facts.size)} are in use",
            evidence=said,
            suggest=[
                see,
                Suggestion(CONFIGURE, "reserve more, or FI_EFA_USE_HUGE_PAGE=0 for jobs whose data loaders fork"),
            ],
        )
