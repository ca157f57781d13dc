"""Is hpslurm installed right on this machine? Every part of the installation, one result each."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

from hpslurm.core import probe, records
from hpslurm.core.policy import Policy
from hpslurm.core.probe import PASS, SKIP, Result
from hpslurm.setup import doctor_scripts, doctor_site, doctor_software, hook_lines
from hpslurm.show import render
from hpslurm.sources.host import Host


def run(host: Host, rules: Policy) -> Iterator[Result]:
    """One result for each part of the installation."""
    found = records.node_records(rules.results_shared or rules.results)[0]
    ran = frozenset(record.hook for record in found)
    parts = {
        "hook_lines": hook_lines.Hooks(ran),
        "hook_scripts": doctor_scripts,
        "site": SimpleNamespace(collect=lambda _: doctor_site.collect(rules), judge=doctor_site.judge),
        "software": doctor_software,
    }
    for name, part in parts.items():
        yield probe.run(name, part, host, rules)  # type: ignore[arg-type]


SAYS = {
    "hook_lines": "Slurm's configuration and our hooks",
    "hook_scripts": "entry scripts, their folders and time limits",
    "site": "policy, records and versions",
    "software": "Python, packages and programs",
}


def text(results: list[Result]) -> list[str]:
    """Every part in a line or more, so that one sees what was looked at."""
    folded = render.fold(finding for result in results for finding in result.findings)
    lines = [line for finding in folded for line in render.finding_lines(finding)]
    not_checked = render.not_checked(results)
    lines += render.not_checked_lines(not_checked)
    for result in results:
        if result.outcome == SKIP:
            lines += render.labelled("SKIP", f"{SAYS[result.probe]}: {result.note}")
    lines += [f"{render.label('PASS')} {SAYS[result.probe]}" for result in results if result.outcome == PASS]
    passed = sum(result.outcome == PASS for result in results)
    return [*lines, *render.fitted(render.summary(folded, len(not_checked), passed))]
