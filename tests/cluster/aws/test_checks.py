from __future__ import annotations

import gzip
import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import botocore
import pytest

from hpslurm.cluster.aws import checks
from hpslurm.cluster.aws.whom import NoCluster, Options
from hpslurm.core.policy import Policy
from hpslurm.core.values import replace
from hpslurm.sources import aws
from hpslurm.sources.aws import OPERATIONS, Aws
from hpslurm.sources.hyperpod import Layout
from tests.aws_server import serve
from tests.aws_server.scenario import FOLDER, tomllib

DEMO = Options(cluster="demo", region="us-west-2")


@pytest.fixture(autouse=True)
def no_pause(monkeypatch):
    monkeypatch.setattr(aws, "LOG_PAUSE", 0.0)


def scenario(name: str, **changes: Any) -> dict[str, Any]:
    raw: dict[str, Any] = tomllib.loads((FOLDER / f"{name}.toml").read_text())
    return raw | changes


def looked(source: Any, options: Options = DEMO) -> dict[str, Any]:
    """Result by the name of its check."""
    with serve(source):
        view = checks.collect(options)
    return {result.probe: result for result in checks.judge(view, Policy())}


def found(results: dict[str, Any]) -> set[tuple[str, str]]:
    return {(finding.rule.id, finding.subject) for result in results.values() for finding in result.findings}


def test_a_healthy_cluster_passes_every_check_with_every_operation_on_the_list_but_two():
    with serve("healthy") as server:
        view = checks.collect(DEMO)
        assert server.calls == view.requests
    results = checks.judge(view, Policy())
    nothing = {"training_logs": "skip"}  # no site's agent ships any
    assert [(row.name, nothing.get(row.name, "pass")) for row in checks.CHECKS] == [
        (one.probe, one.outcome) for one in results
    ]
    unused = {operation.action for operation in OPERATIONS} - set(view.requests)
    assert {
        "sagemaker:DescribeClusterEvent",
        "sagemaker:ListClusters",
        "ec2:DescribeVpcEndpoints",
    } == unused  # nothing failed, a name was given


def test_a_sick_cluster_is_told_in_full():
    results = looked("sick")
    assert {
        ("agent-fault", "ip-10-1-0-1"),
        ("deep-check-failed", "ip-10-1-0-4"),
        ("event-provision-failed", "worker-group-1"),
        ("hyperpod-capacity", "worker-group-1"),
        ("hyperpod-image-differs", "ip-10-1-0-5"),
        ("hyperpod-image-old", "worker-group-1"),
        ("hyperpod-instance-changing", "ip-10-1-0-4"),
        ("hyperpod-instance-failed", "ip-10-1-0-3"),
        ("hyperpod-recovery-off", "demo"),
        ("lifecycle-failed", "ip-10-1-0-3"),
        ("sg-interface-differs", "ip-10-1-16-6"),
        ("sg-no-outbound", "worker-group-1"),
        ("subnet-full", "worker-group-1"),
        ("zone-split", "ip-10-1-16-6"),
        ("zone-subnets", "worker-group-1"),
    } == found(results)
    event = results["hyperpod_events"].findings[0]
    assert event.detail.endswith("the subnet's zone does not hold the capacity")
    assert 1 == len(event.evidence)


@pytest.mark.parametrize("operation", [one for one in OPERATIONS if not one.free], ids=lambda one: one.action)
def test_one_missing_permission_is_named_and_takes_nothing_else_with_it(operation):
    options = DEMO if operation.name != "ListClusters" else Options(region="us-west-2")
    results = looked(scenario("sick", trouble=[{"operation": operation.name, "kind": "denied"}]), options)
    notes = " ".join(result.note for result in results.values())
    assert f"grant {operation.action}, operations.md § 2" in notes
    if operation.name not in ("DescribeCluster", "ListClusters"):
        assert len([one for one in results.values() if one.outcome in ("pass", "fail")]) >= 4


def test_when_the_cluster_may_not_be_described_its_instances_are_still_listed():
    with serve(scenario("sick", trouble=[{"operation": "DescribeCluster", "kind": "denied"}])):
        view = checks.collect(DEMO)
    assert 7 == len(checks.listed(view))
    first, every = (result.note for result in checks.judge(view, Policy()))
    assert "grant sagemaker:DescribeCluster, operations.md § 2" == first
    assert "the role lacks sagemaker:DescribeCluster; without it these could not be tried: ec2:Describe" in every
    assert "logs:FilterLogEvents" in every and "ListClusterNodes" not in every  # that one was tried, and is not denied


