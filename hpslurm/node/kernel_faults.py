"""The kernel's own complaints: tasks that hang, CPUs that lock up, faults inside the kernel.

A task blocked for minutes waits for a dead device or file system; a locked CPU delays
every rank of the node; after an oops nothing the kernel does can be trusted until the
next boot. Hangs and lock-ups pass: during a job only its own time counts, else the last day.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

from hpslurm.core import suggest
from hpslurm.core.finding import LOOK, P1, P2, Evidence, Finding, Rule, Suggestion
from hpslurm.core.policy import Policy
from hpslurm.core.text import clean
from hpslurm.core.values import dataclass
from hpslurm.node.oom import read, since
from hpslurm.sources.host import Host

SECTION = "debugging-guide.md § 7"
HUNG = Rule("kernel-hung-task", P1, "Tasks hang in the kernel", SECTION)
LOCKUP = Rule("kernel-lockup", P1, "A CPU locked up", SECTION)
OOPS = Rule("kernel-oops", P1, "A fault inside the kernel", SECTION)
PANIC = Rule("kernel-panic", P2, "An earlier boot ended in a panic", SECTION)
PSTORE = ("/sys/fs/pstore", "/var/lib/systemd/pstore")  # what a dying kernel left behind, and where systemd puts it
# The kernel's own forms, from the line's first letter on. A program's crash is told by the kernel, too, and begins
# with up to fifteen letters that its user chose (``BUG: x[7]: segfault at 0 ip ... in FILE[...]``), or names it
# (``traps: python[1] general protection fault ip:``). What is a fault of the kernel itself is longer than those
# fifteen, or ends in its number, ``[#1]``.
_NUMBERED = r"[0-9a-f]{4,16} \[#\d{1,6}\](?: [A-Za-z_()-]{1,24}){0,8}$"
_KINDS_OF_OOPS = (
    "Oops|general protection fault|invalid opcode|divide error|stack segment|double fault|int3|bounds|alignment check"
    "|invalid TSS|segment not present|synchronous external abort"
)
_BUGS = (
    r"unable to handle (?:kernel )?\w|kernel NULL pointer dereference|Bad page (?:state|map) in process "
    r"|Bad rss-counter state |scheduling while atomic: |sleeping function called from |workqueue lockup "
    r"|stack guard page was hit |(?:KASAN|KFENCE): [a-z-]{1,40} (?:read |write )?in "
)
KINDS = (
    (HUNG, re.compile(r"INFO: task [^\n]{1,60}:\d{1,10} blocked (?:in I/O wait )?for more than \d+ seconds")),
    (
        LOCKUP,
        re.compile(
            r"(?:watchdog: )?BUG: soft lockup - CPU#\d+ stuck"
            r"|(?:NMI )?watchdog: (?:CPU\d+: )?Watchdog detected hard LOCKUP on cpu"
            r"|(?:rcu: )?INFO: \w{1,40} (?:self-detected stall on CPU|detected stalls on CPUs/tasks)"
        ),
    ),
    (
        OOPS,
        re.compile(
            rf"BUG: (?:{_BUGS})|kernel BUG at \S{{1,200}}:\d{{1,6}}!|Unable to handle kernel \w"
            r"|Kernel panic - not syncing: "
            rf"|(?:Internal error: )?(?:{_KINDS_OF_OOPS})(?:[:,] [^\n]{{1,100}}| - BUG)?: {_NUMBERED}"
        ),
    ),
)
_WORDS = (b"INFO: ", b"lockup", b"LOCKUP", b"BUG: ", b"BUG at ", b"[#", b"Unable to handle kernel", b"Kernel panic")


@dataclass(frozen=True)
class Line:
    rule: str
    time: float  # seconds since the epoch
    text: str


@dataclass(frozen=True)
class Facts:
    lines: tuple[Line, ...]  # that count, oldest first
    earlier: int  # hangs and lock-ups before that
    begins: float  # since when the log is whole; 0: since boot
    dumps: tuple[str, ...]  # of panics of earlier boots


def collect(host: Host) -> Facts:
    log = read(host)
    start = since(host, log)
    lines, earlier = [], 0
    for record in log.matching(*_WORDS):
        rule = rule_of(record.text)
        if rule is None:
            continue
        if record.time < start and rule is not OOPS:
            earlier += 1
        else:
            lines.append(Line(rule.id, record.time, clean(record.text, 160)))
    dumps = tuple(path for folder in PSTORE for path in host.glob(f"{folder}/*"))[:50]
    return Facts(tuple(lines[:50] + lines[50:][-50:]), earlier, log.begins, dumps)


def rule_of(text: str) -> Rule | None:
    """What kind of fault a line of the kernel's tells of, if any.

    >>> rule_of("INFO: task python:4711 blocked for more than 120 seconds.").id
    'kernel-hung-task'
    >>> rule_of("traps: python[4711] general protection fault ip:7f0 sp:7ff error:0") is None
    True
    """
    return next((rule for rule, pattern in KINDS if pattern.match(text)), None)


def judge(facts: Facts, policy: Policy) -> Iterator[Finding]:
    for rule, _ in KINDS:
        lines = [line for line in facts.lines if line.rule == rule.id]
        if lines:
            yield rule.found(
                f"{len(lines)} times, first: {lines[0].text}",
                evidence=[
                    Evidence(f"kernel log {time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime(line.time))}", line.text)
                    for line in lines[:8]
                ],
                suggest=[
                    Suggestion(LOOK, "see what stands around it", "clush -w {nodes} 'sudo dmesg -T | tail -n 200'"),
                    suggest.save_evidence(),
                    suggest.drain(rule.id),
                    suggest.reboot("if it goes on, or after a fault inside the kernel"),
                    suggest.replace("if it comes back after the reboot"),
                ],
            )
    if facts.dumps:
        yield PANIC.found(
            f"{len(facts.dumps)} records of a dying kernel",
            evidence=[Evidence(path, "left by an earlier boot") for path in facts.dumps[:8]],
            suggest=[Suggestion(LOOK, "read the newest", f"clush -w {{nodes}} 'sudo ls -lt {' '.join(PSTORE)}'")],
        )
