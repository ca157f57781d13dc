"""A job's life on real Slurm, from the check before it to the report after it."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.lab.lab import Lab

CONF = "PrologFlags=Alloc\nPrologEpilogTimeout=30\nPropagateResourceLimitsExcept=MEMLOCK\n"
CHECK = 'hpslurm-check --root "{lab}/hosts/$SLURMD_NODENAME" --policy {lab}/policy.toml'


@pytest.fixture
def sick_lab(make_lab: Callable[..., Lab]) -> Lab:
    """n1 healthy, n2 with half of its EFA devices, n3 with 64 KiB of locked memory; one shared folder."""
    lab = make_lab(nodes=3, hooks=("prolog", "epilog"), conf=CONF, machines={"n2": {"efa": 16}}, memlock={"n3": 65536})
    shared = Path(lab.path("shared"))
    shared.mkdir(exist_ok=True)
    text = f"results = '{lab.path('results')}'\nresults_shared = '{shared}'\n"
    Path(lab.path("policy.toml")).write_text(text)
    return lab


def check(lab: Lab, *words: str, srun: str = "-N3 --ntasks-per-node=1") -> list[str]:
    command = " ".join([CHECK.format(lab=lab.folder), *words])
    done = lab.run("srun", "--kill-on-bad-exit=0", *srun.split(), "bash", "-c", command)
    return [str(done.returncode), *done.stdout.splitlines()]


def report(lab: Lab, job: str, *words: str) -> tuple[int, str]:
    lab.wait_for_job(job)
    for node in lab.nodes:
        lab.wait_for_node(node, "IDLE", "IDLE+DRAIN")
    return report_at_once(lab, job, *words)


def report_at_once(lab: Lab, job: str, *words: str) -> tuple[int, str]:
    done = lab.run("hpslurm", "report", job, "-v", "--policy", lab.path("policy.toml"), *words)
    return done.returncode, done.stdout + done.stderr


def test_a_check_names_each_sick_node_and_a_healthy_one_is_one_line(sick_lab: Lab) -> None:
    code, *lines = check(sick_lab)
    assert "3" == code
    assert 1 == sum("efa-missing  n2" in line for line in lines)
    assert 1 == sum("memlock-default  n3" in line for line in lines)
    assert [True] == [line.startswith("[PASS] n1  ") for line in lines if "n1" in line]


def test_a_check_looks_once_per_node_however_many_tasks_run(sick_lab: Lab) -> None:
    _, *lines = check(sick_lab, srun="-N3 --ntasks-per-node=4")
    assert [True] == [line.startswith("[PASS] n1  ") for line in lines if "n1" in line]
    assert 1 == sum("memlock-default  n3" in line for line in lines)


def test_a_check_of_healthy_nodes_ends_well(sick_lab: Lab) -> None:
    code, *lines = check(sick_lab, srun="-w n1 -n1")
    assert "0" == code
    assert [True] == [line.startswith("[PASS] n1  ") for line in lines]


def test_strict_counts_what_could_not_be_checked(sick_lab: Lab) -> None:
    Path(sick_lab.host("n1"), "sys/devices/virtual/dmi/id/product_name").write_text("x9.huge\n")
    assert "0" == check(sick_lab, srun="-w n1 -n1")[0]
    assert "3" == check(sick_lab, "--strict", srun="-w n1 -n1")[0]


def test_json_of_three_nodes_is_three_whole_records(sick_lab: Lab) -> None:
    # a file for each node: srun passes long lines on in pieces, and may mix those of several nodes
    check(sick_lab, "--json", srun=f"-N3 --ntasks-per-node=1 --output={sick_lab.path('work/%t.jsonl')}")
    seen = []
    for task in range(3):
        parsed = [json.loads(line) for line in Path(sick_lab.path(f"work/{task}.jsonl")).read_text().splitlines()]
        seen += [line["node"] for line in parsed if line["type"] == "run"]
        assert "end" == parsed[-1]["type"]
        assert {1} == {line["schema"] for line in parsed}
    assert ["n1", "n2", "n3"] == sorted(seen)


def test_a_job_that_completed_on_healthy_nodes_is_one_line(sick_lab: Lab) -> None:
    job = sick_lab.submit("-w", "n1", "--wrap", "true")
    code, text = report(sick_lab, job)
    assert 0 == code
    assert 1 == len([line for line in text.splitlines() if not line.startswith(" ")])  # a narrow terminal breaks it
    assert "COMPLETED" in text
    assert "nothing found on its nodes" in " ".join(text.split())


def test_a_failed_job_is_reported_with_its_nodes_findings(sick_lab: Lab) -> None:
    job = sick_lab.submit("-N3", "--wrap", "exit 7")
    code, text = report(sick_lab, job, "--fail-on", "P0")
    assert 3 == code
    assert "FAILED" in text
    assert "exit code 7:0" in text
    assert "efa-missing  n2" in text
    assert "memlock-default  n3" in text


def test_a_cancelled_job_has_its_epilogs_records(sick_lab: Lab) -> None:
    job = sick_lab.submit("-N3", "--wrap", "srun sleep 600")
    sick_lab.wait_for_job(job, "RUNNING")
    sick_lab.run("scancel", job)
    _, text = report(sick_lab, job)
    assert "CANCELLED" in text
    assert "no record" not in text
    assert "efa-missing  n2" in text


def test_a_node_that_left_no_record_is_named(sick_lab: Lab) -> None:
    job = sick_lab.submit("-N3", "--wrap", "exit 1")
    report(sick_lab, job)
    for path in Path(sick_lab.path("shared"), "jobs", job).glob("n2.*"):
        path.unlink()
    _, text = report(sick_lab, job)
    assert "no record of the prolog: n2" in text
    assert "no record of the epilog: n2" in text


def test_a_job_that_slurm_has_forgotten_is_unknown_and_its_records_remain(sick_lab: Lab) -> None:
    job = sick_lab.submit("-N3", "--wrap", "exit 1")
    report(sick_lab, job)
    folder = Path(sick_lab.path("shared"), "jobs")
    (folder / job).rename(folder / "999999")
    code, text = report_at_once(sick_lab, "999999")
    assert 0 == code
    assert "state unknown" in text
    assert "efa-missing  n2" in text


def test_a_job_that_nobody_knows_is_an_error_that_says_what_to_do(sick_lab: Lab) -> None:
    code, text = report_at_once(sick_lab, "888888")
    assert 1 == code
    assert "888888" in text
    assert "--results" in text


def test_a_word_that_is_no_job_id_is_a_wrong_command_line(sick_lab: Lab) -> None:
    code, text = report_at_once(sick_lab, "4;reboot")
    assert 2 == code
    assert "not a job id" in text


def test_the_gate_drains_the_node_requeues_and_holds_the_batch_job(sick_lab: Lab) -> None:
    policy = Path(sick_lab.path("policy.toml"))
    policy.write_text(policy.read_text() + "gate = ['efa-missing', 'memlock-default']\n")
    job = sick_lab.submit("-w", "n2", "--wrap", "true")
    sick_lab.wait_for_node("n2", "IDLE+DRAIN")
    assert "Prolog error" in sick_lab.node_fields()["n2"]["Reason"]
    held = sick_lab.wait_for_job(job, "PENDING")
    assert ("0", "launch_failed_requeued_held") == (held["Priority"], held["Reason"])
    # n3's finding is configuration: named by the site, and not gated all the same
    assert 0 == sick_lab.run("srun", "-w", "n3", "-n1", "true").returncode
    assert "IDLE" == sick_lab.wait_for_node("n3", "IDLE")["State"]
    # diagnose knows better than "Prolog error", and what it suggests is taken by this Slurm and changes nothing else
    done = sick_lab.run("hpslurm", "diagnose", "--json", "--no-aws", "--policy", str(policy))
    lines = map(json.loads, done.stdout.splitlines())
    (gated,) = [line for line in lines if line.get("id") == "node-gated"]
    sick_lab.run(*shlex.split(gated["suggestions"][0]["command"].removeprefix("sudo ")), check=True)
    assert sick_lab.node_fields()["n2"]["Reason"].startswith("hpslurm: efa-missing")
    assert "IDLE+DRAIN" == sick_lab.node_fields()["n2"]["State"]
    # what the admin does then: the node comes back, the job is released and runs
    policy.write_text(policy.read_text().replace("gate =", "# gate ="))
    sick_lab.run("scontrol", "update", "nodename=n2", "state=resume", check=True)
    sick_lab.run("scontrol", "release", job, check=True)
    # Slurm lets a requeued job wait for two minutes
    sick_lab.run("scontrol", "update", f"jobid={job}", "starttime=now", check=True)
    assert "COMPLETED" == sick_lab.wait_for_job(job)["JobState"]


def test_the_gate_cancels_srun_and_says_so_to_the_user(sick_lab: Lab) -> None:
    policy = Path(sick_lab.path("policy.toml"))
    policy.write_text(policy.read_text() + "gate = ['efa-missing']\n")
    done = sick_lab.run("srun", "-w", "n2", "-n1", "true")
    assert 0 != done.returncode
    assert "Prolog failure on node n2" in done.stderr or "Prolog" in done.stderr


def test_all_nodes_are_one_answer_with_the_healthy_in_one_line(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(nodes=4, machines={"n2": {"efa": 16}})
    command = f"hpslurm check --all-nodes -v --policy '{lab.path('policy.toml')}' --root '{lab.folder}/hosts/{{node}}'"
    done = lab.run("salloc", "-N4", "--quiet", "bash", "-c", command)
    lines = done.stdout.splitlines()
    assert 3 == done.returncode, done.stderr
    assert 1 == sum("efa-missing  n2" in line for line in lines)
    assert 1 == sum(line.startswith("[PASS] n[1,3-4]") for line in lines)


def test_all_nodes_outside_an_allocation_says_what_to_do(lab: Lab) -> None:
    done = lab.run("hpslurm", "check", "--all-nodes", "--policy", lab.path("policy.toml"))
    assert 1 == done.returncode
    assert "salloc" in done.stderr


def test_all_nodes_name_the_odd_one_out_in_versions(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(nodes=3)
    release = Path(lab.host("n3"), "proc/sys/kernel/osrelease")
    text = release.read_text()
    release.unlink()
    release.write_text(text.replace("5.", "6.", 1) if text.startswith("5.") else f"5.4.0-{text}")
    places = ("--policy", lab.path("policy.toml"), "--root", f"{lab.folder}/hosts/{{node}}")
    done = lab.run("salloc", "-N3", "--quiet", "hpslurm", "check", "--all-nodes", *places)
    assert re.search(r"^n3 +P1 +versions-differ: ", done.stdout, re.M), done.stdout + done.stderr
    assert text.strip() in done.stdout


def test_an_array_and_a_heterogeneous_job_are_told_whole(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(
        nodes=2,
        hooks=("prolog", "epilog"),
        conf=CONF + "SchedulerParameters=bf_interval=1,bf_hetjob_immediate\n",
        machines={"n2": {"efa": 16}},
    )
    shared = Path(lab.path("shared"))
    shared.mkdir(exist_ok=True)
    Path(lab.path("policy.toml")).write_text(f"results = '{lab.path('results')}'\nresults_shared = '{shared}'\n")
    array = lab.submit(
        "-N1", "--array=0-2", "-o", lab.path("work/a-%A_%a"), "--wrap", "exit $((SLURM_ARRAY_TASK_ID == 1))"
    )
    for number in range(3):
        lab.wait_for_job(f"{array}_{number}")
    assert f"Job {array}_1 (wrap) of root: FAILED, the first that failed, 1 of 3 tasks" in report(lab, array)[1]

    script = lab.script("both.sh", "#!/bin/sh\nexit 3\n")
    het = lab.submit("-wn1", "-o", lab.path("work/h-%j"), ":", "-wn2", script)
    said = " ".join(report(lab, het)[1].split())
    assert f"Job {het} (both.sh) of root: FAILED, 2 components" in said
    assert "efa-missing n2" in said
    assert "no record of" not in said
