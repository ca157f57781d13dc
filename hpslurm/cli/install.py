"""``hpslurm install --print``: the steps for this cluster, to read and to type. Changes nothing."""

from __future__ import annotations

import sys

import click

from hpslurm.cli import options
from hpslurm.core import records
from hpslurm.core.probe import Unknown
from hpslurm.setup import hook_lines, install
from hpslurm.sources import slurm
from hpslurm.sources.host import Host

SECONDS = 15.0


@click.command(
    "install",
    context_settings=options.HELP,
    epilog="Exit codes: 0 printed, 1 Slurm could not be asked, 2 wrong command line.",
)
@click.option("--print", "wanted", is_flag=True, help="Print the steps; hpslurm changes nothing.")
@click.option("--snippet", is_flag=True, help="Print only the lines for a HyperPod lifecycle script.")
@options.as_json("With --print: one line of JSON a step.")
@options.root
def command(wanted: bool, snippet: bool, as_json: bool, root: str) -> None:
    """Print the exact steps that put the hooks on this cluster.

    Asks the running controller which Slurm it is, which hooks it has already, and whether it is
    configless, and prints what to type. Run it on the controller.

    \b
    Examples:
      hpslurm install --print
      hpslurm install --snippet >> lifecycle-script-part.sh
    """
    if not wanted and not snippet:
        raise click.UsageError("hpslurm changes nothing by itself; to see the steps: hpslurm install --print")
    host = Host(root, seconds=SECONDS)
    try:
        config = slurm.config(host)
    except Unknown as why:
        raise click.ClickException(f"{why}\nRun this on the controller, or read slurm.conf.example.") from None
    finally:
        host.end_all()
    conf = slurm.slurm_conf(host)
    folder = conf.rpartition("/")[0]
    here = install.site(
        config,
        conf,
        host.exists("/opt/sagemaker_cluster"),
        lambda path: hook_lines.is_ours(host, path if path.startswith("/") else f"{folder}/{path}"),
        sys.prefix if sys.prefix != sys.base_prefix else install.VENV,
    )
    if snippet:
        click.echo("\n".join(install.snippet(here)))
        return
    click.echo("\n".join(_json(here) if as_json else _text(here)))


def _json(here: install.Site) -> list[str]:
    steps = [
        {"number": number, "title": step.title, "where": step.where, "why": step.why, "lines": list(step.lines)}
        for number, step in enumerate(install.steps(here), start=1)
    ]
    return [records.encode({"schema": records.SCHEMA, "type": "step", **step}) for step in steps]


def _text(here: install.Site) -> list[str]:
    version = ".".join(f"{part:02d}" for part in here.version) if here.version else "of an unknown release"
    kind = "configless, " if here.configless else ""
    lines = [f"Slurm {version}, {kind}{here.conf}" + (" on HyperPod" if here.hyperpod else "")]
    for name, paths in here.hooks.items():
        lines.append(f"{name} now: {', '.join(paths) or 'none'}")
    for number, step in enumerate(install.steps(here), start=1):
        lines += ["", f"{number}. {step.title}  (on {step.where})", f"   {step.why}"]
        lines += [f"     {line}" for line in step.lines]
    lines += ["", "As part of a HyperPod lifecycle script:", ""]
    return lines + [f"     {line}" for line in install.snippet(here)]
