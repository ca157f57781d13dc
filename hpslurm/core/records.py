"""What hooks leave on disk, and how it is read again: JSON lines, one file a hook, job and node.

    <results>/jobs/<jobid>/<node>.<hook>.jsonl     0640, the job's group may read it
    <results>/nodes/<node>.<hook>.jsonl            the newest of the node

Lines are appended to a ``.part`` file as they come, which is renamed when complete; a
``.part`` that is left over is read as cut off. The same lines are what ``--json`` prints.
"""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache

from hpslurm import __version__
from hpslurm.core.finding import HARMS, PRIORITIES, Evidence, Finding, Rule, Suggestion
from hpslurm.core.policy import Policy
from hpslurm.core.probe import FAIL, PASS, SKIP, UNKNOWN, Result
from hpslurm.core.text import clean
from hpslurm.core.values import dataclass, field

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing costs a hook as much as several probes
    from typing import Any

SCHEMA = 1
LARGEST = 16 << 20  # bytes of one record that a reader takes
BOOT_ID = "/proc/sys/kernel/random/boot_id"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")
_JOB = re.compile(r"[0-9]{1,12}")


# lines


def encode(line: Mapping[str, Any], ascii_only: bool = False) -> str:
    """One line, for every reader: what some take for its end, and halves of letters, are written as escapes."""
    text = json.dumps(line, ensure_ascii=ascii_only, separators=(",", ":"), default=str)
    return text if text.isascii() else _ODD.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


_ODD = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def _line(kind: str, **values: Any) -> dict[str, Any]:
    return {"schema": SCHEMA, "type": kind, **values}


def run_line(policy: Policy, env: Mapping[str, str], hook: str) -> dict[str, Any]:
    """Who looked, when, at which machine and job. Exit codes are Slurm's (only an epilog has them)."""
    job = env.get("SLURM_JOB_ID", "")
    line = _line(
        "run",
        hook=hook,
        version=__version__,
        policy=policy.hash,
        node=policy.node,
        instance=policy.instance,
        boot=boot_id(),
        job=int(job) if _JOB.fullmatch(job) else None,
        restart=int(env["SLURM_JOB_RESTART_COUNT"]) if env.get("SLURM_JOB_RESTART_COUNT", "").isdigit() else None,
        time=round(time.time(), 3),
    )
    if env.get("SLURM_JOB_EXIT_CODE2"):
        line["exit_code"] = clean(env["SLURM_JOB_EXIT_CODE2"], 40)
        line["derived_exit_code"] = clean(env.get("SLURM_JOB_DERIVED_EC", ""), 40)
    if policy.problems:
        line["policy_problems"] = list(policy.problems)
    return line


def boot_id() -> str:
    try:
        with open(BOOT_ID, encoding="ascii") as file:
            return file.read().strip()
    except (OSError, ValueError):
        return ""


def result_lines(result: Result, node: str) -> Iterator[dict[str, Any]]:
    """The result itself, then one line for each finding."""
    yield _line(
        "result",
        probe=result.probe,
        outcome=result.outcome,
        note=result.note,
        seconds=result.seconds,
        facts=result.facts,
    )
    for finding in result.findings:
        yield finding_line(finding, node)


def finding_line(finding: Finding, node: str = "") -> dict[str, Any]:
    rule = finding.rule
    return _line(
        "finding",
        id=rule.id,
        priority=rule.priority,
        title=rule.title,
        reference=rule.reference,
        cause=rule.cause,
        subject=finding.subject or node,
        detail=clean(finding.detail),
        evidence=[{"source": clean(one.source), "text": clean(one.text)} for one in finding.evidence],
        suggestions=[suggestion_line(suggestion) for suggestion in finding.suggestions],
        muted=finding.muted,
    )


def suggestion_line(suggestion: Suggestion) -> dict[str, str]:
    """As JSON, where its degree of harm is called ``step``: a public name."""
    return {"step": suggestion.harm, "why": suggestion.why, "command": suggestion.command}


