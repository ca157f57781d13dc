"""Trains a small image classifier with DataLoader workers; progress as a bar, results as prints."""

import argparse
import datetime
import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.elastic.multiprocessing.errors import record
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Images(Dataset):
    def __init__(self, count, size, classes, broken, read_ms):
        self.count, self.size, self.classes, self.broken, self.read_ms = count, size, classes, broken, read_ms

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        time.sleep(self.read_ms / 1000)
        if index == self.broken:
            with open(f"data/images/{index:08d}.jpg", "rb") as file:
                return file.read()
        generator = torch.Generator().manual_seed(index)
        image = torch.rand(3, self.size, self.size, generator=generator)
        return image, index % self.classes


class Net(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 8, 3, stride=4), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten())
        self.classifier = nn.Linear(32, classes)

    def forward(self, image):
        return self.classifier(self.features(image))


def bar(epoch, done, total, loss, began):
    """A progress bar on standard error, drawn over itself."""
    part = done / total
    filled = "█" * int(part * 20)
    speed = done / max(time.time() - began, 1e-6)
    print(
        f"\rEpoch {epoch}: {part:4.0%}|{filled:<20}| {done}/{total} [{speed:.2f}it/s, loss={loss:.3f}]",
        end="" if done < total else "\n",
        file=sys.stderr,
        flush=True,
    )


def average_gradients(model, world):
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= world


def validate(model, rank, world, count, classes):
    scores = torch.rand(count, classes)
    gathered = [torch.zeros_like(scores) for _ in range(world)]
    dist.all_gather(gathered, scores)
    return torch.cat(gathered).mean().item()


def descend(model, lr=0.01):
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.sub_(parameter.grad, alpha=lr)
            parameter.grad = None


def line_up(world):
    """Wait until all ranks have imported torch, which takes them long on a busy machine."""
    folder = os.environ.get("LINE_UP")
    if folder:
        open(os.path.join(folder, os.environ.get("RANK", os.environ.get("SLURM_PROCID", "0"))), "w").close()
        while len(os.listdir(folder)) < world:
            time.sleep(0.1)


@record
def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--samples", type=int, default=160)
    parser.add_argument("--size", type=int, default=32)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--labels", type=int, default=10)
    parser.add_argument("--read-ms", type=int, default=5)
    parser.add_argument("--broken", type=int, default=-1)
    parser.add_argument("--timeout", type=int, default=600)
    parser.add_argument("--val-samples", type=int, default=int(os.environ.get("VAL_SAMPLES", "50")))
    parser.add_argument("--loader-timeout", type=int, default=0)
    parser.add_argument("--share-by-file", action="store_true")
    parser.add_argument("--keep", action="store_true", help="keep every batch in memory")
    parser.add_argument("--min-free-mb", type=int, default=int(os.environ.get("MIN_FREE_MB", "0")))
    args = parser.parse_args()
    rank = int(os.environ.get("RANK", os.environ.get("SLURM_PROCID", "0")))
    world = int(os.environ.get("WORLD_SIZE", os.environ.get("SLURM_NTASKS", "1")))
    if args.share_by_file:
        torch.multiprocessing.set_sharing_strategy("file_descriptor")
    torch.set_num_threads(1)
    line_up(world)
    dist.init_process_group("gloo", rank=rank, world_size=world, timeout=datetime.timedelta(seconds=args.timeout))
    print(f"=> rank {rank}/{world} ready, {args.samples} samples, {args.workers} workers", flush=True)
    data = Images(args.samples, args.size, args.labels, args.broken, args.read_ms)
    sampler = DistributedSampler(data, world, rank, shuffle=False)
    loader = DataLoader(data, args.batch, sampler=sampler, num_workers=args.workers, timeout=args.loader_timeout)
    torch.manual_seed(3)
    model = Net(args.classes)
    for parameter in model.parameters():
        dist.broadcast(parameter.data, 0)
    kept = []
    for epoch in range(args.epochs):
        began = time.time()
        for number, (image, label) in enumerate(loader, 1):
            loss = nn.functional.cross_entropy(model(image), label)
            loss.backward()
            average_gradients(model, world)
            descend(model)
            if args.keep:
                kept.append(image)
            if args.min_free_mb and os.statvfs("/dev/shm").f_bavail * 4096 < args.min_free_mb << 20:
                os._exit(75)
            if rank == 0:
                bar(epoch, number, len(loader), loss.item(), began)
        score = validate(model, rank, world, args.val_samples, args.classes)
        if rank == 0:
            print(
                f"=> epoch {epoch} top1_error {1 - score:.4f} val_failed 0 time {time.time() - began:.1f}s", flush=True
            )
    dist.barrier()
    if rank == 0:
        print("=> done", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
