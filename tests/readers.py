"""Every reader of text from outside, with texts that it is for: what ``tests/fuzz.py`` and its short form try.

What a text is for is a text, or plain values that ``written`` makes one of, so that those can be changed, too.
"""

from __future__ import annotations

import io
import json
import os
import pickle
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from hpslurm.bundle.masking import Masker
from hpslurm.cluster import history_kept, reasons
from hpslurm.core import nodeset, records, toml
from hpslurm.core.probe import Unknown
from hpslurm.core.text import clean
from hpslurm.job import nccl_env
from hpslurm.job.hang import facts, gather, judge, told, view
from hpslurm.nccl_tests import baseline, search_file
from hpslurm.nccl_tests.runs import OK, Options, Result, State
from hpslurm.nccl_tests.search import next_round
from hpslurm.node import clock, efa, firewall, kernel_faults, logind, mounts, names, oom, xid_table
from hpslurm.node.xid_lines import parse
from hpslurm.scan import diagnoses, flight, nccl_tests, prefix, ras
from hpslurm.scan.collect import Collector
from hpslurm.scan.patterns import table
from hpslurm.scan.reason import reason
from hpslurm.sources import elf, gpu, hyperpod, launch, sacct, slurm
from hpslurm.sources.host import SACCT_MARK, space_of
from hpslurm.sources.kmsg import Record
from tests.fake import hanging
from tests.scan.test_flight import waiting

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Reader:
    read: Callable[[str], object]
    texts: Callable[[], list[Any]]
    refusals: tuple[type[Exception], ...] = ()  # they say that a text is none of its kind
    written: Callable[[Any], str] = json.dumps


def lines(rows: Any) -> str:
    """A line of JSON for each value."""
    return "".join(json.dumps(row) + "\n" for row in (rows if isinstance(rows, list) else [rows]))


def _pickled(value: Any) -> str:
    return pickle.dumps(value, protocol=2).decode("latin-1")


# what reads


def _scan(text: str) -> None:
    collector = Collector(fast=len(text) % 2 == 0)  # with Hyperscan and without
    collector.stream(io.BytesIO(text.encode("utf-8", "replace")), "x.log")
    reason(collector.result())


def _kernel(text: str) -> None:
    rows = [Record(number, 1.0, 2.0, 3, line) for number, line in enumerate(text.split("\n"))]
    for row in rows:
        parse(row)
        for _, pattern in kernel_faults.KINDS:
            pattern.match(row.text)
    list(oom.kills_of(rows))


def _slurm(text: str) -> None:
    for read in (slurm.queue_of_text, slurm.jobs_of_sacct, slurm.controllers_of_text, sacct.jobs_of_text):
        list(read(text))
    list(sacct.events_of_text(text))
    slurm.config_of_text(text)
    launch.steps_of_text(text)


def _slurm_json(text: str) -> None:
    list(slurm.nodes_of_json(text) if '"nodes": [' in text[:12] else slurm.jobs_of_json(text))


def _policy(text: str) -> None:
    if toml.plain(text) is None:
        toml.loads(text)


def _record(text: str) -> None:
    record = records.parse(text, "n1", "prolog")
    records.encode({"run": record.run, "notes": [result.note for result in record.results]}).encode("utf-8")


def _dump(text: str) -> None:
    dump = flight.load(io.BytesIO(text.encode("latin-1", "replace")))
    flight.judge(list(flight.events(dump, "nccl_trace_rank_3")))


def _programs(text: str) -> None:
    """What a node's own programs and files say."""
    names.addresses(text)
    clock.tracking(text)
    efa.domains(text)
    mounts.kinds(text)
    space_of(text, "/dev/shm")
    list(logind.remove_ipc(text))
    list(nccl_env.parse_conf(text))
    for chains in (firewall.nft_chains(text), firewall.iptables_chains(text)):
        firewall.facts_of(chains, "nft")


def _hang(text: str) -> None:
    joiner = gather.Joiner()
    for piece in records.pieces("n1", text):
        joiner.add(piece)


