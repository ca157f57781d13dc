"""Reads TOML: our own tables, and the text of a file that a site wrote.

``tables/NAME.toml`` is found in a folder or in a zip file. A zip
built for containers holds the tables as JSON too: Python 3.10 has no TOML of its own.
"""

from __future__ import annotations

import json
import os
import re
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing costs a hook as much as several probes
    from typing import Any

_PACKAGE = os.path.dirname(os.path.dirname(__file__))
_STRING = r'"[^"\\\x00-\x1f\x7f]*"'
_LINE = (
    rf"[ \t]*(?:\[\[([A-Za-z0-9_-]+)\]\]|\[([A-Za-z0-9_-]+)\.({_STRING})\]|([A-Za-z0-9_-]+)[ \t]*=[ \t]*("
    rf"{_STRING}|true|false|-?(?:0|[1-9][0-9]{{0,15}})(?:\.[0-9]{{1,15}})?|\[(?:[ \t]*{_STRING}[ \t]*,?)*[ \t]*\]"
    r"))?[ \t]*(?:#[^\x00-\x08\x0a-\x1f\x7f]*)?"
)


def plain(text: str) -> dict[str, Any] | None:
    """A file of ``[[tables]]``, ``[tables."with a name"]`` and ``key = value`` lines. None for anything else, mistakes
    too: ``loads`` decides.

    A value is a string without a backslash, a number, true or false, or a list of strings on one line, which
    mean the same in JSON.
    """
    top: dict[str, Any] = {}
    here = top
    for line in text.split("\n"):
        match = re.fullmatch(_LINE, line)
        if not match:
            return None
        table, family, name, key, value = match.groups()
        if table:
            rows = top.setdefault(table, [])
            if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
                return None
            here = {}
            rows.append(here)
        elif family:
            of_family = top.setdefault(family, {})
            if not isinstance(of_family, dict) or name[1:-1] in of_family:
                return None
            here = of_family[name[1:-1]] = {}
        elif key:
            if key in here:
                return None
            try:
                here[key] = json.loads(re.sub(r",[ \t]*\]$", "]", value))
            except ValueError:  # a list without its commas
                return None
    return top


def loads(text: str) -> dict[str, Any]:
    """The text as a dict. Raises ValueError that names the line, and for a Python without any TOML reader."""
    try:
        if sys.version_info >= (3, 11):
            import tomllib
        else:
            import tomli as tomllib
    except ImportError:
        raise ValueError("this Python reads no TOML: 3.11 or later, or the package tomli, is needed") from None
    loaded: dict[str, Any] = tomllib.loads(text)
    return loaded


def whole(name: str) -> dict[str, Any]:
    """All of one of our tables: its rows, and lists beside them."""
    if not _in_zip():
        return loads(text(f"{name}.toml"))
    loaded: dict[str, Any] = json.loads(text(f"{name}.json"))
    return loaded


def text(file: str) -> str:
    """The text of a file in ``tables/``."""
    path = os.path.join(_PACKAGE, "tables", file)
    if _in_zip():
        loader: Any = globals()["__loader__"]
        data: bytes = loader.get_data(path)
        return data.decode("utf-8")
    with open(path, encoding="utf-8") as opened:
        return opened.read()


def _in_zip() -> bool:
    return not os.path.isdir(_PACKAGE)


def table(name: str, rows_of: str = "row") -> list[dict[str, Any]]:
    """The rows of one of our tables, or another list in it."""
    rows: list[dict[str, Any]] = whole(name)[rows_of]
    return rows
