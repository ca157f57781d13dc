"""docs/schema.json against what every command with --json prints, and what a hook leaves on disk."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from jsonschema import Draft202012Validator

from hpslurm import cli
from hpslurm.core import records
from hpslurm.core.finding import P0, Evidence, Finding, Rule, Suggestion
from hpslurm.core.policy import Policy
from hpslurm.core.probe import FAIL, Result
from hpslurm.job.hang import facts as hang_facts
from hpslurm.scan import diagnoses
from tests.fake import accounts, hanging
from tests.fake import nccl_tests as fake

ROOT = Path(__file__).parents[2]
SCHEMA = json.loads((ROOT / "docs/schema.json").read_text())
UUID = "GPU-12345678-1234-1234-1234-123456789abc"
LOST = Rule("gpu-lost", P0, "GPU lost", "debugging-guide.md § 7")
LOG = "NVRM: fallen off the bus and is not responding to commands.\nrank 3: some line\n"


def closed(part: Any) -> Any:
    """The schema with every object closed: a field that is not documented is then an error."""
    if isinstance(part, dict):
        part = {key: closed(value) for key, value in part.items()}
        if "properties" in part and "required" in part:
            part["additionalProperties"] = False
    return [closed(item) for item in part] if isinstance(part, list) else part


DEFS = closed(copy.deepcopy(SCHEMA["$defs"]))


def wrong(line: dict[str, Any]) -> list[str]:
    """What is not as documented, in words."""
    check = Draft202012Validator({"$ref": f"#/$defs/{line['type']}", "$defs": DEFS})
    return [f"{line['type']}: {'/'.join(map(str, one.path))}: {one.message}" for one in check.iter_errors(line)]


def hpslurm(*words: str, code: tuple[int, ...] = (0,)) -> list[dict[str, Any]]:
    env = {key: value for key, value in os.environ.items() if not key.startswith(("SLURM", "AWS"))}
    done = subprocess.run(
        [sys.executable, "-c", "from hpslurm.cli import main; main()", *words],
        env=env, cwd="/", capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode in code, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """A results folder with one record that has all parts of a finding."""
    lost = Finding(
        LOST, "1 GPU lost", (Evidence(f"GPU 3 ({UUID})", "lost"),), (Suggestion("look", "why", "dmesg"),), "n1"
    )
    for job, boot in (("1", "a"), ("2", "b")):
        writer = records.Writer(str(tmp_path / "results"), "n1", "epilog", job, os.getgid())
        policy = Policy(node="n1", instance="i-0123456789abcdef0")
        facts = {"uuids": [f"GPU 3 ({UUID})"]}
        for line in records.lines(
            policy, {"SLURM_JOB_ID": job}, "epilog", [Result("gpu_count", FAIL, facts=facts, findings=(lost,))]
        ):
            writer.write({**line, "boot": boot} if line["type"] == "run" else line)
        writer.close()
    return tmp_path / "results"


def of_check(tmp_path: Path, kept: Path) -> list[dict[str, Any]]:
    return hpslurm("check", "--json", "--root", str(ROOT / "tests/hosts/p5-healthy"), code=(0, 3))


def of_doctor(tmp_path: Path, kept: Path) -> list[dict[str, Any]]:
    policy = tmp_path / "policy.toml"
    policy.write_text("nonsense = 1\n")
    return hpslurm("doctor", "--json", "--policy", str(policy))


def of_scan(tmp_path: Path, kept: Path) -> list[dict[str, Any]]:
    log = tmp_path / "job.out"
    log.write_text(LOG)
    return hpslurm("scan", "--json", str(log))


def of_report(tmp_path: Path, kept: Path) -> list[dict[str, Any]]:
    return hpslurm("report", "1", "--json", "--results", str(kept))


def of_gpu(tmp_path: Path, kept: Path) -> list[dict[str, Any]]:
    return hpslurm("report", "--gpu", UUID, "--json", "--results", str(kept))


def of_diagnose(tmp_path: Path, kept: Path) -> list[dict[str, Any]]:
    return hpslurm("diagnose", "--json", "--no-aws", "--no-slurm", "--reports", str(kept / "nodes"))


def of_history(tmp_path: Path, kept: Path) -> list[dict[str, Any]]:
    root, results = accounts.month(tmp_path, time.time())
    lost = Finding(LOST, "GPU 2 gives no answer", (Evidence(f"NVML, GPU 2 ({UUID})", "lost"),))
    for node in accounts.NODES[:2]:  # the epilog keeps a line, and the GPU moved
        run = {"job": 1, "time": time.time() - 3600, "node": node, "instance": "", "exit_code": "1:0"}
        diagnoses.keep_of_node(str(results), run, node, [], [lost])
    words = ("--root", str(root), "--results", str(results), "--policy", "/nonexistent", "--no-aws", "--keep", "--json")
    lines = hpslurm("history", *words)
    for path in (*sorted((results / "diagnoses").rglob("*.jsonl")), results / "history.jsonl"):
        lines += [json.loads(line) for line in path.read_text().splitlines()]
    return lines


def of_bundle(tmp_path: Path, kept: Path) -> list[dict[str, Any]]:
    log = tmp_path / "job.out"
    log.write_text(LOG)
    words = ("bundle", "--json", "--no-aws", "--no-slurm", "--job", "1", "--results", str(kept), "--log", str(log))
    output = tmp_path / "b.tar.gz"
    (line,) = hpslurm(*words, "--output", str(output))
    with tarfile.open(output) as tar:
        manifest = json.load(tar.extractfile("b/manifest.json"))  # type: ignore[arg-type]
    assert manifest == line["manifest"]
    return [line, *hpslurm(*words, "--dry-run"), manifest, json.loads((tmp_path / "b.names.json").read_text())]


def of_judge(tmp_path: Path, kept: Path) -> list[dict[str, Any]]:
    run = tmp_path / "run.txt"
    run.write_text(fake.table({1 << 30: 100.0, 2 << 30: 443.7}))
    return hpslurm("nccl-tests", "judge", str(run), "--json", "--instance-type", "p5.48xlarge", code=(0, 3))


def of_what_if(tmp_path: Path, kept: Path) -> list[dict[str, Any]]:
    policy = tmp_path / "new.toml"
    policy.write_text('[[mutes]]\nrule = "memlock-*"\nreason = "known"\n')
    low = hpslurm("check", "--json", "--root", str(ROOT / "tests/hosts/p5-healthy"), code=(0, 3))
    for line in low:  # the same machine, as a policy with a higher threshold would have found it
        if line["type"] == "result" and line["probe"] == "memlock":
            line["facts"]["soft"] = 65536
        if line["type"] == "run":
            line["node"] = "n9"
    (kept / "nodes/n9.prolog.jsonl").write_text("".join(json.dumps(line) + "\n" for line in low))
    return hpslurm("what-if", "--json", "--policy", str(policy), "--records", str(kept))


def of_hang(tmp_path: Path, kept: Path) -> list[dict[str, Any]]:
    saved = tmp_path / "sample.jsonl"
    sample = hanging.made(16, "data", 1, 1, True, 0).sample
    saved.write_text("".join(records.encode(line) + "\n" for line in hang_facts.lines_of(sample)))
    again = tmp_path / "again.jsonl"
    printed = hpslurm("hang", "--from", str(saved), "--json", "--save", str(again), code=(3,))
    return [*printed, *map(json.loads, again.read_text().splitlines())]


def of_explain(tmp_path: Path, kept: Path) -> list[dict[str, Any]]:
    return [*hpslurm("explain", "79", "--json"), *hpslurm("explain", "--json")]


def of_hook(tmp_path: Path, kept: Path) -> list[dict[str, Any]]:
    host = str(ROOT / "tests/hosts/p5-healthy")
    words = ("--root", host, "--results", str(tmp_path / "new"), "--policy", "/nonexistent")
    env = {"SLURMD_NODENAME": "n1", "SLURM_JOB_ID": "7", "SLURM_JOB_EXIT_CODE2": "0:9"}
    done = subprocess.run([sys.executable, "-m", "hpslurm.hooks", "epilog", *words], env=env, cwd=ROOT, check=True)
    assert done.returncode == 0
    return [json.loads(line) for line in (tmp_path / "new/jobs/7/n1.epilog.jsonl").read_text().splitlines()]


OUTPUTS: dict[str, tuple[Callable[[Path, Path], list[dict[str, Any]]], set[str]]] = {
    "check": (of_check, {"run", "result", "end"}),
    "diagnose": (of_diagnose, {"run", "result", "end"}),
    "history": (
        of_history,
        {"run", "result", "finding", "node_history", "node_incident", "gpu_followed", "job_diagnosis", "end"},
    ),
    "bundle": (of_bundle, {"bundle", "manifest", "names"}),
    "doctor": (of_doctor, {"run", "result", "finding", "plan", "end"}),
    "scan": (of_scan, {"run", "event", "diagnosis", "end"}),
    "report": (of_report, {"run", "result", "finding", "plan", "end"}),
    "report --gpu": (of_gpu, {"gpu"}),
    "nccl-tests judge": (of_judge, {"bandwidth", "finding", "end"}),
    "what-if": (of_what_if, {"change"}),
    "hang": (of_hang, {"run", "hang", "diagnosis", "end", "hang_sample", "hang_node"}),
    "explain": (of_explain, {"explanation"}),
    "a hook": (of_hook, {"run", "result", "end"}),
}


@pytest.mark.parametrize("name", OUTPUTS)
def test_every_line_is_as_documented(name: str, tmp_path: Path, kept: Path) -> None:
    make, types = OUTPUTS[name]
    lines = make(tmp_path, kept)
    assert types <= {line["type"] for line in lines}
    assert [] == [one for line in lines for one in wrong(line)]
    whole = Draft202012Validator(SCHEMA)
    assert [] == [error.message for line in lines for error in whole.iter_errors(line)]


def with_json(command: click.Command, name: str) -> Iterator[str]:
    if any("--json" in option.opts for option in command.params):
        yield name
    for sub in getattr(command, "commands", {}).values():
        yield from with_json(sub, f"{name} {sub.name}")


def test_every_command_with_json_is_tried() -> None:
    context = click.Context(cli.group)
    found = {one for name in cli.COMMANDS for one in with_json(cli.group.get_command(context, name), name)}
    started = {"nccl-tests", "install"}  # a job, whose run prints what judge prints; a controller: test_install.py
    assert found - started == {name for name in OUTPUTS if name not in ("report --gpu", "a hook")}


def test_the_schema_is_one_and_says_what_each_field_of_a_line_may_be() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    assert [] != wrong({"schema": 1, "type": "end", "undocumented": 1})
    assert [] != wrong({"schema": 2, "type": "end"})
