"""Sockets where EFA was meant."""

from __future__ import annotations

import pytest

from tests.scan.cases import patterns_of


@pytest.mark.parametrize("lines, wanted", [
    ("NCCL INFO NCCL_NET set by environment to Socket.", ["net-socket"]),
    ("NCCL INFO NET/OFI Using aws-ofi-nccl 1.14\nn1:7:8 [0] NCCL INFO Using network Socket", ["net-socket"]),
    ("NCCL INFO Using network Socket", []),
    ("NCCL INFO NET/OFI Selected provider is efa\nn1:7:8 [0] NCCL INFO Using network Socket", []),
])  # fmt: skip
def test_sockets_are_wrong_where_efa_was_meant_and_not_used(lines: str, wanted: list[str]):
    assert wanted == [pattern for pattern in patterns_of(f"n1:7:8 [0] {lines}\n") if pattern == "net-socket"]
