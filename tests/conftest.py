"""Shared fixtures: a default policy, machines made of a few pasted files, and the Slurm lab."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from hypothesis import settings

from hpslurm.core.policy import Policy
from hpslurm.sources.host import Host
from tests.lab.fixtures import lab, make_lab, pytest_collection_modifyitems, pytest_terminal_summary

__all__ = [
    "host_with",
    "lab",
    "make_lab",
    "policy",
    "pytest_collection_modifyitems",
    "pytest_terminal_summary",
    "write",
]


# A busy machine takes its time: how long an example takes is no test of ours. The same examples each time: a run that
# passed yesterday passes today, and `make fuzz` looks for new ones.
settings.register_profile("patient", deadline=None, derandomize=True)
settings.load_profile("patient")


@pytest.fixture
def policy() -> Policy:
    return Policy(node="n1")


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Write a file below the test's folder, with its folders; returns its path."""

    def write_file(name: str, text: str | bytes, mode: int = 0o644) -> Path:
        path = tmp_path / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        os.chmod(path, mode)
        return path

    return write_file


@pytest.fixture
def host_with(tmp_path: Path, write: Callable[..., Path]) -> Callable[..., Host]:
    """A machine that has just these files: {"/proc/self/limits": text, ...}."""

    def make(files: Mapping[str, str | bytes], **how: object) -> Host:
        for name, text in files.items():
            write(f"root{name}", text)
        (tmp_path / "root").mkdir(exist_ok=True)
        return Host(str(tmp_path / "root"), **how)  # type: ignore[arg-type]

    return make
