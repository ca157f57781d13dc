"""Whatever AWS's half meets, Slurm's half is told, in time, and one line says what to do."""

from __future__ import annotations

import os
import socket
import time

import boto3
import pytest

from hpslurm.cluster.aws import checks, whom
from hpslurm.core.probe import Unknown
from hpslurm.sources import aws, aws_access
from hpslurm.sources.aws_errors import NoAccess
from hpslurm.sources.hyperpod import Layout
from tests.cluster.aws.looking import ARN, NAME, REGION, World, look

ROLE = "role_arn = arn:aws:iam::123456789012:role/OnCall\nsource_profile = base\n"
BASE = "[profile base]\naws_access_key_id = AKIAIOSFODNN7EXAMPLE\naws_secret_access_key = x\n"


@pytest.fixture
def profile(tmp_path, monkeypatch):
    """A configuration file with one profile; the server's environment names none and no keys."""

    def write(text):
        (tmp_path / "config").write_text(f"[profile odd]\n{text}\n{BASE}")

        def environ(self):
            return {
                "AWS_ENDPOINT_URL": self.url,
                "AWS_EC2_METADATA_DISABLED": "true",
                "AWS_CONFIG_FILE": str(tmp_path / "config"),
                "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
            }

        monkeypatch.setattr("tests.aws_server.server.Server.environ", property(environ))

    return write


def told(seen):
    """Slurm's half, and the one line that says why AWS's is missing."""
    assert "Slurm nodes: 8 (8 IDLE+CLOUD)" in seen.text
    (line,) = [result.note for result in seen.results if result.probe == "aws"]
    return line


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("credential_process = /nonexistent/program", "profile odd needs /nonexistent/program for its credentials"),
        ("credential_process = /bin/echo hello", "credential_process of profile odd printed no JSON"),
        ("credential_process = /bin/false", "log in or pass --profile"),
        (f"{ROLE}mfa_serial = arn:aws:iam::123456789012:mfa/me", "profile odd wants an MFA code; type  eval"),
        ("role_arn = arn:aws:iam::123456789012:role/x\nweb_identity_token_file = /nonexistent/t", "/nonexistent/t"),
        ("role_arn = arn:aws:iam::123456789012:role/x\nsource_profile = nobody", "nobody"),
        ("sso_session = s\nsso_account_id = 1\nsso_role_name = x\n[sso-session s]\nsso_region = us-east-1\n"
         "sso_start_url = https://example.invalid", "log in or pass --profile"),
    ],
)  # fmt: skip
def test_credentials_that_cannot_be_had_cost_one_line(tmp_path, profile, text, words):
    profile(text)
    line = told(look(tmp_path, World(), profile="odd"))
    assert words in line and "operations.md § 2" in line
    assert "hello" not in line  # what such a program prints may be a secret


def test_a_program_that_never_hands_out_credentials_is_ended(tmp_path, profile, monkeypatch):
    monkeypatch.setattr(aws_access, "PROCESS_SECONDS", 0.5)
    profile("credential_process = /bin/sh -c 'echo $$ > \"$PIDFILE\"; sleep 600'")
    monkeypatch.setenv("PIDFILE", str(tmp_path / "pid"))
    began = time.monotonic()
    line = told(look(tmp_path, World(), profile="odd"))
    assert "log in or pass --profile" in line
    assert time.monotonic() - began < 10
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_the_programs_of_a_source_profile_are_ended_too(tmp_path, profile, monkeypatch):
    monkeypatch.setattr(aws_access, "PROCESS_SECONDS", 0.5)
    profile("role_arn = arn:aws:iam::123456789012:role/x\nsource_profile = slow\n[profile slow]\n"
            "credential_process = /bin/sleep 600")  # fmt: skip
    began = time.monotonic()
    told(look(tmp_path, World(), profile="odd"))
    assert time.monotonic() - began < 10


def test_a_role_that_may_not_be_assumed_asks_for_no_permission_of_sagemaker(tmp_path, profile):
    profile(ROLE)
    world = World()
    world.more["trouble"] = [{"operation": "AssumeRole", "kind": "denied"}]
    line = told(look(tmp_path, world, profile="odd"))
    assert "may not be assumed (sts:AssumeRole" in line and "grant sagemaker" not in line


def test_a_token_file_of_the_environment_that_is_missing_is_named(tmp_path, profile, monkeypatch):
    profile("region = us-west-2")
    monkeypatch.setattr("tests.aws_server.server.Server.environ", property(lambda self: {
        "AWS_ENDPOINT_URL": self.url, "AWS_EC2_METADATA_DISABLED": "true", "AWS_CONFIG_FILE": "/dev/null",
        "AWS_WEB_IDENTITY_TOKEN_FILE": "/nonexistent/token", "AWS_ROLE_ARN": "arn:aws:iam::123456789012:role/x",
    }))  # fmt: skip
    assert "AWS_WEB_IDENTITY_TOKEN_FILE names /nonexistent/token, which does not exist" in told(look(tmp_path, World()))


def test_botocore_still_has_what_keeps_credentials_from_asking_and_hanging():
    """Names of botocore's own: without them a prompt or a program could hold everything up."""
    session = boto3.Session(region_name=REGION)
    providers = session._session.get_component("credential_provider").providers
    by_name = {provider.METHOD: provider for provider in providers}
    assert hasattr(by_name["assume-role"], "_prompter")
    assert hasattr(by_name["assume-role"]._profile_provider_builder, "_create_process_provider")
    assert hasattr(by_name["custom-process"], "_popen")


# between us and AWS