@pytest.mark.parametrize("kind", ["throttled", "failure", "broken", "garbage"])
def test_an_operation_that_fails_for_good_is_said_and_the_rest_is_complete(kind):
    results = looked(scenario("sick", trouble=[{"operation": "ListClusterEvents", "kind": kind}]))
    assert "unknown" == results["hyperpod_events"].outcome
    assert "sagemaker:ListClusterEvents" in results["hyperpod_events"].note
    assert ("sg-no-outbound", "worker-group-1") in found(results)


def test_events_need_continuous_provisioning_and_without_it_nothing_is_asked():
    raw = scenario("healthy")
    del raw["cluster"]["NodeProvisioningMode"]
    with serve(raw) as server:
        view = checks.collect(DEMO)
        assert 0 == server.calls["sagemaker:ListClusterEvents"]
    result = next(one for one in checks.judge(view, Policy()) if one.probe == "hyperpod_events")
    assert ("skip", True) == (result.outcome, "NodeProvisioningMode Continuous" in result.note)


def test_a_cluster_that_refuses_events_all_the_same_is_no_fault():
    results = looked(scenario("healthy", trouble=[{"operation": "ListClusterEvents", "kind": "validation"}]))
    assert "skip" == results["hyperpod_events"].outcome


def test_a_missing_log_group_is_one_line_with_the_section():
    results = looked(scenario("healthy", has_log_group=False))
    one = results["health_agent, deep_checks, lifecycle, training_logs"]
    assert "log group /aws/sagemaker/Clusters/demo/abcdefghijkl does not exist" in one.note
    assert "operations.md § 4" in one.note


def test_a_cluster_that_does_not_exist_brings_the_list_of_those_that_do():
    with serve(scenario("healthy", others=["prod"])):
        view = checks.collect(replace(DEMO, cluster="nope"))
    assert isinstance(view.trouble, NoCluster) and view.trouble.named
    assert "no cluster 'nope' in us-west-2; clusters in us-west-2: demo, prod" == str(view.trouble)


def test_the_only_cluster_needs_no_name_and_of_two_one_must_be_chosen():
    assert "pass" == looked("healthy", Options(region="us-west-2"))["hyperpod"].outcome
    assert (
        "pass --cluster; clusters in us-west-2: demo, prod"
        == looked(scenario("healthy", others=["prod"]), Options(region="us-west-2"))["aws"].note
    )


def test_the_arn_is_as_good_as_the_name_and_brings_its_region():
    with serve("healthy") as server:
        del os.environ["AWS_DEFAULT_REGION"]
        view = checks.collect(Options(cluster=server.scenario.arn))
        assert "us-west-2" == view.region
        assert "pass" == checks.judge(view, Policy())[0].outcome
        other = checks.collect(Options(cluster=server.scenario.arn, region="eu-north-1"))
        assert "but --region is eu-north-1" in checks.judge(other, Policy())[0].note


def test_without_credentials_there_is_one_line_that_says_to_log_in():
    with serve("healthy"):
        del os.environ["AWS_ACCESS_KEY_ID"]
        del os.environ["AWS_SECRET_ACCESS_KEY"]
        results = checks.judge(checks.collect(DEMO), Policy())
    assert [("aws", "unknown")] == [(one.probe, one.outcome) for one in results]
    assert "log in or pass --profile" in results[0].note


def test_without_a_region_there_is_one_line_that_says_what_to_pass():
    with serve("healthy"):
        del os.environ["AWS_DEFAULT_REGION"]
        results = checks.judge(checks.collect(Options(cluster="demo")), Policy())
    assert ["no region: pass --region or set AWS_REGION, operations.md § 2"] == [one.note for one in results]


@pytest.mark.parametrize("options", [Options("x y", "us-west-2"), Options("demo", "us west")], ids=["name", "region"])
def test_names_that_cannot_be_are_refused_before_anything_is_sent(options):
    with serve("healthy") as server:
        results = checks.judge(checks.collect(options), Policy())
        assert "unknown" == results[0].outcome
        assert set() == set(server.calls) - {"sts:GetCallerIdentity"}


def test_a_node_knows_its_cluster_region_and_roles_by_its_own_files():
    raw = scenario("healthy")
    for group in raw["cluster"]["InstanceGroups"]:
        del group["SlurmConfig"]
    with serve(raw) as server:
        del os.environ["AWS_DEFAULT_REGION"]
        local = Layout("demo", server.scenario.arn, controller_group="controller-machine", login_group="login-group")
        view = checks.collect(Options(), local)
        assert 0 == server.calls["sagemaker:ListClusters"]
    assert ["controller", "login", "worker"] == [group.role for group in checks.cluster(view).groups]