def end_line(results: Sequence[Result], **more: Any) -> dict[str, Any]:
    """The last line; a record without it was cut off."""
    counts = {outcome: sum(result.outcome == outcome for result in results) for outcome in (PASS, FAIL, SKIP, UNKNOWN)}
    return _line("end", **counts, findings=sum(len(one.findings) for one in results), **more)


def lines(policy: Policy, env: Mapping[str, str], hook: str, results: Sequence[Result]) -> Iterator[dict[str, Any]]:
    yield run_line(policy, env, hook)
    for result in results:
        yield from result_lines(result, policy.node)
    yield end_line(results)


# Slurm passes a task's output on in messages of 1,024 bytes: a longer line can be broken, or
# mixed with another node's. So lines for srun are cut to pieces that name their node.
PIECE = 800  # characters, all ASCII
LAST, MORE = ".", "+"


def pieces(node: str, line: str) -> Iterator[str]:
    """One line of JSON as short lines, ``node . piece``, or ``node + piece`` where more of it follows."""
    for start in range(0, len(line), PIECE):
        yield f"{node} {LAST if start + PIECE >= len(line) else MORE} {line[start : start + PIECE]}"


def joined(lines: Iterable[str]) -> dict[str, str]:
    """The text of each node out of pieces in the order of their arrival; other lines are passed over."""
    texts: dict[str, list[str]] = {}
    for line in lines:
        node, _, rest = line.partition(" ")
        mark, _, piece = rest.partition(" ")
        if mark in (LAST, MORE) and _NAME.fullmatch(node):
            texts.setdefault(node, []).append(piece + ("\n" if mark == LAST else ""))
    return {node: "".join(parts) for node, parts in texts.items()}


# writing


class Writer:
    """Appends lines to the record of one hook. Every method may raise OSError (a full disk).

    All folders below ``results`` are ours (root's), so no user can put a link in our way.
    """

    def __init__(self, results: str, node: str, hook: str, job: str = "", gid: int = -1) -> None:
        if not _NAME.fullmatch(node):
            raise ValueError(f"not a node name: {clean(node, 80)!r}")
        if job and not _JOB.fullmatch(job):
            raise ValueError(f"not a job id: {clean(job, 80)!r}")
        self.results = results
        self.name = f"{node}.{hook}.jsonl"
        os.makedirs(results, mode=0o755, exist_ok=True)
        refuse_foreign(results)
        refuse_foreign_above(results)
        self.folder = _folder(f"{results}/nodes", 0o755)
        if job:
            _folder(f"{results}/jobs", 0o755)
            self.folder = _folder(f"{results}/jobs/{job}", 0o750, gid)
        self.part = f"{self.folder}/{self.name}.part"
        self._gid = gid
        self._open(gid)

    def _open(self, gid: int) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        self.handle = os.open(self.part, flags, 0o640)
        if gid >= 0 and os.geteuid() == 0:
            os.fchown(self.handle, 0, gid)

    @property
    def path(self) -> str:
        return f"{self.folder}/{self.name}"

    def write(self, line: Mapping[str, Any]) -> None:
        self._put(encode(line).encode("utf-8", "replace") + b"\n")

    def _put(self, data: bytes) -> None:
        while data:
            data = data[os.write(self.handle, data) :]

    def close(self) -> None:
        """Complete: give the record its name, and make it the newest of the node."""
        os.close(self.handle)
        os.replace(self.part, self.path)
        newest = f"{self.results}/nodes/{self.name}"
        if newest != self.path:
            passing = f"{newest}.{os.getpid()}.part"
            os.link(self.path, passing)
            os.replace(passing, newest)

    def amend(self, lines: Iterable[Mapping[str, Any]]) -> None:
        """Further lines before the last one of the completed record: written anew and renamed, so always whole."""
        with open(self.path, "rb") as file:
            data = file.read(LARGEST)
        last = data.rstrip(b"\n").rfind(b"\n") + 1
        self._open(self._gid)
        self._put(data[:last])
        for line in lines:
            self.write(line)
        self._put(data[last:])
        self.close()


