"""The driver's error lines in the kernel log: read, folded, and put together to incidents.

Pure and without tables: a healthy node has no such line and reads no table. One fault
prints many lines, on some drivers hundreds, so equal ones are folded to a count; what
follows within three minutes belongs to the same incident.

Expressions begin where the line begins: further in stands what users chose, such as the
name of a process or of a mount.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from hpslurm.core.text import clean
from hpslurm.core.values import dataclass, replace
from hpslurm.sources.kmsg import Record

XID, SXID = "xid", "sxid"
MARKS = (b"Xid (", b"SXid (", b"NVRM: GPU at PCI:")
SILENCE = 180.0  # seconds without a line that end an incident; NVIDIA's own rule
MOST_VARIANTS = 20  # of the message of one code on one GPU in one incident
MOST_INCIDENTS = 50  # the newest

_PCI = r"(?P<pci>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2})(?:\.[0-9A-Fa-f])?"
_XID = re.compile(
    rf"NVRM: Xid \((?:PCI:)?{_PCI}(?: GPU-I:(?P<gi>[0-9A-Fa-f]+))?(?: GPU-CI:[0-9A-Fa-f]+)?\): (?P<code>[0-9]{{1,6}})"
    r", (?:pid='?<?(?P<pid>[0-9]{1,10}|unknown)>?'?, )?(?:name=(?P<name>.*?), )?(?P<text>.*)"
)
_SXID = re.compile(
    rf"nvidia-nvswitch[0-9]+: SXid \(PCI:{_PCI}\): (?P<code>[0-9]{{5}}), (?:(?P<word>Fatal|Non-fatal), )?(?P<text>.*)"
)
_UUID = re.compile(rf"NVRM: GPU at PCI:{_PCI}: (?P<uuid>GPU-[0-9A-Fa-f-]{{36}})")
_MORE_OF_THE_SAME = ("Severity ", "Data {")  # lines that follow the first of an SXID
# Codes whose message decides what they mean, so that different messages are kept apart
_TELLING = {13, 31, 48, 63, 64, 74, 94, 95, *range(144, 151), 154}


@dataclass(frozen=True)
class Line:
    """Equal lines of one incident, folded. Times are seconds since the epoch."""

    kind: str  # xid or sxid
    code: int
    pci: str  # of the GPU or of the switch: 0000:9b:00
    first: float
    last: float
    count: int = 1
    pid: int | None = None
    name: str = ""
    word: str = ""  # Fatal or Non-fatal, as an SXID prints it
    text: str = ""


@dataclass(frozen=True)
class Incident:
    lines: tuple[Line, ...]  # in the order of their first appearance

    @property
    def first(self) -> float:
        return min(line.first for line in self.lines)

    @property
    def last(self) -> float:
        return max(line.last for line in self.lines)


def short(address: str) -> str:
    """The address with a domain of four digits, in lower case.

    >>> short("00000000:9B:00")
    '0000:9b:00'
    """
    domain, _, rest = address.lower().partition(":")
    return f"{int(domain, 16):04x}:{rest}"


def parse(record: Record) -> Line | None:
    """The line of an XID or SXID; None for any other, and for lines that continue one.

    >>> text = "NVRM: Xid (PCI:0000:9b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
    >>> line = parse(Record(0, 1.0, 1756720001.0, 3, text))
    >>> line.kind, line.code, line.pci, line.pid, line.text
    ('xid', 79, '0000:9b:00', None, 'GPU has fallen off the bus.')
    >>> text = "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 28 LTSSM Fault Up"
    >>> line = parse(Record(0, 1.0, 1756720001.0, 3, text))
    >>> line.kind, line.code, line.pci, line.word, line.text
    ('sxid', 20034, '0000:c1:00', 'Fatal', 'Link 28 LTSSM Fault Up')
    """
    match = _XID.match(record.text)
    kind = XID
    if not match:
        match, kind = _SXID.match(record.text), SXID
        if not match or match["text"].startswith(_MORE_OF_THE_SAME):
            return None
    got = match.groupdict()
    pid = got.get("pid") or ""
    return Line(
        kind,
        int(got["code"]),
        short(got["pci"]),
        record.time,
        record.time,
        pid=int(pid) if pid.isdigit() else None,
        name=clean(got.get("name") or "", 20),
        word=got.get("word") or "",
        text=clean(got["text"]),
    )


def uuids(records: Iterable[Record]) -> dict[str, str]:
    """Address to UUID, as the driver prints once before the first XID of a GPU."""
    uuid_of = {}
    for record in records:
        if match := _UUID.match(record.text):
            uuid_of[short(match["pci"])] = match["uuid"]
    return uuid_of


def incidents(lines: Iterable[Line]) -> tuple[Incident, ...]:
    """Lines in the order of time, cut where it was silent, folded, the newest incidents only."""
    groups: list[list[Line]] = []
    last = float("-inf")
    for line in lines:
        if line.first - last > SILENCE:
            groups.append([])
        groups[-1].append(line)
        last = line.first
    return tuple(Incident(tuple(_folded(group))) for group in groups[-MOST_INCIDENTS:])


def _folded(lines: Iterable[Line]) -> Iterator[Line]:
    folded: dict[tuple[object, ...], Line] = {}
    variants: dict[tuple[object, ...], int] = {}
    for line in lines:
        whose = (line.kind, line.code, line.pci)
        key: tuple[object, ...] = (*whose, line.text if line.code in _TELLING else line.word)
        if key not in folded and line.code in _TELLING:
            variants[whose] = variants.get(whose, 0) + 1
            if variants[whose] > MOST_VARIANTS:
                key = (*whose, None)
        old = folded.get(key)
        folded[key] = replace(old, count=old.count + 1, last=line.last) if old else line
    return iter(folded.values())
