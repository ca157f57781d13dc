"""Which NICs serve which GPU, from NCCL's own lines.

``Channel 00/0 : 3[3] -> 11[3] [send] via NET/Libfabric/3/GDRDMA``: rank 3 sends by network device 3. A slow rail is a
NIC, and its name is what a person looks for next. NCCL numbers its network devices; the AWS plugin says which PCI
devices stand behind one (``NIC group 3 device #0 0000:4f:00.0``), NCCL what it is called. The log may be cut off or
may say none of it: then there is nothing here, and nobody guesses.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from hpslurm.core import linear
from hpslurm.core.text import clean
from hpslurm.core.values import dataclass, field

# Four digits at most: NCCL has no such number of devices, and a damaged line must not make one.
_CHANNEL = linear.late(
    r"(?:Channel|Ring) \d+(?:/\d+)? : (\d{1,7})(?:\[(\w+)\])? -> (\d{1,7})(?:\[(\w+)\])? \[(send|receive)\] "
    r"via NET/[^/]{1,40}/(\d{1,4})(?:\((\d{1,7})\))?(?![\d(])"
)
_START = linear.late(r"\brank (\d{1,7}) n[rR]anks \d+ cudaDev \d+(?: nvmlDev (\d{1,3}))? ")
_OVER = linear.late(r"\brank (\d{1,7}) n[rR]anks .{0,256} - (?:Destroy|Abort) COMPLETE")
_NAME = linear.late(r"GPU Direct RDMA (?:Enabled|Disabled) for HCA (\d{1,4}) '([^'\s]{1,64})'")
_GROUP = linear.late(r"NIC group (\d{1,4}) device #(\d{1,4}) ([0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f])(?!\w)")
_ENDING = linear.late(r"-(?:rdm|dgrm)$")  # libfabric's domain is the device's name with this behind it


@dataclass
class Host:
    """What is known about the NICs of one host: by the number of NCCL's network device."""

    names: dict[int, str] = field(default_factory=dict)
    groups: dict[int, dict[int, str]] = field(default_factory=dict)  # PCI addresses of the plugin's groups


@dataclass
class Rank:
    """One rank: its GPU by NVML's number, the network devices that it used, and whether its log is whole."""

    gpu: int | None = None
    devices: set[int] = field(default_factory=set)
    over: bool = False


@dataclass
class Rails:
    """All that the lines told. Ranks are by host and number."""

    hosts: dict[str, Host] = field(default_factory=dict)
    ranks: dict[tuple[str, int], Rank] = field(default_factory=dict)

    def host(self, name: str) -> Host:
        return self.hosts.setdefault(name, Host())

    def rank(self, host: str, number: int) -> Rank:
        return self.ranks.setdefault((host, number), Rank())


@dataclass(frozen=True)
class Uneven:
    """A rank that uses fewer NICs than others that should use as many."""

    host: str
    rank: int
    gpu: int | None
    count: int
    usual: int
    others: str  # whom it was compared with


def read(host: str, text: str, rails: Rails) -> None:
    """Take what one line of a process on ``host`` tells."""
    if "NCCL INFO" in text:  # two processes wrote at once: the end is another one's, perhaps of another host
        return
    if (match := _CHANNEL.search(text)) is not None:
        sends = match[5] == "send"
        mine, gpu = (match[1], match[2]) if sends else (match[3], match[4])
        rank = rails.rank(host, int(mine))
        if rank.gpu is None and gpu and len(gpu) < 3 and gpu.isdigit():  # before 2.17 a PCI address stands there
            rank.gpu = int(gpu)
        rails.rank(host, int(match[7] or mine)).devices.add(int(match[6]))  # another rank's NIC, with PXN
    elif (match := _GROUP.search(text)) is not None:
        rails.host(host).groups.setdefault(int(match[1]), {})[int(match[2])] = match[3]
    elif (match := _NAME.search(text)) is not None:
        rails.host(host).names[int(match[1])] = _ENDING.sub("", clean(match[2], 64))
    elif (match := _OVER.search(text)) is not None:
        rails.rank(host, int(match[1])).over = True
    elif (match := _START.search(text)) is not None:
        rank = rails.rank(host, int(match[1]))
        rank.gpu = int(match[2]) if match[2] else rank.gpu


def name_of(address: str) -> str:
    """``rdmap79s0`` for 0000:4f:00.0: the name that rdma-core gives the device at this address."""
    domain, bus, rest = address.split(":")
    slot, _, function = rest.partition(".")
    front = f"rdmaP{int(domain, 16)}p" if int(domain, 16) else "rdmap"
    return f"{front}{int(bus, 16)}s{int(slot, 16)}" + (f"f{int(function, 16)}" if int(function, 16) else "")


def nics(host: Host | None, device: int) -> list[str]:
    """The NICs behind one network device of NCCL, by name; empty where the log does not say."""
    if host is None:
        return []
    called = host.names.get(device, "")
    group = [address for _, address in sorted(host.groups.get(device, {}).items())]
    names = [name_of(address) for address in group]
    if called in names:
        return [f"{name} ({address})" for name, address in zip(names, group, strict=True)]
    if called.startswith("rdmap") or not group:  # such a name tells the address: group and device are numbered apart
        return [called] if called else []
    return group  # devices with names of another kind


def of_gpu(rails: Rails, host: str, gpu: int) -> list[str]:
    """The NICs that served this GPU, in words; empty where the log does not say."""
    served: list[str] = []
    for (name, _), rank in sorted(rails.ranks.items()):
        if name.partition(".")[0] == host.partition(".")[0] and rank.gpu == gpu:
            for device in sorted(rank.devices):
                served += nics(rails.hosts.get(name), device) or [f"network device {device}"]
    return list(dict.fromkeys(served))


def count(rails: Rails, host: str, rank: Rank) -> int:
    """How many NICs a rank used: those behind its network devices, or the devices where the log names none."""
    return sum(len(nics(rails.hosts.get(host), device)) or 1 for device in rank.devices)


def uneven(rails: Rails) -> Iterator[Uneven]:
    """Ranks with fewer NICs than the same GPU of other hosts, or than most GPUs of their own host.

    Only ranks whose log came to its end count, and only hosts from which all came: in half a log half the NICs show.
    """
    hosts: dict[str, list[tuple[int, Rank, int]]] = {}
    for (host, number), rank in sorted(rails.ranks.items()):
        hosts.setdefault(host, []).append((number, rank, count(rails, host, rank)))
    whole = {host: ranks for host, ranks in hosts.items() if all(rank.over for _, rank, _ in ranks)}
    whole = {host: ranks for host, ranks in whole.items() if any(used for _, _, used in ranks)}
    by_gpu: dict[int, dict[str, int]] = {}
    for host, ranks in whole.items():
        for _, rank, used in ranks:
            if rank.gpu is not None:
                by_gpu.setdefault(rank.gpu, {})[host] = used
    for host, ranks in whole.items():
        most, times = Counter(used for _, _, used in ranks if used).most_common(1)[0]
        for number, rank, used in ranks:
            same = by_gpu.get(-1 if rank.gpu is None else rank.gpu, {})
            there = [other for name, other in same.items() if name != host]
            usual = sorted(there)[len(there) // 2] if there else 0
            if used < usual:
                yield Uneven(host, number, rank.gpu, used, usual, "the same GPU on other nodes")
            elif 0 < used < most and 2 * times > len(ranks):
                yield Uneven(host, number, rank.gpu, used, most, "most GPUs of its node")
