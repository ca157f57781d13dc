"""Lines of trouble that no row of patterns.toml knows: how grave they sound, and what they are about.

Weak evidence, and what is shown where no cause is known. tables/trouble.toml holds the words.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from hpslurm.core import linear, toml
from hpslurm.core.finding import ROOT, SYMPTOM, Event
from hpslurm.core.values import dataclass, replace
from hpslurm.scan import prefix
from hpslurm.scan.gpu_names import gpu_of

SHORTEST, LONGEST = 6, 1000  # characters of a line that is looked at
PREFIX = 120  # characters in which a level stands
LEAST = 6  # gravity of a line that may speak for a cause
# Words of settings, of good ends and of talk about errors: no trouble.
_NO_TROUBLE = linear.compile(
    r"(?i)\b(?:no|0|zero|without|ignor\w+|any) (?:errors?|failures?|problems?|issues?|exceptions?)\b"
    r"(?! (?:callback|handler))"
    r"|\btimeouts? (?:(?:is|was) )?set to \d"
    r"|\berrors=(?:remount-ro|continue|panic)\b"
    r"|\berrors?[\w ]{0,12}[=:] *(?:0\b|none|false|\[\]|null)"
    r"|(?:fail|error|timeout|missing|lost|dead|abort|kill|retr)\w{0,30}(?:-\w{0,30})?[ \"']{0,4}[=:] ?"
    r"[\"']?(?:[\d.]+|true|false|none|null|yes|no|auto|ignore|\w{1,12})?[\"']?[,}\s]*$"
    r"|^\W*={2,}[^\n]*={2,}\W*$"
    r"|^(?:\S{0,80}[#$>%] ?)?(?:sudo )?(?:echo|grep|journalctl|dmesg|sudo|export|printf) |\| *e?grep -"
    r"|--[\w-]*(?:fail|error|timeout|missing|lost|kill)[\w-]*|\b\w+_(?:error|errors|loss|fail|timeout)s?\b *[=:]"
    r"|(?:mean|avg|val|train|test|abs|sq\w*|root)[\w ]{0,12}error\b"
    r"|if (?:you|this|the|it)\b|\b(?:in case of|on|upon) (?:an? )?(?:failure|error)"
    r"|please (?:note|consider|see)|for (?:debugging|more information)"
    r"|see (?:the )?(?:log|documentation|https?:)|\bhint\b|set [A-Z_]+="
    r"|successfully|recovered|recovery complete|resolved|retry succeeded|will (?:be )?(?:retr\w+|use|fall ?back)"
    r"|\b(?:may|might)\b|\bcould (?:result|cause|be)\b|\bstrongly\b"
    r"|falling back|fall back|using default|skipp(?:ed|ing)|optional|deprecat\w+"
    r"|\[?(?:INFO|DEBUG|TRACE|I)\]?[:\s-].{0,20}\b(?:max|set|enable|disable|register|initiali[sz])\w*"
)
_FRAME = linear.late(
    r"\s{0,99}(?:\[\w{1,40}\]: ?\s{0,99})?(?:File \"|raise |return |#|\^+$|~+\^|at 0x|from /|\[bt\])"
)  # of a traceback, or a comment
_PATH = linear.late(r"(?:/[\w.@+-]+){2,}/?")  # a folder's name is no subject
_LEVEL = linear.late(
    r"\[?\bI\d{3,4} \d\d:|(?:^|[\s\[(|<])(?:INFO|DEBUG|TRACE|NOTICE|info|debug|trace)(?:[\]\s:|>)-]|$)"
)
# Slurm's daemons name the level of an error; what has none informs.
_SLURM_TELLS = linear.compile(
    r"(?:\S{1,40} )?(?:slurm(?:ctld|dbd|d|stepd|restd)|sackd)[\w-]{0,80}: (?![^\n]{0,40}(?:error|fatal): )"
    r"|\[\d{4}-\d\d-\d\dT[\d:.]+\] (?![^\n]{0,80}(?i:error|fatal|critical|exception)\b)"
)
_WARNING = linear.late(r"(?:^|[\s\[(|:<\d])(?:W|WARN|WARNING|Warning|warning|warn)(?:[\]\s:|>)-]|\d{4} )")


@dataclass(frozen=True)
class Gravity:
    id: str
    weight: int
    expression: re.Pattern[str]


@dataclass(frozen=True)
class Subject:
    id: str
    cause: str
    weight: int
    expression: re.Pattern[str]


@cache
def _table() -> dict[str, Any]:
    return toml.whole("trouble")


@cache
def gravities() -> tuple[Gravity, ...]:
    return tuple(Gravity(row["id"], row["weight"], linear.compile(row["regex"])) for row in _table()["gravity"])


@cache
def subjects() -> tuple[Subject, ...]:
    rows = _table()["subject"]
    return tuple(Subject(row["id"], row["cause"], row["weight"], linear.compile(row["regex"])) for row in rows)


@cache
def emitters() -> tuple[tuple[re.Pattern[str], frozenset[str]], ...]:
    """Whose lines can only be about some causes, by the words that they begin with."""
    return tuple((linear.compile(row["regex"]), frozenset(row["causes"])) for row in _table()["emitter"])


@cache
def stems() -> tuple[str, ...]:
    return tuple(_table()["stems"])


def may_be(line: str) -> bool:
    """A quick look that spares most lines the slow one."""
    low = line.lower()
    return any(stem in low for stem in stems()) or low[:1] in ("e", "f")


def gravity_of(line: str) -> int:
    """How grave a line sounds; 0 for one that is no trouble."""
    if not SHORTEST <= len(line) or "NCCL INFO" in line or _FRAME.match(prefix.bare(line)):
        return 0
    line = line[:LONGEST]
    gravity = max((row.weight for row in gravities() if row.expression.search(line)), default=0)
    return 0 if gravity and _NO_TROUBLE.search(line) else gravity


def event_of(path: str, number: int, line: str, year: int) -> Event | None:
    """The event of a line that sounds like trouble, or None."""
    gravity = gravity_of(line)
    if not gravity:
        return None
    line = line[:LONGEST]
    begin = line[:PREFIX]
    boots = prefix.boots(line)  # what counts of it, rows of patterns.toml know
    aside = prefix.is_aside(line)
    informs = boots or aside or (_LEVEL.search(begin) or _SLURM_TELLS.match(line)) is not None
    warns = _WARNING.search(begin) is not None
    gravity //= 3 if boots or aside else 2 if informs else 1
    mark = prefix.read(line, year)
    about = None if informs or warns or gravity < LEAST else subject_of(mark.text)
    event = Event("trouble", SYMPTOM, path, number, line, mark.time, mark.rank, mark.host, "undetermined",
                  gravity // 2 if warns else gravity, local_rank=mark.local_rank, pid=mark.pid)  # fmt: skip
    if about is None:
        return event
    gpu = gpu_of(line) if about.cause.startswith("gpu_") else ""
    return replace(event, pattern=f"trouble:{about.id}", role=ROOT, cause=about.cause, weight=about.weight, gpu=gpu)


def subject_of(text: str) -> Subject | None:
    """What a line is about: the weightiest subject that its emitter may mean, by words outside of paths."""
    text = _PATH.sub(" ", text)
    may_mean = next((causes for expression, causes in emitters() if expression.search(text)), None)
    about = [
        row for row in subjects()
        if (may_mean is None or row.cause in may_mean) and row.expression.search(text)
    ]  # fmt: skip
    return max(about, key=lambda row: row.weight, default=None)
