"""Samples of jobs that hang, made: 16 to 8,192 ranks, in one group or in pipelines, with one or two ranks to blame.

Stacks are as py-spy shows those of PyTorch and Megatron-LM. In pipelines ranks wait at different places by design: for
their neighbour, for their data parallel group, or for their own GPU at a line that no table knows.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from hpslurm.core.values import replace
from hpslurm.job.hang.facts import Frame, Gpu, Node, Rank, Sample, Stack

C10D = "torch/distributed/distributed_c10d.py"
P2P = "megatron/core/pipeline_parallel/p2p_communication.py"
PER_NODE = 8


def lib(function: str, file: str, line: int) -> Frame:
    return Frame(function, file, line, True)


def own(function: str, line: int, file: str = "job/train.py") -> Frame:
    return Frame(function, file, line, False)


OUTER = (own("main", 400), own("<module>", 500))
STEP = (own("train_step", 210), *OUTER)
ALL_REDUCE = (lib("all_reduce", C10D, 2800), lib("wrapper", "torch/distributed/c10d_logger.py", 81), *STEP)
BACKWARD = (lib("_engine_run_backward", "torch/autograd/graph.py", 823), lib("backward", "torch/_tensor.py", 581),
            own("train_step", 207), *OUTER)  # fmt: skip
ITEM = (own("log_loss", 233), *OUTER)  # loss.item(): C, which py-spy does not show
BARRIER = (lib("barrier", C10D, 4600), own("train_step", 190), *OUTER)
RECV = (lib("_batched_p2p_ops", P2P, 140), lib("recv_forward", P2P, 300), own("run_pipeline", 310), *STEP[1:])
SEND = (lib("_batched_p2p_ops", P2P, 140), lib("send_backward", P2P, 420), own("run_pipeline", 334), *STEP[1:])
INIT = (lib("_store_based_barrier", C10D, 900), lib("init_process_group", C10D, 1600), own("setup", 40), *OUTER)

# what a rank to blame does: cause, its stack, state
LOADER = "torch/utils/data/dataloader.py"
GETS = (lib("wait", "threading.py", 331), lib("_try_get_data", LOADER, 1131), lib("__next__", LOADER, 630))
SAVES = (lib("_save", "torch/serialization.py", 860), lib("save", "torch/serialization.py", 650))
ASKS = (lib("cmdloop", "cmd.py", 126), lib("interaction", "pdb.py", 231))
ALONE: dict[str, tuple[str, Stack]] = {
    "data": ("slow_rank_work", (*GETS, own("batches", 120), *OUTER)),
    "save": ("slow_rank_work", (*SAVES, own("checkpoint", 88), *OUTER)),
    "eval": ("slow_rank_work", (own("forward", 30, "job/model.py"), own("evaluate", 260), *OUTER)),
    "own": ("slow_rank_work", (own("rebalance_experts", 77, "job/moe.py"), *STEP)),
    "debugger": ("app_error", (*ASKS, own("check", 66), *OUTER)),
}
STATES = ("stopped", "gone", "stuck")
CAUSE = {"stopped": "slow_rank_work", "gone": "peer_exit", "stuck": "storage", "desync": "collective_desync",
         "lost": "gpu_fell_off_bus"}  # fmt: skip
KINDS = (*ALONE, *STATES, "desync", "lost")
NONE = ("nobody", "works")  # hangs without anybody to name; does not hang


@dataclass(frozen=True)
class Made:
    sample: Sample
    culprits: frozenset[int]
    causes: frozenset[str]


def made(ranks: int, kind: str, culprits: int, pipeline: int, stacks: bool, seed: int) -> Made:
    """``pipeline``: stages, 1 is data parallel only."""
    chance = random.Random(f"{ranks} {kind} {culprits} {pipeline} {stacks} {seed}")
    guilty = frozenset(chance.sample(range(ranks), culprits)) if kind not in NONE else frozenset()
    how = [ALL_REDUCE, BACKWARD, ITEM] if pipeline == 1 else [ALL_REDUCE, RECV, SEND]
    usual = chance.choice(how)
    found = [_rank(number, ranks, kind, number in guilty, pipeline, usual, chance) for number in range(ranks)]
    if not stacks:
        found = [replace(rank, stack=None, later=None) for rank in found]
    kept = [rank for rank in found if not (kind == "gone" and rank.rank in guilty)]
    by_node: dict[str, list[Rank]] = {}
    for rank in kept:
        by_node.setdefault(rank.node, []).append(rank)
    nodes = tuple(
        Node(f"n{number}", tuple(by_node.get(f"n{number}", ())),
             _gpus(number, kind, guilty, chance), 2.0, _bytes(kind, chance), None)
        for number in range((ranks + PER_NODE - 1) // PER_NODE)
    )  # fmt: skip
    causes = {CAUSE[kind] if kind in CAUSE else ALONE[kind][0]} if kind not in NONE else set()
    return Made(Sample("4711", nodes), guilty, frozenset(causes))


def _rank(number: int, ranks: int, kind: str, guilty: bool, pipeline: int, usual: Stack, chance: random.Random) -> Rank:
    stack = _waits(number * pipeline // ranks, pipeline, usual, chance)
    later = stack
    if kind == "works":
        later = chance.choice((ALL_REDUCE, BACKWARD, ITEM, ALONE["data"][1]))
    state, channel, busy = _waiting_state(chance)
    if guilty and kind in ALONE:
        stack = later = ALONE[kind][1]
        state, channel, busy = chance.choice(
            (("R", "", 0.98), ("S", "hrtimer_nanosleep", 0.0), ("S", "pipe_read", 0.0))
        )
    if guilty and kind == "desync":
        stack = later = BARRIER
    if guilty and kind in ("stopped", "stuck"):
        state, channel, busy = {"stopped": "T", "stuck": "D"}[kind], "rpc_wait_bit_killable", 0.0
    return Rank(
        f"n{number // PER_NODE}", 1000 + number, number, number % PER_NODE, ranks, min(PER_NODE, ranks), "0", "python3",
        state, state, channel, busy, 0.0, 0, 900.0, "/fsx/ckpt/model.pt" if state == "D" else "", stack, later,
    )  # fmt: skip


def _waiting_state(chance: random.Random) -> tuple[str, str, float]:
    """Most spin in CUDA, some are seen while they sleep for a moment."""
    return ("R", "", 0.99) if chance.random() < 0.9 else ("S", "futex_do_wait", 0.97)


def _waits(stage: int, pipeline: int, usual: Stack, chance: random.Random) -> Stack:
    if pipeline == 1:
        return usual
    if stage == pipeline - 1:
        return ITEM  # the last stage looks at the loss
    return RECV if chance.random() < 0.5 else SEND if chance.random() < 0.5 else usual


def _gpus(node: int, kind: str, guilty: frozenset[int], chance: random.Random) -> tuple[Gpu, ...]:
    """NCCL's kernel keeps a GPU busy at low power while it waits; the one of a rank that did not come is idle."""
    return tuple(_gpu(node, index, kind, node * PER_NODE + index in guilty, chance) for index in range(PER_NODE))


def _gpu(node: int, index: int, kind: str, guilty: bool, chance: random.Random) -> Gpu:
    if guilty and kind == "lost":
        return Gpu(index, lost="GPU is lost")
    alone = guilty and kind not in ("desync", "lost")
    computes = kind == "works" or (guilty and kind == "eval")
    use, power = (0, 95.0) if alone and not computes else (100, 620.0 if computes else 180.0)
    pid = 1000 + node * PER_NODE + index
    return Gpu(index, use, power + chance.uniform(-30, 30), 700.0, 60_000, 1980, (pid,))


def _bytes(kind: str, chance: random.Random) -> int:
    return int(chance.uniform(5, 40) * 1e9) if kind == "works" else chance.choice((0, 4096, 9000))
