"""The door to Slurm: nodes, jobs, the queue and the configuration, as plain values.

One cluster can be asked in several forms, and no form is on every release: ``scontrol
--json`` exists from 23.11 on, its text everywhere. The forms lead to equal values once
white space in reasons is folded; a field that a form lacks is None. Nothing here
changes anything: scontrol is only ever asked to ``show`` and to ``ping``.

Reasons, comments and job names are written by anybody, so text is read by its layout
(which foreign text cannot imitate) and a record that could be read two ways is refused.
"""

from __future__ import annotations

import calendar
import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache, partial
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from hpslurm.core.probe import Unknown
from hpslurm.core.text import whole
from hpslurm.core.values import dataclass, replace
from hpslurm.sources.host import SACCT_FIELDS, SACCT_MARK, SLURM_CONF, Host, Output, error_of

NOT_RESPONDING = "NOT_RESPONDING"
JOB_ID = re.compile(r"[0-9]{1,10}([_+][0-9]{1,10})?")
HELP = "operations.md § 7"
PYSLURM_SECONDS = 12.0  # it gives up on a dead controller after 10
# What squeue shows unless asked for more; pyslurm lists jobs that are over, too.
IN_QUEUE = {
    "PENDING",
    "RUNNING",
    "SUSPENDED",
    "COMPLETING",
    "CONFIGURING",
    "RESIZING",
    "STAGE_OUT",
    "SIGNALING",
    "STOPPED",
}


@dataclass(frozen=True)
class SlurmNode:
    """One node as the controller sees it. Times are seconds since the epoch.

    ``state`` is the base (IDLE, MIXED, ALLOCATED, DOWN, ...), ``flags`` the rest, sorted. ``reason``
    is as it was set, line breaks and trailing blanks too: HyperPod reads it to the letter.
    """

    name: str
    state: str
    flags: tuple[str, ...] = ()
    reason: str = ""
    reason_user: str | None = None
    reason_time: int | None = None
    boot_time: int | None = None
    slurmd_start_time: int | None = None
    features: tuple[str, ...] = ()
    active_features: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    gres: str = ""
    cpus: int | None = None
    cpus_used: int | None = None
    comment: str | None = None
    extra: str | None = None
    address: str | None = None
    hostname: str | None = None
    instance_id: str | None = None
    instance_type: str | None = None
    version: str | None = None

    @property
    def words(self) -> str:
        """``IDLE+DRAIN``, as ``scontrol show node`` prints it."""
        return "+".join((self.state, *self.flags))


@dataclass(frozen=True)
class Nodes:
    """All nodes, and which form of asking they came from; ``note`` says why pyslurm, installed, did not serve."""

    form: str
    nodes: tuple[SlurmNode, ...]
    note: str = ""


@dataclass(frozen=True)
class SlurmJob:
    """One job. ``source`` says who still knew it; None is what that source does not keep.

    ``exit_code`` and ``exit_signal`` are those of the batch script, ``derived_code`` the worst of its
    steps. A cancelled or timed-out job shows 0 and 0. ``nodes`` is Slurm's folded list.
    """

    id: int
    name: str
    user: str
    uid: int
    gid: int | None
    state: str
    exit_code: int | None = None
    exit_signal: int | None = None
    derived_code: int | None = None
    derived_signal: int | None = None
    reason: str = ""
    nodes: str = ""
    partition: str = ""
    batch_host: str | None = None
    stdout: str | None = None
    stderr: str | None = None
    work_dir: str | None = None
    command: str | None = None  # the batch script's full path and its words, joined by blanks; Slurm keeps no quotes
    submit_line: str | None = None  # the whole line, likewise; scontrol has it from 25.11 on
    submit_time: int | None = None
    start_time: int | None = None
    end_time: int | None = None
    restarts: int | None = None
    array_job: int | None = None
    array_task: int | None = None
    het_job: int | None = None  # id of the first component
    parts: tuple[int, ...] = ()  # ids of further components that are told of here as well
    among: str = ""  # which one of several this is, in words
    cancelled_by: int | None = None
    source: str = ""


@dataclass(frozen=True)
class Queued:
    """One line of the queue: a job that is not over yet, or is over but not cleaned up."""

    id: int
    state: str
    user: str
    uid: int
    partition: str
    node_count: int | None
    start_time: int | None
    end_time: int | None
    nodes: str
    reason: str


@dataclass(frozen=True)
class Controller:
    host: str
    role: str
    up: bool


# asking


def start(host: Host, name: str, *words: str) -> None:
    """Start a program now that is collected later; one that is not installed says so then."""
    try:
        host.start(name, *words)
    except Unknown:
        return


_NODES: WeakKeyDictionary[Host, Nodes] = WeakKeyDictionary()


def nodes(host: Host) -> Nodes:
    """All nodes, asked for once and read once. Raises Unknown, with a remedy, when the controller cannot be asked."""
    if host not in _NODES:
        _NODES[host] = _nodes(host)
        for name in ("scontrol_nodes_json", "scontrol_nodes"):
            host.forget(name)  # of 10,000 nodes 10 to 50 MB
    return _NODES[host]


