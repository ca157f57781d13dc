"""A machine with a site's Slurm is refused, whatever shows it; one without is not."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.lab import guard
from tests.lab.lab import CHECKOUT

START = 12345
STAT = "{pid} (x) S {parent} 1 1 0 -1 4194560 100 0 0 0 10 20 0 0 20 0 5 0 {start} 100000 1000\n"


@pytest.fixture
def machine(tmp_path):
    """A fresh Debian with its Slurm packages installed, and nothing of a site."""
    for folder in ("etc/slurm", "etc/munge", "opt", "proc/1"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "etc/slurm/plugstack.conf").write_text("")
    (tmp_path / "etc/munge/munge.key").write_text("x")
    process(tmp_path, 1, "systemd", "/sbin/init")
    return tmp_path


def process(machine, pid, name, *words, parent=1, start=START, env=""):
    folder = machine / f"proc/{pid}"
    folder.mkdir(exist_ok=True)
    (folder / "comm").write_text(f"{name}\n")
    (folder / "stat").write_text(STAT.format(pid=pid, parent=parent, start=start))
    (folder / "cmdline").write_text("\0".join(words) + "\0")
    (folder / "environ").write_text(env)


def record(machine, pid, start=START):
    (machine / "tmp/lab").mkdir(parents=True, exist_ok=True)
    procs = {"slurmd.n1": {"pid": pid, "start": start}}
    (machine / "tmp/lab/lab.json").write_text(json.dumps({"id": "abc", "procs": procs}))


def seen(machine, **env):
    return guard.signs(str(machine), env)


def test_debian_s_packages_alone_are_fine(machine):
    assert [] == seen(machine)


@pytest.mark.parametrize("path", ["/opt/sagemaker_cluster", "/opt/slurm"])
def test_a_folder_of_a_site_is_refused(machine, path):
    (machine / path[1:]).mkdir()
    assert [f"{path} exists"] == [line.split(":")[0] for line in seen(machine)]


@pytest.mark.parametrize("path", guard.CONFIGS)
def test_a_slurm_conf_is_refused(machine, path):
    (machine / path[1:]).parent.mkdir(parents=True, exist_ok=True)
    (machine / path[1:]).write_text("ClusterName=prod\n")
    assert [f"{path} exists"] == [line.split(":")[0] for line in seen(machine)]


def test_a_slurm_conf_that_the_environment_names_is_refused(machine):
    assert "SLURM_CONF names /fsx/slurm.conf" in seen(machine, SLURM_CONF="/fsx/slurm.conf")[0]


def test_a_slurm_conf_of_a_lab_in_the_environment_is_fine(machine):
    record(machine, 1)
    assert [] == seen(machine, SLURM_CONF="/tmp/lab/etc/slurm.conf")


@pytest.mark.parametrize("name", ["munged", "slurmd", "slurmctld", "slurmdbd"])
def test_a_daemon_that_no_lab_started_is_refused(machine, name):
    process(machine, 700, name, f"/usr/sbin/{name}", "-D")
    assert [f"{name} runs as process 700"] == [line[: len(name) + 20] for line in seen(machine)]


def test_a_daemon_is_known_by_its_program_where_it_renamed_itself(machine):
    process(machine, 700, "srvcn", "slurmctld: slurmscriptd")
    (machine / "proc/700/exe").symlink_to("/opt/other/sbin/slurmctld")
    assert ["slurmctld runs as process 700"] == [line.split(",")[0] for line in seen(machine)]


def test_munged_comes_with_what_to_do_when_it_was_only_installed(machine):
    process(machine, 700, "munged", "/usr/sbin/munged")
    assert "systemctl disable --now munge" in seen(machine)[0]


def test_a_daemon_that_a_lab_recorded_is_fine(machine):
    record(machine, 700)
    process(machine, 700, "slurmd", "/usr/sbin/slurmd", "-D", "-N", "n1", "-f", "/tmp/lab/etc/slurm.conf")
    process(machine, 701, "slurmd", "slurmd: child", parent=700)
    assert [] == seen(machine)


def test_munged_of_a_lab_is_known_by_its_socket(machine):
    record(machine, 700)
    process(machine, 700, "munged", "/usr/sbin/munged", "--socket=/tmp/lab/run/munge.sock")
    assert [] == seen(machine)


def test_a_daemon_that_only_names_a_lab_s_folder_is_refused(machine):
    record(machine, 699)
    process(machine, 700, "slurmd", "/usr/sbin/slurmd", "-f", "/tmp/lab/etc/slurm.conf")
    assert 1 == len(seen(machine))


def test_a_recorded_pid_that_another_process_uses_now_is_refused(machine):
    record(machine, 700, start=START - 1)
    process(machine, 700, "slurmd", "/usr/sbin/slurmd", "-f", "/tmp/lab/etc/slurm.conf")
    assert 1 == len(seen(machine))


def test_a_daemon_started_a_moment_ago_is_known_by_its_mark(machine):
    record(machine, 1, start=1)
    words = ("/usr/sbin/slurmd", "-f", "/tmp/lab/etc/slurm.conf")
    process(machine, 700, "slurmd", *words, env="HPSLURM_LAB=abc\0")
    assert [] == seen(machine)
    process(machine, 700, "slurmd", *words, env="HPSLURM_LAB=other\0")
    assert 1 == len(seen(machine))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a file that another user owns")
def test_a_record_that_another_user_wrote_proves_nothing(machine):
    record(machine, 700)
    os.chown(machine / "tmp/lab/lab.json", 65534, 65534)
    process(machine, 700, "slurmd", "/usr/sbin/slurmd", "-f", "/tmp/lab/etc/slurm.conf")
    assert (1 if os.geteuid() != 65534 else 0) == len(seen(machine))


def test_a_zombie_and_a_process_of_another_name_are_fine(machine):
    process(machine, 700, "slurmd", "")
    (machine / "proc/700/stat").write_text(STAT.format(pid=700, parent=1, start=1).replace(") S", ") Z"))
    process(machine, 701, "slurmstepd", "slurmstepd: [1.0]")
    assert [] == seen(machine)


def test_the_refusal_says_what_was_seen_and_what_to_do(machine):
    (machine / "opt/slurm").mkdir()
    text = guard.refusal(seen(machine))
    assert "  - /opt/slurm exists: a site's own Slurm\n" in text
    assert "nothing was touched" in text and "pytest -m 'not lab'" in text


def test_running_daemons_of_a_lab_do_not_stop_the_next_run(make_lab):
    lab = make_lab(nodes=1)
    lab.submit("--wrap", "sleep 60")
    assert [] == guard.signs(env={})


@pytest.mark.usefixtures("make_lab")
def test_a_real_munged_that_is_not_ours_is_refused(tmp_path):
    key = tmp_path / "key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o400)
    words = [f"--{name}={tmp_path}/{name}" for name in ("socket", "pid-file", "seed-file", "log-file")]
    daemon = subprocess.Popen(["/usr/sbin/munged", "--foreground", "--force", f"--key-file={key}", *words])
    try:
        guard_ = [sys.executable, os.path.join(CHECKOUT, "tests", "lab", "guard.py")]
        done = subprocess.run(guard_, capture_output=True, text=True, timeout=30)
        assert (1, True) == (done.returncode, f"munged runs as process {daemon.pid}" in done.stderr)
    finally:
        daemon.terminate()
        daemon.wait()
