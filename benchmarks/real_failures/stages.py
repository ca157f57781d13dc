"""A pipeline of stages with explicit collectives and messages; one JSON line a step."""

import argparse
import datetime
import json
import os
import signal
import socket
import sys
import time

import torch
import torch.distributed as dist

STOP = False


def on_signal(number, frame):
    global STOP
    STOP = True
    print(f"received signal {number}, will save and stop after this step", flush=True)


def config(path):
    """The configuration of this host where there is one, else everybody's."""
    own = f"{path}.{socket.gethostname()}"
    with open(own if os.path.exists(own) else path, encoding="utf-8") as file:
        return json.load(file)


def say(**fields):
    print(json.dumps(fields), flush=True)


def forward(rank, world, hidden):
    """Each stage adds its part and hands over to the next."""
    buffer = torch.zeros(hidden)
    if rank > 0:
        dist.recv(buffer, src=rank - 1)
    buffer += rank
    if rank < world - 1:
        dist.send(buffer, dst=rank + 1)
    return buffer


def line_up(world):
    """Wait until all ranks have imported torch, which takes them long on a busy machine."""
    folder = os.environ.get("LINE_UP")
    if folder:
        open(os.path.join(folder, os.environ.get("RANK", os.environ.get("SLURM_PROCID", "0"))), "w").close()
        while len(os.listdir(folder)) < world:
            time.sleep(0.1)


def set_up(args):
    rank = int(os.environ.get("RANK", os.environ.get("SLURM_PROCID", "0")))
    world = int(os.environ.get("WORLD_SIZE", os.environ.get("SLURM_NTASKS", "1")))
    line_up(world)
    dist.init_process_group("gloo", rank=rank, world_size=world, timeout=datetime.timedelta(seconds=args.timeout))
    return rank, world


def train_step(step, settings, rank, world, group):
    gradient = torch.ones(settings["hidden"]) * (rank + 1)
    if step % settings["sync_every"] == 0:
        dist.all_reduce(gradient)
    if settings["pipeline"]:
        forward(rank, world, settings["hidden"])
    if settings["eval_every"] and step % settings["eval_every"] == 0:
        scores = [torch.zeros(4) for _ in range(world)]
        dist.all_gather(scores, torch.rand(4))
    if group is not None and step % 5 == 0:
        dist.all_reduce(gradient, group=group)
    return gradient.mean().item()


def save(settings, step, rank):
    folder = settings["out"]
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, f"rank{rank:02d}-step{step:05d}.bin"), "wb") as file:
        for _ in range(settings["save_mb"]):
            file.write(os.urandom(1 << 20))
        file.flush()
        os.fsync(file.fileno())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", default="config.json")
    parser.add_argument("--timeout", type=int, default=600)
    parser.add_argument("--barrier", type=int, default=0, help="seconds of the barrier before the first step")
    parser.add_argument("--load-seconds", type=float, default=float(os.environ.get("LOAD_SECONDS", "0")))
    args = parser.parse_args()
    for name in ("SIGUSR1", "SIGTERM") if os.environ.get("GRACEFUL") else ():
        signal.signal(getattr(signal, name), on_signal)
    settings = config(args.config)
    torch.set_num_threads(1)
    rank, world = set_up(args)
    print(f"[rank {rank}] stage {rank} of {world} on {socket.gethostname()}", flush=True)
    half = dist.new_group(list(range(world // 2))) if settings["groups"] else None
    group = half if settings["groups"] and rank < world // 2 else None
    if args.load_seconds:
        print(f"[rank {rank}] loading shards", flush=True)
        time.sleep(args.load_seconds)
    if args.barrier:
        dist.monitored_barrier(timeout=datetime.timedelta(seconds=args.barrier), wait_all_ranks=settings["wait_all"])
    for step in range(1, settings["steps"] + 1):
        value = train_step(step, settings, rank, world, group)
        time.sleep(settings["step_ms"] / 1000)
        if step % settings["log_every"] == 0 and (rank == 0 or settings["all_log"]):
            say(step=step, rank=rank, loss=round(9 / (step + 2) + value * 0, 4), recon_error=0.1, failed=0)
        if settings["save_every"] and step % settings["save_every"] == 0:
            save(settings, step, rank)
            dist.barrier()
        if os.environ.get("GRACEFUL"):
            flag = torch.tensor([float(STOP)])
            dist.all_reduce(flag)
            if flag.item():
                save(settings, step, rank)
                print(f"[rank {rank}] saved at step {step}, leaving", flush=True)
                sys.exit(0)
    dist.barrier()
    print(f"[rank {rank}] finished", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
