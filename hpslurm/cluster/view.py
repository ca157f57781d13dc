"""``hpslurm diagnose`` as people see it."""

from __future__ import annotations

from collections.abc import Sequence

from hpslurm.cluster.model import Members
from hpslurm.core.probe import PASS, SKIP, Result
from hpslurm.show import render


def heads(results: Sequence[Result], members: Members) -> list[str]:
    """Who was asked, and how many there are of what."""
    lines = []
    for result in results:
        if result.probe == "hyperpod" and result.facts:
            figures = result.facts
            counted = ", ".join(f"{number} {state}" for state, number in figures["instances"].items())
            who = f" (asked as {figures['identity']})" if figures["identity"] else ""
            where = f"HyperPod cluster {figures['cluster']} in {figures['region']}: {figures['status']}"
            lines.append(f"{where}, instances: {counted or 'none'}{who}")
        if result.probe == "slurm_nodes" and result.facts:
            counted = ", ".join(f"{number} {state}" for state, number in result.facts["states"].items())
            name = f" of {members.cluster}" if members.cluster else ""
            lines.append(
                f"Slurm nodes{name}: {result.facts['nodes']} ({counted or 'none'}), from {result.facts['form']}"
            )
    return lines


# Slurm and HyperPod know nothing of NCCL: that neither complains is no clean bill of health.
STILL_FAILING = (
    "A job fails all the same? hpslurm report JOB and hpslurm scan LOG look at the job itself; "
    "then operations.md § 10 (hpslurm explain operations.md 10)."
)


def text(results: Sequence[Result], members: Members) -> list[str]:
    """The report as people see it."""
    lines = [line for head in heads(results, members) for line in render.fitted(head)]
    folded = render.fold(finding for result in results for finding in result.findings)
    lines += [line for finding in folded for line in render.finding_lines(finding)]
    not_checked = render.not_checked(results)
    lines += render.not_checked_lines(not_checked)
    for result in results:
        if result.outcome == SKIP and result.probe == "node_records":
            lines += render.labelled("SKIP", f"{result.probe}: {result.note}")
    passed = sum(result.outcome == PASS for result in results)
    lines += render.fitted(render.summary(folded, len(not_checked), passed))
    if all(finding.muted or finding.rule.priority == "P2" for finding in folded):
        lines += render.wrapped("", STILL_FAILING, render.terminal_width())
    return lines
