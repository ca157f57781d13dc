"""Short outputs that people paste beside a log: fi_info, df, ulimit, ibstat, dcgmi nvlink."""

from __future__ import annotations

import re
from collections.abc import Iterator

from hpslurm.core import linear
from hpslurm.core.finding import Event
from hpslurm.core.text import whole
from hpslurm.scan.model import evidence

Lines = list[tuple[int, str]]  # line number, text
FULL = 98  # percent of a file system
LEAST_LOCKED = 1 << 20  # KiB of memory that a process must be able to lock
_NO_DATA = linear.compile(r"-61(?: \(No data available\))?$")  # some versions print the bare code
_DF = linear.compile(r"\S+\s+\S+\s+\S+\s+\S+\s+(\d+)%\s+(/\S*)\s*$")
_ALWAYS_FULL = linear.compile(r"/boot|/snap|loop|squashfs|/media|/run")
_LIMIT = linear.compile(
    r"(?:max locked memory\s+\((?:kbytes|kb), -l\)|Max locked memory|-l: locked memory \(kbytes\))\s+(\d+)\b"
)
_IBSTAT = linear.compile(r"Physical state|CA '|Port \d")
_IBSTAT_DOWN = linear.compile(r"\s*State:\s*Down\b")
_PORT_DOWN = linear.compile(r"\s*state:\s+PORT_DOWN|.*link mlx5_\d+/\d state DOWN")
_GPU_ID = linear.compile(r"\s*gpuId (\d+):\s*$")
_LINKS = linear.compile(r"\s*[UDX_](?: [UDX_])+\s*$")  # up, down, disabled, not supported
_OTHER_PROVIDER = linear.compile(r"^provider: (?!efa)", re.MULTILINE)


def events(path: str, lines: Lines, text: str) -> Iterator[Event]:
    yield from _no_data(path, lines)
    if "NvLink Link Status" in text:
        yield from _links(path, lines)
    ibstat = _IBSTAT.search(text) is not None
    for number, line in lines:
        if row := _row(line, ibstat):
            yield evidence(row, path, number, line.strip())
    if "fi_info -p efa" in text and _OTHER_PROVIDER.search(text) and "provider: efa" not in text:
        yield evidence("fi-info-other", path, 1, "fi_info -p efa lists no efa provider")


def _no_data(path: str, lines: Lines) -> Iterator[Event]:
    for number, line in lines:
        if _NO_DATA.match(line.strip()):
            yield evidence("fi-info-bare", path, number, line.strip())
            return


def _links(path: str, lines: Lines) -> Iterator[Event]:
    """``dcgmi nvlink --link-status``: a letter a link, below the GPU's number."""
    gpu = ""
    for number, line in lines:
        if match := _GPU_ID.match(line):
            gpu = match[1]
        elif gpu and _LINKS.match(line) and "D" in line:
            yield evidence("dcgmi-link-down", path, number, line.strip(), gpu=gpu)


def _row(line: str, ibstat: bool) -> str:
    """The row that a line stands for, or nothing."""
    if match := _DF.match(line):
        full = (whole(match[1]) or 0) >= FULL and not _ALWAYS_FULL.search(line)
        return "" if not full else "df-shm-full" if match[2].startswith("/dev/shm") else "df-full"
    if match := _LIMIT.match(line):
        limit = whole(match[1])
        unit = 1024 if line.startswith("Max") else 1  # /proc counts bytes, ulimit KiB
        return "ulimit-low" if limit is not None and limit < LEAST_LOCKED * unit else ""
    return "ib-port-down" if (ibstat and _IBSTAT_DOWN.match(line)) or _PORT_DOWN.match(line) else ""
