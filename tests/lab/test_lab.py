"""The lab itself: it is real, it is loopback only, and nothing of it stays."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

import pytest

from hpslurm.core.policy import Policy
from hpslurm.node import efa, instance, memlock, shm
from hpslurm.sources.host import Host
from tests.lab import processes
from tests.lab.lab import CHECKOUT, Lab, LabError, new_folder, stop_abandoned


def test_each_node_runs_a_task_of_a_job(lab):
    done = lab.run("srun", "-N4", "sh", "-c", "echo $SLURMD_NODENAME")
    assert (0, ["n1", "n2", "n3", "n4"]) == (done.returncode, sorted(done.stdout.split()))


def test_every_daemon_listens_on_loopback_only(make_lab):
    lab = make_lab(nodes=2)
    ours = {inode for pid, _ in lab.processes() for inode in sockets(pid)}
    listening = [line.split() for line in open("/proc/net/tcp").readlines()[1:]]
    addresses = {words[1].split(":")[0] for words in listening if words[3] == "0A" and words[9] in ours}
    assert {"0100007F"} == addresses  # 127.0.0.1 as the kernel writes it
    others = [line.split() for line in open("/proc/net/tcp6").readlines()[1:]]
    assert [] == [words for words in others if words[9] in ours]


def sockets(pid: int) -> list[str]:
    found = []
    for name in os.listdir(f"/proc/{pid}/fd"):
        target = os.readlink(f"/proc/{pid}/fd/{name}")
        if target.startswith("socket:["):
            found.append(target[8:-1])
    return found


def test_a_job_that_hides_its_children_leaves_nothing(make_lab):
    lab = make_lab(nodes=1)
    job = lab.submit("--wrap", "trap '' TERM; setsid nohup sleep 600 & setsid sleep 601 & touch started; sleep 602")
    deadline = time.monotonic() + 30
    while not os.path.exists(lab.path("work", "started")) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert "RUNNING" == lab.job(job)["JobState"]
    before = lab.processes()
    assert 6 < len(before)
    lab.down()
    assert [] == [one for one in before if processes.alive(one)]


def test_a_prolog_that_hangs_leaves_nothing(make_lab):
    folder = new_folder()
    hook = f"{folder}.sh"
    with open(hook, "w") as file:
        file.write("#!/bin/sh\nsleep 600\n")
    os.chmod(hook, 0o755)
    try:
        lab = make_lab(nodes=1, conf=f"Prolog={hook}\nPrologFlags=Alloc")
        lab.submit("--wrap", "true")
        deadline = time.monotonic() + 30
        while not any(running(one, "sleep") for one in lab.processes()) and time.monotonic() < deadline:
            time.sleep(0.05)
        before = lab.processes()
        assert any(running(one, "sleep") for one in before)
        lab.down()
        assert [] == [one for one in before if processes.alive(one)]
    finally:
        os.unlink(hook)
        os.rmdir(folder)


def running(process: processes.Process, name: str) -> bool:
    try:
        return open(f"/proc/{process[0]}/comm").read().strip() == name
    except OSError:
        return False


@pytest.mark.usefixtures("make_lab")
def test_a_broken_slurm_conf_is_told_in_slurm_s_words_and_leaves_nothing():
    lab = Lab(new_folder(), nodes=1, conf="NoSuchKey=1")
    with pytest.raises(LabError, match=r"slurmctld ended:\n(.|\n)*NoSuchKey"):
        lab.up()
    assert "munged" in lab.running
    assert [] == lab.processes()
    shutil.rmtree(lab.folder)


def test_two_labs_do_not_meet(make_lab):
    one, two = make_lab(nodes=1, prefix="a"), make_lab(nodes=1, prefix="b")
    assert (["a1"], ["b1"]) == (list(one.node_states()), list(two.node_states()))
    one.down()
    assert {"b1": "IDLE"} == two.node_states()


def test_a_node_whose_slurmd_ends_and_starts_again_takes_jobs(make_lab):
    lab = make_lab(nodes=2)
    before = lab.running["slurmd.n2"]
    lab.stop_node("n2")
    assert not processes.alive(before)
    lab.start_node("n2", memlock=65536)
    assert "64\n" == lab.run("srun", "-w", "n2", "sh", "-c", "ulimit -Hl").stdout


def test_one_node_really_has_64_kib_of_locked_memory_and_its_hook_sees_it(make_lab):
    lab = make_lab(nodes=2, memlock={"n2": 65536})
    assert memlock.Facts("slurmd", 65536.0) == memlock.collect(Host(lab.host("n2"), in_hook=True))
    assert memlock.Facts("slurmd", float("inf")) == memlock.collect(Host(lab.host("n1"), in_hook=True))
    assert "64\n" == lab.run("srun", "-w", "n2", "sh", "-c", "ulimit -Hl").stdout


def test_a_saved_machine_is_a_healthy_p5_unless_told_otherwise(make_lab):
    lab = make_lab(nodes=2, machines={"n2": {"efa": 16}})
    one, two = (Host(lab.host(node), in_hook=True) for node in ("n1", "n2"))
    assert ("p5.48xlarge", "i-0123456789abc0000") == (instance.instance_type(one), instance.instance_id(one))
    assert [] == list(efa.judge(efa.collect(one), Policy())) + list(shm.judge(shm.collect(one), Policy()))
    assert [efa.MISSING] == [finding.rule for finding in efa.judge(efa.collect(two), Policy())]


def test_installed_hooks_leave_a_record_of_each_node_s_own_machine(make_lab):
    lab = make_lab(nodes=2, hooks=("prolog", "epilog"), machines={"n2": {"efa": 16}})
    job = lab.submit("-N2", "--wrap", "true")
    assert "COMPLETED" == lab.wait_for_job(job)["JobState"]
    found = {node: findings(f"{lab.results(node)}/jobs/{job}/{node}.prolog.jsonl") for node in ("n1", "n2")}
    assert {"n1": [], "n2": ["efa-missing"]} == found, lab.log("hooks.log")
    assert "MEMLOCK" in lab.run("scontrol", "show", "config").stdout  # the other lines of slurm.conf.example


def findings(record: str) -> list[str]:
    lines = [json.loads(line) for line in open(record)]
    return [line["id"] for line in lines if line["type"] == "finding"]


def test_fake_gpus_reach_the_job(make_lab):
    lab = make_lab(nodes=1, gpus=8)
    done = lab.run("srun", "--gres=gpu:2", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES")
    assert "0,1\n" == done.stdout


def test_of_many_nodes_only_some_need_to_run(make_lab):
    lab = make_lab(nodes=1000, start=2, prefix="ip-10-1-0-")
    assert 1000 == len(lab.node_states())
    assert ["ip-10-1-0-1", "ip-10-1-0-2"] == sorted(
        lab.run("srun", "-N2", "printenv", "SLURMD_NODENAME").stdout.split()
    )


def test_a_line_of_slurm_conf_replaces_ours(make_lab):
    lab = make_lab(nodes=1, conf="KillWait=17")
    assert "KillWait                = 17 sec" in lab.run("scontrol", "show", "config").stdout


def test_a_user_who_is_not_root_can_run_a_job(make_lab):
    lab = make_lab(nodes=1)
    assert "65534\n" == lab.run("srun", "id", "-u", user=65534).stdout


@pytest.mark.usefixtures("make_lab")
def test_a_host_name_that_does_not_resolve_is_no_obstacle():
    code = "import ctypes, socket; ctypes.CDLL(None).unshare(0x04000000); socket.sethostname('nowhere'); "
    code += "from tests.lab.lab import Lab, new_folder\n"
    code += "with Lab(new_folder(), nodes=2) as lab: print(lab.run('srun', '-N2', 'hostname', check=True).stdout)"
    done = subprocess.run([sys.executable, "-c", code], cwd=CHECKOUT, capture_output=True, text=True, timeout=60)
    assert ["localhost", "localhost"] == done.stdout.split(), done.stderr


@pytest.mark.usefixtures("make_lab")
def test_a_lab_whose_owner_was_killed_is_stopped_by_the_next():
    code = "import os; from tests.lab.lab import Lab, new_folder\n"
    code += "lab = Lab(new_folder(), nodes=1); lab.__enter__(); print(lab.folder, flush=True); os.kill(os.getpid(), 9)"
    done = subprocess.run([sys.executable, "-c", code], cwd=CHECKOUT, capture_output=True, text=True, timeout=60)
    left = Lab.open(done.stdout.strip())
    mine = left.processes()
    assert 3 <= len(mine)
    assert left.folder in stop_abandoned()
    assert [] == [one for one in mine if processes.alive(one)]


@pytest.mark.usefixtures("make_lab")
def test_the_command_starts_shows_and_stops_a_lab():
    folder = new_folder()
    assert command("up", "--dir", folder, "--nodes", "2", "--efa", "n2=16")[1].startswith("2 nodes up in ")
    try:
        assert "n1\nn2\n" == command("exec", "--dir", folder, "--", "scontrol", "show", "hostnames", "n[1-2]")[1]
        command("stop-node", "--dir", folder, "n2")
        ended = [line.split()[0] for line in command("status", "--dir", folder)[1].splitlines() if "ended" in line]
        assert ["slurmd.n2"] == ended
    finally:
        assert 0 == command("down", "--dir", folder)[0]
    assert not os.path.exists(folder)


def test_without_a_lab_in_the_folder_the_command_says_so():
    folder = tempfile.mkdtemp()
    status, _, err = command("status", "--dir", folder)
    assert (1, True) == (status, err.startswith(f"lab: no lab in {folder}"))
    os.rmdir(folder)


def test_a_folder_too_long_for_sockets_is_refused_before_anything_starts():
    assert "lab: /" + "x" * 90 + " is too long" in command("up", "--dir", "/" + "x" * 90)[2]


def command(*words: str) -> tuple[int, str, str]:
    argv = [sys.executable, os.path.join(CHECKOUT, "tests", "lab", "lab.py"), *words]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout, done.stderr
