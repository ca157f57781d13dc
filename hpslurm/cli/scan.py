"""``hpslurm scan FILE...``: the cause of a failure, from logs."""

from __future__ import annotations

import click

from hpslurm.cli import options


@click.command(
    "scan",
    context_settings=options.HELP,
    epilog="Exit codes: 0 done, 1 no input could be read, 2 wrong command line, 3 a cause at or above --fail-on.",
)
@click.argument("paths", metavar="FILE...", nargs=-1, required=True, type=click.Path())
@options.as_json("Print JSON lines; exactly one has the type diagnosis.")
@options.fail_on("never")
@options.strict("Exit 3 also when the cause is undetermined.")
@options.verbose("Print all that speaks for the cause, and every suggestion.")
@click.option(
    "--events",
    "show_events",
    is_flag=True,
    help="Print every event that was considered, and lines that are normal here, with why.",
)
def command(paths: tuple[str, ...], as_json: bool, fail_on: str, strict: bool, verbose: bool, show_events: bool) -> int:
    """Name the cause of a failure from logs, and who started it.

    Reads job output, NCCL_DEBUG logs, kernel logs, Slurm's logs and tables, nccl-tests output, fi_info and nvidia-smi
    text, NCCL RAS reports and PyTorch flight recorder dumps; also - for standard input, folders, gzip and zstd.

    \b
    Examples:
      hpslurm scan slurm-4711.out
      hpslurm scan logs/ nccl.*.log dmesg.txt
      dmesg | hpslurm scan --json - | jq 'select(.type == "diagnosis")'
    """
    from hpslurm.cli import scan_logs  # what it needs takes longer to load than --help to print

    return scan_logs.run(paths, as_json, fail_on, strict, verbose, show_events)
