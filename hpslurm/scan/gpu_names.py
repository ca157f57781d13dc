"""The name of a GPU as a line writes it: PCI address, UUID or index."""

from __future__ import annotations

from hpslurm.core import linear

_GPU_INDEX = linear.late(r"\bGPU[ :#-]?(\d{1,2})\b(?!:)")


_GPU_UUID = linear.late(r"\bGPU-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")


_PCI = linear.late(r"\b([0-9A-Fa-f]{4,8}):([0-9A-Fa-f]{2}):([0-9A-Fa-f]{2})(?:\.[0-9A-Fa-f])?\b")


def pci(text: str) -> str:
    """dddd:bb:dd in lower case, the spelling of the kernel."""
    match = _PCI.search(text.replace("GPU0", "GPU 0"))  # glued: GPU0000:03:00.0
    return f"{int(match[1], 16):04x}:{match[2]}:{match[3]}".lower() if match else ""


def gpu_of(line: str) -> str:
    """The GPU that a line names: by address, else by UUID, else by index; empty where it names none."""
    if address := pci(line):
        return address
    if uuid := _GPU_UUID.search(line):
        return uuid[0]
    index = _GPU_INDEX.search(line)
    return index[1] if index else ""
