"""What stands in front of a message: rank, host, pid and time, in a dozen dialects.

A line of a job's output has passed through NCCL, torch, torchrun, Ray, mpirun, srun and syslog, and
each of them may have put its mark in front. The marks say who speaks and when; the rest is the message.
"""

from __future__ import annotations

import re

from hpslurm.core.text import whole

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_MONTHS = {
    name: number
    for number, name in enumerate(
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"], 1
    )
}

_LABEL = re.compile(r"\s{0,6}(\d{1,6}): ?(?=\D|\d{4}-\d\d-)")  # srun --label
_MPI = re.compile(r"\[\d+,(\d+)\]<std(?:out|err|diag)>: ?")
_RANK = re.compile(r"\[?(?:[Rr]ank|RANK)[ :_=-]?(\d+)\]?:? ?(?=\[|\S)")
_RANK_BRACKET = re.compile(r"\[(?:[Gg]lobal[ _])?(?:[Rr]ank|RANK)[ :_=-]? ?(\d+)\]:? ?")
_DEFAULT = re.compile(r"\[(?:default|local_rank|local rank|LOCAL_RANK)[ :=]?(\d+)\]:? ?")
_ROLE = re.compile(r"\[[A-Za-z][A-Za-z_-]*?(\d+)(?:\|(\d+))?\]:")
_RAY = re.compile(r"\((?:\S+ )?(?:rank=(\d+),? ?)?(?:\w+ )?pid=(\d+)(?:, ip=([^)\]]+\]?))?(?:, rank=(\d+))?\) ?")
_ISO = re.compile(
    r"\[?(\d{4})[-/](\d\d)[-/](\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,:](\d{1,9}))?"
    r"(?: ?Z|(?P<zone>[+-]\d\d:?\d\d))?(?: (?:TP|DP|PP|EP)\d+(?: (?:TP|DP|PP|EP)\d+)*)?\]?[:,]? ?"
)
_SHORT_DATE = re.compile(r"\[?(\d\d)/(\d\d)/(\d{2,4})[ T,-]+(\d\d):(\d\d):(\d\d)(?:[.,](\d+))?\]? ?")
_GLOG = re.compile(r"\[?[EWIF](\d{1,2})(\d\d) (\d\d):(\d\d):(\d\d)(?:\.(\d+))?(?: +\d+)? ")
_CTIME = re.compile(
    r"\[?(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) (Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) +(\d{1,2}) "
    r"(\d\d):(\d\d):(\d\d)(?:\.\d+)? (\d{4})\]? ?"
)
_SYSLOG = re.compile(
    r"(Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) +(\d{1,2}) (\d\d):(\d\d):(\d\d)(?:\.\d+)? "
    r"([\w.-]+) ([\w./()-]+?)(?:\[(\d+)\])?: "
)
_SYSLOG_BARE = re.compile(
    r"(Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) +(\d{1,2}) (\d\d):(\d\d):(\d\d)(?:\.\d+)? ([\w.-]+):\s+"
)
_ISO_HOST = re.compile(r"([\w.-]+) (kernel|[\w./()-]+\[\d+\]): ")
_UPTIME = re.compile(r"\[ *(\d+\.\d{3,9})\] ?")
_KMSG = re.compile(r"\d{1,3},\d+,\d+,[-\w,=]+; ?")
_KERN = re.compile(r"(?:kern|user|daemon) *: ?(?:emerg|alert|crit|err|warn|warning|notice|info|debug) *: ?")
_NCCL = re.compile(r"\[?([A-Za-z0-9][\w.-]*):(\d{1,8}):(\d{1,8})\]? \[(-?\d+)\] ?")
_NCCL_SHORT = re.compile(r"([A-Za-z0-9][\w.-]*):(\d{1,8}) \[(-?\d+)\] ?")
_UCX = re.compile(r"\[\d+\.\d+\] \[([\w.-]+):(\d+):\d+\] +")
_DEVICE = re.compile(r"\[(\d{1,2})\] (?=NCCL |\S+:\d+ NCCL )")
_ADDRESS = re.compile(r"(\d{1,3}(?:\.\d{1,3}){3}): ")
_NAMED = re.compile(r"((?:ip-\d+-\d+-\d+-\d+|[a-z][\w-]*\d[\w.-]*)): (?=\S)")
_STEPD = re.compile(r"slurmstepd-([\w.-]+): ")
_SRUN_HOST = re.compile(r"srun: error: ([\w.-]+): tasks? ([\d,\-\[\]]+): ")
_INNER_RANK = re.compile(
    r"\[(?:PG [^\]]*?|Rank |rank )[Rr]?(?:ank )?(\d+)\]|\[Rank (\d+)\]|\bGlobal [Rr]ank[ :=]+(\d+)"
)
_TP = re.compile(r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?: [DPE]P\d+)* TP(\d+)")
_NOT_HOSTS = ("slurmstepd", "slurmd", "slurmctld", "srun", "salloc", "sbatch", "kernel", "kern", "user", "systemd",
              "python3", "torchrun", "libfabric")  # fmt: skip


