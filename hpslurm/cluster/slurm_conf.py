"""slurm.conf: did the controller read what is written there, and do both list the same nodes?

An edit counts only after ``scontrol reconfigure``. HyperPod writes NodeName lines when it
scales; until slurmctld read them, the new nodes do not exist for it, and nodes that were
removed from the file stay in its mind.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

from hpslurm.core import nodeset
from hpslurm.core.finding import CONFIGURE, LOOK, P1, Evidence, Finding, Rule, Suggestion
from hpslurm.core.policy import Policy
from hpslurm.core.probe import Skip, Unknown
from hpslurm.core.values import dataclass
from hpslurm.sources import slurm
from hpslurm.sources.host import Host

NEWER = Rule("slurm-conf-not-read", P1, "slurm.conf was edited, and slurmctld has not read it", "operations.md § 7")
NODES = Rule("slurm-conf-nodes-differ", P1, "slurm.conf and slurmctld list different nodes", "operations.md § 7")
LARGEST = 16 << 20  # bytes
DEEPEST = 5  # files that include one another


@dataclass(frozen=True)
class Facts:
    """``differs`` is what Slurm says of the two hashes, or empty; the names are of one side only."""

    path: str
    differs: str
    only_file: frozenset[str]
    only_controller: frozenset[str]


def collect(host: Host) -> Facts:
    path = slurm.slurm_conf(host)
    if not path:
        raise Skip("no slurm.conf on this machine: it is the controller's")
    try:
        named = nodes_of(host, path)
    except FileNotFoundError:
        raise Skip(f"{path} does not exist") from None
    hashes = slurm.config(host).get("hash_val", ("Match",))[0]
    known = {node.name: node for node in slurm.nodes(host).nodes}
    # nodes that registered by themselves (slurmd -Z) stand in no file
    dynamic = {name for name, node in known.items() if any(flag.startswith("DYNAMIC") for flag in node.flags)}
    return Facts(
        path,
        "" if hashes == "Match" else hashes,
        frozenset(named - known.keys()),
        frozenset(known.keys() - named - dynamic),
    )


def nodes_of(host: Host, path: str, depth: int = 0) -> set[str]:
    """Names on the NodeName lines of the file and of those that it includes; nodes of State=FUTURE do not count."""
    if depth > DEEPEST:
        raise Unknown(f"{path}: files include one another more than {DEEPEST} deep")
    names: set[str] = set()
    for line in re.sub(r"\\\n", " ", host.read(path, LARGEST)).splitlines():
        words = line.partition("#")[0].split()
        if len(words) == 2 and words[0].casefold() == "include":
            where = words[1] if words[1].startswith("/") else f"{path.rpartition('/')[0]}/{words[1]}"
            for more in host.glob(where):
                names |= nodes_of(host, more, depth + 1)
            continue
        settings = {key.casefold(): value for key, _, value in (word.partition("=") for word in words)}
        name = settings.get("nodename", "DEFAULT")
        if name != "DEFAULT" and settings.get("state", "").upper() != "FUTURE":
            try:
                names.update(nodeset.unfold(name))
            except nodeset.NoNodeList as error:
                raise Unknown(f"{path}: NodeName={name} is not a valid node list: {error}") from None
    return names


def judge(facts: Facts, policy: Policy) -> Iterator[Finding]:
    if facts.differs:
        yield NEWER.found(
            f"{facts.path} is not what slurmctld has read",
            evidence=[Evidence("scontrol show config", f"HASH_VAL = {facts.differs}")],
            suggest=[
                Suggestion(LOOK, "when it was edited", f"ls -l {shlex.quote(facts.path)}"),
                Suggestion(
                    CONFIGURE,
                    "let slurmctld and slurmd read it; not while a replacement is under way",
                    "sudo scontrol reconfigure",
                ),
            ],
        )
    if facts.only_file or facts.only_controller:
        sides = [
            f"only in {facts.path}: {nodeset.fold(sorted(facts.only_file))}" if facts.only_file else "",
            f"only in slurmctld: {nodeset.fold(sorted(facts.only_controller))}" if facts.only_controller else "",
        ]
        yield NODES.found(
            "; ".join(filter(None, sides)),
            evidence=[Evidence(facts.path, side) for side in sides if side],
            suggest=[
                Suggestion(LOOK, "the file's NodeName lines", f"grep -in nodename {shlex.quote(facts.path)}"),
                Suggestion(
                    CONFIGURE,
                    "let slurmctld read the file; before 23.11 it learns of new nodes at a restart only",
                    "sudo scontrol reconfigure",
                ),
            ],
        )
