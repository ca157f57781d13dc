"""Reports of performance: a rank's score below the threshold, the slowest far behind the fastest."""

from __future__ import annotations

import re
from collections.abc import Iterator

from hpslurm.core.finding import Event
from hpslurm.core.text import whole
from hpslurm.scan.model import evidence

Lines = list[tuple[int, str]]  # line number, text
STRAGGLER_SCORE = 0.7  # the default threshold of NVRx
STRAGGLER_RATIO = 1.2
_SCORE = re.compile(r"Rank=(\d+) Node=(\S+) Score=(\d+(?:\.\d+)?)")
_MEGATRON = re.compile(r"MnRtt/Rnk: (\d+(?:\.\d+)?)ms/(\d+) \| MxRtt/Rnk: (\d+(?:\.\d+)?)ms/(\d+)")


def events(path: str, lines: Lines) -> Iterator[Event]:
    for number, line in lines:
        if (match := _SCORE.search(line)) and float(match[3]) < STRAGGLER_SCORE:
            yield evidence("score-low", path, number, line.strip()[:200], rank=whole(match[1]), host=match[2])
        elif (match := _MEGATRON.search(line)) and float(match[3]) > STRAGGLER_RATIO * float(match[1]):
            yield evidence("rtt-high", path, number, line.strip()[:300], rank=whole(match[4]))
