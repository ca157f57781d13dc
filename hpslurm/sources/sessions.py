"""The door to a node through SSM: run ``hpslurm-check --json`` there, and read what it prints.

A session starts a program on a node, so this door opens only for ``--probe ssm``. It asks
for a session with one document, whose only word is the fixed command below; AWS's own
session-manager-plugin carries the bytes. SSM returns no exit status, and a session may
end in the middle, so the record's own last line says whether it came whole.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from hpslurm.core import records
from hpslurm.core.probe import SKIP, Result, Unknown
from hpslurm.core.records import Record
from hpslurm.core.text import clean
from hpslurm.core.values import dataclass, replace
from hpslurm.sources.aws import Aws
from hpslurm.sources.host import COMMANDS, Host

SSM = "operations.md § 3"
SECONDS = 180.0  # for one node, from the start of its session
SIDE_BY_SIDE = 16
PAUSE = 0.35  # seconds between sessions: AWS starts three a second for an account
MOST = 50  # nodes; more is a job for srun
DOCUMENT = "AWS-StartNonInteractiveCommand"
COMMAND = "hpslurm-check --json"
# The response holds a token, and everybody may read a command line: since 1.2.497 the plugin takes it from here.
RESPONSE = "AWS_SSM_START_SESSION_RESPONSE"
# What these look at is the shell that SSM opened, which no job ever sees.
OF_A_SHELL = ("memlock", "stack", "nccl_env")


@dataclass(frozen=True)
class Target:
    """A node, and how SSM calls it."""

    node: str
    address: str


@dataclass(frozen=True)
class Answer:
    """What came from one node; ``record`` is None where nothing did, and ``trouble`` says why."""

    node: str
    record: Record | None
    trouble: str = ""


def target(node: str, cluster_id: str, group: str, instance_id: str) -> Target:
    return Target(node, f"sagemaker-cluster:{cluster_id}_{group}-{instance_id}")


def check_nodes(targets: Sequence[Target], aws: Aws, root: str = "/", seconds: float = SECONDS) -> list[Answer]:
    """Look at all of them, side by side. Never raises for a node; raises Unknown without the plugin."""
    _installed(root)
    turn = _Turn()
    with ThreadPoolExecutor(max_workers=SIDE_BY_SIDE) as pool:
        return list(pool.map(lambda target: _check(target, aws, root, seconds, turn), targets[:MOST]))


def _installed(root: str) -> None:
    """Said once, before any session is started."""
    places = COMMANDS["session_manager_plugin"].candidates
    host = Host(root, env={})
    if not any(os.access(host.path(path), os.X_OK) for path in places):
        raise Unknown(f"session-manager-plugin is not installed: none of {', '.join(places)}, {SSM}")


class _Turn:
    """Keeps sessions apart in time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next = 0.0

    def wait(self) -> None:
        with self._lock:
            time.sleep(max(0.0, self._next - time.monotonic()))
            self._next = time.monotonic() + PAUSE


def _check(target: Target, aws: Aws, root: str, seconds: float, turn: _Turn) -> Answer:
    try:
        for attempt in range(2):
            turn.wait()
            printed, late = _session(target, aws, root, seconds)
            if attempt or late or "Cannot perform start session: EOF" not in printed:
                break
    except Unknown as why:
        return Answer(target.node, None, str(why))
    lines = "\n".join(line.strip() for line in printed.splitlines() if line.strip().startswith("{"))
    if not lines:
        return Answer(
            target.node, None, late or f"no record came, but: {clean(_last(printed), 120) or 'nothing'}, {SSM}"
        )
    record = records.parse(lines, target.node, "ssm")
    kept = tuple(_of_the_node(result) for result in record.results)
    return Answer(target.node, replace(record, results=kept, complete=record.complete and not late), late)


def _session(target: Target, aws: Aws, root: str, seconds: float) -> tuple[str, str]:
    """What the session printed, and why it was ended before its time, if it was."""
    request = {"Target": target.address, "DocumentName": DOCUMENT, "Parameters": {"command": [COMMAND]}}
    given = aws.read("ssm", "StartSession", **request)
    response = {name: given.get(name, "") for name in ("SessionId", "TokenValue", "StreamUrl")}
    host = Host(root, env=_environment(response), seconds=seconds)
    endpoint = os.environ.get("AWS_ENDPOINT_URL_SSM") or os.environ.get("AWS_ENDPOINT_URL", "")
    output = host.answer(
        "session_manager_plugin", RESPONSE, aws.region, "StartSession", "", json.dumps(request), endpoint
    )
    if output.late:
        try:
            aws.read("ssm", "TerminateSession", SessionId=response["SessionId"])
        except Unknown:  # it ends by itself later
            pass
    return f"{output.out}\n{output.err}", output.late


def _environment(response: Mapping[str, str]) -> dict[str, str]:
    return {RESPONSE: json.dumps(response)}


def _of_the_node(result: Result) -> Result:
    if result.probe not in OF_A_SHELL:
        return result
    return Result(result.probe, SKIP, "seen from a shell of SSM, which says nothing of jobs")


def _last(text: str) -> str:
    r"""The last line that is no greeting of the plugin's.

    >>> _last("Starting session with SessionId: x-0\nbash: hpslurm-check: command not found\n\nExiting session x-0\n")
    'bash: hpslurm-check: command not found'
    """
    lines = [line.strip() for line in text.splitlines()]
    kept = [line for line in lines if line and not line.startswith(("Starting session", "Exiting session"))]
    return kept[-1] if kept else ""
