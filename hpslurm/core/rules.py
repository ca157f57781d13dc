"""Every rule there is, for the catalogue, the gate and the tests. Not for hooks: it loads all modules."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterable, Iterator
from importlib import import_module
from types import ModuleType

from hpslurm.core.finding import Rule

PACKAGES = ("node", "job", "nccl_tests", "cluster", "cluster.aws", "setup")


def modules(packages: Iterable[str] = PACKAGES) -> list[ModuleType]:
    """The modules of these packages of ours, in the order of their names."""
    imported = []
    for name in packages:
        package = import_module(f"hpslurm.{name}")
        for entry in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            if not entry.ispkg:
                imported.append(import_module(entry.name))
    return imported


def declared(module: ModuleType) -> Iterator[Rule]:
    """Rules in a module's constants, in its mappings and sequences of them, and those that it makes from table rows."""
    for value in vars(module).values():
        held = value.values() if isinstance(value, dict) else value if isinstance(value, (tuple, list)) else (value,)
        yield from (one for one in held if isinstance(one, Rule))
    if hasattr(module, "table_rules"):
        yield from module.table_rules()


def rules(among: Iterable[ModuleType] | None = None) -> dict[str, Rule]:
    """By id; all of them, or those of some modules. Raises ValueError where two rules have one id."""
    by_id: dict[str, Rule] = {}
    for module in modules() if among is None else among:
        for rule in declared(module):
            if by_id.setdefault(rule.id, rule) != rule:
                raise ValueError(f"two rules are called {rule.id}")
    return by_id
