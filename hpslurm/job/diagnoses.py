"""What was found out about jobs, kept for years in a few bytes each: one line a job, a file a month.

    <results>/diagnoses/2026-12.jsonl       the lines of ``scan --json`` with the job and the time of its end

``report`` appends as root, to the shared folder where there is one, so that no log need be read again. The same rules
as for records: the folder is root's alone, nothing follows a link, and a line that is strange is passed over.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from hpslurm.core import records
from hpslurm.core.finding import Diagnosis
from hpslurm.core.text import clean
from hpslurm.core.values import dataclass
from hpslurm.scan import lines
from hpslurm.scan.model import causes

FOLDER = "diagnoses"
LARGEST = 256 << 20  # bytes of one month that are read
_MONTH = re.compile(r"\d{4}-\d\d\.jsonl")
LEFT_OUT = ("missing", "victims", "suggestions", "schema", "type")


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


def keep(folders: Sequence[str], job: int, when: float, diagnosis: Diagnosis, nodes: str = "") -> bool:
    """Append to the first of the folders that may be written. Never raises: an index is no reason to fail."""
    line = {key: value for key, value in lines.diagnosis_line(diagnosis).items() if key not in LEFT_OUT}
    text = records.encode(
        {"schema": records.SCHEMA, "type": "job_diagnosis", "job": job, "time": when, **line, "nodes": nodes}
    )
    return any(_append(folder, when, text.encode("utf-8", "replace") + b"\n") for folder in folders)


def _append(results: str, when: float, line: bytes) -> bool:
    folder = f"{results}/{FOLDER}"
    try:
        records.refuse_foreign(results)
        os.makedirs(folder, mode=0o750, exist_ok=True)
        records.refuse_foreign(folder)
        path = f"{folder}/{time.strftime('%Y-%m', time.gmtime(when))}.jsonl"
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        handle = os.open(path, flags, 0o640)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.write(handle, line)
        finally:
            os.close(handle)
    except OSError:
        return False
    return True


def read(folders: Iterable[str], since: float) -> tuple[dict[int, Kept], list[str]]:
    """By job, the newest word on each; and what could not be read, in words."""
    newest: dict[int, Kept] = {}
    troubles = []
    first = time.strftime("%Y-%m", time.gmtime(since))
    for results in folders:
        folder = f"{results}/{FOLDER}"
        try:
            months = sorted(name for name in os.listdir(folder) if _MONTH.fullmatch(name) and name[:7] >= first)
        except FileNotFoundError:
            continue
        except OSError as error:
            troubles.append(f"{folder}: {error.strerror}")
            continue
        for month in months:
            try:
                text = records.read_text(f"{folder}/{month}", LARGEST)
            except (OSError, ValueError) as error:
                troubles.append(clean(f"{folder}/{month}: {error}"))
                continue
            newest.update((one.job, one) for one in parse(text) if one.time >= since)
    return newest, troubles


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
    culprit = line.get("culprit")
    if type(job) is not int or not isinstance(when, (int, float)) or not 0 <= when < records.END_OF_TIME:
        return None
    named = culprit if isinstance(culprit, dict) else {}
    return Kept(
        job,
        float(when),
        clean(str(line.get("cause") or ""), 80),
        clean(str(line.get("confidence") or ""), 20),
        clean(str(named.get("host") or ""), 260),
        clean(str(named.get("gpu") or ""), 80),
        clean(str(line.get("nodes") or ""), 2000),
    )


def blame(cause: str) -> str:
    """What such a failure speaks against: node, job, site or unknown. A cause of another version is unknown."""
    known = causes().get(cause)
    return known.blame if known else "unknown"
