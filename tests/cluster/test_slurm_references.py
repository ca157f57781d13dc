"""Every rule of Slurm's half has the section that it names."""

from __future__ import annotations

import pytest

from hpslurm.core import references
from hpslurm.core.rules import modules, rules


@pytest.mark.parametrize("rule", rules(modules(["cluster", "setup"])).values(), ids=lambda rule: rule.id)
def test_a_rule_stands_in_the_section_that_it_names(rule):
    section = references.of_finding(rule.id)
    assert section is not None, f"no section's Findings: line names {rule.id}"
    assert rule.reference == section.name
