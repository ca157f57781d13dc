"""What a site may change: thresholds, partitions, the gate, mutes, where records go.

Defaults live here; ``/etc/hpslurm/policy.toml`` overrides them. A key that we do not
know or a value of the wrong type is reported, and the default is used: a policy with
a typing mistake must never be the reason why a node stops taking jobs.
"""

from __future__ import annotations

import os
import stat
import time
import zlib
from fnmatch import fnmatchcase

from hpslurm.core import expected, toml
from hpslurm.core.finding import Finding
from hpslurm.core.text import clean
from hpslurm.core.values import dataclass, fields, replace

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing costs a hook as much as several probes
    from typing import Any

PATH = "/etc/hpslurm/policy.toml"
LARGEST = 1 << 20  # bytes; a policy is a page or two


@dataclass(frozen=True)
class Mute:
    """A finding the site lives with: marked, never dropped, until it expires.

    ``rule`` and ``node`` are shell patterns (``efa-*``, ``ip-10-1-*``); ``until`` is a
    date ``YYYY-MM-DD``, the last day on which the mute holds.
    """

    rule: str
    reason: str
    node: str = "*"
    until: str = ""
    author: str = ""
    instance: str = ""


@dataclass(frozen=True)
class Policy:
    """Thresholds in the unit that their name or comment says; each default carries its source."""

    # AWS's lifecycle scripts set 8388608 KiB for jobs; one peer warns below 16 GiB.
    memlock_min: int = 8 << 30  # bytes
    # An earlier tool for HyperPod fails below 1 GB, warns below 4 GB and above 80 percent used.
    shm_tiny: int = 1 << 30  # bytes
    shm_min: int = 4 << 30  # bytes
    shm_used_max: float = 0.8  # share of the size
    # nccl-tests against the expected bandwidth: peers stand at 0.95, 0.92 and 0.57; independent runs agree within 0.01.
    bandwidth_warn_below: float = 0.9  # share
    bandwidth_fail_below: float = 0.75  # share

    # HyperPod's agent waits two minutes when NVML shows no GPU right after boot.
    gpu_boot_grace: float = 180.0  # seconds after boot in which a GPU or the fabric may still be coming
    gpu_hot: int = 88  # degrees Celsius; an H100 slows itself down there, HyperPod calls it a concern
    pages_retired_max: int = 60  # of the 64 that a GPU before Ampere can retire

    # diagnose: share of all nodes beyond which reboots and replacements are no longer suggested one by one
    guard_share: float = 0.25
    completing_max: int = 300  # seconds that a job may take to clean up after its end; Slurm waits 60 for a kill
    # PyTorch's time-out for a collective of NCCL is 10 minutes; before that a step may only be slow.
    stall_minutes: int = 10  # that a job must stand still before it is called so
    report_fresh: int = 86400  # seconds; a node whose newest record is older counts as not looked at
    stack_min: int = 4 << 20  # bytes; an earlier tool for HyperPod fails below 4096 KiB
    disk_used_max: float = 0.9  # share of a file system's size, and of its inodes
    mtu_min: int = 9000  # bytes; EC2 offers 9001 within a VPC
    clock_off_max: float = 1.0  # seconds; chrony on EC2 keeps below a millisecond
    # One peer asks three times, five seconds apart, before it believes that a device is missing.
    efa_boot_grace: float = 60.0  # seconds after boot in which an EFA device may still be coming

    # "efa" for every look, "prolog.efa" for one of prolog, epilog, health and step (hpslurm-check)
    probes_off: tuple[str, ...] = ()
    probes_on: tuple[str, ...] = ()  # looks that a hook leaves out by default, such as "prolog.dstate"
    partitions: tuple[str, ...] = ()  # hooks look only at these; empty: at all
    gate: tuple[str, ...] = ()  # rule ids for which the prolog may say drain; empty: none
    gate_per_hour: int = 4  # nodes, counted in results_shared; 0: no cap
    results: str = "/var/lib/hpslurm"
    results_shared: str = ""
    scan_job_output: bool = True  # the epilog reads the end of the job's output, with its user's rights
    keep_days: int = 30
    shared_keep_days: int = 90  # of results_shared, once a day by whichever node's hook comes first; 0: kept for good
    keep_jobs: int = 1000
    diagnoses_keep_days: int = 730  # what was found out about jobs, by whole months; 0: kept for good
    mutes: tuple[Mute, ...] = ()
    nodes: tuple[expected.NodeTable, ...] = ()  # what must be there, by node list
    # NFS and Lustre answer within milliseconds; a hook has 3.5 s for all that it looks at.
    mount_answer_max: float = 2.0  # seconds that a mount of `nodes` may take to answer

    # Not for the file: who we are, and what was wrong with the file.
    node: str = ""
    instance: str = ""
    hash: str = "default"
    problems: tuple[str, ...] = ()

    def mute(self, finding: Finding) -> Finding:
        """The finding itself, or a copy marked with the reason of the first mute that covers it."""
        node = finding.subject or self.node
        today = time.strftime("%Y-%m-%d")
        for mute in self.mutes:
            if (
                fnmatchcase(finding.rule.id, mute.rule)
                and fnmatchcase(node, mute.node)
                and (not mute.until or mute.until >= today)
                and (not mute.instance or mute.instance == self.instance)
            ):
                more = ", ".join(filter(None, (mute.author, mute.until and f"until {mute.until}")))
                return replace(finding, muted=mute.reason + (f" ({more})" if more else ""))
        return finding

    def expected(self) -> expected.Expected:
        """What the site's tables say must be there on this node."""
        return expected.merged(self.nodes, self.node)

    def expired(self) -> tuple[Mute, ...]:
        """Mutes that hold no more. Told by doctor and what-if, not by hooks: nobody reads that with every job."""
        today = time.strftime("%Y-%m-%d")
        return tuple(mute for mute in self.mutes if mute.until and mute.until < today)


