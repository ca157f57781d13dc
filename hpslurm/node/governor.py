"""CPU governor: may the cores that feed NCCL's proxy threads run at full clock?

Where the machine lets the system choose (many EC2 types do not), any governor but
``performance`` makes the proxy threads late after every pause.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from hpslurm.core.finding import CONFIGURE, LOOK, P2, Evidence, Finding, Rule, Suggestion
from hpslurm.core.policy import Policy
from hpslurm.core.probe import Skip
from hpslurm.core.text import clean
from hpslurm.core.values import dataclass
from hpslurm.sources.host import Host

SLOW = Rule("cpu-governor", P2, "CPU governor is not performance", "debugging-guide.md § 7")
FILES = "/sys/devices/system/cpu/cpufreq/policy*/scaling_governor"


@dataclass(frozen=True)
class Facts:
    governors: dict[str, int]  # name to number of CPU groups


def collect(host: Host) -> Facts:
    governors = Counter(clean(host.word(path) or "nothing", 40) for path in host.glob(FILES))
    if not governors:
        raise Skip("this machine does not let the system choose the CPU clock")
    return Facts(dict(sorted(governors.items())))


def judge(facts: Facts, policy: Policy) -> Iterator[Finding]:
    others = {name: count for name, count in facts.governors.items() if name != "performance"}
    if others:
        yield SLOW.found(
            f"{', '.join(f'{count} CPU groups on {name}' for name, count in others.items())}, expected performance",
            evidence=[Evidence(FILES, f"{name}: {count}") for name, count in facts.governors.items()],
            suggest=[
                Suggestion(LOOK, "see the governors", f"srun -w {{nodes}} sh -c 'cat {FILES} | sort | uniq -c'"),
                Suggestion(CONFIGURE, "set performance at boot, in the lifecycle script as well"),
            ],
        )