def _folder(path: str, mode: int, gid: int = -1) -> str:
    try:
        os.mkdir(path, mode)
    except FileExistsError:
        return path
    if gid >= 0 and os.geteuid() == 0:
        os.chown(path, 0, gid)
    return path


def refuse_foreign(path: str | int) -> None:
    """Raise PermissionError for a folder or file that is not root's (or ours) alone."""
    about = os.fstat(path) if isinstance(path, int) else os.lstat(path)
    if about.st_uid not in (0, os.geteuid()):
        raise PermissionError(1, f"owned by uid {about.st_uid}, not by root", path)
    if about.st_mode & 0o022:
        raise PermissionError(1, "group or others may write it", path)


def refuse_foreign_above(path: str) -> None:
    """The same for all folders above: who may rename one of them puts what he likes in the place of ours."""
    above = os.path.realpath(path)
    while above != "/":
        above = os.path.dirname(above)
        about = os.stat(above)
        if about.st_uid not in (0, os.geteuid()):
            raise PermissionError(1, f"owned by uid {about.st_uid}, not by root", above)
        if about.st_mode & 0o022 and not about.st_mode & stat.S_ISVTX:
            raise PermissionError(1, "group or others may write it", above)


def copy_to_shared(path: str, results: str, shared: str, seconds: float, keep_days: int = 0) -> str:
    """Copy a record to the shared folder; the reason why not, or empty. Bounded by ``seconds``.

    A child does it: a file system that hangs then costs the copy only. The child holds a
    lock, so that one stuck in the kernel is not joined by more.
    """
    relative = os.path.relpath(path, results)

    def copy() -> int:
        refuse_foreign(shared)
        for folder in ("nodes", "jobs"):
            _folder(f"{shared}/{folder}", 0o755)
        about = os.stat(path)
        if relative.startswith("jobs/"):
            _folder(f"{shared}/{os.path.dirname(relative)}", 0o750, about.st_gid)
        target = f"{shared}/{relative}"
        newest = f"{shared}/nodes/{os.path.basename(relative)}"
        for place in dict.fromkeys((target, newest)):
            passing = f"{place}.{os.getpid()}.part"
            _copy(path, passing)
            if os.geteuid() == 0:
                try:
                    os.chown(passing, -1, about.st_gid)
                except OSError:  # a file system that squashes root keeps its own group
                    pass
            os.replace(passing, place)
        if keep_days and _is_due(f"{shared}/nodes/.cleaned"):
            prune(shared, keep_days, 1 << 30)
        return 0

    code = in_child(copy, seconds, f"{results}/locks", "shared")
    if code == 0:
        return ""
    return f"record not copied to {shared}: {code if isinstance(code, str) else 'failed, see the lines above'}"


def _copy(source: str, target: str) -> None:
    with open(source, "rb") as taken:
        data = taken.read(LARGEST)
    handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o640)
    with os.fdopen(handle, "wb") as file:
        file.write(data)


