"""Writes a saved machine: the folder that stands in for a node when a command gets ``--root``.

A lab has many nodes on one machine without EFA, so what a node has (devices, firmware, shared
memory) is a copy of a saved p5.48xlarge, and what really differs between the lab's nodes (slurmd
and its limits) is linked to the real /proc.
"""

from __future__ import annotations

import json
import os
import re
import shutil

HEALTHY = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "hosts", "p5-healthy")
# Real even on a saved machine: times and the boot are those of the lab's processes.
REAL = ("proc/uptime", "proc/stat", "proc/sys/kernel/random/boot_id")
DMI = "sys/devices/virtual/dmi/id"


def write(
    folder: str,
    *,
    name: str = "ip-10-1-0-3",
    type: str = "p5.48xlarge",
    instance_id: str = "i-0123456789abcdef0",
    efa: int = 32,
    shm: int | None = None,
    shm_used: int = 0,
) -> str:
    """A healthy p5.48xlarge, unless told otherwise: ``efa`` devices came up, /dev/shm holds ``shm`` bytes.

    The files are links to those of the saved case: change one with ``put``, never in place.
    """
    shutil.copytree(HEALTHY, folder, symlinks=True, dirs_exist_ok=True, copy_function=_same)
    for of_the_case in ("expected.txt", "unknown.txt"):
        os.unlink(os.path.join(folder, of_the_case))
    put(folder, "proc/sys/kernel/hostname", f"{name}\n")
    put(folder, "commands/getent.txt", f"10.1.0.3        STREAM {name}\n")  # for the first node of a job, too
    put(folder, f"{DMI}/product_name", f"{type}\n")
    put(folder, f"{DMI}/board_asset_tag", f"{instance_id}\n")
    _keep_efa(folder, efa)
    if shm is not None:
        path = os.path.join(folder, "commands/df.txt")
        lines = [line for line in _text(path).splitlines() if not line.startswith("/dev/shm ")]
        put(folder, "commands/df.txt", "\n".join([*lines, f"/dev/shm {shm} {shm - shm_used} 262144 262143\n"]))
    for path in REAL:
        link(folder, path, f"/{path}")
    return folder


def _same(source: str, target: str) -> None:
    try:
        os.link(source, target)  # 15 times as fast as a copy, and a lab has many nodes
    except OSError:  # on another file system
        shutil.copyfile(source, target)


def _keep_efa(folder: str, count: int) -> None:
    """Take the devices after the first ``count`` out of sysfs, /dev and the answer of fi_info."""
    sysfs, dev = (os.path.join(folder, path) for path in ("sys/class/infiniband", "dev/infiniband"))
    gone = sorted(os.listdir(sysfs), key=_number)[count:]
    for name in gone:
        remove(os.path.join(sysfs, name))
    for name in sorted(os.listdir(dev), key=_number)[count:]:
        remove(os.path.join(dev, name))
    blocks = re.split(r"^(?=provider:)", _text(os.path.join(folder, "commands/fi_info.txt")), flags=re.M)
    put(folder, "commands/fi_info.txt", "".join(one for one in blocks if not any(f" {name}-" in one for name in gone)))
    if not count:
        put(folder, "commands/fi_info.status", "61\n")


def _number(name: str) -> int:
    found = re.search(r"\d+", name)
    return int(found[0]) if found else 0


def lose_gpu(folder: str, pci: str) -> None:
    """A GPU falls off the bus now: the saved kernel log and the saved answer of NVML say so from here on."""
    log = _text(os.path.join(folder, "dev/kmsg"))
    number = max(int(seq) for seq in re.findall(r"^[0-9]+,([0-9]+),", log, re.M))
    now = int(float(_text("/proc/uptime").split()[0]) * 1e6)
    said = (
        f"NVRM: Xid (PCI:{pci}): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
        f"NVRM: GPU {pci}.0: GPU has fallen off the bus.",
        f"NVRM: Xid (PCI:{pci}): 154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)",
    )
    lines = (f"3,{number + at},{now},-;{text}\n" for at, text in enumerate(said, start=1))
    put(folder, "dev/kmsg", log + "".join(lines))
    seen = json.loads(_text(os.path.join(folder, "gpus.json")))
    for gpu in seen["gpus"]:
        if gpu["pci"].lower().endswith(f"{pci}.0"):
            gpu.update(uuid="", pci="", trouble={"handle": {"code": 15, "text": "GPU is lost"}})
    put(folder, "gpus.json", json.dumps(seen))


def show_slurmd(folder: str, pid: int, memlock: int) -> bool:
    """Put the real slurmd ``pid`` into the saved /proc, instead of the one shown before.

    True when it really has the wanted limit on locked memory (bytes, -1 for unlimited). Where
    this machine would not grant it, the saved limits say what a real node would have.
    """
    proc = os.path.join(folder, "proc")
    for name in os.listdir(proc):
        path = os.path.join(proc, name)
        if name.isdigit() and (os.path.islink(path) or _text(os.path.join(path, "comm")) == "slurmd\n"):
            remove(path)
    limits = _text(f"/proc/{pid}/limits")
    wanted = "unlimited" if memlock < 0 else str(memlock)
    found = re.search(r"^Max locked memory +(\S+).*$", limits, re.M)
    if found and found[1] == wanted:
        link(folder, f"proc/{pid}", f"/proc/{pid}")
        link(folder, "proc/self/limits", "/proc/self/limits")  # of whoever reads it, so of a job's task
        return True
    for name in ("comm", "stat"):
        put(folder, f"proc/{pid}/{name}", _text(f"/proc/{pid}/{name}"))
    line = f"{'Max locked memory':<26}{wanted:<21}{wanted:<21}bytes     "
    for path in (f"proc/{pid}/limits", "proc/self/limits"):
        put(folder, path, limits.replace(found[0], line) if found else limits)
    return False


def put(folder: str, path: str, text: str) -> None:
    """Write a file of the machine; a new one, because the old may be a link out of the folder."""
    full = _free_place(folder, path)
    with open(full, "w") as file:
        file.write(text)


def link(folder: str, path: str, target: str) -> None:
    os.symlink(target, _free_place(folder, path))


def remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        os.unlink(path)


def _free_place(folder: str, path: str) -> str:
    full = os.path.join(folder, path)
    os.makedirs(os.path.dirname(full), exist_ok=True)
    if os.path.lexists(full):
        remove(full)
    return full


def _text(path: str) -> str:
    with open(path) as file:
        return file.read()
