"""The examples in docstrings: samples of real text, and what our parsers make of them."""

from __future__ import annotations

import doctest
from importlib import import_module
from pathlib import Path

import pytest

import hpslurm

PACKAGE = Path(hpslurm.__file__).parent
WITH_EXAMPLES = [
    ".".join(("hpslurm", *path.relative_to(PACKAGE).with_suffix("").parts))
    for path in sorted(PACKAGE.rglob("*.py"))
    if ">>> " in path.read_text(encoding="utf-8")
]


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_an_example_in_a_docstring_is_what_the_function_gives(name: str) -> None:
    outcome = doctest.testmod(import_module(name))
    assert outcome.attempted
    assert not outcome.failed
