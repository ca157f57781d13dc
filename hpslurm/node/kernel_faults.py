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
KINDS = (
    (HUNG, re.compile(r"INFO: task .{1,80} blocked (?:in I/O wait )?for more than \d+ seconds")),
    (LOCKUP, re.compile(r"(?:soft lockup - CPU#\d+ stuck|hard LOCKUP on cpu|self-detected stall on CPU)")),
    (OOPS, re.compile(r"(?:^BUG: |kernel BUG at |Oops: |general protection fault|Kernel panic - not syncing)")),
)
_WORDS = (b"blocked ", b"lockup", b"LOCKUP", b"detected stall", b"BUG", b"Oops: ", b"protection fault", b"Kernel panic")


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
        rule = next((rule for rule, pattern in KINDS if pattern.search(record.text)), None)
        if rule is None:
            continue
        if record.time < start and rule is not OOPS:
            earlier += 1
        else:
            lines.append(Line(rule.id, record.time, clean(record.text, 160)))
    dumps = tuple(path for folder in PSTORE for path in host.glob(f"{folder}/*"))[:50]
    return Facts(tuple(lines[:50] + lines[50:][-50:]), earlier, log.begins, dumps)


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
