"""Sessions through SSM, with a stand-in for the plugin and the local server for AWS."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hpslurm.core import records
from hpslurm.core.finding import P0, Rule
from hpslurm.core.policy import Policy
from hpslurm.core.probe import Result, Unknown
from hpslurm.sources import sessions
from hpslurm.sources.aws import Aws
from tests.aws_server import serve
from tests.cluster.aws.test_checks import scenario

PROGRAM = (sys.executable, "-c", "from hpslurm.cli import main; main()", "diagnose")
BAD = Rule("efa-missing", P0, "EFA devices missing", "debugging-guide.md § 6")
NODES = {f"ip-10-1-0-{n}": f"i-0000000000000000{n + 2}" for n in range(1, 5)}  # as the scenario healthy has them


@pytest.fixture(autouse=True)
def no_pause(monkeypatch):
    monkeypatch.setattr(sessions, "PAUSE", 0.0)


@pytest.fixture
def machine(tmp_path):
    """A machine with the plugin; call it with what each instance prints."""
    place = tmp_path / "usr/local/bin"
    (place / "sessions").mkdir(parents=True)
    shutil.copy(Path(__file__).with_name("session_manager_plugin.py"), place / "session-manager-plugin")

    def prints(**by_node):
        for name, text in by_node.items():
            (place / "sessions" / f"{NODES[name.replace('_', '-')]}.txt").write_text(text)
        return str(tmp_path)

    return prints


def record(*results, node="ip-10-1-0-1"):
    """What ``hpslurm-check --json`` prints there."""
    results = results or (Result("efa", "fail", findings=(BAD.found("31 of 32"),)),)
    lines = records.lines(Policy(node=node, instance=NODES[node]), {}, "check", results)
    return "".join(records.encode(line) + "\n" for line in lines)


def look(root, *nodes, seconds=20.0):
    targets = [sessions.target(node, "abcdefghijkl", "worker-group-1", NODES[node]) for node in nodes]
    with serve(scenario("healthy", sessions=True)) as server:
        answers = sessions.check_nodes(targets, Aws("us-west-2", sessions=True), root, seconds)
    return answers, server


def test_the_target_has_the_id_of_the_cluster_the_group_and_the_instance():
    one = sessions.target("ip-10-1-0-1", "abcdefghijkl", "worker-group-1", "i-0123456789abcdef0")
    assert "sagemaker-cluster:abcdefghijkl_worker-group-1-i-0123456789abcdef0" == one.address


def test_a_record_comes_back_whole(machine):
    (answer,), _ = look(machine(ip_10_1_0_1=record()), "ip-10-1-0-1")
    assert ("", True, "efa-missing") == (answer.trouble, answer.record.complete, answer.record.findings[0].rule.id)


def test_what_a_shell_of_ssm_sees_of_itself_is_not_told_of_jobs(machine):
    text = record(Result("memlock", "fail", findings=(BAD.found("x"),)), Result("efa", "pass"))
    (answer,), _ = look(machine(ip_10_1_0_1=text), "ip-10-1-0-1")
    assert [("memlock", "skip", 0), ("efa", "pass", 0)] == [
        (one.probe, one.outcome, len(one.findings)) for one in answer.record.results
    ]


def test_a_node_that_is_late_keeps_what_came_and_its_session_is_ended(machine):
    text = record().replace('{"schema":1,"type":"end"', 'sleep 30\n{"schema":1,"type":"end"')
    assert "sleep" in text
    (answer,), server = look(machine(ip_10_1_0_1=text), "ip-10-1-0-1", seconds=4.0)
    assert "did not answer within 4" in answer.trouble
    assert (False, 1) == (answer.record.complete, len(answer.record.findings))
    assert 1 == server.calls["ssm:TerminateSession"]


def test_sessions_run_side_by_side(machine):
    root = machine(**{name.replace("-", "_"): "together 4\n" + record(node=name) for name in NODES})
    answers, _ = look(root, *NODES, seconds=30.0)
    assert 4 == sum(answer.record is not None for answer in answers)


def test_an_end_of_file_at_the_start_is_tried_once_more(machine):
    (answer,), server = look(machine(ip_10_1_0_1="Cannot perform start session: EOF\n"), "ip-10-1-0-1")
    assert "no record came, but: Cannot perform start session: EOF, operations.md § 3" == answer.trouble
    assert 2 == server.calls["ssm:StartSession"]


def test_a_node_without_hpslurm_says_so(machine):
    (answer,), _ = look(machine(ip_10_1_0_1="sh: 1: hpslurm-check: not found\n"), "ip-10-1-0-1")
    assert "hpslurm-check: not found" in answer.trouble


def test_without_the_plugin_no_session_is_started(tmp_path):
    with serve(scenario("healthy", sessions=True)) as server:
        with pytest.raises(Unknown, match="session-manager-plugin is not installed"):
            sessions.check_nodes([], Aws("us-west-2", sessions=True), str(tmp_path))
        assert 0 == server.calls["ssm:StartSession"]


def test_a_refused_session_names_the_permission(machine):
    trouble = [{"operation": "StartSession", "kind": "denied"}]
    with serve(scenario("healthy", sessions=True, trouble=trouble)):
        one = sessions.target("ip-10-1-0-1", "abcdefghijkl", "g", NODES["ip-10-1-0-1"])
        (answer,) = sessions.check_nodes([one], Aws("us-west-2", sessions=True), machine())
    assert "grant ssm:StartSession, operations.md § 2" == answer.trouble


def diagnose(root, *words):
    with serve(scenario("healthy", sessions=True)) as server:
        done = subprocess.run(
            [*PROGRAM, "--cluster", "demo", "--no-slurm", "--root", root, *words],
            capture_output=True, text=True, timeout=60, check=False, env={**os.environ, **server.environ},
        )  # fmt: skip
    return done, server.calls["ssm:StartSession"]


def test_diagnose_starts_sessions_only_when_asked_and_for_no_more_nodes_than_asked(machine):
    root = machine(**{name.replace("-", "_"): record(node=name) for name in NODES})
    done, started = diagnose(root)
    assert ("", 0, False) == (done.stderr, started, "efa-missing" in done.stdout)
    done, started = diagnose(root, "-v", "--probe", "ssm", "--sample-nodes", "2")
    assert 2 == started
    assert "[FAIL] P0 efa-missing  ip-10-1-0-[1-2]  31 of 32" in done.stdout
    assert "no fresh record of ip-10-1-0-[3-4]" in " ".join(done.stdout.split())
    assert 1 == diagnose(root, "--probe", "ssm", "--node", "ip-10-1-0-3")[1]


def test_sessions_without_aws_are_the_users_mistake(tmp_path):
    done, _ = diagnose(str(tmp_path), "--probe", "ssm", "--no-aws")
    assert (2, True) == (done.returncode, "--probe ssm needs AWS" in done.stderr)
