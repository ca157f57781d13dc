"""``hpslurm bundle``: what AWS Support asks for, in one file, masked.

There is no way to leave the masking out: a bundle is made to leave the site. Who wants the raw files has them.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import time
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from typing import Any

import click

from hpslurm import __version__
from hpslurm.bundle import archive
from hpslurm.bundle.archive import Part
from hpslurm.bundle.collect import Bundle, collect
from hpslurm.bundle.request import Request
from hpslurm.bundle.window import WrongWindow, utc
from hpslurm.cli import options
from hpslurm.cluster.aws import whom
from hpslurm.core import records
from hpslurm.core.text import clean, size, whole
from hpslurm.show import render
from hpslurm.show.progress import Progress
from hpslurm.sources.slurm import JOB_ID

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
LEAST, MOST = 1 << 20, 1 << 30  # bytes; everything is in memory once
ENDS = ".tar.gz"


class Moment(click.ParamType):  # type: ignore[type-arg]
    """``2025-11-30T03:10:00Z``, UTC where no zone is given, or ``90m`` for so long ago; becomes seconds since 1970."""

    name = "TIME"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        text = str(value).strip()
        if re.fullmatch(r"\d{1,6}[smhd]?", text):
            return time.time() - options.Duration().convert(text, param, ctx)
        try:
            moment = datetime.fromisoformat(re.sub(r"[Zz]\Z", "+00:00", text))
        except ValueError:
            self.fail(f"{text[:40]!r} is not a valid time; write 2025-11-30T03:10Z, or 90m for so long ago", param, ctx)
        return (moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)).timestamp()


class Size(click.ParamType):  # type: ignore[type-arg]
    """``50M``; becomes bytes."""

    name = "SIZE"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        match = re.fullmatch(r"(\d{1,12})([KMG]?)(?:i?B)?", str(value).strip(), re.IGNORECASE)
        count = int(match[1]) * _UNITS[match[2].upper()] if match else 0
        if not LEAST <= count <= MOST:
            self.fail(f"{str(value)[:40]!r} is not a valid size (1M to 1G); write 50M", param, ctx)
        return count


@click.command(
    "bundle",
    context_settings=options.HELP,
    epilog="Exit codes: 0 done, 1 nothing could be collected or the file could not be written, 2 wrong command line.",
)
@click.option("--job", default="", metavar="JOBID", help="The job that failed.")
@click.option(
    "--log",
    "logs",
    multiple=True,
    type=click.Path(exists=True),
    metavar="FILE",
    help="A log, or a folder of logs; may be repeated. The job's own output comes by itself.",
)
@click.option("--hang", is_flag=True, help="Also look at the running job, as hpslurm hang does: one step on its nodes.")
@options.aws_cluster
@click.option("--since", type=Moment(), help="When the failure began, in UTC, as in 2025-11-30T03:10Z or 90m ago.")
@click.option(
    "--until", type=Moment(), help="When it was over.  [default for both: the job's time, else the last 2 hours]"
)
@click.option(
    "--output", type=click.Path(dir_okay=False), metavar="FILE", help="Default: hpslurm-bundle-….tar.gz, here."
)
@click.option(
    "--max-size",
    "limit",
    type=Size(),
    default="50M",
    show_default=True,
    help="Of all files together, unpacked; what does not fit is cut, logs first.",
)
@click.option("--dry-run", is_flag=True, help="List what would be in it and what is missing; write nothing.")
@click.option("--force", is_flag=True, help="Write over a file that is there.")
@options.no_aws_no_slurm
@options.results
@options.reports
@options.policy_path()
@options.as_json("Print one line of JSON.")
@options.root
def command(
    job: str,
    logs: tuple[str, ...],
    hang: bool,
    cluster: str,
    region: str,
    profile: str,
    since: float | None,
    until: float | None,
    output: str | None,
    limit: int,
    dry_run: bool,
    force: bool,
    no_aws: bool,
    no_slurm: bool,
    results: str | None,
    reports: tuple[str, ...],
    policy_path: str,
    as_json: bool,
    root: str,
) -> int:
    """Collect what AWS Support asks for into one tar.gz, with account ids, addresses, users and tokens masked.

    Cluster, findings, the job's report, logs, error lines, settings, versions and the time window, with a manifest and
    hashes, and case.txt to paste into the case. What cannot be had is listed as missing, and the rest is there.
    Beside it lies a file that leads from pseudonyms back to names, for you alone. Read a bundle before you send it.

    \b
    Examples:
      sudo hpslurm bundle --job 4711 --log /fsx/logs/4711/ --dry-run
          on the controller: what would be in it
      sudo hpslurm bundle --job 4711 --cluster demo --region us-west-2
      hpslurm bundle --log slurm-4711.out --since 2025-11-30T03:00Z --until 2025-11-30T05:00Z
    """
    if job and not JOB_ID.fullmatch(job):
        raise click.UsageError(f"not a job id: {job[:40]!r} (a number, number_task, or number+component)")
    if output and not output.endswith(ENDS):
        raise click.UsageError(f"--output {clean(output, 200)} does not end in {ENDS}")
    if output and not dry_run:
        _refuse(output, force)
    options = whom.Options(cluster, region, profile)
    request = Request(
        job, options, since, until, logs, results, reports, policy_path, not no_aws, not no_slurm, root, limit, hang
    )
    progress = Progress()
    try:
        made = collect(request, lambda what: progress.say(f"collecting {clean(what, 60)}"))
    except WrongWindow as error:
        raise click.UsageError(str(error)) from None
    finally:
        progress.done()
    for problem in made.problems:
        _warn(problem)
    if not made.collected:
        why = "\n".join(f"{what}: {reason}" for what, reason in made.missing)
        raise click.ClickException(f"nothing could be collected of a cluster, a job or a log\n{why}")
    parts, too_large = archive.fitted(made.parts, limit)
    missing = [*made.missing, *too_large]
    output = output or f"{_stem(job, made)}{ENDS}"
    manifest = _manifest(request, made, parts, missing)
    written: dict[str, Any] = {}
    if not dry_run:
        _refuse(output, force)
        with progress:
            progress.say("packing")
            written = _write(output, force, parts, manifest, made)
    for what, reason in missing:
        _warn(f"missing: {what}: {reason}")
    if as_json:
        about = {"schema": archive.SCHEMA, "type": "bundle", "dry_run": dry_run, "file": None, "file_bytes": None,
                 "file_sha256": None, "names_file": None, **written}  # fmt: skip
        click.echo(records.encode({**about, "manifest": manifest}))
    else:
        click.echo("\n".join(part for line in text(parts, manifest, output, written) for part in render.fitted(line)))
    return 0


def _warn(words: str) -> None:
    click.echo("\n".join(render.labelled("WARN", words)), err=True)


def _refuse(output: str, force: bool) -> None:
    folder = os.path.dirname(output) or "."
    if not os.path.isdir(folder):
        raise click.ClickException(f"no such directory: {clean(folder, 200)}; create it, or name another --output")
    for path in (output, names_file(output)):
        if os.path.lexists(path) and not force:
            raise click.ClickException(f"{clean(path, 200)} is there already; name another --output, or pass --force")


def names_file(output: str) -> str:
    """The file beside a bundle that leads from pseudonyms back to names."""
    return f"{output.removesuffix(ENDS)}.names.json"


def _stem(job: str, made: Bundle) -> str:
    when = utc(made.window.until).replace("-", "").replace(":", "")
    return f"hpslurm-bundle-{f'job{job}-' if job else ''}{when}"


def _when(made: Bundle) -> int:
    """The time of every file in it."""
    return whole(os.environ.get("SOURCE_DATE_EPOCH", "")) or int(made.window.until)


def _manifest(request: Request, made: Bundle, parts: list[Part], missing: list[tuple[str, str]]) -> dict[str, Any]:
    files = [part.described() for part in sorted(parts, key=lambda part: part.name)]
    return {
        "schema": archive.SCHEMA,
        "type": "manifest",
        "version": __version__,
        "job": request.job or None,
        "window": made.window.described(),
        "limit": request.limit,
        "bytes": sum(file["bytes"] for file in files),
        "masked": archive.masked(parts),
        "files": files,
        "missing": [{"what": what, "why": why} for what, why in missing],
    }


def _write(output: str, force: bool, parts: list[Part], manifest: Mapping[str, Any], made: Bundle) -> dict[str, Any]:
    folder = os.path.basename(output).removesuffix(ENDS)
    names = records.encode({"schema": archive.SCHEMA, "type": "names", **made.masker.mapping()}) + "\n"
    data = archive.pack(parts, manifest, folder, _when(made))
    beside = names_file(output)
    try:
        archive.write({output: data, beside: names.encode("utf-8", "replace")}, force=force)
    except OSError as error:
        raise click.ClickException(
            f"could not write {clean(output, 200)}: {error.strerror}; no part of it is left"
        ) from None
    return {
        "file": output,
        "file_bytes": len(data),
        "file_sha256": hashlib.sha256(data).hexdigest(),
        "names_file": beside,
    }


def text(parts: list[Part], manifest: Mapping[str, Any], output: str, written: Mapping[str, Any]) -> Iterator[str]:
    """What is in it, and what to do with it."""
    window = manifest["window"]
    yield f"Window: {window['since']} to {window['until']} (UTC), by {window['source']}"
    width = max(len(file["name"]) for file in manifest["files"])
    for file in manifest["files"]:
        notes = [f"{size(file['left_out'])} left out"] if file["left_out"] else []
        notes += [file["note"]] if file["note"] else []
        notes += [f"masked {sum(file['masked'].values())}"] if file["masked"] else []
        yield f"  {file['name']:{width}}  {size(file['bytes']):>10}  {', '.join(notes)}".rstrip()
    hidden = ", ".join(f"{rule} {count}" for rule, count in manifest["masked"].items()) or "nothing"
    yield f"Masked: {hidden}"
    missing = f", missing: {len(manifest['missing'])}" if manifest["missing"] else ""
    yield f"{len(parts)} files, {size(manifest['bytes'])} of at most {size(manifest['limit'])}{missing}"
    if not written:
        yield f"Nothing was written. Without --dry-run it becomes {clean(output, 200)}"
        return
    yield f"Wrote {clean(output, 200)}, {size(written['file_bytes'])}, sha256 {written['file_sha256']}"
    yield f"Names behind the pseudonyms, for you alone: {clean(written['names_file'], 200)}"
    yield "Read it before you send it; case.txt is to be pasted into the case."
    yield "Suggested command (run this yourself): hand the file over where the case's attachments are too small for it"
    yield f"  aws s3 cp {shlex.quote(clean(output, 200))} s3://BUCKET/"
