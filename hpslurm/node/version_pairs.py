"""Combinations of versions that are known to be bad, and the least that an instance type needs.

The facts are those of ``versions``; what is known about them is ``tables/versions.toml``.
Reading a table takes longer than all other probes of a prolog, so this is looked at by the
health check and in a step.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from hpslurm.core import toml
from hpslurm.core.finding import CONFIGURE, LOOK, Evidence, Finding, Rule, Suggestion
from hpslurm.core.policy import Policy
from hpslurm.node.versions import Facts, collect, within

__all__ = ["Facts", "applies", "collect", "judge", "rows", "table_rules"]


@cache
def rows() -> list[dict[str, Any]]:
    return toml.table("versions")


def table_rules() -> list[Rule]:
    return [_rule(row) for row in rows()]


def _rule(row: dict[str, Any]) -> Rule:
    return Rule(row["id"], row["priority"], row["title"], "debugging-guide.md § 10")


def applies(row: dict[str, Any], facts: Facts) -> bool:
    """All conditions of the row hold for versions that are known."""
    if row.get("types") and not facts.type.startswith(tuple(row["types"])):
        return False
    return all(within(getattr(facts, name), low, below) for name, (low, below) in row["when"].items())


def judge(facts: Facts, policy: Policy) -> Iterator[Finding]:
    for row in rows():
        if applies(row, facts):
            seen = {name: getattr(facts, name) for name in row["when"]}
            yield _rule(row).found(
                f"{', '.join(f'{name} {version}' for name, version in seen.items())}"
                f"{f' on {facts.type}' if row.get('types') else ''}: {row['why']}; expected {row['wanted']}",
                evidence=[Evidence("versions", f"{name} {version}") for name, version in seen.items()],
                suggest=[
                    Suggestion(LOOK, "compare with the other nodes", "srun -w {nodes} hpslurm-check --json"),
                    Suggestion(CONFIGURE, f"{row['wanted']}, on all nodes alike and in the lifecycle script"),
                ],
            )
