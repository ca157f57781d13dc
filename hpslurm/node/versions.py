"""Versions of everything between the program and the wire, read from files.

All nodes of a job need the same driver, NCCL, plugin and libfabric: a node that differs
can hang the others without a word. The versions are facts in every record, so that they
can be compared between nodes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from hpslurm.core.finding import Finding
from hpslurm.core.policy import Policy
from hpslurm.core.probe import Unknown
from hpslurm.core.values import dataclass, fields
from hpslurm.node import instance
from hpslurm.sources import elf
from hpslurm.sources.host import Host

INSTALLED = "/opt/amazon/efa_installed_packages"
LIBRARIES = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/local/lib", "/usr/lib")
NCCL_FOLDERS = ("/opt/nccl/build/lib", "/usr/local/nccl/lib", "/usr/local/cuda/lib64")
PLUGIN_FOLDERS = (
    "/opt/amazon/ofi-nccl/lib",
    "/opt/amazon/ofi-nccl/lib64",
    "/opt/amazon/ofi-nccl/lib/x86_64-linux-gnu",
    "/opt/amazon/ofi-nccl/lib/aarch64-linux-gnu",
    "/opt/aws-ofi-nccl/lib",
    "/opt/amazon/aws-ofi-nccl/lib",
    "/opt/aws-ofi-nccl/install/lib",
)
_NCCL_TEXT = rb"NCCL version (\d+\.\d+\.\d+)"
_PLUGIN_TEXT = rb"aws-ofi-nccl (\d+\.\d+[.\d]*)"


@dataclass(frozen=True)
class Facts:
    """Empty text: not installed here, or not to be found out."""

    type: str = ""  # instance type
    kernel: str = ""
    driver: str = ""  # NVIDIA's
    cuda: str = ""  # toolkit
    nccl: str = ""
    plugin: str = ""  # aws-ofi-nccl
    libfabric: str = ""
    efa_installer: str = ""
    efa: str = ""  # kernel driver
    gdrcopy: str = ""
    nccl_file: str = ""
    plugin_file: str = ""


def collect(host: Host) -> Facts:
    try:
        kind = instance.instance_type(host)
    except Unknown:
        kind = ""
    installed = packages(host)
    nccl_file, nccl = nccl_library(host)
    plugin_file, plugin = plugin_library(host)
    if not plugin:
        plugin = _first(r"libnccl-ofi[^_\s]*[_-](\d+\.\d+[.\d]*)", installed)
    return Facts(
        kind,
        host.read("/proc/sys/kernel/osrelease").strip(),  # every Linux has it: without, nothing can be seen here
        _first(r"Module\s.*?\s(\d+\.\d+[.\d]*)\s", _text(host, "/proc/driver/nvidia/version")),
        _first(r'"cuda"\s*:\s*\{[^}]*"version"\s*:\s*"([\d.]+)"', _text(host, "/usr/local/cuda/version.json")),
        nccl,
        plugin,
        _first(r"libfabric\d*-aws(?:-bin)?[_-](\d+\.\d+[.\d]*(?:amzn[\d.]+)?)", installed),
        _first(r"EFA installer version: (\S+)", installed),
        _text(host, "/sys/module/efa/version").strip(),
        _text(host, "/sys/module/gdrdrv/version").strip(),
        nccl_file,
        plugin_file,
    )


def packages(host: Host) -> str:
    """What EFA's installer says that it installed; empty where it was not used."""
    return _text(host, INSTALLED)


def _text(host: Host, path: str) -> str:
    try:
        return host.read(path, most=1 << 16)
    except FileNotFoundError:
        return ""


def _first(pattern: str, text: str) -> str:
    match = re.search(pattern, text)
    return match[1] if match else ""


def folders(host: Host, name: str) -> list[str]:
    """Folders of a variable such as LD_LIBRARY_PATH; a hook has no user's."""
    value = "" if host.in_hook else host.env.get(name, "")
    return [one for one in value.split(":") if one.startswith("/")]


def nccl_library(host: Host) -> tuple[str, str]:
    """Path and version of the NCCL that a program here would load first, as far as a file can tell."""
    wheels = [
        path
        for root in (*folders(host, "VIRTUAL_ENV")[:1], *folders(host, "CONDA_PREFIX")[:1])
        for path in host.glob(f"{root}/lib/python3*/site-packages/nvidia/nccl/lib/libnccl.so.2")
    ]
    places = [*folders(host, "LD_LIBRARY_PATH"), *LIBRARIES, *NCCL_FOLDERS]
    for path in [*wheels, *(f"{folder}/libnccl.so.2" for folder in places)]:
        if host.exists(path):
            return path, _nccl_version(host, path)
    return "", ""


def _nccl_version(host: Host, path: str) -> str:
    real = os.path.basename(os.path.realpath(host.path(path)))
    if version := _first(r"\.so\.(\d+\.\d+\.\d+)$", real):
        return version
    packages = path.partition("/nvidia/nccl/")[0]
    for about in host.glob(f"{packages}/nvidia_nccl_cu*-*.dist-info") if "/nvidia/nccl/" in path else ():
        return _first(r"nvidia_nccl_cu\d+-([\d.]+)\.dist-info", about)
    return _inside(host, path, _NCCL_TEXT)


def plugin_library(host: Host) -> tuple[str, str]:
    """Path and version of the plugin that NCCL would load first."""
    places = [*folders(host, "LD_LIBRARY_PATH"), *PLUGIN_FOLDERS, *LIBRARIES]
    for folder in places:
        for name in ("libnccl-net-ofi.so", "libnccl-net.so"):
            if host.exists(f"{folder}/{name}"):
                return f"{folder}/{name}", plugin_version(host, f"{folder}/{name}")
    return "", ""


def plugin_version(host: Host, path: str) -> str:
    return _inside(host, path, _PLUGIN_TEXT)


def _inside(host: Host, path: str, pattern: bytes) -> str:
    try:
        return (elf.search(host.path(path), pattern) or b"").decode("ascii", "replace").rstrip(".")
    except (OSError, elf.Broken):
        return ""


# known combinations


def order(version: str) -> tuple[int, ...]:
    """Numbers up to the first other text, for comparison.

    >>> order("1.22.0amzn4.0"), order("v2.30.7-1"), order("unknown")
    ((1, 22, 0), (2, 30, 7), ())
    """
    match = re.match(r"[vV]?(\d+(?:\.\d+)*)", version)
    return tuple(int(one[:9]) for one in match[1].split(".")) if match else ()


def within(version: str, low: str, below: str) -> bool:
    """``low`` <= version < ``below``; an empty bound is none. False for a version that is not known."""
    here = _padded(version)
    return bool(here) and (not low or _padded(low) <= here) and (not below or here < _padded(below))


def later(version: str, than: str) -> bool:
    return _padded(version) > _padded(than)


def _padded(version: str) -> tuple[int, ...]:
    numbers = order(version)
    return (*numbers, 0, 0, 0, 0)[: max(4, len(numbers))] if numbers else ()


def judge(facts: Facts, policy: Policy) -> Iterator[Finding]:
    """Nothing: ``version_pairs`` and the comparison between nodes do."""
    return iter(())


COMPARED = tuple(item.name for item in fields(Facts) if item.name not in ("type", "nccl_file", "plugin_file"))
