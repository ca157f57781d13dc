"""Writes ``hpslurm-check.pyz``: ``python -m hpslurm.pyz [FILE]``.

One zip file that any Python from 3.10 on runs. It holds what a check needs of this package;
its tables as JSON, because Python 3.10 reads no TOML; and pynvml where it is installed, so
that GPUs can be asked inside a container, too. The same sources give the same file.
"""

from __future__ import annotations

import importlib.util
import io
import json
import os
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parent
FOLDERS = (".", "core", "show", "node", "job", "sources")
LEFT_OUT = ("pyz.py",)
NAME = "hpslurm-check.pyz"
MAIN = "import sys\n\nfrom hpslurm.bare import main\n\nsys.exit(main(sys.argv[1:]))\n"


def contents() -> Iterator[tuple[str, bytes]]:
    """Every file of the archive, by name."""
    from hpslurm.core import toml

    yield "__main__.py", MAIN.encode()
    for folder in FOLDERS:
        for path in sorted((PACKAGE / folder).glob("*.py")):
            if path.name not in LEFT_OUT:
                yield f"hpslurm/{path.relative_to(PACKAGE).as_posix()}", path.read_bytes()
    for path in sorted((PACKAGE / "tables").glob("*.toml")):
        yield f"hpslurm/tables/{path.stem}.json", json.dumps(toml.loads(path.read_text("utf-8"))).encode()
    yield "hpslurm/tables/instances.toml", (PACKAGE / "tables/instances.toml").read_bytes()  # read as text
    spec = importlib.util.find_spec("pynvml")
    if spec and spec.origin and spec.origin.endswith("pynvml.py"):
        yield "pynvml.py", Path(spec.origin).read_bytes()


def archive() -> bytes:
    """The whole file: a line for the kernel, then the zip."""
    store = io.BytesIO()
    store.write(b"#!/usr/bin/env python3\n")
    with zipfile.ZipFile(store, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in contents():
            about = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
            about.external_attr = 0o644 << 16
            file.writestr(about, data, zipfile.ZIP_DEFLATED)
    return store.getvalue()


def main(words: list[str]) -> int:
    """Write the file; the name is the one argument."""
    if len(words) > 1 or any(word.startswith("-") for word in words):
        print(f"usage: python -m hpslurm.pyz [FILE]   (default {NAME})", file=sys.stderr)
        return 2
    path = words[0] if words else NAME
    try:
        with open(path, "wb") as file:
            file.write(archive())
        os.chmod(path, 0o755)
    except OSError as error:
        print(f"hpslurm.pyz: {path}: {error.strerror}", file=sys.stderr)
        return 1
    print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
