"""Reads TOML: our own tables, and the text of a file that a site wrote.

``tables/NAME.toml`` is found beside this module, in a folder or in a zip file. A zip
built for containers holds the tables as JSON too: Python 3.10 has no TOML of its own.
"""

from __future__ import annotations

import os
import sys
from typing import Any


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
    path = os.path.join(os.path.dirname(__file__), "tables", name)
    try:
        with open(f"{path}.toml", encoding="utf-8") as file:
            return loads(file.read())
    except NotADirectoryError:  # we are in a zip file
        import json

        loader: Any = globals()["__loader__"]
        loaded: dict[str, Any] = json.loads(loader.get_data(f"{path}.json"))
        return loaded


def table(name: str) -> list[dict[str, Any]]:
    """The rows of one of our tables."""
    rows: list[dict[str, Any]] = whole(name)["row"]
    return rows
