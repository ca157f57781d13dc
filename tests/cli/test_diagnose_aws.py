"""``hpslurm diagnose`` from a laptop: AWS alone, over the local server, as a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.aws_server import serve
from tests.cluster.aws.test_checks import scenario

PROGRAM = (sys.executable, "-c", "from hpslurm.cli import main; main()", "diagnose")


def diagnose(source, *words, root, **env):
    """Run it against a server, on a machine that has nothing."""
    import os

    with serve(source) as server:
        return subprocess.run(
            [*PROGRAM, "--root", str(root), "--policy", str(root / "no-policy"), *words],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env={**os.environ, **server.environ, **env},
        )


def lines(done):
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_laptop_with_aws_alone_gets_the_whole_half(tmp_path):
    done = diagnose("sick", "--cluster", "demo", "--no-slurm", "--verbose", root=tmp_path)
    assert 0 == done.returncode
    assert done.stdout.startswith("HyperPod cluster demo in us-west-2: InService, instances: 5 Running, 1 Failure")
    assert "[FAIL] P0 sg-no-outbound  worker-group-1" in done.stdout
    assert "[FAIL] P1 hyperpod-instance-failed  ip-10-1-0-3" in done.stdout
    assert "slurm_nodes" not in done.stdout
    assert "no job can start there" not in done.stdout  # Slurm was not asked
    assert "123456789012" not in done.stdout
    assert done.stderr.startswith("AWS calls: 1")


def test_json_is_lines_and_nothing_else_and_small_for_many_nodes(tmp_path):
    raw = scenario("healthy")
    raw["cluster"]["InstanceGroups"][2]["CurrentCount"] = 2000
    raw["nodes"][2]["count"] = 2000
    done = diagnose(raw, "--cluster", "demo", "--no-slurm", "--json", root=tmp_path)
    told = lines(done)
    assert {"Running": 2002} == next(one["facts"]["instances"] for one in told if one.get("probe") == "hyperpod")
    assert len(done.stdout) < 200_000


def test_the_exit_code_follows_fail_on(tmp_path):
    assert 3 == diagnose("sick", "--cluster", "demo", "--no-slurm", "--fail-on", "P0", root=tmp_path).returncode
    assert 0 == diagnose("healthy", "--cluster", "demo", "--no-slurm", "--fail-on", "P1", root=tmp_path).returncode


def test_a_cluster_that_does_not_exist_ends_with_the_list(tmp_path):
    done = diagnose(scenario("healthy", others=["prod"]), "--cluster", "nope", "--no-slurm", root=tmp_path)
    assert (1, "") == (done.returncode, done.stdout)
    assert "no cluster 'nope' in us-west-2; clusters in us-west-2: demo, prod" in done.stderr


def test_when_nothing_at_all_could_be_read_the_exit_code_says_so(tmp_path):
    done = diagnose(
        scenario("healthy", trouble=[{"operation": "*", "kind": "denied"}]),
        "-v", "--cluster", "demo", "--no-slurm", root=tmp_path,
    )  # fmt: skip
    assert 1 == done.returncode
    assert "grant sagemaker:DescribeCluster, operations.md § 2" in " ".join(done.stdout.split())
    assert "neither Slurm nor AWS" in done.stderr


def test_no_aws_asks_nothing(tmp_path, write):
    with serve("healthy") as server:
        subprocess.run([*PROGRAM, "--root", str(tmp_path), "--no-aws", "--cluster", "demo"], check=False, timeout=60)
        assert 0 == sum(server.calls.values())


def test_a_node_may_be_named_by_the_id_of_its_instance(tmp_path):
    words = ("--cluster", "demo", "--no-slurm", "--json", "--node")
    by_id = diagnose("sick", *words, "i-00000000000000006", root=tmp_path)
    by_name = diagnose("sick", *words, "ip-10-1-0-5", root=tmp_path)
    wanted = [(one["id"], one["subject"]) for one in lines(by_name) if one["type"] == "finding"]
    assert ("hyperpod-image-differs", "ip-10-1-0-5") in wanted
    assert wanted == [(one["id"], one["subject"]) for one in lines(by_id) if one["type"] == "finding"]
    assert 2 == diagnose("sick", *words, "i-0fedcba9876543210", root=tmp_path).returncode


def test_node_limits_what_is_told_of_instances_and_keeps_what_is_told_of_groups(tmp_path):
    done = diagnose("sick", "--cluster", "demo", "--no-slurm", "--node", "ip-10-1-0-5", "--json", root=tmp_path)
    nodes = {one["subject"] for one in lines(done) if one["type"] == "finding"}
    assert {"ip-10-1-0-5", "worker-group-1", "demo", ""} >= nodes >= {"ip-10-1-0-5", "worker-group-1"}


@pytest.mark.parametrize(("words", "said"), [("2x", "write 90m, 2h or 1d"), ("0", "is not a valid duration")])
def test_a_time_that_cannot_be_is_refused(tmp_path, words, said):
    done = diagnose("healthy", "--since", words, root=tmp_path)
    assert (2, True) == (done.returncode, said in done.stderr)


def test_since_is_how_far_back_logs_are_read(tmp_path):
    def rules(since):
        done = diagnose("sick", "--cluster", "demo", "--no-slurm", "--json", "--since", since, root=tmp_path)
        return {one["id"] for one in lines(done) if one["type"] == "finding"}

    assert "agent-fault" in rules("13m")
    assert "agent-fault" not in rules("600")


def test_no_issue_is_no_clean_bill_and_says_where_to_look_next(tmp_path):
    healthy, sick = (
        diagnose(name, "--cluster", "demo", "--no-slurm", root=tmp_path).stdout for name in ("healthy", "sick")
    )
    assert "A job fails all the same? hpslurm report JOB" in " ".join(healthy.split())
    assert "A job fails all the same?" not in sick
