"""Signs that work went on: the first and the last of them, bars of progress, and what NCCL's set-up reached."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

from hpslurm.core import linear
from hpslurm.core.finding import NOISE, Event
from hpslurm.core.text import whole
from hpslurm.scan import prefix

Lines = list[tuple[int, str]]  # line number, text
WORKED = 2  # lines of work after a restart that show that it helped
RECENT = 3  # lines of work that show that it went on, not only began again

_LIFE = linear.compile(
    r"\d{1,3}%\|[^|]*\| *\d+/\d+|(?:loss|Loss)\b['\"]?(?: is)?[ :='\"]+\d|[Ee]poch(?: is)?[ :=\[]+\d+|(?:iter(?:ation)?|[Ss]tep)[ :=\[]+\d+[^\n]*(?:loss|time|lr|tok)|Init COMPLETE|"  # noqa: E501
    r"Training (?:complete|finished|done)|tokens?/s|it/s\]|s/it\]|(?:samples?|img|images?)/s|Avg bus bandwidth|Out of bounds values : 0 OK|"  # noqa: E501
    r"throughput[ :=]+\d|elapsed time per iteration|Destroy COMPLETE|"
    r"Connected after \d+ retries|Step created for StepId|Completed store-based barrier for|"
    r"\.\.\. passed$|All tests passed|Test [Pp]assed|now responding|"
    r":::ML\w|^\W*[Ss]tep[ :=\[]+\d+|\b\d+ ?/ ?\d+ (?:steps?|batches|iterations)\b|"
    r"\b(?:accuracy|acc(?:_?@?1)?|top-?1|perplexity|ppl|reward|grad[_ ]norm|learning[_ ]rate|lr|fps|img/sec|"
    r"(?:images|samples|sequences|tokens|frames|episodes)[ _](?:/|per[ _])sec\w*)\b['\"]?[ :='\"]+[-+]?\d|"
    r"\bSUCCEEDED\b|[Hh]ello,? (?:[Ww]orld )?from (?:rank |task |process(?:or)? |node )?\S+|"
    r"Running as primary controller|slurm(?:d|ctld|dbd)(?: version \S+)? started\b|ready for connections|"
    r"Startup finished in|Reached target (?:Multi-User|Graphical)|"
    r"Application startup complete|Uvicorn running on|HTTP/1\.\d\"? 200"
)
# A step whose own figures are none shows nothing but that the program still runs.
_NOT_A_NUMBER = linear.compile(r"(?i)(?:loss|grad(?:ient)?[ _]?norm)\W{0,4}nan\b")
# Of these, what shows work itself, not only a start.
_WORK = linear.compile(
    r"(?i):::ML\w|hello,? |passed|now responding|\bloss\b|\bepoch\b|\bstep\b|\biter(?:ation)?\b|tok(?:en)?s?/s|it/s"
    r"|s/it|(?:samples?|img|images?)/s"
)
# Of slurmctld and slurmd: a job or a step that was served.
_SERVES = linear.compile(
    r"launch task StepId=|Launching batch job \d|done with job$|_job_complete: JobId=\S+ done|sched: Allocate JobId"
    r"|sched/\w+: _?\w*[Ss]tart\w*:? [^\n]{0,40}JobId=|_slurm_rpc_submit_batch_job: JobId="
    r"|task \d+ \(\d+\) exited with exit code 0"
)
# NCCL's set-up chose how to talk to other nodes.
_CHOSEN = linear.compile(
    r"Using network (?!Socket)\w+|Using internal [Nn]etwork \w+|NET/(?:IB|Socket|OFI) ?: (?:Using \[|\d+ interfaces found)|Selected [Pp]rovider is (?!tcp|sockets)\w|Using transport protocol|Active: active \(running\)|\[c10d - debug\] The (?:server has started|client socket)"  # noqa: E501
)
_BAR = linear.compile(
    r"(?P<label>[^|%\r\n]{0,60}?)(?P<percent>\d{1,3})%\|[^|]*\| *(?P<done>[\d.]+\w*)/(?P<all>[\d.]+\w*) *"
    r"\[(?P<elapsed>[\d:]+)<[^\]]*?(?P<unit>[A-Za-z]+)/s"
)
# The program's own last words when all went as it should; Slurm's COMPLETED only says that the script returned.
_ENDED = linear.compile(
    r"(?i)^(?![^\n]*\b(?:not?|failed|failures?|errors?|killed|aborted|before|until|when|if)\b)[^\n]{0,200}(?:"
    r"\b(?:training|finetuning|trainer|fit|job|run|program|benchmark|experiment|all (?:tests|ranks|tasks|steps))\b"
    r"[^\n]{0,40}\b(?:finished|completed?|done|succeeded)\b(?: successfully)?"
    r"|\b(?:test|run)\b[^\n]{0,20}\bconcluded\b[^\n]{0,60}|\bstatus(?: is|:) SUCCEEDED"
    r"|\bEND(?:ING|ED)?\b[^\n]{0,20}\bRUN\b(?: AT)?[\d :/AP-]{0,30}M?|\"status\": ?\"success\"[^\n]{0,80}"
    r"|^(?:# )?Avg bus bandwidth *: [\d.]*[1-9][\d.]*"
    r"|[\w.-]{1,64} login:|\b[Ii]nstallation [^\n]{0,90}\b(?:is (?:now )?complete|completed|finished)"
    r"|\bEnd of run\b|\bFinalized processing group\b[^\n]{0,60}"
    r"|\brank ?\d+\]?:? (?:finished|done|completed)"
    r"|\bexit(?:ed)?(?: with)?(?: code| status)?[ :=]+0"
    r"|`max_(?:steps|epochs)=\d+` reached)[\s.!)]*$"
    r"|^(?:\W?\w+\W? )?(?:total|elapsed|overall) (?:training |run(?:ning)? ?|wall |elapsed )?time(?: taken)?"
    r"(?: \((?:s|sec|secs|seconds)\))?[ :=]+\d"
    r"[\d:.,]*"
    r" ?(?:s|sec|secs|seconds|m|min|minutes|h|hours)?[\s.]*$"
)
# What NCCL's processes say when they end, many lines of each.
_TORN_DOWN = linear.compile(
    r"NCCL INFO (?:comm \S+ rank \d+ [^\n]*(?:Abort|Destroy) COMPLETE"
    r"|\[Service thread\] Connection closed by localRank)"
)
_RESTART = linear.compile(r"(?i)\bwill restart (?:the )?worker group|\brestarting (?:the )?worker group")
LAST_WORDS = 12  # lines at the end of a file, among which they stand: other ranks still say theirs
_STEPS = linear.compile(r"(?i)\b(?:train\w*|epoch|step|iter\w*)\b|loss=|it\b")  # bars of the training itself


def events(path: str, lines: Lines) -> Iterator[Event]:
    yield from _signs(path, lines)
    yield from _serves(path, lines)
    yield from _bars(path, lines)
    yield from _proof(path, lines)
    yield from _last_words(path, lines)
    yield from _restarts(path, lines)


def _signs(path: str, lines: Lines) -> Iterator[Event]:
    """The first and the last sign of life; with the last goes where the last few began that show work."""
    alive = [(number, line) for number, line in lines if _LIFE.search(line) and not _NOT_A_NUMBER.search(line)]
    if not alive:
        return
    (first, began), (last, line) = alive[0], alive[-1]
    yield Event("life-began", NOISE, path, first, began[:300])
    mark = prefix.read(line)
    recent = [number for number, line in alive if _WORK.search(line)][-RECENT:]
    facts = (("recent", str(recent[0])),) if len(recent) == RECENT else ()
    yield Event("life", NOISE, path, last, line[:300], mark.time, mark.rank, mark.host, facts=facts)


def _serves(path: str, lines: Lines) -> Iterator[Event]:
    """Where the last three jobs began that a daemon of Slurm served: it went on, whatever became of one job."""
    served = [(number, line) for number, line in lines if _SERVES.search(line)]
    if len(served) >= RECENT:
        number, line = served[-RECENT]
        yield Event("serves", NOISE, path, served[-1][0], line[:300], facts=(("recent", str(number)),))


def _bars(path: str, lines: Lines) -> Iterator[Event]:
    """The last state of each bar of preparing work: which share is done, after how many seconds."""
    last: dict[str, Event] = {}
    for number, line in lines:
        for segment in line.split("\r") if "%|" in line else ():
            for match in _BAR.finditer(segment):
                if _STEPS.search(match["label"]) or _STEPS.search(match["unit"]):
                    continue
                label = re.sub(r"\W+", " ", match["label"])[-30:].strip()
                old = last.get(label)
                if old is None or (whole(old.fact("percent")) or 0) <= int(match["percent"]):
                    last[label] = _bar(path, number, segment, match)
    yield from last.values()


def _bar(path: str, number: int, segment: str, match: re.Match[str]) -> Event:
    mark = prefix.read(segment[: match.start("percent")])
    facts = (("percent", match["percent"]), ("elapsed", str(_seconds(match["elapsed"]))))
    return Event("progress", NOISE, path, number, segment[:300], mark.time, mark.rank, mark.host, facts=facts)


def _seconds(clock: str) -> int:
    """Of 1:02:03, or 02:03."""
    seconds = 0
    for part in clock.split(":"):
        seconds = seconds * 60 + (whole(part) or 0)
    return seconds


def _proof(path: str, lines: Lines) -> Iterator[Event]:
    for number, line in lines:
        if _CHOSEN.search(line):
            facts = (("what", "NCCL's set-up, as far as it is shown"),)
            yield Event("proof", NOISE, path, number, line[:300], facts=facts)
            return


def _restarts(path: str, lines: Lines) -> Iterator[Event]:
    """The last time that a launcher said that it starts its workers again, if they worked afterwards."""
    at = next((at for at in reversed(range(len(lines))) if _RESTART.search(lines[at][1])), None)
    if at is None:
        return
    number, said = lines[at]
    if sum(bool(_LIFE.search(line) and _WORK.search(line)) for _, line in lines[at:]) >= WORKED:
        yield Event("restart", NOISE, path, number, said[:300])


def _last_words(path: str, lines: Lines) -> Iterator[Event]:
    """Where a file ends with the words of a program that did what it should: the first line that says so."""
    spoken = (entry for entry in reversed(lines) if entry[1].strip() and not _TORN_DOWN.search(entry[1]))
    for number, line in reversed(list(islice(spoken, LAST_WORDS))):
        if _ENDED.search(line):
            yield Event("ended-well", NOISE, path, number, line[:300])
            return
