"""On real Slurm: the report names why a job ended, from its output and its nodes together."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.lab.lab import Lab

CONF = "PrologFlags=Alloc\nPrologEpilogTimeout=30\n"
NOBODY = 65534
OOM = (
    "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB. GPU 1 has a total capacity of "
    "79.10 GiB of which 12.31 GiB is free. Process 4242 has 66.78 GiB memory in use."
)


@pytest.fixture
def lab(make_lab: Callable[..., Lab]) -> Lab:
    lab = make_lab(nodes=2, hooks=("prolog", "epilog"), conf=CONF, settings={"LIMIT": "10"})
    Path(lab.path("shared")).mkdir(exist_ok=True)
    Path(lab.path("policy.toml")).write_text(f"results_shared = '{lab.path('shared')}'\n")
    return lab


def run_job(lab: Lab, script: str, *words: str, user: int | None = None) -> str:
    job = lab.submit("-N2", *words, lab.script("job.sh", f"#!/bin/sh\n{script}\n"), user=user)
    lab.wait_for_job(job)
    for node in lab.nodes:
        lab.wait_for_node(node, "IDLE")
    return job


def report(lab: Lab, job: str, *words: str) -> str:
    done = lab.run("hpslurm", "report", job, "--policy", lab.path("policy.toml"), "-v", *words)
    assert 0 == done.returncode, done.stderr
    return done.stdout


def events(lab: Lab, node: str, job: str) -> list[dict[str, object]]:
    text = Path(lab.results(node), f"jobs/{job}/{node}.epilog.jsonl").read_text()
    return [line for line in map(json.loads, text.splitlines()) if line["type"] == "event"]


def test_the_cause_the_rank_and_the_line_are_named(lab: Lab) -> None:
    job = run_job(lab, f"echo step 1 loss 2.0\necho '{OOM}' >&2\nexit 1", "--job-name=train", "--output=%x-%j.log")
    text = report(lab, job)
    assert "gpu_oom" in text
    assert "rank 1" in text
    assert f"train-{job}.log:2" in text


def test_the_first_node_alone_reads_the_output_and_leaves_its_events(lab: Lab) -> None:
    job = run_job(lab, f"echo '{OOM}'\nexit 1")
    assert "gpu_oom" in [line["cause"] for line in events(lab, "n1", job)]
    assert [] == events(lab, "n2", job)


def test_the_epilogs_events_answer_when_the_output_is_gone(lab: Lab) -> None:
    job = run_job(lab, f"echo '{OOM}'\nexit 1", "--output=gone-%j.log")
    Path(lab.path(f"work/gone-{job}.log")).unlink()
    text = report(lab, job)
    assert "gpu_oom" in text
    assert "gone-" in text


def test_the_json_has_one_diagnosis(lab: Lab) -> None:
    job = run_job(lab, f"echo '{OOM}'\nexit 1")
    lines = [json.loads(line) for line in report(lab, job, "--json").splitlines()]
    assert [("gpu_oom", 1)] == [
        (line["cause"], line["culprit"]["rank"]) for line in lines if line["type"] == "diagnosis"
    ]
    assert "end" == lines[-1]["type"]


def test_one_policy_line_keeps_the_epilog_away_from_the_output(lab: Lab) -> None:
    policy = Path(lab.path("policy.toml"))
    policy.write_text(policy.read_text() + "scan_job_output = false\n")
    job = run_job(lab, f"echo '{OOM}'\nexit 1")
    assert [] == events(lab, "n1", job)


def test_a_user_who_points_the_output_at_a_secret_gets_nothing_of_it(lab: Lab) -> None:
    work = Path(lab.path("work"))
    os.chmod(work, 0o777)
    secret = Path(lab.path("secret"))
    secret.write_text(f"hidden word\n{OOM}\n")
    os.chmod(secret, 0o600)
    link = work / "out.log"
    job = run_job(
        lab, f"rm -f {link}; ln -s {secret} {link}; exit 1", f"--output={link}", "--error=/dev/null", user=NOBODY
    )
    told = report(lab, job) + lab.log("hooks.log") + str(events(lab, "n1", job))
    assert "hidden word" not in told
    assert "gpu_oom" not in told
    assert str(link) in told


def test_the_jobs_own_user_may_ask(lab: Lab) -> None:
    os.chmod(lab.path("work"), 0o777)
    job = run_job(lab, f"echo '{OOM}'\nexit 1", user=NOBODY)
    try:
        done = lab.run("hpslurm", "report", job, "--policy", lab.path("policy.toml"), user=NOBODY)
    except PermissionError:
        pytest.skip("this Python lies in a folder that other users may not enter")
    assert 0 == done.returncode, done.stderr
    assert "gpu_oom" in done.stdout


def test_files_of_the_tasks_are_found_and_the_failing_one_is_named(lab: Lab) -> None:
    lines = f"if [ $SLURM_PROCID = 1 ]; then echo '{OOM}'; exit 1; fi\necho step 1 loss 2.0\n"
    task = lab.script("task.sh", f"#!/bin/sh\n{lines}")
    job = run_job(lab, f"srun -n2 -N2 -o task-%j-%t.out {task}\nexit 1")
    text = report(lab, job)
    assert "gpu_oom" in text
    assert "rank 1" in text
    assert f"task-{job}-1.out" in text


def test_a_report_from_inside_the_batch_script_reads_what_there_is(lab: Lab) -> None:
    policy = lab.path("policy.toml")
    job = run_job(lab, f"echo '{OOM}'\nhpslurm report -v $SLURM_JOB_ID --policy {policy} > inside.txt 2>&1\nexit 1")
    inside = Path(lab.path("work/inside.txt")).read_text()
    assert "gpu_oom" in inside, job
    assert "what follows is what there is so far" in inside
    assert "Cause found: gpu_oom" in inside
