"""What the site expects of this node: mounts, services, processes, CPUs, memory, files, kernel modules.

Nobody but the site knows that /fsx must be mounted or that a daemon of its own must run; its policy says so, by
node list. A mount or file whose server is gone would hold us for ever: a child touches it, with a time limit.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator

from hpslurm.core.expected import LISTS, Expected
from hpslurm.core.finding import CONFIGURE, LOOK, P0, P1, Evidence, Finding, Rule, Suggestion
from hpslurm.core.policy import Policy
from hpslurm.core.probe import Skip, Unknown, reason
from hpslurm.core.text import clean, size, whole
from hpslurm.core.values import dataclass, field, replace
from hpslurm.node import mounts
from hpslurm.sources.host import Host, error_of

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing costs a hook as much as several probes
    from typing import Any

SECTION = "debugging-guide.md § 22"
MISSING = Rule("site-mount-missing", P0, "A mount that the site expects is missing", SECTION, gateable=True)
HUNG = Rule("site-mount-hung", P0, "A mount that the site expects does not answer", SECTION, gateable=True)
SERVICE = Rule("site-service-down", P1, "A service that the site expects is not active", SECTION, gateable=True)
PROCESS = Rule("site-process-missing", P1, "A process that the site expects does not run", SECTION, gateable=True)
CPUS = Rule("site-cpus-fewer", P1, "Fewer CPUs than the site expects", SECTION, gateable=True)
MEMORY = Rule("site-memory-less", P1, "Less memory than the site expects", SECTION, gateable=True)
FILE = Rule("site-file-missing", P1, "A file that the site expects is missing", SECTION, gateable=True)
MODULE = Rule("site-module-missing", P1, "A kernel module that the site expects is not loaded", SECTION, gateable=True)

ONLINE = "/sys/devices/system/cpu/online"
# Which key of the policy's P0, P1 and P2 a rule hears.
CHECK = {
    MISSING.id: "mounts",
    HUNG.id: "mounts",
    SERVICE.id: "services",
    PROCESS.id: "processes",
    CPUS.id: "cpus",
    MEMORY.id: "memory",
    FILE.id: "files",
    MODULE.id: "modules",
}
MOST_CPUS = 1 << 16  # Linux's own limit is 8192
ACTIVE = ("active", "reloading")
PEOPLE = 1000  # the first uid of people; a user can call a process anything
NAME_LENGTH = 15  # characters that the kernel keeps of a process's name
_SEE_MOUNTS = Suggestion(LOOK, "see what is mounted", "clush -w {nodes} 'cat /proc/mounts'")
_MOUNT = Suggestion(CONFIGURE, "mount it, and in the lifecycle script as well, or it is lost with the next replacement")
_PUT_THERE = Suggestion(CONFIGURE, "put it there, and in the lifecycle script as well")
_SEE_STUCK = Suggestion(
    LOOK, "see what the kernel says of its server", "clush -w {nodes} 'sudo dmesg | grep -i -e lustre -e nfs | tail'"
)
_SEE_SERVICES = Suggestion(LOOK, "see which units failed, and why", "clush -w {nodes} 'systemctl --failed --no-pager'")
_SEE_PROCESSES = Suggestion(LOOK, "see what runs", "clush -w {nodes} 'ps -eo pid,user,comm'")
_SEE_MODULES = Suggestion(LOOK, "see what is loaded", "clush -w {nodes} lsmod")


@dataclass(frozen=True)
class Mount:
    kind: str  # type of file system; empty where nothing is mounted
    trouble: str = ""  # why it does not answer


@dataclass(frozen=True)
class Facts:
    """By the names that the policy had then; what is not in here was not looked at, and ``unseen`` says why."""

    mounts: dict[str, Mount] = field(default_factory=dict)
    services: dict[str, str] = field(default_factory=dict)  # state, as systemctl says it
    processes: dict[str, bool] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)  # what is wrong; empty: it is there
    modules: dict[str, bool] = field(default_factory=dict)
    cpus: int | None = None
    memory: int | None = None  # bytes
    unseen: tuple[str, ...] = ()


def start(host: Host) -> None:
    if host.expected.services:
        host.start("systemctl_active", *host.expected.services)


def collect(host: Host) -> Facts:
    if not host.expected:
        raise Skip("the policy expects nothing of this node")
    seen: dict[str, Any] = {name: {} for name in LISTS}
    unseen = []
    for look in (_cpus, _memory, _modules, _mounts, _files, _services, _processes):
        try:
            look(host, seen)
        except (OSError, Unknown) as error:
            unseen.append(clean(reason(error)))
    return Facts(**seen, unseen=tuple(unseen))


def _cpus(host: Host, seen: dict[str, Any]) -> None:
    if host.expected.cpus_min or host.exists(ONLINE):
        seen["cpus"] = sum(map(_cpus_in, host.read(ONLINE, 4096).strip().split(",")))


def _cpus_in(part: str) -> int:
    """Of ``0-95`` or ``7``.

    >>> _cpus_in("0-95"), _cpus_in("7")
    (96, 1)
    """
    first, dash, last = part.partition("-")
    numbers = whole(first), whole(last if dash else first)
    if numbers[0] is None or numbers[1] is None or not numbers[0] <= numbers[1] < MOST_CPUS:
        raise Unknown(f"{ONLINE} holds no list of CPUs but {clean(part, 40)!r}")
    return numbers[1] - numbers[0] + 1


def _memory(host: Host, seen: dict[str, Any]) -> None:
    seen["memory"] = total_memory(host.read("/proc/meminfo", 4096))


def total_memory(meminfo: str) -> int:
    r"""Bytes of memory by ``/proc/meminfo``. Raises Unknown where it does not say.

    >>> total_memory("MemTotal:       2097152000 kB\nMemFree:        1992294400 kB\n")
    2147483648000
    """
    for line in meminfo.splitlines():
        words = line.split()
        if words[:1] == ["MemTotal:"] and len(words) > 1 and (number := whole(words[1])) is not None:
            return number << 10
    raise Unknown("/proc/meminfo does not list MemTotal")


def _modules(host: Host, seen: dict[str, Any]) -> None:
    if host.expected.modules and not host.exists("/sys/module"):
        raise Unknown("/sys/module does not exist")
    for name in host.expected.modules:
        seen["modules"][name] = host.exists(f"/sys/module/{name.replace('-', '_')}")


def _mounts(host: Host, seen: dict[str, Any]) -> None:
    if not host.expected.mounts:
        return
    kinds = mounts.kinds(host.read("/proc/self/mounts"))
    if not kinds:
        raise Unknown("/proc/self/mounts lists nothing")
    for path in dict.fromkeys(entry.split()[0] for entry in host.expected.mounts):
        kind = clean(kinds.get(path, ""), 40)
        seen["mounts"][path] = Mount(kind, _wrong(host.reach(path)) if kind else "")


def _files(host: Host, seen: dict[str, Any]) -> None:
    for path in host.expected.files:
        seen["files"][path] = _wrong(host.reach(path))


def _wrong(answer: int | str) -> str:
    """What an answer of ``reach`` says is wrong; to be refused is to be answered."""
    if isinstance(answer, str):
        return answer
    return "" if answer in (0, errno.EACCES) else os.strerror(answer)


def _services(host: Host, seen: dict[str, Any]) -> None:
    names = host.expected.services
    if not names:
        return
    output = host.run("systemctl_active", *names)
    states = output.out.split()
    if len(states) != len(names):
        raise Unknown(f"systemctl is-active: {len(states)} answers for {len(names)} services: {error_of(output)}")
    seen["services"].update(zip(names, (clean(state, 40) for state in states), strict=True))


def _processes(host: Host, seen: dict[str, Any]) -> None:
    """Processes are looked at until all are found: some thousand files where one is missing."""
    missing = set(host.expected.processes)
    for path in host.glob("/proc/[0-9]*/comm") if missing else ():
        if time.monotonic() > host.deadline:
            raise Unknown("no time left to look at all processes")
        name = _of_system(host, path)
        missing = {wanted for wanted in missing if wanted[:NAME_LENGTH] != name}
        if not missing:
            break
    seen["processes"].update((name, name not in missing) for name in host.expected.processes)


def _of_system(host: Host, path: str) -> str:
    """The name of a process of root, of a system account, or ours; empty for another, or one that has ended."""
    try:
        uid = os.stat(host.path(path)).st_uid
        return (host.word(path) or "") if uid < PEOPLE or uid == os.geteuid() else ""
    except OSError:
        return ""


def judge(facts: Facts, policy: Policy) -> Iterator[Finding]:
    expected = policy.expected()
    for finding in _found(facts, expected):
        priority = expected.priorities.get(CHECK[finding.rule.id], finding.rule.priority)
        yield replace(finding, rule=replace(finding.rule, priority=priority))
    if not_seen := [*facts.unseen, *_not_looked_at(facts, expected)]:
        raise Unknown("; ".join(not_seen))


def _not_looked_at(facts: Facts, expected: Expected) -> list[str]:
    """What these facts cannot tell: a look that failed, or a policy that expected less when they were made."""
    wanted = (
        (facts.mounts, [entry.split()[0] for entry in expected.mounts]),
        (facts.services, expected.services),
        (facts.processes, expected.processes),
        (facts.files, expected.files),
        (facts.modules, expected.modules),
        ({"CPUs"} if facts.cpus is not None else (), ["CPUs"] if expected.cpus_min else ()),
        ({"memory"} if facts.memory is not None else (), ["memory"] if expected.memory_min else ()),
    )
    missed = [name for seen, names in wanted for name in names if name not in seen]
    return [f"not looked at: {', '.join(missed)}"] if missed else []


def _found(facts: Facts, expected: Expected) -> Iterator[Finding]:
    yield from _bad_mounts(facts, expected)
    states = {name: state for name, state in facts.services.items() if name in expected.services}
    if down := {name: state for name, state in states.items() if state not in ACTIVE}:
        yield _finding(SERVICE, {name: f"systemctl is-active: {state}" for name, state in down.items()}, _SEE_SERVICES)
    if gone := [name for name in expected.processes if facts.processes.get(name) is False]:
        yield _finding(PROCESS, dict.fromkeys(gone, "no process of root or a system account"), _SEE_PROCESSES)
    if lost := {path: facts.files[path] for path in expected.files if facts.files.get(path)}:
        yield _finding(FILE, lost, _PUT_THERE)
    if gone := [name for name in expected.modules if facts.modules.get(name) is False]:
        yield _finding(MODULE, dict.fromkeys(gone, "not in /sys/module"), _SEE_MODULES)
    if facts.cpus is not None and facts.cpus < expected.cpus_min:
        yield CPUS.found(
            f"{facts.cpus} CPUs online, expected {expected.cpus_min}",
            evidence=[Evidence(ONLINE, f"{facts.cpus} CPUs")],
            suggest=[Suggestion(LOOK, "see which are offline", "clush -w {nodes} lscpu")],
        )
    if facts.memory is not None and facts.memory < expected.memory_min:
        yield MEMORY.found(
            f"{size(facts.memory)} of memory, expected {size(expected.memory_min)}",
            evidence=[Evidence("/proc/meminfo", f"MemTotal {facts.memory} bytes, expected {expected.memory_min}")],
            suggest=[
                Suggestion(
                    LOOK,
                    "a DIMM that was lost is missing here",
                    "clush -w {nodes} 'sudo dmesg | grep -i -e edac -e mce'",
                )
            ],
        )


def _bad_mounts(facts: Facts, expected: Expected) -> Iterator[Finding]:
    missing: dict[str, str] = {}
    hung: dict[str, str] = {}
    for entry in expected.mounts:
        path, *kind = entry.split()
        mount = facts.mounts.get(path)
        if mount is None:
            continue
        if not mount.kind:
            missing[path] = "not in /proc/self/mounts"
        elif kind and mount.kind != kind[0]:
            missing[path] = f"is {mount.kind}, expected {kind[0]}"
        elif mount.trouble:
            hung[path] = f"{mount.kind}: {mount.trouble}"
    if missing:
        yield _finding(MISSING, missing, _SEE_MOUNTS, _MOUNT)
    if hung:
        yield _finding(HUNG, hung, _SEE_STUCK)


def _finding(rule: Rule, wrong: dict[str, str], *suggest: Suggestion) -> Finding:
    """One for all of a kind: the names in the detail, what was seen of each in the evidence."""
    evidence = [Evidence(clean(name, 120), clean(what)) for name, what in wrong.items()]
    first = f"{evidence[0].source}: {evidence[0].text}"
    more = ", ".join(one.source for one in evidence[1:])
    return rule.found(clean(f"{first}; also {more}" if more else first), evidence=evidence, suggest=suggest)
