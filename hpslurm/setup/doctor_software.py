"""What hpslurm itself needs on this machine: its packages, compiled bytecode, and the programs it asks."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import sys
from collections.abc import Iterable, Iterator
from importlib import metadata

from hpslurm.core.finding import CONFIGURE, P1, P2, Evidence, Finding, Rule, Suggestion
from hpslurm.core.policy import Policy
from hpslurm.core.probe import Unknown
from hpslurm.core.values import dataclass
from hpslurm.sources import slurm
from hpslurm.sources.host import COMMANDS, Host

SECTION = "operations.md § 7"
PACKAGES = Rule("package-missing", P1, "A package that hpslurm needs is missing or too old", SECTION)
BYTECODE = Rule("bytecode-missing", P2, "hpslurm's bytecode is not compiled, so each hook takes longer", SECTION)
PYSLURM = Rule("pyslurm-differs", P2, "pyslurm is of another release than Slurm", SECTION)
PROGRAMS = Rule("program-missing", P2, "A program that hpslurm asks is not installed", SECTION)

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
NVML = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/lib")
# What hooks, the check, doctor and hang's part on a node import (docs/install.md).
LEAN = ("click", "clustershell", "nvidia-ml-py", "psutil", "tomli")
# As packages note it: a name, bounds in any order, and when it is wanted: click<9,>=8.1; python_version < '3.15'
REQUIREMENT = re.compile(
    r"(?P<name>[A-Za-z0-9._-]{1,99})(?:\[[^\]]{0,99}\])?(?P<bounds>[^;]{0,200})(?:;(?P<when>.{0,400}))?"
)
LEAST = re.compile(r">=\s{0,9}([0-9.]{1,20})")
CONDITION = re.compile(
    r"\s{0,9}(?P<what>\w{1,40})\s{0,9}(?P<how><|>=|==|in)\s{0,9}['\"](?P<value>[^'\"]{0,99})['\"]\s{0,9}"
)


@dataclass(frozen=True)
class Facts:
    """``packages`` are what is missing or too old, in words; ``programs`` a missing one and what needs it.

    ``lean``: only what hooks and the check need is installed, so the rest is not missing.
    """

    python: str
    packages: tuple[str, ...] = ()
    uncompiled: tuple[str, ...] = ()
    pyslurm: str = ""
    slurm: str = ""
    programs: tuple[tuple[str, str], ...] = ()
    note: str = ""
    lean: bool = False


def collect(host: Host) -> Facts:
    note = ""
    try:
        running = "".join(slurm.config(host).get("slurm_version", ()))
    except Unknown as why:
        running, note = "", str(why)
    wanted = list(requirements())
    lean = is_lean(name for name, _ in wanted)
    return Facts(
        ".".join(map(str, sys.version_info[:3])),
        tuple(packages((name, least) for name, least in wanted if not lean or name.lower() in LEAN)),
        tuple(uncompiled()),
        version_of("pyslurm"),
        running,
        tuple(_programs(host)),
        note,
        lean,
    )


def version_of(package: str) -> str:
    """The installed version, or empty."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def requirements() -> Iterator[tuple[str, str]]:
    """Base requirements of the installed hpslurm for this Python, and the least version of each, or empty."""
    try:
        wanted = metadata.requires("hpslurm") or []
    except metadata.PackageNotFoundError:
        yield "hpslurm", ""
        return
    for line in wanted:
        match = REQUIREMENT.match(line)
        if match and _holds(match["when"] or ""):
            least = LEAST.search(match["bounds"])
            yield match["name"], least[1] if least else ""


def _holds(when: str) -> bool:
    """Whether all conditions hold here. One that we cannot read, and one of an extra, does not."""
    return all(_one_holds(CONDITION.fullmatch(part)) for part in when.split(" and ")) if when else True