class Mark:
    """Who printed a line and when, as far as its prefix says; ``text`` is the rest."""

    __slots__ = ("host", "local_rank", "pid", "rank", "text", "time")

    def __init__(self, text: str) -> None:
        self.text = text
        self.rank: int | None = None
        self.local_rank: int | None = None
        self.host = ""
        self.pid: int | None = None
        self.time: float | None = None


def plain(line: str) -> str:
    """Without terminal colours."""
    return _ANSI.sub("", line) if "\x1b" in line else line


_OUTER = re.compile(r"(?:\s{0,6}\d{1,6}: ?(?!\d\d:)|\[\d+,\d+\]<std(?:out|err|diag)>: ?|\[(?:default|rank)\d+\]: ?)+")


def bare(line: str) -> str:
    """Without the labels of a launcher, so that a table or a line looks as its program printed it."""
    match = _OUTER.match(line)
    return line[match.end() :] if match else line


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
    mark = Mark(line)
    outer_rank: int | None = None
    inner_rank: int | None = None
    at = 0
    for _ in range(10):
        if match := _ISO.match(line, at):
            mark.time = _seconds(int(match[1]), int(match[2]), int(match[3]), match[4], match[5], match[6], match[7])
            if mark.time is not None and match["zone"]:
                mark.time -= _offset(match["zone"])
            if tp := _TP.match(line, at):
                inner_rank = whole(tp[1])
            at = match.end()
            if match := _ISO_HOST.match(line, at):
                mark.host = match[1]
                at = match.end()
        elif match := _GLOG.match(line, at):
            mark.time = _seconds(year, int(match[1]), int(match[2]), match[3], match[4], match[5], match[6])
            at = match.end()
        elif match := _CTIME.match(line, at):
            mark.time = _seconds(int(match[6]), _MONTHS[match[1]], int(match[2]), match[3], match[4], match[5], None)
            at = match.end()
        elif match := _SYSLOG.match(line, at) or _SYSLOG_BARE.match(line, at):
            mark.time = _seconds(year, _MONTHS[match[1]], int(match[2]), match[3], match[4], match[5], None)
            mark.host = match[6]
            at = match.end()
        elif match := _SHORT_DATE.match(line, at):
            full = int(match[3]) + (2000 if len(match[3]) == 2 else 0)
            mark.time = _seconds(full, int(match[1]), int(match[2]), match[4], match[5], match[6], match[7])
            at = match.end()
        elif match := _MPI.match(line, at) or (_LABEL.match(line, at) if outer_rank is None and at == 0 else None):
            outer_rank = whole(match[1])
            at = match.end()
        elif match := _RANK_BRACKET.match(line, at):
            inner_rank = whole(match[1])
            at = match.end()
        elif match := _DEFAULT.match(line, at):
            mark.local_rank = whole(match[1])
            at = match.end()
        elif match := _RAY.match(line, at):
            mark.pid = whole(match[2])
            mark.host = match[3] or mark.host
            if match[1] or match[4]:
                inner_rank = whole(match[1] or match[4])
            at = match.end()
        elif match := _UCX.match(line, at) or _NCCL.match(line, at):
            mark.host, mark.pid = match[1], whole(match[2])
            if match.re is _NCCL and match[4][0] != "-":
                mark.local_rank = whole(match[4])
            at = match.end()
        elif match := _NCCL_SHORT.match(line, at):
            mark.host, mark.pid, mark.local_rank = match[1], whole(match[2]), whole(match[3]) or 0
            at = match.end()
        elif match := _DEVICE.match(line, at):
            mark.local_rank = whole(match[1])
            at = match.end()
        elif match := _KMSG.match(line, at) or _UPTIME.match(line, at) or _KERN.match(line, at):
            at = match.end()
        elif match := _STEPD.match(line, at):
            mark.host = match[1]
            break
        elif match := _ROLE.match(line, at):
            outer_rank = whole(match[1])
            at = match.end()
        elif match := _ADDRESS.match(line, at) or _NAMED.match(line, at):
            if match[1] in _NOT_HOSTS or match[1].startswith("slurm"):
                break
            mark.host = mark.host or match[1]
            at = match.end()
        else:
            break
    if match := _SRUN_HOST.search(line, at):
        mark.host = match[1]
        if match[2].isdigit():
            outer_rank = whole(match[2])
    if inner_rank is None and (match := _INNER_RANK.search(line, at, at + 400)):
        inner_rank = whole(match[1] or match[2] or match[3])
    mark.rank = inner_rank if inner_rank is not None else outer_rank
    mark.text = line[at:]
    return mark


_FILE_RANK = re.compile(
    r"(?:^|[^a-z])(?:global_?)?rank[-_.=]?(\d+)(?:\D|$)"
    r"|(?:^|[-_.])(?:task|proc|worker|trainer|stdout|stderr|out|err|log)[-_.]?(\d+)(?:\D|$)",
    re.IGNORECASE,
)
# A number alone may be a rank, a job, a day: only the files beside it tell.
_FILE_NUMBER = re.compile(
    r"^(\d+)[-_.](?:log|out|err|txt|stdout|stderr)|[-_.](\d+)\.(?:log|out|err|txt)$", re.IGNORECASE
)
_FOLDER_RANK = re.compile(r"(?:^|/)(?:attempt_\d+/|rank[-_]?)(\d+)/(?:std(?:out|err)|error|log)[\w.]*$")
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