def _nodes(host: Host) -> Nodes:
    lines, note = from_pyslurm(host, "pyslurm_nodes")
    if lines is not None:
        return Nodes("pyslurm", tuple(map(node_of_line, lines)))
    output = host.run("scontrol_nodes_json")
    if output.status == 0:
        return Nodes("scontrol --json", tuple(nodes_of_json(output.out)), note)
    if not _has_no_json(output):
        raise Unknown(trouble("scontrol show nodes", output))
    output = host.run("scontrol_nodes")
    if output.status != 0:
        raise Unknown(trouble("scontrol show nodes", output))
    return Nodes("scontrol text", tuple(nodes_of_text(output.out)), note)


def has_pyslurm(host: Host) -> bool:
    """Is it worth a child? Not on a saved machine, and not without a slurm.conf: importing would end or wait."""
    from importlib.util import find_spec

    return not host.root and find_spec("pyslurm") is not None and bool(slurm_conf(host))


def from_pyslurm(host: Host, name: str, seconds: float = PYSLURM_SECONDS) -> tuple[list[dict[str, Any]] | None, str]:
    """What the child printed, or None and why not (empty where it is not installed).

    It gets a time limit of its own: with munge down it hangs, and scontrol still has its turn.
    """
    if not has_pyslurm(host):
        return None, ""
    door = Host(host.root, env=host.env, seconds=seconds)
    try:
        output = door.run(name)
    except Unknown:
        door.end_all()
        return None, f"pyslurm did not answer within {seconds:g} s"
    if output.status != 0:
        return None, f"pyslurm: {error_of(output)}"
    try:
        first, *lines, last = map(json.loads, output.out.splitlines())
    except ValueError:
        return None, "pyslurm: printed no nodes"
    if last.get("end") != len(lines) or "pyslurm" not in first:
        return None, "pyslurm: its output is cut off"
    return lines, ""


def node_of_line(line: dict[str, Any]) -> SlurmNode:
    """A line of the pyslurm child. It knows no instance, and no type in gres."""
    state, flags = _state(str(line["state"]).split("+"))
    if state == "ALLOCATED" and 0 < (line["cpus_used"] or 0) < (line["cpus"] or 0):
        state = "MIXED"  # as scontrol shows it; the controller itself does not tell
    reason = line["reason"] or ""
    return SlurmNode(
        name=line["name"],
        state=state,
        flags=flags,
        reason=reason,
        reason_user=_some(line["reason_user"]) if reason else None,
        reason_time=(line["reason_time"] or None) if reason else None,
        boot_time=line["boot_time"] or None,
        slurmd_start_time=line["slurmd_start_time"] or None,
        features=_listed(line["features"]),
        active_features=_listed(line["active_features"]),
        partitions=_listed(line["partitions"]),
        cpus=line["cpus"],
        cpus_used=line["cpus_used"],
        comment=_some(line["comment"]),
        extra=_some(line["extra"]),
        address=_some(line["address"]),
        hostname=_some(line["hostname"]),
        version=_some(line["version"]),
    )


def queued_of_line(line: dict[str, Any]) -> Queued:
    state = str(line["state"])
    return Queued(
        id=int(line["id"]),
        state=state,
        user=line["user"] or "",
        uid=int(line["uid"]),
        partition=line["partition"] or "",
        node_count=line["node_count"] or None,
        start_time=line["start_time"] or None,
        end_time=line["end_time"] or None,
        nodes=line["nodes"] or "",
        reason=line["reason"] or "",
    )


def job(host: Host, job_id: str, *, exact: bool = False) -> SlurmJob | None:
    """The job, or None when the controller and the accounting have both forgotten it.

    A number may stand for a whole array or heterogeneous job; with ``exact``, for the job of that very id alone.
    The controller keeps a job for MinJobAge seconds after its end (300 by default). Raises Unknown
    when nobody could be asked, and ValueError for what is no job id.
    """
    if not JOB_ID.fullmatch(job_id):
        raise ValueError(f"not a job id: {job_id[:40]!r} (a number, number_task, or number+component)")
    start(host, "sacct", job_id)  # it waits while we ask the controller
    problems = []
    jobs: dict[int, SlurmJob] = {}
    try:
        jobs.update((job.id, job) for job in _from_controller(host, job_id))
    except Unknown as why:
        problems.append(str(why))
    try:
        for kept in _from_accounting(host, job_id):
            jobs[kept.id] = _joined(jobs[kept.id], kept) if kept.id in jobs else kept
    except Unknown as why:
        problems.append(str(why))
    if jobs:
        return _wanted(tuple(jobs.values()), job_id, exact)
    if problems:  # one that does not answer might have known it
        raise Unknown("; ".join(problems))
    return None


def submit_line(host: Host, job: SlurmJob) -> str:
    """The line that submitted a job, by the controller or the accounting; empty where nobody knows it whole."""
    if job.submit_line or job.array_job or job.het_job or "sacct" not in job.source:
        return job.submit_line or ""
    try:
        output = host.run("sacct_line", str(job.id))
    except Unknown:
        return ""
    head, text = f"{job.id}{SACCT_MARK}{job.uid}{SACCT_MARK}", output.out.removesuffix("\n")
    return text.removeprefix(head) if output.status == 0 and text.startswith(head) and "\n" not in text else ""


# States of a job that did not end as it should; one that hung was cancelled, or ran into its limit.
FAILED_STATES = {
    "BOOT_FAIL", "CANCELLED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "TIMEOUT",
}  # fmt: skip
DAY = 86400  # seconds
END_OF_TIME = 1 << 40


