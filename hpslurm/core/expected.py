"""What a site expects of its nodes: ``[nodes."gpu-[1-64]"]`` tables of the policy, merged for one node.

A table's name is a node list as Slurm writes it, where ``*`` stands for any characters. All tables that
name a node hold for it: lists add up, and of two numbers or priorities the one further down counts.
"""

from __future__ import annotations

from hpslurm.core import nodeset
from hpslurm.core.finding import PRIORITIES
from hpslurm.core.text import clean
from hpslurm.core.values import asdict, dataclass, field

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing costs a hook as much as several probes
    from typing import Any

LISTS = ("mounts", "services", "processes", "files", "modules")
NUMBERS = ("cpus_min", "memory_min")
CHECKS = (*LISTS, "cpus", "memory")
MOST = 64  # entries of one list: each costs the prolog time
_ABSOLUTE = "an absolute path without control characters"
_NAME = "a name without blanks, slashes or control characters"


@dataclass(frozen=True)
class Expected:
    """Of one node, or in one table. ``priorities`` is by check, and holds only what the site changed."""

    mounts: tuple[str, ...] = ()  # "/fsx", or "/fsx lustre"
    services: tuple[str, ...] = ()  # units of systemd
    processes: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    cpus_min: int = 0
    memory_min: int = 0  # bytes, of what the kernel shows as MemTotal
    priorities: dict[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return any(getattr(self, key) for key in (*LISTS, *NUMBERS))


@dataclass(frozen=True)
class NodeTable:
    """One ``[nodes."..."]`` table."""

    nodes: str
    expected: Expected


def merged(tables: tuple[NodeTable, ...], node: str) -> Expected:
    """What all tables together expect of this node."""
    all_of: dict[str, Any] = asdict(Expected())
    for table in tables:
        if not nodeset.names(table.nodes, node):
            continue
        for key, value in asdict(table.expected).items():
            if key in LISTS:
                all_of[key] = tuple(dict.fromkeys((*all_of[key], *value)))
            elif key in NUMBERS:
                all_of[key] = value or all_of[key]
            else:
                all_of[key] = {**all_of[key], **value}
    return Expected(**all_of)


def tables(value: Any, path: str, problems: list[str]) -> tuple[NodeTable, ...]:
    """The tables that can be used; what cannot be is left out, and told."""
    if not isinstance(value, dict) or not all(isinstance(table, dict) for table in value.values()):
        problems.append(f'{path}: nodes must be tables with the nodes\' names, as in [nodes."gpu-[1-64]"], ignored')
        return ()
    usable = []
    for nodes, table in value.items():
        where = f'{path}: [nodes."{clean(nodes, 60)}"]'
        if why := nodeset.trouble(nodes):
            problems.append(f"{where} is not a node list: {why}; write gpu-[1-64], ip-10-1-* or *; ignored")
        else:
            usable.append(NodeTable(nodes, _expected(table, where, problems)))
    return tuple(usable)


def _expected(table: dict[str, Any], where: str, problems: list[str]) -> Expected:
    good: dict[str, Any] = {}
    priorities: dict[str, str] = {}
    for key, value in table.items():
        if key in LISTS:
            good[key] = tuple(_entries(key, value, where, problems))
        elif key in NUMBERS:
            if isinstance(value, int) and not isinstance(value, bool) and value > 0:
                good[key] = value
            else:
                problems.append(f"{where}: {key} must be a whole number above zero, ignored")
        elif key in PRIORITIES:
            priorities.update(_priorities(key, value, where, problems))
        else:
            known = ", ".join((*LISTS, *NUMBERS, *PRIORITIES))
            problems.append(f"{where}: unknown key {clean(key, 60)!r}, ignored (known: {known})")
    return Expected(**good, priorities=priorities)


def _entries(key: str, value: Any, where: str, problems: list[str]) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(entry, str) for entry in value):
        problems.append(f"{where}: {key} must be a list of strings, ignored")
        return []
    fits, shape = (_is_mount, f"{_ABSOLUTE}, and the type behind it if that matters (/fsx lustre)")
    if key == "files":
        fits, shape = _is_path, _ABSOLUTE
    elif key != "mounts":
        fits, shape = _is_name, _NAME
    for entry in value:
        if not fits(entry):
            problems.append(f"{where}: {key} holds {clean(entry, 60)!r}, expected {shape}; ignored")
    good = [entry for entry in value if fits(entry)]
    if len(good) > MOST:
        problems.append(f"{where}: {key} has {len(good)} entries, the first {MOST} are looked at")
    return good[:MOST]


def _is_path(text: str) -> bool:
    return text.startswith("/") and text.isprintable()


def _is_mount(text: str) -> bool:
    return _is_path(text) and 1 <= len(text.split()) <= 2


def _is_name(text: str) -> bool:
    return bool(text) and text.isprintable() and not text.startswith("-") and " " not in text and "/" not in text


def _priorities(priority: str, value: Any, where: str, problems: list[str]) -> dict[str, str]:
    if not isinstance(value, list) or not all(check in CHECKS for check in value):
        problems.append(f"{where}: {priority} must be a list of these: {', '.join(CHECKS)}; ignored")
        return {}
    return dict.fromkeys(value, priority)
