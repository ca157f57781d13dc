"""Says in one line what to do where pytest was started without what the tests need."""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError, version

# hpslurm itself, because tests start it as a program from other folders; the others come with its extra `test`.
NEEDED = ("hpslurm", "hypothesis", "jsonschema", "prometheus-client")


def _installed(package: str) -> bool:
    try:
        version(package)
    except PackageNotFoundError:
        return False
    return True


if absent := [package for package in NEEDED if not _installed(package)]:
    # pytest makes a traceback of every other exception in this file
    sys.exit(f"not installed here: {', '.join(absent)}; type make venv, then .venv/bin/python -m pytest")
