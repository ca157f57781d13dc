"""Who may import whom: folders look down only, no file stands in a circle, and nothing imports a command."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import hpslurm

PACKAGE = Path(hpslurm.__file__).parent
# From the top down. Folders and modules of one floor do not import each other.
FLOORS = (
    ("cli",),
    ("bundle",),
    ("cluster",),
    ("nccl_tests",),
    ("job",),
    ("setup", "metrics", "bare"),
    ("show",),
    ("hooks",),
    ("scan",),
    ("node",),
    ("sources",),
    ("pyz",),
    ("core",),
)
FLOOR = {name: number for number, names in enumerate(FLOORS) for name in names}


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")


MODULES = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def imported(path: Path) -> Iterator[str]:
    """Our own modules that a file imports anywhere in it, also inside functions and for types only."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "hpslurm":
            base = node.module.removeprefix("hpslurm").lstrip(".")
            for alias in node.names:
                full = f"{base}.{alias.name}".lstrip(".")
                yield full if full in MODULES else base


ARROWS = {name: sorted(set(imported(path)) - {name, ""}) for name, path in MODULES.items() if name != "__init__"}


def floor(name: str) -> int:
    return FLOOR[name.split(".")[0]]


def test_every_folder_has_its_floor():
    assert {name.split(".")[0] for name in ARROWS} == set(FLOOR)


def test_no_arrow_points_upwards():
    assert [] == [(name, other) for name, others in ARROWS.items() for other in others if floor(other) < floor(name)]


def test_no_arrow_leads_to_a_neighbour_on_the_same_floor():
    folder = {name: name.split(".")[0] for name in ARROWS}
    assert [] == [
        (name, other)
        for name, others in ARROWS.items()
        for other in others
        if floor(other) == floor(name) and folder[name] != folder[other]
    ]


def test_nothing_outside_imports_a_command():
    assert [] == [
        (name, other) for name, others in ARROWS.items() for other in others
        if other.startswith("cli") and not name.startswith("cli")
    ]  # fmt: skip


def test_no_file_stands_in_a_circle():
    done: set[str] = set()

    def circle(name: str, way: tuple[str, ...]) -> tuple[str, ...]:
        if name in way:
            return (*way[way.index(name) :], name)
        if name in done:
            return ()
        for other in ARROWS.get(name, ()):
            if found := circle(other, (*way, name)):
                return found
        done.add(name)
        return ()

    assert [] == [found for name in ARROWS if (found := circle(name, ()))]
