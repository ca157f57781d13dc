"""``hpslurm report --gpu UUID``: one physical GPU through all records, whatever node it was on."""

from __future__ import annotations

import time

import click

from hpslurm.core import records
from hpslurm.core.text import clean
from hpslurm.core.values import asdict
from hpslurm.job import gpu_history
from hpslurm.show.progress import Progress


def show(uuid: str, folders: list[str], as_json: bool) -> None:
    """Print the history. Raises click's errors for a text that is no UUID, and for one nobody has seen."""
    kept: list[records.Record] = []
    troubles: list[str] = []
    for folder in folders:
        with Progress(f"reading all records in {folder}"):
            of_folder, unreadable = records.all_records(folder)
        kept += of_folder
        troubles += map(str, unreadable)
    try:
        history = gpu_history.history(kept, uuid)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    for trouble in troubles:
        click.echo(f"[WARN] {clean(trouble)}", err=True)
    if not history.sightings:
        known = len(gpu_history.gpus(kept))
        where = " and ".join(folders)
        raise click.ClickException(f"no record in {where} names {uuid}; {len(kept)} records name {known} other GPUs")
    if as_json:
        line = {"schema": records.SCHEMA, "type": "gpu", "verdict": history.verdict, **asdict(history)}
        click.echo(records.encode(line))
        return
    click.echo(f"{uuid}: {history.verdict}")
    for sighting in history.sightings:
        when = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(sighting.time))
        job = f"job {sighting.job} " if sighting.job else ""
        faults = "; ".join(f"{fault.priority} {fault.rule}: {clean(fault.text, 120)}" for fault in sighting.faults)
        click.echo(f"  {when}  {sighting.node} {sighting.instance}  {job}{sighting.hook}  {faults or 'no fault'}")
