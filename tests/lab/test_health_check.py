"""The health check on real Slurm: a fresh record without a job, and never two looks at once."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path

from tests.lab.lab import CHECKOUT, Lab, wait_until

EXAMPLE = Path(CHECKOUT, "slurm.conf.example").read_text()
OFTEN = "HealthCheckInterval=1\nHealthCheckNodeState=ANY\n"


def record(lab: Lab, node: str) -> Path:
    return Path(lab.results(node), f"nodes/{node}.health.jsonl")


def test_the_examples_lines_are_taken_and_leave_a_record_without_a_job(make_lab: Callable[..., Lab]) -> None:
    lines = re.findall(r"^#(HealthCheck(?:Interval|NodeState)=.*)$", EXAMPLE, re.M)
    assert 2 == len(lines)
    lab = make_lab(nodes=1, hooks=("healthcheck",), conf="\n".join(lines), machines={"n1": {"efa": 16}})
    wait_until(lambda: record(lab, "n1").exists(), "the record is there")  # slurmd looks once when it starts
    parsed = [json.loads(line) for line in record(lab, "n1").read_text().splitlines()]
    assert ("health", "n1", None) == tuple(parsed[0][key] for key in ("hook", "node", "job"))
    assert "efa-missing" in [line["id"] for line in parsed if line["type"] == "finding"]
    fields = lab.node_fields()["n1"]
    assert ("IDLE", False) == (fields["State"], "Reason" in fields)
    shown = lab.run("scontrol", "show", "config").stdout
    assert re.search(r"^HealthCheckInterval\s*= 300 sec$", shown, re.M)
    assert re.search(r"^HealthCheckNodeState\s*= (ANY,CYCLE|CYCLE.*)$", shown, re.M)


def test_looks_that_hang_do_not_pile_up_and_the_sites_own_check_goes_on(make_lab: Callable[..., Lab]) -> None:
    # a Python that is out of reach for SIGKILL, as one on a dead network mount: the lock stays with it
    lab = make_lab(
        nodes=1,
        hooks=("healthcheck",),
        conf=OFTEN,
        settings={
            "PYTHON": "@LAB@/work/python",
            "LIMIT": "1",
            "NEXT": "(/bin/sh -c 'echo $SLURMD_NODENAME >>@LAB@/work/site')",
        },
    )
    python = Path(lab.path("work/python"))
    looks, site = Path(lab.path("work/looks")), Path(lab.path("work/site"))
    # the output closes only behind setsid: until then Slurm would end it with the hook's process group
    away = "exec setsid sh -c 'exec sleep 600 >/dev/null 2>&1'"
    python.with_suffix(".new").write_text(f"#!/bin/sh\necho look >>{looks}\n{away}\n")
    python.with_suffix(".new").chmod(0o755)
    python.with_suffix(".new").rename(python)
    began = time.monotonic()
    wait_until(looks.exists, "the first look began")
    count = len(site.read_text().splitlines()) if site.exists() else 0
    wait_until(
        lambda: site.exists() and len(site.read_text().splitlines()) >= count + 4, "four more looks of the site's own"
    )
    print(f"{time.monotonic() - began:.0f} s: {looks.read_text().count('look')} looks")
    assert 1 == looks.read_text().count("look")
    assert "left out: the one before still runs" in lab.log("hooks.log")
    assert {"n1"} == set(site.read_text().split())
    assert "IDLE" == lab.node_fields()["n1"]["State"]
