"""``hpslurm metrics``: the newest records as text for Prometheus, by way of node_exporter's textfile collector."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any

import click

from hpslurm import hooks, metrics
from hpslurm.cli import options
from hpslurm.core import policy, records, whole_file
from hpslurm.core.text import clean
from hpslurm.metrics import Family
from hpslurm.show import render
from hpslurm.show.progress import Progress

NEEDED = "prometheus-client>=0.17"


@click.command(
    "metrics",
    context_settings=options.HELP,
    epilog="Exit codes: 0 done, also where a record is missing, broken or refused (metrics and warnings say so), "
    "1 nothing was written: no package prometheus-client, a results folder that cannot be read, an output that "
    "cannot be written, 2 wrong command line.",
)
@click.option(
    "--output",
    metavar="FILE",
    type=click.Path(),
    help="Write FILE whole or not at all, for all to read (default: standard output). "
    "node_exporter reads names that end in .prom.",
)
@options.results
@click.option("--shared", is_flag=True, help="Read the folder that all nodes copy to, results_shared: on a controller.")
@options.policy_path("Folders and mutes.")
def command(output: str | None, results: str | None, shared: bool, policy_path: str) -> None:
    """Print the newest results of the hooks in Prometheus's text format, for node_exporter's textfile collector.

    It reads what the hooks left, and looks at nothing itself. Run it as root from a timer, on each node or with
    --shared on one machine. The text is for machines; there is no --json. What could not be checked is a number, too.

    \b
    Examples:
      sudo hpslurm metrics
      sudo hpslurm metrics --output /var/lib/node_exporter/textfile_collector/hpslurm.prom
      sudo hpslurm metrics --shared | grep hpslurm_finding
    """
    client = _client()
    rules = policy.load(policy_path, node=hooks.node_name(os.environ))
    folder = results or (rules.results_shared if shared else rules.results)
    if not folder:
        raise click.UsageError(f"--shared needs results_shared in {policy_path}, or --results FOLDER")
    try:
        with Progress(f"reading the newest records in {folder}"):
            seen, troubles = metrics.read_results(folder, shared, time.time())
    except OSError as error:
        raise click.ClickException(f"{error.filename or folder}: {error.strerror}; nothing was written") from None
    for trouble in (*rules.problems, *troubles):
        _warn(trouble)
    made = metrics.families(seen, rules, records.boot_id(), "" if shared else rules.node)
    text: bytes = client.generate_latest(_Source(made, client))
    if output is None:
        click.echo(text, nl=False)
        sys.stdout.flush()
        return
    if not output.endswith(".prom"):
        _warn(f"{output}: node_exporter passes over files whose name does not end in .prom")
    try:
        whole_file.write(output, text)
    except OSError as error:
        remedy = "; make the folder that node_exporter's --collector.textfile.directory names"
        hint = remedy if isinstance(error, FileNotFoundError) else ""
        raise click.ClickException(f"could not write {output}: {error.strerror}{hint}") from None


def _warn(text: str) -> None:
    click.echo(f"{render.label('WARN')} {clean(text)}", err=True)


def _client() -> Any:
    try:
        import prometheus_client
        import prometheus_client.core
    except ImportError:
        raise click.ClickException(
            f"this needs a Python package that is not there; install it with\n"
            f"  {sys.executable} -m pip install '{NEEDED}'"
        ) from None
    return prometheus_client


class _Source:
    """Our families in the shape that the client's text writer asks for."""

    def __init__(self, families: Iterable[Family], client: Any) -> None:
        self.families = families
        self.client = client

    def collect(self) -> Iterator[Any]:
        for family in self.families:
            gauge = self.client.core.GaugeMetricFamily(family.name, family.help, labels=family.labels)
            for labels, number in family.values.items():
                gauge.add_metric(labels, number)
            yield gauge
