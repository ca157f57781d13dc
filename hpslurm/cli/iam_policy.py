"""``hpslurm iam-policy``: the permissions that diagnose needs, as a policy document."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import click

from hpslurm.cli import options
from hpslurm.core.text import clean
from hpslurm.show import render
from hpslurm.sources.aws import OPERATIONS, SESSION_OPERATIONS, Operation

# What a region's name begins with, and its partition: an ARN of another one names nothing.
PARTITIONS = {
    "cn-": "aws-cn",
    "us-gov-": "aws-us-gov",
    "eusc-": "aws-eusc",
    "us-isob-": "aws-iso-b",
    "us-isof-": "aws-iso-f",
    "us-iso-": "aws-iso",
    "eu-isoe-": "aws-iso-e",
    "": "aws",
}
Checked = Callable[[click.Context, click.Parameter, str], str]


def _like(pattern: str, what: str) -> Checked:
    """Takes a star or what has this form: with anything else the document would be refused, or mean nothing."""

    def check(ctx: click.Context, param: click.Parameter, value: str) -> str:
        if value != "*" and not re.fullmatch(pattern, value):
            raise click.BadParameter(f"{clean(value, 40)!r} is not {what}", ctx, param)
        return value

    return check


@click.command(
    "iam-policy",
    context_settings=options.HELP,
    epilog="Exit codes: 0 done, 2 wrong command line. What each permission is for: operations.md § 2.",
)
@click.option(
    "--region",
    default="*",
    show_default=True,
    callback=_like(r"[a-z]{2,4}(?:-[a-z0-9]+)+", "a region, as in us-west-2"),
    help="Only clusters and logs of this region.",
)
@click.option(
    "--account",
    default="*",
    show_default=True,
    callback=_like("[0-9]{12}", "an account, which has 12 digits"),
    help="Only clusters and logs of this account.",
)
@click.option(
    "--partition",
    metavar="PARTITION",
    type=click.Choice(list(dict.fromkeys(PARTITIONS.values()))),
    help="AWS's own part of the world; by default the one that the region lies in.",
)
@click.option("--ssm", is_flag=True, help="Also what diagnose --probe ssm needs; it starts sessions on nodes.")
@click.option("--why", is_flag=True, help="Print a line for each permission instead of the document.")
def command(region: str, account: str, partition: str | None, ssm: bool, why: bool) -> None:
    """Print the IAM policy that hpslurm diagnose needs. All of it reads; nothing in it changes anything.

    \b
    Examples:
      hpslurm iam-policy --region us-west-2 --account 123456789012 > policy.json
      hpslurm iam-policy --why
    """
    operations = [*OPERATIONS, *(SESSION_OPERATIONS if ssm else ())]
    if why:
        for operation in operations:
            note = " (needs no permission)" if operation.free else ""
            click.echo("\n".join(render.fitted(f"{operation.action:34} {operation.why}{note}")))
        return
    partition = partition or next(name for start, name in PARTITIONS.items() if region.startswith(start))
    click.echo(json.dumps(document(operations, region, account, partition), indent=2))


def document(operations: list[Operation], region: str, account: str, partition: str) -> dict[str, Any]:
    """One statement for each set of resources; sessions stand apart, because they are no reads."""
    groups: dict[tuple[str, str], list[str]] = {}
    for operation in operations:
        if not operation.free:
            kind = "Sessions" if operation in SESSION_OPERATIONS else "Reads"
            groups.setdefault((kind, operation.resource), []).append(operation.action)
    names = {"region": region, "account": account, "partition": partition}
    return {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Sid": f"Hpslurm{kind}{number}",
                "Effect": "Allow",
                "Action": sorted(actions),
                "Resource": [item.format(**names) for item in resource.split()],
            }
            for number, ((kind, resource), actions) in enumerate(sorted(groups.items()), start=1)
        ],
    }
