"""aws-ofi-nccl: is the plugin here that takes NCCL to EFA, and could it be loaded?

Without it NCCL goes on over TCP and prints one line that is easy to miss. The library is
looked at as a file (what it needs, and whether that is there), never loaded: loading it
starts CUDA. A container brings its own; there, run the check inside.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from hpslurm.core.finding import CONFIGURE, LOOK, P1, P2, Evidence, Finding, Rule, Suggestion
from hpslurm.core.policy import Policy
from hpslurm.core.probe import Skip
from hpslurm.core.values import dataclass
from hpslurm.node import efa, versions
from hpslurm.sources import elf
from hpslurm.sources.host import Host

MISSING = Rule("plugin-missing", P1, "No aws-ofi-nccl plugin on this node", "debugging-guide.md § 13")
BROKEN = Rule("plugin-broken", P1, "The plugin cannot be loaded", "debugging-guide.md § 13")
SEVERAL = Rule("plugin-several", P2, "Several plugins: the older one is loaded first", "debugging-guide.md § 10")
SYSTEM = ("/opt/amazon/efa/lib", "/opt/amazon/efa/lib64", *versions.LIBRARIES, "/usr/local/cuda/lib64")
CACHE = "/etc/ld.so.cache"
# Only what the plugin cannot do without, and what the system never has by itself.
WANTED = ("libfabric.so",)


@dataclass(frozen=True)
class Facts:
    path: str  # the one that NCCL would load first; empty: none
    version: str
    trouble: str  # why it could not be loaded; empty: nothing found
    others: dict[str, str]  # path to version, of those that are not reached


def collect(host: Host) -> Facts:
    if not efa.devices(host):
        raise Skip("no EFA device")
    path, version = versions.plugin_library(host)
    if not path:
        return Facts("", "", "", {})
    real = os.path.realpath(host.path(path))
    others = {}
    for folder in versions.PLUGIN_FOLDERS:
        for name in ("libnccl-net-ofi.so", "libnccl-net.so"):
            other = f"{folder}/{name}"
            if host.exists(other) and os.path.realpath(host.path(other)) != real:
                its_version = versions.plugin_version(host, other)
                if its_version and its_version != version:
                    others[other] = its_version
    return Facts(path, version, _trouble(host, path), others)


def _trouble(host: Host, path: str) -> str:
    try:
        library = elf.read(host.path(path))
    except elf.Broken as why:
        return str(why).replace(host.path(""), "", 1)
    machine = elf.MACHINES.get(os.uname().machine if not host.root else "x86_64")
    if machine and library.machine != machine:
        return f"{path} is built for another processor"
    origin = path.rpartition("/")[0]
    places = [one.replace("$ORIGIN", origin).replace("${ORIGIN}", origin) for one in library.folders]
    places += [*versions.folders(host, "LD_LIBRARY_PATH"), *SYSTEM]
    for needed in library.needed:
        if needed.startswith(WANTED) and not any(host.exists(f"{place}/{needed}") for place in places):
            if host.exists(CACHE) and needed.encode() in host.read_bytes(CACHE, 4 << 20):
                continue
            return f"{path} needs {needed}, which is in none of the folders it looks in"
    return ""


def judge(facts: Facts, policy: Policy) -> Iterator[Finding]:
    see = Suggestion(
        LOOK,
        "see what is installed",
        "srun -w {nodes} sh -c 'ls -l /opt/amazon/ofi-nccl/lib*; cat /opt/amazon/efa_installed_packages'",
    )
    if not facts.path:
        yield MISSING.found(
            "EFA devices but no libnccl-net-ofi.so or libnccl-net.so; a container may bring its own",
            evidence=[Evidence("folders", " ".join(versions.PLUGIN_FOLDERS[:2]))],
            suggest=[
                see,
                Suggestion(
                    LOOK, "look inside the job's container", "srun -w {nodes} --container-image=IMAGE hpslurm-check.pyz"
                ),
                Suggestion(CONFIGURE, "EFA's installer brings it (1.29 and later); in the lifecycle script as well"),
            ],
        )
    if facts.trouble:
        yield BROKEN.found(
            facts.trouble,
            evidence=[Evidence(facts.path, facts.version or "no version in it")],
            suggest=[see, Suggestion(LOOK, "see what is missing", f"srun -w {{nodes}} ldd {facts.path}")],
        )
    newer = {
        path: version
        for path, version in facts.others.items()
        if facts.version and versions.order(version) > versions.order(facts.version)
    }
    if newer:
        yield SEVERAL.found(
            f"{facts.path} ({facts.version}) is found before {', '.join(map(' '.join, newer.items()))}",
            evidence=[Evidence(path, version) for path, version in {facts.path: facts.version, **newer}.items()],
            suggest=[
                Suggestion(LOOK, "NCCL_DEBUG=INFO prints which one it took: Initializing aws-ofi-nccl"),
                Suggestion(CONFIGURE, "take the older folder off LD_LIBRARY_PATH and ld.so.conf"),
            ],
        )
