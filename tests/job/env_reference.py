"""Writes operations.md § 5 from the table of variables: ``python tests/job/env_reference.py``."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

from hpslurm.job import nccl_env

GUIDE = Path(__file__).parents[2] / "references/operations.md"
HEAD, NEXT = "## § 5 Environment", "## § 7 "

TEXT = """## § 5 Environment

{findings}

**What it means.** A setting that was right for another machine, another version or one debugging session stays in a
job script, a profile, a container or `/etc/nccl.conf`, and goes with every job. `srun hpslurm-check` looks at the
variables of the step itself; a hook cannot, since slurmd does not have them. Only a *harmful* setting is a failure:
it breaks the job, loses EFA or NVLink, or may corrupt data. Each has an id of its own. The others are for
information, folded into one finding per kind:

- `env-leftover`: a debugging switch that should not stay.
- `env-pinned`: overrides what NCCL or AWS's plugin chooses by itself; keep it only with a measurement.
- `env-risky`: right in some places; know why it is set.
- `env-obsolete`: does nothing bad, and is no longer needed.
- `env-removed`: current versions do not read it. `env-renamed`: use the new name.
- `env-ineffective`: belongs to a transport that EFA does not use, or the installed version does not read it yet.
- `env-unknown-name`: no library reads it; a typo, or a name that never existed. Names are known up to NCCL {newest}
  and aws-ofi-nccl {plugin}.

Where a rule holds for some instance types or versions only, the table says so; the type is read from the machine,
NCCL's and the plugin's version from the library's file. A library in a container is seen only by a check that runs in
it.

**How to confirm.**

    env | grep -E '^(NCCL|FI|TORCH|OFI)_' | sort
    cat /etc/nccl.conf ~/.nccl.conf
    # NCCL_DEBUG=INFO in the job: "NCCL_X set by environment to Y" for every setting that NCCL found

**What to do.** Unset it where it is set: job script, `~/.bashrc` and `/etc/profile.d` (srun passes the submitting
shell's environment on), container image, `nccl.conf`. The environment wins over the files.

| variable | value | verdict | why | instead |
|---|---|---|---|---|
{rows}

*Sources:* NCCL's source from 2.3.5 to 2.30.7, the names in its libraries 2.31.2 and 2.32.3, its guide and release
notes; aws-ofi-nccl's source and release notes from 1.5 to 1.21.1; libfabric 2.6; PyTorch's source; AWS's EFA cheat
sheet. Each row of `hpslurm/tables/nccl_env.toml` names its own.
"""


OTHER = {"any": "any", "no_interface": "no interface left", "fewer_gpus": "fewer than the node's GPUs"}


def value(one: dict[str, Any]) -> str:
    if "in" in one:
        text = " ".join(f"`{item}`" if item else "empty" for item in one["in"])
    elif "not_in" in one:
        text = "any but " + " ".join(f"`{item}`" if item else "empty" for item in one["not_in"])
    elif "regex" in one:
        text = f"such as `{one['example']}`"
    else:
        text = {"any": "any", "no_interface": "no interface left", "fewer_gpus": "fewer than the node's GPUs"}[
            one["match"]
        ]
    if "types" in one:
        text += f" on {' '.join(item.rstrip('.') for item in one['types'])}"
    for key, whose in (("versions", ""), ("plugin", "plugin ")):
        if key in one:
            low, below = one[key]
            bounds = [f"from {low}"] * bool(low) + [f"below {below}"] * bool(below)
            text += f", {whose}{', '.join(bounds)}"
    return text


def rows() -> list[str]:
    lines = []
    for row in nccl_env.table()["row"]:
        for one in row["rules"]:
            verdict = f"**harmful** `{one['id']}` {one['priority']}" if "id" in one else one["verdict"]
            cells = (f"`{row['name']}`", value(one), verdict, one["why"], row.get("fix", ""))
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return lines


def section() -> str:
    ids = [rule.id for rule in nccl_env.FOLDED.values()]
    ids += sorted({rule.id for rule in nccl_env.table_rules()})
    findings = textwrap.fill("Findings: " + ", ".join(f"`{one}`" for one in ids), 118, break_on_hyphens=False)
    return TEXT.format(findings=findings, newest=nccl_env.NEWEST, plugin=nccl_env.NEWEST_PLUGIN, rows="\n".join(rows()))


def replaced(text: str) -> str:
    """The guide with this section in its place."""
    head, found, rest = text.partition(HEAD)
    rest = rest[rest.index("\n## §") + 1 :] if found else ""
    if not found:
        head, found, rest = text.partition(NEXT)
        rest = found + rest
    return head + section() + "\n" + rest


if __name__ == "__main__":
    GUIDE.write_text(replaced(GUIDE.read_text()))
