"""The words of hpslurm: rules, findings and what supports them.

Everything here holds values and does nothing, so that a probe, a log scan and a
look from the controller all speak the same language, on screen and on disk.
"""

from __future__ import annotations

from collections.abc import Iterable

from hpslurm.core.values import dataclass, field

P0 = "P0"  # blocks training
P1 = "P1"  # degraded
P2 = "P2"  # for information
PRIORITIES = (P0, P1, P2)

LOOK = "look"
DRAIN = "drain"
CONFIGURE = "configure"
REBOOT = "reboot"
REPLACE = "replace"
HARMS = (LOOK, DRAIN, CONFIGURE, REBOOT, REPLACE)  # in order of harm


@dataclass(frozen=True)
class Evidence:
    """What we saw, and where a person can look again."""

    source: str
    text: str


@dataclass(frozen=True)
class Suggestion:
    """One thing a person could do; ``{nodes}`` in a command becomes the folded node list.

    ``harm`` is one of ``HARMS``. hpslurm never runs ``command``.
    """

    harm: str
    why: str
    command: str = ""


@dataclass(frozen=True)
class Rule:
    """Something that can be wrong. ``id`` is public: never renamed, never used again.

    ``cause`` is one of the cause words of ``scan``, or empty. ``gateable`` marks
    hardware of the node itself, or what its site expects of it: only such a rule may make the prolog say ``drain``.
    """

    id: str
    priority: str
    title: str
    reference: str
    cause: str = ""
    gateable: bool = False

    def found(
        self,
        detail: str,
        *,
        evidence: Iterable[Evidence] = (),
        suggest: Iterable[Suggestion] = (),
        subject: str = "",
    ) -> Finding:
        return Finding(self, detail, tuple(evidence), tuple(suggest), subject)


@dataclass(frozen=True)
class Finding:
    """A rule that fired, here and now; an empty ``subject`` means this node.

    ``muted`` is the site's reason for living with it, or empty.
    """

    rule: Rule
    detail: str
    evidence: tuple[Evidence, ...] = ()
    suggestions: tuple[Suggestion, ...] = ()
    subject: str = ""
    muted: str = ""

    def with_suggestions(self, suggestions: tuple[Suggestion, ...]) -> Finding:
        return Finding(self.rule, self.detail, self.evidence, suggestions, self.subject, self.muted)


ROOT = "root"
SYMPTOM = "symptom"
NOISE = "noise"
ROLES = (ROOT, SYMPTOM, NOISE)


@dataclass(frozen=True)
class Event:
    """One meaningful line of a log, and how often the same rank or host printed its like.

    ``time`` is seconds since the epoch, if the line has one. ``cause`` and ``weight`` come from the
    pattern (0 to 100: how directly the line proves the cause). ``facts`` are further fields of the
    line as text, such as a sequence number.
    """

    pattern: str
    role: str
    file: str
    line: int
    text: str
    time: float | None = None
    rank: int | None = None
    host: str = ""
    cause: str = ""
    weight: int = 0
    count: int = 1
    last_line: int = 0
    local_rank: int | None = None
    gpu: str = ""
    pid: int | None = None
    peer: str = ""
    facts: tuple[tuple[str, str], ...] = ()

    def fact(self, name: str) -> str:
        return next((value for key, value in self.facts if key == name), "")


@dataclass(frozen=True)
class Culprit:
    """Who started it, as far as the evidence names them; ``None`` is not named."""

    rank: int | None = None
    local_rank: int | None = None
    host: str | None = None
    gpu: str | None = None
    pid: int | None = None
    peer: str | None = None


@dataclass(frozen=True)
class Diagnosis:
    """What ``scan`` made of all events: one cause, and why this one."""

    cause: str
    confidence: str
    why: str
    culprit: Culprit | None = None
    decisive: Event | None = None
    missing: tuple[str, ...] = field(default=())
    victims: tuple[Event, ...] = field(default=())
    section: str = ""
    suggestions: tuple[Suggestion, ...] = field(default=())