NO_ACCOUNTING = "no accounting here, and the controller forgets a job some minutes after its end"


def failed_jobs(host: Host, uid: int | None, now: float) -> tuple[list[SlurmJob], str]:
    """Jobs of one user, or of all, that failed or were ended within a day, the newest first; and why not all of them.

    Raises Unknown when neither the controller nor the accounting could be asked.
    """
    name, words = ("sacct_day_all", ()) if uid is None else ("sacct_day", (str(uid),))
    start(host, name, *words)  # it waits while we ask the controller
    jobs: dict[int, SlurmJob] = {}
    problems = []
    for ask in (partial(_all_of_accounting, host, name, *words), partial(_all_of_controller, host)):
        try:
            jobs.update((job.id, job) for job in ask())  # the controller is never behind the accounting
        except Unknown as why:
            problems.append(str(why))
    if len(problems) == 2:
        raise Unknown("; ".join(problems))
    chosen = [
        job
        for job in jobs.values()
        if job.state.split()[0] in FAILED_STATES
        and uid in (None, job.uid)
        and job.end_time is not None
        and now - DAY <= job.end_time
    ]
    return sorted(chosen, key=lambda job: (-(job.end_time or 0), -job.id)), "; ".join(problems)


def queue(host: Host) -> tuple[Queued, ...]:
    """Jobs that wait, run or complete. Raises Unknown."""
    lines, _ = from_pyslurm(host, "pyslurm_jobs")
    if lines is not None:
        return tuple(job for job in map(queued_of_line, lines) if job.state in IN_QUEUE)
    output = host.run("squeue")
    if output.status != 0:
        raise Unknown(trouble("squeue", output))
    return tuple(queue_of_text(output.out))


def config(host: Host) -> dict[str, tuple[str, ...]]:
    """``scontrol show config``: keys in lower case; a key may have several values (Prolog from 24.05 on)."""
    output = host.run("scontrol_config")
    if output.status != 0:
        raise Unknown(trouble("scontrol show config", output))
    return config_of_text(output.out)


def controllers(host: Host) -> tuple[Controller, ...]:
    """``scontrol ping``: every controller and whether it answers. It exits 1 when one does not."""
    output = host.run("scontrol_ping")
    daemons = tuple(controllers_of_text(output.out))
    if not daemons:
        raise Unknown(trouble("scontrol ping", output))
    return daemons


def slurm_conf(host: Host) -> str:
    """The slurm.conf that our programs are told to use; empty when Slurm is left to find one."""
    name, files = SLURM_CONF
    return host.env.get(name) or next((path for path in files if host.exists(path)), "")


_NO_ANSWER = "slurmctld does not answer; on the controller: scontrol ping; sudo systemctl status slurmctld"
_TROUBLE = (
    ("unable to contact slurm controller", _NO_ANSWER),
    ("connection refused", _NO_ANSWER),
    ("connection timed out", _NO_ANSWER),
    ("zero bytes were transmitted", _NO_ANSWER),
    (
        "authentication",
        "munge does not work: sudo systemctl status munge; the controller's munge.key and clock, here too",
    ),
    ("configuration", "no slurm.conf was found: run this on the controller or a node, or set SLURM_CONF"),
    ("protocol version", "these programs do not fit the running slurmctld: use those of its release"),
    ("permission denied", "Slurm does not let this user look (PrivateData): use root"),
)


def trouble(what: str, output: Output) -> str:
    """What a failed Slurm program said, and the remedy."""
    complaint = output.err.lower()
    for sign, remedy in _TROUBLE:
        if sign in complaint:
            return f"{what}: {error_of(output)}: {remedy} ({HELP})"
    return f"{what}: {error_of(output)} ({HELP})"


def _has_no_json(output: Output) -> bool:
    """22.05 does not know the option; a Slurm built without its JSON plugin knows no plugin."""
    complaint = output.err.lower()
    return "unrecognized option" in complaint or "serializer" in complaint or "data_parser" in complaint


# values that two forms write differently

_TIME = re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)")
# 22.05's JSON and its text, and older and newer releases, name a few flags differently.
_SAME_FLAG = {"MAINT": "MAINTENANCE", "RES": "RESERVED", "NO_RESPOND": NOT_RESPONDING, "INVAL": "INVALID_REG"}


@lru_cache(maxsize=1024)  # nodes were started together
def epoch(text: str) -> int | None:
    """Seconds since the epoch of Slurm's UTC text; None for Unknown, None, N/A.

    >>> epoch("2026-12-01T10:00:00"), epoch("Unknown")
    (1796119200, None)
    """
    match = _TIME.fullmatch(text)
    if not match:
        return None
    try:
        return calendar.timegm(time.struct_time((*map(int, match.groups()), 0, 0, 0)))
    except ValueError:  # no such month
        return None


def _state(words: list[str]) -> tuple[str, tuple[str, ...]]:
    """The base state, and the flags, sorted; a star behind it is a node that does not answer.

    >>> _state(["IDLE*", "DRAIN"]), _state(["DOWN", "NO_RESPOND"])
    (('IDLE', ('DRAIN', 'NOT_RESPONDING')), ('DOWN', ('NOT_RESPONDING',)))
    """
    base, *flags = [word.upper() for word in words] or ["UNKNOWN"]
    if base.endswith("*"):
        base = base[:-1]
        flags.append(NOT_RESPONDING)
    return base, tuple(sorted({_SAME_FLAG.get(flag, flag) for flag in flags}))


