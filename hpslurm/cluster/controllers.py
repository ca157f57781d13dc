"""Slurm's own daemons: does every controller answer, and may we talk to them?

A standby that is down is noticed by nobody until the primary fails, and then the whole
cluster stands. Without munge nobody can talk to anybody, which looks like a dead controller.
"""

from __future__ import annotations

from collections.abc import Iterator

from hpslurm.core.finding import LOOK, P0, P1, Evidence, Finding, Rule, Suggestion
from hpslurm.core.policy import Policy
from hpslurm.core.probe import Unknown
from hpslurm.core.values import dataclass
from hpslurm.sources import slurm
from hpslurm.sources.host import Host, error_of
from hpslurm.sources.slurm import Controller

DOWN = Rule("slurmctld-down", P0, "No Slurm controller answers", "operations.md § 7")
STANDBY = Rule("slurmctld-standby-down", P1, "A Slurm controller does not answer", "operations.md § 7")
MUNGE = Rule("munge-broken", P0, "munge does not work on this machine", "operations.md § 7")


@dataclass(frozen=True)
class Facts:
    """``munge`` is what Slurm said when it could not authenticate, or empty."""

    controllers: tuple[Controller, ...]
    munge: str = ""


def collect(host: Host) -> Facts:
    output = host.run("scontrol_config")
    complaint = output.err.lower()
    if output.status and ("munge" in complaint or "authentication" in complaint):
        lines = [line for line in output.err.splitlines() if "munge" in line.lower()]
        return Facts((), lines[0] if lines else error_of(output))
    try:
        return Facts(slurm.controllers(host))
    except Unknown:
        if "unable to contact" in complaint:
            return Facts((Controller("", "primary", False),))
        raise


def judge(facts: Facts, policy: Policy) -> Iterator[Finding]:
    if facts.munge:
        yield MUNGE.found(
            "Slurm's programs cannot authenticate here, so nothing else of Slurm can be looked at",
            evidence=[Evidence("scontrol show config", facts.munge)],
            suggest=[
                Suggestion(
                    LOOK, "does it run, and does a credential work?", "systemctl status munge; munge -n | unmunge"
                ),
                Suggestion(
                    LOOK,
                    "the key must be the same everywhere, the clocks within minutes",
                    "sudo md5sum /etc/munge/munge.key; date",
                ),
            ],
        )
        return
    down = [controller for controller in facts.controllers if not controller.up]
    if not down:
        return
    names = ", ".join(f"{controller.host or 'the controller'} ({controller.role})" for controller in down)
    rule = DOWN if len(down) == len(facts.controllers) else STANDBY
    yield rule.found(
        f"{len(down)} of {len(facts.controllers)} controllers down: {names}",
        evidence=[Evidence("scontrol ping", f"{controller.role} at {controller.host} is DOWN") for controller in down],
        suggest=[
            Suggestion(LOOK, "on that machine: does it run, and what were its last words?",
                       "systemctl status slurmctld; sudo tail -n 50 /var/log/slurm/slurmctld.log"),
            Suggestion(LOOK, "is there room where it keeps its state?",
                       "df -h $(scontrol show config | awk '/^StateSaveLocation/ {print $3}')"),
        ],
    )  # fmt: skip
