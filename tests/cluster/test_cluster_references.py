"""Every finding of HyperPod's half has a section that names it, and none is named that does not exist."""

from __future__ import annotations

import pytest

from hpslurm import references
from hpslurm.cluster import deep_checks, events, health_agent, hyperpod, lifecycle, matrix, security_groups, zones
from hpslurm.finding import Rule

MODULES = (deep_checks, health_agent, hyperpod, lifecycle, matrix, security_groups, zones)
RULES = {
    rule.id: rule
    for rule in (
        *(value for module in MODULES for value in vars(module).values() if isinstance(value, Rule)),
        *(row.rule for row in events.table() if row.rule),
    )
}


@pytest.mark.parametrize("rule", RULES.values(), ids=lambda rule: rule.id)
def test_the_section_of_a_rule_names_it(rule):
    assert rule.reference == references.of_finding(rule.id).name


def test_no_section_names_a_rule_that_is_gone():
    prefixes = ("hyperpod-", "event-", "join-", "sg-", "zone-", "subnet-", "agent-", "deep-check-", "lifecycle-")
    named = {one for section in references.sections() for one in section.findings if one.startswith(prefixes)}
    assert set(RULES) == named
