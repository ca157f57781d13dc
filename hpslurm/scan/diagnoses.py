"""What was found out about jobs, kept for years in a few bytes each: JSON lines, a month at a time.

    <results>/diagnoses/2026-12.jsonl       what ``report`` found out, run as root: the whole job
    <results>/diagnoses/2026-12/n3.jsonl    what the epilog of that node saw: the job's output, if it is the first
                                            node, and hardware that went wrong during the job

So no log need be read again, and no record. The same rules as for records: the folders are root's alone, nothing
follows a link, and a line that is strange is passed over. Each node writes a file of its own: hundreds end a job in
the same second, and over NFS nothing makes their lines wait for each other. Light: the epilog writes it.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import stat
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from errno import EFBIG, ENOSPC, EPERM
from typing import Any

from hpslurm.core import records
from hpslurm.core.finding import P2, ROOT, SYMPTOM, Diagnosis, Event, Finding
from hpslurm.core.text import GPU_UUID, clean
from hpslurm.core.values import dataclass
from hpslurm.scan import lines
from hpslurm.scan.model import causes

FOLDER = "diagnoses"
REPORT, EPILOG = "report", "epilog"
LARGEST = 256 << 20  # bytes that are read, of all files together, and that a month of reports may have
MOST_OF_NODE = 4 << 20  # bytes that a node writes in a month: 4,000 jobs that failed
MOST_FINDINGS = 20  # of one node in one job
WAIT = 0.5  # seconds for other epilogs of this node that write now
NOTHING = ("undetermined", "healthy", "")  # causes that tell nothing
SAME_END = 900.0  # seconds between a job's end, as Slurm has it, and the epilogs of that run
SAME_JOB = 86400.0  # between a job's end and what was found out of it; job ids come again
_MONTH = re.compile(r"\d{4}-\d\d(\.jsonl)?")
_NODE_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}\.jsonl")
_LEFT_OUT = ("missing", "victims", "suggestions", "schema", "type")
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True)
class Seen:
    """Something that an epilog found and the prolog of the same job had not."""

    rule: str
    cause: str = ""
    gpu: str = ""  # a UUID
    detail: str = ""


@dataclass(frozen=True)
class Kept:
    """A diagnosis as it is kept. ``time`` is the job's end, seconds since the epoch."""

    job: int
    time: float
    cause: str
    confidence: str = ""
    host: str = ""
    gpu: str = ""
    nodes: str = ""
    source: str = REPORT
    node: str = ""  # whose epilog it was
    instance: str = ""
    seen: tuple[Seen, ...] = ()


# writing


def keep(folders: Sequence[str], job: int, when: float, diagnosis: Diagnosis, nodes: str = "") -> bool:
    """What report found out, in the first of the folders that may be written. Never raises: no reason to fail."""
    data = _encoded(_line(REPORT, job, when, diagnosis, nodes))
    for folder in folders:
        try:
            _append(folder, f"{_month(when)}.jsonl", data, LARGEST)
        except OSError:
            continue
        return True
    return False


def keep_of_node(
    folder: str, run: Mapping[str, Any], nodes: str, events: Sequence[Event], new: Sequence[Finding],
    keep_days: int = 0,
) -> bool:  # fmt: skip
    """What one node's epilog knows of its job; whether that is worth a line. Raises OSError where it cannot be kept.

    ``new`` are findings that came during the job: what its prolog had seen is no proof of what ended it. ``run`` is the
    record's line.
    """
    grave = [finding for finding in new if finding.rule.priority != P2 and not finding.muted]
    if not grave and not any(event.role in (ROOT, SYMPTOM) for event in events):
        return False
    from hpslurm.scan.reason import reason

    diagnosis = reason(events, new)
    if diagnosis.cause in NOTHING and not grave:
        return False
    line = _line(EPILOG, run["job"], run["time"], diagnosis, nodes)
    line.update(node=run["node"], instance=run["instance"], exit_code=run.get("exit_code", ""))
    line["findings"] = [
        {"id": seen.rule, "cause": seen.cause, "gpu": seen.gpu, "detail": seen.detail}
        for seen in map(seen_of, grave[:MOST_FINDINGS])
    ]
    _append(folder, f"{_month(run['time'])}/{run['node']}.jsonl", _encoded(line), MOST_OF_NODE, keep_days)
    return True


