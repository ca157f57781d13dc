"""Which region, which cluster, and as whom: what the command line, the environment and this machine say."""

from __future__ import annotations

import os

from hpslurm.cluster.aws.view import Need
from hpslurm.core.probe import Unknown
from hpslurm.core.text import clean
from hpslurm.core.values import dataclass
from hpslurm.sources.aws import CLUSTER_ARN, CLUSTER_NAME, REGION, Aws
from hpslurm.sources.aws_errors import IAM, NoAccess, told
from hpslurm.sources.host import Host
from hpslurm.sources.hyperpod import RESOURCES, Layout

WINDOW = 2 * 3600  # seconds of logs by default
# Any of these says that the person means AWS; without, and off HyperPod, it is not asked.
AWS_ENV = ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_ENDPOINT_URL")


@dataclass(frozen=True)
class Options:
    """As the command line has them; ``since`` is seconds back from now, ``cluster`` a name or an ARN."""

    cluster: str = ""
    region: str = ""
    profile: str = ""
    since: float = WINDOW
    seconds: float = 120.0


class NoCluster(Unknown):
    """The cluster does not exist; the text lists those that do. ``named`` is whether a person named it."""

    def __init__(self, text: str, named: bool) -> None:
        super().__init__(text)
        self.named = named


def means_aws(options: Options, host: Host) -> bool:
    """Whether there is any sign that this is about HyperPod: a name, the environment, or HyperPod's own file."""
    named = options.cluster or options.region or options.profile or any(os.environ.get(name) for name in AWS_ENV)
    return bool(named) or host.exists(RESOURCES)


def find_region(options: Options, local: Layout) -> str:
    """--region, the ARN, this node's own configuration, the environment, else the profile.

    A controller knows its cluster's region; what a shell has in its environment is another matter.
    """
    named, own = CLUSTER_ARN.fullmatch(options.cluster), CLUSTER_ARN.fullmatch(local.arn)
    if named and options.region and named["region"] != options.region:
        raise Unknown(f"the cluster's ARN is of {named['region']}, but --region is {options.region}")
    here = own["region"] if own else ""
    about_this_one = not options.cluster or options.cluster in (local.cluster, local.arn)
    told = (
        ("--region", options.region),
        ("--cluster", named["region"] if named else ""),
        ("HyperPod's own file", here if about_this_one else ""),
        ("AWS_REGION", os.environ.get("AWS_REGION", "")),
        ("AWS_DEFAULT_REGION", os.environ.get("AWS_DEFAULT_REGION", "")),
    )
    source, region = next(((source, region) for source, region in told if region), ("", ""))
    if not region:
        source, region = "the profile", _profile_region(options.profile) or here
    if not region:
        raise NoAccess(f"no region: pass --region or set AWS_REGION, {IAM}")
    return _valid(region, source)


def _valid(region: str, source: str) -> str:
    if REGION.fullmatch(region):
        return region
    zone = " (that is an availability zone)" if REGION.fullmatch(region[:-1]) else ""
    raise NoAccess(f"{clean(region, 40)!r} of {source} is not a region{zone}; one looks like us-west-2: pass --region")


def _profile_region(profile: str) -> str:
    import boto3
    from botocore.exceptions import BotoCoreError

    try:
        return boto3.Session(profile_name=profile or None).region_name or ""
    except BotoCoreError as error:
        raise NoAccess(f"{told(error)}, {IAM}") from error


def find_cluster(options: Options, local: Layout, aws: Aws) -> str:
    """--cluster, this node's own, or the only one there is. Raises Unknown with a list to choose from."""
    if options.cluster:
        if not CLUSTER_NAME.fullmatch(options.cluster) and not CLUSTER_ARN.fullmatch(options.cluster):
            raise Unknown(f"{clean(options.cluster, 80)!r} is neither a cluster's name nor its ARN")
        return options.cluster
    if CLUSTER_NAME.fullmatch(local.cluster):
        return local.cluster
    names = _clusters(aws)
    if len(names) == 1:
        return names[0]
    raise Unknown(f"pass --cluster; {_listed(names, aws.region)}")


def no_cluster(name: str, options: Options, aws: Aws) -> NoCluster:
    """What to say where AWS knows no cluster of that name."""
    where = "" if options.cluster else " (its name stands in HyperPod's own file on this machine)"
    try:
        others = _listed(_clusters(aws), aws.region)
    except Unknown as why:
        others = f"could not list the others: {why}"
    return NoCluster(f"no cluster {clean(name, 80)!r} in {aws.region}{where}; {others}", bool(options.cluster))


def _clusters(aws: Aws) -> list[str]:
    rows = aws.listed("sagemaker", "ListClusters", "ClusterSummaries", MaxResults=100)
    return sorted(str(row["ClusterName"]) for row in rows.items)


def _listed(names: list[str], region: str) -> str:
    return f"clusters in {region}: {', '.join(names)}" if names else f"there is no cluster in {region}"


def _identity(aws: Aws) -> str:
    """Who we are to AWS, without the account; empty where sts does not answer but others may."""
    try:
        arn = str(aws.read("sts", "GetCallerIdentity").get("Arn", ""))
    except NoAccess:
        raise
    except Unknown:
        return ""
    return arn.rpartition(":")[2]


IDENTITY = Need("identity", lambda source, _: _identity(source.aws))
