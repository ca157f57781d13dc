"""What kind of text is this? And what do the tables, lists and reports in it say that no single line explains?

Takes the head and the tail of a file, and what stands around a trigger. Everything it finds is an event: those of a
kind are noise that speaks for health, the others come from the readers of one form of output each.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from hpslurm.core import linear
from hpslurm.core.finding import NOISE, Event
from hpslurm.scan import (
    life,
    nccl_rows,
    network_choice,
    node_lists,
    nvidia_smi,
    places,
    prefix,
    ras,
    slow_ranks,
    small_tools,
)

Lines = list[tuple[int, str]]  # line number, text

KINDS = (
    ("nccl-tests", r"nThread \d+ nGpus|# nccl-tests version|Out of bounds values|Avg bus bandwidth|#\s+size\s+count\s+type|out-of-place\s+in-place"),  # noqa: E501
    ("nccl-log", r"NCCL (?:INFO|WARN|TRACE|VERSION) |NCCL version \d"),
    ("kernel-log", r"NVRM: |^\[ *\+?\d{1,8}\.\d{3,}\]|\bkernel: |^\d{1,3},\d+,\d+,[-\w,=]+;|^kern +:|nvidia-nvswitch\d|nvidia-peermem"),  # noqa: E501
    ("slurmctld-log", r"_slurm_rpc_|sched: Allocate|_job_complete:|slurmctld|^\[\d{4}-\d\d-\d\dT[\d:.]+\] (?:error: |debug|sched|backfill|_|update_node|node_did_resp|cleanup)"),  # noqa: E501
    ("slurmd-log", r"slurmd(?:\[|:)|launch task StepId|\[\d+\.(?:batch|extern|\d+)\] "),
    ("scontrol", r"^\s*NodeName=\S+ |^JobId=\d+ |^PartitionName="),
    ("sinfo", r"^PARTITION +AVAIL|^REASON +USER|^NODELIST +NODES|^HOSTNAMES +"),
    ("squeue", r"^ +JOBID PARTITION|^JOBID "),
    ("sacct", r"^JobID(?:\||\s+)JobName|^\s*JobID\s"),
    ("nvidia-smi", r"NVSMI LOG|NVIDIA-SMI \d|Clocks (?:Event|Throttle) Reasons|Remapped Rows|^GPU \d+: |Driver Version +:|ECC Mode"),  # noqa: E501
    ("fi_info", r"^\s*provider: \S+|^\s*fabric: (?:EFA|efa)|protocol: FI_PROTO|fi_info "),
    ("ras", r"^Job summary$|Communicators\.\.\. |RAS client|^Gathering data about the"),
    ("lspci", r"ACSCtl:|LnkSta:"),
    ("slurm-output", r"^srun: |^slurmstepd|^salloc: |^sbatch: |pyxis: "),
    ("torchrun", r"torch\.distributed\.(?:run|elastic|launch)|torchrun|\[rank\d+\]:|ProcessGroupNCCL|\[c10d\]"),
    ("straggler-report", r"Straggler Report|[Nn]o stragglers? detected"),
    ("training", r"\bloss\b|[Ee]poch|\biter(?:ation)?s?\b|\bstep\b|tok(?:en)?s?/s|it/s|s/it|samples/s|lr[ :=]"),
    ("libfabric-log", r"^libfabric:\d+"),
    ("megatron", r"megatron|MnRtt|Straggler report|GPU relative performance"),
)  # fmt: skip
_KINDS = [(name, linear.compile(expression, re.MULTILINE)) for name, expression in KINDS]

# Lines with one of these, and their neighbours, are looked at wherever they stand in a file.
TRIGGERS = (
    b"#wrong", b"  float ", b"bfloat16 ", b"    half ", b"Avg bus bandwidth", b"Remapped Rows", b"remapped_rows", b"Uncorr. ECC", b"ECC Errors", b"NODELIST",  # noqa: E501
    b"Job summary", b"MISMATCH", b"INCOMPLETE", b" Score=", b"MnRtt/Rnk", b"locked memory", b" /dev/shm", b"Physical state", b"PORT_DOWN", b"state DOWN",  # noqa: E501
    b"Using network", b"NET/OFI Init", b"fi_info", b"-100% ", b"100% /",
)  # fmt: skip


def events(path: str, lines: Lines) -> Iterator[Event]:
    """Events of the head and tail of a file, and of what stands around a trigger between them."""
    bare = [(number, prefix.bare(line)) for number, line in lines]
    text = "\n".join(line for _, line in bare)
    kinds = [name for name, expression in _KINDS if expression.search(text)]
    for name in kinds:
        yield Event(f"kind:{name}", NOISE, path, 1, name)
    yield from life.events(path, lines)
    yield from places.events(path, lines)
    yield from _of_tables(path, bare, text, kinds)
    yield from small_tools.events(path, bare, text)
    yield from slow_ranks.events(path, bare)


def _of_tables(path: str, lines: Lines, text: str, kinds: list[str]) -> Iterator[Event]:
    if "nccl-tests" in kinds or nccl_rows.ROW.search(text):
        yield from nccl_rows.events(path, lines)
    if "nvidia-smi" in kinds or nvidia_smi.TABLE.search(text):
        yield from nvidia_smi.events(path, lines)
    if "sinfo" in kinds:
        yield from node_lists.events(path, lines)
    if "nccl-log" in kinds:
        yield from network_choice.events(path, lines)
    if "ras" in kinds:
        yield from ras.events(path, lines)
