"""EFA: are all network devices of this instance type here, and does libfabric see them?

With a device missing NCCL slows down or stops; with none it goes on over TCP, 200
times slower, without another word. Devices are counted in sysfs against the instance
table. libfabric is asked (``fi_info -p efa``) only where a device exists, and its
domains are counted without their endings: one device makes one to three blocks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from hpslurm.core import suggest
from hpslurm.core.finding import CONFIGURE, LOOK, P0, Evidence, Finding, Rule, Suggestion
from hpslurm.core.policy import Policy
from hpslurm.core.probe import Skip, Unknown
from hpslurm.core.text import clean
from hpslurm.core.values import dataclass
from hpslurm.node import instance
from hpslurm.sources.host import Host, error_of

SECTION = "debugging-guide.md § 6"
MISSING = Rule("efa-missing", P0, "EFA devices missing", SECTION, cause="efa_not_used", gateable=True)
NO_PROVIDER = Rule("efa-no-provider", P0, "libfabric finds no EFA", SECTION)
DOMAINS = Rule("efa-domains", P0, "libfabric sees only some EFA devices", SECTION)

SYSFS = "/sys/class/infiniband"
VENDOR, DEVICE = "0x1d0f", re.compile(r"0xefa[0-9a-f]")  # Amazon; EFA is 0xefa0 to 0xefa3 so far
_PCI_ID = re.compile(r"0x[0-9a-f]{4}")
NO_DATA = 61  # fi_info: nothing of the kind was found
_DOMAIN = re.compile(r"\s*domain:\s*(\S+?)(?:-(?:rdm|dgrm))?$")
_SEE = Suggestion(
    LOOK,
    "see which devices the node has",
    "srun -w {nodes} sh -c 'ls /sys/class/infiniband; lspci -n -d 1d0f: | grep -c efa'",
)


@dataclass(frozen=True)
class Facts:
    type: str  # instance type; empty where not known
    expected: int | None  # devices; None where no source gives a figure
    devices: tuple[str, ...]  # in sysfs
    domains: tuple[str, ...] | None  # as libfabric names them; None where it could not be asked
    trouble: str = ""  # why a part could not be judged
    uptime: float = float("inf")  # seconds since boot


def devices(host: Host) -> tuple[str, ...]:
    """Names of the EFA devices in sysfs; several probes ask, so each host is looked at once."""
    known = host.shared.get(SYSFS)
    if known is None:
        known = host.shared[SYSFS] = _devices(host)
    return known


def _devices(host: Host) -> tuple[str, ...]:
    names = []
    for path in host.glob(f"{SYSFS}/*"):
        vendor, device = host.word(f"{path}/device/vendor"), host.word(f"{path}/device/device")
        for name, word in (("vendor", vendor), ("device", device)):
            if word is not None and not _PCI_ID.fullmatch(word):
                raise Unknown(f"{path}/device/{name} holds {clean(word, 40)!r}, which is not a PCI id")
        if vendor == VENDOR and device and DEVICE.fullmatch(device):
            names.append(path.rpartition("/")[2])
    return tuple(names)


def start(host: Host) -> None:
    if devices(host):
        host.start("fi_info")


def collect(host: Host) -> Facts:
    here = devices(host)
    trouble = []
    name, wanted = "", None
    try:
        name, row = instance.expected(host)
        wanted = row.efa
        if wanted is None:
            trouble.append(f"no source says how many EFA devices a {name} has")
    except Unknown as why:
        trouble.append(str(why))
    if not here and not wanted:
        raise Skip(f"{name} has no EFA device" if wanted == 0 else f"no EFA device; {'; '.join(trouble)}")
    domains = None
    if here:
        try:
            domains = _domains(host)
        except Unknown as why:
            trouble.append(str(why))
    return Facts(name, wanted, here, domains, "; ".join(trouble), _uptime(host))


def _uptime(host: Host) -> float:
    try:
        return host.uptime()
    except FileNotFoundError:  # a saved machine
        return float("inf")


def _domains(host: Host) -> tuple[str, ...]:
    output = host.run("fi_info")
    if output.status == NO_DATA:
        return ()
    if output.status:
        raise Unknown(f"fi_info failed: {error_of(output)}")
    names = domains(output.out)
    if not names:
        raise Unknown("fi_info succeeded but named no EFA domain")
    return names


def domains(fi_info: str) -> tuple[str, ...]:
    """EFA's domains in what ``fi_info -p efa`` prints, each once and without its ending.

    >>> domains('''
    ... provider: efa
    ...     fabric: efa
    ...     domain: rdmap79s0-rdm
    ...     version: 122.0
    ... provider: efa
    ...     fabric: efa-direct
    ...     domain: rdmap79s0-rdm
    ... provider: efa;ofi_rxd
    ...     domain: rdmap80s0-dgrm
    ... provider: tcp
    ...     domain: ens5
    ... ''')
    ('rdmap79s0', 'rdmap80s0')
    """
    provider, names = "", set()
    for line in fi_info.splitlines():
        if line.startswith("provider:"):
            provider = line.split(":", 1)[1].strip().split(";")[0]
        elif provider == "efa" and (match := _DOMAIN.match(line)):
            names.add(match[1])
    return tuple(sorted(names))


def judge(facts: Facts, policy: Policy) -> Iterator[Finding]:
    count = len(facts.devices)
    if facts.expected is not None and count < facts.expected and facts.uptime < policy.efa_boot_grace:
        raise Unknown(
            f"{count} of {facts.expected} EFA devices {facts.uptime:.0f} s after boot; "
            f"the others may still come (efa_boot_grace is {policy.efa_boot_grace:.0f} s)"
        )
    if facts.expected is not None and count < facts.expected:
        yield MISSING.found(
            f"{count} of {facts.expected} EFA devices of a {facts.type}",
            evidence=[Evidence(SYSFS, " ".join(facts.devices) or "no EFA device")],
            suggest=[
                _SEE,
                Suggestion(LOOK, "see why one did not come up", "srun -w {nodes} sh -c 'dmesg | grep -i efa | tail'"),
                suggest.save_evidence(),
                suggest.drain(MISSING.id),
                suggest.reboot("a device that did not come up may come back"),
                suggest.replace("if it is still missing after the reboot"),
            ],
        )
    if count and facts.domains is not None and len(facts.domains) < count:
        lost = sorted(set(facts.devices) - set(facts.domains))
        rule = DOMAINS if facts.domains else NO_PROVIDER
        yield rule.found(
            f"fi_info -p efa shows {len(facts.domains)} of {count} devices",
            evidence=[Evidence("fi_info -p efa", " ".join(facts.domains) or "nothing (exit status 61)")]
            + ([Evidence(SYSFS, "not seen by libfabric: " + " ".join(lost))] if facts.domains else []),
            suggest=[
                Suggestion(
                    LOOK,
                    "libfabric says why it drops a device",
                    "srun -w {nodes} env FI_HMEM=system FI_LOG_LEVEL=warn FI_LOG_PROV=efa "
                    "/opt/amazon/efa/bin/fi_info -p efa",
                ),
                Suggestion(
                    CONFIGURE,
                    "one device that may not be opened (locked memory, permissions) hides all",
                    "srun -w {nodes} sh -c 'ulimit -l; ls -l /dev/infiniband'",
                ),
            ],
        )
    if facts.trouble:
        raise Unknown(facts.trouble)
