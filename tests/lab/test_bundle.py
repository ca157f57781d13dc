"""On real Slurm, with AWS beside it: a failed job becomes a bundle that an engineer can work with."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.aws_server import serve
from tests.lab.lab import Lab

NOBODY = 65534
LOG = """\
ip-10-1-0-1:1841:1841 [0] NCCL INFO Bootstrap : Using ens5:10.1.0.1<0>
ip-10-1-0-1:1841:1841 [0] NCCL INFO NCCL_SOCKET_IFNAME set by environment to ens5
ip-10-1-0-2:1841:1902 [3] ofi_process_cq:1010 NCCL WARN NET/OFI Request completed with error. RC: 113. Error: 12
ip-10-1-0-2:1841:1902 [3] NCCL WARN Cuda failure 'out of memory'
[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB. GPU 1 has a total capacity of 79 GiB
srun: error: ip-10-1-0-2: task 3: Exited with exit code 1
"""


@pytest.fixture
def lab(make_lab: Callable[..., Lab]) -> Lab:
    return make_lab(
        nodes=3,
        prefix="ip-10-1-0-",
        hooks=("prolog", "epilog"),
        conf="PrologFlags=Alloc\nPrologEpilogTimeout=30\n",
        settings={"LIMIT": "10"},
    )


def failed(lab: Lab) -> str:
    """A job of user nobody on two nodes that printed LOG and failed."""
    lab.run("scontrol", "update", "nodename=ip-10-1-0-3", "state=drain", "reason=action:reboot", check=True)
    text = lab.script("log.txt", LOG)
    job = lab.submit("-N2", "--job-name=llama", "--wrap", f"cat {text}; exit 1", user=NOBODY)
    lab.wait_for_job(job)
    for node in lab.nodes[:2]:
        lab.wait_for_node(node, "IDLE")
    return job


def bundle(lab: Lab, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    words = ("--results", lab.results("ip-10-1-0-1"), "--output", lab.path("work/b.tar.gz"), *words)
    return lab.run("hpslurm", "bundle", *words, env=env)


def unpacked(lab: Lab) -> dict[str, str]:
    folder = lab.path("work")
    subprocess.run(["tar", "xzf", "b.tar.gz"], cwd=folder, check=True)
    top = Path(folder, "b")
    subprocess.run(["sha256sum", "--quiet", "-c", "SHA256SUMS"], cwd=top, check=True)
    return {str(path.relative_to(top)): path.read_text() for path in top.rglob("*") if path.is_file()}


def test_a_failed_job_becomes_a_case(lab: Lab) -> None:
    os.chmod(lab.path("work"), 0o777)
    job = failed(lab)
    with serve("sick") as server:
        done = bundle(lab, "--job", job, "--cluster", "demo", **server.environ)
    assert 0 == done.returncode, done.stderr
    assert "" == done.stderr
    files = unpacked(lab)
    case = files["case.txt"]
    assert "not known" not in case
    assert "arn:aws:sagemaker:us-west-2:000000000001:cluster/" in case
    assert f"{job} (llama) of nobody: FAILED" in case
    assert "by Slurm's record of the job" in case
    assert "  ip-198-18-0-2 = i-00000000000000003: named by the logs (gpu_oom)" in case
    assert "  ip-198-18-0-1 = i-00000000000000002: ran the job" in case
    assert f"logs/slurm-{job}.out:5: {LOG.splitlines()[4]}" in files["errors.txt"].splitlines()
    assert "action-reboot-misspelt" in files["findings.txt"]
    assert "NodeName=ip-198-18-0-1" in files["slurm/nodes.txt"]
    assert f"JobId={job}" in files["slurm/job.txt"]
    assert f"records/jobs/{job}/ip-198-18-0-1.epilog.jsonl" in files
    hidden = ("ip-10-1-0", "10.1.0.", "123456789012")
    assert [] == [(name, one) for name, text in files.items() for one in hidden if one in name + text]
    told = [json.loads(line) for line in files[f"report-{job}.jsonl"].splitlines()]
    assert ["gpu_oom"] == [line["cause"] for line in told if line["type"] == "diagnosis"]


def test_a_controller_that_is_down_is_named_and_the_log_is_still_there(lab: Lab) -> None:
    os.chmod(lab.path("work"), 0o777)
    Path(lab.path("work/job.out")).write_text(LOG)
    done = bundle(lab, "--no-aws", "--log", lab.path("work/job.out"), SLURM_CONF=lab.path("etc/none.conf"))
    assert 0 == done.returncode, done.stderr
    assert "which does not exist; unset it" in done.stderr
    files = unpacked(lab)
    assert "logs/job.out" in files
    assert "Slurm controller:   not known; to find it: scontrol ping" in files["case.txt"]
