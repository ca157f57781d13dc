"""Lists of nodes as sinfo prints them: states that need a person, and reasons that somebody gave.

A star means not answering; fail, down and inval need a person, drain may be planned.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from hpslurm.core import linear
from hpslurm.core.finding import NOISE, Event
from hpslurm.scan.model import evidence

Lines = list[tuple[int, str]]  # line number, text
_REASON = linear.compile(r"^(.+?)\s+\S+\s+\d{4}-\d\d-\d\dT[\d:]+\s+(\S+)\s*$")
_FAILED = linear.compile(r"(?i)fail|dead|broken|hang|lost|unreach")
_STATE = linear.compile(r"[a-z]+[*~#!%$@+^-]?$")
_POWERED_DOWN = linear.compile(r"down[#~]")
_BAD = linear.compile(r"(?:down|fail|failing|failg|inval|error|unk|unknown|no_respond)")


def events(path: str, lines: Lines) -> Iterator[Event]:
    header: list[str] = []
    drained: Event | None = None
    reasons = False
    for number, line in lines:
        words = line.split()
        if words[:2] == ["REASON", "USER"]:
            reasons = True
        elif reasons and (match := _REASON.search(line)):
            yield _reason(path, number, line, match)
        elif "STATE" in words and ("NODELIST" in words or "PARTITION" in words or "NODES" in words):
            header = words
        elif header and len(words) > header.index("STATE") and (event := _state(path, number, line, words, header)):
            if event.pattern == "sinfo-drained":  # said where no state is worse
                drained = drained or event
            else:
                yield event
    if drained:
        yield drained


def _reason(path: str, number: int, line: str, match: re.Match[str]) -> Event:
    """Reasons that Slurm writes itself are patterns; this is somebody else's."""
    text = line.strip()[:300]
    if _FAILED.search(match[1]):
        return evidence("sinfo-reason", path, number, text, host=match[2])
    return Event("sinfo-reason", NOISE, path, number, text, host=match[2])


def _state(path: str, number: int, line: str, words: list[str], header: list[str]) -> Event | None:
    state = words[header.index("STATE")].lower()
    nodes = words[-1] if header[-1].startswith("NODELIST") else words[0]
    first = nodes.split(",")[0]
    text = line.strip()[:300]
    if not _STATE.match(state):
        return None
    if _POWERED_DOWN.match(state):  # a node of the cloud that did not come up
        return evidence("sinfo-powered-down", path, number, text, host=re.sub(r"-\[.*", "", first))
    if _BAD.match(state) or state.endswith("*"):
        row = "sinfo-invalid" if state.startswith("inval") else "sinfo-state"
        return evidence(row, path, number, text, host=nodes if "[" in first else first, facts=(("state", state),))
    if state.startswith(("drain", "drng")):
        return Event("sinfo-drained", NOISE, path, number, text, host=nodes)
    return None
