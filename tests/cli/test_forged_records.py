"""Records that say anything at all: no command breaks, and nothing of them reaches the terminal as a control."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from hpslurm.cli import diagnose, metrics, report, what_if
from tests.cli.test_diagnose import SCONTROL

ESCAPES = "\x1b]0;evil\x07\x1b[31m\x9b31m\u202e\r"
CONTROLS = set(ESCAPES) - set("]0;evil[31m")
STRANGE = [None, [], {}, f"x{ESCAPES}", -1, 1e300, True, [ESCAPES], {ESCAPES: ESCAPES}, "9" * 5000, [[1]], ["a", "b"]]
UUID = "GPU-12345678-1234-1234-1234-123456789abc"
LINES: list[dict[str, Any]] = [
    {"schema": 1, "type": "run", "hook": "prolog", "node": "n1", "instance": "i-1", "boot": "b", "job": 7,
     "restart": 0, "time": 4000000000, "exit_code": "1:0", "policy_problems": ["x"]},
    {"schema": 1, "type": "result", "probe": "memlock", "outcome": "fail", "note": "n", "seconds": 0.1,
     "facts": {"whose": "slurmd", "soft": 1}},
    {"schema": 1, "type": "finding", "id": "memlock-low", "priority": "P1", "title": "t", "reference": "r",
     "cause": "", "subject": "n1", "detail": "d", "evidence": [{"source": "s", "text": "t"}],
     "suggestions": [{"step": "look", "why": "w", "command": "c {nodes}"}], "muted": ""},
    {"schema": 1, "type": "result", "probe": "gpu_driver", "outcome": "pass", "note": "", "seconds": 0.1,
     "facts": {"gpus": [{"uuid": UUID, "index": 0}]}},
    {"schema": 1, "type": "event", "pattern": "nccl-timeout", "role": "root", "file": "f", "line": 3,
     "text": "NCCL WARN timeout", "time": 4000000000.0, "rank": 1, "host": "n1", "cause": "timeout", "weight": 5,
     "count": 1, "facts": [["a", "b"]]},
    {"schema": 1, "type": "end", "pass": 1, "fail": 1, "findings": 1, "gated": []},
]  # fmt: skip


def forged(dice: random.Random) -> str:
    lines = json.loads(json.dumps(LINES))
    for _ in range(dice.choice([1, 1, 2, 5])):
        line = dice.choice(lines)
        key = dice.choice(sorted(line))
        inside = line[key][0] if isinstance(line[key], list) and line[key] else line[key]
        if isinstance(inside, dict) and inside and dice.random() < 0.5:
            inside[dice.choice(sorted(inside))] = dice.choice(STRANGE)
        elif key != "type" or dice.random() < 0.1:
            line[key] = dice.choice(STRANGE)
    text = "\n".join(map(json.dumps, lines)) + "\n"
    return text[: dice.randrange(len(text))] if dice.random() < 0.1 else text


@pytest.mark.parametrize("start", range(4))
def test_whatever_stands_in_a_record_is_shown_harmlessly(
    tmp_path: Path, write: Callable[..., Path], start: int
) -> None:
    root, results = str(tmp_path / "root"), tmp_path / "results"
    write("root/opt/slurm/bin/scontrol", "#!/bin/sh\n" + SCONTROL, 0o755)
    write("root/opt/slurm/bin/squeue", "#!/bin/sh\n", 0o755)
    policy = str(write("policy.toml", f"results = '{results}'\n"))
    tries = {
        report.command: [["7", "--results", str(results), "--root", root], ["--gpu", UUID, "--results", str(results)]],
        diagnose.command: [["--root", root, "--policy", policy, "--no-aws"]],
        what_if.command: [["--policy", policy, "--records", str(results)]],
        metrics.command: [["--policy", policy], ["--shared", "--results", str(results)]],
    }
    dice = random.Random(start)
    for _ in range(10):
        for node in ("n1", "n2"):
            for place in ("jobs/7", "nodes"):
                write(f"results/{place}/{node}.prolog.jsonl", forged(dice))
        for command, lines in tries.items():
            for words in lines:
                done = CliRunner().invoke(command, words)
                assert isinstance(done.exception, (SystemExit, type(None))), (words, done.exception)
                assert done.output, words
                assert set() == CONTROLS & set(done.output), done.output
