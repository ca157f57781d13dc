"""The texts of a bundle for people: a summary to paste into the case, and what is what.

The summary has every item that AWS Support asks for, filled in or with the way to get it. It fits one screen.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hpslurm import __version__
from hpslurm.core import nodeset
from hpslurm.core.text import clean
from hpslurm.core.values import dataclass

# How a formula begins for a spreadsheet, in full width too, and what would take the tabs behind it into its cell.
FORMULA = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20", '"')
LONGEST_CELL = 4000
MOST_NODES = 8  # in the summary; nodes.tsv has all
MOST_ERRORS = 8
LONGEST = 300  # characters of an error line in the summary; errors.txt has all of it


@dataclass(frozen=True)
class Node:
    """A node that is involved, and why."""

    name: str
    instance: str = ""
    why: str = ""


@dataclass(frozen=True)
class Case:
    """What is known; empty is not known."""

    cluster: str = ""
    arn: str = ""
    region: str = ""
    status: str = ""
    slurm: str = ""  # version
    controllers: tuple[str, ...] = ()
    window: str = ""
    job: str = ""
    nodes: tuple[Node, ...] = ()
    ran_on: str = ""
    cause: str = ""
    errors: tuple[str, ...] = ()
    settings: int = 0
    findings: str = ""
    versions: str = ""


def text(case: Case, missing: Sequence[tuple[str, str]]) -> str:
    """``case.txt``."""
    lines = [
        f"Summary for AWS Support, collected by hpslurm {__version__}. Masked: see README.txt.",
        "",
        _row("Cluster name", case.cluster, "hpslurm bundle --cluster NAME --region REGION"),
        _row("Cluster ARN", case.arn, "aws sagemaker describe-cluster --cluster-name NAME --region REGION"),
        _row("AWS region", case.region, "hpslurm bundle --region REGION"),
        *([_row("Status", case.status, "")] if case.status else []),
        _row("Orchestrator", f"Slurm {case.slurm}".rstrip(), ""),
        _row("Slurm controller", ", ".join(case.controllers), "scontrol ping"),
        _row("Window (UTC)", case.window, "hpslurm bundle --since TIME --until TIME"),
        _row("Job", case.job, "hpslurm bundle --job JOBID"),
        *([_row("Ran on", case.ran_on, "")] if case.ran_on else []),
        _row("Nodes involved", _nodes(case.nodes), "sudo hpslurm diagnose"),
        *[f"  {one.name} = {one.instance or 'instance id not known'}: {one.why}" for one in case.nodes[:MOST_NODES]],
        _row("Cause so far", case.cause, "hpslurm scan LOGS"),
        _row("Error lines", f"{len(case.errors)}, in errors.txt; the first:" if case.errors else "",
             "hpslurm bundle --log FILE, with the output of the job and of all ranks"),
        *[f"  {line if len(line) <= LONGEST else line[:LONGEST] + ' […]'}" for line in case.errors[:MOST_ERRORS]],
        _row("NCCL settings", f"{case.settings} of NCCL and its plugin, in environment.txt" if case.settings else "",
             "srun hpslurm-check --json in the job's allocation; or a log with NCCL_DEBUG=INFO"),
        _row("Diagnostic output", case.findings, "sudo hpslurm diagnose, on the controller"),
        _row("Versions", case.versions, "hpslurm --version, on a node"),
    ]  # fmt: skip
    if missing:
        lines += ["", "Could not be collected:", *[f"  {what}: {clean(why)}" for what, why in missing[:12]]]
        lines += [f"  … and {len(missing) - 12} more, in manifest.json"] if len(missing) > 12 else []
    lines += ["", "Please add: what changed before, what was tried, and the case's severity."]
    return "\n".join(lines) + "\n"


def _row(label: str, value: str, how: str) -> str:
    return f"{label + ':':19} {value or f'not known; to find it: {how}'}"


def _nodes(nodes: Sequence[Node]) -> str:
    if not nodes:
        return ""
    more = f" (the first {MOST_NODES} here, all in nodes.tsv)" if len(nodes) > MOST_NODES else ""
    return f"{len(nodes)}: {clean(nodeset.fold(node.name for node in nodes), 600)}{more}"


WHAT = (
    ("case.txt", "a summary to paste into the case"),
    ("manifest.json", "every file with its size, hash and source, what was cut or could not be collected, and why"),
    ("SHA256SUMS", "for sha256sum -c SHA256SUMS, in this folder"),
    ("window.json", "the time window of the failure, in UTC"),
    ("cluster.json", "DescribeCluster's answer; instances.json and events.json: instances and what HyperPod did"),
    ("findings.txt", "what hpslurm diagnose found; findings.jsonl is the same for programs"),
    ("nodes.tsv", "every node: instance id, group, state in Slurm and in HyperPod, findings"),
    ("report-*.txt", "how the job ended, and what its nodes recorded; report-*.jsonl is the same for programs"),
    ("errors.txt", "the lines of trouble, as they stand in the logs, each with its file and line"),
    (
        "environment.txt",
        "NCCL_*, OFI_NCCL_*, FI_* and TORCH_* settings, and where they were seen; of no other variable anything",
    ),
    ("versions.txt", "driver, EFA, NCCL, plugin and libfabric, where this was collected and on the nodes"),
    ("doctor.txt", "whether hpslurm is installed right where this was collected"),
    ("slurm/", "Slurm's own words on configuration, nodes and the job"),
    ("logs/", "the logs; a long one without its middle"),
    ("records/", "what hooks and checks recorded on nodes, as JSON lines"),
)


def readme(masked: Mapping[str, int], names: Iterable[str]) -> str:
    """``README.txt``."""
    there = list(names)
    known = [(name, what) for name, what in WHAT if _is_there(name, there)]
    lines = [
        f"A bundle for AWS Support about NCCL training on a HyperPod Slurm cluster, made by hpslurm {__version__}.",
        "",
        *[f"  {name:17} {what}" for name, what in known],
        "",
        "Masked. The same pseudonym is the same thing in every file.",
        "  198.18.0.N, ip-198-18-0-N   an address and the node that is named after it; 2001:db8::N is one of IPv6.",
        "                              The range is reserved for benchmarks; what a log itself shows of it stays.",
        "  00000000NNNN                an AWS account",
        "  user-N                      a user",
        "  <masked:RULE>               a token, key, password or e-mail address that is not in this bundle at all",
        "Instance ids, ranks, bus ids, GPU ids, sizes, times and versions are as they were. The site has a file that",
        "leads from pseudonyms back to names: ask for a name where you need it.",
        f"Hidden: {', '.join(f'{rule} {count}' for rule, count in masked.items()) or 'nothing'}.",
    ]
    return "\n".join(lines) + "\n"


def _is_there(name: str, there: Sequence[str]) -> bool:
    if name in ("manifest.json", "SHA256SUMS"):
        return True
    head = name.partition("*")[0]
    return any(file == name or (head != name and file.startswith(head)) or file.startswith(name) for file in there)


def nodes_table(rows: Iterable[Any]) -> str:
    """``nodes.tsv``, from the rows of the HTML report."""
    head = "node\tinstance\tgroup\trole\tslurm\treason\thyperpod\tfindings"
    body = [
        "\t".join(map(_cell, (row.name, row.instance, row.group, row.role, row.slurm, row.reason, row.hyperpod,
                              " ".join(name for name, _ in row.findings))))
        for row in rows
    ]  # fmt: skip
    return "\n".join([head, *body]) + "\n"


def _cell(text: str) -> str:
    """A cell that a spreadsheet takes for text: what begins like a formula stands behind an apostrophe."""
    text = clean(text, LONGEST_CELL)
    return f"'{text}" if text.startswith(FORMULA) else text
