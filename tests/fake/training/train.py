"""A training loop that hangs in the way that its first word names, at the rank that its second word names."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import BinaryIO

import comm

HOW, WHO = sys.argv[1], int(sys.argv[2])
STEP = float(os.environ.get("TRAIN_STEP", "0.02"))
ODD = WHO == comm.RANK


def load_batch(step: int) -> int:
    if HOW == "data" and ODD and step == 3:
        while True:
            time.sleep(60)
    return step


def evaluate() -> None:
    time.sleep(3600)


def save_checkpoint(file: BinaryIO) -> None:
    file.seek(0)
    file.write(b"weights" * 1000)  # hangs once the file system does


def odd_work() -> None:
    if HOW == "spin":
        while True:
            pass
    if HOW == "eval":
        evaluate()
    if HOW == "input":
        os.dup2(os.openpty()[1], 0)  # a terminal on which nobody types
        breakpoint()
    if HOW == "child":
        subprocess.run(["sleep", "3600"], check=True)
    if HOW == "gone":
        os._exit(0)


def train(group: comm.Group) -> None:
    step = 0
    writes = HOW == "all" or (HOW == "save" and ODD)
    checkpoint = open(f"{os.environ['TRAIN_CHECKPOINT']}.{comm.RANK}", "wb", buffering=0) if writes else None
    while True:
        if step == 1:
            print("step 100 loss 2.31", flush=True)
        batch = load_batch(step)
        if ODD and step == 2:
            if "TRAIN_READY" in os.environ:  # the others are here in the next moment
                open(os.environ["TRAIN_READY"], "w").close()
            odd_work()
        group.link_is_down = HOW == "network" and step == 3
        if HOW == "desync" and ODD and step == 2:
            group.barrier()
        if checkpoint:
            save_checkpoint(checkpoint)
        if HOW != "all" or step < 3:  # then all of them only write
            group.all_reduce(batch)
        compute(step)
        step += 1


def compute(step: int) -> None:
    time.sleep(STEP)


def main() -> None:
    if HOW == "absent" and ODD:
        os._exit(0)
    if prefix := os.environ.get("TORCH_NCCL_DEBUG_INFO_PIPE_FILE"):  # as PyTorch does
        os.mkfifo(f"{prefix}{comm.RANK}.pipe")
        os.open(f"{prefix}{comm.RANK}.pipe", os.O_RDONLY | os.O_NONBLOCK)
    group = comm.Group()
    group.init_process_group()
    train(group)


if __name__ == "__main__":
    main()