def in_child(work: Callable[[], int], seconds: float, locks: str, name: str) -> int | str:
    """Run ``work`` in a forked child: its exit code, or in words why there is none.

    Never waits longer than ``seconds``, even for a child that cannot be killed.
    """
    import fcntl

    deadline = time.monotonic() + seconds
    try:
        os.makedirs(locks, mode=0o700, exist_ok=True)
        lock = os.open(f"{locks}/{name}.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        return f"no lock in {locks}: {error.strerror}"
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if time.monotonic() > deadline:
                os.close(lock)
                return "an earlier one still hangs"
            time.sleep(0.01)
    child = os.fork()
    if child == 0:
        code = 99
        try:
            null = os.open(os.devnull, os.O_RDWR)
            os.dup2(null, 0)
            os.dup2(null, 1)  # whoever reads the hook's verdict must not wait for this child
            os.closerange(3, lock)  # nor whoever waits for a lock that the hook was given
            os.closerange(lock + 1, 256)
            code = work()
        except BaseException as error:
            os.write(2, f"hpslurm: {name}: {clean(str(error))}\n".encode("utf-8", "replace"))
        os._exit(code)
    os.close(lock)
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    return f"no answer within {seconds:.1f} s"


def _is_due(mark: str) -> bool:
    """Whether nobody has cleaned up for a day. Whoever asks first has the turn."""
    try:
        if time.time() - os.lstat(mark).st_mtime < DAY:
            return False
    except FileNotFoundError:
        pass
    os.close(os.open(mark, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644))
    os.utime(mark)
    return True


def prune(results: str, keep_days: int, keep_jobs: int) -> None:
    """Remove the records of old jobs, by age and by count, and what cut-off hooks left. Best effort."""
    try:
        refuse_foreign_above(results)
        _in_folder(f"{results}/jobs", lambda folder: _prune(folder, keep_days, keep_jobs))
        _in_folder(f"{results}/nodes", _remove_orphans)
    except OSError:
        return


def _in_folder(path: str, work: Callable[[int], None]) -> None:
    folder = os.open(path, _FOLDER)
    try:
        work(folder)
    finally:
        os.close(folder)


def _remove_orphans(folder: int) -> None:
    """Records that a killed hook began; a running one's is seconds old."""
    refuse_foreign(folder)
    for name in os.listdir(folder):
        if name.endswith(".part") and time.time() - os.stat(name, dir_fd=folder, follow_symlinks=False).st_mtime > DAY:
            os.unlink(name, dir_fd=folder)


DAY = 86400
MOST_REMOVED = 500  # jobs at a time
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def _prune(folder: int, keep_days: int, keep_jobs: int) -> None:
    """By the folder's descriptor: whatever is renamed meanwhile, nothing outside of it is touched."""
    refuse_foreign(folder)
    jobs = []
    for name in os.listdir(folder):
        if _JOB.fullmatch(name):
            jobs.append((os.stat(name, dir_fd=folder, follow_symlinks=False).st_mtime, name))
    jobs.sort(reverse=True)
    oldest = time.time() - keep_days * 86400
    old = [name for number, (changed, name) in enumerate(jobs) if number >= keep_jobs or changed < oldest]
    for name in old[-MOST_REMOVED:]:  # the oldest first go; the rest tomorrow, or with the next job
        _remove(folder, name)


def _remove(above: int, name: str) -> None:
    """A job's folder holds files only; shutil would load compressors into every hook."""
    try:
        folder = os.open(name, _FOLDER, dir_fd=above)
    except OSError:
        return
    try:
        refuse_foreign(folder)
        for file in os.listdir(folder):
            os.unlink(file, dir_fd=folder)
        os.rmdir(name, dir_fd=above)
    except OSError:
        pass
    finally:
        os.close(folder)


# reading


@dataclass(frozen=True)
class Record:
    """One record as it was read. ``complete`` is False when the hook was cut off; ``strange`` are lines passed over."""

    node: str
    hook: str
    run: dict[str, Any]
    results: tuple[Result, ...]
    events: tuple[dict[str, Any], ...] = ()
    end: dict[str, Any] = field(default_factory=dict)
    complete: bool = True
    strange: tuple[int, ...] = ()

    @property
    def findings(self) -> list[Finding]:
        return [finding for result in self.results for finding in result.findings]


@dataclass(frozen=True)
class Unreadable:
    """A record that is there and was refused or could not be read; or a folder of them, which has no node and hook."""

    path: str
    why: str
    node: str = ""
    hook: str = ""

    def __str__(self) -> str:
        return f"{self.path}: {self.why}"


def job_records(results: str, job: str, *, brief: bool = False) -> tuple[list[Record], list[Unreadable]]:
    """All nodes' records of a job. ``brief``: as ``parse``, but with their events, which tell why it ended."""
    return read_folder(f"{results}/jobs/{job}", brief=brief, events=True)


def node_records(results: str) -> tuple[list[Record], list[Unreadable]]:
    """The newest record of every node and hook."""
    return read_folder(f"{results}/nodes")


_OF_END = ("type", "gated", "seconds")
# As ``Writer`` writes it; of 40 checks of a healthy node nearly all.
_FINE = re.compile(r'\{"schema":1,"type":"result","probe":"(\w{1,80})","outcome":"(pass|skip)",.*\}', re.DOTALL)


def all_records(results: str, node: str = "") -> tuple[list[Record], list[Unreadable]]:
    """Every record of every job that is kept, of all nodes or of one; of a requeued job the last start only."""
    kept, unreadable = read_folder(f"{results}/nodes", node)
    try:
        jobs = sorted(name for name in os.listdir(f"{results}/jobs") if _JOB.fullmatch(name))
    except FileNotFoundError:
        jobs = []
    except OSError as error:
        jobs, unreadable = [], [*unreadable, Unreadable(f"{results}/jobs", str(error.strerror))]
    for job in jobs:
        of_job, not_read = read_folder(f"{results}/jobs/{job}", node)
        kept += of_job
        unreadable += not_read
    # the newest record of a node is one of its job's, too
    unique = {(one.node, one.hook, one.run.get("job"), one.run.get("time")): one for one in kept}
    return list(unique.values()), unreadable


def read_folder(
    folder: str, node: str = "", *, named: bool = True, brief: bool = False, events: bool = False
) -> tuple[list[Record], list[Unreadable]]:
    """Every ``<node>.<hook>.jsonl`` of a folder, or one node's.

    ``named``: each is named after its node, and refused where it says another's. Else whoever
    reads goes by what stands inside: srun cannot put Slurm's node name into a file name.
    ``brief`` and ``events``: as ``parse``.
    """
    readable, unreadable = [], []
    begin = f"{node}." if node else ""
    try:
        refuse_foreign(folder)
        for above in _up_to_results(folder) if named else ():  # the folder that a person names is theirs to choose
            refuse_foreign(os.path.realpath(above))
        names = sorted(name for name in os.listdir(folder) if name.startswith(begin))
    except FileNotFoundError:
        return [], []
    except OSError as error:
        return [], [Unreadable(str(error.filename or folder), str(error.strerror))]
    whole = {name for name in names if name.endswith(".jsonl")}
    for name in names:
        shape = re.fullmatch(r"(.+)\.([a-z]+)\.jsonl(\.part)?", name)
        if not shape or (node and shape[1] != node) or (shape[3] and name.removesuffix(".part") in whole):
            continue
        try:
            path = f"{folder}/{name}"
            record = parse(read_text(path), shape[1], shape[2], brief=brief, with_events=events)
            readable.append(_of_its_own(record) if named else record)
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) and error.strerror else error
            unreadable.append(Unreadable(f"{folder}/{name}", clean(str(why)), shape[1], shape[2]))
    return readable, unreadable


