"""A training loop that hangs in the way that its first word names, at the rank that its second word names."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import comm

HOW, WHO = sys.argv[1], int(sys.argv[2])
STEP = float(os.environ.get("TRAIN_STEP", "0.02"))
ODD = WHO == comm.RANK


def load_batch(step: int) -> int:
    if HOW == "data" and ODD and step == 2:
        while True:
            time.sleep(60)
    return step


def evaluate() -> None:
    time.sleep(3600)


def save_checkpoint(path: str) -> None:
    with open(path, "w") as file:
        file.write("weights" * 1000)


def tokenize_corpus() -> int:
    return sum(number * number for number in range(1 << 60))


def odd_work() -> None:
    if HOW == "spin":
        while True:
            pass
    if HOW == "eval":
        evaluate()
    if HOW == "tokenise":
        tokenize_corpus()
    if HOW == "save":
        save_checkpoint(os.environ["TRAIN_CHECKPOINT"])
    if HOW == "input":
        breakpoint()
    if HOW == "child":
        subprocess.run(["sleep", "3600"], check=True)
    if HOW == "gone":
        os._exit(0)


def train(group: comm.Group) -> None:
    step = 0
    while True:
        batch = load_batch(step)
        if ODD and step == 2:
            odd_work()
        if HOW == "desync" and ODD and step == 2:
            group.barrier()
        if HOW == "all" and step == 2:
            save_checkpoint(os.environ["TRAIN_CHECKPOINT"] + str(comm.RANK))
        group.all_reduce(batch)
        compute(step)
        step += 1


def compute(step: int) -> None:
    until = time.monotonic() + STEP
    while time.monotonic() < until:
        pass


def main() -> None:
    if HOW == "absent" and ODD:
        os._exit(0)
    group = comm.Group()
    group.init_process_group()
    train(group)


if __name__ == "__main__":
    main()
