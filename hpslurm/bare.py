"""``hpslurm-check.pyz``: the check in one file, for a container that has a Python and nothing else.

The NCCL that counts is the one inside the job's container. This is the same look as
``hpslurm check``, without click, ClusterShell or any other package; see ``pyz.py``.
"""

from __future__ import annotations

import os
import sys

from hpslurm import __version__, hooks
from hpslurm.core import policy, records
from hpslurm.core.finding import PRIORITIES
from hpslurm.core.probe import worst
from hpslurm.show import render, screen
from hpslurm.sources.host import Host

SECONDS = 20.0  # for all programs together
USAGE = f"""usage: hpslurm-check.pyz [--json] [-v] [--fail-on P0|P1|P2|never] [--strict] [--policy FILE] [--root FOLDER]

Look at this node as a process here sees it; made to run inside a job's container:
  srun --container-image=IMAGE --container-mounts=/fsx/hpslurm-check.pyz:/check.pyz python3 /check.pyz

Exit codes: 0 nothing at or above --fail-on (P0), 2 wrong command line, 3 found something.
hpslurm {__version__}"""


class WrongUse(Exception):
    """The command line cannot be understood; the text says which word."""


def options(words: list[str]) -> dict[str, str]:
    """``--name`` and ``--name value`` words; raises WrongUse."""
    chosen = {"fail-on": "P0", "policy": policy.PATH, "root": "/", "json": "", "strict": "", "verbose": ""}
    rest = list(words)
    while rest:
        name, equals, value = rest.pop(0).partition("=")
        name = "--verbose" if name == "-v" else name
        key = name.removeprefix("--")
        if not name.startswith("--") or key not in chosen:
            raise WrongUse(f"unknown word {name!r}")
        if key in ("json", "strict", "verbose"):
            value = "yes"
        elif not equals:
            if not rest:
                raise WrongUse(f"{name} needs a value")
            value = rest.pop(0)
        chosen[key] = value
    if chosen["fail-on"] not in (*PRIORITIES, "never"):
        raise WrongUse(f"--fail-on is one of {', '.join(PRIORITIES)} and never, not {chosen['fail-on']!r}")
    return chosen


def main(words: list[str], env: dict[str, str] | None = None) -> int:
    """Look, print, and return the exit code; a reader that had enough, or a full disk, is no traceback."""
    try:
        code = _looked(words, env)
        sys.stdout.flush()
    except BrokenPipeError:
        code = 0
        sys.stdout = open(os.devnull, "w")
    except OSError as error:
        if error.filename is not None:
            raise
        code = 1
        sys.stdout = open(os.devnull, "w")
        print(f"hpslurm-check.pyz: could not write all of it: {error.strerror}", file=sys.stderr)
    return code


def _looked(words: list[str], env: dict[str, str] | None) -> int:
    env = dict(os.environ) if env is None else env
    if "-h" in words or "--help" in words:
        print(USAGE)
        return 0
    try:
        given = options(words)
    except WrongUse as error:
        print(f"hpslurm-check.pyz: {error}\n{USAGE.splitlines()[0]}", file=sys.stderr)
        return 2
    if env.get("SLURM_LOCALID", "0") != "0":
        return 0
    node = hooks.node_name(env)
    host = Host(given["root"], env=env, seconds=SECONDS)
    rules = hooks.site_policy(given["policy"], node, host)
    results = list(hooks.run_probes("step", host, rules))
    host.end_all()
    if given["json"]:
        for line in records.lines(rules, env, "check", results):
            print(records.encode(line))
    else:
        for problem in rules.problems:
            print(f"[WARN] {problem}", file=sys.stderr)
        if given["verbose"]:
            lines = render.node_lines(node, results)
        else:
            lines = screen.node_lines(node, results, "python3 /check.pyz")
        print("\n".join(lines))
    return 3 if worst(results, given["fail-on"], bool(given["strict"])) else 0
