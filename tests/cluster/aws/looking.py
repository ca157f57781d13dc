"""One look as ``hpslurm diagnose`` makes it: AWS as a server on loopback, Slurm as the output of its programs.

``World`` is a healthy cluster to make ill: a controller, a login node, and eight workers that Slurm knows as
ip-10-1-0-[1-8]. boto3, the checks, the join and the guard are the real ones; no daemon is started.
"""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

from hpslurm.cluster import gather, guard, plans, view
from hpslurm.cluster.aws import checks, whom
from hpslurm.core.finding import Finding
from hpslurm.core.policy import Policy
from hpslurm.core.probe import Result
from hpslurm.show import render
from hpslurm.show.plan import Plan
from hpslurm.sources.host import Host
from tests.aws_server import serve

REGION, NAME, WORKERS = "us-west-2", "demo", "worker-group-1"
ARN = f"arn:aws:sagemaker:{REGION}:123456789012:cluster/abcdefghijkl"
SG, SUBNET = "sg-0aaaaaaaaaaaaaaaa", "subnet-0aaaaaaaaaaaaaaaa"
SILENT = ("DOWN", "NOT_RESPONDING")
HARDWARE = "The instance likely experienced a hardware failure."
CHANGES = re.compile(r"batch-|Action:Re|state=(?:fail|down|drain|resume)|restart slurmd|update-cluster-software")


def identity(number: int) -> str:
    return f"i-0{number:016x}"


def group(name: str, kind: str, count: int, **more: Any) -> dict[str, Any]:
    made = {"InstanceGroupName": name, "CurrentCount": count, "TargetCount": count, "SlurmConfig": {"NodeType": kind}}
    return {**made, "InstanceType": "ml.p5.48xlarge" if kind == "Compute" else "ml.m5.4xlarge", **more}


def node(number: int, of: str = WORKERS, **more: Any) -> dict[str, Any]:
    return {"group": of, "first": f"10.1.0.{number}", "id": identity(number), **more}


class World:
    """What AWS answers, in the terms of ``tests/aws_server/scenario.py``, and what Slurm says of its nodes."""

    def __init__(self, **cluster: Any) -> None:
        self.groups = {
            one["InstanceGroupName"]: one
            for one in (
                group("controller-machine", "Controller", 1),
                group("login-group", "Login", 1),
                group(WORKERS, "Compute", 8),
            )
        }
        self.cluster = {"NodeRecovery": "Automatic", "Orchestrator": {"Slurm": {}}, **cluster}
        self.nodes = {number: node(number) for number in range(1, 9)}
        self.nodes |= {100: node(100, "controller-machine"), 101: node(101, "login-group")}
        self.more: dict[str, Any] = {"events": [], "logs": [], "trouble": [], "operations": []}
        self.slurm: dict[str, dict[str, Any]] = {
            f"ip-10-1-0-{number}": {"state": ["IDLE", "CLOUD"]} for number in range(1, 9)
        }
        self.files: dict[str, Any] = {}  # HyperPod's own, by name

    def silent(self, *numbers: int, minutes: float = 30) -> World:
        for number in numbers:
            self.slurm[f"ip-10-1-0-{number}"] = {
                "state": list(SILENT),
                "reason": "Not responding",
                "reason_changed_at": int(time.time() - minutes * 60),
                "reason_set_by_user": "slurm",
            }
        return self

    def gone(self, *numbers: int) -> World:
        """HyperPod's list lacks them; its counts are another matter."""
        for number in numbers:
            del self.nodes[number]
        return self

    def set(self, number: int, **fields: Any) -> World:
        self.nodes[number].update(fields)
        return self

    def event(self, minutes: float, text: str, level: str | None = "Error", **more: Any) -> World:
        self.cluster["NodeProvisioningMode"] = "Continuous"
        row = {"minutes": minutes, "text": text, "group": WORKERS, **more}
        self.more["events"].append(row if level is None else {**row, "level": level})
        return self

    def agent(self, number: int, minutes: float, condition: str = "NvidiaErrorReboot", state: str = "True") -> World:
        told = f"Node condition {condition} is now: {state}, reason: XidHardwareFailure, NVRM: Xid (PCI:0000:b9:00): 79"
        text = json.dumps({"details: ": {"message": told}, "HealthMonitoringAgentDetectionEvent": "HealthEvent"})
        return self.log(
            f"SagemakerHealthMonitoringAgent/{self.nodes[number]['group']}/{identity(number)}", minutes, text
        )

    def script(self, number: int, *texts: str) -> World:
        for place, text in enumerate(("[SageMaker] Downloading lifecycle scripts", *texts)):
            self.log(f"LifecycleConfig/{WORKERS}/{identity(number)}", 30 - place, text)
        return self

    def log(self, stream: str, minutes: float, text: str) -> World:
        self.more["logs"].append({"stream": stream, "minutes": minutes, "text": text})
        return self

    def raw(self) -> dict[str, Any]:
        network = {"SecurityGroupIds": [SG], "Subnets": [SUBNET]}
        return {
            "cluster": {"VpcConfig": network, **self.cluster, "InstanceGroups": list(self.groups.values())},
            "nodes": list(self.nodes.values()),
            "subnets": [{"id": SUBNET, "zone": f"{REGION}a", "cidr": "10.1.0.0/20"}],
            "rules": [
                {"group": SG, "other_group": SG},
                {"group": SG, "other_group": SG, "egress": True},
                {"group": SG, "cidr": "0.0.0.0/0", "egress": True},
            ],
            **self.more,
        }


