"""Whoever may change a file of this installation, or a wheel that it comes from, runs as root in every hook."""

from __future__ import annotations

import json
import os
import shlex
import stat
import sys
from collections.abc import Iterator
from importlib import metadata
from itertools import islice
from urllib.parse import unquote, urlsplit

from hpslurm.core.finding import CONFIGURE, LOOK, P1, Evidence, Finding, Rule, Suggestion
from hpslurm.core.policy import Policy
from hpslurm.core.probe import Skip, Unknown
from hpslurm.core.text import clean
from hpslurm.core.values import dataclass
from hpslurm.setup.doctor_software import PACKAGE
from hpslurm.sources.host import Host

OWNER = Rule("install-owner", P1, "Others than root may change what hooks run as root", "operations.md § 7")
MOST = 100_000  # files looked at; an installation with everything has 15,000
SHOWN = 6


@dataclass(frozen=True)
class Facts:
    """``loose`` maps a path to who may change it; ``wheels`` is where this release was installed from, if known."""

    loose: tuple[tuple[str, str], ...] = ()
    wheels: str = ""
    cut_off: bool = False


def collect(host: Host) -> Facts:
    return look(sys.prefix if sys.prefix != sys.base_prefix else PACKAGE, PACKAGE, wheel_folder())


def look(install: str, package: str, wheels: str) -> Facts:
    """The installation, the package where it lies elsewhere (a checkout), and the wheels; and all folders above."""
    if os.geteuid() and os.stat(install).st_uid == os.geteuid():
        raise Skip("this is your own installation, not one that hooks of root run")
    wheels = wheels if os.path.isdir(wheels) else ""
    inside = [path for one in dict.fromkeys((install, package)) for path in islice(_below(one), MOST)]
    inside += [f"{wheels}/{name}" for name in (os.listdir(wheels) if wheels else ()) if name.endswith(".whl")]
    tops = [one for one in (install, package, wheels) if one]
    paths = dict.fromkeys([*(above for top in tops for above in _above(top)), *tops, *inside])
    owned = ((path, _who(path)) for path in paths)
    return Facts(tuple((path, who) for path, who in owned if who), wheels, len(inside) >= MOST)


def _below(folder: str) -> Iterator[str]:
    for where, folders, files in os.walk(folder):
        yield from (f"{where}/{name}" for name in (*folders, *files))


def _above(path: str) -> Iterator[str]:
    path = os.path.realpath(path)
    while path != "/":
        path = os.path.dirname(path)
        yield path


def _who(path: str) -> str:
    """Who beside root may change it, or empty. A sticky folder lets nobody rename what is another's."""
    try:
        about = os.lstat(path)
    except OSError:  # gone meanwhile
        return ""
    if about.st_uid not in (0, os.geteuid()):
        return f"owned by uid {about.st_uid}"
    sticky = stat.S_ISDIR(about.st_mode) and about.st_mode & stat.S_ISVTX
    if stat.S_ISLNK(about.st_mode) or sticky or not about.st_mode & 0o022:
        return ""
    return f"mode {about.st_mode & 0o7777:04o}"


def wheel_folder() -> str:
    """The folder of the file that pip installed, as pip noted it; empty where it came by name (``--find-links``)."""
    try:
        text = metadata.distribution("hpslurm").read_text("direct_url.json")
        url = urlsplit(json.loads(text or "{}").get("url") or "")
    except (metadata.PackageNotFoundError, OSError, ValueError, AttributeError, TypeError):
        return ""
    path = unquote(url.path)
    return os.path.dirname(path) if url.scheme == "file" and path.endswith(".whl") else ""


def judge(facts: Facts, policy: Policy) -> Iterator[Finding]:
    if facts.loose:
        told = [f"{clean(path, 200)}: {who}" for path, who in facts.loose]
        more = f" and {len(told) - SHOWN:,} more" if len(told) > SHOWN else ""
        yield OWNER.found(
            f"{'; '.join(told[:SHOWN])}{more}; expected root's, and not writable by group or others",
            evidence=[Evidence("owner and mode", one) for one in told[:SHOWN]],
            suggest=[
                Suggestion(LOOK, "owner and mode", f"ls -ld {' '.join(shlex.quote(path) for path in _few(facts))}"),
                Suggestion(
                    CONFIGURE,
                    "chown root:root and chmod go-w what is named; install anew if somebody may have changed it",
                ),
            ],
        )
    if facts.cut_off:
        raise Unknown(f"only the first {MOST:,} files were looked at")


def _few(facts: Facts) -> list[str]:
    return [path for path, _ in facts.loose[:SHOWN] if clean(path, 4000) == path] or ["/opt/hpslurm"]
