"""What the machine where the bundle is made says of Slurm, HyperPod and versions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from hpslurm.bundle.archive import SLURM
from hpslurm.bundle.parts import Parts
from hpslurm.bundle.request import Request
from hpslurm.core import nodeset, probe
from hpslurm.core.policy import Policy
from hpslurm.core.probe import Unknown
from hpslurm.core.records import Record
from hpslurm.core.text import clean
from hpslurm.core.values import dataclass
from hpslurm.setup import doctor, versions
from hpslurm.sources import hyperpod, slurm
from hpslurm.sources.host import Host

SECONDS = 30.0  # for Slurm's programs, beyond those of diagnose
SLURM_TEXTS = (
    ("slurm/config.txt", "scontrol_config", "scontrol show config"),
    ("slurm/nodes.txt", "scontrol_nodes", "scontrol show nodes"),
    ("slurm/sinfo.txt", "sinfo", "sinfo"),
    ("slurm/ping.txt", "scontrol_ping", "scontrol ping"),
)


@dataclass(frozen=True)
class Machine:
    """What the machine where the bundle is made says about Slurm and HyperPod."""

    slurm_version: str = ""
    controllers: tuple[slurm.Controller, ...] = ()
    layout: hyperpod.Layout = hyperpod.Layout()


def look(request: Request, rules: Policy, kept: Sequence[Record], parts: Parts) -> Machine:
    host = Host(request.root, seconds=SECONDS)
    version, layout = "", hyperpod.Layout()
    controllers: tuple[slurm.Controller, ...] = ()
    if request.slurm:
        version = parts.tried("Slurm's version", lambda: versions.slurm_version(host), "")
        controllers = parts.tried("slurm/", lambda: slurm.controllers(host), controllers)
        job = request.job
        texts = [*SLURM_TEXTS, *([("slurm/job.txt", "scontrol_job", f"scontrol show job {job}")] if job else [])]
        for name, program, source in texts if controllers else ():
            words = (job,) if program == "scontrol_job" else ()
            parts.text(name, source, partial(_program, host, program, source, *words), SLURM)
    try:
        layout = hyperpod.layout(host)
    except (probe.Skip, Unknown):
        pass  # findings.txt says so
    parts.text("versions.txt", "files and programs here, and records", lambda: _versions(host, kept))
    parts.report("doctor.txt", "hpslurm doctor", lambda: doctor.text(list(doctor.run(host, rules))))
    host.end_all()
    return Machine(version, controllers, layout)


def _program(host: Host, name: str, source: str, *words: str) -> str:
    output = host.run(name, *words)
    if output.status != 0 and not (name == "scontrol_ping" and output.out):
        raise Unknown(slurm.trouble(source, output))
    return output.out


def _versions(host: Host, kept: Iterable[Record]) -> str:
    lines = ["Here, where the bundle was made:", *versions.lines(host)]
    seen: dict[tuple[str, str], list[str]] = {}
    for record in kept:
        for result in record.results:
            if result.probe == "versions":
                for name, value in (result.facts or {}).items():
                    if value and not name.endswith("_file"):
                        seen.setdefault((name, str(value)), []).append(record.node)
    if seen:
        lines += ["", "On the nodes, by their records:"]
        lines += [
            f"  {name + ':':16} {clean(value, 80)}  on {nodeset.fold(nodes)}"
            for (name, value), nodes in sorted(seen.items())
        ]
    return "\n".join(lines)
