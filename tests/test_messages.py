"""Messages use the words of the field: CONTRIBUTING has the table, and this test the words that it rules out."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import hpslurm
from hpslurm.core import toml
from hpslurm.core.text import size

PACKAGE = Path(hpslurm.__file__).parent
RULED_OUT = re.compile(
    r"[,;] [^,;]{1,60} wanted(?=[,;:.]| \(|$)|\bthan wanted\b"
    r"|\b(?:is|are|was) no (?:folder|time|size|JSON|list|node|number|port|probe|rule|table|result|region|host|tmpfs"
    r"|snapshot|shared library|64-bit)\b"
    r"|\btold by\b|\brumour\b|\btyping (?:error|mistake)|\bended well\b|\bcame to (?:its|their) end\b"
    r"|\bcould (?:not )?bring (?:no|an?|some|any) GPUs? up\b|\bcounts? \d+ to it\b"
)
SAID = ("title", "meaning", "why", "when", "note", "ask")  # fields of tables that people read


def messages(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Texts of a module but its docstrings, f-strings with a letter for each value."""
    inside: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            inside.add(id(node.value))
        if isinstance(node, ast.JoinedStr):
            inside |= {id(part) for part in node.values}
            yield node.lineno, "".join(str(one.value) if isinstance(one, ast.Constant) else "X" for one in node.values)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside:
            yield node.lineno, node.value


def texts_of(value: Any, name: str = "") -> Iterator[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from texts_of(item, key)
    elif isinstance(value, list):
        for item in value:
            yield from texts_of(item, name)
    elif isinstance(value, str) and name in SAID:
        yield value


def test_no_message_of_the_code_uses_a_word_that_is_ruled_out() -> None:
    found = [
        f"{path.relative_to(PACKAGE)}:{line}: {text}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for line, text in messages(ast.parse(path.read_text()))
        if RULED_OUT.search(text)
    ]
    assert [] == found


@pytest.mark.parametrize("name", sorted(path.stem for path in (PACKAGE / "tables").glob("*.toml")))
def test_no_text_of_a_table_uses_one(name: str) -> None:
    assert [] == [text for text in texts_of(toml.whole(name)) if RULED_OUT.search(text)]


@pytest.mark.parametrize(
    "text",
    ["X of X, X wanted", "X is no JSON: X", "told by NVML", "fi_info ended well but", "reached 3, 8 wanted (GB/s)"],
)
def test_the_words_are_found_where_they_stand(text: str) -> None:
    assert RULED_OUT.search(text)


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (0, "0 bytes"),
        (1023, "1023 bytes"),
        (1024, "1 KiB"),
        (65536, "64 KiB"),
        ((8 << 30) - 1, "7.9 GiB"),
        (8 << 30, "8 GiB"),
        (float("inf"), "unlimited"),
    ],
)
def test_a_size_is_told_in_the_unit_a_person_reads_and_never_larger_than_it_is(count: float, expected: str) -> None:
    assert expected == size(count)
