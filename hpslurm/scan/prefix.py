"""What stands in front of a message: rank, host, pid and time, in a dozen dialects.

A line of a job's output has passed through NCCL, torch, torchrun, Ray, mpirun, srun and syslog, and
each of them may have put its mark in front. The marks say who speaks and when; the rest is the message.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from hpslurm.core import linear
from hpslurm.core.text import whole

_ANSI = linear.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_MONTHS = {
    name: number
    for number, name in enumerate(
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"], 1
    )
}

_LABEL = linear.compile(r"^\s{0,6}(\d{1,6}): ?(?=\D|\d{4}-\d\d-)")  # srun --label
_MPI = linear.compile(r"\[\d+,(\d+)\]<std(?:out|err|diag)>: ?")
_RANK_BRACKET = linear.compile(r"\[(?:[Gg]lobal[ _])?(?:[Rr]ank|RANK)[ :_=-]? ?(\d+)\]:? ?")
_DEFAULT = linear.compile(r"\[(?:default|local_rank|local rank|LOCAL_RANK)[ :=]?(\d+)\]:? ?")
_TORCHX = linear.compile(
    r"(?:[\w-]+\.)?[\w-]+/\d{1,6} (?=\[|\S+:\d+:\d+ )"
)  # the role and replica that TorchX puts before each line
_ROLE = linear.compile(r"\[[A-Za-z][A-Za-z_-]*?(\d+)(?:\|(\d+))?\]:")
_RAY = linear.compile(r"\((?:\S+ )?(?:rank=(\d+),? ?)?(?:\w+ )?pid=(\d+)(?:, ip=([^)\]]+\]?))?(?:, rank=(\d+))?\) ?")
_ISO = linear.compile(
    r"\[?(\d{4})[-/](\d\d)[-/](\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,:](\d{1,9}))?"
    r"(?: ?Z|(?P<zone>[+-]\d\d:?\d\d))?(?: (?:TP|DP|PP|EP)\d+(?: (?:TP|DP|PP|EP)\d+)*)?\]?[:,]? ?"
    r"(?:(?P<host>[\w.-]+) (?:kernel|[\w./()-]+\[\d+\]): )?"
)
_SHORT_DATE = linear.compile(r"\[?(\d\d)/(\d\d)/(\d{2,4})[ T,-]+(\d\d):(\d\d):(\d\d)(?:[.,](\d+))?\]? ?")
_GLOG = linear.compile(r"\[?[EWIF](\d{1,2})(\d\d) (\d\d):(\d\d):(\d\d)(?:\.(\d+))?(?: +\d+)? ")
_CTIME = linear.compile(
    r"\[?(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) (Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) +(\d{1,2}) "
    r"(\d\d):(\d\d):(\d\d)(?:\.\d+)? (\d{4})\]? ?"
)
_SYSLOG = linear.compile(
    r"(Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) +(\d{1,2}) (\d\d):(\d\d):(\d\d)(?:\.\d+)? "
    r"([\w.-]+) ([\w./()-]+?)(?:\[(\d+)\])?: "
)
_SYSLOG_BARE = linear.compile(
    r"(Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) +(\d{1,2}) (\d\d):(\d\d):(\d\d)(?:\.\d+)? ([\w.-]+):\s+"
)
_UPTIME = linear.compile(r"\[ *(\d+\.\d{3,9})\] ?")
_KMSG = linear.compile(r"\d{1,3},\d+,\d+,[-\w,=]+; ?")
_KERN = linear.compile(r"(?:kern|user|daemon) *: ?(?:emerg|alert|crit|err|warn|warning|notice|info|debug) *: ?")
_NCCL = linear.compile(r"\[?([A-Za-z0-9][\w.-]{0,252}):(\d{1,8}):(\d{1,8})\]? \[(?P<device>-?\d+)\] ?")
_NCCL_SHORT = linear.compile(r"([A-Za-z0-9][\w.-]{0,252}):(\d{1,8}) \[(?P<device>-?\d+)\] ?")
_OPEN_MPI = linear.compile(r"\[([A-Za-z][\w.-]{0,252}):(\d{2,8})\] ")
_UCX = linear.compile(r"(?:\[\d+\.\d+\] )?\[([\w.-]+):(\d+) *:\d+(?::\d+)?\] +")
_DEVICE = linear.compile(r"\[(\d{1,2})\] (?=NCCL |\S+:\d+ NCCL )")
_ADDRESS = linear.compile(r"(\d{1,3}(?:\.\d{1,3}){3}): ")
_NAMED = linear.compile(r"((?:ip-\d+-\d+-\d+-\d+|[a-z][\w-]{0,62}\d[\w.-]{0,190})): (?=\S)")
_STEPD = linear.compile(r"slurmstepd-([\w.-]{1,253}): ")
_SRUN_HOST = linear.compile(r"srun: error: ([\w.-]{1,253}): tasks? ([\d,\-\[\]]{1,1000}): ")
_INNER_RANK = linear.compile(
    r"\[(?:PG [^\]]*?|Rank |rank )[Rr]?(?:ank )?(\d+)\]|\[Rank (\d+)\]|\bGlobal [Rr]ank[ :=]+(\d+)"
)
_TP = linear.compile(r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?: [DPE]P\d+)* TP(\d+)")
_NOT_HOSTS = ("slurmstepd", "slurmd", "slurmctld", "srun", "salloc", "sbatch", "kernel", "kern", "user", "systemd",
              "python3", "torchrun", "libfabric")  # fmt: skip


class Mark:
    """Who printed a line and when, as far as its prefix says; ``text`` is the rest."""

    __slots__ = ("host", "local_rank", "many", "pid", "rank", "text", "time")

    def __init__(self, text: str) -> None:
        self.text = text
        self.rank: int | None = None
        self.local_rank: int | None = None
        self.host = ""
        self.pid: int | None = None
        self.time: float | None = None
        self.many = False  # one of many alike: whose it is says nothing


def plain(line: str) -> str:
    """Without terminal colours."""
    return _ANSI.sub("", line) if "\x1b" in line else line


_OUTER = linear.compile(
    r"(?:\s{0,6}\d{1,6}: ?(?!\d\d:)|\[\d+,\d+\]<std(?:out|err|diag)>: ?|\[(?:default|rank)\d+\]: ?)+"
)


def bare(line: str) -> str:
    """Without the labels of a launcher, so that a table or a line looks as its program printed it."""
    match = _OUTER.match(line)
    return line[match.end() :] if match else line


# Of syslog and journalctl: the time, the host, then the service that speaks, with its pid.
_SERVICE = linear.compile(
    r"(?:<\d{1,3}>)?(?:[^\W\d][\w.]{2,9} +\d{1,2} [\d:]{8}|\d{4}-\d\d-\d\d[T ]\S+) \S+ ([\w.@/()-]+)\[\d+\]: "
)
# Those whose lines can be a job's or its launcher's own.
_OF_JOBS = linear.compile(
    r"(?i)(?:kernel|slurm|srun|sbatch|salloc|sack|munge|py|torch|deepspeed|accelerate|mpi|orte|prte|hydra|ray|vllm|sglang"
    r"|nv|dcgm|cuda|nccl|rccl|jax|horovod|container|docker|podman|kubelet|enroot|pyxis|hpslurm|(?:ba)?sh$|train|job|task"
    r"|worker|rank|run|[0-9a-f]{12})"
)


# What a library tells for those who debug it.
_FOR_DEBUGGING = linear.compile(
    r"libfabric:[\w:]{1,80}\(\):\d+<(?:info|debug|trace)>|\[[^\n]{1,80}\bUCX +(?:DIAG|DEBUG|TRACE)\b"
    r"|(?:\[[\dT:.-]{10,40}\]|slurm\w{1,8}:) (?:\[\S{1,20}\] )?debug\d?: "
    r"|(?:Starting|Stopping|Mounting|Bringing up) [\w .-]{2,40}: "  # a console while a machine boots
)


BOOT = 120.0  # seconds of uptime, in which a machine looks for much that it does not have
_SINCE_BOOT = linear.late(r"(?:<\d+>)?\[ *(\d{1,8}\.\d+)\]")


def boots(line: str) -> bool:
    """Whether a kernel says it while its machine starts.

    >>> boots("<4>[   12.345678] mlx5_core 0000:86:00.0: Link down"), boots("[ 120.000000] mlx5_core: Link down")
    (True, False)
    """
    uptime = _SINCE_BOOT.match(line)
    return uptime is not None and float(uptime[1]) < BOOT


def is_aside(line: str) -> bool:
    """Whether a system service says it that has no part in a job, or a library tells it for those who debug it.

    >>> is_aside("Aug 25 19:38:05 n1 sshd[920]: error: kex_exchange: Connection reset by peer")
    True
    >>> is_aside("Aug 25 19:38:05 n1 slurmd[920]: error: Connection reset by peer")
    False
    """
    match = _SERVICE.match(line)
    if match is not None:
        return _OF_JOBS.match(match[1]) is None
    return _FOR_DEBUGGING.match(line) is not None


def _seconds(
    year: int, month: int, day: int, hour: str, minute: str, second: str, fraction: str | None
) -> float | None:
    if not (1 <= month <= 12 and 1 <= day <= 31):
        return None
    # Days since 1970, counted in years that begin in March (calendar.timegm would import datetime and locale).
    shifted = year - (month < 3)
    era, of_era = divmod(shifted, 400)
    of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    days = era * 146097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719468
    seconds = days * 86400 + int(hour) * 3600 + int(minute) * 60 + int(second)
    return seconds + (float("0." + fraction) if fraction else 0.0)


def _offset(zone: str) -> int:
    """Seconds by which the clock of ``+02:00`` is ahead of UTC."""
    digits = zone[1:].replace(":", "")
    seconds = int(digits[:2]) * 3600 + int(digits[2:]) * 60
    return -seconds if zone[0] == "-" else seconds


def read(line: str, year: int = 1970) -> Mark:
    """Peels prefixes off ``line``. ``year`` completes dates that have none."""
    reading = _Reading(Mark(line), year)
    at = 0
    for _ in range(MOST_PREFIXES):
        dialect, match = _dialect(line, at)
        if dialect is None or match is None or not dialect(reading, match):
            break
        at = match.end()
    return _finished(reading, line, at)


class _Reading:
    """A line whose prefixes are being read. A rank that the program says counts more than the launcher's."""

    __slots__ = ("inner", "mark", "outer", "year")

    def __init__(self, mark: Mark, year: int) -> None:
        self.mark, self.year = mark, year
        self.inner: int | None = None
        self.outer: int | None = None


