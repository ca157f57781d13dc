"""What a suggested command does, by its words: does it change something, start a job, speak to Slurm?

The guard judges suggestions by what they do and to whom, not by who wrote them. A program
that is not known here counts as one that changes something.
"""

from __future__ import annotations

import re
import shlex
from functools import lru_cache

_AWS = re.compile(r"\baws\s+(?P<service>[a-z0-9-]+)\s+(?P<operation>[a-z0-9-]+)")
_AWS_READS = ("describe-", "list-", "get-", "filter-", "tail", "wait", "export-credentials")
_SCONTROL = re.compile(r"\bscontrol\s+(?P<verb>\w+)")
_SCONTROL_READS = ("show", "ping")
_SYSTEMCTL_CHANGES = re.compile(r"\bsystemctl\s+(?:--\S+\s+)*(?:re)?(?:start|stop|load|boot|enable|disable|mask)\b")
_JOB = re.compile(r"^(?:sudo\s+)?(?:srun|sbatch|salloc)\b|[;|&]\s*(?:srun|sbatch|salloc)\b")
_SRUN_NODES = re.compile(r"^srun -w \{nodes\} (?P<what>[^;|&><]*|[^;|&><'\"]*'[^']*')$")
_RESUMES = re.compile(r"\bscontrol\s+update\b.*\bstate=resume\b", re.IGNORECASE)
_OF_SLURM = re.compile(r"\b(?:scontrol|srun|sbatch|salloc|sinfo|squeue|sacct|sdiag)\b")
_WHOLE_UPDATE = re.compile(r"\baws\s+sagemaker\s+update-cluster-software\b(?!.*--instance-groups)")

_ONCE = lru_cache(maxsize=1024)  # thousands of nodes get the same few suggestions


@_ONCE
def changes(command: str) -> bool:
    """Whether it would change a node, Slurm, the cluster or the account.

    >>> changes("scontrol show node n1"), changes("scontrol update nodename=n1 state=resume")
    (False, True)
    >>> changes("aws sagemaker list-cluster-nodes"), changes("aws sagemaker batch-replace-cluster-nodes")
    (False, True)
    """
    aws = any(not found["operation"].startswith(_AWS_READS) for found in _AWS.finditer(command))
    slurm = any(found["verb"] not in _SCONTROL_READS for found in _SCONTROL.finditer(command))
    return aws or slurm or bool(_SYSTEMCTL_CHANGES.search(command))


@_ONCE
def starts_job(command: str) -> bool:
    """Whether Slurm must find it a place to run.

    >>> starts_job("srun -w n1 nvidia-smi"), starts_job("clush -w n1 'echo srun'")
    (True, False)
    """
    return bool(_JOB.search(command))


@_ONCE
def of_slurm(command: str) -> bool:
    """Whether one of Slurm's programs is in it."""
    return bool(_OF_SLURM.search(command))


@_ONCE
def resumes(command: str) -> bool:
    """Whether it returns a node to service."""
    return bool(_RESUMES.search(command))


@_ONCE
def whole_cluster(command: str) -> bool:
    """Whether it changes every instance group, that of the controller included."""
    return bool(_WHOLE_UPDATE.search(command))


def without_job(command: str) -> str:
    """The same look by ssh, for a node on which Slurm starts nothing; empty where it cannot be put so.

    >>> without_job("srun -w {nodes} cat /proc/meminfo"), without_job("srun -w {nodes} hostname | sort")
    ("clush -w {nodes} 'cat /proc/meminfo'", '')
    """
    match = _SRUN_NODES.match(command)
    return f"clush -w {{nodes}} {shlex.quote(match['what'])}" if match else ""


@_ONCE
def for_caller(command: str, region: str, profile: str) -> str:
    """With the region and the profile that this look used, in every AWS command that lacks them.

    >>> for_caller("aws sagemaker list-clusters --region us-east-1", "us-west-2", "train")
    'aws sagemaker list-clusters --profile train --region us-east-1'
    """

    def told(match: re.Match[str]) -> str:
        rest = command[match.end() :]
        more = f" --profile {shlex.quote(profile)}" if profile and "--profile" not in rest else ""
        more += f" --region {shlex.quote(region)}" if region and "--region" not in rest else ""
        return match[0] + more

    return _AWS.sub(told, command)
