"""Reads what nccl-tests printed, in every form from 2.0 to 2.20, and the NCCL lines between.

Rank 0 prints one table; launchers put labels in front, other ranks print failures, and NCCL log lines
may cut a row in two. Columns are read by the names in the header row, because their number differs by
version and option. Nothing here judges: numbers that make no sense are kept as they stand.

Times are microseconds, bandwidths GB/s of 10^9 bytes, sizes bytes.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

from hpslurm.core import linear
from hpslurm.core.text import clean
from hpslurm.core.values import dataclass, field
from hpslurm.scan import nccl_rails
from hpslurm.scan.nccl_line import MOST_PREFIX, NUMBER, TYPES, bare, plain, size_of, unquoted

MOST_KEPT = 20  # lines of one kind that are kept as evidence
_WIDTHS = {"half": 2, "bfloat16": 2, "float": 4, "double": 8, "int": 4}  # bytes; of types not here, one
_WIDTHS |= {"int32": 4, "uint32": 4, "int64": 8, "uint64": 8}
ROUNDED_BY = 16  # bytes of each rank by which a collective that splits its buffer may print less than was asked for
SAME_AVERAGE = 0.01  # by which the mean of rounded figures may differ from the average that was printed
MOST_RANKS = 1 << 16  # where the list of devices does not say

# Where a run stopped, in the order of a run. Each value ends the sentence "it stopped ...".
BEFORE_START = "before nccl-tests printed anything (launcher, missing library, MPI start)"
BEFORE_DEVICES = "before a device was listed (CUDA start, or fewer GPUs than asked for)"
IN_INIT = "in NCCL's start, after the device list (bootstrap, network plugin)"
IN_WARMUP = "in the warm-up, before the first size was done: the first transfer between GPUs"
IN_SIZE = "while running a size"
IN_TEARDOWN = "after the last size, while ending"
DONE = "nowhere: it completed"


@dataclass(frozen=True)
class Half:
    """One side of a row, out of place or in place; ``wrong`` is None where nothing was checked."""

    time: float
    algbw: float
    busbw: float
    wrong: int | None = None


@dataclass(frozen=True)
class Row:
    """One size. ``line`` is where it stands in the input, from 1; 0 for JSON."""

    size: int
    count: int
    type: str
    out: Half | None = None
    inside: Half | None = None
    line: int = 0

    @property
    def halves(self) -> tuple[Half, ...]:
        return tuple(half for half in (self.out, self.inside) if half is not None)

    @property
    def wrong(self) -> int:
        return sum(half.wrong or 0 for half in self.halves)


@dataclass(frozen=True)
class Device:
    """One line of the device list: a rank and where it runs."""

    rank: int
    host: str
    pci: str = ""
    name: str = ""


@dataclass(frozen=True)
class Parameters:
    """The parameters that the run printed about itself."""

    threads: int
    gpus: int
    smallest: int  # bytes
    largest: int  # bytes
    step: int
    by_factor: bool
    iterations: int
    checked: bool

    def row_count(self, reduced: int | None = None) -> int | None:
        """How many rows a complete run has, none above ``reduced`` bytes; None where that cannot be told."""
        largest = self.largest if reduced is None else min(self.largest, reduced)
        if largest < self.smallest or self.step < 1 or self.smallest < 1:
            return None
        if not self.by_factor:
            return (largest - self.smallest) // self.step + 1
        rows, size = 1, self.smallest
        if self.step == 1:
            return 1
        while size * self.step <= largest:
            size *= self.step
            rows += 1
        return rows

    def index_of(self, size: int) -> int:
        """The number, from 0, of the smallest size asked for that is not below ``size``."""
        if not self.by_factor:
            return max(0, -(-(size - self.smallest) // self.step))
        index, asked = 0, self.smallest
        while asked < size and self.step > 1:
            index, asked = index + 1, asked * self.step
        return index

    def size_at(self, index: int) -> int:
        """Bytes of the size with this number."""
        return self.smallest * self.step**index if self.by_factor else self.smallest + self.step * index


@dataclass
class Table:
    """One run of one test, as far as it came."""

    test: str = ""
    version: str = ""
    nccl: str = ""  # version of the library, "2.27.7"
    parameters: Parameters | None = None
    copies: int = 0  # how often a process announced itself; above 1: several programs, not one
    devices: list[Device] = field(default_factory=list)
    cut: bool = False  # the device list was cut at 2048 characters, or by whoever wrote "..." there
    header: tuple[str, ...] = ()
    torn: int = 0  # lines that hold a piece of a row only
    shortened: bool = False  # whoever copied it left rows out, or the device list, and put dots there
    headless: bool = False  # its rows stand there without the header, whose columns were guessed by their number
    rows: list[Row] = field(default_factory=list)
    bounds: int | None = None
    bounds_ok: bool | None = None
    average: float | None = None
    average_ok: bool | None = None
    announced: bool = False  # it said that it begins, as versions do that also say that they end
    concluded: bool = False
    ended_as: str = ""
    reduced: int | None = None  # bytes
    errors: list[str] = field(default_factory=list)
    first_line: int = 0
    label: str = ""  # the launcher's, of the process that printed it

    @property
    def collective(self) -> str:
        return self.test.removesuffix("_perf")

    @property
    def hosts(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(device.host for device in self.devices))

    @property
    def elided(self) -> bool:
        """Ranks are left out of the device list: what it says is the least."""
        ranks = {device.rank for device in self.devices}
        return self.cut or (bool(ranks) and bool(self.first_line) and len(ranks) <= max(ranks))

    @property
    def sweeps(self) -> list[list[Row]]:
        """The rows, cut where the sizes begin again: the next type, operation or root, or the next cycle (-N)."""
        cut: list[list[Row]] = []
        for row in self.rows:
            if not cut or _begins_again(cut[-1], row):
                cut.append([])
            cut[-1].append(row)
        return cut

    @property
    def cpu_time(self) -> bool:
        return "cputime" in self.header

    @property
    def complete(self) -> bool:
        """Head and footer came, and a row for each size that was asked for."""
        return self.footed and self.parameters is not None and bool(self.rows) and not self.missing

    @property
    def footed(self) -> bool:
        """It counted its wrong values and came to its end; the average only repeats the rows."""
        return self.bounds is not None and (self.average is not None or self.concluded)

    @property
    def wanted(self) -> int | None:
        """Rows of a complete run, or None where that cannot be told."""
        rows = self.parameters.row_count(self.reduced) if self.parameters else None
        return None if rows is None else rows * max(1, len(self.sweeps))

    @property
    def missing(self) -> int:
        """Sizes that were to run and have no row; rows of other sizes do not stand for them."""
        return 0 if self.begins_later else self._missing

    @property
    def _missing(self) -> int:
        return sum(self._missing_of(sweep) for sweep in self.sweeps or [[]])

    @property
    def begins_later(self) -> bool:
        """Whether somebody copied the largest sizes only: more are left out, and the average is that of more rows."""
        wanted = self.parameters.row_count(self.reduced) if self.parameters else None
        if wanted is None or self.parameters is None or self.average is None or self.torn or not self.footed:
            return False
        there = [self.parameters.index_of(row.size) for row in self.rows]
        rates = [half.busbw for row in self.rows for half in row.halves]
        if not rates or 2 * len(there) >= wanted or there != list(range(wanted - len(there), wanted)):
            return False
        return abs(sum(rates) / len(rates) - self.average) > SAME_AVERAGE * abs(self.average)

    def _missing_of(self, sweep: list[Row]) -> int:
        wanted = self.parameters.row_count(self.reduced) if self.parameters else None
        if wanted is None or self.parameters is None:
            return 0
        listed = max((device.rank for device in self.devices), default=-1) + 1
        per = 1 if self.first_line else self.parameters.gpus * self.parameters.threads  # JSON lists processes
        ranks = MOST_RANKS if self.cut or not listed else max(listed, len(self.devices) * per)
        there, following = 0, 0
        for size in sorted(row.size for row in sweep):
            # rounding may print small sizes as the same number
            index = max(self.parameters.index_of(size), following)
            if index < wanted and 0 <= self.parameters.size_at(index) - size < ROUNDED_BY * ranks:
                there, following = there + 1, index + 1
        return wanted - there

    def phase(self) -> str:
        """Where it stopped."""
        if self.concluded or self.average is not None:
            return DONE
        if self.rows:
            return IN_TEARDOWN if self.parameters and not self.missing else IN_SIZE
        if self.header:
            return IN_WARMUP
        if self.devices:
            return IN_INIT
        return BEFORE_DEVICES


@dataclass
class NcclLog:
    """What NCCL and its network plugin said about the run."""

    version: str = ""
    plugin: str = ""
    networks: Counter[str] = field(default_factory=Counter)  # "AWS Libfabric", "Socket" ...
    nics: dict[str, int] = field(default_factory=dict)  # host -> devices that the plugin found
    providers: Counter[str] = field(default_factory=Counter)
    over_net: int = 0  # channels between nodes
    over_gdr: int = 0  # of them, with GPUDirect RDMA
    net_names: Counter[str] = field(default_factory=Counter)  # the NAME of "via NET/NAME/..."
    ranks: int | None = None
    hosts: set[str] = field(default_factory=set)  # that spoke
    no_plugin: str = ""  # the line that says so
    unreachable: str = ""  # the line with error 15
    mixed_nics: str = ""
    settings: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    rails: nccl_rails.Rails = field(default_factory=nccl_rails.Rails)

    @property
    def fabric(self) -> str:
        """``efa``, ``tcp``, ``other``, or empty where the log does not say."""
        names = [*self.networks, *self.net_names]
        if any("Libfabric" in name or "OFI" in name.upper() for name in names):
            return "tcp" if set(self.providers) and not any("efa" in provider for provider in self.providers) else "efa"
        if any(name.startswith("Socket") for name in names):
            return "tcp"
        return "other" if names else ""


@dataclass
class Output:
    """Everything that one file, or one step, printed."""

    source: str
    tables: list[Table] = field(default_factory=list)
    log: NcclLog = field(default_factory=NcclLog)
    failures: list[str] = field(default_factory=list)  # "Test NCCL failure", "Test CUDA failure" lines
    timeout: str = ""  # the line of -T
    too_few_gpus: str = ""
    usage: str = ""
    bad_argument: str = ""
    library: str = ""  # the loader's complaint
    pmi: str = ""  # launcher and MPI do not find each other
    no_pyxis: str = ""  # srun does not know the options for containers
    launcher: list[str] = field(default_factory=list)
    cancelled: str = ""
    orphans: int = 0  # rows without a header above them
    lines: int = 0
    bad_json: str = ""

    def excerpt(self, table: Table) -> bool:
        """Whether somebody copied only the rows under their names: nothing around them speaks against the run."""
        trouble = (*self.failures, *self.launcher, *table.errors, self.timeout, self.cancelled)
        around = table.parameters is not None or table.announced or table.headless
        return bool(table.rows) and not table.footed and not around and not any(trouble)

    def phase(self) -> str:
        """Where the last table stopped."""
        if self.tables:
            return self.tables[-1].phase()
        return IN_SIZE if self.orphans else BEFORE_START


# The labels of Open MPI, of srun, and of MPICH (``[0] ``), which NCCL's own "[0] NCCL INFO" is not.
_PREFIX = linear.compile(
    r"(?:\s*\[(?:[\w.-]+@)?(\d+),(\d+)\](?:\[[\w.:-]+\])?<std(?:out|err)>:\s?|\s*(\d{1,9}):\s"
    r"|\[(\d{1,9})\] ?(?=\s{0,40}(?:#|\.{2,12}$|\d{1,18}\s{1,40}\d)|.{1,200}(?:NCCL (?:INFO|WARN)|: Test )))"
)
_MPICH_INSIDE = linear.compile(r"(?:(?<=\s)|(?<=-1)|(?<=\d))\[\d{1,6}\](?: |(?=\s))")
# Whole numbers have bounds: no size needs more than 18 digits, and int() refuses some thousands of them.
_INSIDE = linear.compile(r"\[(?:[\w.-]+@)?\d+,(\d+)\](?:\[[\w.:-]+\])?<std(?:out|err)>:")
_VERSION = linear.compile(
    r"#?\s*nccl-tests version (\S+)(?: \([0-9a-f]+\))? nccl-headers=(\d{1,9}) nccl-library=(\d{1,9})"
)
_START = linear.compile(r"#?\s*Collective test starting: (\S+)")
_DONE = linear.compile(r"#?\s*Collective test concluded: ?(\S*)")
_ASKED = linear.compile(
    r"#?\s*(?:nThread (\d{1,9}) )?nGpus(?:\(\w+\))? (\d{1,9}) minBytes (\d{1,18}) maxBytes (\d{1,18})"
    r" step: (\d{1,18})\((factor|bytes)\)"
    r" warmup iters: \d+ iters: (\d{1,18})(?: agg iters: \d+)? validation: (\d{1,9})"
)
_DEVICE = linear.compile(
    r"#?\s*Rank\s+(\d{1,9})(?:\s+Group\s+\d+)?(?:\s+Pid\s+\d+)?\s+(?:on\s+(\S+)|uses)\s+device\s+\d+ "
    r"\[(?:0x)?([0-9a-fA-F:.]+)\] (.*\S)"
)
_PARAMETERS = linear.compile(r"#?\s*(?:nThread \d{1,9}|nGpus(?:\(\w+\))? \d)")
_RANK = linear.compile(r"#?\s*Rank\s+\d{1,9}\s+(?:Group|Pid|on|uses)\b")
_DEVICES = linear.compile(r"#?\s*Using devices")
_HEADER = linear.compile(r"#?\s*((?:[Ss]ize|bytes)(?:\s?\(B\))?\s.*(?:algbw|busbw|time)\b.*)$")
_UNIT = re.compile(r"\([\w/]{1,8}\)$")
TIMES = {"time": 1.0, "cputime": 1.0, "time_ms": 1000.0}  # microseconds of the column's unit
_NAMES = {"bytes": "size", "N": "count", "op": "redop", "res": "#wrong", "wrong": "#wrong"}  # of 2017, and lost signs
_OF_A_HEADER = frozenset(
    ("size", "count", "type", "redop", "root", *TIMES, "algbw", "busbw", "#wrong", "error", "timestamp")
) | {"i_min", "i_max", "i_p99", "i_cv%"}
_BOUNDS = linear.compile(r"#?\s*Out of bounds values\s*:\s*(\d{1,18})\s+(OK|FAILED)")
_AVERAGE = linear.compile(r"#?\s*Avg bus bandwidth\s*:\s*(\S+)(?:\s+(OK|FAILED))?\s*$")
_REDUCED = linear.compile(r"#?\s*Reducing maxBytes to (\d{1,18}) due to memory limitation")
_ERROR = linear.compile(r"#\s*error: (.*\S)")
_FAILURE = linear.compile(r"(?:\S+: )?Test (?:NCCL|CUDA) failure \S+:\d+ '.*")
# How a failure is handed up, call by call: the line before them says what it was, if it was kept.
_HANDED_UP = linear.compile(r"(?:\S+ pid \d+: )?Test failure \S+\.cu:\d+")
_TIMEOUT = linear.compile(r"(\S+): Test timeout \(\d+s\) \S+:\d+")
_TOO_FEW = linear.compile(r"Invalid number of GPUs: \d+ requested but only \d+ were found")
_USAGE = linear.compile(r"(?:invalid option '|USAGE: \S+_perf\b|\S*_perf: (?:invalid|unrecognized) option)")
_ARGUMENT = linear.compile(r"invalid sizes? (?:specified )?for '")
_LIBRARY = linear.compile(r".*error while loading shared libraries: .*|.*symbol lookup error: .*")
_PMI = linear.compile(
    r".*can not load PMIx library|.*Couldn't load specified plugin name for mpi/|.*Invalid MPI type '|"
    r'The application appears to have been direct launched using "srun"|.*OMPI was not built with SLURM|'
    r".*No PMIx server was reachable, but a PMI1/2 was detected"  # Open MPI 5, whose ranks then run each for itself
)
_NO_PYXIS = linear.compile(r"\S*srun: unrecognized option '--(?:no-)?container-")
_CANCELLED = linear.compile(
    r".*(?:\*\*\* (?:JOB|STEP) .* CANCELLED AT .*|DUE TO TIME LIMIT.*|oom-kill event|Job step aborted).*"
)
_LAUNCHER = linear.compile(
    r"(?:srun|slurmstepd\S*|mpirun|prterun|mpiexec): |.*(?:Segmentation fault|Bus error|signal 9|Killed\s*$)|"
    r"Primary job  terminated|.*mpirun noticed that process"
)
# "host:pid:tid [0] NCCL INFO ..." or, newer, "[2026-03-13 22:26:02] host:pid:tid [5] file.cc:262 NCCL WARN ..."
_NCCL = linear.compile(
    r"(?:\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\] )?(?P<host>[^\s:\[]+):\d+(?::\d+)? \[-?\d+\] "
    r"(?:\S+:\d+ )?NCCL (?P<level>INFO|WARN|TRACE|VERSION|ABORT|CALL|CORE)\b ?(?P<text>.*)"
)
_NCCL_VERSION = linear.compile(r"NCCL version (\d+\.\d+\.\d+)")
_NUMBER = linear.compile(r"[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|nan|inf|-nan)|N/A", re.IGNORECASE)
_DIGIT = re.compile(r"\d")
_ROOT = linear.compile(r"-1(?=[A-Za-z])")  # no host begins so
_OPERATIONS = frozenset(("sum", "prod", "max", "min", "avg", "mulsum", "none"))
MOST_WORDS = 13  # of a row without a header
# The first piece of a row: all that stands before a line of NCCL that cut it.
_BEGUN = linear.compile(r"\s*\d{1,18}(?:\s+(?:\d{1,18}(?:\s+(?:[a-z][a-z0-9_]*(?:\s.*)?)?)?)?)?")
_ROW = linear.compile(rf"\s*({NUMBER})\s+({NUMBER})\s+([a-z][a-z0-9_]*)\b")
_ELIDED = linear.compile(r"\.\.\.|…|\bsnip|truncated|omitted|more (?:ranks|lines|devices)")
_DOTS = linear.compile(
    r"[\s#>\[(<-]{0,20}(?:\.{1,12}|(?:\. ){2,6}\.?|[…⋮:]|snip\w{0,4}|omitted|truncated)[\s\])>-]{0,20}"
)

# Columns of a row whose header is not there, by the number of its words.
_COLUMNS = {
    13: ("size", "count", "type", "redop", "root", *("time", "algbw", "busbw", "#wrong") * 2),
    12: ("size", "count", "type", "redop", *("time", "algbw", "busbw", "error") * 2),
    11: ("size", "count", "type", *("time", "algbw", "busbw", "error") * 2),
    9: ("size", "count", "type", "redop", "root", "time", "algbw", "busbw", "#wrong"),
    8: ("size", "count", "type", "redop", "time", "algbw", "busbw", "error"),
}
MOST_ERROR = 0.01  # in the error column of versions before 2.12


FEW_NUMBERED = 5  # lines
_LINE_NUMBER = re.compile(r"^ {0,8}(\d{1,9})[:-]", re.MULTILINE)


def read(lines: Iterable[str], source: str = "output") -> Output:
    """Parse lines of text; never raises for what they hold."""
    return Reader(source).feed_all(lines)


def read_text(text: str, source: str = "output") -> Output:
    """Text or the JSON of ``-J``, told apart by the first character."""
    if text.lstrip()[:1] == "{":
        return read_json(text, source)
    numbers = [int(number) for number in _LINE_NUMBER.findall(text)] if _LINE_NUMBER.match(text) else []
    if len(numbers) >= FEW_NUMBERED and all(
        before < after for before, after in pairwise(numbers)
    ):  # grep -n, no srun -l
        text = _LINE_NUMBER.sub("", text)
    return read(text.splitlines(), source)


class Reader:
    """Lines in, one Output. ``feed`` may be called as they arrive; ``output`` is always current."""

    def __init__(self, source: str) -> None:
        self.output = Output(source)
        self._streams: dict[str, _Stream] = {}
        self._last: _Stream | None = None

    def feed_all(self, lines: Iterable[str]) -> Output:
        for line in lines:
            self.feed(line)
        return self.output

    def feed(self, line: str) -> Row | None:
        """Take one line; returns the row that it completed, if any."""
        self.output.lines += 1
        row = None
        for label, text in by_label(plain(line.rstrip("\r\n").replace("\0", ""))):
            stream = self._streams.get(label)
            if not label and self._last is not None and self._last.half:  # the rest of a wrapped line has no label
                stream = self._last
            if stream is None:
                stream = self._streams[label] = _Stream(self.output, label)
            row = stream.take(text, self.output.lines) or row
            self._last = stream
        return row


def unlabelled(line: str) -> tuple[str, str]:
    """The label that srun or mpirun put in front, and the line without it."""
    match = _PREFIX.match(line)
    if match is None:
        return "", line
    return match.group(2) or match.group(3) or match.group(4), line[match.end() :]


def _is_piece(text: str) -> bool:
    """Whether a line looks like most of a row: numbers, and little else."""
    words = text[:8192].split()
    return len(words) >= 6 and sum(bool(_NUMBER.fullmatch(word)) for word in words) >= len(words) - 3


def _is_rest(text: str) -> bool:
    """Whether a line holds numbers, types and operations only: the middle of a row."""
    return all(_NUMBER.fullmatch(word) or word in TYPES or word in _OPERATIONS for word in text[:1024].split())


def _begins_again(sweep: list[Row], row: Row) -> bool:
    """The smallest size behind the largest begins another sweep; so does another type at no larger size."""
    first, last = sweep[0], sweep[-1]
    if row.type != last.type:
        return row.size <= last.size
    return row.size == first.size and (row.size < last.size or (len(sweep) == 1 and row.size > 0))


def by_label(line: str) -> Iterator[tuple[str, str]]:
    """The parts of a line by the process that wrote them.

    Open MPI puts its tag before each piece that it reads, wherever that begins: behind a row, before its newline.
    """
    label, text = unlabelled(line)
    if "]<std" not in text:
        yield label, text
        return
    end = 0
    joined = ""
    for match in _INSIDE.finditer(text):
        joined += text[end : match.start()]
        end = match.end()
        if match.group(1) != label:
            yield label, joined
            label, joined = match.group(1), ""
    yield label, joined + text[end:]


class _Stream:
    """The lines of one process; without labels, of all of them."""

    def __init__(self, output: Output, label: str) -> None:
        self.output = output
        self.label = label
        self.table: Table | None = None
        self.label_shape = ""  # what stands before nccl-tests' own lines, with 0 for each digit
        self.half = ""  # the beginning of one of nccl-tests' lines, which NCCL or the edge of a screen cut

    def take(self, text: str, number: int) -> Row | None:
        match = _NCCL.search(text)
        if match is not None:
            start, host = self._start_of(match)
            read_nccl(host, match.group("level"), match.group("text"), self.output.log)
            if not (head := text[:start]).strip():
                return None
            text = head
        if "NCCL version" in text and (version := _NCCL_VERSION.search(text)):
            self.output.log.version = version.group(1)
        text = self._unlabelled(text)
        if "Test " in text and (failure := _FAILURE.search(text)) is not None:  # it may cut a row
            self._trouble(text[failure.start() :])
            text = text[: failure.start()]
            if not text.strip():
                return None
        half, self.half = self.half, ""
        if half and text.strip():
            for joined in (half + text, f"{half} {text}"):  # cut in a word, or between two without the blank
                if (row := self._row(joined, number)) is not None or self._joined(half, joined, number):
                    return row
            more = match is not None or (_is_rest(text) and not _ROW.match(text))
            if more and _BEGUN.fullmatch(half + text):  # cut once more
                self.half = half + text
                return None
            if match is not None and not text.strip():
                self.half = half
        elif half:
            self.half = half
        if match is not None and _BEGUN.fullmatch(text) and not _ROW.match(text):
            self.half = text
        elif not _ROW.match(text):
            if self._shortened_rows() and (row := self._row(text, number)) is not None:
                return row
            self._line(text, number)
        elif (row := self._row(text, number)) is not None:
            return row
        elif len(text.split()) < self._columns():  # the rest of the row comes after NCCL's line, or on the next
            self.half = text
        return None

    def _unlabelled(self, text: str) -> str:
        """The line without the label or time stamp that nccl-tests' own lines have in front, if it has one as long."""
        mine = bare(text)
        if mine != text:
            self.label_shape = _DIGIT.sub("0", text[: max(0, text.find(mine[:12]))].rstrip("# \t"))
            return mine
        length = len(self.label_shape)
        if not length or _DIGIT.sub("0", text[:length]) != self.label_shape:
            return text
        return unquoted(text[length:]) if self.label_shape[-1] in "\"'" else text[length:]

    def _columns(self) -> int:
        """Words of a row of this table; the most that any has where there is no header."""
        return len(self.table.header) if self.table is not None and self.table.header else MOST_WORDS

    def _shortened_rows(self) -> bool:
        """Whether whoever copied the table left columns out, the type among them."""
        return self.table is not None and bool(self.table.header) and "type" not in self.table.header

    def _joined(self, half: str, text: str, number: int) -> bool:
        """Whether two pieces are a line of the head: that of the columns, of the parameters, or of a device."""
        if _HEADER.match(half):
            header = _names_of(text)
            if self.table is None or self.table.rows or not set(header) <= _OF_A_HEADER:
                return False
            self.table.header = header
            self.half = text if _is_half(header) else ""
            return True
        if _ASKED.match(text) or _DEVICE.match(text):
            self._line(text, number)
            return True
        if "Test " in text and (failure := _FAILURE.search(text)) is not None:
            self._trouble(text[failure.start() :])
            return True
        return False

    def _start_of(self, match: re.Match[str]) -> tuple[int, str]:
        """Where NCCL's line begins: right behind a number, the number looks like part of the host name."""
        start, host = match.start(), match.group("host")
        if self.table is not None and match.start("host") == start:
            for known in self.table.hosts:
                if host != known and host.endswith(known):
                    return start + len(host) - len(known), known
        if (root := _ROOT.match(host)) is not None and _BEGUN.fullmatch(match.string[: start + root.end()]):
            return start + root.end(), host[root.end() :]
        return start, host

    def _row(self, text: str, number: int) -> Row | None:
        words = (_MPICH_INSIDE.sub(" ", text) if "[" in text else text).split()
        names = self.table.header if self.table is not None else ()
        if not names or "type" in names:
            if len(words) < 3 or words[2] not in TYPES:
                return None
        elif len(words) < len(names) or size_of(words[0]) is None:
            return None
        if self.table is None or not names:
            self.output.orphans += 1
            if (columns := _COLUMNS.get(len(words))) is None or row_of(words, columns, number) is None:
                return None
            table = self._current(number)
            table.header, table.headless = columns, True
        assert self.table is not None
        row = row_of(words, self.table.header, number)
        if row is None or not fits(row):
            return None
        self.table.rows.append(row)
        return row

    def _line(self, text: str, number: int) -> None:
        if (match := _VERSION.match(text)) is not None:
            table = self._announced("version", number)
            table.version = match.group(1)
            table.nccl = library_version(int(match.group(3)))
        elif (match := _START.match(text)) is not None:
            table = self._announced("test", number)
            table.test, table.announced = match.group(1), True
        elif (match := _ASKED.match(text)) is not None:
            table = self._announced("parameters", number)
            threads, gpus, low, high, step = (int(match.group(i) or 1) for i in range(1, 6))
            table.parameters = Parameters(
                threads, gpus, low, high, step, match[6] == "factor", int(match[7]), match.group(8) != "0"
            )
        elif _DEVICES.match(text):
            self._current(number)
        elif (match := _DEVICE.match(text)) is not None:
            table = self._current(number)
            table.devices.append(Device(int(match.group(1)), match.group(2) or "", match.group(3), match.group(4)))
            if match.group(1) == "0" and sum(device.rank == 0 for device in table.devices) > table.copies:
                table.copies += 1
        elif (match := _HEADER.match(text)) is not None and _is_header(_names_of(match.group(1))):
            self._header(_names_of(match.group(1)), number)
            self.half = text if self.table is not None and _is_half(self.table.header) else ""
        elif _PARAMETERS.match(text) or _RANK.match(text):
            self.half = text
        elif self.table is not None and self._footer(self.table, text):
            return
        elif self.table is not None and self.table.header and _is_piece(text):
            self.table.torn += 1
        else:
            self._trouble(text.lstrip())

    def _footer(self, table: Table, text: str) -> bool:
        if (match := _BOUNDS.match(text)) is not None:
            table.bounds, table.bounds_ok = int(match.group(1)), match.group(2) == "OK"
        elif (match := _AVERAGE.match(text)) is not None:
            if table.average is not None:  # another program that ran at the same time ends, too
                table.copies = max(1, table.copies) + 1
            table.average = number_of(match.group(1))
            table.average_ok = None if match.group(2) is None else match.group(2) == "OK"
        elif (match := _DONE.match(text)) is not None:
            table.concluded = True
            table.ended_as = match.group(1)
            table.test = table.test or match.group(1)
        elif (match := _REDUCED.match(text)) is not None:
            table.reduced = int(match.group(1))
        elif (match := _ERROR.match(text)) is not None:
            table.errors.append(clean(match.group(1)))
        elif (table.rows or not table.devices) and _DOTS.fullmatch(text):
            table.shortened = True
        elif table.devices and not table.header and (_ELIDED.search(text, 0, MOST_PREFIX) or _DOTS.fullmatch(text)):
            table.cut = True
        else:
            return False
        return True

    def _trouble(self, text: str) -> None:
        output = self.output
        if _FAILURE.match(text):
            _keep(output.failures, text)
        elif not output.failures and (failure := _HANDED_UP.search(text)) is not None:
            _keep(output.failures, failure.group())
        elif _TIMEOUT.match(text):
            output.timeout = output.timeout or clean(text)
        elif _TOO_FEW.match(text):
            output.too_few_gpus = output.too_few_gpus or clean(text)
        elif _USAGE.match(text):
            output.usage = output.usage or clean(text)
        elif _ARGUMENT.match(text):
            output.bad_argument = output.bad_argument or clean(text)
        elif _LIBRARY.match(text):
            output.library = output.library or clean(text)
        elif _NO_PYXIS.match(text):
            output.no_pyxis = output.no_pyxis or clean(text)
        elif _PMI.match(text):
            output.pmi = output.pmi or clean(text)
        elif _CANCELLED.match(text):
            output.cancelled = output.cancelled or clean(text)
        elif _LAUNCHER.match(text):
            _keep(output.launcher, text)

    def _header(self, names: tuple[str, ...], number: int) -> None:
        table = self._current(number)
        if table.header:  # a second table without the lines above it, or a second program beside this one
            table = self._new(number)
        table.header = names

    def _current(self, number: int) -> Table:
        if self.table is None or self.table.concluded:
            return self._new(number)
        return self.table

    def _announced(self, what: str, number: int) -> Table:
        """The table that this line of a head belongs to; a line that it has already starts another."""
        table = self._current(number)
        if table.header or table.average is not None:
            table = self._new(number)
        elif getattr(table, what):  # a second program that speaks at the same time
            table.copies += what == "parameters"
            return table
        table.copies += what == "parameters"
        return table

    def _new(self, number: int) -> Table:
        self.table = Table(first_line=number, label=self.label)
        self.output.tables.append(self.table)
        return self.table