def seen_of(finding: Finding) -> Seen:
    return Seen(finding.rule.id, finding.rule.cause, gpu_of(finding), clean(finding.detail, 200))


def gpu_of(finding: Finding) -> str:
    """The UUID of the GPU that it is about; the text may name GPUs that are well."""
    return next((match[0] for evidence in finding.evidence if (match := GPU_UUID.search(evidence.source))), "")


def _line(source: str, job: int, when: float, diagnosis: Diagnosis, nodes: str) -> dict[str, Any]:
    told = {key: value for key, value in lines.diagnosis_line(diagnosis).items() if key not in _LEFT_OUT}
    about = {"schema": records.SCHEMA, "type": "job_diagnosis", "source": source, "job": job, "time": when}
    return {**about, **told, "nodes": clean(nodes, 2000)}


def _encoded(line: Mapping[str, Any]) -> bytes:
    return records.encode(line).encode("utf-8", "replace") + b"\n"


def _month(when: float) -> str:
    return time.strftime("%Y-%m", time.gmtime(when))


def _append(results: str, name: str, data: bytes, most: int, keep_days: int = 0) -> None:
    """Raises OSError. By the folders' descriptors: what is renamed or linked meanwhile leads nowhere else."""
    opened = [os.open(results, _FOLDER_FLAGS)]
    try:
        records.refuse_foreign(opened[0])
        *folders, file = (FOLDER, *name.split("/"))
        for folder in folders:
            is_new = _made(folder, opened[-1])
            opened.append(os.open(folder, _FOLDER_FLAGS, dir_fd=opened[-1]))
            records.refuse_foreign(opened[-1])
            if is_new and keep_days and _MONTH.fullmatch(folder):
                _remove_old(results, opened[-2], time.time() - keep_days * 86400)
        opened.append(_opened(file, opened[-1], most))
        _put(opened[-1], data)
    finally:
        for handle in opened:
            os.close(handle)


def _made(folder: str, above: int) -> bool:
    try:
        os.mkdir(folder, 0o750, dir_fd=above)
    except FileExistsError:
        return False
    return True


def _opened(name: str, folder: int, most: int) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    handle = os.open(name, flags, 0o640, dir_fd=folder)
    try:
        records.refuse_foreign(handle)
        about = os.fstat(handle)
        if not stat.S_ISREG(about.st_mode):
            raise PermissionError(EPERM, "not a regular file", name)
        if about.st_size > most:
            raise OSError(EFBIG, f"has {about.st_size} bytes, and no more than {most} are written in a month", name)
    except BaseException:
        os.close(handle)
        raise
    return handle


def _put(handle: int, data: bytes) -> None:
    """One line at the end, behind whatever a full disk has cut off before."""
    _lock(handle)
    size = os.fstat(handle).st_size
    if size and os.pread(handle, 1, size - 1) != b"\n":
        data = b"\n" + data
    if os.write(handle, data) < len(data):
        raise OSError(ENOSPC, "disk full")


def _lock(handle: int) -> None:
    """Against other epilogs of this node; a file system without locks has to do without."""
    end = time.monotonic() + WAIT
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > end:
                raise
            time.sleep(0.005)
        except OSError:
            return
        else:
            return


def _remove_old(results: str, folder: int, oldest: float) -> None:
    """Whole months, once a month, by the node that begins a new one; only where nobody else may move ours."""
    try:
        records.refuse_foreign_above(results)
    except OSError:
        return
    last = _month(oldest)
    for name in os.listdir(folder):
        if not _MONTH.fullmatch(name) or name[:7] >= last:
            continue
        try:
            if name.endswith(".jsonl"):
                os.unlink(name, dir_fd=folder)
                continue
            month = os.open(name, _FOLDER_FLAGS, dir_fd=folder)
            try:
                records.refuse_foreign(month)
                for file in os.listdir(month):
                    os.unlink(file, dir_fd=month)
                os.rmdir(name, dir_fd=folder)
            finally:
                os.close(month)
        except OSError:  # another node is at it
            continue