@pytest.mark.parametrize("kind", ["garbage", "broken", "failure"])
def test_a_captive_portal_or_a_broken_service_costs_its_own_half_only(tmp_path, kind):
    world = World()
    world.more["trouble"] = [{"operation": "*", "kind": kind}]
    seen = look(tmp_path, world)
    assert "8 IDLE" in seen.text
    assert "sagemaker:DescribeCluster" in seen.notes


def test_a_json_page_of_a_portal_is_no_cluster(tmp_path):
    world = World()
    world.more["trouble"] = [{"operation": "DescribeCluster", "kind": "empty"}]
    seen = look(tmp_path, world)
    assert "no answer to sagemaker:DescribeCluster: what came lacks ClusterArn" in seen.notes
    assert "8 IDLE" in seen.text


def closed_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({"HTTP_PROXY": "http://127.0.0.1:{port}"}, "the proxy of HTTPS_PROXY does not answer"),
        ({"AWS_ENDPOINT_URL": "http://127.0.0.1:{port}"}, "is the region right, does the name resolve"),
        ({"AWS_ENDPOINT_URL": "https://127.0.0.1:{port}", "AWS_CA_BUNDLE": "/nonexistent.pem"}, "AWS_CA_BUNDLE names"),
    ],
)
def test_what_keeps_the_connection_from_being_made_is_named(tmp_path, monkeypatch, environ, words):
    port = closed_port()
    before = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_CONFIG_FILE": "/dev/null"}
    monkeypatch.setattr("tests.aws_server.server.Server.environ", property(lambda self: {
        "AWS_ENDPOINT_URL": self.url, **before, **{key: value.format(port=port) for key, value in environ.items()}
    }))  # fmt: skip
    seen = look(tmp_path, World())
    assert words in seen.notes
    if "HTTP_PROXY" in environ or "AWS_CA_BUNDLE" in environ:
        assert "VPC endpoint" not in seen.notes
    assert "8 IDLE" in seen.text


def test_a_service_that_lets_us_wait_in_vain_is_asked_once_and_all_of_it_ends_in_time(tmp_path, monkeypatch):
    monkeypatch.setattr(aws, "READ_SECONDS", 0.3)
    monkeypatch.setattr(aws, "WHO_SECONDS", 0.3)
    world = World()
    world.more["trouble"] = [{"operation": "*", "kind": "slow", "seconds": 5}]
    seen = look(tmp_path, world)
    assert {"sagemaker:DescribeCluster": 3} == {name: n for name, n in seen.calls.items() if "sagemaker" in name}
    assert seen.seconds < 10
    assert "connected, and nothing came back" in seen.notes


def test_when_the_time_is_over_what_came_is_told(tmp_path):
    world = World().set(3, status="Failure")
    world.more["trouble"] = [{"operation": "FilterLogEvents", "kind": "slow", "seconds": 10}]
    seen = look(tmp_path, world, seconds=3.0)
    assert "hyperpod-instance-failed" in seen.ids("ip-10-1-0-3")
    assert "AWS's answers took longer than 3 s" in seen.notes
    assert seen.seconds < 8


def test_a_surprise_in_aws_half_is_a_line_in_it(tmp_path, monkeypatch):
    monkeypatch.setattr(checks.hyperpod, "parse_cluster", lambda raw: 1 / 0)
    seen = look(tmp_path, World())
    assert "AWS could not be asked" in told(seen)


# which region, which cluster


def region(told="", own=ARN, cluster="", **environ):
    layout = Layout("demo", own)
    before = {key: os.environ.pop(key, None) for key in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE")}
    os.environ.update(environ)
    try:
        return whom.find_region(whom.Options(cluster, told), layout)
    finally:
        for key in environ:
            del os.environ[key]
        os.environ.update({key: value for key, value in before.items() if value})


def test_on_its_own_controller_the_clusters_region_comes_before_the_environments():
    assert "us-west-2" == region(AWS_REGION="us-east-1")
    assert "us-west-2" == region(cluster="demo", AWS_REGION="us-east-1")
    assert "us-east-1" == region(cluster="another", AWS_REGION="us-east-1")
    assert "eu-north-1" == region("eu-north-1", AWS_REGION="us-east-1")
    assert "us-east-1" == region(own="", AWS_DEFAULT_REGION="us-east-1")


@pytest.mark.parametrize("name", ["us-west-2a", "us-central1", "westeurope", "us west 2"])
def test_a_region_that_cannot_be_is_named_with_where_it_stands(name):
    with pytest.raises(NoAccess, match=r"of AWS_REGION is not a region.*pass --region") as caught:
        region(own="", AWS_REGION=name)
    assert ("availability zone" in str(caught.value)) == (name == "us-west-2a")


def test_regions_of_all_partitions_are_regions():
    for name in ("us-gov-west-1", "cn-north-1", "eusc-de-east-1", "ap-southeast-5", "us-isob-east-1"):
        assert name == region(name)


def test_a_cluster_that_hyperpods_own_file_names_and_aws_does_not_know_costs_its_half_only(tmp_path):
    world = World()
    world.files["resource_config.json"] = {"ClusterConfig": {"ClusterName": "moved", "ClusterArn": ARN}}
    seen = look(tmp_path, world, cluster="", region="")
    line = next(result.note for result in seen.results if result.probe == "aws")
    assert "no cluster 'moved' in us-west-2 (its name stands in HyperPod's own file on this machine)" in line
    assert "8 IDLE" in seen.text


def test_a_cluster_name_is_checked_before_anything_is_asked():
    with pytest.raises(Unknown, match="neither a cluster's name nor its ARN"):
        whom.find_cluster(whom.Options("x; rm -rf /", REGION), Layout(NAME), None)