def _keep(lines: list[str], text: str) -> None:
    if len(lines) < MOST_KEPT:
        lines.append(clean(text))


def _names_of(text: str) -> tuple[str, ...]:
    """The names of the columns, today's for those of 2017."""
    words = [_UNIT.sub("", word) or word for word in text.lstrip("# ").split()]
    names = [_NAMES.get(word, word.lower()) for word in words if not word.startswith("(")]
    return tuple("time_ms" if name == "time" and "N" in words else name for name in names)


def _is_header(names: tuple[str, ...]) -> bool:
    """Whether they are a table's, and no sentence: all known, or those that every version begins with."""
    return names[:3] == ("size", "count", "type") or (len(names) > 2 and set(names) <= _OF_A_HEADER)


def _is_half(header: tuple[str, ...]) -> bool:
    """Whether the line of the columns may go on: in place is missing, or the last name of it."""
    return header.count("busbw") < 2 or header[-1] == "busbw" or not set(header) <= _OF_A_HEADER


def row_of(words: list[str], header: tuple[str, ...], line: int = 0) -> Row | None:
    """A row by the names of its columns, or None when the number of words differs or one is no number."""
    names = [name for name in header if name != "timestamp"]
    stamps = 2 * (len(header) - len(names))  # a date and a time under one name
    if len(words) not in (len(names), len(names) + stamps):
        return None
    starts = [i for i, name in enumerate(names) if name in TIMES]
    if not starts:
        return None
    values = dict(enumerate(words))
    ends = [*starts[1:], len(names)]
    halves: list[Half] = []
    for start, end in zip(starts, ends, strict=True):
        part = {names[i]: values[i] for i in range(start, end)}
        if not all(_NUMBER.fullmatch(word) for word in part.values()) or number_of(values[start]) < 0:
            return None  # no time is negative: that is the root's column, and the row is cut at its end
        halves.append(
            Half(
                number_of(values[start]) * TIMES[names[start]],
                number_of(part.get("algbw", "nan")),
                number_of(part.get("busbw", "nan")),
                wrong_of(part.get("#wrong") or part.get("error") or "N/A"),
            )
        )
    size = size_of(words[0])
    count = size_of(words[names.index("count")]) if "count" in names else 0
    if size is None or count is None:
        return None
    kind = words[names.index("type")] if "type" in names else ""
    return Row(size, count, kind, halves[0], halves[1] if len(halves) > 1 else None, line)


