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
