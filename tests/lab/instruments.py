"""What a look at a node shows beside its processes: GPUs by the stand-in NVML, EFA counters that move or stand still.

A step of the lab finds them by ``program``: the installed ``hpslurm`` with a ``--root`` of its own on each node. With
``NO_STACKS`` it may read no process's memory, as under ptrace_scope 1, on kernels without Yama, too: seccomp refuses
the calls, and in a mount namespace of its own no /proc/PID/mem can be read.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.lab.lab import CHECKOUT
from tests.sources import nvml_fake

COUNTER = "sys/class/infiniband/rdmap0s0/hw_counters"
WAITING = "gpus=2;use=100;power=180000"  # a kernel of NCCL that waits: full use, a quarter of the power
RATE = 450_000  # bytes a second that a network tries again and again: between a trickle and work
NO_STACKS = {"LAB_NO_STACKS": "1"}
# By machine: the numbers of process_vm_readv and ptrace
CALLS = {"x86_64": (310, 101), "aarch64": (270, 117)}
PROGRAM = f"""#!{sys.executable}
import ctypes, os, struct, sys, time

sys.path.insert(0, {CHECKOUT!r})


def hide_memory():
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(0x20000) or libc.mount(b"none", b"/", None, 0x44000, None):  # private, and all below
        sys.exit(f"no mount namespace here: {{os.strerror(ctypes.get_errno())}}")
    for pid in filter(str.isdigit, os.listdir("/proc")):
        memory = f"/proc/{{pid}}/mem".encode()
        libc.mount(b"/dev/null", memory, None, 0x1000, None)
        libc.mount(b"none", memory, None, 0x1024, None)  # and no device there: "Permission denied", to root as well


def refuse(*calls):
    refused, allowed = 0x00050001, 0x7FFF0000  # EPERM
    rows = [(0x20, 0, 0, 0)]
    rows += [(0x15, len(calls) - place, 0, call) for place, call in enumerate(calls)]
    rows += [(0x06, 0, 0, allowed), (0x06, 0, 0, refused)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *row) for row in rows))
    program = struct.pack("HxxxxxxP", len(rows), ctypes.addressof(code))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, program, 0, 0):
        sys.exit(f"no seccomp here: {{os.strerror(ctypes.get_errno())}}")


if "LAB_NO_STACKS" not in os.environ and "--pieces" in sys.argv:
    root = os.path.join(os.environ["LAB_INSTRUMENTS"], os.environ["SLURMD_NODENAME"])
    if os.path.exists(root + "/hangs"):
        time.sleep(300)
    sys.argv += ["--root", root]
elif "--pieces" in sys.argv:
    hide_memory()
    refuse(*{CALLS[platform.machine()]!r})
from hpslurm.cli import main

sys.exit(main())
"""


def program(folder: Path) -> None:
    path = folder / "hpslurm"
    folder.mkdir(parents=True, exist_ok=True)
    # By a program: what we have open for writing, whoever is started now keeps open, too ("text file busy").
    subprocess.run(["install", "-m", "755", "/dev/stdin", path], input=PROGRAM, text=True, check=True)


def node(root: Path, library: Path, scenario: str = WAITING) -> None:
    """Two GPUs as the scenario says, and one EFA device."""
    nvml = root / "nvml"
    nvml.mkdir(parents=True)
    os.link(library / nvml_fake.NAME, nvml / nvml_fake.NAME)
    nvml_fake.machine(root, nvml, scenario).end_all()
    python = root / sys.executable.lstrip("/")
    python.write_text(f'#!/bin/sh\nLD_LIBRARY_PATH={nvml} exec {sys.executable} "$@"\n')
    device = root / "sys/class/infiniband/rdmap0s0/device"
    device.mkdir(parents=True)
    (device / "vendor").write_text("0x1d0f\n")
    (device / "device").write_text("0xefa2\n")
    (root / COUNTER).mkdir(parents=True)
    for name in ("tx_bytes", "rx_bytes"):
        (root / COUNTER / name).write_text("10000000000\n")


@contextmanager
def trickles(roots: list[Path]) -> Iterator[None]:
    """Their counters grow by ``RATE`` a second, however late this thread is."""
    began, over = time.monotonic(), threading.Event()

    def count() -> None:
        while not over.wait(0.05):
            sent = 10_000_000_000 + int(RATE * (time.monotonic() - began))
            for root in roots:
                new = root / COUNTER / "new"
                new.write_text(f"{sent}\n")
                os.replace(new, root / COUNTER / "tx_bytes")

    thread = threading.Thread(target=count, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