def fits(row: Row) -> bool:
    """Whether size and count belong together: one of them may be the end of a number that was cut.

    The size is that of the count, or, where each rank has its part, a multiple of it.
    """
    part = row.count * _WIDTHS.get(row.type, 1)
    if not row.type:
        return True
    return row.size >= part and (row.size % part == 0 if part else row.size == 0)


def number_of(word: object) -> float:
    """A number as it stands; not-a-number for anything else."""
    try:
        return float(str(word))
    except ValueError:
        return math.nan


def wrong_of(word: object) -> int | None:
    """The count of wrong elements; None where nothing was checked.

    Old versions print the largest error instead, as in 4e-07: 1 where it is larger than that of any type may be.
    """
    value = number_of(word)
    if not math.isfinite(value):
        return None
    return int(value) if re.fullmatch(r"-?\d{1,18}", str(word)) else int(value > MOST_ERROR)


def library_version(code: int) -> str:
    """23102 is 2.31.2; up to 2.8 the numbers were 1000, 100, 1."""
    if code >= 10000:
        return f"{code // 10000}.{code % 10000 // 100}.{code % 100}"
    return f"{code // 1000}.{code % 1000 // 100}.{code % 100}"


# NCCL's own lines

_NETWORK = linear.compile(r"Using network (.+?)\s*$")
_VIA = linear.compile(r"Channel .* via NET/([^/\s]+(?: Libfabric)?)/?(\S*)")
_NICS = linear.compile(r"Selected [Pp]rovider is ([^,( ]+).*?(?:\(found (\d{1,9}) nics\))?\s*$")
_PLUGIN = linear.compile(r"(?:Initializing|Using) aws-ofi-nccl (\S+)")
_NRANKS = linear.compile(r"\brank \d+ n[rR]anks (\d{1,9})\b")
_SETTING = linear.compile(r"\b(NCCL_[A-Z0-9_]+) set by environment to (.*?)\.?\s*$")
_NO_PLUGIN = linear.compile(
    r"No eligible providers were found|No plugin found|Failed to initialize (?:any )?NET plugin|"
    r"aws-ofi-nccl initialization failed"
)
# Error 15 of EFA's provider. A path or a count that holds "RC" and 15 is none.
_UNREACHABLE = linear.compile(
    r"(?:completed with error|\bRC: ?-?\d{1,9}).{0,80}?\b(?:RC|[Ee]rror|errno|prov_errno|err): ?15\b|\bRC: ?15\b"
    r"|[Uu]nreachable remote|Unresponsive receiver"
)


