"""From files to events: one streaming pass, bounded memory.

Per pattern and speaker only the first line, the last line number and a count are kept.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from typing import IO

from hpslurm.core.finding import NOISE, ROOT, SYMPTOM, Event
from hpslurm.core.linear import LONGEST
from hpslurm.core.text import clean, whole
from hpslurm.core.values import dataclass, replace
from hpslurm.scan import kinds, model, prefix, read, trouble
from hpslurm.scan.checks import CHECKS
from hpslurm.scan.culprit import OF_PROCESS
from hpslurm.scan.gpu_names import pci
from hpslurm.scan.hit import Context, Hit, rank_of_neighbours
from hpslurm.scan.match import Finder, finder
from hpslurm.scan.patterns import Pattern, Table, benign, boilerplate, compiled, known, noise, table

EDGE = 64 << 10  # bytes at either end of a file that are looked at line by line
WINDOW = (30, 60)  # lines before and after a trigger that are looked at, too
WINDOWS = 200  # of them per file
SPEAKERS = 64  # different speakers kept per pattern and file; further ones are only counted
MOST = 60_000  # events kept in all
MOST_UNKNOWN = 500  # lines of trouble of one file that no row knows
TRIED = 6_000  # lines per pattern and file on which the expression is tried; beyond, they are only counted


@dataclass(frozen=True)
class Taken:
    """What came of some files, to be put together with that of others."""

    events: dict[tuple[object, ...], Event]
    unread: list[str]
    numbered: dict[str, int]
    files: int
    bytes: int


class Collector:
    """Gathers events over many files. ``unread`` says which inputs could not be read, and why."""

    def __init__(self, *, fast: bool = True, patterns: Table | None = None) -> None:
        self.table = patterns or table()
        self.deadline = float("inf")  # of time.monotonic; then it stops wherever it is
        self.fast = fast
        self.events: dict[tuple[object, ...], Event] = {}
        self.unread: list[str] = []
        self.numbered: dict[str, int] = {}  # files with a number in their name that may be a rank
        self.files = 0
        self.bytes = 0
        self.block = read.block()
        self.literals, self.triggers = _with_triggers(self.table)

    @property
    def late(self) -> bool:
        return time.monotonic() > self.deadline

    # ------------------------------------------------------------------ input

    def add(self, path: str, progress: Callable[[int], None] | None = None) -> None:
        try:
            with read.opened(path) as stream:
                if path != "-" and self.dump(stream, path, progress):
                    return
                self.stream(stream, path, progress)
        except read.Unreadable as error:
            self.unread.append(str(error))
        except OSError as error:
            self.unread.append(f"{path}: {error.strerror or error}")
        except Exception as error:  # a damaged archive raises what its decoder likes
            if (
                not isinstance(error, (EOFError, ValueError))
                and "zlib" not in type(error).__module__
                and "zstd" not in repr(type(error)).lower()
            ):
                raise
            self.unread.append(f"{path}: damaged archive ({error}); what came before the damage was read")

    def dump(self, stream: IO[bytes], path: str, progress: Callable[[int], None] | None = None) -> bool:
        """Takes the file if it is a flight recorder dump or a RAS report as JSON."""
        if not stream.seekable():
            return False
        head = stream.read(4096)
        stream.seek(0)
        if head.lstrip()[:1] not in (b"{", b"\x80"):  # JSON, a pickle
            return False
        from hpslurm.scan import flight, ras

        found: list[Event] = []
        if ras.looks_like_json(head):
            found = ras.json_events(stream.read(ras.LARGEST), path)
            stream.seek(0)
        elif flight.looks_like(head):
            try:
                found = flight.read(stream, path)
            except flight.NotADump as why:
                stream.seek(0)
                if head[:1] == b"\x80":  # a pickle that is no dump is no text either
                    self.unread.append(f"{path}: not read as a flight recorder dump: {why}")
                    return True
        for event in found:
            self.keep((event.pattern, path, event.rank, event.fact("pg"), event.text), event)
        if found:
            self.files += 1
            if progress:
                progress(os.stat(path).st_size)
        return bool(found)

    def stream(
        self,
        stream: IO[bytes],
        path: str,
        progress: Callable[[int], None] | None = None,
        limit: int | None = None,
        line: int = 1,
    ) -> None:
        """One file, or a piece of it that begins at ``line`` (negative: counted from the end). One pass only."""
        self.files += 1
        one = _File(self, path, finder(self.literals, fast=self.fast))
        for part in read.parts(stream, limit, self.block, line):
            one.take(part)
            self.bytes += part.end - part.start
            if progress:
                progress(part.end - part.start)
        one.close()

    # ------------------------------------------------------------------ put together

    def take(self) -> Taken:
        """All that was gathered; afterwards there is nothing here."""
        taken = Taken(self.events, self.unread, self.numbered, self.files, self.bytes)
        self.events, self.unread, self.numbered, self.files, self.bytes = {}, [], {}, 0, 0
        return taken

    def merge(self, taken: Taken) -> None:
        for key, event in taken.events.items():
            self.keep(key, event)
        self.unread += taken.unread
        self.numbered |= taken.numbered
        self.files += taken.files
        self.bytes += taken.bytes

    # ------------------------------------------------------------------ output

    def result(self) -> list[Event]:
        ranks = self._ranks_of_numbers()
        found = [replace(event, rank=ranks[event.file]) if event.rank is None and event.file in ranks and not event.host
                 else event for event in self.events.values()]  # fmt: skip
        found += [Event("file", NOISE, path, 1, "", rank=rank) for path, rank in ranks.items()]
        return sorted(found, key=lambda event: (event.file, event.line))

    def _ranks_of_numbers(self) -> dict[str, int]:
        """Files whose names differ in a number only are one a rank, where the numbers begin at 0 and have few gaps."""
        groups: dict[str, dict[str, int]] = {}
        for path, number in self.numbered.items():
            groups.setdefault(re.sub(r"\d+(?=\D*$)", "#", path), {})[path] = number
        ranks: dict[str, int] = {}
        for files in groups.values():
            numbers = files.values()
            if len(files) > 1 and min(numbers) == 0 and max(numbers) < 2 * len(files):
                ranks.update(files)
        return ranks

    def keep(self, key: tuple[object, ...], event: Event) -> None:
        old = self.events.get(key)
        if old is not None and event.pattern == "busy":  # the latest began last
            self.events[key] = event
        elif old is not None:
            self.events[key] = replace(old, count=old.count + event.count, last_line=event.last_line or event.line)
        elif len(self.events) < MOST or event.role == ROOT:
            self.events[key] = event


class _File:
    def __init__(self, owner: Collector, path: str, find: Finder) -> None:
        self.owner = owner
        self.path = path
        self.find = find
        self.rank = prefix.rank_of_file(path) if path != "-" else None
        number = prefix.number_of_file(path) if self.rank is None and path != "-" else None
        if number is not None:
            owner.numbered[path] = number
        self.year = time.gmtime().tm_year
        self.speakers: dict[str, int] = {}
        self.tried: dict[int, int] = {}
        self.head: list[tuple[int, str]] = []
        self.tail = b""  # of the last part, from the beginning of a line
        self.end = 0  # number of the line behind it
        self.between: dict[int, str] = {}
        self.windows = 0
        self.covered = 0
        self.first = True
        self.odd = False  # a line of it could not be understood

    def take(self, part: read.Part) -> None:
        data = part.data
        if self.first:
            self.first = False
            head = bytes(data[part.start : min(part.end, part.start + EDGE)])
            self.head = _numbered(head, part.line)
            self.year = _year(head, self.path)
            self.tail = b""
            self.covered = self.head[-1][0] - 1 if self.head else 0
        if (part.end == part.size and part.line > 1) or part.end - part.start > EDGE:
            begin = max(part.start, part.end - EDGE)
            newline = data.find(b"\n", begin, part.end) + 1
            if newline > 0 and begin > part.start:
                begin = newline
            self.tail = bytes(data[begin : part.end])
        line, at = part.line, part.start
        for begin, stop, numbers in self.find(data, part.size, part.start, part.end):
            if begin > at:
                line += data.count(b"\n", at, begin)
                at = begin
            if self.owner.late:
                break
            try:
                self.examine(data, part.size, begin, stop, line, numbers)
            except ValueError as error:  # one odd line must not cost the rest of the file
                self._untold(line, error)
        part.lines = line - part.line + data.count(b"\n", at, part.end)
        self.end = part.line + part.lines

    def close(self) -> None:
        last = self.head[-1][0] if self.head else 0
        tail = [item for item in _numbered(self.tail, self.end - self.tail.count(b"\n")) if item[0] > last]
        seen = {number for number, _ in (*self.head, *tail)}
        between = [(number, line) for number, line in sorted(self.between.items()) if number not in seen]
        lines = self.head + [item for item in between if item[0] > last] + tail
        for event in self._looked(lines):
            event = replace(event, rank=event.rank if event.rank is not None else self.rank, text=clean(event.text))
            speaker: tuple[object, ...] = (event.rank, event.host, event.gpu)
            if event.role != ROOT:
                speaker = (event.pid, event.host, event.facts)
            if event.pattern in ("place", "task", "claim"):  # a host has many ranks
                speaker = (event.rank, event.host, event.facts)
            self.owner.keep((event.pattern, self.path, speaker), event)
        if self.rank is not None:
            self.owner.keep(("file", self.path), Event("file", NOISE, self.path, 1, "", rank=self.rank))

    def _looked(self, lines: list[tuple[int, str]]) -> Iterator[Event]:
        if self.owner.late:
            return
        try:
            yield from kinds.events(self.path, lines)
            yield from self._unknown(lines)
        except ValueError as error:
            self._untold(lines[0][0] if lines else 1, error)

    def _unknown(self, lines: list[tuple[int, str]]) -> Iterator[Event]:
        """Lines that sound like trouble and that no row knows, and those that a row calls normal."""
        found = 0
        said: set[str] = set()
        for number, raw in lines:
            for line in raw.split("\r"):
                if not trouble.may_be(line):
                    continue
                if self.owner.late:
                    return
                row = benign(line)
                if row is not None and row.id not in said:
                    said.add(row.id)
                    facts = (("why", row.meaning), ("row", row.id))
                    yield Event("benign", NOISE, self.path, number, line, facts=facts)
                if row is not None or noise(prefix.bare(line)):
                    continue
                rest = boilerplate().sub(" ", line)
                if not trouble.gravity_of(rest) or known(prefix.bare(line), self.owner.table):
                    continue
                event = trouble.event_of(self.path, number, rest, self.year)
                if event is None:
                    continue
                found += 1
                if found > MOST_UNKNOWN:
                    return
                yield event

    def _untold(self, number: int, error: ValueError) -> None:
        """Said once a file."""
        if not self.odd:
            self.odd = True
            self.owner.unread.append(
                f"{self.path}:{number}: could not be understood ({clean(str(error), 80)}); passed over"
            )

    def examine(self, data: bytearray, size: int, begin: int, stop: int, number: int, literals: list[int]) -> None:
        wanted: set[int] = set()
        known = len(self.owner.table.wanted_by)
        for literal in literals:
            if literal < known:
                wanted.update(self.owner.table.wanted_by[literal])
            if literal in self.owner.triggers and number > self.covered and self.windows < WINDOWS:
                self._window(data, size, begin, stop, number)
        if not wanted:
            return
        patterns = sorted((self.owner.table.patterns[index] for index in wanted), key=lambda row: -row.weight)
        tried = self.tried
        patterns = [row for row in patterns if tried.get(row.number, 0) < TRIED]
        if not patterns:
            return
        raw = bytes(data[begin:stop]).decode("utf-8", "replace")
        line = prefix.plain(raw)
        segments = [segment for segment in line.split("\r") if segment] if "\r" in line else [line]
        context: Context | None = None
        for labelled in segments[-200:]:
            segment = prefix.bare(labelled)
            aside: bool | None = None
            quiet: bool | None = None
            rest = segment
            mark: prefix.Mark | None = None
            for row in patterns:
                tried[row.number] = tried.get(row.number, 0) + 1
                if row.check == "exception":
                    mark = mark or prefix.read(labelled, self.year)
                    match = compiled(row.regex).search(mark.text)
                else:
                    match = compiled(row.regex).search(segment)
                if not match:
                    continue
                if row.cause in model.of_programs():
                    aside = prefix.is_aside(labelled) if aside is None else aside
                    if aside:
                        continue
                if quiet is None:  # asked last, because it costs most
                    quiet = noise(segment)
                    rest = boilerplate().sub(" ", segment)
                if quiet:
                    break
                if rest != segment and row.check != "exception":  # what is boilerplate beside an error says nothing
                    match = compiled(row.regex).search(rest)
                    if not match:
                        continue
                mark = mark or prefix.read(labelled, self.year)
                hit = _hit(row, match, segment, mark)
                if row.role == ROOT and row.cause in OF_PROCESS and hit.rank is None and not hit.host:
                    context = context or Context(data, size, begin, stop)
                    hit.rank = rank_of_neighbours(context)
                if row.check:
                    context = context or Context(data, size, begin, stop)
                    if not CHECKS[row.check](hit, match, context):
                        continue
                self._keep(row, hit, number, labelled)
                break

    def _window(self, data: bytearray, size: int, begin: int, stop: int, number: int) -> None:
        self.windows += 1
        self.covered = number + WINDOW[1]
        context = Context(data, size, begin, stop)
        for index, line in enumerate(context.before(WINDOW[0])):
            self.between.setdefault(number - 1 - index, line)
        own = bytes(data[begin:stop]).decode("utf-8", "replace")
        for index, line in enumerate([own, *context.after(WINDOW[1])]):
            self.between.setdefault(number + index, prefix.plain(line[:LONGEST]))

    def _keep(self, row: Pattern, hit: Hit, number: int, line: str) -> None:
        rank = hit.rank if hit.rank is not None else self.rank
        detail = (
            hit.facts.get("seq", "")
            + hit.facts.get("op", "")
            + hit.facts.get("code", "")
            + hit.facts.get("named_rank", "")
            + hit.facts.get("closed", "")
        )
        speaker = (
            rank,
            hit.local_rank,
            hit.host,
            hit.gpu,
            detail[:60],
            hit.facts.get("xid", ""),
            hit.time if row.check == "launcher" else None,
        )
        key: tuple[object, ...] = (row.id, hit.cause, self.path, speaker)
        if key not in self.owner.events:
            most = SPEAKERS * 8 if row.id in ("watchdog", "nccl-local-closed") else SPEAKERS
            if self.speakers.get(row.id, 0) >= most:
                key = (row.id, hit.cause, self.path, ("others",))
            self.speakers[row.id] = self.speakers.get(row.id, 0) + 1
        at = hit.facts.pop("at", "")
        text = f"{hit.text.strip()} {at}".strip() if at else line.strip()
        self.owner.keep(
            key,
            Event(
                row.id,
                hit.role,
                self.path,
                number,
                clean(text),
                hit.time,
                rank,
                hit.host,
                hit.cause,
                hit.weight,
                1,
                number,
                hit.local_rank,
                hit.gpu,
                hit.pid,
                clean(hit.peer, 80),
                tuple((name, clean(value, 200)) for name, value in hit.facts.items()),
            ),
        )


def _with_triggers(known: Table) -> tuple[tuple[bytes, ...], frozenset[int]]:
    """The literals of the table, then the triggers of ``kinds``; and the numbers of all triggers."""
    triggers, literals = frozenset(kinds.TRIGGERS), frozenset(known.literals)
    every = known.literals + tuple(trigger for trigger in kinds.TRIGGERS if trigger not in literals)
    return every, frozenset(number for number, literal in enumerate(every) if literal in triggers)


_LOCAL = re.compile(r"(?:\) local_rank: |--local_rank=)(\d+)\b")  # of torchrun and DeepSpeed
# Of Ray: an address; of Slurm and others: a node.
_ADDRESS = re.compile(
    r"\b(?:(?:ip|IP)(?:=|: ?)|(?:failed|died|lost|error) on (?:node|host) )([\w-]{0,62}\d[\w.-]{0,190})\b"
)


def _hit(row: Pattern, match: re.Match[str], line: str, mark: prefix.Mark) -> Hit:
    groups = match.groupdict()

    def first(name: str) -> str:
        return next((value for key, value in groups.items() if value and key.rstrip("0123456789") == name), "")

    hit = Hit(row.id, row.role, row.cause, row.weight, line, mark)
    hit.peer = first("peer")
    if mark.many:
        return hit
    if host := first("host"):
        hit.host = host
    if gpu := first("gpu"):
        hit.gpu = pci(gpu) or gpu
    elif not hit.host and (address := _ADDRESS.search(line)):
        hit.host = address[1]
    if (pid := first("pid")).isdigit():
        hit.pid = whole(pid)
    if (local := first("local_rank")).isdigit():
        hit.local_rank = whole(local)
    if hit.local_rank is None and (local_of := _LOCAL.search(line)):
        hit.local_rank = whole(local_of[1])
    if (task := first("task")).isdigit() and hit.rank is None:
        hit.rank = whole(task)
    return hit


def _numbered(piece: bytes, line: int) -> list[tuple[int, str]]:
    text = piece.decode("utf-8", "replace")
    return [(line + index, prefix.plain(item[:LONGEST])) for index, item in enumerate(text.split("\n"))]


def _year(head: bytes, path: str) -> int:
    if match := re.search(rb"\b(20[0-4]\d)[-/][01]\d[-/][0-3]\d\b", head):
        return int(match[1])
    try:
        return time.gmtime(os.stat(path).st_mtime).tm_year if path != "-" else time.gmtime().tm_year
    except OSError:
        return time.gmtime().tm_year


def scan(paths: Iterable[str], *, fast: bool = True) -> Collector:
    """All files and folders in one collector."""
    collector = Collector(fast=fast)
    for path in expand(paths, collector.unread):
        collector.add(path)
    return collector


def expand(paths: Iterable[str], unread: list[str]) -> Iterator[str]:
    for path in paths:
        if path != "-" and os.path.isdir(path):
            below = read.files_below(path)
            if not below:
                unread.append(f"{path}: no files in this folder")
            yield from below
        else:
            yield path


__all__ = ["SYMPTOM", "Collector", "expand", "scan"]
