"""The cases on disk, and how a log looks after it has passed through other hands."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

from hpslurm.core import toml
from hpslurm.core.finding import NOISE, Diagnosis, Event
from hpslurm.scan import model
from hpslurm.scan.case import Case
from hpslurm.scan.collect import Collector
from hpslurm.scan.patterns import table
from hpslurm.scan.reason import reason

HERE = Path(__file__).parent
CORPUS = toml.loads((HERE / "corpus" / "index.toml").read_text(encoding="utf-8"))["case"]
WRITTEN = toml.loads((HERE / "written.toml").read_text(encoding="utf-8"))["case"]
HEALTHY = HERE / "healthy.log"


def log_of(case: dict[str, Any]) -> bytes:
    if "log" in case:
        return case["log"].strip("\n").encode() + b"\n"
    return (HERE / "corpus" / case["file"]).read_bytes()


def events_of(data: bytes, name: str = "job.out", *, fast: bool = True) -> list[Event]:
    collector = Collector(fast=fast)
    collector.stream(io.BytesIO(data), name)
    return collector.result()


def diagnose(data: bytes, name: str = "job.out", *, fast: bool = True) -> Diagnosis:
    return reason(events_of(data, name, fast=fast))


def accepted(case: dict[str, Any]) -> set[str]:
    return {case["cause"], *case.get("also", ())}


def names(diagnosis: Diagnosis) -> set[str]:
    """Everything that the culprit names, as text."""
    if diagnosis.culprit is None:
        return set()
    return {str(value).lower() for value in vars(diagnosis.culprit).values() if value is not None}


def rename(text: str) -> str:
    """Other ranks, hosts, pids and dates of the same shapes; what belongs together stays together."""
    shifted = lambda match: match[1] + str(int(match[2]) + 3)  # noqa: E731
    text = re.sub(r"(\b[Rr]anks? |\[rank|localRank |local_rank: |Rank=)(\d+)", shifted, text)
    text = re.sub(r"(pid=|pid |Pid +)(\d{3,})", shifted, text)
    text = re.sub(r"\b20(\d\d)-", lambda match: f"20{(int(match[1]) + 1) % 100:02d}-", text)
    return re.sub(r"\b(ip-)\d+-\d+-(\d+)-(\d+)", r"\g<1>192-168-\2-\3", text)


def labelled(text: str) -> str:
    return "".join(f" 0: {line}\n" for line in text.splitlines())


def torchrun(text: str) -> str:
    return "".join(f"[default0]:{line}\n" for line in text.splitlines())


def healthy_lines(count: int, first: int = 0) -> str:
    lines = HEALTHY.read_text(encoding="utf-8").splitlines()
    return "".join(lines[(first + index) % len(lines)] + "\n" for index in range(count))


def patterns_of(text: str, name: str = "job.out") -> list[str]:
    """The kinds of the roots and symptoms in a log."""
    return [event.pattern for event in events_of(text.encode(), name) if event.role != NOISE]


def case_of(*events: Event) -> Case:
    return Case(events, table(), model.numbers())


def known(pattern: str, line: int = 1, **fields: Any) -> Event:
    """An event as a row of patterns.toml makes it; ``fields`` say the rest."""
    row = table().by_id[pattern]
    given = {"role": row.role, "cause": row.cause, "weight": row.weight, "file": "job.out", "text": f"{pattern} {line}"}
    return Event(pattern=pattern, line=line, **{**given, **fields})
