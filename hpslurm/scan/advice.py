"""What to say about a cause: why it was chosen, what is still missing, what a person could type."""

from __future__ import annotations

import re
import shlex
from functools import lru_cache
from typing import Any

from hpslurm.core import suggest as words
from hpslurm.core import toml
from hpslurm.core.finding import Culprit, Event, Suggestion
from hpslurm.scan.patterns import Pattern

HARDWARE = ("gpu_ecc", "gpu_fell_off_bus", "gpu_nvlink", "gpu_gsp")


@lru_cache(maxsize=1)
def causes() -> dict[str, dict[str, Any]]:
    """The table of causes by word."""
    return {row["id"]: row for row in toml.whole("causes")["cause"]}


def section(cause: str, pattern: Pattern | None) -> int:
    if pattern is not None and pattern.cause == cause and pattern.section:
        return pattern.section
    row = causes().get(cause)
    return int(row["section"]) if row else 1


def why(chosen: Event, pattern: Pattern | None, victims: tuple[Event, ...]) -> str:
    meaning = pattern.meaning if pattern is not None else _DERIVED.get(chosen.pattern, "the evidence of several lines")
    said = meaning[0].upper() + meaning[1:] if chosen.pattern not in _DERIVED else _DERIVED[chosen.pattern]
    if chosen.fact("xid"):
        said += f"; number {chosen.fact('xid')}"
    louder = [event for event in victims if event.count >= chosen.count]
    if not louder:
        return said
    causes = sorted({event.cause for event in louder if event.cause and event.cause != chosen.cause})
    lines = sum(event.count for event in louder)
    if chosen.role == "root":
        return f"{said}. The {lines} other lines ({', '.join(causes[:4]) or 'same cause'}) are what its victims and clean-up print"  # noqa: E501
    return said


_DERIVED = {
    "desync-watchdog": "Ranks wait in different collectives: the few took another path",
    "lone-barrier": "Training was finished, and one rank waits in a barrier that the others do not enter",
    "busy-timeout": "This long work began one time-out before the watchdog fired and was not seen to end",
    "tests-slow": "The largest sizes stay far below what this machine does",
    "tests-wrong": "The #wrong column is not zero",
    "smi-remap": "A repair of GPU memory waits for a reset, or failed",
    "smi-ecc": "Uncorrectable errors are counted on this GPU",
    "sinfo-state": "This state means that a person must look, or that the node does not answer",
    "net-socket": "NCCL uses sockets although EFA was meant",
    "ras-behind": "These ranks have launched fewer operations than the others",
    "ras-ahead": "The ranks that are listed are ahead; the unlisted ones are behind",
    "ras-dead": "RAS gave this process up",
    "ras-missing": "RAS has no data from this process",
    "ras-missing-rank": "RAS misses this rank",
    "score-low": "The performance score is below the threshold",
    "rtt-high": "The slowest rank takes much longer than the fastest",
    "fi-info-bare": "fi_info ended with the code for no data: no EFA device is visible here",
    "fi-info-other": "fi_info lists other providers and no EFA",
    "sinfo-reason": "The reason that somebody gave for this node speaks of a failure",
    "job-state": "Slurm says that the job ended so, and nothing else was found",
    "host-nccl": "This host has another NCCL than the others",
    "host-network": "This host uses another network than the others",
    "host-nics": "This host has another number of EFA devices than the others",
    "host-plugin": "This host has another network plugin than the others",
    "host-libfabric": "This host has another libfabric than the others",
    "df-full": "This file system is full",
    "ulimit-low": "The locked-memory limit is small",
    "ib-port-down": "A port is down",
    "fr-silent": "The flight recorder shows that this rank did not join",
    "fr-shape": "The flight recorder shows different shapes or operations",
}


def ask(cause: str) -> str:
    return {
        "app_error": "the failing rank's own output (the traceback above its first error)",
        "host_oom": "dmesg of that node (an oom-kill line), and the job's memory limit",
        "job_cancelled": "sacct -j JOBID --format=State,ExitCode,Reason, and who cancelled it",
    }.get(cause, "dmesg and slurmd's log of the node, and the output of the other ranks")


def place(culprit: Culprit | None) -> str:
    if culprit is None:
        return ""
    if culprit.rank is not None:
        return f" (rank {culprit.rank})"
    if culprit.local_rank is not None:
        return f" (local rank {culprit.local_rank})"
    return f" ({culprit.peer or culprit.host})" if culprit.peer or culprit.host else ""


# A node name comes from a log, so anybody may have written it: only plain names enter a command.
_NODE = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,62}(?:\[[0-9,-]{1,60}\])?$")


def suggest(cause: str, culprit: Culprit | None) -> tuple[Suggestion, ...]:
    node = culprit.host if culprit is not None and culprit.host and _NODE.match(culprit.host) else ""
    where = shlex.quote(node) if node else "NODE"
    given: list[Suggestion] = []
    for row in causes().get(cause, {}).get("suggest", ()):
        given.append(Suggestion(row["step"], row["why"], row["command"].replace("{node}", where)))
    if cause in HARDWARE:
        given.insert(0, words.save_evidence())
        given.append(words.drain(cause.replace("_", "-")))
        given.append(words.reboot("a reset is needed; replace when the same fault is back within a day"))
        given = [Suggestion(s.harm, s.why, s.command.replace("{nodes}", where)) for s in given]
    return tuple(given)