def read_nccl(host: str, level: str, text: str, log: NcclLog) -> None:
    """Take what one NCCL line tells about the network."""
    nccl_rails.read(host, text, log.rails)
    log.hosts.add(host)
    if level == "WARN":
        _keep(log.warnings, f"{host}: {text}")
    if (match := _NETWORK.search(text)) is not None:
        log.networks[match.group(1)] += 1
    elif (match := _VIA.search(text)) is not None:
        log.over_net += 1
        log.over_gdr += "GDRDMA" in match.group(2)
        log.net_names[match.group(1)] += 1
    elif (match := _NICS.search(text)) is not None:
        log.providers[match.group(1).strip()] += 1
        if match.group(2):
            log.nics[host] = int(match.group(2))
    elif (match := _PLUGIN.search(text)) is not None:
        log.plugin = match.group(1)
    elif "Detected mixed local Net device counts" in text:
        log.mixed_nics = clean(text)
    elif _NO_PLUGIN.search(text):
        log.no_plugin = log.no_plugin or clean(text)
    elif (match := _SETTING.search(text)) is not None:
        log.settings[match.group(1)] = clean(match.group(2), 80)
    if _UNREACHABLE.search(text):
        log.unreachable = log.unreachable or clean(text)
    if (match := _NRANKS.search(text)) is not None:
        log.ranks = max(log.ranks or 0, int(match.group(1)))
    if (match := _NCCL_VERSION.search(text)) is not None:
        log.version = match.group(1)


