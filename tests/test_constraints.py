"""constraints.txt: one exact version of each package, and those with which the tests run."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

REPO = Path(__file__).parents[1]
needs_set_up = pytest.mark.skipif(
    not Path(sys.prefix, "hpslurm-ready").exists(), reason="an environment that `make venv` did not make"
)


def plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def constraints() -> list[str]:
    """Its lines, each a name in its plain form and a version."""
    lines = [line for line in (REPO / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    return [f"{plain(line.partition('==')[0])}=={line.partition('==')[2]}" for line in lines]


def needed(package: str, extras: tuple[str, ...] = ()) -> Iterator[Requirement]:
    """What a package asks for in this environment."""
    for text in metadata.requires(package) or ():
        asked = Requirement(text)
        if not asked.marker or any(asked.marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            yield asked


def test_each_line_is_a_name_and_one_version_and_nothing_else() -> None:
    for line in constraints():
        assert re.fullmatch(r"[a-z0-9][a-z0-9-]*==[0-9][0-9A-Za-z.]*", line), line
    names = [line.partition("==")[0] for line in constraints()]
    assert sorted(set(names)) == sorted(names)


@needs_set_up
def test_all_that_is_asked_for_is_there_in_that_version() -> None:
    wanted = dict(line.split("==") for line in constraints())
    todo, seen = list(needed("hpslurm", ("test",))), set()
    while todo:
        asked = todo.pop()
        name = plain(asked.name)
        version = metadata.version(asked.name)
        assert wanted.get(name) == version, name
        assert asked.specifier.contains(version, prereleases=True), str(asked)
        if name not in seen:
            seen.add(name)
            todo += needed(asked.name, tuple(asked.extras))
    assert len(seen) > 40


def test_what_is_pinned_for_lint_is_the_same_in_both() -> None:
    pinned = re.findall(r'^  "([a-z]+==[0-9.]+)",', (REPO / "pyproject.toml").read_text(), re.M)
    assert len(pinned) >= 4
    assert set(pinned) <= set(constraints())
