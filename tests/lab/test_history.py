"""``history`` with a real slurmdbd and MariaDB: real jobs, a node that really went down, and what report found out."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.lab import accounting
from tests.lab.lab import Lab, LabError

PROGRAM = (sys.executable, "-c", "from hpslurm.cli import main; main()")
LOG = "n2: NVRM: GPU at PCI:0000:b9:00: fallen off the bus and is not responding to commands."


def hpslurm(lab: Lab, *words: str) -> str:
    done = lab.run(*PROGRAM, *words)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(bool(accounting.missing()), reason="needs slurmdbd and MariaDB (`make test` as root installs them)")
def test_real_accounting_tells_of_jobs_and_nodes(make_lab: Callable[..., Lab]) -> None:
    lab = with_accounts(make_lab, nodes=3, conf="MinJobAge=2\n")
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


@pytest.mark.skipif(bool(accounting.missing()), reason="needs slurmdbd and MariaDB (`make test` as root installs them)")
def test_arrays_and_heterogeneous_jobs_are_told_whole_after_the_controller_forgot_them(
    make_lab: Callable[..., Lab],
) -> None:
    conf = "MinJobAge=2\nSchedulerParameters=bf_interval=1,bf_hetjob_immediate\n"
    lab = with_accounts(make_lab, nodes=2, conf=conf)
    task = "exit $((2 * (SLURM_ARRAY_TASK_ID == 1)))"
    array = lab.submit("-N1", "--array=0-2", "-o", lab.path("work/a-%A_%a"), "--wrap", task)
    script = Path(lab.path("work/het.sh"))
    script.write_text(
        "#!/bin/bash\n#SBATCH -w n1\n#SBATCH hetjob\n#SBATCH -w n2\nsrun true\nsrun --het-group=1 sh -c 'exit 3'\n"
    )
    both = lab.submit("-o", lab.path("work/het.out"), str(script))
    lab.wait_for_job(both, seconds=60)
    wait_for_accounts(lab, 5)
    for job in (array, both):
        wait(lambda job=job: "Invalid job id" in lab.run("scontrol", "show", "job", job).stderr)
    asked = ["report", "-v", "--results", lab.path("none")]
    told = {name: hpslurm(lab, *asked, name) for name in (array, f"{array}_2", f"{array}_1", both, f"{both}+1")}
    assert "the first that failed, 1 of 3 tasks" in told[array]
    assert "COMPLETED" in told[f"{array}_2"]
    assert "FAILED" in told[f"{array}_1"] and "exit code 2" in told[f"{array}_1"]
    assert "2 components" in told[both] and "n[1-2]" in told[both]
    assert "n2" in told[f"{both}+1"] and "n1" not in told[f"{both}+1"]


ASK = """
from hpslurm.sources import slurm
from hpslurm.sources.host import Host
job = slurm.job(Host(), "{}")
print(job.state, job.exit_code, job.exit_signal, job.nodes, job.source)
"""


def with_accounts(make_lab: Callable[..., Lab], **settings: object) -> Lab:
    """A lab with slurmdbd; skips where the distribution's slurmdbd ends at its own MariaDB (24.11.5 at 11.8.9)."""
    try:
        return make_lab(keeps_accounts=True, **settings)
    except LabError as error:
        if "_check_mysql_concat_is_sane" in str(error):
            pytest.skip("this slurmdbd cannot work with this MariaDB: it ends with error 5027 of its own query")
        raise


def wait_for_accounts(lab: Lab, count: int) -> None:
    """slurmctld hands jobs on to slurmdbd a moment after their end."""
    words = ("sacct", "-a", "-X", "-n", "-P", "--format=State,End", "--starttime=2020-01-01")
    wait(lambda: sum("Unknown" not in line for line in lab.run(*words).stdout.splitlines()) >= count)


def wait(there: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not there():
        assert time.monotonic() < end
        time.sleep(0.2)
