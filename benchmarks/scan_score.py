"""Scores ``scan`` on a folder of cases: index.toml with the truths, and the logs beside it.

python benchmarks/scan_score.py tests/scan/corpus [-v]
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from hpslurm.core import toml
from hpslurm.core.finding import Diagnosis
from hpslurm.scan.collect import scan
from hpslurm.scan.reason import reason


def culprit_right(wanted: dict[str, Any], diagnosis: Diagnosis) -> bool:
    if diagnosis.culprit is None:
        return False
    given = {str(value).lower() for value in vars(diagnosis.culprit).values() if value is not None}
    return any(str(value).lower() in given for value in wanted.values())


def main(folder: Path, verbose: bool) -> int:
    cases = toml.loads((folder / "index.toml").read_text(encoding="utf-8"))["case"]
    right = forbidden = culprits = wanted = 0
    for case in cases:
        diagnosis = reason(scan([str(folder / case["file"])]).result())
        fine = diagnosis.cause == case["cause"] or diagnosis.cause in case.get("also", ())
        accused = case.get("healthy") and not fine and diagnosis.cause != "undetermined"
        bad = diagnosis.cause in case.get("never", ()) or accused
        right, forbidden = right + fine, forbidden + bool(bad)
        mark = ("" if fine else "WRONG ") + ("FORBIDDEN " if bad else "")
        if "culprit" in case:
            wanted += 1
            named = culprit_right(case["culprit"], diagnosis)
            culprits += named
            mark += "" if named else f"CULPRIT want {case['culprit']} got {diagnosis.culprit} "
        if mark or verbose:
            by = f"{diagnosis.decisive.pattern}:{diagnosis.decisive.line}" if diagnosis.decisive else "-"
            print(f"{case['id']} {mark}want {case['cause']} got {diagnosis.cause} ({diagnosis.confidence}) by {by}")
    print(f"causes {right} of {len(cases)}, must-not-name {forbidden}, culprits {culprits} of {wanted}")
    return 0


if __name__ == "__main__":
    folders = [Path(word) for word in sys.argv[1:] if not word.startswith("-")]
    raise SystemExit(main(folders[0] if folders else Path("tests/scan/corpus"), "-v" in sys.argv))
