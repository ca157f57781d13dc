"""Writes docs/rules.md: every rule there is, from the code and the tables themselves.

python docs/catalogue.py > docs/rules.md
"""

from __future__ import annotations

import os
import re
import sys
from functools import cache

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from hpslurm.core import references
from hpslurm.core.finding import Rule
from hpslurm.core.rules import modules, rules
from hpslurm.scan.model import causes
from hpslurm.scan.patterns import table

PARTS = {
    ("node",): "On a node: hooks and hpslurm-check",
    ("job", "nccl_tests"): "In a job: settings, bandwidth, agreement between nodes",
    ("cluster", "cluster.aws", "setup"): "From the controller: hpslurm diagnose and hpslurm doctor",
}
CODES = ("xid-", "sxid-")
HEAD = """# All rules

Made by `python docs/catalogue.py` from the code and the tables; do not edit. A finding carries the id of its rule;
ids are never renamed. P0 blocks training, P1 slows or endangers it, P2 is for information. *Gate* marks rules that a
site may name in `gate` ([admin guide](admin.md#the-gate)). `hpslurm explain ID` prints the section in the terminal.
"""


def _order(rule: Rule) -> tuple[str, int]:
    """By name, and numbers at the end as numbers: xid-8 before xid-13."""
    start, _, last = rule.id.rpartition("-")
    return (f"{start}-", int(last)) if last.isdigit() else (rule.id, 0)


@cache
def link(reference: str) -> str:
    """``debugging-guide.md § 17`` as a link to that heading."""
    section = next((one for one in references.sections() if one.name == reference), None)
    if section is None:
        return reference
    # GitHub's anchors: lower case, without signs, blanks as hyphens
    anchor = re.sub(r"[^\w\- ]", "", f"§ {section.number} {section.title}".lower()).replace(" ", "-")
    return f"[{reference}](../references/{section.file}#{anchor})"


def cell(text: str) -> str:
    return text.replace("|", "\\|")


def catalogue() -> str:
    seen: set[str] = set()
    out = [HEAD]
    for packages, title in PARTS.items():
        found = sorted(rules(modules(packages)).values(), key=_order)
        here = [rule for rule in found if rule.id not in seen]
        seen |= {rule.id for rule in here}
        codes = [rule for rule in here if rule.id.startswith(CODES)]
        out += _rules(title, [rule for rule in here if rule not in codes])
        if codes:
            out += _rules("The driver's own codes: XID of GPUs, SXID of NVSwitches", codes)
    out += _causes()
    out += _patterns()
    return "\n".join(out) + "\n"


def _rules(title: str, here: list[Rule]) -> list[str]:
    out = [f"\n## {title}\n", f"{len(here)} rules.\n"]
    out += ["| rule | priority | what | section | cause | gate |", "| --- | --- | --- | --- | --- | --- |"]
    for rule in here:
        cause = f"`{rule.cause}`" if rule.cause else ""
        gate = "yes" if rule.gateable else ""
        out.append(
            f"| `{rule.id}` | {rule.priority} | {cell(rule.title)} | {link(rule.reference)} | {cause} | {gate} |"
        )
    return out


def _causes() -> list[str]:
    out = [
        "\n## Causes that scan and report name\n",
        "The log lines behind each: [quick reference](../references/error-patterns-quick-ref.md).\n",
    ]
    out += ["| cause | section | patterns |", "| --- | --- | --- |"]
    patterns = table().patterns
    for cause, row in causes().items():
        count = sum(one.cause == cause for one in patterns)
        section = link(f"debugging-guide.md § {row.section}")
        out.append(f"| `{cause}` | {section} | {count} |")
    return out


def _patterns() -> list[str]:
    rows = [one for one in table().patterns if one.role != "noise"]
    noise = len(table().patterns) - len(rows)
    out = ["\n## Log patterns that scan knows\n"]
    out += [
        f"{len(rows)} patterns; {noise} more are known to mean nothing. Proof: how directly a line shows its cause.\n"
    ]
    out += ["| pattern | printed by | what it means | role | cause | proof |", "| --- | --- | --- | --- | --- | --- |"]
    for one in rows:
        cause = f"`{one.cause}`" if one.cause else ""
        words = (f"`{one.id}`", one.emitter, cell(one.meaning), one.role, cause, str(one.weight))
        out.append(f"| {' | '.join(words)} |")
    return out


if __name__ == "__main__":
    sys.stdout.write(catalogue())
