"""The hook itself: light, honest, and never in the way; the gate only for what the site names."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hpslurm import hooks
from hpslurm.core import toml
from hpslurm.node import instance
from tests.lab import machine as saved
from tests.test_hosts import build

JOB = {"SLURM_JOB_ID": "77", "SLURM_JOB_GID": str(os.getgid()), "SLURMD_NODENAME": "n1", "SLURM_JOB_PARTITION": "gpu"}
HEAVY = [
    *("click", "boto3", "botocore", "psutil", "pyslurm", "rich", "ClusterShell", "jinja2"),
    *("dataclasses", "inspect", "logging", "asyncio", "concurrent.futures", "subprocess"),
    *("hashlib", "shutil", "argparse", "importlib.resources"),
]
READERS = ["tomllib", "typing", "datetime", "_strptime", "locale"]  # of TOML and of dates
Write = Callable[..., Path]


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A healthy p5, but for 16 of its 32 EFA devices."""
    root = tmp_path / "machine"
    saved.write(str(root), efa=16)
    return root


def run(tmp_path: Path, *words: str, name: str = "prolog", policy: str = "", **env: str) -> tuple[str, str]:
    """The hook as the script starts it; returns its stdout and stderr."""
    path = tmp_path / "policy.toml"
    path.write_text(policy)
    path.chmod(0o644)
    standard = ["--root", str(tmp_path / "machine"), "--results", str(tmp_path / "results"), "--policy", str(path)]
    done = subprocess.run(
        [sys.executable, "-I", "-m", "hpslurm.hooks", name, *standard, *words],
        env={**JOB, **env},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert 0 == done.returncode
    return done.stdout, done.stderr


def record(tmp_path: Path, name: str = "prolog") -> list[dict[str, object]]:
    text = (tmp_path / f"results/jobs/77/n1.{name}.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def found(tmp_path: Path) -> list[object]:
    return [line["id"] for line in record(tmp_path) if line["type"] == "finding"]


def test_a_finding_is_recorded_and_the_word_is_ok(tmp_path: Path, machine: Path) -> None:
    assert "ok\n" == run(tmp_path)[0]
    assert ["efa-missing"] == found(tmp_path)
    first, *_, last = record(tmp_path)
    assert ("run", "n1", "i-0123456789abcdef0", 77) == (first["type"], first["node"], first["instance"], first["job"])
    assert "end" == last["type"]


def test_a_name_service_that_gives_no_answer_costs_one_hook_its_time_and_not_the_next(
    tmp_path: Path, machine: Path, write: Write
) -> None:
    calls = tmp_path / "calls"
    for saved_answer in (machine / "commands").glob("getent*"):
        saved_answer.unlink()
    write("machine/usr/bin/getent", f"#!/bin/sh\necho asked >> {calls}\nexec sleep 1000\n", 0o755)
    for words in ("did not answer within", "getent failed or was late", "getent failed or was late"):
        assert "ok\n" == run(tmp_path)[0]
        (names,) = (line for line in record(tmp_path) if line.get("probe") == "names")
        assert "unknown" == names["outcome"] and words in str(names["note"])
    assert ["asked"] == calls.read_text().splitlines()


def test_the_gate_says_drain_for_a_rule_that_the_site_names(tmp_path: Path, machine: Path) -> None:
    out, err = run(tmp_path, policy="gate = ['efa-missing']")
    assert "drain\n" == out
    assert "gate: efa-missing: 16 of 32" in err
    assert ["efa-missing"] == record(tmp_path)[-1]["gated"]


def test_the_gate_holds_for_the_prolog_only(tmp_path: Path, machine: Path) -> None:
    assert "ok\n" == run(tmp_path, name="epilog", policy="gate = ['efa-missing']")[0]


def test_a_muted_finding_is_recorded_and_does_not_gate(tmp_path: Path, machine: Path) -> None:
    policy = "gate = ['efa-missing']\n[[mutes]]\nrule = 'efa-*'\nreason = 'RMA open'\n"
    assert "ok\n" == run(tmp_path, policy=policy)[0]
    assert ["RMA open"] == [line["muted"] for line in record(tmp_path) if line["type"] == "finding"]


def test_a_setting_does_not_gate_even_when_named(tmp_path: Path, machine: Path, write: Write) -> None:
    write("machine/proc/10/comm", "slurmd\n")
    write("machine/proc/10/stat", "10 (slurmd) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 1 0 0\n")
    write("machine/proc/10/limits", "Max locked memory         65536                65536                bytes\n")
    out, err = run(tmp_path, policy="gate = ['memlock-default']")
    assert "memlock-default" in found(tmp_path)
    assert "ok\n" == out
    assert "memlock-default is named in gate, but is not about hardware" in err


def test_what_could_not_be_looked_at_does_not_gate(tmp_path: Path, machine: Path) -> None:
    shutil.rmtree(machine / "sys/devices")
    out, err = run(tmp_path, policy="gate = ['efa-missing']")
    assert "ok\n" == out
    assert "efa not checked: instance type not known" in err
    assert "unknown" in [line.get("outcome") for line in record(tmp_path) if line.get("probe") == "efa"]


def test_the_cap_counts_the_nodes_gated_within_the_hour(tmp_path: Path, machine: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    policy = f"gate = ['efa-missing']\ngate_per_hour = 2\nresults_shared = '{shared}'\n"
    words = [run(tmp_path, policy=policy, SLURMD_NODENAME=node)[0] for node in ("n1", "n2", "n3", "n1")]
    assert ["drain\n", "drain\n", "ok\n", "drain\n"] == words
    old = time.time() - 3700
    for mark in (shared / "gate").iterdir():
        os.utime(mark, (old, old))
    assert "drain\n" == run(tmp_path, policy=policy, SLURMD_NODENAME="n3")[0]


def test_a_cap_that_cannot_be_read_does_not_gate(tmp_path: Path, machine: Path) -> None:
    policy = f"gate = ['efa-missing']\nresults_shared = '{tmp_path}/nowhere'\n"
    out, err = run(tmp_path, policy=policy)
    assert "ok\n" == out
    assert "not gated: cap unknown" in err


def test_a_mute_past_its_date_is_not_said_with_every_job_and_a_mistake_is(tmp_path: Path, machine: Path) -> None:
    expired = '[[mutes]]\nrule = "efa-*"\nreason = "r"\nuntil = "2000-01-01"\n'
    assert ("ok\n", "") == run(tmp_path, policy=expired)
    assert (["efa-missing"], False) == (found(tmp_path), "policy_problems" in record(tmp_path)[0])
    assert "unknown key 'memlok_min'" in run(tmp_path, policy="memlok_min = 1\n" + expired)[1]


def test_a_plain_policy_costs_no_reader_of_toml_and_no_calendar(tmp_path: Path, machine: Path) -> None:
    text = 'gate = ["gpu-lost"]\n[[mutes]]\nrule = "mtu-*"\nreason = "r"\nuntil = "2999-01-31"\n'
    text += '[nodes."n[1-64],ip-10-*"]\nmounts = ["/fsx lustre"]\nmodules = ["efa"]\nmemory_min = 1000\n'
    (tmp_path / "policy.toml").write_text(text)
    code = (
        "import sys; from hpslurm import hooks;"
        f"hooks.hook('prolog', ['--root', {str(machine)!r}, '--results', {str(tmp_path / 'results')!r},"
        f" '--policy', {str(tmp_path / 'policy.toml')!r}], {JOB!r});"
        f"print([name for name in {HEAVY + READERS!r} if name in sys.modules])"
    )
    # without an environment, as from Slurm; a measured run (make coverage) would import its own otherwise
    done = subprocess.run([sys.executable, "-I", "-c", code], env={}, capture_output=True, text=True, timeout=60)
    assert ("[]", "") == (done.stdout.strip(), done.stderr)


def test_a_broken_policy_is_said_and_the_look_goes_on(tmp_path: Path, machine: Path) -> None:
    out, err = run(tmp_path, policy="gate = [\n")
    assert ("ok\n", ["efa-missing"]) == (out, found(tmp_path))
    assert "policy.toml ignored, defaults used" in err
    assert "policy_problems" in record(tmp_path)[0]


def test_other_partitions_are_left_alone(tmp_path: Path, machine: Path) -> None:
    assert "ok\n" == run(tmp_path, policy="partitions = ['cpu']")[0]
    assert not (tmp_path / "results").exists()
    assert "ok\n" == run(tmp_path, policy="partitions = ['cpu', 'gpu']")[0]
    assert (tmp_path / "results").exists()


@pytest.mark.parametrize(
    ("conf", "looks"),
    [("PartitionName=gpu Nodes=n[2-9]\n", False), ("PartitionName=gpu Nodes=n[1-9]\n", True), (None, True)],
)
def test_the_health_check_leaves_nodes_of_other_partitions_alone(
    tmp_path: Path, machine: Path, conf: str | None, looks: bool
) -> None:
    if conf:
        (machine / "etc/slurm").mkdir(parents=True)
        (machine / "etc/slurm/slurm.conf").write_text(conf)
    assert "ok\n" == run(tmp_path, name="health", policy="partitions = ['gpu']", SLURM_JOB_PARTITION="")[0]
    assert looks is (tmp_path / "results/nodes/n1.health.jsonl").exists()


@pytest.mark.parametrize("words", [["--bogus", "1"], ["--limit", "soon"], ["stray"]])
def test_a_wrong_word_in_the_script_is_said_and_the_job_goes_on(
    tmp_path: Path, machine: Path, words: list[str]
) -> None:
    out, err = run(tmp_path, *words)
    assert "ok\n" == out
    assert words[-1] in err


def test_a_results_folder_that_cannot_be_made_does_not_stop_the_look(tmp_path: Path, machine: Path) -> None:
    (tmp_path / "results").write_text("a file")
    out, err = run(tmp_path, policy="gate = ['efa-missing']")
    assert "drain\n" == out
    assert "no record in" in err


@pytest.mark.parametrize("job", ["../../etc", "77; reboot", "", "7" * 40])
def test_a_strange_job_id_reaches_no_path(tmp_path: Path, machine: Path, job: str) -> None:
    assert "ok\n" == run(tmp_path, SLURM_JOB_ID=job)[0]
    assert [] == [path for path in tmp_path.rglob("*.jsonl") if "jobs" in path.parts]


def test_the_epilog_records_how_the_job_ended(tmp_path: Path, machine: Path) -> None:
    run(tmp_path, name="epilog", SLURM_JOB_EXIT_CODE2="7:0", SLURM_JOB_DERIVED_EC="1024")
    assert ("7:0", "1024") == tuple(record(tmp_path, "epilog")[0][key] for key in ("exit_code", "derived_exit_code"))


def test_a_hook_imports_small_modules_only() -> None:
    names = " ".join({*hooks.PROLOG, *hooks.EPILOG, *hooks.HEALTH})
    code = f"""
import sys, importlib
import hpslurm.hooks
for name in {names.split()!r}:
    importlib.import_module("hpslurm." + name)
print([name for name in {HEAVY!r} if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-I", "-c", code], env={}, capture_output=True, text=True, check=True)
    assert "[]\n" == done.stdout


def test_the_instance_table_stays_small() -> None:
    table = Path(hooks.__file__).parent / "tables/instances.toml"
    assert table.stat().st_size < 8192


def test_the_instance_table_is_read_as_a_toml_reader_reads_it() -> None:
    rows = toml.table("instances")
    assert 40 < len(rows)
    assert {row["type"]: instance.Expected(row.get("gpus"), row.get("efa")) for row in rows} == instance.table()


def test_the_prolog_leaves_a_line_for_the_jobs_output_and_takes_it_away_again(tmp_path: Path, machine: Path) -> None:
    run(tmp_path)
    line = tmp_path / "results/jobs/77/n1.told"
    assert "hpslurm: n1 efa-missing" in line.read_text()
    shutil.rmtree(machine)
    saved.write(str(machine))
    run(tmp_path)
    assert not line.exists()


def count(machine: Path, counter: str, value: int) -> None:
    for path in machine.glob(f"sys/class/infiniband/*/ports/1/hw_counters/{counter}"):
        saved.put(
            str(machine), str(path.relative_to(machine)), f"{value}\n"
        )  # in place it would change the case itself


def grown_result(tmp_path: Path) -> dict[str, object]:
    return next(line for line in record(tmp_path, "epilog") if line.get("probe") == "efa_counters_grown")


def test_the_epilog_finds_what_counters_gained_during_the_job(tmp_path: Path, machine: Path) -> None:
    count(machine, "rdma_read_wr_err", 5)
    run(tmp_path)
    count(machine, "rdma_read_wr_err", 9)
    run(tmp_path, name="epilog")
    assert "fail" == grown_result(tmp_path)["outcome"]
    assert "efa-errors" in [line["id"] for line in record(tmp_path, "epilog") if line["type"] == "finding"]


def test_old_errors_are_no_finding_of_this_job(tmp_path: Path, machine: Path) -> None:
    count(machine, "rdma_read_wr_err", 5)
    run(tmp_path)
    run(tmp_path, name="epilog")
    assert "pass" == grown_result(tmp_path)["outcome"]


def test_without_this_starts_prolog_the_gain_is_unknown(tmp_path: Path, machine: Path) -> None:
    run(tmp_path, name="epilog")
    assert ("unknown", True) == (grown_result(tmp_path)["outcome"], "does not exist" in str(grown_result(tmp_path)))
    run(tmp_path, SLURM_JOB_RESTART_COUNT="0")
    run(tmp_path, name="epilog", SLURM_JOB_RESTART_COUNT="0")
    run(tmp_path, name="epilog", SLURM_JOB_RESTART_COUNT="1")
    assert ("unknown", True) == (grown_result(tmp_path)["outcome"], "another restart" in str(grown_result(tmp_path)))


def test_the_epilog_of_a_requeued_start_finds_its_prolog(tmp_path: Path, machine: Path) -> None:
    run(tmp_path, SLURM_JOB_RESTART_COUNT="0")
    count(machine, "rdma_read_wr_err", 9)
    run(tmp_path, name="epilog", SLURM_JOB_RESTART_COUNT="1")  # Slurm counts before the epilog
    assert "fail" == grown_result(tmp_path)["outcome"]
    run(tmp_path, name="epilog", SLURM_JOB_RESTART_COUNT="2")
    assert "another restart" in str(grown_result(tmp_path))


def output_of_a_job(tmp_path: Path, text: str) -> dict[str, str]:
    (tmp_path / "slurm-77.out").write_text(text)
    about = {"SLURM_JOB_USER": "", "SLURM_JOB_UID": str(os.getuid()), "SLURM_JOB_WORK_DIR": str(tmp_path)}
    return {**about, "SLURM_JOB_NODELIST": "n1", "SLURM_JOB_STDOUT": "slurm-%j.out"}


def test_what_the_jobs_output_tells_is_added_before_the_last_line(tmp_path: Path, machine: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir(mode=0o755)
    env = output_of_a_job(tmp_path, "[rank3]: torch.OutOfMemoryError: CUDA out of memory.\n")
    _, err = run(tmp_path, name="epilog", policy=f"results_shared = '{shared}'", **env)
    kinds = [line["type"] for line in record(tmp_path, "epilog")]
    assert ("run", "end", 1) == (kinds[0], kinds[-1], kinds.count("end")), err
    assert "event" in kinds, err
    assert (shared / "jobs/77/n1.epilog.jsonl").read_text() == (
        tmp_path / "results/jobs/77/n1.epilog.jsonl"
    ).read_text()
    assert [] == list((tmp_path / "results").rglob("*.part"))


def index(folder: Path) -> list[dict[str, Any]]:
    """What the epilog of n1 kept in the index of diagnoses, this month."""
    return [json.loads(line) for path in folder.glob("diagnoses/*/n1.jsonl") for line in path.read_text().splitlines()]


def test_what_the_job_failed_of_is_kept_in_the_index_of_the_shared_folder(tmp_path: Path, machine: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir(mode=0o755)
    env = output_of_a_job(tmp_path, "[rank3]: torch.OutOfMemoryError: CUDA out of memory.\n")
    word, err = run(tmp_path, name="epilog", policy=f"results_shared = '{shared}'", SLURM_JOB_EXIT_CODE2="1:0", **env)
    assert ("ok", False) == (word.strip(), "not kept" in err)
    (line,) = index(shared)
    assert (77, "gpu_oom", "1:0", "n1", []) == tuple(
        line[key] for key in ("job", "cause", "exit_code", "nodes", "findings")
    )
    assert [] == index(tmp_path / "results")


def test_hardware_that_went_during_the_job_is_kept_and_what_went_before_is_not(tmp_path: Path, machine: Path) -> None:
    run(tmp_path, name="epilog")
    assert [] == index(tmp_path / "results")  # without a prolog nobody knows when it came
    run(tmp_path)
    run(tmp_path, name="epilog")
    assert [] == index(tmp_path / "results")
    shutil.rmtree(machine)
    saved.write(str(machine), efa=32)
    run(tmp_path)
    shutil.rmtree(machine)
    saved.write(str(machine), efa=31)
    run(tmp_path, name="epilog")
    (line,) = index(tmp_path / "results")
    assert ["efa-missing"] == [finding["id"] for finding in line["findings"]]


def test_an_index_that_cannot_be_written_is_said_and_the_word_is_ok(tmp_path: Path, machine: Path) -> None:
    (tmp_path / "results").mkdir()
    (tmp_path / "results/diagnoses").symlink_to("/tmp")
    env = output_of_a_job(tmp_path, "[rank3]: torch.OutOfMemoryError: CUDA out of memory.\n")
    word, err = run(tmp_path, name="epilog", **env)
    assert "ok" == word.strip()
    assert "diagnosis not kept" in err


def test_a_shared_folder_that_took_no_record_is_not_asked_again_for_the_index(tmp_path: Path, machine: Path) -> None:
    env = output_of_a_job(tmp_path, "[rank3]: torch.OutOfMemoryError: CUDA out of memory.\n")
    word, err = run(tmp_path, name="epilog", policy=f"results_shared = '{tmp_path}/none'", **env)
    assert "ok" == word.strip()
    assert "record not copied" in err
    assert "diagnosis" not in err


def test_a_job_output_that_takes_all_the_time_costs_no_record(tmp_path: Path, machine: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir(mode=0o755)
    lines = ("boto" * 1000 + "\n", "\n" * 1000, "oom-kill:constraint=" + "a,task_memcg=" * 300, "munge" * 9000)
    began = time.monotonic()
    env = output_of_a_job(tmp_path, "".join(lines) * 60)
    _, err = run(tmp_path, "--limit", "4", name="epilog", policy=f"results_shared = '{shared}'", **env)
    for folder in (shared, tmp_path / "results"):
        text = (folder / "jobs/77/n1.epilog.jsonl").read_text()
        assert "end" == json.loads(text.splitlines()[-1])["type"], err
    assert time.monotonic() - began < 12  # four, and what a busy machine adds


def test_counters_that_were_reset_are_unknown(tmp_path: Path, machine: Path) -> None:
    count(machine, "rdma_read_wr_err", 5)
    run(tmp_path)
    count(machine, "rdma_read_wr_err", 0)
    run(tmp_path, name="epilog")
    assert "unknown" == grown_result(tmp_path)["outcome"]


def outcomes(tmp_path: Path, name: str = "prolog") -> dict[object, tuple[object, object]]:
    lines = [line for line in record(tmp_path, name) if line["type"] == "result"]
    return {line["probe"]: (line["outcome"], line["note"]) for line in lines}


OFF = ("skip", "switched off by the site's policy")


@pytest.mark.parametrize(("word", "also"), [("prolog.efa", False), ("efa", True)])
def test_a_probe_that_the_site_switched_off_is_left_out_and_that_is_said(
    tmp_path: Path, machine: Path, word: str, also: bool
) -> None:
    policy = f"probes_off = ['{word}']\n"
    assert "ok\n" == run(tmp_path, policy=policy)[0]
    run(tmp_path, name="epilog", policy=policy)
    assert OFF == outcomes(tmp_path)["efa"]
    assert "efa-missing" not in found(tmp_path)
    assert also == (OFF == outcomes(tmp_path, "epilog")["efa"])


def test_a_probe_that_a_hook_leaves_out_by_default_can_be_switched_on(tmp_path: Path, machine: Path) -> None:
    run(tmp_path)
    assert "dstate" not in outcomes(tmp_path)
    run(tmp_path, policy="probes_on = ['prolog.dstate']\n")
    assert "dstate" in outcomes(tmp_path)


def test_a_switch_for_a_probe_that_does_not_exist_is_reported_and_the_rest_holds(tmp_path: Path, machine: Path) -> None:
    out, err = run(tmp_path, policy="probes_off = ['efaa', 'prologue.efa', 'prolog.shm']\n")
    assert "ok\n" == out
    assert "probes_off names 'efaa', which is not a probe" in err
    assert "probes_off names 'prologue.efa'" in err
    assert 2 == len(record(tmp_path)[0]["policy_problems"])  # type: ignore[arg-type]
    assert OFF == outcomes(tmp_path)["shm"]
    assert "efa-missing" in found(tmp_path)


def test_a_gate_that_can_never_close_is_reported(tmp_path: Path, machine: Path) -> None:
    out, err = run(tmp_path, policy="gate = ['efa-mising', 'memlock-low', 'xid-79', 'efa-missing']\n")
    assert "drain\n" == out
    assert ["'efa-mising'", "'memlock-low'"] == [
        line.split()[4].rstrip(",") for line in err.splitlines() if "gate names" in line
    ]


def activity(tmp_path: Path) -> tuple[Path, dict[str, Any]]:
    """The record of the newest health check, and what it says of the job on the GPUs."""
    path = tmp_path / "results/nodes/n1.health.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    (result,) = [line for line in lines if line["type"] == "result" and line["probe"] == "job_activity"]
    return path, result["facts"]


def test_the_health_check_says_since_when_a_job_only_waits(tmp_path: Path, write: Write) -> None:
    build("p5-healthy", tmp_path / "machine")
    write("machine/proc/9100/cgroup", "0::/system.slice/slurmstepd.scope/job_4711/step_0\n")
    snapshot = json.loads((tmp_path / "machine/gpus.json").read_text())
    (tmp_path / "machine/gpus.json").unlink()  # a link to the saved machine's own
    snapshot["all"] |= {"activity": [100, 180_000, 700_000, 60_000, 1980], "processes": [9100]}
    write("machine/gpus.json", json.dumps(snapshot))
    run(tmp_path, name="health")
    path, facts = activity(tmp_path)
    assert (8, 8, "unknown") == tuple(facts["jobs"]["4711"][name] for name in ("gpus", "waiting", "doing"))
    earlier = facts["time"] - 600
    path.write_text(path.read_text().replace(f'"time":{facts["time"]}', f'"time":{earlier}'))
    run(tmp_path, name="health")
    job = activity(tmp_path)[1]["jobs"]["4711"]
    assert ("waits", earlier) == (job["doing"], job["since"])


def test_twenty_thousand_segments_hold_no_gate_up(tmp_path: Path, machine: Path) -> None:
    folder = tmp_path / "machine/dev/shm"
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(20_000):
        os.close(os.open(folder / f"nccl-{number:06}", os.O_CREAT))
    began = time.monotonic()
    out, _ = run(tmp_path, policy="gate = ['efa-missing']")
    assert "drain\n" == out
    size = (tmp_path / "results/jobs/77/n1.prolog.jsonl").stat().st_size
    assert size < 200_000
    (facts,) = [line["facts"] for line in record(tmp_path) if line.get("probe") == "shm_stale"]
    assert facts is None or (50, True) == (len(facts["stale"]), facts["more"])  # type: ignore[call-overload, index]
    order = [line["probe"] for line in record(tmp_path) if line["type"] == "result"]
    assert order.index("shm_stale") > order.index("gpu_recovery")
    assert time.monotonic() - began < 20
