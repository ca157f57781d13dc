"""Our own hooks: does Slurm still run them?

HyperPod's lifecycle scripts delete every Prolog= and Epilog= line before they write their
own, so hooks can vanish with a change of the cluster, and nothing looks wrong.
"""

from __future__ import annotations

from collections.abc import Iterator

from hpslurm.core.finding import CONFIGURE, LOOK, P1, P2, Evidence, Finding, Rule, Suggestion
from hpslurm.core.policy import Policy
from hpslurm.core.values import dataclass
from hpslurm.sources import slurm
from hpslurm.sources.host import Host

REMOVED = Rule("hooks-removed", P1, "hpslurm's hooks ran before, and Slurm runs them no more", "operations.md § 7")
ABSENT = Rule("hooks-not-installed", P2, "hpslurm's hooks are not installed", "operations.md § 7")
NO_ALLOC = Rule("hooks-no-alloc", P1, "The prolog runs on the first node of a job only", "operations.md § 7")
NAME = "hpslurm"
STEPS = Suggestion(
    LOOK, "the exact steps for this cluster, also as a lifecycle-script snippet", "hpslurm install --print"
)


@dataclass(frozen=True)
class Facts:
    """What slurm.conf names, and which hooks left records (``prolog``, ``epilog``, ...)."""

    prolog: tuple[str, ...]
    epilog: tuple[str, ...]
    flags: str
    ours: frozenset[str]
    ran: frozenset[str]


def collect(host: Host, ran: frozenset[str] = frozenset()) -> Facts:
    config = slurm.config(host)
    lines = {key: tuple(line for line in config.get(key, ()) if line != "(null)") for key in ("prolog", "epilog")}
    ours = frozenset(key for key, paths in lines.items() if any(is_ours(host, path) for path in paths))
    return Facts(lines["prolog"], lines["epilog"], config.get("prologflags", ("",))[0], ours, ran)


class Hooks:
    """The check, with what the records know: which hooks ran."""

    def __init__(self, ran: frozenset[str]) -> None:
        self.ran = ran

    def collect(self, host: Host) -> Facts:
        return collect(host, self.ran)

    def judge(self, facts: Facts, policy: Policy) -> Iterator[Finding]:
        return judge(facts, policy)


def is_ours(host: Host, path: str) -> bool:
    """A script named after us, or a folder or pattern that finds one here."""
    if NAME in path.rpartition("/")[2]:
        return True
    if not any(mark in path for mark in "*?["):
        return bool(path.startswith("/") and host.glob(f"{path.rstrip('/')}/*{NAME}*"))  # a folder
    return any(NAME in one.rpartition("/")[2] for one in host.glob(path))


def judge(facts: Facts, policy: Policy) -> Iterator[Finding]:
    shown = [
        Evidence("scontrol show config", f"{key} = {', '.join(paths) or '(null)'}")
        for key, paths in (("Prolog", facts.prolog), ("Epilog", facts.epilog))
    ]
    missing = [key for key in ("prolog", "epilog") if key not in facts.ours]
    gone = [key for key in missing if key in facts.ran]
    if gone:
        yield REMOVED.found(
            f"{' and '.join(gone)} left records before, but slurm.conf does not name them "
            "(if a script of the site calls them, mute this)",
            evidence=shown,
            suggest=[STEPS],
        )
    elif len(missing) == 2:
        yield ABSENT.found("slurm.conf names neither prolog nor epilog of hpslurm", evidence=shown, suggest=[STEPS])
    flags = {one.casefold() for one in facts.flags.split(",")}
    if "prolog" in facts.ours and not flags & {"alloc", "contain", "runinjob"}:
        yield NO_ALLOC.found(
            f"PrologFlags is {facts.flags}, expected Alloc: else a batch job's prolog runs on its first node only",
            evidence=[Evidence("scontrol show config", f"PrologFlags = {facts.flags}")],
            suggest=[
                STEPS,
                Suggestion(CONFIGURE, "add PrologFlags=Alloc to slurm.conf, then", "sudo scontrol reconfigure"),
            ],
        )
