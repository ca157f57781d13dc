"""A second source for what the kernel log says of a GPU: does NVML, or the bus, show it sick as well?

Users can put text into the kernel log: a mount in a namespace of their own, a process whose name the kernel prints.
So a line alone never lets Slurm drain a node. No probe itself.
"""

from __future__ import annotations

from hpslurm.core.probe import Skip, Unknown
from hpslurm.node import gpus
from hpslurm.sources import gpu
from hpslurm.sources.gpu import Gpu
from hpslurm.sources.host import Host

NOBODY = "neither NVML nor the bus shows it: a line alone does not gate"


def signs(host: Host) -> dict[str, str]:
    """Address of each GPU to what is wrong with it now; empty words for one that is well."""
    on_bus = gpu.on_bus(host)
    try:
        seen = gpu.snapshot(host)
    except Skip:
        return {}
    except Unknown as why:
        return dict.fromkeys(on_bus, str(why))
    shown = {one.pci: trouble(one) for one in seen.gpus}
    absent = "NVML does not show it" if seen.gpus else f"NVML shows no GPU: {gpus.no_answer(seen)}"
    known = dict.fromkeys((*on_bus, *filter(None, shown)))
    return {address: shown.get(address, absent) for address in known}


def confirms(signs: dict[str, str], address: str) -> bool:
    """Whether a line has a witness: the GPU that it names, or any where it names a bridge, a switch or nothing."""
    return bool(signs[address] if address in signs else any(signs.values()))


def trouble(device: Gpu) -> str:
    """What NVML shows that is wrong with this GPU now; empty where it shows nothing of the kind."""
    errors = device.ecc[1] if device.ecc else None
    links = device.links or ()
    wrong = {
        "it answers with an error": bool(device.trouble),
        "its driver asks for a recovery": bool(device.recovery),
        "its memory waits for a repair, or is past it": bool(device.remap and any(device.remap[2:])),
        "its pages wait to be retired": bool(device.retired and device.retired[2]),
        "its memory has uncorrected errors": bool(errors) or bool(device.sram_exceeded),
        "some of its links are down": 0 in links and 1 in links,
        "its fabric is not well": _fabric_ill(device.fabric),
    }
    return ", ".join(words for words, so in wrong.items() if so)


def _fabric_ill(fabric: tuple[int | None, ...] | None) -> bool:
    from hpslurm.node.fabric import COMPLETED, NOT_SUPPORTED, Joined, complaints

    if not fabric or fabric[0] in (None, NOT_SUPPORTED):
        return False
    joined = Joined("", *(value or 0 for value in fabric))
    return joined.state != COMPLETED or bool(joined.status) or any(complaints(joined))
