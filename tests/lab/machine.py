"""Writes a saved machine: the folder that stands in for a node when a command gets ``--root``.

A lab has many nodes on one machine without EFA, so what a node has (devices, firmware, shared
memory) is written down, and what really differs between its nodes (slurmd and its limits) is
linked to the real /proc.
"""

from __future__ import annotations

import os
import re
import shutil

SHM = 1 << 40  # bytes; half of the memory of a p5.48xlarge
# Read from the real machine even on a saved one: times and the boot are those of the lab's processes.
REAL = ("proc/uptime", "proc/stat", "proc/sys/kernel/random/boot_id")


def write(
    folder: str,
    *,
    type: str = "p5.48xlarge",
    instance_id: str = "i-0123456789abcdef0",
    efa: int = 32,
    shm: int = SHM,
    shm_free: int | None = None,
) -> str:
    """A healthy p5.48xlarge, unless told otherwise; ``efa`` is how many devices came up, ``shm`` is in bytes."""
    dmi = "sys/devices/virtual/dmi/id"
    put(folder, f"{dmi}/sys_vendor", "Amazon EC2\n")
    put(folder, f"{dmi}/product_name", f"{type}\n")
    put(folder, f"{dmi}/board_asset_tag", f"{instance_id}\n")
    put(
        folder,
        "proc/self/mounts",
        f"/dev/root / ext4 rw 0 0\ntmpfs /dev/shm tmpfs rw,nosuid,nodev,size={shm >> 10}k 0 0\n",
    )
    link(folder, "proc/self/limits", "/proc/self/limits")
    free = shm if shm_free is None else shm_free
    put(folder, "commands/df.txt", f"Mounted 1B-blocks Avail Inodes IFree\n/dev/shm {shm} {free} 268435456 268435450\n")
    shutil.rmtree(os.path.join(folder, "sys/class/infiniband"), ignore_errors=True)
    names = efa_names(efa)
    for name in names:
        put(folder, f"sys/class/infiniband/{name}/device/vendor", "0x1d0f\n")
        put(folder, f"sys/class/infiniband/{name}/device/device", "0xefa1\n")
    put(folder, "commands/fi_info.txt", fi_info(names))
    put(folder, "commands/fi_info.status", "0\n" if names else "61\n")
    for path in REAL:
        link(folder, path, f"/{path}")
    return folder


def efa_names(count: int) -> list[str]:
    """Names as rdma-core gives them on a p5: bus number in the middle, four to a PCI switch."""
    return [f"rdmap{79 + 17 * (number // 4) + number % 4}s0" for number in range(count)]


def fi_info(names: list[str]) -> str:
    """What ``fi_info -p efa`` of libfabric 2.1 and later prints: three blocks for each device."""
    blocks = []
    for name in names:
        for fabric, ending, kind, protocol in (
            ("efa-direct", "rdm", "FI_EP_RDM", "FI_PROTO_EFA"),
            ("efa", "rdm", "FI_EP_RDM", "FI_PROTO_EFA"),
            ("efa", "dgrm", "FI_EP_DGRAM", "FI_PROTO_EFA"),
        ):
            rows = (f"fabric: {fabric}", f"domain: {name}-{ending}", "version: 206.0", f"type: {kind}")
            blocks.append("\n    ".join(("provider: efa", *rows, f"protocol: {protocol}")) + "\n")
    return "".join(blocks)


def show_process(folder: str, pid: int, memlock: int) -> bool:
    """Put the real process ``pid`` into the saved /proc, instead of the one shown before.

    True when it really has the wanted limit on locked memory (bytes, -1 for unlimited). Where
    this machine would not grant it, the saved limits say what a real node would have.
    """
    proc = os.path.join(folder, "proc")
    for name in os.listdir(proc):
        if name.isdigit():
            path = os.path.join(proc, name)
            os.unlink(path) if os.path.islink(path) else shutil.rmtree(path)
    with open(f"/proc/{pid}/limits") as file:
        limits = file.read()
    wanted = "unlimited" if memlock < 0 else str(memlock)
    line = f"{'Max locked memory':<26}{wanted:<21}{wanted:<21}bytes     "
    pattern = re.compile(r"^Max locked memory .*$", re.M)
    found = pattern.search(limits)
    if found and found[0].split()[3] == wanted:
        link(folder, f"proc/{pid}", f"/proc/{pid}")
        link(folder, "proc/self/limits", "/proc/self/limits")
        return True
    for name in ("comm", "stat"):
        with open(f"/proc/{pid}/{name}") as file:
            put(folder, f"proc/{pid}/{name}", file.read())
    for where in (f"proc/{pid}/limits", "proc/self/limits"):
        put(folder, where, pattern.sub(line, limits))
    return False


def put(folder: str, path: str, text: str) -> None:
    full = os.path.join(folder, path)
    os.makedirs(os.path.dirname(full), exist_ok=True)
    if os.path.islink(full):
        os.unlink(full)
    with open(full, "w") as file:
        file.write(text)


def link(folder: str, path: str, target: str) -> None:
    full = os.path.join(folder, path)
    os.makedirs(os.path.dirname(full), exist_ok=True)
    if os.path.lexists(full):
        os.unlink(full)
    os.symlink(target, full)
