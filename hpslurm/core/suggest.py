"""Commands that a person may run against a node, worded once. hpslurm runs none of them.

HyperPod acts on exactly ``Action:Reboot`` and ``Action:Replace`` as the reason of a
node in state FAIL; any other spelling is ignored without a word.
"""

from __future__ import annotations

from hpslurm.core.finding import DRAIN, LOOK, REBOOT, REPLACE, Suggestion

ACTION_REBOOT = "Action:Reboot"
ACTION_REPLACE = "Action:Replace"


def drain(rule_id: str) -> Suggestion:
    return Suggestion(
        DRAIN,
        "keep new jobs off the node while you look; running jobs continue",
        f"sudo scontrol update nodename={{nodes}} state=drain reason='hpslurm: {rule_id}'",
    )


def save_evidence() -> Suggestion:
    return Suggestion(
        LOOK,
        "save the evidence first: a reboot loses the kernel log, a replacement loses the disks",
        "clush -w {nodes} 'sudo dmesg -T; sudo lspci -nn' > hpslurm-evidence.txt",
    )


def reboot(why: str) -> Suggestion:
    return Suggestion(REBOOT, why, _action(ACTION_REBOOT))


def replace(why: str) -> Suggestion:
    return Suggestion(
        REPLACE, f"{why}; root and secondary volumes are lost; never the controller", _action(ACTION_REPLACE)
    )


def _action(reason: str) -> str:
    return f"sudo scontrol update nodename={{nodes}} state=fail reason='{reason}'"