def _json(text: str) -> Any:
    """As who calls these readers has it; a number without end is no JSON to them, either."""
    try:
        return json.loads(text)
    except ValueError as error:
        raise json.JSONDecodeError(str(error), "", 0) from None


def _saved_hang(text: str) -> None:
    sample = facts.sample_of(map(_json, filter(None, text.split("\n"))))
    if sample is not None:
        verdict = judge.judge(sample, told.of(sample))
        "\n".join(view.text(sample, verdict, stacks=True, verbose=True)).encode()
        records.encode(view.line(sample, verdict)).encode()


def _search(text: str) -> None:
    search_file.resumed(text, "x.jsonl")


def _layout(text: str) -> None:
    value = _json(text)
    if isinstance(value, dict):
        hyperpod.layout_of(value, value)


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    """Gone when the process ends."""
    memory = "/dev/shm" if os.path.isdir("/dev/shm") else None  # a disk takes longer than the readers
    return tempfile.TemporaryDirectory(prefix="hpslurm-fuzz-", dir=memory)


def of_file(read: Callable[[str], object]) -> Callable[[str], object]:
    """What takes a path, given a text."""

    def reads(text: str) -> None:
        path = os.path.join(_folder().name, "file")
        with open(path, "wb") as file:
            file.write(text.encode("latin-1", "replace"))
        read(path)

    return reads


def _library(path: str) -> None:
    elf.read(path)
    elf.search(path, rb"aws-ofi-nccl (\d+)")


# what they are for


def known() -> list[str]:
    """Lines that tables know: pieces of them go into every reader."""
    texts = [row.example for row in table().patterns]
    texts += [row["example"] for row in toml.table("masking")]
    texts += [f"NVRM: Xid (PCI:0000:a8:00): {row.example}" for row in xid_table.xids().values()]
    return texts


def _texts(*patterns: str, most: int = 4000) -> list[str]:
    paths = sorted(path for pattern in patterns for path in HERE.glob(pattern) if path.is_file())
    return [path.read_text(errors="replace")[:most] for path in paths]


def _slurm_values(kind: str) -> list[dict[str, Any]]:
    """Two objects of each release's answer."""
    wholes = [json.loads(path.read_text()) for path in sorted(HERE.glob(f"sources/slurm/*/{kind}.json"))]
    return [{kind: whole[kind][:2]} for whole in wholes]


def _blocks(kind: str) -> list[str]:
    texts = (path.read_text() for path in sorted(HERE.glob(f"sources/slurm/*/{kind}.txt")))
    return ["\n\n".join(text.split("\n\n")[:3]) for text in texts]


def _rows_of_slurm() -> list[str]:
    row = "4711|4711|ada|1000|1000|CANCELLED by 1000|0:15|0:0|gpu|2026-12-01T10:00:00|2026-12-01T10:00:01"
    row += "|2026-12-01T11:00:00|ip-10-1-0-3|None|/fsx/ada|train"
    return [
        *_texts("sources/slurm/*/sacct*.txt"),
        row.replace("|", SACCT_MARK),
        "4711|RUNNING|ada|1000|gpu|2|2026-12-01T10:00:00|N/A|ip-10-1-0-[3-4]|None",
        "PrologEpilogTimeout     = 65534\nProlog[0]               = /opt/slurm/etc/prolog.d/*\n",
        "Slurmctld(primary) at head is UP\nSlurmctld(backup) at spare is DOWN\n",
        "4711.0 hpslurm-check\n4711.batch\n",
    ]


def _records() -> list[list[dict[str, Any]]]:
    finding = {
        "type": "finding", "rule": "efa-missing", "priority": "P0", "title": "EFA", "probe": "efa", "subject": "n1",
        "detail": "16 of 32", "reference": "debugging-guide.md § 7", "evidence": [{"source": "sysfs", "text": "16"}],
        "suggest": [{"harm": "look", "why": "see", "command": "ls"}],
    }  # fmt: skip
    result = {"type": "result", "probe": "efa", "outcome": "pass", "note": "", "seconds": 0.1, "facts": {"count": 32}}
    run = {"schema": 1, "type": "run", "node": "n1", "hook": "prolog", "job": "7", "boot": "x", "time": 1796119200.0}
    return [[run, result, finding, {"type": "event", "id": "xid-79", "facts": [["gpu", "3"]]}, {"type": "end"}]]


