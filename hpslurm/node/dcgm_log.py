"""DCGM's own log files: what its tests and watches found wrong with a GPU in the last day.

A failed test of ``dcgmi diag`` is shown once, to whoever ran it; the log keeps it. Lines on software, on tests that
were skipped and on DCGM itself are none. During a job only its own time counts.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

from hpslurm.core import suggest
from hpslurm.core.finding import LOOK, P1, Evidence, Finding, Rule, Suggestion
from hpslurm.core.policy import Policy
from hpslurm.core.probe import Skip, Unknown
from hpslurm.core.text import clean, whole
from hpslurm.core.values import dataclass
from hpslurm.sources.host import Host

FAILED = Rule("dcgm-failed", P1, "DCGM found a GPU faulty", "debugging-guide.md § 21")
FILES = ("/var/log/nvidia-dcgm/*.log", "/var/log/nv-hostengine.log", "/var/log/nvvs.log")
END = 1 << 20  # bytes of each file, its newest
RECENT = 24 * 3600.0  # seconds
MOST = 50  # lines, the newest
GPU_GROUP = "1"  # of DCGM's kinds of entities
# plog's form, in local time: 2026-11-30 12:34:56.789 ERROR [1234:1240] TEXT [FILE:LINE] [FUNCTION]
_LINE = re.compile(
    r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)\.\d{3} (?:FATAL|ERROR|WARN) {1,3}\[\d{1,10}:\d{1,10}\] ([^\n]{1,600}?)"
    r"(?: \[[^\]\n]{1,200}\]){0,2} ?$",
    re.MULTILINE,
)
_TEST = re.compile(r"Test ([\w-]{1,40}): ")
_ENTITY = re.compile(r" \(grpId:(\d{1,3}), entityId:(\d{1,5})\)")
_GPU = re.compile(r"\bGPU (\d{1,3})\b")
# Words of DCGM's messages on hardware; tests/node/test_dcgm_log.py holds them to those that scan reads.
FAULT = re.compile(
    r"volatile double-bit ECC error|retired pages? ha(?:s|ve) been detected|corrupt InfoROM"
    r"|SRAM Threshold Count exceeded|\d faulty memory elements|PCIe replays per minute|\d NaN-value memory elements"
    r"|NvLink (?:link|port) \d+ is "
    r"|NvLinks are up out of|memory errors and|exceeded uncorrectable row remap limit|in a peer-to-peer test"
    r"|host-side PCIe replay violation|GPU had an? (?:un)?contained error|miscompare failure in the L1 cache"
    r"|for GPU \d+ which is below the threshold|fatal errors on NvSwitch|Detected fatal NvSwitch SXID"
    r"|NVSwitch \d+'s NvLink \d+ is down|has fallen off the bus"
)


@dataclass(frozen=True)
class Line:
    time: float  # seconds since the epoch
    text: str
    gpu: str  # DCGM's number, which is NVML's where all GPUs are seen; empty where none is named
    test: str


@dataclass(frozen=True)
class Facts:
    lines: tuple[Line, ...]  # oldest first
    total: int
    path: str  # of the newest line


def lines_of(text: str) -> Iterator[Line]:
    """What DCGM found wrong with hardware, by the lines of one of its logs.

    >>> said = "2026-11-30 12:34:56.789 WARN  [12:14] Test memory: Found 12 faulty memory elements on GPU 3"
    >>> [(line.gpu, line.test) for line in lines_of(f"{said} (grpId:1, entityId:3) [PluginTest.cpp:181] [AddError]\\n")]
    [('3', 'memory')]
    """
    for match in _LINE.finditer(text):
        said = match[2]
        if not FAULT.search(said):
            continue
        try:
            when = time.mktime(time.strptime(match[1], "%Y-%m-%d %H:%M:%S"))
        except (ValueError, OverflowError):
            continue
        entity, gpu, test = _ENTITY.search(said), _GPU.search(said), _TEST.search(said)
        number = entity[2] if entity and entity[1] == GPU_GROUP else gpu[1] if gpu else ""
        yield Line(when, clean(said, 160), number, test[1] if test else "")


def collect(host: Host) -> Facts:
    paths = [path for pattern in FILES for path in host.glob(pattern)]
    if not paths:
        raise Skip("no log of DCGM on this machine")
    lines, refused = [], ""
    for path in paths:
        try:
            lines += [(line, path) for line in lines_of(host.read_end(path, END))]
        except OSError as error:
            refused = f"{path}: {error.strerror}"
    if refused and not lines:
        raise Unknown(f"{refused}; root may read it")
    start = _since(host, [line.time for line, _ in lines])
    recent = sorted(((line, path) for line, path in lines if line.time >= start), key=lambda seen: seen[0].time)
    return Facts(tuple(line for line, _ in recent[-MOST:]), len(recent), recent[-1][1] if recent else "")


def _since(host: Host, times: list[float]) -> float:
    """From when on a line counts; a saved machine's now is that of its newest line."""
    began = whole(host.env.get("SLURM_JOB_START_TIME", ""))
    if began is not None:
        return began
    return (max(times, default=0.0) if host.root else time.time()) - RECENT


def judge(facts: Facts, policy: Policy) -> Iterator[Finding]:
    if not facts.lines:
        return
    gpus = sorted({line.gpu for line in facts.lines if line.gpu}, key=int)
    named = f"GPU {', '.join(gpus)}: " if gpus else ""
    yield FAILED.found(
        f"{named}{facts.total} lines in {facts.path}, newest: {facts.lines[-1].text}",
        evidence=[
            Evidence(f"DCGM's log {time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime(line.time))}", line.text)
            for line in facts.lines[-8:]
        ],
        suggest=[
            Suggestion(LOOK, "see what the driver said of that time", "clush -w {nodes} 'sudo dmesg -T | tail -n 200'"),
            suggest.save_evidence(),
            suggest.drain(FAILED.id),
            suggest.reboot("where it was memory: the repair takes place then"),
            suggest.replace("if it comes back after the reboot"),
        ],
    )
