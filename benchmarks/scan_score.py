"""Scores ``scan`` on a folder of cases: an index.yaml-like list of truths and the logs beside it.

    python benchmarks/scan_score.py tests/scan/corpus
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from hpslurm.scan.collect import scan
from hpslurm.scan.reason import reason


def load(folder: Path) -> list[dict[str, Any]]:
    if (folder / "index.json").exists():
        return json.loads((folder / "index.json").read_text())["cases"]  # type: ignore[no-any-return]
    import yaml  # type: ignore[import-untyped,unused-ignore]

    return yaml.safe_load((folder / "index.yaml").read_text())["cases"]  # type: ignore[no-any-return]


def culprit_right(wanted: dict[str, Any], culprit: Any) -> bool:
    if culprit is None:
        return False
    given = {str(value).lower() for value in vars(culprit).values() if value is not None}
    return any(str(value).lower() in given for value in wanted.values())


def main(folder: Path, verbose: bool) -> int:
    right = wrong = culprits = wanted = 0
    for case in load(folder):
        diagnosis = reason(scan([str(folder / case["file"])]).result())
        fine = diagnosis.cause == case["cause"] or diagnosis.cause in case.get("also_acceptable", ())
        right += fine
        named = diagnosis.cause in case.get("must_not_name", ()) or (case["healthy"] and diagnosis.cause not in ("healthy", "undetermined") and not fine)
        wrong += named
        mark = "" if fine else "WRONG "
        if named:
            mark += "FORBIDDEN "
        if case.get("culprit_key"):
            wanted += 1
            if culprit_right(case["culprit_key"], diagnosis.culprit):
                culprits += 1
            else:
                mark += f"CULPRIT want {case['culprit_key']} got {diagnosis.culprit} "
        if mark or verbose:
            decisive = diagnosis.decisive
            print(f"{case['id']} {mark}want {case['cause']} got {diagnosis.cause} ({diagnosis.confidence}) by "
                  f"{decisive.pattern if decisive else '-'} line {decisive.line if decisive else '-'}: {decisive.text[:110] if decisive else ''}")  # fmt: skip
    total = len(load(folder))
    print(f"causes {right} of {total}, must-not-name {wrong}, culprits {culprits} of {wanted}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1]), "-v" in sys.argv))
