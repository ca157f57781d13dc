"""Reasons: why is a node out, by the words of whoever took it out?

A reason is free text that Slurm, HyperPod, health checks and people all write into, one
behind the other. What each part means is in ``tables/reasons.toml``. HyperPod acts on
exactly ``Action:Reboot`` and ``Action:Replace``, and ignores any other spelling without
a word: such a node waits for ever, so a near miss is a finding of its own.
"""

from __future__ import annotations

import re
from difflib import SequenceMatcher
from functools import cache
from typing import Any

from hpslurm.core import suggest, toml
from hpslurm.core.finding import DRAIN, LOOK, REBOOT, REPLACE, Rule, Suggestion
from hpslurm.core.values import dataclass
from hpslurm.sources.slurm import folded

CHAIN = " : "  # Slurm puts its own words behind a reason that is there already
ALSO = ", "  # and joins several of one moment
SLURM = "Slurm"
ALIKE = 0.78  # share of equal letters from which a short reason was meant to be an action


@dataclass(frozen=True)
class Row:
    """One row of the table. ``rule`` is None for a part that says what the state says anyway."""

    id: str
    by: str
    pattern: re.Pattern[str]
    example: str
    rule: Rule | None
    whole: bool
    advice: tuple[Suggestion, ...]


@dataclass(frozen=True)
class Part:
    text: str
    row: Row | None


@dataclass(frozen=True)
class Reading:
    """A reason taken apart. ``action`` is what HyperPod will do, ``meant`` what a near miss was to be."""

    parts: tuple[Part, ...]
    action: str = ""
    meant: str = ""

    @property
    def hits(self) -> list[Part]:
        return [part for part in self.parts if part.row and part.row.rule]

    @property
    def others(self) -> list[str]:
        """What no row knows: a person's own words, as a rule."""
        return [part.text for part in self.parts if not part.row]


@cache
def table() -> tuple[Row, ...]:
    return tuple(_row(raw) for raw in toml.table("reasons"))


def _row(raw: dict[str, Any]) -> Row:
    rule = None if raw.get("state") else Rule(raw["id"], raw["priority"], raw["title"], raw["reference"])
    advice = tuple(suggestion(raw["id"], *words) for words in raw.get("advice", ()))
    if any(suggestion.harm in (REBOOT, REPLACE) for suggestion in advice):
        looks = sum(suggestion.harm == LOOK for suggestion in advice)
        advice = (*advice[:looks], suggest.save_evidence(), *advice[looks:])
    return Row(
        raw["id"],
        raw["by"],
        re.compile(raw["pattern"], re.DOTALL),
        raw["example"],
        rule,
        raw.get("whole", False),
        advice,
    )


def suggestion(rule_id: str, harm: str, why: str, command: str) -> Suggestion:
    """A table's advice; without a command, drain, reboot and replace are worded as everywhere."""
    if not command and harm == DRAIN:
        return suggest.drain(rule_id)
    if not command and harm == REBOOT:
        return suggest.reboot(why)
    if not command and harm == REPLACE:
        return suggest.replace(why)
    return Suggestion(harm, why, command)


def table_rules() -> tuple[Rule, ...]:
    return tuple(row.rule for row in table() if row.rule)


def read(reason: str) -> Reading:
    """Take a reason apart; every part is named, and a near miss of an action is noticed."""
    parts = tuple(part for segment in folded(reason).split(CHAIN) for part in _parts(segment) if part.text)
    action = action_of(reason)
    own = CHAIN.join(part.text for part in parts if not part.row)
    return Reading(parts, action, "" if action else meant_by(own))


def _parts(segment: str) -> list[Part]:
    for row in table():
        if row.whole and row.pattern.fullmatch(segment):
            return [Part(segment, row)]
    parts = [Part(text, _known(text)) for text in segment.split(ALSO)]
    if any(part.row for part in parts):
        return parts
    return [Part(segment, None)]


def _known(text: str) -> Row | None:
    return next((row for row in table() if not row.whole and row.pattern.fullmatch(text)), None)


# HyperPod's two actions


def action_of(reason: str) -> str:
    """The exact action that HyperPod acts on, or empty. Slurm's own words may follow it: that was seen.

    >>> action_of("Action:Reboot"), action_of("action: reboot")
    ('Action:Reboot', '')
    """
    first, *rest = reason.split(CHAIN)
    if first not in (suggest.ACTION_REBOOT, suggest.ACTION_REPLACE):
        return ""
    known = (_known(folded(text)) for text in rest)
    return first if all(row and row.by == SLURM for row in known) else ""


_REBOOT_WORDS = ("reboot", "restart", "reset", "powercycle", "recover", "repair")
_REPLACE_WORDS = ("replac", "terminat", "recreate", "swap", "exchange", "remove", "delete")
_ACTION = re.compile(r"\baction\w*\W+([a-z_-]+)", re.IGNORECASE)


def meant_by(text: str) -> str:
    """The action that somebody seems to have meant, or empty.

    Either the word action stands before a word like reboot or replace, or the letters of the
    whole text are nearly those of one of the two.

    >>> meant_by("action: restart please"), meant_by("replaced the fan tray")
    ('Action:Reboot', '')
    """
    for match in _ACTION.finditer(text):
        word = re.sub(r"[^a-z]", "", match[1].casefold())
        if word.startswith(_REPLACE_WORDS) or _alike(word, "replace"):
            return suggest.ACTION_REPLACE
        if word.startswith(_REBOOT_WORDS) or _alike(word, "reboot"):
            return suggest.ACTION_REBOOT
    letters = re.sub(r"[^a-z]", "", text.casefold())
    for wanted in (suggest.ACTION_REPLACE, suggest.ACTION_REBOOT):
        if _alike(letters, wanted.replace(":", "").casefold()):
            return wanted
    return ""


def _alike(seen: str, wanted: str) -> bool:
    return abs(len(seen) - len(wanted)) <= 3 and SequenceMatcher(None, seen, wanted).ratio() >= ALIKE