# reading


def read(folders: Iterable[str], since: float) -> tuple[dict[int, list[Kept]], list[str]]:
    """By job, all words on it in the order of the files; and what could not be read, in words."""
    found: dict[int, list[Kept]] = {}
    troubles: list[str] = []
    left = LARGEST
    for results in folders:
        for path in _files(f"{results}/{FOLDER}", _month(since), troubles):
            if left <= 0:
                troubles.append(f"{results}/{FOLDER}: only the newest {LARGEST >> 20} MiB were read")
                break
            try:
                text = records.read_text(path, left)
            except (OSError, ValueError) as error:
                troubles.append(clean(f"{path}: {error}"))
                continue
            left -= len(text)
            node = os.path.basename(path)[:-6] if os.path.basename(os.path.dirname(path)) != FOLDER else ""
            for kept in parse(text):
                if kept.time >= since and kept.node == node:
                    found.setdefault(kept.job, []).append(kept)
    return found, troubles


def _files(folder: str, first: str, troubles: list[str]) -> Iterator[str]:
    """Files of the month ``first`` and later, the newest first."""
    for name in _listed(folder, troubles):
        if not _MONTH.fullmatch(name) or name[:7] < first:
            continue
        if name.endswith(".jsonl"):
            yield f"{folder}/{name}"
            continue
        yield from (
            f"{folder}/{name}/{file}" for file in _listed(f"{folder}/{name}", troubles) if _NODE_FILE.fullmatch(file)
        )


def _listed(folder: str, troubles: list[str]) -> list[str]:
    try:
        return sorted(os.listdir(folder), reverse=True)
    except FileNotFoundError:
        return []
    except OSError as error:
        troubles.append(f"{folder}: {error.strerror}")
        return []


def parse(text: str) -> Iterator[Kept]:
    for raw in text.splitlines():
        try:
            line = json.loads(raw)
        except (ValueError, RecursionError):
            continue
        if isinstance(line, dict) and line.get("type") == "job_diagnosis" and (kept := _kept(line)):
            yield kept


def _kept(line: Mapping[str, Any]) -> Kept | None:
    job, when = line.get("job"), line.get("time")
    if type(job) is not int or not isinstance(when, (int, float)) or not 0 <= when < records.END_OF_TIME:
        return None
    culprit, findings = line.get("culprit"), line.get("findings")
    named = culprit if isinstance(culprit, dict) else {}

    def text(name: str, longest: int, of: Mapping[str, Any] = line) -> str:
        return clean(str(of.get(name) or ""), longest)

    return Kept(
        job,
        float(when),
        text("cause", 80),
        text("confidence", 20),
        text("host", 260, named),
        text("gpu", 80, named),
        text("nodes", 2000),
        EPILOG if line.get("source") == EPILOG else REPORT,
        text("node", 260),
        text("instance", 80),
        tuple(
            Seen(text("id", 80, seen), text("cause", 80, seen), text("gpu", 80, seen), text("detail", 200, seen))
            for seen in (findings if isinstance(findings, list) else ())[:MOST_FINDINGS]
            if isinstance(seen, dict)
        ),
    )


def of_run(kept: Sequence[Kept], end: float) -> list[Kept]:
    """Those about the run of the job that ended then: of a requeued job every run has its own.

    A report's last word alone, where it found a cause, since it saw all nodes; else those of the epilogs.
    """
    near = [one for one in kept if abs(one.time - end) < SAME_END]
    near = near or [one for one in kept if one.source == REPORT and abs(one.time - end) < SAME_JOB]
    reports = [one for one in near if one.source == REPORT and one.cause not in NOTHING]
    return reports[-1:] or near


def blame(cause: str) -> str:
    """What such a failure speaks against: node, job, site or unknown. A cause of another version is unknown."""
    known = causes().get(cause)
    return known.blame if known else "unknown"
