"""The accounting: is slurmdbd reachable?

While it is not, jobs run on, but nobody learns how they ended once the controller has
forgotten them, and limits of accounts may hold jobs back.
"""

from __future__ import annotations

from collections.abc import Iterator

from hpslurm.core.finding import LOOK, P1, Evidence, Finding, Rule, Suggestion
from hpslurm.core.policy import Policy
from hpslurm.core.probe import Skip
from hpslurm.core.values import dataclass
from hpslurm.sources import slurm
from hpslurm.sources.host import Host, error_of

UNREACHABLE = Rule("slurmdbd-unreachable", P1, "The accounting does not answer", "operations.md § 7")
SLURMDBD = "accounting_storage/slurmdbd"


@dataclass(frozen=True)
class Facts:
    host: str
    error: str


def collect(host: Host) -> Facts:
    config = slurm.config(host)
    kind = config.get("accountingstoragetype", ("",))[0]
    if kind != SLURMDBD:
        raise Skip(f"no accounting: AccountingStorageType is {kind or 'not set'}")
    output = host.run("sacctmgr")
    where = config.get("accountingstoragehost", ("",))[0]
    return Facts(where, error_of(output) if output.status else "")


def judge(facts: Facts, policy: Policy) -> Iterator[Finding]:
    if facts.error:
        yield UNREACHABLE.found(
            f"slurmdbd on {facts.host} does not answer",
            evidence=[Evidence("sacctmgr list cluster", facts.error)],
            suggest=[
                Suggestion(LOOK, "on that machine: slurmdbd, and the database behind it (StorageHost in slurmdbd.conf)",
                           "systemctl status slurmdbd; sudo tail -n 50 /var/log/slurm/slurmdbd.log"),
            ],
        )  # fmt: skip