Dialect = Callable[[_Reading, "re.Match[str]"], bool]  # takes a prefix; False where it stays part of the message


def _dialect(line: str, at: int) -> tuple[Dialect | None, re.Match[str] | None]:
    for expression, dialect in _DIALECTS:
        if match := expression.match(line, at):
            return dialect, match
    return None, None


def _finished(reading: _Reading, line: str, at: int) -> Mark:
    """With what stands in the message itself."""
    mark = reading.mark
    if match := _SRUN_HOST.search(line, at):
        mark.host = match[1]
        if match[2].isdigit():
            reading.outer = whole(match[2])
    if reading.inner is None and (match := _INNER_RANK.search(line, at, at + WITHIN)):
        reading.inner = whole(match[1] or match[2] or match[3])
    mark.rank = reading.inner if reading.inner is not None else reading.outer
    mark.text = line[at:]
    if "across cluster]" in line and _REPEATED.search(line, at):
        mark.rank = mark.local_rank = mark.pid = None
        mark.host, mark.many = "", True
    return mark


# Ray prints one of many lines that are alike.
_REPEATED = linear.compile(r"\[repeated \d+x across cluster\]")


def _iso(reading: _Reading, match: re.Match[str]) -> bool:
    mark = reading.mark
    mark.time = _seconds(int(match[1]), int(match[2]), int(match[3]), match[4], match[5], match[6], match[7])
    if mark.time is not None and match["zone"]:
        mark.time -= _offset(match["zone"])
    if tensor_parallel := _TP.match(match.string, match.start()):
        reading.inner = whole(tensor_parallel[1])
    mark.host = match["host"] or mark.host
    return True


