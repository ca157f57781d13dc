"""Every rule of Slurm's half has the section that it names."""

from __future__ import annotations

import pytest

from hpslurm import references
from hpslurm.cluster import (
    accounting,
    controllers,
    doctor_scripts,
    doctor_site,
    doctor_software,
    gather,
    guard,
    hooks,
    queue,
    reasons,
    slurm_conf,
    slurm_nodes,
)
from hpslurm.finding import Rule


def rules():
    found = {rule.id: rule for rule in reasons.table_rules()}
    doctors = (doctor_scripts, doctor_site, doctor_software)
    for module in (*doctors, accounting, controllers, gather, guard, hooks, queue, slurm_conf, slurm_nodes):
        found.update({value.id: value for value in vars(module).values() if isinstance(value, Rule)})
    return list(found.values())


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule.id)
def test_a_rule_stands_in_the_section_that_it_names(rule):
    section = references.of_finding(rule.id)
    assert section is not None, f"no section's Findings: line names {rule.id}"
    assert rule.reference == section.name
