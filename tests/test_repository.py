"""What an outsider meets first: pinned tools, hosted runs, the changelog, and a pytest that was started too early."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import hpslurm
from hpslurm.core import toml
from tests.test_imports import FLOORS

TOP = Path(__file__).parents[1]
PROJECT = toml.loads((TOP / "pyproject.toml").read_text(encoding="utf-8"))
TOOLS = ("ruff", "mypy", "deptry", "codespell")


def text(name: str) -> str:
    return (TOP / name).read_text(encoding="utf-8")


def test_each_linter_is_pinned_to_one_version() -> None:
    wanted = PROJECT["project"]["optional-dependencies"]["test"]
    assert [] == [tool for tool in TOOLS if not any(re.fullmatch(rf"{tool}==[\d.]+", one) for one in wanted)]


def test_hooks_before_a_commit_are_the_linters_of_make_lint_and_download_nothing() -> None:
    hooks = text(".pre-commit-config.yaml")
    assert ["local"] == re.findall(r"repo: (\S+)", hooks)
    assert {"system"} == set(re.findall(r"language: (\S+)", hooks))
    for tool in TOOLS:
        assert f".venv/bin/{tool}" in hooks
        assert f"$(BIN)/{tool}" in text("Makefile")


def test_hosted_runs_try_every_python_that_we_name() -> None:
    names = [line.rsplit(" ", 1)[1] for line in PROJECT["project"]["classifiers"] if "Python :: 3." in line]
    assert PROJECT["project"]["requires-python"] == f">={names[0]}"
    assert f"python: {names}".replace("'", '"') in text(".github/workflows/test.yml")


def test_the_changelog_begins_with_what_is_not_released_and_dates_what_is() -> None:
    first, second, *_ = re.findall(r"^## (.+)$", text("CHANGELOG.md"), re.M)
    assert "Unreleased" == first
    assert re.fullmatch(rf"{re.escape(hpslurm.__version__)} \(\d{{4}}-\d\d-\d\d\)", second)


def test_every_target_that_a_page_names_is_one_of_the_makefile() -> None:
    targets = set(re.findall(r"^([a-z]+):", text("Makefile"), re.M))
    pages = [*TOP.glob("*.md"), *TOP.glob("docs/*.md"), *TOP.glob(".github/**/*.*")]
    named = {name for page in pages for name in re.findall(r"(?:`| {4}|run: )make ([a-z]+)", page.read_text("utf-8"))}
    assert {"test", "dist"} <= named <= targets


def test_the_map_shows_the_floors_from_the_top_down() -> None:
    table = text("docs/architecture.md").partition("## Where things are")[2].partition("\n\n## ")[0]
    rows = [
        re.findall(r"`([a-z_]+)(?:/|\.py)`", line.split("|")[1]) for line in table.splitlines() if line[:3] == "| `"
    ]
    assert [list(floor) for floor in FLOORS] == rows


def test_pytest_without_an_install_says_in_one_line_what_to_do() -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-S", TOP / "conftest.py"],  # -S: without any installed package
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert 1 == done.returncode
    [line] = done.stderr.splitlines()
    assert "hpslurm" in line
    assert "make venv" in line