def read_nccl_lines(lines: Iterable[str], log: NcclLog) -> None:
    """A file of NCCL_DEBUG_FILE. A last line without its end was cut off and may say something else than it did."""
    ended = False
    for line in lines:
        if ended and not line.endswith("\n"):
            continue
        ended = line.endswith("\n")
        text = unlabelled(line)[1]
        if (match := _NCCL.search(text)) is not None:
            read_nccl(match.group("host"), match.group("level"), match.group("text"), log)
        elif (version := _NCCL_VERSION.search(text)) is not None:
            log.version = version.group(1)


# JSON of -J


def read_json(text: str, source: str = "output") -> Output:
    """The file of ``-J``. The environment in it, which may hold secrets, is dropped at once."""
    output = Output(source)
    try:
        data = json.loads(text, object_pairs_hook=_without_environment)
    except (ValueError, RecursionError) as error:
        output.bad_json = (
            f"not valid JSON ({clean(str(error), 120)}): up to nccl-tests 2.18.4 a failing run leaves it so"
        )
        return output
    if not isinstance(data, dict) or not {"config", "results", "nccl_version", "args"} & set(data):
        output.bad_json = "JSON, but not what nccl-tests writes with -J (no config, results or nccl_version)"
        return output
    output.tables.append(_json_table(data))
    return output