_OURS = ("node", "instance", "hash", "problems")
_KEYS = tuple(item.name for item in fields(Policy) if item.name not in _OURS)
_MUTE_KEYS = tuple(item.name for item in fields(Mute))


def load(path: str = PATH, *, node: str = "", instance: str = "") -> Policy:
    """The site's policy, or the default with ``problems`` that say what was not taken and why.

    Never raises. A file that is not a regular file of root (or of the caller), or that
    others may write, is ignored: it decides what a hook of root does.
    """
    default = Policy(node=node, instance=instance)
    try:
        text = _trusted_text(path)
    except FileNotFoundError:
        return default
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        return replace(default, problems=(f"{path} ignored, defaults used: {reason}",))
    try:
        raw = toml.plain(text)  # without the reader of the standard library, which costs a hook more than all probes
        if raw is None:
            raw = toml.loads(text)
    except ValueError as error:
        return replace(default, problems=(f"{path} ignored, defaults used: {clean(str(error))}",))
    except RecursionError:
        return replace(
            default, problems=(f"{path} ignored, defaults used: brackets within brackets, too deep to read",)
        )
    taken, problems = _checked(raw, path)
    # tells one policy from another in a record; hashlib would load OpenSSL into every hook
    checksum = f"{zlib.crc32(text.encode()):08x}"
    return replace(default, **taken, hash=checksum, problems=tuple(problems))


def _trusted_text(path: str) -> str:
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        about = os.fstat(handle)
        if not stat.S_ISREG(about.st_mode):
            raise ValueError("not a regular file")
        if about.st_uid not in (0, os.geteuid()):
            raise ValueError(f"owned by uid {about.st_uid}, not by root (chown root {path})")
        if about.st_mode & 0o022:
            raise ValueError(f"group or others may write it (chmod go-w {path})")
        if about.st_size > LARGEST:
            raise ValueError(f"{about.st_size} bytes, more than {LARGEST}")
        return os.read(handle, LARGEST).decode("utf-8")
    finally:
        os.close(handle)


def _checked(raw: dict[str, Any], path: str) -> tuple[dict[str, Any], list[str]]:
    taken: dict[str, Any] = {}
    problems: list[str] = []
    for key, value in raw.items():
        if key not in _KEYS:
            problems.append(f"{path}: unknown key {clean(key, 60)!r}, ignored (known: {', '.join(_KEYS)})")
        elif key == "mutes":
            taken[key] = tuple(_mutes(value, path, problems))
        elif key == "nodes":
            taken[key] = expected.tables(value, path, problems)
        else:
            wanted = getattr(Policy, key)
            good, shape = _fitting(value, wanted)
            if good is None:
                problems.append(f"{path}: {key} must be {shape}, default {wanted!r} used")
            else:
                taken[key] = good
    return taken, problems


def _fitting(value: Any, wanted: Any) -> tuple[Any, str]:
    """The value in the type of the default, or None; and the shape in words."""
    if isinstance(wanted, tuple):
        good = isinstance(value, list) and all(isinstance(item, str) for item in value)
        return (tuple(value) if good else None), "a list of strings"
    if isinstance(wanted, bool):
        return (value if isinstance(value, bool) else None), "true or false"
    if isinstance(wanted, str):
        # a path with a NUL or a line break in it is none that we can write to, or tell of
        good = isinstance(value, str) and value.isprintable()
        return (value if good else None), "a string without control characters"
    number = isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0
    if isinstance(wanted, float):
        return (float(value) if number else None), "a number, zero or more"
    return (value if number and isinstance(value, int) else None), "a whole number, zero or more"


def _mutes(value: Any, path: str, problems: list[str]) -> list[Mute]:
    good = []
    for number, row in enumerate(value if isinstance(value, list) else [value], start=1):
        if not isinstance(row, dict) or not all(isinstance(item, str) for item in row.values()):
            problems.append(f"{path}: [[mutes]] number {number} must hold strings only, ignored")
        elif not row.get("rule") or not row.get("reason"):
            problems.append(f"{path}: [[mutes]] number {number} needs rule and reason, ignored")
        elif unknown := set(row) - set(_MUTE_KEYS):
            problems.append(f"{path}: [[mutes]] number {number} has unknown {', '.join(sorted(unknown))}, ignored")
        else:
            mute = Mute(**row)
            if mute.until and not _is_date(mute.until):
                problems.append(
                    f"{path}: [[mutes]] number {number}: until must be a date as in 2027-01-31, "
                    f"not {clean(mute.until, 40)!r}, ignored"
                )
                continue
            good.append(mute)
    return good


_DAYS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


def _is_date(text: str) -> bool:
    """A day of the calendar, in the one form whose order is that of time.

    By hand, since time.strptime loads calendar and locale: a hook would pay a fifth of Python's own start.
    """
    parts = text.split("-")
    if [4, 2, 2] != [len(part) for part in parts] or not (text.isascii() and "".join(parts).isdigit()):
        return False
    year, month, day = map(int, parts)
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    return year > 0 and 1 <= month <= 12 and 1 <= day <= _DAYS[month - 1] + (leap and month == 2)
