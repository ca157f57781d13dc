"""All ranks wait alike: what their GPUs and the counters of the network tell."""

from __future__ import annotations

from hpslurm.core import nodeset
from hpslurm.job.hang.case import (
    BUSY_GPU,
    BYTES_TRICKLE,
    HIGH_POWER,
    IDLE_GPU,
    LOW,
    LOW_POWER,
    MEDIUM,
    Case,
    Suspect,
    Verdict,
    bytes_rate,
    count_waiting,
    power_share,
    powers,
    rank_on,
)
from hpslurm.job.hang.facts import Gpu, Node
from hpslurm.job.hang.words import settle


def one_gpu(case: Case) -> Verdict | None:
    """GPUs of a few compute, or do nothing, while those of the others run a kernel that only waits."""
    gpus = [(node, gpu) for node in case.sample.nodes for gpu in node.gpus if gpu.power is not None and gpu.limit]
    spin = [gpu for _, gpu in gpus if (gpu.use or 0) >= BUSY_GPU and power_share(gpu) < LOW_POWER]
    if len(spin) * 2 <= len(gpus):
        return None
    idle = [(node, gpu) for node, gpu in gpus if gpu.use is not None and gpu.use < IDLE_GPU]
    hot = [(node, gpu) for node, gpu in gpus if power_share(gpu) >= HIGH_POWER]
    for few, cause, what in ((idle, "slow_rank_work", "has nothing to do"), (hot, "straggler", "computes")):
        if few and len(few) * 4 <= len(gpus):
            suspects = tuple(gpu_suspect(node, gpu, what) for node, gpu in few)
            first = suspects[0]
            whose = f"rank {first.rank}'s GPU" if first.rank is not None else f"GPU {first.gpu}"
            more = f" (and {len(few) - 1} more)" if len(few) > 1 else ""
            why = f"{whose} on {first.node}{more} {what}, while the others run a kernel that only waits"
            return Verdict(cause, MEDIUM, why, suspects, settle=settle(case, MEDIUM, collectives=True))
    return None


def gpu_suspect(node: Node, gpu: Gpu, what: str) -> Suspect:
    rank = rank_on(node, gpu)
    number, local, pid = (rank.rank, rank.local, rank.pid) if rank else (None, None, None)
    return Suspect(node.name, f"GPU {gpu.index} {what}", number, local, pid, str(gpu.index))


def network(case: Case) -> Verdict | None:
    """All in a collective, GPUs spin, nothing moves: the network, or a GPU that computes wrongly."""
    if count_waiting(case) * 10 < len(case.ranks) * 9:
        return None
    known = [node for node in case.sample.nodes if bytes_rate(node) is not None]
    still = [node for node in known if not bytes_rate(node)]
    moving = [node for node in known if (bytes_rate(node) or 0) >= BYTES_TRICKLE]
    few = len(still) * 4 <= len(known) and bool(still) and len(moving) * 2 > len(known)
    suspects = (
        tuple(Suspect(node.name, "its network counters stand still, others move") for node in still) if few else ()
    )
    shares = powers(case)
    spin = bool(shares) and sum(share < LOW_POWER for share in shares) * 2 > len(shares) and _gpus_run(case)
    if not suspects and not (spin and still):
        return None
    counters = (
        "counters of " + nodeset.fold(node.name for node in still) + " stand still" if still else "bytes hardly move"
    )
    why = f"All ranks wait in collectives, GPUs run at low power, {counters}: the network, or a GPU"
    sure = MEDIUM if suspects else LOW
    find = "hpslurm nccl-tests --find-slow on these nodes"
    return Verdict("network_link", sure, why, suspects, settle=(find, *settle(case, sure, collectives=True)))


def _gpus_run(case: Case) -> bool:
    used = [gpu.use for node in case.sample.nodes for gpu in node.gpus if gpu.use is not None]
    return bool(used) and sum(use >= BUSY_GPU for use in used) * 2 > len(used)