@lru_cache(maxsize=1024)
def _state_of_text(text: str) -> tuple[str, tuple[str, ...]]:
    return _state(text.split("+"))


def _listed(value: Any) -> tuple[str, ...]:
    """A list, or text with commas; Slurm's ``(null)`` is nothing."""
    return _split(value) if isinstance(value, str) else tuple(str(item) for item in value or ())


@lru_cache(maxsize=1024)
def _split(text: str) -> tuple[str, ...]:
    return () if text in ("", "(null)") else tuple(text.split(","))


def _number(value: Any) -> int | None:
    """A plain number, or ``{"set": true, "infinite": false, "number": 5}``.

    >>> _number({"set": True, "infinite": False, "number": 96}), _number({"set": False, "number": 0}), _number(96)
    (96, None, 96)
    """
    if isinstance(value, dict):
        value = value.get("number") if value.get("set", True) and not value.get("infinite") else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _whole(text: str | None) -> int | None:
    return whole(text) if text is not None else None


def _some(value: Any) -> str | None:
    return value if isinstance(value, str) and value not in ("", "(null)") else None


def folded(reason: str) -> str:
    """A reason with its white space folded, as forms are compared and people read it."""
    return " ".join(reason.split())


# JSON: data parsers 0.0.40 to 0.0.45, and the 0.0.38 of 22.05's sinfo

_Item = TypeVar("_Item", SlurmNode, SlurmJob)


def _in_shape(read: Callable[[dict[str, Any]], _Item], items: Iterable[dict[str, Any]]) -> Iterator[_Item]:
    """What is read of each. Raises Unknown where a release prints what we do not know."""
    for raw in items:
        try:
            yield read(raw)
        except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
            raise Unknown(f"Slurm's JSON has a shape that we do not know: {type(error).__name__}: {error}") from None


def items_of_json(text: str, key: str) -> Iterator[dict[str, Any]]:
    """The objects of one top-level list, one at a time: all at once, 10,000 nodes take 200 MiB."""
    start = re.search(rf'"{key}"\s*:\s*\[\s*', text)  # inside a string the quotes would be escaped
    if not start:
        raise Unknown(f"the JSON that Slurm printed has no list of {key} ({HELP})")
    decoder = json.JSONDecoder()
    at = start.end()
    separator = re.compile(r"\s*(,?)\s*")
    while text[at : at + 1] == "{":
        try:
            value, at = decoder.raw_decode(text, at)
        except ValueError as error:
            raise Unknown(f"Slurm's JSON is cut off or broken: {error}") from error
        yield value
        gap = separator.match(text, at)
        assert gap is not None
        at = gap.end()
    if text[at : at + 1] != "]":
        raise Unknown(f"Slurm's JSON is cut off after {at} characters")


def nodes_of_json(text: str) -> Iterator[SlurmNode]:
    """``scontrol show nodes --json``. Raises Unknown for what is cut off.

    >>> [node] = nodes_of_json('''{"nodes": [{"name": "ip-10-1-0-3", "state": ["IDLE", "DRAIN"], "cpus": 192,
    ...   "reason": "xid-79", "reason_changed_at": {"set": true, "infinite": false, "number": 1796119200}}]}''')
    >>> node.words, node.reason, node.reason_time, node.cpus
    ('IDLE+DRAIN', 'xid-79', 1796119200, 192)
    """
    return _in_shape(_node_of_json, items_of_json(text, "nodes"))


def _node_of_json(raw: dict[str, Any]) -> SlurmNode:
    words = raw["state"] if isinstance(raw["state"], list) else [raw["state"], *raw.get("state_flags", ())]
    state, flags = _state(words)
    reason = raw.get("reason") or ""
    return SlurmNode(
        name=raw["name"],
        state=state,
        flags=flags,
        reason=reason,
        reason_user=_some(raw.get("reason_set_by_user")) if reason else None,
        reason_time=(_number(raw.get("reason_changed_at")) or None) if reason else None,
        boot_time=_number(raw.get("boot_time")) or None,
        slurmd_start_time=_number(raw.get("slurmd_start_time")) or None,
        features=_listed(raw.get("features")),
        active_features=_listed(raw.get("active_features")),
        partitions=_listed(raw.get("partitions")),
        gres=_some(raw.get("gres")) or "",
        cpus=_number(raw.get("cpus")),
        cpus_used=_number(raw.get("alloc_cpus")),
        comment=_some(raw.get("comment")),
        extra=_some(raw.get("extra")),
        address=_some(raw.get("address")),
        hostname=_some(raw.get("hostname")),
        instance_id=_some(raw.get("instance_id")),
        instance_type=_some(raw.get("instance_type")),
        version=_some(raw.get("version") or raw.get("slurmd_version")),
    )


# A job's state is a base and flags; scontrol's text shows one word, the flag where there is one.
_SHOWN_FIRST = (
    "COMPLETING",
    "CONFIGURING",
    "SPECIAL_EXIT",
    "REQUEUE_HOLD",
    "REQUEUED",
    "RESIZING",
    "STAGE_OUT",
    "STOPPED",
)


