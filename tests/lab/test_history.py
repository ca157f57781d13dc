"""``history`` with a real slurmdbd and MariaDB: real jobs, a node that really went down, and what report found out."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.lab import accounting
from tests.lab.lab import Lab

PROGRAM = (sys.executable, "-c", "from hpslurm.cli import main; main()")
LOG = "n2: NVRM: GPU at PCI:0000:b9:00: fallen off the bus and is not responding to commands."


def hpslurm(lab: Lab, *words: str) -> str:
    done = lab.run(*PROGRAM, *words)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(bool(accounting.missing()), reason="needs slurmdbd and MariaDB (`make test` as root installs them)")
def test_real_accounting_tells_of_jobs_and_nodes(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(nodes=3, keeps_accounts=True, conf="MinJobAge=2\n")
    results = lab.path("shared")
    named = lab.submit("-N3", "-J", "a|b\nc", "--wrap", f"echo '{LOG}'; exit 3")
    crashed = lab.submit("-w", "n3", "--wrap", "kill -SEGV $$")
    lost = lab.submit("-w", "n1", "--no-requeue", "--wrap", "sleep 60")
    script = lab.script("train.sbatch", "#!/bin/sh\nexit 1\n")
    submitted = lab.submit("-w", "n2", script, "--lr", "1e-4")
    lab.wait_for_job(lost, "RUNNING")
    lab.wait_for_job(named)  # or it would be requeued when its node goes
    lab.run("scontrol", "update", "nodename=n1", "state=down", "reason=it is | gone", check=True)
    hpslurm(lab, "report", named, "--results", results)  # root, so it is kept
    wait_for_accounts(lab, 4)
    lines = [
        json.loads(line) for line in hpslurm(lab, "history", "--no-aws", "--json", "--results", results).splitlines()
    ]
    nodes = {line["node"]: line for line in lines if line["type"] == "node_history"}
    assert {"NODE_FAIL": 1} == nodes["n1"]["causes"]
    assert 1 == nodes["n1"]["named"]
    assert {"ended by signal 11": 1} == nodes["n3"]["causes"]
    assert [int(crashed)] == nodes["n3"]["job_ids"]
    assert [] == [line for line in lines if line["type"] == "result" and line["outcome"] == "unknown"]
    assert any("it is | gone" in trace["text"] for trace in nodes["n1"]["evidence"])
    kept = Path(results, "diagnoses").glob("*.jsonl")
    assert [int(named)] == [json.loads(line)["job"] for path in kept for line in path.read_text().splitlines()]
    # the controller forgets it after two seconds; the reader of the accounting still knows how it ended
    wait(lambda: "Invalid job id" in lab.run("scontrol", "show", "job", crashed).stderr)
    known = lab.run(sys.executable, "-c", ASK.format(crashed)).stdout
    assert "FAILED 0 11 n3 sacct" == known.strip()
    wait(lambda: "Invalid job id" in lab.run("scontrol", "show", "job", submitted).stderr)
    told = hpslurm(lab, "report", submitted, "--results", results)
    again = f"sbatch --parsable -w n2 {script} --lr 1e-4"
    assert [f"Again     {again}"] == [line for line in told.splitlines() if line.startswith("Again")]
    lab.run("bash", "-c", again, check=True)


ASK = """
from hpslurm.sources import slurm
from hpslurm.sources.host import Host
job = slurm.job(Host(), "{}")
print(job.state, job.exit_code, job.exit_signal, job.nodes, job.source)
"""


def wait_for_accounts(lab: Lab, count: int) -> None:
    """slurmctld hands jobs on to slurmdbd a moment after their end."""
    words = ("sacct", "-a", "-X", "-n", "-P", "--format=State,End", "--starttime=2020-01-01")
    wait(lambda: sum("Unknown" not in line for line in lab.run(*words).stdout.splitlines()) >= count)


def wait(there: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not there():
        assert time.monotonic() < end
        time.sleep(0.2)
