"""``hpslurm bundle`` without Slurm: from logs, with and without AWS, and when it cannot write."""

from __future__ import annotations

import json
import os
import re
import resource
import stat
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hpslurm.core.text import size
from tests.aws_server import serve

PROGRAM = (sys.executable, "-c", "from hpslurm.cli import main; main()", "bundle")
LOG = """\
ip-10-1-0-1:1841:1841 [0] NCCL INFO Bootstrap : Using ens5:10.1.0.1<0>
ip-10-1-0-1:1841:1841 [0] NCCL INFO NCCL_SOCKET_IFNAME set by environment to ens5
NCCL version 2.21.5+cuda12.4
export WANDB_API_KEY=0123456789abcdef0123456789abcdef01234567
  File "/home/alice/llama/train.py", line 33, in <module>, arn:aws:iam::123456789012:role/x
[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB. GPU 1 has a total capacity of 79 GiB
srun: error: ip-10-1-0-2: task 3: Exited with exit code 1
"""
HIDDEN = ("alice", "10.1.0.1", "ip-10-1-0", "123456789012", "0123456789abcdef0123")
WHEN = ("--since", "2025-11-30T03:00Z", "--until", "2025-11-30T05:00Z")


@pytest.fixture
def bundle(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs it in a folder of its own, on a machine that has nothing but one log."""
    (tmp_path / "here").mkdir()
    (tmp_path / "machine").mkdir()
    (tmp_path / "here/job.out").write_text(LOG)

    own = ("--results", str(tmp_path / "none"), "--policy", str(tmp_path / "no-policy"))

    def run(*words: str, env: dict[str, str] | None = None, **how: Any) -> subprocess.CompletedProcess[str]:
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("SLURM", "AWS", "NCCL", "FI_"))}
        return subprocess.run(
            [*PROGRAM, "--root", str(tmp_path / "machine"), *own, *words],
            cwd=tmp_path / "here", env={**kept, "COLUMNS": "200", **(env or {})}, capture_output=True, text=True,
            timeout=60, check=False,
            **how,
        )  # fmt: skip

    return run


def unpacked(folder: Path, name: str) -> dict[str, str]:
    """Every file of it, by plain tar, with its hashes checked by plain sha256sum."""
    subprocess.run(["tar", "xzf", name], cwd=folder, check=True)
    top = folder / name.removesuffix(".tar.gz")
    subprocess.run(["sha256sum", "--quiet", "-c", "SHA256SUMS"], cwd=top, check=True)
    return {str(path.relative_to(top)): path.read_text() for path in top.rglob("*") if path.is_file()}


def test_a_log_alone_becomes_a_bundle_that_says_what_is_not_known(bundle: Any, tmp_path: Path) -> None:
    done = bundle("--log", "job.out", *WHEN, "--output", "b.tar.gz")
    assert 0 == done.returncode, done.stderr
    files = unpacked(tmp_path / "here", "b.tar.gz")
    assert {"case.txt", "README.txt", "manifest.json", "errors.txt", "logs/job.out", "window.json"} <= set(files)
    assert "Window (UTC):       2025-11-30T03:00:00Z to 2025-11-30T05:00:00Z, by the command line" in files["case.txt"]
    assert "Cluster ARN:        not known; to find it: aws sagemaker describe-cluster" in files["case.txt"]
    assert re.search(
        r"^logs/job.out:6: \[rank3\]: torch.OutOfMemoryError: CUDA out of memory", files["errors.txt"], re.M
    )
    assert "NCCL_SOCKET_IFNAME=ens5    # job.out\n" == files["environment.txt"]
    missing = {one["what"] for one in json.loads(files["manifest.json"])["missing"]}
    assert {"cluster.json", "slurm/"} <= missing
    assert "[WARN] missing: cluster.json: AWS was not asked: pass --cluster and --region" in done.stderr


def test_nothing_that_is_masked_is_in_any_file_or_name_or_in_the_list(bundle: Any, tmp_path: Path) -> None:
    os.rename(tmp_path / "here/job.out", tmp_path / "here/alice.ip-10-1-0-1.out")
    done = bundle("--log", "alice.ip-10-1-0-1.out", "--output", "b.tar.gz")
    files = unpacked(tmp_path / "here", "b.tar.gz")
    assert "logs/user-1.ip-198-18-0-1.out" in {re.sub(r"user-\d+", "user-1", name) for name in files}
    for name, text in [*files.items(), ("stdout", done.stdout), ("stderr", done.stderr)]:
        assert [] == [one for one in HIDDEN if one in f"{name} {text}"], name


def test_the_mapping_lies_beside_it_for_the_site_alone(bundle: Any, tmp_path: Path) -> None:
    bundle("--log", "job.out", "--output", "b.tar.gz")
    names = json.loads((tmp_path / "here/b.names.json").read_text())
    assert "10.1.0.1" in names["addresses"].values()
    assert {"000000000001": "123456789012"} == names["accounts"]
    assert "alice" in names["users"].values()
    assert "0123456789abcdef" not in json.dumps(names)
    assert {0o600} == {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "here").glob("b.*")}
    assert not any("names.json" in name for name in unpacked(tmp_path / "here", "b.tar.gz"))


def test_a_dry_run_lists_the_same_files_and_writes_none(bundle: Any, tmp_path: Path) -> None:
    dry = bundle("--log", "job.out", *WHEN, "--dry-run")
    assert ["job.out"] == os.listdir(tmp_path / "here")
    assert "Nothing was written. Without --dry-run it becomes hpslurm-bundle-20251130T050000Z.tar.gz" in dry.stdout
    wet = bundle("--log", "job.out", *WHEN)

    def listed(out: str) -> list[str]:
        return re.findall(r"^  (\S+) +[\d,]+", out, re.M)

    assert listed(dry.stdout) == listed(wet.stdout)
    assert {"hpslurm-bundle-20251130T050000Z.tar.gz", "hpslurm-bundle-20251130T050000Z.names.json"} <= set(
        os.listdir(tmp_path / "here")
    )


def test_aws_brings_the_cluster_and_is_masked(bundle: Any, tmp_path: Path) -> None:
    with serve("sick") as server:
        done = bundle("--cluster", "demo", "--output", "b.tar.gz", env=server.environ)
    assert 0 == done.returncode, done.stderr
    files = unpacked(tmp_path / "here", "b.tar.gz")
    told = json.loads(files["cluster.json"])
    assert ("demo", "000000000001") == (told["ClusterName"], told["ClusterArn"].split(":")[4])
    assert "sg-0aaaaaaaaaaaaaaaa" in files["cluster.json"]
    assert "AWS region:         us-west-2" in files["case.txt"]
    assert "i-00000000000000004\tworker-group-1" in files["nodes.tsv"]
    assert "[FAIL] P0 sg-no-outbound  worker-group-1" in files["findings.txt"]
    assert [] == [name for name, text in files.items() for one in HIDDEN if one in text]


def test_a_cluster_that_does_not_exist_costs_the_cluster_only(bundle: Any, tmp_path: Path) -> None:
    with serve("healthy") as server:
        done = bundle("--cluster", "nope", "--log", "job.out", "--output", "b.tar.gz", env=server.environ)
    assert 0 == done.returncode
    assert "missing: cluster.json: no cluster 'nope' in us-west-2; clusters in us-west-2: demo" in done.stderr
    assert "logs/job.out" in unpacked(tmp_path / "here", "b.tar.gz")


def test_where_nothing_can_be_collected_the_exit_code_is_1_and_there_is_no_file(bundle: Any, tmp_path: Path) -> None:
    done = bundle("--job", "4711")
    assert (1, "") == (done.returncode, done.stdout)
    assert "nothing could be collected" in done.stderr
    assert "job 4711" in done.stderr
    assert ["job.out"] == os.listdir(tmp_path / "here")


def limited() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (1500, 1500))


def test_a_disk_that_is_full_leaves_no_half_file(bundle: Any, tmp_path: Path) -> None:
    done = bundle("--log", "job.out", "--output", "b.tar.gz", preexec_fn=limited)
    assert 1 == done.returncode
    assert "could not write b.tar.gz: " in done.stderr
    assert "Traceback" not in done.stderr
    assert ["job.out"] == os.listdir(tmp_path / "here")


def test_how_to_hand_it_over_is_printed_and_not_done(bundle: Any) -> None:
    done = bundle("--log", "job.out", "--output", "b.tar.gz")
    assert "  aws s3 cp b.tar.gz s3://BUCKET/" in done.stdout.splitlines()
    assert "run this yourself" in done.stdout
    assert "s3 cp" not in bundle("--log", "job.out", "--output", "c.tar.gz", "--dry-run").stdout
    assert "names.json" not in done.stdout.partition("Suggested command")[2]  # that one stays


@pytest.mark.parametrize("there", ["b.tar.gz", "b.names.json"])
def test_a_file_that_is_there_is_written_over_with_force_only(bundle: Any, tmp_path: Path, there: str) -> None:
    (tmp_path / "here" / there).write_text("old")
    words = ("--log", "job.out", "--output", "b.tar.gz")
    done = bundle(*words)
    assert 1 == done.returncode
    assert f"{there} is there already; name another --output, or pass --force" in done.stderr
    assert "old" == (tmp_path / "here" / there).read_text()
    assert 0 == bundle(*words, "--force").returncode
    assert "case.txt" in unpacked(tmp_path / "here", "b.tar.gz")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--job", "x"), "not a job id"),
        (("--since", "yesterday"), "is not a valid time; write 2025-11-30T03:10Z"),
        (
            ("--since", "2025-11-30T05:00Z", "--until", "2025-11-30T03:00Z", "--log", "job.out"),
            "set --since and --until",
        ),
        (("--max-size", "1K"), "is not a valid size (1M to 1G)"),
        (("--max-size", "2G"), "is not a valid size (1M to 1G)"),
        (("--log", "gone"), "does not exist"),
        (("--output", "b.zip"), "does not end in .tar.gz"),
        (("--no-mask",), "No such option"),
    ],
)
def test_a_wrong_command_line_is_refused(bundle: Any, tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    done = bundle(*words)
    assert 2 == done.returncode
    assert said in " ".join(done.stderr.split())
    assert ["job.out"] == os.listdir(tmp_path / "here")


@pytest.mark.parametrize(
    "since",
    [
        "2025-11-30T03:00:00Z",
        "2025-11-30 03:00",
        "2025-11-30T03:00",
        "2025-11-30T05:00+02:00",
        "2025-11-29T19:00-08:00",
    ],
)
def test_times_are_utc_unless_they_say_otherwise(bundle: Any, since: str) -> None:
    done = bundle("--log", "job.out", "--since", since, "--until", "2025-11-30T05:00Z", "--dry-run")
    assert "Window: 2025-11-30T03:00:00Z to 2025-11-30T05:00:00Z (UTC), by the command line" in done.stdout


def test_a_large_log_is_cut_to_the_limit_and_its_middle_is_still_in_errors(bundle: Any, tmp_path: Path) -> None:
    filler = "".join(f"step {number} loss 2.0 and some more text\n" for number in range(60_000))
    error = next(line for line in LOG.splitlines() if "OutOfMemory" in line)
    (tmp_path / "here/job.out").write_text(f"first line\n{filler}{error}\n{filler}last line\n")
    done = bundle("--log", "job.out", "--max-size", "1M", "--output", "b.tar.gz")
    assert 0 == done.returncode, done.stderr
    files = unpacked(tmp_path / "here", "b.tar.gz")
    manifest = json.loads(files["manifest.json"])
    assert manifest["bytes"] <= 1 << 20
    log = files["logs/job.out"].splitlines()
    assert ("first line", "last line") == (log[0], log[-1])
    cut = next(one for one in manifest["files"] if one["name"] == "logs/job.out")
    assert f"[hpslurm bundle: {cut['left_out']} bytes are left out here]" in log
    assert error not in log
    assert f"logs/job.out:60002: {error}" in files["errors.txt"].splitlines()
    (listed,) = [line for line in done.stdout.splitlines() if line.startswith("  logs/job.out ")]
    assert ["logs/job.out", *size(cut["bytes"]).split()] == listed.split()[:3]
    assert f"{size(cut['left_out'])} left out" in listed
    assert (True, False) == ("of at most 1 MiB" in done.stdout, " bytes" in listed)


def test_the_same_parts_have_the_time_that_was_asked_for(bundle: Any, tmp_path: Path) -> None:
    def times(name: str, **env: str) -> set[float]:
        bundle("--log", "job.out", *WHEN, "--output", name, env=env)
        with tarfile.open(tmp_path / "here" / name) as tar:
            return {one.mtime for one in tar.getmembers()}

    assert {1764478800} == times("a.tar.gz")  # the end of the window
    assert {1700000000} == times("b.tar.gz", SOURCE_DATE_EPOCH="1700000000")


def test_records_of_a_job_and_of_a_folder_that_was_brought_are_in_it(bundle: Any, tmp_path: Path) -> None:
    brought = tmp_path / "here/reports"
    brought.mkdir()
    line = {"schema": 1, "type": "run", "hook": "check", "node": "ip-10-1-0-9", "time": 1764470000.0, "job": None}
    facts = {"settings": {"FI_PROVIDER": "efa"}}
    result = {
        "schema": 1,
        "type": "result",
        "probe": "nccl_env",
        "outcome": "pass",
        "note": "",
        "seconds": 0,
        "facts": facts,
    }
    (brought / "1-0.check.jsonl").write_text("".join(json.dumps(one) + "\n" for one in (line, result)))
    done = bundle("--reports", "reports", "--output", "b.tar.gz")
    assert 0 == done.returncode, done.stderr
    files = unpacked(tmp_path / "here", "b.tar.gz")
    assert "ip-198-18-0-" in files["records/reports/1-0.check.jsonl"]
    assert re.fullmatch(r"FI_PROVIDER=efa    # records of ip-198-18-0-\d+\n", files["environment.txt"])