def _one_holds(condition: re.Match[str] | None) -> bool:
    if not condition:
        return False
    what, how, value = condition.group("what", "how", "value")
    if what == "python_version":
        here, there = sys.version_info[:2], _numbers(value)
        return here < there if how == "<" else here >= there if how == ">=" else False
    about = {"sys_platform": sys.platform, "platform_machine": os.uname().machine}.get(what)
    return about is not None and (about in value.split() if how == "in" else how == "==" and about == value)


def is_lean(names: Iterable[str]) -> bool:
    """Whether all that only other commands need is left out; where a part of it is there, the rest is missing."""
    rest = [name for name in names if name.lower() not in LEAN]
    return bool(rest) and "hpslurm" not in rest and not any(map(version_of, rest))


def packages(wanted: Iterable[tuple[str, str]]) -> Iterator[str]:
    """What of it this Python lacks."""
    for name, least in wanted:
        has = version_of(name)
        if not has:
            yield f"{name} is not installed" if name != "hpslurm" else "hpslurm itself is not installed as a package"
        elif least and _numbers(has) < _numbers(least):
            yield f"{name} is {has}, expected {least} or later"


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])


def uncompiled(folder: str = PACKAGE) -> Iterator[str]:
    """Modules of hpslurm that a hook may import and that have no bytecode for this Python."""
    for part in ("", "core", "node", "sources", "scan", "job", "show"):
        where = os.path.join(folder, part)
        for name in sorted(os.listdir(where)) if os.path.isdir(where) else ():
            path = os.path.join(where, name)
            if name.endswith(".py") and not os.path.exists(importlib.util.cache_from_source(path)):
                yield os.path.join(part, name)


def _programs(host: Host) -> Iterator[tuple[str, str]]:
    def missing(name: str) -> bool:
        return not any(os.access(host.path(path), os.X_OK) for path in COMMANDS[name].candidates)

    if host.glob("/sys/class/infiniband/*") and missing("fi_info"):
        yield "fi_info", "EFA's provider cannot be checked (EFA's installer brings it)"
    if host.exists("/proc/driver/nvidia/version") and not any(host.glob(f"{one}/libnvidia-ml.so.1") for one in NVML):
        yield "libnvidia-ml.so.1", "GPUs cannot be asked, except where LD_LIBRARY_PATH names another place"
    if host.exists("/opt/sagemaker_cluster") and missing("session_manager_plugin"):
        yield "session-manager-plugin", "diagnose --probe ssm cannot look at nodes (needed on the controller only)"


def judge(facts: Facts, policy: Policy) -> Iterator[Finding]:
    if facts.packages:
        yield PACKAGES.found(
            "; ".join(facts.packages),
            evidence=[Evidence(f"Python {facts.python}", one) for one in facts.packages],
            suggest=[
                Suggestion(
                    CONFIGURE,
                    "install hpslurm with its packages, from your folder of wheels: it is on no package index",
                    "sudo /opt/hpslurm/bin/pip install --no-index --find-links /fsx/hpslurm-wheels hpslurm",
                )
            ],
        )
    if facts.uncompiled:
        yield BYTECODE.found(
            f"{len(facts.uncompiled)} modules are not compiled for Python {facts.python}, "
            f"such as {facts.uncompiled[0]}",
            suggest=[
                Suggestion(
                    CONFIGURE,
                    "compile it once, as root",
                    f"sudo {shlex.quote(sys.executable)} -m compileall -q {shlex.quote(PACKAGE)}",
                )
            ],
        )
    if facts.pyslurm and facts.slurm and _numbers(facts.pyslurm)[:2] != _numbers(facts.slurm)[:2]:
        yield PYSLURM.found(
            f"pyslurm is {facts.pyslurm}, Slurm {facts.slurm}: the same major and minor version is expected; "
            "scontrol is asked instead",
            suggest=[Suggestion(CONFIGURE, "pin pyslurm to Slurm's version, or remove it")],
        )
    if facts.programs:
        yield PROGRAMS.found(
            "; ".join(f"{name}: {why}" for name, why in facts.programs),
            evidence=[Evidence("not found", name) for name, _ in facts.programs],
        )
    if facts.note:
        raise Unknown(f"Slurm's version: {facts.note}")