def test_partitions_as_slurm_has_them_count_for_zones():
    raw = scenario("sick")
    with serve(raw):
        view = checks.collect(DEMO)
    slurm = {"gpu": ("ip-10-1-0-1",), "far": ("ip-10-1-16-6",)}
    results = checks.judge(view, Policy(), slurm)
    assert [] == [f for one in results for f in one.findings if f.rule.id == "zone-split"]


def test_the_account_is_in_no_part_of_what_is_told():
    with serve(scenario("sick", trouble=[{"operation": "DescribeSubnets", "kind": "denied"}])):
        view = checks.collect(DEMO)
    assert "assumed-role/on-call/somebody" == view.identity
    assert "123456789012" not in repr(checks.judge(view, Policy())).replace(repr(checks.cluster(view).arn), "")


def test_two_thousand_nodes_cost_no_more_calls_than_their_pages():
    raw = scenario("healthy")
    raw["cluster"]["InstanceGroups"][2]["CurrentCount"] = 2000
    raw["nodes"][2]["count"] = 2000
    raw["events"] = [
        {"minutes": n / 10, "level": "Info", "text": "Cluster demo update in progress"} for n in range(450)
    ]
    with serve(raw) as server:
        view = checks.collect(DEMO)
        assert 2002 == len(checks.listed(view))
        assert server.most_at_once <= aws.THREADS
        pages = {
            "sts:GetCallerIdentity": 1,
            "sagemaker:DescribeCluster": 1,
            "sagemaker:ListClusterNodes": math.ceil(2002 / 100),
            "sagemaker:ListClusterEvents": math.ceil(450 / 100),
            "sagemaker:ListClusterOperations": 1,
            "ec2:DescribeSecurityGroupRules": 1,
            "ec2:DescribeSubnets": 1,
            "ec2:DescribeNetworkInterfaces": math.ceil(2000 / 200),
            "logs:FilterLogEvents": 5,
        }
        assert pages == dict(server.calls)
        assert sum(server.calls.values()) <= 1.2 * sum(pages.values())


def test_time_that_runs_out_leaves_what_was_read():
    with serve("healthy"):
        door = Aws("us-west-2")
        door.deadline -= 1000
        view = checks.collect(DEMO, aws=door)
    assert any("no time left" in result.note for result in checks.judge(view, Policy()))


def old_model(folder, *drop):
    """botocore's own model of SageMaker, without these fields, where botocore looks first."""
    here = Path(botocore.__file__).parent / "data/sagemaker/2017-07-24"
    packed = here / "service-2.json.gz"
    raw = gzip.decompress(packed.read_bytes()) if packed.exists() else (here / "service-2.json").read_bytes()
    model = json.loads(raw)
    for shape, field in drop:
        del model["shapes"][shape]["members"][field]
    place = folder / "sagemaker/2017-07-24"
    place.mkdir(parents=True)
    (place / "service-2.json").write_text(json.dumps(model))
    return str(folder)


def test_an_old_botocore_that_drops_fields_is_said_and_not_taken_for_their_absence(tmp_path):
    with serve("sick"):
        os.environ["AWS_DATA_PATH"] = old_model(
            tmp_path, ("DescribeClusterResponse", "NodeProvisioningMode"), ("ClusterNodeSummary", "PrivateDnsHostname")
        )
        results = {one.probe: one for one in checks.judge(checks.collect(DEMO), Policy())}
    dropped = "drops ClusterNodeSummary.PrivateDnsHostname, DescribeClusterResponse.NodeProvisioningMode from answers"
    assert dropped in results["hyperpod"].note
    assert ("unknown", True) == (results["hyperpod_events"].outcome, dropped in results["hyperpod_events"].note)


def test_an_interrupted_look_does_not_wait_for_an_answer_that_never_comes():
    slow = scenario("healthy", trouble=[{"operation": "ListClusterNodes", "kind": "slow", "seconds": 60}])
    with serve(slow) as server:
        words = [
            sys.executable,
            "-c",
            "from hpslurm.cli import main; main()",
            "diagnose",
            "--cluster",
            "demo",
            "--no-slurm",
        ]
        before = signal.signal(signal.SIGINT, signal.default_int_handler)  # tests that run behind a shell ignore it
        process = subprocess.Popen([*words, "--root", "/nonexistent"], stderr=subprocess.PIPE, text=True)
        signal.signal(signal.SIGINT, before)
        while not server.calls["sagemaker:ListClusterNodes"]:
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=10)
    assert (130, False) == (process.returncode, "Traceback" in told)