def _glog(reading: _Reading, match: re.Match[str]) -> bool:
    date = reading.year, int(match[1]), int(match[2])
    reading.mark.time = _seconds(*date, match[3], match[4], match[5], match[6])
    return True


def _ctime(reading: _Reading, match: re.Match[str]) -> bool:
    date = int(match[6]), _MONTHS[match[1]], int(match[2])
    reading.mark.time = _seconds(*date, match[3], match[4], match[5], None)
    return True


def _syslog(reading: _Reading, match: re.Match[str]) -> bool:
    date = reading.year, _MONTHS[match[1]], int(match[2])
    reading.mark.time = _seconds(*date, match[3], match[4], match[5], None)
    reading.mark.host = match[6]
    return True


def _short_date(reading: _Reading, match: re.Match[str]) -> bool:
    date = int(match[3]) + (2000 if len(match[3]) == 2 else 0), int(match[1]), int(match[2])
    reading.mark.time = _seconds(*date, match[4], match[5], match[6], match[7])
    return True


def _outer_rank(reading: _Reading, match: re.Match[str]) -> bool:
    reading.outer = whole(match[1])
    return True


def _inner_rank(reading: _Reading, match: re.Match[str]) -> bool:
    reading.inner = whole(match[1])
    return True


def _local_rank(reading: _Reading, match: re.Match[str]) -> bool:
    reading.mark.local_rank = whole(match[1])
    return True


