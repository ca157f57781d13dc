"""Every reader of foreign text on input made at random from what it reads: no crash, and time that its length explains.

    python tests/fuzz.py [--count 100000] [--seed 1] [--only scan]

An input is made from the seed, the reader's name and its number, so each can be made again, and a run can be taken
up where it ended (--first). A failure names the three.
"""

from __future__ import annotations

import argparse
import io
import json
import random
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from hpslurm.bundle.masking import Masker
from hpslurm.core import nodeset, records, toml
from hpslurm.core.probe import Unknown
from hpslurm.core.text import clean
from hpslurm.node import kernel_faults, names, oom, xid_table
from hpslurm.node.xid_lines import parse
from hpslurm.scan import flight, nccl_tests, prefix, ras
from hpslurm.scan.collect import Collector
from hpslurm.scan.patterns import table
from hpslurm.scan.reason import reason
from hpslurm.sources import gpu, slurm
from hpslurm.sources.kmsg import Record

MOST = 8192  # characters of an input
SLOW = 2.0  # seconds of CPU that no input of that size may take
ODD = (
    "\0",
    "\n",
    "\r",
    "\t",
    "\x1b[31m",
    "\x85",
    "\u2028",
    "\u061c",
    "\ud800",
    "é",
    "日",
    "=",
    "|",
    "[",
    "]",
    "9" * 30,
)


def _scan(text: str) -> None:
    collector = Collector(fast=False)
    collector.stream(io.BytesIO(text.encode("utf-8", "replace")), "x.log")
    reason(collector.result())


def _kernel(text: str) -> None:
    lines = [Record(number, 1.0, 2.0, 3, line) for number, line in enumerate(text.split("\n"))]
    for line in lines:
        parse(line)
        for _, pattern in kernel_faults.KINDS:
            pattern.match(line.text)
    list(oom.kills_of(lines))


def _slurm(text: str) -> None:
    for read in (slurm.queue_of_text, slurm.jobs_of_sacct, slurm.controllers_of_text):
        list(read(text))
    slurm.config_of_text(text)


def _policy(text: str) -> None:
    if toml.plain(text) is None:
        toml.loads(text)


def _record(text: str) -> None:
    record = records.parse(text, "n1", "prolog")
    records.encode({"run": record.run, "notes": [one.note for one in record.results]}).encode("utf-8")


READERS: dict[str, tuple[Callable[[str], object], tuple[type[Exception], ...]]] = {
    # what reads, and which exceptions say that the text is none of its kind
    "scan": (_scan, ()),
    "prefix": (prefix.read, ()),
    "mask": (lambda text: Masker().mask(text), ()),
    "clean": (lambda text: clean(text).encode("utf-8"), ()),
    "kernel": (_kernel, ()),
    "record": (_record, ()),
    "slurm": (_slurm, ()),
    "nodes": (nodeset.names_in, ()),
    "policy": (_policy, (ValueError,)),
    "nccl-tests": (lambda text: nccl_tests.read_text(text), (ValueError,)),
    "ras": (lambda text: ras.json_events(text.encode("utf-8", "replace"), "x"), ()),
    "dump": (lambda text: flight.load(io.BytesIO(text.encode("latin-1", "replace"))), (flight.NotADump,)),
    "nvml": (lambda text: gpu.from_lines(text.split("\n")), (Unknown,)),
    "addresses": (names.addresses, ()),
}


def seeds() -> list[str]:
    """Texts that the readers know: a piece of each goes into the inputs."""
    here = Path(__file__).parent
    texts = [row.example for row in table().patterns]
    texts += [row["example"] for row in toml.table("masking")]
    texts += [f"NVRM: Xid (PCI:0000:a8:00): {row.example}" for row in xid_table.xids().values()]
    texts += [
        path.read_text(errors="replace")[:2000]
        for path in sorted(here.glob("scan/nccl_tests/*"))[:20]
        if path.is_file()
    ]
    texts += [
        "n[1-1000000000]",
        "ip-10-1-0-[3,7]",
        "gate = ['x']\n[[mutes]]\nrule = 'a'\n",
        "Prolog = /a/*.sh",
        "(null)",
    ]
    texts += [
        "4711|RUNNING|alice|1000|gpu|2|2025-11-30T03:11:02|N/A|n[1-2]|None",
        '{"step":"remap","gpu":0,"value":[0,0,0,0]}',
    ]
    texts += [json.dumps({"type": "result", "probe": "efa", "outcome": "pass"}), '{"type":"run"}', '{"type":"end"}']
    return texts


def inputs(reader: str, seed: int, numbers: Iterable[int]) -> Iterable[tuple[int, str]]:
    known = seeds()
    for number in numbers:
        chance = random.Random(f"{reader}:{seed}:{number}")
        yield number, _made(chance, known)


def _made(chance: random.Random, known: list[str]) -> str:
    pieces: list[str] = []
    for _ in range(chance.randint(1, 6)):
        text = chance.choice(known)
        first = chance.randrange(len(text) + 1)
        piece = text if chance.random() < 0.5 else text[first : first + chance.randint(1, 40)]
        pieces.append(piece * (chance.choice((1, 1, 1, 3, 300)) if len(piece) < 60 else 1))
        pieces.append(chance.choice((*ODD, "", " ", "\n", "\n")) * chance.choice((1, 1, 50)))
    return "".join(pieces)[:MOST]


def run(reader: str, seed: int, numbers: Iterable[int]) -> list[str]:
    """What went wrong, a line each."""
    read, refusals = READERS[reader]
    wrong = []
    for number, text in inputs(reader, seed, numbers):
        began = time.process_time()
        try:
            read(text)
        except refusals:
            pass
        except Exception as error:
            wrong.append(f"{reader}, seed {seed}, number {number}: {type(error).__name__}: {clean(str(error), 100)}")
        if (took := time.process_time() - began) > SLOW:
            wrong.append(f"{reader}, seed {seed}, number {number}: {took:.1f} s for {len(text)} characters")
    return wrong


def main() -> int:
    given = argparse.ArgumentParser(description="try every reader on random input")
    given.add_argument("--count", type=int, default=100_000)
    given.add_argument("--first", type=int, default=0)
    given.add_argument("--seed", type=int, default=1)
    given.add_argument("--only", choices=sorted(READERS))
    asked = given.parse_args()
    bad = 0
    for reader in [asked.only] if asked.only else READERS:
        began = time.monotonic()
        wrong = run(reader, asked.seed, range(asked.first, asked.first + asked.count))
        print(f"{reader}: {asked.count} inputs in {time.monotonic() - began:.0f} s, {len(wrong)} wrong", flush=True)
        print(*wrong[:20], sep="\n", end="\n" if wrong else "")
        bad += len(wrong)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