def jobs_of_json(text: str) -> Iterator[SlurmJob]:
    """``scontrol show job --json``. Raises Unknown for what is cut off.

    >>> [job] = jobs_of_json('''{"jobs": [{"job_id": 4711, "name": "train", "user_id": 1000, "nodes": "n[1-2]",
    ...   "job_state": ["RUNNING", "COMPLETING"], "exit_code": {"return_code": {"set": true, "number": 1},
    ...   "signal": {"id": {"set": true, "number": 9}}}}]}''')
    >>> job.state, job.exit_code, job.exit_signal, job.nodes
    ('COMPLETING', 1, 9, 'n[1-2]')
    """
    return _in_shape(_job_of_json, items_of_json(text, "jobs"))


def _job_of_json(raw: dict[str, Any]) -> SlurmJob:
    states = [str(word) for word in _as_list(raw.get("job_state"))] or ["UNKNOWN"]
    code, signal = _exit(raw.get("exit_code"))
    derived, derived_signal = _exit(raw.get("derived_exit_code"))
    return SlurmJob(
        id=int(raw["job_id"]),
        name=raw.get("name") or "",
        user=raw.get("user_name") or "",
        uid=int(raw["user_id"]),
        gid=_number(raw.get("group_id")),
        state=next((word for word in _SHOWN_FIRST if word in states), states[0]),
        exit_code=code,
        exit_signal=signal,
        derived_code=derived,
        derived_signal=derived_signal,
        reason=raw.get("state_reason") or "",
        nodes=raw.get("nodes") or "",
        partition=raw.get("partition") or "",
        batch_host=_some(raw.get("batch_host")),
        stdout=_some(raw.get("stdout_expanded") or raw.get("standard_output")),
        # newer releases leave it empty when it is the same file
        stderr=_some(
            raw.get("stderr_expanded")
            or raw.get("standard_error")
            or raw.get("stdout_expanded")
            or raw.get("standard_output")
        ),
        work_dir=_some(raw.get("current_working_directory")),
        command=_some(raw.get("command")),
        submit_line=_some(raw.get("submit_line")),
        submit_time=_number(raw.get("submit_time")) or None,
        start_time=_number(raw.get("start_time")) or None,
        end_time=_number(raw.get("end_time")) or None,
        restarts=_number(raw.get("restart_cnt")),
        array_job=_number(raw.get("array_job_id")) or None,
        array_task=_number(raw.get("array_task_id")),
        het_job=_number(raw.get("het_job_id")) or None,
        source="scontrol",
    )


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _exit(value: Any) -> tuple[int | None, int | None]:
    """Exit code and signal: an object from 23.11 on, a wait status before.

    >>> _exit({"return_code": {"set": True, "number": 3}, "signal": {"signal_id": 9}}), _exit(256), _exit(9)
    ((3, 9), (1, 0), (0, 9))
    """
    if isinstance(value, dict):
        signal = value.get("signal") or {}
        return _number(value.get("return_code")) or 0, _number(signal.get("id", signal.get("signal_id"))) or 0
    if isinstance(value, int):
        return value >> 8, value & 0x7F
    return None, None


# text

_MARK = re.compile(r"^(?P<reason>.*) \[(?P<user>[^\s\[\]@]+)@(?P<time>[^\s\[\]]+)\]$", re.DOTALL)
_WHOLE_LINES = frozenset(("Comment", "Extra", "AvailableFeatures", "ActiveFeatures", "Gres"))
_LINES_OF_WORDS = frozenset(  # by their first key
    ("NodeName", "CPUAlloc", "NodeAddr", "State", "Partitions", "BootTime", "InstanceId", "InstanceType")
)
_LINES_OF_MANY = frozenset(("State", "Partitions", "BootTime", "InstanceType"))  # of these, nodes have the same
_CONTINUED = " " * 10  # scontrol's indentation of a reason's further lines; fields have three blanks


def nodes_of_text(text: str) -> Iterator[SlurmNode]:
    """``scontrol show nodes``: a line's first key tells what it is, whatever stands further on.

    >>> [node] = nodes_of_text('''
    ... NodeName=ip-10-1-0-3 Arch=x86_64 CoresPerSocket=48
    ...    CPUAlloc=0 CPUEfctv=192 CPUTot=192 CPULoad=0.10
    ...    Gres=gpu:h100:8
    ...    State=IDLE+DRAIN ThreadsPerCore=2 TmpDisk=0 Weight=1
    ...    Reason=xid-79 [root@2026-12-01T10:00:00]
    ... ''')
    >>> node.words, node.gres, node.cpus, node.reason, node.reason_user, node.reason_time
    ('IDLE+DRAIN', 'gpu:h100:8', 192, 'xid-79', 'root', 1796119200)
    """
    begin = 0 if text.startswith("NodeName=") else text.find("\nNodeName=") + 1 or len(text)
    while begin < len(text):
        end = text.find("\nNodeName=", begin)
        end = len(text) if end < 0 else end
        yield _node_of_block(text[begin:end])
        begin = end + 1


def _each_pair(line: str) -> list[tuple[str, str]]:
    return [(key, value) for key, _, value in (word.partition("=") for word in line.split())]


_pairs = lru_cache(maxsize=1024)(_each_pair)


