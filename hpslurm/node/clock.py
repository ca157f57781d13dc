"""Clock: is it synchronised, and how far off is it?

Munge refuses credentials of another time, signed AWS calls fail, and the time stamps of
two nodes' logs no longer show which rank was first. chrony is asked where it runs (it
does on AWS's images), else the mark that systemd-timesyncd leaves.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from hpslurm.core.finding import CONFIGURE, LOOK, P1, Evidence, Finding, Rule, Suggestion
from hpslurm.core.policy import Policy
from hpslurm.core.probe import Unknown
from hpslurm.core.values import dataclass
from hpslurm.sources.host import Host, error_of

SECTION = "debugging-guide.md § 7"
UNSYNCHRONISED = Rule("clock-unsynchronised", P1, "Clock not synchronised", SECTION)
OFF = Rule("clock-off", P1, "Clock off", SECTION)
TIMESYNC = "/run/systemd/timesync"
SETTLE = 300.0  # seconds after boot in which a clock may still be setting
_OFFSET = re.compile(r"System time\s{0,9}:\s{0,9}(\d{1,12}\.?\d{0,12}) seconds (?:slow|fast) of NTP time")
_LEAP = re.compile(r"Leap status\s{0,9}:\s{0,9}(.+)")


@dataclass(frozen=True)
class Facts:
    source: str  # who says so
    synchronised: bool
    offset: float | None  # seconds; None where the source does not say
    uptime: float  # seconds


def tracking(text: str) -> tuple[bool, float] | None:
    """What ``chronyc tracking`` says: is the clock synchronised, and how many seconds off; None for other text.

    >>> tracking('''
    ... Reference ID    : A9FEA97B (169.254.169.123)
    ... System time     : 0.000002187 seconds slow of NTP time
    ... Leap status     : Normal
    ... ''')
    (True, 2.187e-06)
    """
    leap, offset = _LEAP.search(text), _OFFSET.search(text)
    return (leap[1].strip() != "Not synchronised", float(offset[1])) if leap and offset else None


def _chrony(host: Host) -> bool:
    return any(host.exists(f"{folder}/chronyd.pid") for folder in ("/run/chrony", "/run"))


def start(host: Host) -> None:
    if _chrony(host):
        host.start("chronyc")


def collect(host: Host) -> Facts:
    uptime = host.uptime()
    trouble = "chrony does not run"
    if _chrony(host):
        output = host.run("chronyc")
        answer = tracking(output.out)
        if output.status == 0 and answer:
            return Facts("chronyc tracking", *answer, uptime)
        trouble = f"chronyc tracking failed: {error_of(output)}" if output.status else "chronyc tracking says nothing"
    if host.exists(TIMESYNC):
        return Facts(TIMESYNC, host.exists(f"{TIMESYNC}/synchronized"), None, uptime)
    raise Unknown(f"{trouble}, and neither does systemd-timesyncd: nobody here can tell")


def judge(facts: Facts, policy: Policy) -> Iterator[Finding]:
    see = Suggestion(LOOK, "see its sources", "srun -w {nodes} sh -c 'timedatectl; chronyc -n sources'")
    if not facts.synchronised and facts.uptime > SETTLE:
        yield UNSYNCHRONISED.found(
            f"not synchronised {facts.uptime:.0f} s after boot",
            evidence=[Evidence(facts.source, "not synchronised")],
            suggest=[
                see,
                Suggestion(
                    CONFIGURE,
                    "AWS's time service answers at 169.254.169.123 without any network rule",
                    "srun -w {nodes} grep -rn 169.254.169.123 /etc/chrony /etc/chrony.conf /etc/chrony.d",
                ),
            ],
        )
    if facts.offset is not None and facts.offset > policy.clock_off_max:
        yield OFF.found(
            f"{facts.offset:.3f} s off, expected at most {policy.clock_off_max} s",
            evidence=[Evidence(facts.source, f"System time {facts.offset} seconds off")],
            suggest=[see],
        )
