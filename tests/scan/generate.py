"""Jobs of many ranks, made up: one rank starts the trouble, the others print what victims print."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

START = 1_767_225_600.0  # seconds since the epoch, 2026-01-01T00:00:00Z


def glog(level: str, when: float) -> str:
    import time

    at = time.gmtime(when)
    return f"[{level}{at.tm_mon}{at.tm_mday:02d} {at.tm_hour:02d}:{at.tm_min:02d}:{at.tm_sec:02d}.{int(when % 1 * 1e9):09d}"  # noqa: E501


def iso(when: float) -> str:
    import time

    at = time.gmtime(when)
    return time.strftime("%Y-%m-%d %H:%M:%S", at) + f",{int(when % 1 * 1e3):03d}"


def working(rank: int, when: float, seq: int) -> list[str]:
    return [
        f"{iso(when - 30 + index)} - train - INFO - step {seq + index} loss 2.1{index} lr 3e-5" for index in range(5)
    ]


def watchdog(rank: int, when: float, seq: int, op: str = "ALLREDUCE", count: int = 4096) -> list[str]:
    return [
        f"[rank{rank}]:{glog('E', when)} ProcessGroupNCCL.cpp:632] [Rank {rank}] Watchdog caught collective operation timeout: "  # noqa: E501
        f"WorkNCCL(SeqNum={seq}, OpType={op}, NumelIn={count}, NumelOut={count}, Timeout(ms)=600000) ran for 600012 milliseconds before timing out.",  # noqa: E501
        f"[rank{rank}]:{glog('E', when + 0.1)} ProcessGroupNCCL.cpp:1849] [PG ID 0 PG GUID 0(default_pg) Rank {rank}] Exception (either an error or timeout) "  # noqa: E501
        f"detected by watchdog at work: {seq}, last enqueued NCCL work: {seq + 2}, last completed NCCL work: {seq - 1}.",  # noqa: E501
        "terminate called after throwing an instance of 'c10::DistBackendError'",
    ]


def peer_gone(rank: int, when: float, host: str, pid: int, culprit_host: str) -> list[str]:
    return [
        f"{host}:{pid}:{pid + 90} [{rank % 8}] misc/socket.cc:58 NCCL WARN socketProgress: Connection closed by remote peer {culprit_host}<4{rank:04d}>",  # noqa: E501
        f"{host}:{pid}:{pid + 90} [{rank % 8}] NCCL INFO misc/socket.cc:808 -> 6",
        f"[rank{rank}]: torch.distributed.DistBackendError: NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.cpp:93, "  # noqa: E501
        "remote process exited or there was a network error, NCCL version 2.26.2",
        f"W0101 00:20:00.100000 {pid} torch/distributed/elastic/multiprocessing/api.py:900] Sending process {pid + 1} closing signal SIGTERM",  # noqa: E501
    ]


def exception(rank: int, when: float, host: str, pid: int) -> list[str]:
    return [
        f"[rank{rank}]: Traceback (most recent call last):",
        f'[rank{rank}]:   File "/fsx/code/train.py", line 120, in <module>',
        f"[rank{rank}]:     main()",
        f"[rank{rank}]: ValueError: token id 128257 is outside of the vocabulary",
    ]


def gpu_oom(rank: int, when: float, host: str, pid: int) -> list[str]:
    return [
        f"[rank{rank}]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU {rank % 8} has a total capacity of 79.11 GiB"  # noqa: E501
    ]


def ecc(rank: int, when: float, host: str, pid: int) -> list[str]:
    return [f"[rank{rank}]: torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered"]


def nccl_cuda(rank: int, when: float, host: str, pid: int) -> list[str]:
    return [f"{host}:{pid}:{pid + 80} [{rank % 8}] include/alloc.h:228 NCCL WARN Cuda failure 2 'out of memory'"]


def segfault(rank: int, when: float, host: str, pid: int) -> list[str]:
    return ["Fatal Python error: Segmentation fault", "", f"Thread 0x00007f (most recent call first): rank {rank}"]


def disk(rank: int, when: float, host: str, pid: int) -> list[str]:
    return [f"[rank{rank}]: OSError: [Errno 28] No space left on device: '/fsx/ckpt/step_100/rank_{rank}.pt'"]


def silent(rank: int, when: float, host: str, pid: int) -> list[str]:
    return []


def illegal(rank: int, when: float, host: str, pid: int) -> list[str]:
    return [f"{iso(when)} ERROR [rank {rank}] RuntimeError: CUDA error: an illegal memory access was encountered"]


ROOTS: dict[str, tuple[Callable[[int, float, str, int], list[str]], set[str]]] = {
    "exception": (exception, {"app_error"}),
    "gpu_oom": (gpu_oom, {"gpu_oom"}),
    "ecc": (ecc, {"gpu_ecc"}),
    "nccl_cuda": (nccl_cuda, {"gpu_oom"}),
    "segfault": (segfault, {"app_error"}),
    "disk": (disk, {"storage"}),
    "silent": (silent, {"straggler", "slow_rank_work", "collective_timeout_unknown"}),
    "desync": (silent, {"collective_desync"}),
    "illegal": (illegal, {"gpu_app_fault"}),
}


def job(folder: Path, ranks: int, root: str, seed: int) -> tuple[int, set[str]]:
    """Writes one file per rank below ``folder``; returns the culprit's rank and the causes that are right."""
    chance = random.Random(seed)
    culprit = chance.randrange(ranks)
    write, causes = ROOTS[root]
    victims_wait = root in ("silent", "desync") or chance.random() < 0.5
    style = chance.choice(("rank-{}.log", "train.{}.err", "attempt_0/{}/stderr.log", "out_{}.txt"))
    seq = chance.randrange(100, 90000)
    host_of = [f"ip-10-1-{rank // 8 // 250}-{rank // 8 % 250 + 2}" for rank in range(ranks)]
    skew = {host: chance.uniform(-1, 1) for host in set(host_of)}  # clocks are up to 2 s apart
    for rank in range(ranks):
        host, pid = host_of[rank], 20000 + rank * 7
        began = START + 1000 + skew[host]
        lines = [
            f"{host}:{pid}:{pid} [{rank % 8}] NCCL INFO comm 0x5{rank:05x} rank {rank} nranks {ranks} cudaDev {rank % 8} nvmlDev {rank % 8} busId 53000 - Init COMPLETE",  # noqa: E501
            *working(rank, began, seq),
        ]
        if rank == culprit and root == "desync":
            lines += watchdog(rank, began + 600 + chance.random(), seq, "BROADCAST", 77)
        elif rank == culprit:
            lines += write(rank, began, host, pid)
        elif victims_wait:
            lines += watchdog(rank, began + 600 + chance.random(), seq)
        else:
            lines += peer_gone(rank, began + chance.random() * 3, host, pid, host_of[culprit])
        path = folder / style.format(rank)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return culprit, causes
