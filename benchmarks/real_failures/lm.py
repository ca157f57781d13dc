"""Trains a small language model on shards of tokens, one a rank: data parallel over gloo."""

import argparse
import datetime
import json
import logging
import math
import os
import socket
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

log = logging.getLogger("trainer")


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", default="data")
    parser.add_argument("--out", default="ckpt")
    parser.add_argument("--resume", default="")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--step-ms", type=int, default=30)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--width", type=int, default=int(os.environ.get("WIDTH", "64")))
    parser.add_argument("--vocab", type=int, default=512)
    parser.add_argument("--seq", type=int, default=16)
    parser.add_argument("--save-every", type=int, default=0)
    parser.add_argument("--eval-every", type=int, default=int(os.environ.get("EVAL_EVERY", "25")))
    parser.add_argument("--timeout", type=int, default=1800)
    parser.add_argument("--export-seconds", type=int, default=0)
    parser.add_argument("--tokenize-seconds", type=int, default=0)
    parser.add_argument("--experts", action="store_true")
    parser.add_argument("--ddp", action="store_true", help="by torch's own class, which takes longer to import")
    parser.add_argument("--find-unused", action="store_true")
    parser.add_argument("--style", choices=("plain", "time", "rank", "json", "rank0"), default="time")
    return parser.parse_args()


def set_up_log(style, rank):
    forms = {
        "plain": "%(message)s",
        "time": "%(asctime)s %(levelname)s %(name)s: %(message)s",
        "rank": f"[%(asctime)s][rank{rank}][%(levelname)s] %(message)s",
        "json": '{"ts": %(created).3f, "level": "%(levelname)s", "rank": ' + str(rank) + ', "msg": "%(message)s"}',
        "rank0": "%(asctime)s | %(levelname)-8s | %(module)s:%(funcName)s:%(lineno)d - %(message)s",
    }
    quiet = style == "rank0" and rank
    logging.basicConfig(level=logging.WARNING if quiet else logging.INFO, format=forms[style])


class Model(nn.Module):
    def __init__(self, vocab, width, experts):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.mix = nn.GRU(width, width, batch_first=True)
        self.experts = nn.ModuleList(nn.Linear(width, width) for _ in range(2)) if experts else None
        self.head = nn.Linear(width, vocab)

    def forward(self, tokens):
        hidden, _ = self.mix(self.embed(tokens))
        if self.experts is not None:
            hidden = hidden + self.experts[int(tokens[0, 0]) % 2](hidden)
        return self.head(hidden)


class Momentum:
    """Plain descent; torch's own optimizers import its compiler, which takes seconds."""

    def __init__(self, parameters, lr):
        self.parameters, self.lr = list(parameters), lr
        self.speeds = [torch.zeros_like(parameter) for parameter in self.parameters]

    def step(self):
        with torch.no_grad():
            for parameter, speed in zip(self.parameters, self.speeds, strict=True):
                if parameter.grad is None:
                    continue
                speed.mul_(0.9).add_(parameter.grad)
                parameter.sub_(speed, alpha=self.lr)
                parameter.grad = None

    def state_dict(self):
        return {"speeds": self.speeds, "lr": self.lr}


def average_gradients(model, world):
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= world


def distributed(model, args):
    if args.ddp:
        return DistributedDataParallel(model, find_unused_parameters=args.find_unused)
    for parameter in model.parameters():
        dist.broadcast(parameter.data, 0)
    return model


def records(path):
    with open(path, encoding="utf-8") as file:
        for line in file:
            yield json.loads(line)


def batches(path, seq, size=4):
    rows = []
    while True:
        for record in records(path):
            rows.append(torch.tensor(record["tokens"][: seq + 1]))
            if len(rows) == size:
                yield torch.stack(rows)
                rows = []


def chatter():
    """Lines that a step of a rank says, as ``step rank level text``; rank -1 is all."""
    if not os.path.exists("chatter.txt"):
        return []
    with open("chatter.txt", encoding="utf-8") as file:
        return [
            (int(step), int(rank), level, text) for step, rank, level, text in (x.strip().split(None, 3) for x in file)
        ]