class Seen:
    """What a look came to."""

    calls: dict[str, int]

    def __init__(self, results: list[Result], planned: list[Plan], text: str, screen: str, seconds: float) -> None:
        self.results, self.plans, self.text, self.screen, self.seconds = results, planned, text, screen, seconds
        self.findings = [finding for result in results for finding in result.findings]

    def of(self, subject: str) -> list[Finding]:
        return [finding for finding in self.findings if finding.subject == subject]

    def ids(self, subject: str = "") -> set[str]:
        return {finding.rule.id for finding in (self.of(subject) if subject else self.findings)}

    def one(self, rule: str, subject: str = "") -> Finding:
        """The finding of this rule; where there are several, that of the subject."""
        (found,) = [f for f in self.findings if f.rule.id == rule and subject in ("", f.subject)]
        return found

    def commands(self, subject: str = "") -> list[str]:
        """Every command that is suggested for it (for anything), with its name filled in: by rule, and in its plan."""
        steps = [step for plan in self.plans for step in plan.steps if not subject or subject in step.nodes]
        return [step.command for step in steps if step.command] + [
            render.filled(item.command, finding.subject)
            for finding in (self.of(subject) if subject else self.findings)
            for item in finding.suggestions
            if item.command
        ]

    def changes(self, subject: str = "") -> list[str]:
        return [command for command in self.commands(subject) if CHANGES.search(command)]

    @property
    def notes(self) -> str:
        return "\n".join(result.note for result in self.results if result.note and result.outcome != "pass")


def look(root: Path, world: World, *, slurm: bool = True, policy: Policy | None = None, **options: Any) -> Seen:
    """``options`` are those of ``whom.Options``; without Slurm its programs are not asked."""
    put(root, world)
    with serve(world.raw()) as server:
        seen = ask(root, slurm=slurm, policy=policy, **options)
        seen.calls = dict(server.calls)
    return seen


def ask(root: Path, *, slurm: bool = True, policy: Policy | None = None, **options: Any) -> Seen:
    """The same, of whichever server the environment names."""
    told = {"cluster": NAME, "region": REGION, **options}
    host, rules = Host(str(root)), policy or Policy()
    began = time.monotonic()
    half = gather.diagnose(
        host, rules, [], ask_slurm=slurm, ask_aws=lambda layout: checks.collect(whom.Options(**told), layout)
    )
    seconds = time.monotonic() - began
    scene = guard.of_half(half, rules)
    results = guard.guarded(half.results, scene, rules)
    planned = plans.plans(half.results, scene, rules)
    with render.as_wide_as(200):
        text = "\n".join(view.text(results, half.members))
        screen = "\n".join(view.first_screen(results, half.members, planned))
    return Seen(results, planned, text, screen, seconds)


def put(root: Path, world: World) -> None:
    """Slurm's answer and HyperPod's own files, as a machine has them."""
    (root / "commands").mkdir(exist_ok=True)
    rows = [{"name": name, "partitions": ["gpu"], **about} for name, about in world.slurm.items()]
    (root / "commands/scontrol_nodes_json.txt").write_text(json.dumps({"nodes": rows}))
    (root / "commands/squeue.txt").write_text("")
    for name, content in world.files.items():
        folder = root / "opt/ml/config"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(json.dumps(content))