def _node_of_block(block: str) -> SlurmNode:
    fields: dict[str, str] = {}
    reason: list[str] = []
    for number, line in enumerate(block.split("\n")):
        if line.startswith(_CONTINUED):
            reason.append(line.strip(" ") if reason else "")
            continue
        line = line[3:] if number else line
        key, _, value = line.partition("=")
        if key == "Reason":
            reason = [value]
        elif key in _WHOLE_LINES:
            fields.setdefault(key, value)
        elif key in _LINES_OF_WORDS:
            pairs = _pairs(line) if key in _LINES_OF_MANY else _each_pair(line)
            for name, value in pairs:
                fields.setdefault(name, value)
    marked = _MARK.match(reason[0]) if reason else None
    if marked:
        reason[0] = marked["reason"]
    state, flags = _state_of_text(fields.get("State", "UNKNOWN"))
    return SlurmNode(
        name=fields["NodeName"],
        state=state,
        flags=flags,
        reason="\n".join(reason),
        reason_user=marked["user"] if marked else None,
        reason_time=epoch(marked["time"]) if marked else None,
        boot_time=epoch(fields.get("BootTime", "")),
        slurmd_start_time=epoch(fields.get("SlurmdStartTime", "")),
        features=_listed(fields.get("AvailableFeatures", "")),
        active_features=_listed(fields.get("ActiveFeatures", "")),
        partitions=_listed(fields.get("Partitions", "")),
        gres=_some(fields.get("Gres")) or "",
        cpus=_whole(fields.get("CPUTot")),
        cpus_used=_whole(fields.get("CPUAlloc")),
        comment=_some(fields.get("Comment")),
        extra=_some(fields.get("Extra")),
        address=_some(fields.get("NodeAddr")),
        hostname=_some(fields.get("NodeHostName")),
        instance_id=_some(fields.get("InstanceId")),
        instance_type=_some(fields.get("InstanceType")),
        version=_some(fields.get("Version")),
    )


# The first key of the lines that we read. A job name may hold line breaks, and so a false line, but it
# can only add one: where two begin alike, the record is refused.
_JOB_LINES = (
    "UserId", "JobState", "Requeue", "DerivedExitCode", "SubmitTime", "StartTime", "Partition", "NodeList", "BatchHost",
    "Command", "SubmitLine", "WorkDir", "StdErr", "StdOut",
)  # fmt: skip
_USER = re.compile(r"UserId=(?P<user>\S*)\((?P<uid>[0-9]{1,20})\) GroupId=\S*\((?P<gid>[0-9]{1,20})\)")


def jobs_of_text(text: str) -> Iterator[SlurmJob]:
    """``scontrol -d show job``. Raises Unknown for a record that could be read two ways.

    >>> [job] = jobs_of_text('''
    ... JobId=4711 JobName=train State=FAILED
    ...    UserId=ada(1000) GroupId=ada(1000) MCS_label=N/A
    ...    JobState=NODE_FAIL Reason=NodeDown Dependency=(null)
    ...    Requeue=0 Restarts=0 BatchFlag=1 Reboot=0 ExitCode=1:0
    ...    NodeList=ip-10-1-0-[3-4]
    ... ''')
    >>> job.name, job.state, job.reason, job.exit_code, job.nodes
    ('train State=FAILED', 'NODE_FAIL', 'NodeDown', 1, 'ip-10-1-0-[3-4]')
    """
    for block in re.split(r"\n\n(?=JobId=)", text.strip("\n")):
        if block.startswith("JobId="):
            yield _job_of_block(block)


def _job_of_block(block: str) -> SlurmJob:
    first, *lines = block.split("\n")
    head = first.partition(" JobName=")
    ids = dict(word.partition("=")[::2] for word in head[0].split())
    number = _whole(ids["JobId"])
    if number is None:
        raise Unknown(f"scontrol printed a job without a number: {head[0][:80]!r}")
    rows: dict[str, str] = {}
    key = ""
    for line in lines:
        if key in ("Command", "SubmitLine") and not line.startswith("   "):
            rows[key] = ""  # it goes on over a line break: not known whole
        key = line.strip().partition("=")[0].partition(" ")[0]
        if key in _JOB_LINES and line.startswith("   "):
            if key in rows:
                raise Unknown(f"job {ids['JobId']} has a name or path with line breaks that imitates {key}=; not read")
            rows[key] = line[3:]
    user = _USER.match(rows.get("UserId", ""))
    if not user:
        raise Unknown(f"job {ids['JobId']}: scontrol printed no UserId= line")
    words = {
        key: value for row in ("JobState", "Requeue", "SubmitTime", "StartTime") for key, value in _words(rows, row)
    }
    code, signal = _exit_of_text(words.get("ExitCode", ""))
    derived, derived_signal = _exit_of_text(rows.get("DerivedExitCode", "").partition("=")[2])
    return SlurmJob(
        id=number,
        name=head[2],
        user=user["user"],
        uid=int(user["uid"]),
        gid=int(user["gid"]),
        state=words.get("JobState", "UNKNOWN"),
        exit_code=code,
        exit_signal=signal,
        derived_code=derived,
        derived_signal=derived_signal,
        reason=words.get("Reason", ""),
        nodes=(_rest(rows, "NodeList") or "").partition(" SchedNodeList=")[0],  # the planned ones stand behind
        partition=dict(_words(rows, "Partition")).get("Partition", ""),
        batch_host=_rest(rows, "BatchHost"),
        stdout=_rest(rows, "StdOut"),
        stderr=_rest(rows, "StdErr") or _rest(rows, "StdOut"),
        work_dir=_rest(rows, "WorkDir"),
        command=_rest(rows, "Command"),
        submit_line=_rest(rows, "SubmitLine"),
        submit_time=epoch(words.get("SubmitTime", "")),
        start_time=epoch(words.get("StartTime", "")),
        end_time=epoch(words.get("EndTime", "")),
        restarts=_whole(words.get("Restarts")),
        array_job=_whole(ids.get("ArrayJobId")),
        array_task=_whole(ids.get("ArrayTaskId")),
        het_job=_whole(ids.get("HetJobId") or ids.get("PackJobId")),
        source="scontrol",
    )