def save(model, optimizer, step, folder):
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, f"step_{step:06d}.pt")
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, path)
    log.info("saved %s (%.1f MB)", path, os.path.getsize(path) / 1e6)


def load(model, path):
    state = torch.load(path, map_location="cpu")
    model.load_state_dict(state["model"])
    log.info("resumed from %s at step %d", path, state["step"])
    return state["step"]


def evaluate(model, batch, vocab):
    with torch.no_grad():
        logits = model(batch[:, :-1])
        wrong = (logits.argmax(-1) != batch[:, 1:]).float().mean()
    total = torch.stack([wrong, torch.tensor(1.0)])
    dist.all_reduce(total)
    return (total[0] / total[1]).item()


def check_finite(loss, step):
    if not math.isfinite(loss):
        raise FloatingPointError(f"loss is {loss} at step {step}, stopping before the weights are written")


def train(args, rank, world):
    torch.manual_seed(17)
    plain = Model(args.vocab, args.width, args.experts)
    first = load(plain, args.resume) if args.resume else 0
    model = distributed(plain, args)
    optimizer = Momentum(model.parameters(), args.lr)
    loss_of = nn.CrossEntropyLoss()
    said = chatter()
    source = batches(os.path.join(args.data, f"shard-{rank:05d}.jsonl"), args.seq)
    for step in range(first + 1, first + args.steps + 1):
        began = time.time()
        batch = next(source)
        logits = model(batch[:, :-1])
        loss = loss_of(logits.reshape(-1, args.vocab), batch[:, 1:].reshape(-1))
        loss.backward()
        if not args.ddp:
            average_gradients(model, world)
        optimizer.step()
        check_finite(loss.item(), step)
        time.sleep(args.step_ms / 1000)
        for at, who, level, text in said:
            if at == step and who in (rank, -1):
                log.log(getattr(logging, level), text)
        if step % 10 == 0 and (rank == 0 or args.style in ("rank", "json")):
            log.info("step %d loss %.4f lr %.3g step_time %.3f", step, loss.item(), args.lr, time.time() - began)
        if args.save_every and step % args.save_every == 0:
            if rank == 0:
                save(model, optimizer, step, args.out)
            dist.barrier()
        if args.eval_every and step % args.eval_every == 0:
            wrong = evaluate(model, batch, args.vocab)
            if rank == 0:
                log.info("step %d eval token_error_rate %.4f", step, wrong)
    return model


def export(model, args, rank):
    if rank == 0 and args.export_seconds:
        log.info("exporting weights to %s/export", args.out)
        time.sleep(args.export_seconds)
        log.info("export done")
    dist.barrier()


def line_up(world):
    """Wait until all ranks have imported torch, which takes them long on a busy machine."""
    folder = os.environ.get("LINE_UP")
    if folder:
        open(os.path.join(folder, os.environ.get("RANK", os.environ.get("SLURM_PROCID", "0"))), "w").close()
        while len(os.listdir(folder)) < world:
            time.sleep(0.1)


def main():
    args = arguments()
    rank = int(os.environ.get("RANK", os.environ.get("SLURM_PROCID", "0")))
    world = int(os.environ.get("WORLD_SIZE", os.environ.get("SLURM_NTASKS", "1")))
    set_up_log(args.style, rank)
    line_up(world)
    if args.tokenize_seconds and rank == 0:
        log.info("tokenizing corpus, this may take a while")
        time.sleep(args.tokenize_seconds)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world, timeout=datetime.timedelta(seconds=args.timeout))
    log.info("rank %d of %d on %s, torch %s", rank, world, socket.gethostname(), torch.__version__)
    model = train(args, rank, world)
    export(model, args, rank)
    dist.destroy_process_group()
    if rank == 0:
        log.info("training finished")


if __name__ == "__main__":
    main()
