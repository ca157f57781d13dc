"""Steps of nccl-tests while they run: their lines are read as they come, kept in files, and shown as progress."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TextIO

from hpslurm.core.text import clean
from hpslurm.nccl_tests import steps
from hpslurm.nccl_tests.stopped import start_trouble
from hpslurm.nccl_tests.verdict import Facts
from hpslurm.nccl_tests.words import size_name
from hpslurm.scan.nccl_tests import NcclLog, Reader, Row, read_nccl_lines
from hpslurm.show.progress import Progress
from hpslurm.sources import launch

MOST_FIRST_LINES = 10
Warn = Callable[[str], None]


def _new_file(path: str) -> TextIO:
    """A file of our own, in a folder that others may write: no link is followed, one that is there is replaced."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.fdopen(os.open(path, flags, 0o644), "w", encoding="utf-8", errors="replace")


class StepOutput:
    """What one step has printed so far, and how it ended; its lines are kept in a file, too."""

    def __init__(self, step: launch.Step, folder: str) -> None:
        self.step = step
        self.reader = Reader(step.name)
        self.end: launch.End | None = None
        self.row: Row | None = None
        self.first_lines: list[str] = []
        self.file = _new_file(os.path.join(folder, f"{step.name}.out")) if folder else None

    def take(self, event: launch.Line | launch.End) -> None:
        if isinstance(event, launch.End):
            self.end = event
            if self.file:
                self.file.close()
            return
        if self.file:
            self.file.write(f"{event.text}\n")
        if len(self.first_lines) < MOST_FIRST_LINES:
            self.first_lines.append(clean(event.text))
        self.row = self.reader.feed(event.text) or self.row

    def progress(self) -> str:
        if self.row is None:
            return f"{self.step.name}: starting"
        rate = min(half.busbw for half in self.row.halves)
        return f"{self.step.name}: {size_name(self.row.size)} {rate:.1f} GB/s"


def run_steps(
    wanted: Sequence[launch.Step], where: launch.Allocation, most: int, folder: str, what: str = ""
) -> Iterator[StepOutput]:
    """Run steps side by side; yields each when it has ended. ``what`` begins the line of progress."""
    outputs = {step.name: StepOutput(step, folder) for step in wanted}
    progress, over = Progress(), 0
    try:
        for event in launch.run(wanted, where, most):
            output = outputs[event.step.name]
            output.take(event)
            if isinstance(event, launch.End):
                over += 1
                progress.done()
                yield output
            else:
                count = f"{over} of {len(wanted)} done, " if len(wanted) > 1 else ""
                progress.say(f"{what}{count}{output.progress()}")
    finally:
        progress.done()


def facts_of(ended: StepOutput, name: str, nodes: int, gpus: int, folder: str, warn: Warn) -> Facts:
    """What a step that has ended came to, with NCCL's own lines. ``name`` is the instance type."""
    output = ended.reader.output
    read_logs(steps.log_files(folder, ended.step.name), output.log, warn)
    end = ended.end
    timed_out = ended.step.seconds if end is not None and end.timed_out and end.started else 0.0
    if end is not None and not end.started:
        output.launcher.insert(0, end.why)
    return Facts(output, name, nodes, gpus, end.status if end else None, timed_out)


def read_logs(paths: Iterable[str], log: NcclLog, warn: Warn) -> None:
    """Take what files of NCCL_DEBUG_FILE tell."""
    for path in paths:
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                read_nccl_lines(file, log)
        except OSError as error:
            warn(f"{path}: {error.strerror}")


def why_no_table(ended: StepOutput) -> str:
    """What a run said that printed no table, and what to do about it where that is known."""
    text = "The first one said:\n" + ("\n".join(ended.first_lines) or (ended.end.why if ended.end else ""))
    trouble = start_trouble(ended.reader.output)
    if trouble is not None:
        text += f"\n{trouble.detail}" + "".join(f"\n  {item.why}: {item.command}" for item in trouble.suggestions)
    return text
