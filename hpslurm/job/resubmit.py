"""The line that submits a job again, on other nodes: with the script and the options that Slurm remembers of it.

Slurm joins the words of a line by blanks and keeps no quotes: a word with a blank in it comes out as two, and the user
puts the quotes back. What is not known for certain is left to the user as well, who puts the script in.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Sequence

from hpslurm.core.nodeset import NoNodeList, unfold
from hpslurm.core.text import clean
from hpslurm.show import screen
from hpslurm.sources.slurm import SlurmJob

UNKNOWN = "JOBSCRIPT"
EXCLUDE, NODELIST, NAME = ("-x", "--exclude"), ("-w", "--nodelist"), ("-J", "--job-name")
NO_JOB_SCRIPT = ("srun", "salloc")


def again(job: SlurmJob | None, nodes: Sequence[str], user: int) -> str:
    """What ``user`` types to run the job again without these nodes; empty for a job that no sbatch started.

    A script that somebody else wrote is never named: whoever copied the line would run it as themselves.
    """
    exclude = screen.exclude(nodes)
    unknown = " ".join(filter(None, ("sbatch", exclude, UNKNOWN)))
    if job is None or job.uid != user or job.array_job or job.het_job:
        return unknown
    line, command = _words(job.submit_line), _words(job.command)
    if line and os.path.basename(line[0]) in NO_JOB_SCRIPT:
        return ""
    whole = _whole_line(job, line, command, nodes) if exclude or not nodes else ""
    script = " ".join(filter(None, ("sbatch", exclude, shlex.join(command)))) if command else ""
    return next((made for made in (whole, script) if made and len(made) + screen.FIELD <= screen.COLUMNS), unknown)


def _words(text: str | None) -> list[str]:
    return text.split() if text and clean(text, len(text)) == text else []


def _whole_line(job: SlurmJob, line: list[str], command: list[str], nodes: Sequence[str]) -> str:
    """The submitted line with these nodes left out as well."""
    at = _script_in(line, command, job.name)
    if not at or os.path.basename(line[0]) != "sbatch":
        return ""
    script = command or line[at:]
    try:
        options, left_out = _without(line[1:at], EXCLUDE)
        _, asked_for = _without(options, NODELIST)
    except NoNodeList:
        return ""
    if {*nodes} & {*asked_for}:
        return ""
    option = screen.exclude(sorted({*nodes, *left_out}))
    if left_out and not option:
        return ""
    return " ".join(filter(None, ("sbatch", option, shlex.join([*options, *script]))))


def _script_in(line: Sequence[str], command: Sequence[str], name: str) -> int:
    """Where the script stands in the line: it has the command's words at its end, or a word gave the job its name."""
    for at in range(1, len(line)):
        called = os.path.basename(line[at])
        if command and called == os.path.basename(command[0]) and line[at + 1 :] == command[1:]:
            return at
        if not command and called == name and line[at - 1] not in NAME:
            return at
    return 0


def _without(options: Iterable[str], names: tuple[str, str]) -> tuple[list[str], list[str]]:
    """The options but for these, and the nodes that they name. Raises NoNodeList."""
    short, long = names
    kept, nodes, next_is = [], [], False
    for word in options:
        value = word if next_is else _value(word, short, long)
        if value is None and word not in names:
            kept.append(word)
        elif value:
            nodes += unfold(value)
        next_is = not next_is and word in names
    return kept, nodes


def _value(word: str, short: str, long: str) -> str | None:
    if word.startswith(f"{long}="):
        return word.removeprefix(f"{long}=")
    return word[2:] if word.startswith(short) and len(word) > 2 else None