def _ray(reading: _Reading, match: re.Match[str]) -> bool:
    reading.mark.pid = whole(match[2])
    reading.mark.host = match[3] or reading.mark.host
    if match[1] or match[4]:
        reading.inner = whole(match[1] or match[4])
    return True


def _host_and_pid(reading: _Reading, match: re.Match[str]) -> bool:
    reading.mark.host, reading.mark.pid = match[1], whole(match[2])
    return True


def _nccl(reading: _Reading, match: re.Match[str]) -> bool:
    if match["device"][0] != "-":
        reading.mark.local_rank = whole(match["device"])
    return _host_and_pid(reading, match)


def _nothing(reading: _Reading, match: re.Match[str]) -> bool:
    return True


def _step_daemon(reading: _Reading, match: re.Match[str]) -> bool:
    reading.mark.host = match[1]
    return False


def _host(reading: _Reading, match: re.Match[str]) -> bool:
    if match[1] in _NOT_HOSTS or match[1].startswith("slurm"):
        return False
    reading.mark.host = reading.mark.host or match[1]
    return True


MOST_PREFIXES = 10  # of one line
WITHIN = 400  # characters of the message in which it may name its own rank
# The first that fits is taken, then the next is looked for behind it.
_DIALECTS: tuple[tuple[re.Pattern[str], Dialect], ...] = (
    (_ISO, _iso),
    (_GLOG, _glog),
    (_CTIME, _ctime),
    (_SYSLOG, _syslog),
    (_SYSLOG_BARE, _syslog),
    (_SHORT_DATE, _short_date),
    (_MPI, _outer_rank),
    (_LABEL, _outer_rank),
    (_RANK_BRACKET, _inner_rank),
    (_DEFAULT, _local_rank),
    (_RAY, _ray),
    (_UCX, _host_and_pid),
    (_OPEN_MPI, _host_and_pid),
    (_NCCL, _nccl),
    (_NCCL_SHORT, _nccl),
    (_DEVICE, _local_rank),
    (_KMSG, _nothing),
    (_UPTIME, _nothing),
    (_KERN, _nothing),
    (_STEPD, _step_daemon),
    (_TORCHX, _nothing),
    (_ROLE, _outer_rank),
    (_ADDRESS, _host),
    (_NAMED, _host),
)


_FILE_RANK = linear.compile(
    r"(?:^|[^a-z])(?:global_?)?rank[-_.=]?(\d+)(?:\D|$)"
    r"|(?:^|[-_.])(?:task|proc|worker|trainer|stdout|stderr|out|err|log)[-_.]?(\d+)(?:\D|$)",
    re.IGNORECASE,
)
# A number alone may be a rank, a job, a day: only the files beside it tell.
_FILE_NUMBER = linear.compile(
    r"^(\d+)[-_.](?:log|out|err|txt|stdout|stderr)|[-_.](\d+)\.(?:log|out|err|txt)$", re.IGNORECASE
)
_FOLDER_RANK = linear.compile(r"(?:^|/)(?:attempt_\d+/|rank[-_]?)(\d+)/(?:std(?:out|err)|error|log)[\w.]*$")
MOST_RANK = 200_000  # a larger number is none


def rank_of_file(path: str) -> int | None:
    """The rank that a per-rank file is named after (train.rank3.err, rank_12.log, attempt_0/5/stderr.log)."""
    if match := _FOLDER_RANK.search(path):
        return whole(match[1])
    return _number(_FILE_RANK.search(path.rsplit("/", 1)[-1]))


def number_of_file(path: str) -> int | None:
    """The number in a name like 3.log or train-3.out, which is a rank where its neighbours are numbered in a row."""
    return _number(_FILE_NUMBER.search(path.rsplit("/", 1)[-1]))


def _number(match: re.Match[str] | None) -> int | None:
    if match is None:
        return None
    number = whole(next(group for group in match.groups() if group is not None))
    return number if number is not None and number < MOST_RANK else None
