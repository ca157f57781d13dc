"""``hpslurm metrics`` on records that real hooks left; promtool says whether Prometheus would take it."""

from __future__ import annotations

import os
import re
import shlex
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from prometheus_client.parser import text_string_to_metric_families

from hpslurm.cli import metrics as command
from hpslurm.core.policy import Policy
from hpslurm.metrics import FAMILIES
from tests.lab.prepare import promtool
from tests.test_hosts import build

TOP = Path(__file__).parents[2]
ALERTS = TOP / "docs/alerts.yml"
ADMIN = (TOP / "docs/admin.md").read_text(encoding="utf-8")
HPSLURM = [sys.executable, "-c", "from hpslurm.cli import main; main()"]


def run(*words: object, umask: int = 0o022, **env: str) -> subprocess.CompletedProcess[str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("SLURM")}
    return subprocess.run(
        [*HPSLURM, "metrics", *(str(word) for word in words)],
        env={**kept, "SLURMD_NODENAME": "n1", **env},
        cwd="/",
        umask=umask,
        capture_output=True,
        text=True,
        timeout=60,
    )


def hook(results: Path, machine: Path, name: str = "health", node: str = "n1", policy: str = "") -> None:
    """The real hook, on a saved machine."""
    path = results.parent / "policy.toml"
    path.write_text(policy)
    path.chmod(0o644)
    job = {"SLURM_JOB_ID": "77", "SLURM_JOB_GID": str(os.getgid()), "SLURMD_NODENAME": node}
    words = ["--root", machine, "--results", results, "--policy", path]
    done = subprocess.run([sys.executable, "-I", "-m", "hpslurm.hooks", name, *words], env=job, capture_output=True)
    assert 0 == done.returncode, done.stderr


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """16 of its 32 EFA devices are missing, and nobody may ask the firewall."""
    path = tmp_path_factory.mktemp("machine")
    build("p5-efa-missing", path)
    build("p5-firewall-not-allowed", path)
    for one in sorted((path / "sys/class/infiniband").iterdir())[16:]:
        subprocess.run(["rm", "-r", one], check=True)
    return path


@pytest.fixture
def results(tmp_path: Path, machine: Path) -> Path:
    """What a prolog, an epilog and a health check of this machine left."""
    folder = tmp_path / "results"
    for name in ("prolog", "epilog", "health"):
        hook(folder, machine, name)
    return folder


@pytest.fixture
def ask() -> Callable[..., subprocess.CompletedProcess[str]]:
    """promtool with its words, and a text for its standard input."""
    program = promtool()
    if not program:
        pytest.skip("needs promtool (`make test` takes it out of Debian's package prometheus)")

    def asked(*words: object, text: str = "") -> subprocess.CompletedProcess[str]:
        line = [program, *(str(word) for word in words)]
        return subprocess.run(line, input=text, capture_output=True, text=True, timeout=60)

    return asked


def series(text: str) -> dict[str, list[dict[str, str]]]:
    """Labels of all series that are not 0, by metric."""
    found: dict[str, list[dict[str, str]]] = {}
    for family in text_string_to_metric_families(text):
        found[family.name] = [one.labels for one in family.samples if one.value]
    return found


# the text