def _words(rows: dict[str, str], row: str) -> Iterator[tuple[str, str]]:
    for word in rows.get(row, "").split():
        key, _, value = word.partition("=")
        yield key, value


def _rest(rows: dict[str, str], row: str) -> str | None:
    return _some(rows.get(row, "").partition("=")[2])


def _exit_of_text(text: str) -> tuple[int | None, int | None]:
    """Exit code and signal.

    >>> _exit_of_text("1:9"), _exit_of_text("")
    ((1, 9), (None, None))
    """
    code, _, signal = text.partition(":")
    return _whole(code), _whole(signal)


def queue_of_text(text: str) -> Iterator[Queued]:
    """Lines of ``squeue``; what is none is passed over.

    >>> [job] = queue_of_text("4711|RUNNING|ada|1000|gpu|2|2026-12-01T10:00:00|N/A|ip-10-1-0-[3-4]|None")
    >>> job.id, job.state, job.node_count, job.start_time, job.end_time, job.nodes
    (4711, 'RUNNING', 2, 1796119200, None, 'ip-10-1-0-[3-4]')
    """
    for line in text.split("\n"):
        words = line.split("|", 9)
        if len(words) == 10 and _whole(words[0]) is not None and _whole(words[3]) is not None:
            yield Queued(
                id=int(words[0]),
                state=words[1],
                user=words[2],
                uid=int(words[3]),
                partition=words[4],
                node_count=_whole(words[5]),
                start_time=epoch(words[6]),
                end_time=epoch(words[7]),
                nodes=_some(words[8]) or "",
                reason=words[9],
            )


# A task of an array (4711_3; those that wait are one row, 4711_[4-9%2]), or a component of a heterogeneous job (7+1).
_PART_OF = re.compile(r"(?P<job>[0-9]{1,10})(?:_(?:(?P<task>[0-9]{1,10})|\[[^\]]{1,999}\])|(?P<plus>\+)[0-9]{1,10})")


def jobs_of_sacct(text: str) -> Iterator[SlurmJob]:
    """Rows of ``sacct``; a line that does not begin one belongs to the name before it.

    >>> [job] = jobs_of_sacct(
    ...     "4711|4711|ada|1000|1000|CANCELLED by 1000|0:15|0:0|gpu|2026-12-01T10:00:00|2026-12-01T10:00:01"
    ...     "|2026-12-01T11:00:00|ip-10-1-0-3|None|/fsx/ada|train".replace("|", SACCT_MARK)
    ... )
    >>> job.state, job.cancelled_by, job.exit_code, job.exit_signal, job.end_time - job.start_time
    ('CANCELLED', 1000, 0, 15, 3599)
    """
    names = SACCT_FIELDS.split(",")
    for line in text.split("\n"):
        words = line.split(SACCT_MARK, len(names) - 1)
        if len(words) != len(names) or _whole(words[0]) is None:
            continue
        row = dict(zip(names, words, strict=True))
        if _whole(row["UID"]) is None or _whole(row["JobIDRaw"]) is None:  # a job's name that imitates a row
            continue
        code, signal = _exit_of_text(row["ExitCode"])
        derived, derived_signal = _exit_of_text(row["DerivedExitCode"])
        state, _, by = row["State"].partition(" by ")
        part = _PART_OF.fullmatch(row["JobID"])
        of = _whole(part["job"]) if part else None
        yield SlurmJob(
            id=int(row["JobIDRaw"]),
            name=row["JobName"],
            user=row["User"],
            uid=int(row["UID"]),
            gid=_whole(row["GID"]),
            state=state,
            exit_code=code,
            exit_signal=signal,
            derived_code=derived,
            derived_signal=derived_signal,
            reason=row["Reason"],
            nodes="" if row["NodeList"] == "None assigned" else row["NodeList"],
            partition=row["Partition"],
            work_dir=_some(row["WorkDir"]),
            submit_time=epoch(row["Submit"]),
            start_time=epoch(row["Start"]),
            end_time=epoch(row["End"]),
            cancelled_by=_whole(by),
            array_job=of if part and not part["plus"] else None,
            array_task=_whole(part["task"]) if part else None,
            het_job=of if part and part["plus"] else None,
            source="sacct",
        )


def config_of_text(text: str) -> dict[str, tuple[str, ...]]:
    """Keys in lower case; one that is numbered has several values.

    >>> config_of_text('''
    ... PrologEpilogTimeout     = 65534
    ... Prolog[0]               = /opt/slurm/etc/prolog.d/*
    ... Prolog[1]               = /opt/site/prolog.sh
    ... ''')
    {'prologepilogtimeout': ('65534',), 'prolog': ('/opt/slurm/etc/prolog.d/*', '/opt/site/prolog.sh')}
    """
    settings: dict[str, tuple[str, ...]] = {}
    for line in text.split("\n"):
        key, mark, value = line.partition(" = ")
        if mark:
            key = re.sub(r"\[\d+\]$", "", key.strip()).lower()
            settings[key] = (*settings.get(key, ()), value.strip())
    return settings


