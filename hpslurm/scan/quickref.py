"""Writes references/error-patterns-quick-ref.md from the table of patterns: python -m hpslurm.scan.quickref > FILE."""

from __future__ import annotations

from hpslurm.scan.model import causes
from hpslurm.scan.patterns import Pattern, table

HEAD = """# Error patterns, quick reference

Made from hpslurm/tables/patterns.toml; `hpslurm scan` reads the same rows. A root can be the cause, a symptom
shows that something else failed, noise never counts. Proof says how directly a line shows its cause, 0 to 100.
"""
LONGEST = 110  # characters of an example


def text() -> str:
    rows = table().patterns
    parts = [HEAD]
    for cause, row in causes().items():
        members = [one for one in rows if one.cause == cause]
        if members:
            parts.append(f"\n## {cause}\n\nSection: debugging-guide.md § {row.section}\n")
            parts.append(_lines(members))
    parts.append("\n## Noise\n")
    parts.append(_lines([one for one in rows if one.role == "noise"]))
    return "\n".join(parts)


def _lines(rows: list[Pattern]) -> str:
    out = ["| line | who prints it | what it means | role | proof |", "| --- | --- | --- | --- | --- |"]
    for row in sorted(rows, key=lambda one: (-one.weight, one.id)):
        example = row.example if len(row.example) <= LONGEST else row.example[: LONGEST - 1] + "…"
        words = (
            f"`{example.strip().replace('`', chr(39))}`",
            row.emitter,
            row.meaning,
            row.role,
            str(row.weight or ""),
        )
        out.append("| " + " | ".join(word.replace("|", "\\|") for word in words) + " |")
    return "\n".join(out) + "\n"


if __name__ == "__main__":
    print(text(), end="")