def _without_environment(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    return {key: value for key, value in pairs if key != "env"}


def _json_table(data: dict[str, Any]) -> Table:
    config = _dict(data.get("config"))
    table = Table(copies=1, announced=True, concluded=bool(data.get("end_time")))
    arguments = data.get("args")
    if isinstance(arguments, list) and arguments:
        table.test = clean(str(arguments[0]).rsplit("/", 1)[-1], 60)
    if isinstance(data.get("nccl_version"), int):
        table.nccl = library_version(data["nccl_version"])
    if config:
        factor = _whole(config.get("step_factor"))
        table.parameters = Parameters(
            _whole(config.get("nthreads")),
            _whole(config.get("ngpus")),
            _whole(config.get("minimum_bytes")),
            _whole(config.get("maximum_bytes")),
            factor or _whole(config.get("step_bytes")),
            factor > 0,
            _whole(config.get("iterations")),
            str(config.get("validation")) not in ("0", "false"),
        )
    for device in _dicts(config.get("devices")):
        host, name = clean(str(device.get("hostname", "")), 80), clean(str(device.get("device_info", "")), 80)
        table.devices.append(Device(_whole(device.get("rank")), host, "", name))
    table.header = ("json",)
    for result in _dicts(data.get("results")):
        if any("cpu_time" in _dict(result.get(key)) for key in ("out_of_place", "in_place")):
            table.header = ("json", "cputime")
        out, inside = (_json_half(result.get(key)) for key in ("out_of_place", "in_place"))
        kind = clean(str(result.get("type", "")), 20)
        table.rows.append(Row(_whole(result.get("size")), _whole(result.get("count")), kind, out, inside))
    bounds = _dict(data.get("out_of_bounds"))
    if bounds:
        table.bounds = _whole(bounds.get("count"))
        table.bounds_ok = str(bounds.get("okay")).lower() == "true"
    average = _dict(data.get("average_bus_bandwidth") or data.get("average_bus_bandwidith"))
    if average:
        table.average = number_of(average.get("bandwidth", average.get("bandwidith")))
        okay = str(average.get("okay")).lower()
        table.average_ok = None if okay == "unchecked" else okay == "true"
    errors = data.get("errors")
    table.errors = [clean(str(error)) for error in errors if error] if isinstance(errors, list) else []
    return table


def _json_half(value: Any) -> Half | None:
    if not isinstance(value, dict):
        return None
    time = value.get("time", value.get("cpu_time", "nan"))
    return Half(
        number_of(time),
        number_of(value.get("alg_bw")),
        number_of(value.get("bus_bw", value.get("bus_bandwidth"))),
        wrong_of(value.get("nwrong", "N/A")),
    )


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _dicts(value: Any) -> Iterator[dict[str, Any]]:
    return (item for item in value if isinstance(item, dict)) if isinstance(value, list) else iter(())


def _whole(value: Any) -> int:
    number = number_of(value)
    return int(number) if math.isfinite(number) else 0