def _diagnoses() -> list[list[dict[str, Any]]]:
    culprit = {"host": "n1", "gpu": "0000:b9:00", "rank": 3}
    seen = [{"id": "xid-79", "cause": "gpu_fell_off_bus", "gpu": "0000:b9:00", "detail": "lost"}]
    row = {"type": "job_diagnosis", "job": 7, "time": 1796119200, "cause": "gpu_fell_off_bus", "confidence": "high"}
    return [[{**row, "nodes": "n[1-2]", "node": "n1", "culprit": culprit, "findings": seen, "source": "epilog"}]]


def _snapshots() -> list[list[dict[str, Any]]]:
    identity = {"uuid": "GPU-0", "pci": "00000000:9B:00.0", "name": "H100", "serial": "1", "vbios": "96.00"}
    steps = {"count": 1, "driver": "570.133.20", "library": "12.570", "cuda": 12080}
    gpu_steps = {
        "remap": [0, 0, 0, 0], "slowdown": {"hw": 3}, "link_errors": {"0": [1, 2]}, "ecc": [0] * 4, "temperature": 40,
    }  # fmt: skip
    rows = [{"step": step, "value": value} for step, value in steps.items()]
    rows += [{"gpu": 0, "step": "identity", "value": identity}]
    rows += [{"gpu": 0, "step": step, "value": value} for step, value in gpu_steps.items()]
    return [[*rows, {"gpu": 0, "step": "ecc", "trouble": "GPU is lost", "code": 15}, {"step": "end"}], rows[:5]]


