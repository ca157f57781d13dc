"""Scores ``scan`` on folders of cases: index.toml with the truths, and the logs beside it.

    python benchmarks/scan_score.py [-v] [FOLDER ...]       default: every folder of tests/scan that has cases

One line a folder: causes right, of those said with high confidence how many are right, healthy logs called healthy
and logs of any kind wrongly called healthy, culprits named, causes named that must not be. -v lists every miss.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from hpslurm.core import toml
from hpslurm.core.finding import Diagnosis
from hpslurm.core.values import dataclass
from hpslurm.scan.collect import scan
from hpslurm.scan.reason import HEALTHY, UNDETERMINED, reason

SETS = Path(__file__).parents[1] / "tests" / "scan"


@dataclass(frozen=True)
class Score:
    """One case, answered. ``culprit`` is None where the truth names nobody."""

    case: dict[str, Any]
    diagnosis: Diagnosis
    right: bool
    forbidden: bool
    culprit: bool | None

    @property
    def high(self) -> bool:
        return self.diagnosis.confidence == "high" and self.diagnosis.cause not in (HEALTHY, UNDETERMINED)


def score(folder: Path, case: dict[str, Any]) -> Score:
    diagnosis = reason(scan([str(folder / case["file"])]).result())
    right = diagnosis.cause == case["cause"] or diagnosis.cause in case.get("also", ())
    accused = case.get("healthy") and not right and diagnosis.cause != UNDETERMINED
    forbidden = diagnosis.cause in case.get("never", ()) or bool(accused)
    wanted = case.get("culprit")
    return Score(case, diagnosis, right, forbidden, names_it(wanted, diagnosis) if wanted else None)


def bare(address: str) -> str:
    """A PCI address without its function and without leading zeros of the domain."""
    return address.removesuffix(".0").lstrip("0")


def names_it(wanted: dict[str, Any], diagnosis: Diagnosis) -> bool:
    """Whether one of the wanted names stands in the culprit; a PCI address may be written long or short."""
    if diagnosis.culprit is None:
        return False
    given = {str(value).lower() for value in vars(diagnosis.culprit).values() if value is not None}
    for value in wanted.values():
        text = str(value).lower()
        if text in given or any(":" in text and bare(one).endswith(bare(text)) for one in given if ":" in one):
            return True
        if any(one.split(".")[0] == text.split(".")[0] and not one[0].isdigit() for one in given):
            return True
    return False


def cases(folder: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = toml.loads((folder / "index.toml").read_text(encoding="utf-8"))["case"]
    return found


def summary(name: str, scores: list[Score]) -> str:
    high = [one for one in scores if one.high]
    healthy = [one for one in scores if one.case["cause"] == HEALTHY]
    blind = [one for one in scores if one.diagnosis.cause == HEALTHY and not one.right]
    culprits = [one for one in scores if one.culprit is not None]
    return (
        f"{name:12} right {sum(one.right for one in scores)}/{len(scores)}"
        f"  high {sum(one.right for one in high)}/{len(high)}"
        f"  healthy {sum(one.right for one in healthy)}/{len(healthy)}, falsely healthy {len(blind)}"
        f"  culprits {sum(bool(one.culprit) for one in culprits)}/{len(culprits)}"
        f"  forbidden {sum(one.forbidden for one in scores)}"
    )


def misses(scores: list[Score]) -> Iterator[str]:
    for one in scores:
        marks = [*([] if one.right else ["WRONG"]), *(["FORBIDDEN"] if one.forbidden else [])]
        if one.culprit is False:
            marks.append(f"CULPRIT want {one.case['culprit']} got {one.diagnosis.culprit}")
        if marks:
            said = one.diagnosis
            by = f"{said.decisive.pattern}:{said.decisive.line}" if said.decisive else "-"
            yield (
                f"  {one.case['id']} {' '.join(marks)}: want {one.case['cause']}"
                f" got {said.cause} ({said.confidence}) by {by}"
            )


def main(words: list[str]) -> int:
    folders = [Path(word) for word in words if not word.startswith("-")]
    folders = folders or sorted(path.parent for path in SETS.glob("**/index.toml"))
    everything: list[Score] = []
    for folder in folders:
        scores = [score(folder, case) for case in cases(folder)]
        everything += scores
        print(summary(folder.name, scores))
        if "-v" in words:
            print("\n".join(misses(scores)))
    if len(folders) > 1:
        print(summary("all", everything))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
