"""Is this machine free of a site's Slurm? ``make test`` and ``make demo`` touch no other.

Tests start and stop Slurm daemons and install packages: on a node or controller of a real cluster
that could end someone's training. Looking changes nothing. The lab's own daemons are told from a
site's by the lab's record: a daemon names the lab's folder on its command line, and ``lab.json``
there names the daemon's pid and start time.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping

FOLDERS = (
    ("/opt/sagemaker_cluster", "a node of a SageMaker HyperPod cluster"),
    ("/opt/slurm", "a site's own Slurm"),
)
# Debian's package leaves /etc/slurm without a slurm.conf; that is fine.
CONFIGS = (
    "/etc/slurm/slurm.conf",
    "/etc/slurm-llnl/slurm.conf",
    "/usr/local/etc/slurm.conf",
    "/run/slurm/conf/slurm.conf",
    "/var/spool/slurmd/conf-cache/slurm.conf",
    "/var/spool/slurm/d/conf-cache/slurm.conf",
)
DAEMONS = ("munged", "slurmd", "slurmctld", "slurmdbd")
_NAMES_A_FILE = re.compile(r"(?:--[a-z-]+=)?(/.*)/(?:etc|run|log)/[^/]+")


def signs(root: str = "/", env: Mapping[str, str] | None = None) -> list[str]:
    """What shows a site's Slurm below ``root``, a line each; empty for a machine we may use."""
    here = root.rstrip("/")
    found = [f"{path} exists: {what}" for path, what in FOLDERS if os.path.exists(here + path)]
    found += [f"{path} exists: configuration of a site's Slurm" for path in CONFIGS if os.path.exists(here + path)]
    named = (os.environ if env is None else env).get("SLURM_CONF", "")
    if named and named not in CONFIGS and not _is_lab(os.path.dirname(os.path.dirname(here + named))):
        found.append(f"SLURM_CONF names {named}: configuration of a site's Slurm (if not: unset SLURM_CONF)")
    return found + _foreign_daemons(here)


def _foreign_daemons(root: str) -> list[str]:
    found = []
    for pid in sorted(int(name) for name in os.listdir(f"{root}/proc") if name.isdigit()):
        name = _daemon_name(root, pid)
        if name and not _is_ours(root, pid):
            found.append(_about(name, pid))
    return found


def _about(name: str, pid: int) -> str:
    if name == "munged":
        return f"munged runs as process {pid} (if this is no Slurm node: systemctl disable --now munge)"
    return f"{name} runs as process {pid}, and none of our labs started it"


def _daemon_name(root: str, pid: int) -> str:
    """The daemon's name, from the kernel's short name or the program's file; empty for all else."""
    if _stat(root, pid)[:1] in ([], ["Z"]):
        return ""
    try:
        program = os.path.basename(os.readlink(f"{root}/proc/{pid}/exe")).removesuffix(" (deleted)")
    except OSError:  # a process of another user, or one that has just ended
        program = ""
    short = _read(f"{root}/proc/{pid}/comm").strip()
    return next((name for name in (short, program) if name in DAEMONS), "")


def _is_ours(root: str, pid: int) -> bool:
    """True for a daemon that a lab recorded, and for a child of one (slurmctld and slurmd fork)."""
    for _ in range(4):
        fields = _stat(root, pid)
        if not fields:
            return True  # it has ended since
        if _is_recorded(root, pid, fields[19]):
            return True
        pid = int(fields[1])
        if pid <= 1:
            return False
    return False


def _is_recorded(root: str, pid: int, start: str) -> bool:
    for word in _read(f"{root}/proc/{pid}/cmdline").split("\0"):
        match = _NAMES_A_FILE.fullmatch(word)
        record = _record(root + match[1]) if match else {}
        procs = record.get("procs")
        for one in procs.values() if isinstance(procs, dict) else ():
            if (one.get("pid"), str(one.get("start"))) == (pid, start):
                return True
        if record.get("id") and f"HPSLURM_LAB={record['id']}" in _read(f"{root}/proc/{pid}/environ").split("\0"):
            return True  # started a moment ago, not yet recorded
    return False


def _record(folder: str) -> dict[str, object]:
    """``lab.json`` of a lab's folder; empty where there is none, or where root or we do not own it."""
    path = f"{folder}/lab.json"
    try:
        if os.lstat(path).st_uid not in (0, os.geteuid()):
            return {}
        found = json.loads(_read(path))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _is_lab(folder: str) -> bool:
    return bool(_record(folder))


def _stat(root: str, pid: int) -> list[str]:
    return _read(f"{root}/proc/{pid}/stat").rpartition(")")[2].split()


def _read(path: str) -> str:
    try:
        with open(path, errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def refusal(found: list[str]) -> str:
    """The text for a person: what was seen, and what to do."""
    seen = "".join(f"  - {line}\n" for line in found)
    return (
        f"This machine has a Slurm that is not ours, so nothing was touched:\n{seen}"
        "make test and make demo start and stop Slurm daemons of their own. Run them on a machine, or in a\n"
        "container, without Slurm. The tests that start no daemon run anywhere:\n"
        "  python3 -m venv .venv && .venv/bin/pip install -e '.[test]' && .venv/bin/pytest -m 'not lab'"
    )


def main() -> int:
    found = signs()
    if found:
        print(refusal(found), file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
