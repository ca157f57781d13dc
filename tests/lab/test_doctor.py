"""doctor on a real Slurm: silent where all is right, and right about what drains a node."""

from __future__ import annotations

import json
import os
from collections.abc import Callable

from tests.lab.lab import Lab

OF_THE_CHECKOUT = {"bytecode-missing", "install-owner"}


def findings(lab: Lab, *words: str) -> tuple[int, set[str]]:
    done = lab.run("hpslurm", "doctor", "--policy", lab.path("policy.toml"), "--json", *words)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    outcomes = {line["probe"]: line["outcome"] for line in lines if line["type"] == "result"}
    assert "unknown" not in outcomes.values(), lines
    return done.returncode, {line["id"] for line in lines if line["type"] == "finding"} - OF_THE_CHECKOUT


def test_what_doctor_calls_a_drain_is_one(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(nodes=1, hooks=("prolog", "epilog"), policy='results = "@LAB@/results/n1"\n')
    assert (0, set()) == findings(lab)

    script = lab.path("etc", "prolog.d", "hpslurm.sh")
    with open(os.path.join(os.path.dirname(script), "README"), "w") as file:
        file.write("a note\n")
    assert (0, {"hook-folder-shared"}) == findings(lab)
    lab.run("srun", "-N1", "true", check=True)  # the line names the script, so the note is not run

    with open(lab.conf) as file:
        conf = file.read()
    with open(lab.conf, "w") as file:
        file.write(conf.replace(f"Prolog={script}", f"Prolog={os.path.dirname(script)}/*"))
    lab.run("scontrol", "reconfigure", check=True)
    assert (3, {"hook-folder-shared", "hook-not-executable"}) == findings(lab)
    job = lab.submit("-N1", "--wrap", "true")
    assert "DRAIN" in lab.wait_for_node("n1", "IDLE+DRAIN", "IDLE+COMPLETING+DRAIN")["State"], job


def test_a_text_for_people_says_what_was_looked_at(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(nodes=1, conf="PrologEpilogTimeout=4", hooks=("prolog",), policy='results = "@LAB@/results/n1"\n')
    done = lab.run("hpslurm", "doctor", "-v", "--policy", lab.path("policy.toml"))
    assert done.returncode == 3
    assert "[FAIL] P0 hook-timeout-short  " in done.stdout
    assert "[PASS] policy, records and versions" in done.stdout


def test_many_nodes_are_one_answer_and_under_srun_each_line_names_its_node(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(nodes=3, hooks=("prolog",), policy='results = "@LAB@/results/n1"\n')
    os.chmod(lab.path("etc", "prolog.d", "hpslurm.sh"), 0o775)
    policy = ("--policy", lab.path("policy.toml"))

    done = lab.run("salloc", "-Q", "-N3", "hpslurm", "doctor", "--all-nodes", *policy, "--fail-on", "P1")
    assert 3 == done.returncode, done.stderr
    rows = [line for line in done.stdout.splitlines() if "hook-owner" in line and not line.startswith("Worst")]
    assert ["n[1-3]"] == [row.split()[0] for row in rows if row.startswith("n")], done.stdout
    assert "More: hpslurm doctor --all-nodes -v" in done.stdout

    done = lab.run("salloc", "-Q", "-N3", "hpslurm", "doctor", "--all-nodes", "--json", *policy)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert {"n1", "n2", "n3"} == {line["subject"] for line in lines if line.get("id") == "hook-owner"}

    done = lab.run("srun", "-N3", "--ntasks-per-node=2", "--overcommit", "hpslurm", "doctor", *policy)
    told = [line for line in done.stdout.splitlines() if "hook-owner  " in line and line.startswith("[FAIL]")]
    assert ["n1", "n2", "n3"] == sorted(line.split("hook-owner  ")[1].split()[0] for line in told), done.stdout
    assert ["n1:", "n2:", "n3:"] == sorted(line.split()[0] for line in done.stdout.splitlines() if line[:1] == "n")


def test_all_nodes_outside_an_allocation_says_what_to_do(lab: Lab) -> None:
    done = lab.run("hpslurm", "doctor", "--all-nodes", "--policy", lab.path("policy.toml"))
    assert 1 == done.returncode
    assert "salloc" in done.stderr
