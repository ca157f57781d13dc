"""Our version, and what is around it: from files, and from Slurm's programs by their -V."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from hpslurm import __version__
from hpslurm.core.probe import Unknown
from hpslurm.core.text import clean
from hpslurm.node import versions
from hpslurm.setup.doctor_software import version_of
from hpslurm.sources import slurm
from hpslurm.sources.host import Host


def lines(host: Host) -> Iterator[str]:
    """Ours first; then one line for each thing that a question about hpslurm needs."""
    yield f"hpslurm {__version__}"
    for name, version in around(host):
        yield f"  {name + ':':16} {clean(version, 60) or 'not found'}"
    host.end_all()


def around(host: Host) -> Iterator[tuple[str, str]]:
    yield "Python", ".".join(map(str, sys.version_info[:3]))
    yield "Slurm", slurm_version(host)
    yield "pyslurm", version_of("pyslurm")
    try:
        facts = versions.collect(host)
    except (OSError, Unknown):
        facts = versions.Facts()
    yield "instance type", facts.type
    yield "kernel", facts.kernel
    yield "NVIDIA driver", facts.driver
    yield "CUDA toolkit", facts.cuda
    yield "NCCL", facts.nccl
    yield "aws-ofi-nccl", facts.plugin
    yield "libfabric", facts.libfabric
    yield "EFA installer", facts.efa_installer
    yield "EFA driver", facts.efa


def slurm_version(host: Host) -> str:
    """Of Slurm's programs here, also where no controller answers; empty where there are none."""
    for name in ("slurmd_version", *(("scontrol_version",) if slurm.slurm_conf(host) or host.root else ())):
        try:
            asked = host.run(name)
        except Unknown:
            continue
        if asked.status == 0 and asked.out.startswith("slurm"):
            return asked.out.split()[-1]
    return ""
