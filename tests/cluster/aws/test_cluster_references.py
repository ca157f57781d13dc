"""Every finding of HyperPod's half has a section that names it, and none is named that does not exist."""

from __future__ import annotations

import pytest

from hpslurm.cluster import matrix
from hpslurm.core import references
from hpslurm.core.rules import modules, rules

RULES = rules([*modules(["cluster.aws"]), matrix])


@pytest.mark.parametrize("rule", RULES.values(), ids=lambda rule: rule.id)
def test_the_section_of_a_rule_names_it(rule):
    assert rule.reference == references.of_finding(rule.id).name


def test_no_section_names_a_rule_that_is_gone():
    prefixes = tuple(f"{identity.partition('-')[0]}-" for identity in RULES)
    named = {one for section in references.sections() for one in section.findings if one.startswith(prefixes)}
    assert set(RULES) == named