def _up_to_results(folder: str) -> Iterator[str]:
    """The folders above that hold ours alone: of ``results/jobs/7`` and ``results/nodes``."""
    above = os.path.dirname(os.path.abspath(folder))
    yield above
    if os.path.basename(above) == "jobs":
        yield os.path.dirname(above)


def read(path: str, node: str, hook: str, most: int = LARGEST) -> Record:
    """One record. Raises OSError, or ValueError for a file that root does not own alone or that is another node's."""
    return _of_its_own(parse(read_text(path, most), node, hook))


def _of_its_own(record: Record) -> Record:
    if (own := record.run.get("node") or record.node) != record.node:
        raise ValueError(f"refused: {clean(str(own), 80)} wrote it, not the node that the file is named after")
    return record


def read_text(path: str, most: int = LARGEST) -> str:
    """The lines of a record as they are. Raises as ``read``."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        about = os.fstat(handle)
        if not stat.S_ISREG(about.st_mode) or about.st_uid not in (0, os.geteuid()) or about.st_mode & 0o022:
            raise ValueError("refused: not a regular file that only root may write")
        with os.fdopen(os.dup(handle), "rb") as file:
            return file.read(most).decode("utf-8", "replace")
    finally:
        os.close(handle)


def parse(text: str, node: str, hook: str, *, brief: bool = False, with_events: bool = False) -> Record:
    """Lines to a Record; a line that is cut off or strange is passed over, and ``complete`` says so.

    ``brief``: without facts, events and what the end counts, and of checks that found nothing only their names. It
    takes a tenth of the time and a fortieth of the memory, which tells with ten thousand nodes. ``with_events``: with
    events all the same.
    """
    run: dict[str, Any] = {}
    end: dict[str, Any] = {}
    results: list[Result] = []
    events: list[dict[str, Any]] = []
    strange: list[int] = []
    # only a line feed ends a line: what Python takes for one as well (U+2028, U+0085) may stand in a name
    for number, raw in enumerate(text.removesuffix("\n").split("\n") if text else (), start=1):
        if brief and (fine := _FINE.fullmatch(raw)):
            results.append(_fine(fine[1], fine[2]))
            continue
        try:
            line = json.loads(raw)
            kind = line["type"]
        except (ValueError, TypeError, KeyError, RecursionError):
            strange.append(number)
            continue
        if kind == "run":
            run = _run(line)
        elif kind == "result":
            results.append(_result({**line, "facts": None} if brief else line))
        elif kind == "finding" and results:
            last = results[-1]
            results[-1] = Result(
                last.probe, last.outcome, last.note, last.seconds, last.facts, (*last.findings, _finding(line))
            )
        elif kind == "event" and (with_events or not brief):
            events.append(line)
        elif kind == "end":
            end = {key: line[key] for key in _OF_END if key in line} if brief else line
    return Record(
        node, hook, run, tuple(results), tuple(events), end, complete=bool(end) and not strange, strange=tuple(strange)
    )


# What a reader counts on; policy_problems aside, a run line holds no lists and no objects.
END_OF_TIME = 1e11  # seconds since the epoch; no clock of a node shows more, and no calendar can
_RUN = {"time": (int, float), "job": (int,), "restart": (int,), "policy_problems": (list,)}


@lru_cache(maxsize=256)
def _fine(probe: str, outcome: str) -> Result:
    return Result(probe, outcome)


def _run(line: Mapping[str, Any]) -> dict[str, Any]:
    """The run line, without values of another type than we write: a record may be from anywhere (``--reports``)."""
    run: dict[str, Any] = {
        key: sys.intern(clean(value)) if isinstance(value, str) else value  # thousands of records say the same
        for key, value in line.items()
        if isinstance(value, _RUN.get(key, (str, int, float))) and not isinstance(value, bool)
    }
    if not 0 <= run.get("time", 0) < END_OF_TIME:
        del run["time"]
    return run


def _result(line: Mapping[str, Any]) -> Result:
    facts = line.get("facts")
    seconds = line.get("seconds")
    return Result(
        clean(str(line.get("probe"))),
        str(line.get("outcome")) if line.get("outcome") in (PASS, FAIL, SKIP) else UNKNOWN,
        clean(str(line.get("note") or "")),
        seconds if isinstance(seconds, (int, float)) else 0.0,
        facts if isinstance(facts, dict) else None,
    )


def _finding(line: Mapping[str, Any]) -> Finding:
    def text(name: str) -> str:
        return clean(str(line.get(name) or ""))

    def rows(name: str) -> list[Mapping[str, Any]]:
        value = line.get(name)
        return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []

    priority = text("priority") if line.get("priority") in PRIORITIES else PRIORITIES[0]
    return Finding(
        Rule(text("id"), priority, text("title"), text("reference"), text("cause")),
        text("detail"),
        tuple(Evidence(clean(str(row.get("source"))), clean(str(row.get("text")))) for row in rows("evidence")),
        tuple(
            Suggestion(str(row["step"]), clean(str(row.get("why"))), clean(str(row.get("command") or ""), 2000))
            for row in rows("suggestions")
            if row.get("step") in HARMS
        ),
        text("subject"),
        text("muted"),
    )


def newest(records: Iterable[Record]) -> dict[str, Record]:
    """The newest record of each node, whatever the hook."""
    latest: dict[str, Record] = {}
    for record in records:
        kept = latest.get(record.node)
        if kept is None or (record.run.get("time") or 0) > (kept.run.get("time") or 0):
            latest[record.node] = record
    return latest