def _reports() -> list[dict[str, Any]]:
    ranks = [{"rank": n, "host": f"n{n}", "pid": 70, "collective_counts": {"AllReduce": 99 - n // 3}} for n in range(4)]
    missing = [{"rank": 3, "host": "n4", "pid": 103, "status": {"considered_dead": True}}]
    return [{"nccl_version": "2.28.3", "communicators": [{"hash": "0x1", "ranks": ranks, "missing_ranks": missing}]}]


def _baselines() -> list[list[dict[str, Any]]]:
    row = {"schema": 1, "type": "bandwidth", "instance": "p5.48xlarge", "collective": "all_reduce", "nccl": "2.28"}
    return [[{**row, "nodes": 2, "ranks": 16, "size": 1 << size, "busbw": 300.5} for size in (20, 30)]]


def _searches() -> list[list[dict[str, Any]]]:
    nodes = ("n1", "n2", "n3", "n4")
    state = State(nodes, Options(), dict.fromkeys(nodes, "b1"))
    rows = [search_file.result_line(Result(run, 9.5, OK), 0) for run in next_round(state)]
    return [[search_file.head_line(state, "all_reduce_perf"), *rows]]


def _histories() -> list[list[dict[str, Any]]]:
    row = {"type": "node_history", "node": "n1", "verdict": "keeps-failing", "instance": "i-0", "gpu": "", "jobs": 9}
    numbers = {"node_hours": 9.5, "failures": 3, "expected": 0.2, "ratio": 15.0, "chance": 1e-4}
    return [[{"type": "run", "time": 1796119200.5}, {**row, **numbers, "evidence": [{"time": 1, "text": "x"}]}]]


def _layouts() -> list[dict[str, Any]]:
    machine = {"InstanceId": "i-0123456789abcdef0", "CustomerIpAddress": "10.1.0.3"}
    slurm_config = {"PrimaryControllerIp": "10.1.0.2", "SecondaryControllerIps": ["10.1.0.4"]}
    about = {"ClusterName": "demo", "ClusterArn": "arn:aws:sagemaker:us-west-2:111122223333:cluster/x"}
    groups = [{"Name": "worker", "Instances": [machine]}]
    return [{"ClusterConfig": about, "InstanceGroups": groups, "SlurmConfig": slurm_config}]


def _hanging(whole: bool) -> list[Any]:
    rows = list(facts.lines_of(hanging.made(4, "gone", 1, 4, True, 0).sample))
    rows = [json.loads(records.encode(row, ascii_only=True)) for row in rows]
    return [rows] if whole else [row for row in rows if row.get("type") == "hang_node"]


def _of_programs() -> list[str]:
    return [
        *_texts("hosts/*/commands/*.txt", "hosts/p5-healthy/proc/self/mounts", "hosts/*/etc/nccl.conf"),
        "[Login]\nRemoveIPC=no\n",
        "NCCL_DEBUG=INFO\n# no\nFI_PROVIDER = efa\n",
    ]


def _libraries() -> list[str]:
    paths = [path for path in HERE.glob("hosts/**/libnccl-net*.so") if "truncated" not in str(path)]
    return [path.read_bytes().decode("latin-1") for path in sorted(paths) if path.stat().st_size < 6000]


def _node_lists() -> list[str]:
    return ["n[1-1000000000]", "ip-10-1-0-[3,7-9],gpu-st-p5-[01-64]", "n[1-3]-[007-011:2]", "a,b,n5"]


def _policies() -> list[str]:
    whole = (
        "gate = ['xid-79']\nkeep_days = 30\nmemlock_min = 1_000\n[[mutes]]\nrule = 'efa-missing'\nreason = 'known'\n"
    )
    return [whole, "[nodes.\"gpu-[1-64]\"]\nmounts = ['/fsx']\n", "partitions = [\n 'a', # b\n 'c',\n]\n"]


READERS: dict[str, Reader] = {
    "scan": Reader(_scan, known),
    "prefix": Reader(prefix.read, known),
    "mask": Reader(lambda text: Masker().mask(text), lambda: [row["example"] for row in toml.table("masking")]),
    "clean": Reader(lambda text: clean(text).encode("utf-8"), known),
    "kernel": Reader(_kernel, lambda: [text for text in known() if "NVRM" in text]),
    "record": Reader(_record, _records, (), lines),
    "slurm": Reader(_slurm, _rows_of_slurm),
    "slurm-nodes": Reader(lambda text: list(slurm.nodes_of_text(text)), lambda: _blocks("nodes"), (Unknown,)),
    "slurm-jobs": Reader(lambda text: list(slurm.jobs_of_text(text)), lambda: _blocks("jobs"), (Unknown,)),
    "slurm-json": Reader(_slurm_json, lambda: _slurm_values("nodes") + _slurm_values("jobs"), (Unknown,)),
    "nodes": Reader(nodeset.names_in, _node_lists),
    "reason": Reader(reasons.read, lambda: [*_texts("sources/slurm/*/sacctmgr*.txt"), "Action:Reboot, xid-79"]),
    "policy": Reader(_policy, _policies, (ValueError,)),
    "nccl-tests": Reader(nccl_tests.read_text, lambda: _texts("scan/nccl_tests/*"), (ValueError,)),
    "ras": Reader(lambda text: ras.json_events(text.encode("utf-8", "replace"), "x"), _reports),
    "dump": Reader(_dump, lambda: [waiting(41), waiting(7, sizes=((77,),))], (flight.NotADump,), _pickled),
    "dump-json": Reader(_dump, lambda: [waiting(41), waiting(7)], (flight.NotADump,)),
    "nvml": Reader(lambda text: gpu.from_lines(text.split("\n")), _snapshots, (Unknown,), lines),
    "diagnoses": Reader(lambda text: list(diagnoses.parse(text)), _diagnoses, (), lines),
    "history": Reader(of_file(history_kept._read), _histories, (), lines),
    "baselines": Reader(of_file(baseline.load), _baselines, (), lines),
    "search": Reader(_search, _searches, (ValueError,), lines),
    "hang": Reader(_hang, lambda: _hanging(False)),
    "hang-saved": Reader(_saved_hang, lambda: _hanging(True), (json.JSONDecodeError,), lines),
    "layout": Reader(_layout, _layouts, (json.JSONDecodeError,)),
    "library": Reader(of_file(_library), _libraries, (elf.Broken,)),
    "programs": Reader(_programs, _of_programs),
}
