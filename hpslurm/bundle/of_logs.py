"""The logs, shortened to what there is room for, and their lines of trouble."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from functools import partial

from hpslurm.bundle import archive
from hpslurm.bundle.archive import LOGS
from hpslurm.bundle.parts import Parts
from hpslurm.bundle.request import Request
from hpslurm.core.finding import NOISE, ROOT
from hpslurm.job import cause, logs
from hpslurm.scan import joblog
from hpslurm.scan.collect import Collector
from hpslurm.sources.slurm import SlurmJob

MOST_ERRORS = 500
LONGEST_LINE = 8192  # characters of an error line


def read_logs(request: Request, job: SlurmJob | None, collector: Collector, parts: Parts) -> list[logs.Log]:
    read: list[logs.Log] = []
    about = cause.about_output(job) if job else None
    own = [path for path in joblog.paths(about) if "%" not in path] if about else []
    named = logs.files(request.logs)
    for paths, whose in (([path for path in own if path not in named], about), (named, None)):
        if paths:
            nothing: tuple[list[logs.Log], list[tuple[str, str]]] = ([], [])
            some, missing = parts.tried("logs", partial(logs.look, paths, whose, collector), nothing)
            read += some
            for path, why in missing:
                parts.miss(path, why)
    return read


def add_logs(read: Sequence[logs.Log], limit: int, parts: Parts) -> None:
    given = logs.shares([len(log.taken.head) + len(log.taken.tail) for log in read], limit)
    for log, most, name in zip(read, given, _names(read).values(), strict=True):
        head, tail = log.taken.head, log.taken.tail
        not_read = max(0, log.taken.size - len(head) - len(tail))
        text, left_out = archive.shortened(log.text, most, not_read)
        if not_read and left_out == not_read:  # it was read from both ends, and all of that fits
            text = archive.joined(head.decode("utf-8", "replace"), tail.decode("utf-8", "replace"), not_read)
        parts.add(name, text, log.path, LOGS, left_out, log.note)


def _names(read: Sequence[logs.Log]) -> dict[str, str]:
    """Path to a name in the bundle: the file's own, with a number where two are alike."""
    given: dict[str, str] = {}
    for log in read:
        name = re.sub(r"[^A-Za-z0-9._\[\]=+-]", "_", os.path.basename(log.path)).lstrip(".-") or "log"
        number, free = 1, name
        while f"logs/{free}" in given.values():
            number += 1
            free = f"{number}-{name}"
        given[log.path] = f"logs/{free}"
    return given


def add_errors(ended: cause.Cause | None, read: Sequence[logs.Log], anything: bool, parts: Parts) -> list[str]:
    """The lines of trouble; ``anything``: a log was read, or an epilog left what it saw of one."""
    errors = list(error_lines(ended, read)) if ended else []
    if errors:
        parts.add("errors.txt", "\n".join(errors), "the logs, verbatim")
    elif anything:
        parts.miss("errors.txt", "no line of trouble in the logs that were read")
    else:
        parts.miss("errors.txt", "no log was read: name the job's output and all ranks' logs (--log)")
    return errors


def error_lines(ended: cause.Cause, read: Sequence[logs.Log]) -> Iterator[str]:
    """Lines of trouble, the decisive event first, each as it stands in its file."""
    files, names = {log.path: log for log in read}, _names(read)
    events = [event for event in ended.events if event.role != NOISE and event.line]
    decisive = ended.diagnosis.decisive
    order = sorted(
        events, key=lambda event: (event != decisive, event.role != ROOT, -event.weight, event.file, event.line)
    )
    seen: set[tuple[str, int]] = set()
    for event in order:
        if (event.file, event.line) in seen or len(seen) >= MOST_ERRORS:
            continue
        seen.add((event.file, event.line))
        log = files.get(event.file)
        line = log.line(event.line) if log else ""
        note = "" if line else " (as the epilog recorded it)" if not log else " (as scan read it)"
        again = f" (the first of {event.count} alike)" if event.count > 1 else ""
        yield f"{names.get(event.file, event.file)}:{event.line}:{note}{again} {(line or event.text)[:LONGEST_LINE]}"