_PING = re.compile(r"Slurmctld\((?P<role>[^)]{0,40})\) at (?P<host>\S{1,253}) is (?P<state>UP|DOWN)")


def controllers_of_text(text: str) -> Iterator[Controller]:
    r"""What ``scontrol ping`` prints.

    >>> list(controllers_of_text("Slurmctld(primary) at head is UP\nSlurmctld(backup) at spare is DOWN\n"))
    [Controller(host='head', role='primary', up=True), Controller(host='spare', role='backup', up=False)]
    """
    for match in _PING.finditer(text):
        yield Controller(match["host"], match["role"], match["state"] == "UP")


# one job


def _from_controller(host: Host, job_id: str) -> tuple[SlurmJob, ...]:
    output = host.run("scontrol_job_json", job_id)
    read = jobs_of_json
    if output.status != 0 and _has_no_json(output):
        output = host.run("scontrol_job", job_id)
        read = jobs_of_text
    if output.status != 0:
        if "invalid job id" in (output.err + output.out).lower():
            return ()
        raise Unknown(trouble(f"scontrol show job {job_id}", output))
    return tuple(read(output.out))


def _from_accounting(host: Host, job_id: str) -> tuple[SlurmJob, ...]:
    """Nothing when it knows no such job, or when there is no accounting that could."""
    output = host.run("sacct", job_id)
    if output.status != 0:
        if "storage is disabled" in output.err + output.out:
            return ()
        raise Unknown(trouble("sacct", output))
    jobs = list(jobs_of_sacct(output.out))
    # All are one user's, and the first begins with what Slurm wrote: another user's is a name that imitates a row
    by_id: dict[int, SlurmJob] = {}
    for job in jobs:
        if job.uid == jobs[0].uid:
            by_id.setdefault(job.id, job)
    return tuple(by_id.values())


def _all_of_controller(host: Host) -> list[SlurmJob]:
    output = host.run("scontrol_job_json")
    read = jobs_of_json
    if output.status != 0 and _has_no_json(output):
        output = host.run("scontrol_job")
        read = jobs_of_text
    if output.status != 0:
        raise Unknown(trouble("scontrol show job", output))
    return list(read(output.out))


def _all_of_accounting(host: Host, name: str, *words: str) -> list[SlurmJob]:
    output = host.run(name, *words)
    if output.status != 0:
        if "storage is disabled" in output.err + output.out:
            raise Unknown(NO_ACCOUNTING)
        raise Unknown(trouble("sacct", output))
    return list(jobs_of_sacct(output.out))


def _wanted(jobs: tuple[SlurmJob, ...], job_id: str, exact: bool) -> SlurmJob:
    """The job, the array's task or the component that the id names; a number may stand for all of them."""
    number = re.split("[_+]", job_id)[0]
    mark, task = job_id[len(number) : len(number) + 1], job_id[len(number) + 1 :]
    if mark == "_":
        return next((job for job in jobs if str(job.array_task) == task), jobs[0])
    mine = tuple(job for job in jobs if int(number) in (job.id, job.array_job, job.het_job)) or jobs
    if mark or len(mine) == 1:
        return mine[0]
    if exact:
        return next((job for job in mine if job.id == int(number)), mine[0])
    components = [job for job in mine if job.het_job == int(number)]
    return _whole_job(components) if components else _first_that_failed(mine, int(number))


def _failed(job: SlurmJob) -> bool:
    return job.state.split()[0] in FAILED_STATES or bool(job.exit_code)


def _whole_job(components: Sequence[SlurmJob]) -> SlurmJob:
    """A heterogeneous job: the first component's, whose script wrote the output, on the nodes of all; it ended as the
    first component that failed."""
    first, *others = sorted(components, key=lambda job: job.id)
    ended = next(filter(_failed, (first, *others)), first)
    return replace(
        first,
        state=ended.state,
        exit_code=ended.exit_code,
        exit_signal=ended.exit_signal,
        derived_code=ended.derived_code,
        derived_signal=ended.derived_signal,
        reason=ended.reason,
        nodes=",".join(job.nodes for job in (first, *others) if _some(job.nodes)),
        parts=tuple(job.id for job in others),
        among=f"{len(components)} components",
    )


def _first_that_failed(jobs: Sequence[SlurmJob], number: int) -> SlurmJob:
    """Of an array: its last task has the array's own number, and says nothing of the others."""
    failed = sorted(filter(_failed, jobs), key=lambda job: (job.end_time or END_OF_TIME, job.id))
    if failed:
        return replace(failed[0], among=f"the first that failed, {len(failed)} of {len(jobs)} tasks")
    job = next((job for job in jobs if job.id == number), jobs[0])
    return replace(job, among=f"one of {len(jobs)} tasks, none of which failed")


def _joined(live: SlurmJob, kept: SlurmJob) -> SlurmJob:
    """The controller is never behind the accounting; who cancelled a job, it does not say."""
    if live.derived_code is None:
        live = replace(live, derived_code=kept.derived_code, derived_signal=kept.derived_signal)
    return replace(live, cancelled_by=kept.cancelled_by, source="scontrol and sacct")
