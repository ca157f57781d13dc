"""Records of the job, of other nodes, and of folders that were named."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from functools import partial

from hpslurm.bundle.archive import RECORDS
from hpslurm.bundle.parts import Parts
from hpslurm.bundle.request import Request
from hpslurm.cluster import gather, node_records
from hpslurm.core import records
from hpslurm.core.policy import Policy
from hpslurm.core.records import Record
from hpslurm.core.values import replace
from hpslurm.job import report


def add(
    request: Request,
    rules: Policy,
    half: gather.Half | None,
    job_report: report.JobReport | None,
    parts: Parts,
) -> list[Record]:
    """All records that there are, those of other nodes where something is wrong with them; returns all."""
    own = job_report.records if job_report else ()
    kept = [*own, *_others(half, job_report)]
    _add_records(request, rules, kept, job_report, parts)
    return kept + _brought(request, parts)


def _others(half: gather.Half | None, job_report: report.JobReport | None) -> list[Record]:
    """The newest record of each node that is not among the job's."""
    have = {(record.node, record.hook) for record in job_report.records} if job_report else set()
    newest = [member.record for member in half.members.members if member.record] if half else []
    return [record for record in newest if (record.node, record.hook) not in have]


def _brought(request: Request, parts: Parts) -> list[Record]:
    """Records of folders that were named, as hpslurm-check --json leaves them."""
    kept: list[Record] = []
    for folder in request.reports:
        some, unreadable = records.read_folder(folder, named=False)
        kept += (replace(record, node=node_records.node_of(record)) for record in some)
        for refused in unreadable:
            parts.miss(f"records/{os.path.basename(folder)}", str(refused))
        for record in some:
            file = next(
                name for name in sorted(os.listdir(folder)) if name.startswith(f"{record.node}.{record.hook}.jsonl")
            )
            path = f"{folder}/{file}"
            parts.text(f"records/reports/{file}", path, partial(records.read_text, path), RECORDS)
    return kept


def _add_records(
    request: Request, rules: Policy, kept: Sequence[Record], job_report: report.JobReport | None, parts: Parts
) -> None:
    own = {id(record) for record in job_report.records} if job_report else set()
    for record in kept:
        below = (
            f"jobs/{record.run.get('job') or re.split('[_+]', job_report.id)[0]}"
            if job_report and id(record) in own
            else "nodes"
        )
        if below == "nodes" and job_report and not record.findings:
            continue  # another node, and all is well with it
        file = f"{below}/{record.node}.{record.hook}.jsonl"
        for folder in report.folders(rules, request.results):
            path = f"{folder}/{file}"
            if os.path.lexists(path):
                parts.text(f"records/{file}", path, partial(records.read_text, path), RECORDS)
                break
