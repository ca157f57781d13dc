"""``hpslurm history`` on saved accounting and real records."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from hpslurm.cli import history
from hpslurm.core import records
from hpslurm.core.policy import Policy
from tests.fake import accounts
from tests.fake.accounts import SICK, stamp

DAY = accounts.DAY
NOW = time.time()
DOWN = "#!/bin/sh\necho 'Slurm accounting storage is disabled' >&2\nexit 1\n"


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    accounts.month(tmp_path, NOW)
    return tmp_path


def run(cluster: Path, *words: str) -> Result:
    where = ("--root", f"{cluster}/root", "--results", f"{cluster}/results", "--policy", "/nonexistent", "--no-aws")
    return CliRunner().invoke(history.command, [*where, *words])


def test_the_worst_node_stands_first_with_numbers_evidence_and_a_plan(cluster: Path) -> None:
    done = run(cluster)
    assert 0 == done.exit_code
    text = " ".join(done.output.split())
    assert f"Suspects: {SICK} fail far more than their share. Keep jobs off: --exclude={SICK}" in text
    assert "5 name it; 5 × gpu_fell_off_bus; 1 × DRAIN" in text
    harms = [text.index(words) for words in ("history --node", "--find-slow", "state=drain", "Action:Replace")]
    assert sorted(harms) == harms
    assert "suspects: 1" in text


def test_one_line_for_sbatch(cluster: Path) -> None:
    assert f"--exclude={SICK}\n" == run(cluster, "--exclude").output
    assert "" == run(cluster, "--exclude", "--user", "u4").output


def test_the_story_of_a_node_is_in_order_of_time(cluster: Path) -> None:
    lines = run(cluster, "--node", SICK).output.splitlines()
    times = [line.split("  ")[1] for line in lines if line.startswith("  20")]
    assert sorted(times) == times
    assert 6 == len(times)
    assert any("names this node" in line for line in lines)
    assert any("DRAIN until" in line and "looks | bad" in line for line in lines)


def test_a_node_that_nobody_knows_is_a_mistake_and_a_near_one_is_named(cluster: Path) -> None:
    done = run(cluster, "--node", "ip-10-1-0-77")
    assert 2 == done.exit_code
    assert f"Did you mean {SICK!r}?" in done.output


def test_json_has_a_line_for_each_machine(cluster: Path) -> None:
    lines = [json.loads(line) for line in run(cluster, "--json").output.splitlines()]
    machines = {line["node"]: line for line in lines if line["type"] == "node_history"}
    assert 12 == len(machines)
    assert ("suspect", 5, {"gpu_fell_off_bus": 5}) == tuple(
        machines[SICK][key] for key in ("verdict", "named", "causes")
    )
    assert ["node-keeps-failing"] == [line["id"] for line in lines if line["type"] == "finding"]
    assert "{nodes}" not in json.dumps(machines)


def test_a_page_for_the_browser(cluster: Path) -> None:
    assert 0 == run(cluster, "--html", f"{cluster}/page.html").exit_code
    page = (cluster / "page.html").read_text()
    assert SICK in page
    assert "node-keeps-failing" in page


def test_only_the_jobs_that_are_asked_for(cluster: Path) -> None:
    assert "246 jobs on 12 nodes" in run(cluster).output
    assert "12 jobs on 12 nodes" in run(cluster, "--user", "u4").output
    assert "0 jobs on 0 nodes" in run(cluster, "--partition", "none").output
    assert "60 jobs on 12 nodes" in run(cluster, "--since", "132h").output


def test_a_replaced_machine_takes_its_history_with_it(cluster: Path) -> None:
    for job, instance, days in (("900", "i-0aaa", 20.5), ("901", "i-0bbb", 0.5)):
        policy = Policy(node=SICK, instance=instance)
        writer = records.Writer(f"{cluster}/results", SICK, "epilog", job)
        for line in records.lines(policy, {"SLURM_JOB_ID": job}, "epilog", []):
            writer.write({**line, "time": NOW - days * DAY} if line["type"] == "run" else line)
        writer.close()
    done = run(cluster)
    assert "this machine was replaced" in " ".join(done.output.split())
    assert f"{SICK} (i-0aaa)" in done.output
    assert "" == run(cluster, "--exclude").output


def test_a_node_that_is_gone_and_events_of_another_cluster_of_the_same_slurmdbd_are_left_out(
    cluster: Path, write: Callable[..., Path]
) -> None:
    nodes = "".join(f"NodeName={node} Arch=x86_64\n   State=IDLE\n\n" for node in accounts.NODES if node != SICK)
    (cluster / "nodes").write_text(nodes)
    old = "echo 'unrecognized option' >&2; exit 1"
    cases = f'*--json*) {old};; *config*) echo "ClusterName = other";; *) cat {cluster}/nodes;;'
    write("root/usr/bin/scontrol", f'#!/bin/sh\ncase "$*" in {cases} esac\n', 0o755)
    text = " ".join(run(cluster).output.split())
    assert "Slurm has no such node now" in text
    assert "suspects: 0" in text
    assert "DRAIN" not in text
    assert "" == run(cluster, "--exclude").output


def test_without_an_accounting_the_epilogs_records_do(cluster: Path, write: Callable[..., Path]) -> None:
    write("root/usr/bin/sacct", DOWN, 0o755)
    for job in range(1, 4):
        writer = records.Writer(f"{cluster}/results", "n1", "epilog", str(job))
        env = {"SLURM_JOB_ID": str(job), "SLURM_JOB_EXIT_CODE2": "0:11"}
        for line in records.lines(Policy(node="n1"), env, "epilog", []):
            writer.write(line)
        writer.close()
    done = run(cluster)
    text = " ".join(done.output.split())
    assert 0 == done.exit_code
    assert "3 jobs on 1 nodes" in text
    assert "the epilogs' records" in text
    assert "sacct not checked: no accounting here" in text
    assert "Too few jobs to accuse a node" in text


def test_where_nothing_can_be_read_it_says_why(tmp_path: Path) -> None:
    done = run(tmp_path)
    assert 1 == done.exit_code
    assert "sacct is not installed" in done.output


def test_hostile_reasons_and_names_stay_text(cluster: Path, write: Callable[..., Path]) -> None:
    event = f"lab|{SICK}|{stamp(NOW - DAY)}|Unknown|DOWN|root(0)|\\033[31mred; $(reboot)"
    write("root/usr/bin/sacctmgr", f"#!/bin/sh\nprintf '{event}\\n'\n", 0o755)
    output = run(cluster, "--node", SICK).output
    assert "\x1b" not in output
    assert "[31mred; $(reboot)" in output


@pytest.mark.skipif(os.geteuid() != 0, reason="records of root")
def test_verdicts_are_kept_for_diagnose_and_metrics_when_asked(cluster: Path) -> None:
    run(cluster)
    assert not (cluster / "results/history.jsonl").exists()
    assert 0 == run(cluster, "--keep").exit_code
    head, *lines = [json.loads(line) for line in (cluster / "results/history.jsonl").read_text().splitlines()]
    assert ("run", "history") == (head["type"], head["hook"])
    assert 0o644 == (cluster / "results/history.jsonl").stat().st_mode & 0o777
    assert [SICK] == [line["node"] for line in lines if line["verdict"] == "suspect"]