def test_promtool_takes_what_is_printed_of_real_records(
    results: Path, ask: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    part = results / "jobs/77/n1.epilog.jsonl.part"
    part.write_text("")
    os.utime(part, (1, 1))
    done = run("--results", results)
    assert (0, "") == (done.returncode, done.stderr)
    checked = ask("check", "metrics", text=done.stdout)
    assert (0, "", "") == (checked.returncode, checked.stdout, checked.stderr)
    of_a_job = {"job_stalled_seconds"}  # no job waits on the GPUs of this machine: tests/test_metrics.py has one
    assert {f"hpslurm_{name}" for name in FAMILIES.keys() - of_a_job} == set(series(done.stdout))


def test_promtool_would_say_so(ask: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    assert 0 != ask("check", "metrics", text="hpslurm_x 1\nhpslurm_x 2\n").returncode


def test_what_the_hooks_found_and_what_they_could_not_look_at_is_there(results: Path) -> None:
    found = series(run("--results", results).stdout)
    rules = {(one["hook"], one["rule"], one["muted"]) for one in found["hpslurm_finding"]}
    assert {(name, "efa-missing", "false") for name in ("prolog", "epilog", "health")} <= rules
    assert {"firewall"} == {one["probe"] for one in found["hpslurm_not_checked"]} & {"firewall"}
    assert {"complete"} == {one["state"] for one in found["hpslurm_record"]}
    assert [{"node": "n1", "hook": "health"}] == found["hpslurm_record_newest"]


def test_the_policys_mutes_and_gate_are_told(tmp_path: Path, machine: Path) -> None:
    hook(tmp_path / "results", machine, "prolog", policy="gate = ['efa-missing']\nnonsense = 1\n")
    text = run("--results", tmp_path / "results").stdout
    assert 'hpslurm_gated{node="n1"} 1.0' in text.splitlines()
    assert 'hpslurm_policy_problems{hook="prolog",node="n1"} 1.0' in text.splitlines()
    policy = tmp_path / "mute.toml"
    policy.write_text("[[mutes]]\nrule = 'efa-*'\nreason = 'RMA of \"rdmap0s1\"'\n")
    policy.chmod(0o644)
    text = run("--results", tmp_path / "results", "--policy", policy).stdout
    assert [("efa-missing", "true")] == [
        (one["rule"], one["muted"]) for one in series(text)["hpslurm_finding"] if "efa" in one["rule"]
    ]
    assert "RMA" not in text


def test_a_shared_folder_has_all_nodes_and_comes_from_the_policy(tmp_path: Path, machine: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    for node in ("n1", "n2"):
        hook(tmp_path / node, machine, node=node, policy=f"results_shared = '{shared}'\n")
    done = run("--shared", "--policy", tmp_path / "policy.toml")
    assert (0, "") == (done.returncode, done.stderr)
    assert {"n1", "n2"} == {one["node"] for one in series(done.stdout)["hpslurm_finding"]}
    assert "hpslurm_nodes 2.0" in done.stdout.splitlines()
    assert "hpslurm_cut_off" not in done.stdout


def test_without_any_record_the_node_is_named(tmp_path: Path) -> None:
    done = run("--results", tmp_path / "none")
    assert (0, True) == (done.returncode, "no hook has left a record there" in done.stderr)
    assert 'hpslurm_record{hook="health",node="n1",state="missing"} 1.0' in done.stdout.splitlines()


def test_an_empty_shared_folder_has_no_nodes_and_names_none(tmp_path: Path) -> None:
    done = run("--shared", "--results", tmp_path)
    assert (0, True) == (done.returncode, "hpslurm_nodes 0.0" in done.stdout.splitlines())
    assert 'node="' not in done.stdout


def test_a_foreign_name_is_no_control_of_the_terminal(tmp_path: Path) -> None:
    (tmp_path / "nodes").mkdir()
    (tmp_path / "nodes/n\x1b[31m.health.jsonl").symlink_to("/dev/null")
    done = run("--results", tmp_path)
    assert 0 == done.returncode
    assert "[WARN]" in done.stderr
    assert "\x1b" not in done.stderr + done.stdout


def test_a_broken_record_is_named_with_its_line_and_the_others_are_shown(results: Path) -> None:
    broken = results / "nodes/n1.health.jsonl"
    broken.unlink()  # it may be linked to a job's
    broken.write_text('{"type":"run"}\n\x1b[31m nonsense\n')
    done = run("--results", results)
    assert 0 == done.returncode
    assert f"[WARN] {broken} line 2: no line of a record, passed over" in done.stderr
    assert {"prolog", "epilog"} == {one["hook"] for one in series(done.stdout)["hpslurm_finding"]}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_record_that_is_not_roots_is_refused_and_that_is_a_metric(results: Path) -> None:
    os.chown(results / "nodes/n1.health.jsonl", 4242, 4242)
    done = run("--results", results)
    assert (0, True) == (done.returncode, "n1.health.jsonl: refused" in done.stderr)
    states = {one["hook"]: one["state"] for one in series(done.stdout)["hpslurm_record"]}
    assert {"prolog": "complete", "epilog": "complete", "health": "unreadable"} == states


# the file


def test_the_file_is_for_all_to_read_whatever_the_umask(results: Path, tmp_path: Path) -> None:
    path = tmp_path / "hpslurm.prom"
    done = run("--results", results, "--output", path, umask=0o077)
    assert (0, "", "") == (done.returncode, done.stdout, done.stderr)
    assert 0o644 == stat.S_IMODE(path.stat().st_mode)
    assert run("--results", results).stdout == path.read_text()
    assert {"hpslurm.prom", "policy.toml", "results"} == set(os.listdir(tmp_path))


def test_a_name_that_node_exporter_passes_over_is_written_with_a_warning(results: Path, tmp_path: Path) -> None:
    done = run("--results", results, "--output", tmp_path / "hpslurm.txt")
    assert (0, True) == (done.returncode, "does not end in .prom" in done.stderr)
    assert (tmp_path / "hpslurm.txt").exists()


def test_a_folder_that_is_not_there_is_told_with_what_it_should_be(results: Path, tmp_path: Path) -> None:
    done = run("--results", results, "--output", tmp_path / "none/hpslurm.prom")
    assert (1, "") == (done.returncode, done.stdout)
    assert f"could not write {tmp_path}/none/hpslurm.prom: No such file" in done.stderr
    assert "--collector.textfile.directory" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_who_may_not_write_there_is_told_and_the_old_file_stays(results: Path, tmp_path: Path) -> None:
    for path in (tmp_path, *tmp_path.parents):
        if path.stat().st_uid == 0 and not path.stat().st_mode & 0o001:
            path.chmod(0o711)
    target = tmp_path / "out"
    target.mkdir()
    (target / "hpslurm.prom").write_text("old")
    (results / "nodes/n1.health.jsonl").chmod(0o600)
    words = ["--results", str(results), "--output", str(target / "hpslurm.prom")]
    CliRunner().invoke(command.command, words[:2])  # brings what is imported late: the other user may not read it
    os.seteuid(65534)
    try:
        done = CliRunner().invoke(command.command, words)
    finally:
        os.seteuid(0)
    assert (1, "old") == (done.exit_code, (target / "hpslurm.prom").read_text())
    assert f"could not write {target}/hpslurm.prom: Permission denied" in done.stderr
    assert f"{results}/nodes/n1.health.jsonl: Permission denied" in done.stderr


def test_what_is_no_regular_file_is_left_as_it_is(results: Path, tmp_path: Path) -> None:
    victim, link, pipe = tmp_path / "victim", tmp_path / "link.prom", tmp_path / "pipe.prom"
    victim.write_text("mine")
    link.symlink_to(victim)
    os.mkfifo(pipe)
    for path in (link, pipe, tmp_path):
        done = run("--results", results, "--output", path)
        assert (1, True) == (done.returncode, "not a regular file, left as it is" in done.stderr), path
    assert ("mine", True, True) == (victim.read_text(), link.is_symlink(), stat.S_ISFIFO(pipe.lstat().st_mode))


# what cannot be done


def test_a_missing_package_is_told_with_the_line_that_brings_it(results: Path, tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    (tmp_path / "none/prometheus_client.py").write_text("raise ImportError\n")
    done = run("--results", results, PYTHONPATH=str(tmp_path / "none"))
    assert (1, "") == (done.returncode, done.stdout)
    assert f"{sys.executable} -m pip install '{command.NEEDED}'" in done.stderr
    assert "Traceback" not in done.stderr
    assert f'"{command.NEEDED}"' in (TOP / "pyproject.toml").read_text()


def test_a_shared_folder_that_is_not_mounted_writes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "hpslurm.prom"
    path.write_text("old")
    done = run("--shared", "--results", tmp_path / "none", "--output", path)
    assert (1, "old") == (done.returncode, path.read_text())
    assert f"{tmp_path}/none: No such file or directory; nothing was written" in done.stderr


def test_a_shared_folder_that_the_policy_does_not_name_is_a_wrong_command_line(tmp_path: Path) -> None:
    done = run("--shared", "--policy", tmp_path / "none.toml")
    assert (2, True) == (done.returncode, "--shared needs results_shared" in done.stderr)


def test_a_results_folder_of_anybody_is_refused(results: Path) -> None:
    results.chmod(0o777)
    done = run("--results", results)
    assert (1, "") == (done.returncode, done.stdout)
    assert f"{results}: group or others may write it; nothing was written" in done.stderr


# the docs


def test_the_admin_guide_has_every_metric_with_its_labels() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| ([^|]*) \|", ADMIN.partition("\n## Metrics\n")[2], re.M))
    own = {name: [one for one in labels if one not in ("node", "hook")] for name, (_, labels) in FAMILIES.items()}
    assert own == {name: re.findall(r"`(\w+)`", rows.get(name, "missing")) for name in FAMILIES}
    without_hook = [name for name, (_, labels) in FAMILIES.items() if "node" in labels and "hook" not in labels]
    assert (["build_info", "nodes", "job_stalled_seconds"], ["gated"]) == (
        [name for name, (_, labels) in FAMILIES.items() if "node" not in labels],
        without_hook,
    )


@pytest.mark.parametrize("start", ["ExecStart=", "* * * * * root "])
def test_the_lines_of_unit_and_cron_work_as_printed(results: Path, tmp_path: Path, start: str) -> None:
    (line,) = re.findall(rf"^    {re.escape(start)}(.*)$", ADMIN, re.M)
    program, *words = shlex.split(line)
    assert "/opt/hpslurm/bin/hpslurm" == program
    folder = "/var/lib/node_exporter/textfile_collector"
    words = [word.replace(folder, str(tmp_path)) for word in words]
    policy = tmp_path / "site.toml"
    policy.write_text(f"results = '{results}'\n")
    policy.chmod(0o644)
    done = subprocess.run([*HPSLURM, *words, "--policy", policy], cwd="/", capture_output=True, text=True)
    assert (0, "", "") == (done.returncode, done.stdout, done.stderr)
    assert "hpslurm_finding{" in (tmp_path / "hpslurm.prom").read_text()


def test_promtool_takes_the_alerts(ask: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    done = ask("check", "rules", ALERTS)
    assert 0 == done.returncode, done.stdout + done.stderr


def test_every_alert_fires_where_it_should_and_stays_silent_beside(
    ask: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    done = ask("test", "rules", TOP / "tests/alerts.yml")
    assert 0 == done.returncode, done.stdout + done.stderr


def test_every_alert_is_tried_and_asks_for_metrics_that_exist() -> None:
    text, tried = ALERTS.read_text(), (TOP / "tests/alerts.yml").read_text()
    alerts = set(re.findall(r"- alert: (\w+)", text))
    cases = re.findall(r"alertname: (\w+)\n\s+exp_alerts:(.*)", tried)
    assert alerts == {name for name, expected in cases if not expected.strip()}
    assert set() == set(re.findall(r"\bhpslurm_(\w+)", text)) - set(FAMILIES)


def test_the_alerts_follow_the_intervals_and_shares_of_the_site() -> None:
    text = ALERTS.read_text()
    (interval,) = re.findall(r"^#HealthCheckInterval=(\d+)$", (TOP / "slurm.conf.example").read_text(), re.M)
    assert {str(3 * int(interval))} == set(re.findall(r"time\(\) - \S+(?: \S+)?\)? > (\d+)$", text, re.M))
    assert [str(Policy.guard_share)] == re.findall(r"> ([\d.]+) \* scalar", text)
