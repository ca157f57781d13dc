"""Public outputs of nccl-tests: what people said of each is what judge says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hpslurm.core import toml
from hpslurm.core.policy import Policy
from hpslurm.nccl_tests import judge
from hpslurm.nccl_tests.verdict import Facts
from hpslurm.scan.nccl_tests import read_text

FOLDER = Path(__file__).parent / "public"
CASES = toml.loads((FOLDER / "index.toml").read_text())["case"]


@pytest.mark.parametrize("case", CASES, ids=[case["file"] for case in CASES])
def test_judge_says_what_people_said(case: dict[str, Any]) -> None:
    output = read_text((FOLDER / case["file"]).read_text(), case["file"])
    found = judge.verdict(Facts(output, case["type"]), Policy())
    ids = {finding.rule.id for finding in found.findings}
    assert (case["words"], set(case["ids"]), set()) == (found.words, set(case["ids"]) & ids, set(case["never"]) & ids)


def test_every_file_has_its_case() -> None:
    assert {case["file"] for case in CASES} == {path.name for path in FOLDER.glob("*.txt")}
