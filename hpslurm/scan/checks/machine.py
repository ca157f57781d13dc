"""Lines of a machine's kernel and of its file systems."""

from __future__ import annotations

import re

from hpslurm.scan.hit import Context, Hit, check


@check("splat")
def _splat(hit: Hit, match: re.Match[str], context: Context) -> bool:
    """The kernel's own trace: modules stand in brackets behind the functions."""
    after = context.after(30)
    if not any(re.search(r"\+0x[0-9a-f]+/0x[0-9a-f]+|RIP:|Call Trace", line) for line in [hit.line, *after]):
        return False
    hit.turn_by("splat", "\n".join(after))
    return True


@check("hungtask")
def _hung_task(hit: Hit, match: re.Match[str], context: Context) -> bool:
    after = "\n".join(context.after(30))
    if re.search(r"lustre|ptlrpc|\bll_|nfs|rpc_wait|fuse_|ceph|gpfs|cxi|ext4|xfs_", after):
        hit.turn("hung-task-storage")
    elif re.search(r"nvidia|nv_|uvm_|rm_", after):
        hit.turn("hung-task-driver")
    return True


@check("nospace")
def _no_space(hit: Hit, match: re.Match[str], context: Context) -> bool:
    if "/sys/fs/cgroup" in hit.line:
        hit.turn("no-space-cgroup")
    elif "inotify" in hit.line:
        hit.turn("no-space-watches")
    elif re.search(r"/dev/shm|shm|torch_\d+_", hit.line) or re.search(
        r"/dev/shm|shm_|shared memory|memfd", "\n".join([*context.before(4), *context.after(4)])
    ):
        hit.turn("no-space-shm")
    return True


@check("diskquota")
def _disk_quota(hit: Hit, match: re.Match[str], context: Context) -> bool:
    return not re.search(r"vCPU|instance|Capacity|API|rate|requests", hit.line)


@check("ioerr")
def _io_error(hit: Hit, match: re.Match[str], context: Context) -> bool:
    return not re.search(r"slurm|srun|munge|NCCL|socket\.|OFI|MPI|UCX", hit.line)


FLAPS = 3  # times that a connection is lost in what follows, so that it is no longer one outage


@check("lustre")
def _lustre(hit: Hit, match: re.Match[str], context: Context) -> bool:
    """What was lost and came back is over, unless it is lost again and again."""
    if "LNet" in match[0]:
        return True
    after = context.after(60)
    restored = any("Connection restored" in line or "recovery complete" in line for line in after)
    if restored and sum("was lost" in line for line in after) < FLAPS:
        hit.turn("lustre-restored")
    return True


@check("notcapacity")
def _not_capacity(hit: Hit, match: re.Match[str], context: Context) -> bool:
    return not re.search(r"Capacity|RunInstances|CreateFleet|LimitExceeded", hit.line)
