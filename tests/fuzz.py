"""Every reader of foreign text on input made at random from what it reads: no crash, and time that its length explains.

    python tests/fuzz.py [--count 100000] [--seed 1] [--only scan]

An input is made from the seed, the reader's name and its number, so each can be made again, and a run can be taken
up where it ended (--first). A failure names the three. Half of the inputs are what a reader is for, changed in some
places, so that they come further than its door; how many it did not refuse is counted.
"""

from __future__ import annotations

import argparse
import random
import re
import resource
import signal
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

from hpslurm.core.text import clean
from tests.readers import READERS, known

MOST = 8192  # characters of an input
SLOW = 2.0  # seconds of CPU that no input of that size may take
HOPELESS = 20.0  # seconds of CPU after which one is given up
MEMORY = 1 << 30  # bytes that an input may take
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
ODD_VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 1 << 31, 1 << 64, 10**400, 0.5, 1e308, float("nan"), float("inf"), "", "x" * 300, "n[1-9", "-",
    "\0\u2028", "=HYPERLINK(1)", "\ud800", [], {}, [[]], [None], {"": None}, [1] * 300,
)  # fmt: skip


@dataclass
class Outcome:
    read: int  # inputs that were not refused
    wrong: list[str]  # a line each


# making


def inputs(reader: str, seed: int, numbers: Iterable[int]) -> Iterator[tuple[int, str]]:
    own, pieces = READERS[reader].texts(), known()
    texts = [text if isinstance(text, str) else READERS[reader].written(text) for text in own]
    for number in numbers:
        chance = random.Random(f"{reader}:{seed}:{number}")
        if chance.random() < 0.5:
            yield number, _mixed(chance, pieces, texts)
            continue
        text = chance.choice(own)
        if not isinstance(text, str):
            text = READERS[reader].written(_with_odd_values(chance, text))
            if chance.random() < 0.7:
                yield number, text[:MOST]
                continue
        yield number, _with_odd_places(chance, text)[:MOST]


def _mixed(chance: random.Random, *choices: list[str]) -> str:
    """Pieces of lines, one behind another, some of them again and again."""
    made: list[str] = []
    for _ in range(chance.randint(1, 6)):
        text = chance.choice(chance.choice(choices))
        first = chance.randrange(len(text) + 1)
        piece = text if chance.random() < 0.5 else text[first : first + chance.randint(1, 40)]
        made.append(piece * (chance.choice((1, 1, 1, 3, 300)) if len(piece) < 60 else 1))
        made.append(chance.choice((*ODD, "", " ", "\n", "\n")) * chance.choice((1, 1, 50)))
    return "".join(made)[:MOST]


def _with_odd_places(chance: random.Random, text: str) -> str:
    """A text with some pieces taken out, put in twice, in another place, or made odd."""
    for _ in range(chance.randint(1, 4)):
        first = chance.randrange(len(text) + 1)
        last = first + chance.randint(0, 40)
        numbers = list(re.finditer(r"\d+", text[first : first + 500]))
        what = chance.randrange(6)
        if what == 0:
            text = text[:first] + text[last:]
        elif what == 1:
            text = text[:last] + text[first:last] * chance.choice((1, 3, 100)) + text[last:]
        elif what == 2:
            text = text[:first] + chance.choice(ODD) + text[first:]
        elif what == 3 and numbers:
            number = chance.choice(numbers)
            odd = chance.choice(("", "-1", "0", "99999999999", "1e9", "٣", "²", "9" * 5000))
            text = text[: first + number.start()] + odd + text[first + number.end() :]
        elif what == 4:
            text = text[:first] + chr(chance.randrange(256)) + text[first + 1 :]
        else:
            text = text[:first]
    return text


def _with_odd_values(chance: random.Random, value: Any) -> Any:
    """Plain values, some of them replaced, taken out or repeated."""
    for _ in range(chance.randint(1, 3)):
        value = _one_odd(chance, value)
    return value


def _one_odd(chance: random.Random, value: Any) -> Any:
    if not isinstance(value, (dict, list, tuple)) or not value or chance.random() < 0.1:
        return chance.choice(ODD_VALUES)
    if isinstance(value, dict):
        key = chance.choice(list(value))
        if chance.random() < 0.1:
            return {name: item for name, item in value.items() if name != key}
        return {**value, key: _one_odd(chance, value[key])}
    place = chance.randrange(len(value))
    items = list(value)
    if chance.random() < 0.2:
        items[place : place + 1] = [items[place]] * chance.choice((0, 2, 100))
    else:
        items[place] = _one_odd(chance, items[place])
    return items


# trying


class Hopeless(Exception):
    """It did not end."""


def _give_up(signum: int, frame: FrameType | None) -> None:
    raise Hopeless(f"not read within {HOPELESS:g} s")


@contextmanager
def _bounds() -> Iterator[None]:
    """On memory, and on the time of each input (see ``_try``)."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm", encoding="ascii") as file:
        now = int(file.read().split()[0]) * resource.getpagesize()
    kept = signal.signal(signal.SIGPROF, _give_up)
    resource.setrlimit(resource.RLIMIT_AS, (now + MEMORY, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
        signal.signal(signal.SIGPROF, kept)


def run(reader: str, seed: int, numbers: Iterable[int]) -> Outcome:
    outcome = Outcome(0, [])
    with _bounds():
        for number, text in inputs(reader, seed, numbers):
            _try(reader, text, f"{reader}, seed {seed}, number {number}", outcome)
    return outcome


def _try(reader: str, text: str, name: str, outcome: Outcome) -> None:
    began = time.process_time()
    signal.setitimer(signal.ITIMER_PROF, HOPELESS)
    try:
        READERS[reader].read(text)
        outcome.read += 1
    except READERS[reader].refusals:
        pass
    except Exception as error:
        outcome.wrong.append(f"{name}: {type(error).__name__}: {clean(str(error), 100)}")
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    if (took := time.process_time() - began) > SLOW:
        outcome.wrong.append(f"{name}: {took:.1f} s for {len(text)} characters")


def main() -> int:
    given = argparse.ArgumentParser(description="try every reader on random input")
    given.add_argument("--count", type=int, default=100_000)
    given.add_argument("--first", type=int, default=0)
    given.add_argument("--seed", type=int, default=1)
    given.add_argument("--only", choices=sorted(READERS))
    asked = given.parse_args()
    bad = 0
    for reader in [asked.only] if asked.only else READERS:
        began, used = time.monotonic(), time.process_time()
        outcome = run(reader, asked.seed, range(asked.first, asked.first + asked.count))
        took = f"{time.monotonic() - began:.0f} s ({time.process_time() - used:.0f} s of CPU)"
        print(f"{reader}: {asked.count} inputs in {took}, {outcome.read} read, {len(outcome.wrong)} wrong", flush=True)
        print(*outcome.wrong[:20], sep="\n", end="\n" if outcome.wrong else "")
        bad += len(outcome.wrong)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
