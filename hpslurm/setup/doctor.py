"""Is hpslurm installed right on this machine? Every part of the installation, one result each."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

from hpslurm.core import probe, records
from hpslurm.core.policy import Policy
from hpslurm.core.probe import PASS, SKIP, Result
from hpslurm.setup import doctor_owner, doctor_scripts, doctor_site, doctor_software, hook_lines
from hpslurm.show import plan, render, screen
from hpslurm.sources.host import Host


def run(host: Host, rules: Policy) -> Iterator[Result]:
    """One result for each part of the installation."""
    kept = records.node_records(rules.results_shared or rules.results)[0]
    ran = frozenset(record.hook for record in kept)
    parts = {
        "hook_lines": hook_lines.Hooks(ran),
        "hook_scripts": doctor_scripts,
        "site": SimpleNamespace(collect=lambda _: doctor_site.collect(rules), judge=doctor_site.judge),
        "software": doctor_software,
        "owner": doctor_owner,
    }
    for name, part in parts.items():
        yield probe.run(name, part, host, rules)  # type: ignore[arg-type]


SAYS = {
    "hook_lines": "Slurm's configuration and our hooks",
    "hook_scripts": "entry scripts, their folders and time limits",
    "site": "policy, records and versions",
    "software": "Python, packages and programs",
    "owner": "owner and mode of the installation",
}


def _says(result: Result) -> str:
    lean = result.probe == "software" and bool((result.facts or {}).get("lean"))
    return f"{SAYS[result.probe]}{' (a lean installation: hooks, check and doctor)' if lean else ''}"


def first_screen(results: list[Result], node: str) -> list[str]:
    """Is it installed right here, what is wrong, and what to type first."""
    made = plan.plans(finding for result in results for finding in result.findings)
    folded = render.fold(finding for result in results for finding in result.findings)
    missing = render.not_checked(results)
    grave = screen.grave(made)
    passed = [_says(result) for result in results if result.outcome == PASS]
    said = f"hpslurm on {node}: " + (
        f"{len(grave)} thing{'s' if len(grave) > 1 else ''} to put right"
        if grave
        else f"installed right{', as far as could be checked' if missing else ''}"
    )
    return screen.lines(
        screen.Screen(
            "FAIL" if grave else "WARN" if missing else "PASS",
            said,
            (
                ("Worst", screen.said(grave[0].troubles[0]) if grave else ""),
                ("Next", screen.next_command(grave)),
                ("Fine", "; ".join(passed)),
            ),
            tuple(made),
            notes=tuple(missing),
            last=render.summary(folded, len(missing), len(passed)),
            more=("hpslurm doctor -v", *(f"hpslurm explain {one.rules[0]}" for one in made[:1])),
            between=tuple(f"Skipped   {SAYS[one.probe]}: {one.note}" for one in results if one.outcome == SKIP),
            whole="here",
        )
    )


def text(results: list[Result]) -> list[str]:
    """Every part in a line or more, so that one sees what was looked at."""
    folded = render.fold(finding for result in results for finding in result.findings)
    lines = [line for finding in folded for line in render.finding_lines(finding)]
    not_checked = render.not_checked(results)
    lines += render.not_checked_lines(not_checked)
    for result in results:
        if result.outcome == SKIP:
            lines += render.labelled("SKIP", f"{SAYS[result.probe]}: {result.note}")
    lines += [f"{render.label('PASS')} {_says(result)}" for result in results if result.outcome == PASS]
    passed = sum(result.outcome == PASS for result in results)
    return [*lines, *render.fitted(render.summary(folded, len(not_checked), passed))]
